"""Acknowledged means on the disk, for the ZooKeeper server, too: the power goes while clients write and read."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop.zookeeper import raw
from interop.zookeeper.raw import RawClient
from ottla.env.clock import SystemClock
from ottla.env.disk import RealDisk
from ottla.env.executor import DiskExecutor
from ottla.env.randomness import Randomness
from ottla.zk.server.server import ZooKeeperServer
from ottla.zk.store import LOG_NAME, TreeStore
from support.power_loss import PowerLossDisk
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("Z2"), pytest.mark.slow]

START_TIMEOUT_S = 90.0
CLIENTS = 6
MOMENTS = 60


class PoweredServer:
    """A server in a thread of this process, on a disk whose power may go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = PowerLossDisk(RealDisk())
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        executor = DiskExecutor(2)
        store = TreeStore.open(self.disk, str(self.folder), SystemClock(), executor, flush_on_ack=True)
        server = ZooKeeperServer(store, SystemClock(), Randomness(), port=0)
        await server.start()
        self.port = server.port
        self._ready.set()
        await self._stop.wait()
        await server.stop()
        store.close()
        executor.close()

    def start(self) -> PoweredServer:
        self._thread.start()
        assert self._ready.wait(START_TIMEOUT_S)
        return self

    def stop(self) -> None:
        self.disk.let_go()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_TIMEOUT_S)

    def after_loss(self, target: Path) -> TreeStore:
        """The tree as it is found when the power is back."""
        self.disk.survivors(self.folder, target)
        return TreeStore.open(RealDisk(), str(target), SystemClock())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PoweredServer]:
    made = PoweredServer(tmp_path / "data").start()
    yield made
    made.stop()


class Writers:
    """Clients that write, each its own node, and one that reads them all: what each of them was told."""

    def __init__(self, port: int) -> None:
        #: The last value of each node that somebody was told of.
        self.told = [0] * CLIENTS
        self.sessions: dict[int, int] = {}
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._port = port
        self._threads = [threading.Thread(target=self._guarded, args=(self._write, n)) for n in range(CLIENTS)]
        self._threads.append(threading.Thread(target=self._guarded, args=(self._read, 0)))

    @contextmanager
    def running(self) -> Iterator[Writers]:
        for thread in self._threads:
            thread.start()
        try:
            wait_until(lambda: self.failures or all(self.told), "all to have written")
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(START_TIMEOUT_S)

    def _guarded(self, work, number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            self.failures.append(error)

    def _write(self, number: int) -> None:
        with RawClient(self._port, timeout_ms=10_000) as client:
            assert client.ask(raw.CREATE, raw.create(f"/e{number}", flags=1)).error == 0
            self.sessions[number] = client.session_id
            assert client.ask(raw.CREATE, raw.create(f"/n{number}", b"0")).error == 0
            for value in itertools.count(1):
                assert client.ask(raw.SET_DATA, raw.set_data(f"/n{number}", b"%d" % value)).error == 0
                self.told[number] = max(self.told[number], value)
                if self._stop.is_set():
                    return

    def _read(self, _: int) -> None:
        with RawClient(self._port, timeout_ms=10_000) as client:
            while not self._stop.is_set():
                for number in range(CLIENTS):
                    answer = client.ask(raw.GET_DATA, raw.watching(f"/n{number}", True))
                    if answer.error == 0:
                        assert isinstance(answer.result, tuple)
                        self.told[number] = max(self.told[number], int(answer.result[0]))
                client.events.clear()


@pytest.mark.timeout(600)
def test_what_anybody_has_seen_survives_a_loss_of_power(server: PoweredServer, tmp_path: Path) -> None:
    with Writers(server.port).running() as writers:
        progress = 0
        for moment in range(MOMENTS):
            wait_until(lambda: sum(writers.told) > progress + 20, "more to be written")  # noqa: B023
            told = list(writers.told)
            progress = sum(told)
            found = server.after_loss(tmp_path / f"survivor{moment}").tree
            for number, value in enumerate(told):
                assert int(found.get(f"/n{number}").data or b"") >= value, f"moment {moment}"
                assert found.get(f"/e{number}").ephemeral_owner == writers.sessions[number]
                assert writers.sessions[number] in found.sessions
    assert writers.failures == []


def test_what_nobody_has_seen_may_be_lost_and_is_not_seen(server: PoweredServer, tmp_path: Path) -> None:
    with RawClient(server.port) as writer, RawClient(server.port) as reader:
        writer.ask(raw.CREATE, raw.create("/a", b"old"))
        before = server.disk.flushes[f"{server.folder}/{LOG_NAME}"]
        server.disk.hold(f"*/{LOG_NAME}")
        writer.send(raw.SET_DATA, raw.set_data("/a", b"new"))
        wait_until(lambda: server.disk.flushes[f"{server.folder}/{LOG_NAME}"] > before, "the flush to begin")
        reader.send(raw.GET_DATA, raw.watching("/a"))
        reader.send(raw.PING, xid=raw.PING_XID)
        reader.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            reader.read_frame()
        assert server.after_loss(tmp_path / "survivor").tree.get("/a").data == b"old"
        server.disk.let_go()
        reader.socket.settimeout(raw.TIMEOUT_S)
        answer = reader.receive(raw.GET_DATA)
        assert isinstance(answer.result, tuple)
        assert answer.result[0] == b"new"
        assert writer.receive(raw.SET_DATA).error == 0
        assert server.after_loss(tmp_path / "later").tree.get("/a").data == b"new"
