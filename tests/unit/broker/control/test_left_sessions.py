"""Registrations that processes have left in a metadata tree which a server served, and no server serves now."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.clock import SystemClock, VirtualClock
from ottla.env.disk import RealDisk
from ottla.zk.sessions import FIRST_DURABLE_SESSION
from ottla.zk.store import TreeStore
from ottla.zk.tree import Create, OpenSession

SESSION = FIRST_DURABLE_SESSION + 1
TIMEOUT_MS = 300


class OnceWaiting(logging.Handler):
    """Lets the session's time pass once the broker says that it waits for the session's end.

    With the machine's clock a broker that starts slowly would find the session ended, and would not wait.
    """

    def __init__(self, clock: VirtualClock, path: str) -> None:
        super().__init__(logging.WARNING)
        self.clock = clock
        self.path = path
        self.has_waited = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(f"{self.path} is there already: waiting up to"):
            self.has_waited = True
            self.clock.advance(TIMEOUT_MS)


def config(folder: Path) -> BrokerConfig:
    parsed = parse_broker_config(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), "broker.id": "7"},
    )
    assert isinstance(parsed, BrokerConfig)
    return parsed


@pytest.mark.parametrize("left_id", [7, 8])
def test_a_killed_broker_keeps_nobody_out_for_longer_than_its_session(tmp_path: Path, left_id: int) -> None:
    store = TreeStore.open(RealDisk(), str(tmp_path), SystemClock())
    store.execute([OpenSession(SESSION, b"password", TIMEOUT_MS)], SESSION)
    store.execute([Create("/brokers"), Create("/brokers/ids")], SESSION)
    registration = b'{"version":1,"host":"h","port":9,"jmx_port":-1,"timestamp":"1"}'
    store.execute([Create(f"/brokers/ids/{left_id}", registration, ephemeral=True)], SESSION)
    store.close()

    clock = VirtualClock(SystemClock().now_ms())
    waiting = OnceWaiting(clock, f"/brokers/ids/{left_id}")

    async def scenario() -> None:
        broker = Broker(config(tmp_path), clock=clock)
        assert await broker.start() is None
        assert list(broker.image.brokers) == [7]
        assert broker._coordination is not None
        assert broker._coordination.store is not None
        assert SESSION not in broker._coordination.store.tree.sessions
        await broker.stop()

    logging.getLogger("ottla").addHandler(waiting)
    try:
        asyncio.run(scenario())
    finally:
        logging.getLogger("ottla").removeHandler(waiting)
    assert waiting.has_waited
