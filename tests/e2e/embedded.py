"""Our broker in a thread of the test's process, on a disk that fails when told to."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.disk import RealDisk
from ottla.testing.disk_faulty import FaultyDisk
from support.ports import LOOPBACK

START_TIMEOUT_S = 90.0


class EmbeddedBroker:
    """A broker on real sockets and a `FaultyDisk`; `settings` are Kafka's names with underscores for dots."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.disk = FaultyDisk(RealDisk())
        self.port = 0
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._properties = {
            "listeners": f"PLAINTEXT://{LOOPBACK}:0",
            "log.dirs": str(folder),
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **named,
        }
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._refusal: str | None = None
        #: The broker of the last start, to look at.
        self.broker: Broker
        self._error: BaseException | None = None

    def start(self) -> EmbeddedBroker:
        """Start it; an AssertionError with its words when it refuses."""
        self._ready.clear()
        self._refusal = self._error = None
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)
        self._thread.start()
        assert self._ready.wait(START_TIMEOUT_S), "the broker does not start"
        if self._error is not None:
            raise self._error
        assert self._refusal is None, self._refusal
        return self

    def stop(self) -> None:
        """Stop it cleanly; raises what the broker raised."""
        thread, loop = self._thread, self._loop
        if thread is None or loop is None:
            return
        loop.call_soon_threadsafe(self._stop_asked.set)
        thread.join(START_TIMEOUT_S)
        assert not thread.is_alive(), "the broker does not stop"
        self._thread = self._loop = None
        if self._error is not None:
            raise self._error

    def restart(self) -> EmbeddedBroker:
        """Stop it and start it on the same folder, with a disk that works."""
        self.stop()
        self.disk.heal()
        return self.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        config = parse_broker_config(self._properties)
        assert isinstance(config, BrokerConfig), config
        self._loop = asyncio.get_running_loop()
        self._stop_asked = asyncio.Event()
        broker = self.broker = Broker(config, disk=self.disk)
        refusal = await broker.start()
        if refusal is not None:
            self._refusal = refusal.message
            return
        self.port = broker.listening[0].port
        self._ready.set()
        await self._stop_asked.wait()
        await broker.stop()
