"""The server in this process: what is told when, by a disk whose flushes end when the test says so."""

from __future__ import annotations

import asyncio
import errno
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from interop.zookeeper import raw
from interop.zookeeper.raw import RawClient
from ottla.env.clock import SystemClock, VirtualClock
from ottla.env.disk import DiskError
from ottla.env.executor import InlineExecutor
from ottla.env.network import NetworkError
from ottla.env.randomness import Randomness
from ottla.net.reports import REPORTS_PER_PERIOD
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk import wire
from ottla.zk.client import LocalClient
from ottla.zk.server import connection as connection_module
from ottla.zk.server import server as server_module
from ottla.zk.server.server import ServerSettings, ZooKeeperServer
from ottla.zk.store import TreeStore
from ottla.zk.tree import EventType, WatchEvent

T = TypeVar("T")

pytestmark = [pytest.mark.spec("Z2")]

PATIENCE_S = 60.0
SYSTEM_ERROR = -1


class HeldExecutor(InlineExecutor):
    """Flushes end when `let_go` is called, or at once while nobody holds them."""

    def __init__(self) -> None:
        self.held = False
        self.waiting: list[Callable[[], None]] = []

    def call(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        if self.held:
            self.waiting.append(lambda: InlineExecutor.call(self, work, done))
        else:
            super().call(work, done)

    def let_go(self) -> None:
        """All flushes end."""
        self.held = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()


class Served:
    """A server with its parts."""

    def __init__(
        self, disk: MemoryDisk | None = None, clock: VirtualClock | None = None, *, force: bool = True
    ) -> None:
        self.disk = FaultyDisk(disk or MemoryDisk())
        self.clock = clock
        self.executor = HeldExecutor()
        self.failures: list[DiskError] = []
        time = clock or SystemClock()
        self.store = TreeStore.open(self.disk, "/t", time, self.executor, flush_on_ack=force)
        settings = ServerSettings(tick_time_ms=500, max_client_connections=8)
        self.server = ZooKeeperServer(
            self.store, time, Randomness(1), port=0, settings=settings, on_failure=self.failures.append
        )
        self.clients: list[RawClient] = []

    async def client(self, **options: object) -> RawClient:
        """A client with a session."""
        client = await in_thread(lambda: RawClient(self.server.port, **options))  # type: ignore[arg-type]
        self.clients.append(client)
        await in_thread(client.connect)
        return client

    @asynccontextmanager
    async def running(self):
        await self.server.start()
        try:
            yield self
        finally:
            self.executor.let_go()
            await self.server.stop()
            for client in self.clients:
                client.close()


async def in_thread(work: Callable[[], T]) -> T:
    return await asyncio.wait_for(asyncio.to_thread(work), PATIENCE_S)


async def ask(client: RawClient, op: int, body: bytes = b"", xid: int | None = None) -> raw.Answer:
    return await in_thread(lambda: client.ask(op, body, xid))


async def until_settled(condition: Callable[[], object]) -> None:
    async def wait() -> None:
        while not condition():  # noqa: ASYNC110 (there is no event for what the server does inside)
            await asyncio.sleep(0)

    await asyncio.wait_for(wait(), PATIENCE_S)


def run(body: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 4 * PATIENCE_S))


def pending(*asked: Awaitable[object]) -> list[asyncio.Task[object]]:
    return [asyncio.ensure_future(each) for each in asked]


def test_nobody_is_reported_a_change_before_it_is_on_the_disk() -> None:
    async def body() -> None:
        async with Served().running() as served:
            writer, reader, watcher, other = [await served.client() for _ in range(4)]
            for path in ("/a", "/gone", "/apart"):
                await ask(writer, raw.CREATE, raw.create(path))
            await ask(watcher, raw.EXISTS, raw.watching("/a", True))
            served.executor.held = True
            writes = pending(
                ask(writer, raw.MULTI, raw.multi([(5, raw.set_data("/a", b"new")), (2, raw.versioned("/gone"))]))
            )
            await until_settled(lambda: served.executor.waiting)
            reads = pending(
                ask(reader, raw.GET_DATA, raw.watching("/a")),
                ask(other, raw.EXISTS, raw.watching("/gone")),
            )
            await until_settled(lambda: len(served.server._holding) == 4)
            assert not any(task.done() for task in (*writes, *reads))
            assert watcher.events == []
            served.executor.let_go()
            written, read, gone = await asyncio.gather(*writes, *reads)
            assert isinstance(read, raw.Answer)
            assert isinstance(gone, raw.Answer)
            assert isinstance(read.result, tuple)
            assert read.result[0] == b"new"
            assert gone.error == -101
            assert isinstance(written, raw.Answer)
            assert written.zxid <= read.zxid
            await in_thread(watcher.ping)
            assert watcher.events == [raw.Event(3, 3, "/a")]

    run(body)


def test_what_no_unforced_change_touched_is_read_at_once() -> None:
    async def body() -> None:
        async with Served().running() as served:
            writer, reader = await served.client(), await served.client()
            await ask(writer, raw.CREATE, raw.create("/a"))
            apart = (await ask(writer, raw.CREATE, raw.create("/apart"))).zxid
            served.executor.held = True
            (write,) = pending(ask(writer, raw.SET_DATA, raw.set_data("/a", b"1")))
            await until_settled(lambda: served.executor.waiting)
            answer = await ask(reader, raw.GET_DATA, raw.watching("/apart"))
            assert (answer.error, answer.zxid) == (0, apart)
            assert (await in_thread(reader.ping)).zxid == apart
            assert not write.done()
            served.executor.let_go()
            await write

    run(body)


def test_a_new_session_is_on_the_disk_before_its_client_knows_of_it() -> None:
    async def body() -> None:
        async with Served().running() as served:
            served.executor.held = True
            (opening,) = pending(served.client())
            await until_settled(lambda: served.executor.waiting)
            assert not opening.done()
            served.executor.let_go()
            await opening

    run(body)


def test_a_disk_that_fails_ends_all_connections_and_nothing_is_reported() -> None:
    async def body() -> None:
        async with Served().running() as served:
            writer, reader = await served.client(), await served.client()
            served.executor.held = True
            asked = pending(ask(writer, raw.CREATE, raw.create("/a")))
            await until_settled(lambda: served.executor.waiting)
            asked += pending(ask(reader, raw.EXISTS, raw.watching("/a")))
            await until_settled(lambda: len(served.server._holding) == 2)
            served.disk.fail("flush")
            served.executor.let_go()
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ConnectionError, ConnectionError]
            assert [failure.errno for failure in served.failures] == [errno.EIO]

    run(body)


def test_a_full_disk_is_reported_and_nothing_was_done() -> None:
    async def body() -> None:
        async with Served().running() as served:
            client = await served.client()
            served.disk.capacity = 0
            assert (await ask(client, raw.CREATE, raw.create("/a"))).error == SYSTEM_ERROR
            assert (await ask(client, raw.EXISTS, raw.watching("/a"))).error == -101
            served.disk.heal()
            assert (await ask(client, raw.CREATE, raw.create("/a"))).error == 0

    run(body)


def test_clients_of_this_process_and_of_others_watch_one_tree() -> None:
    async def body() -> None:
        async with Served(force=False).running() as served:
            local, remote = LocalClient(served.store), await served.client()
            told: asyncio.Queue[WatchEvent] = asyncio.Queue()
            await local.create("/a", b"1")
            await local.get("/a", told.put_nowait)
            await ask(remote, raw.GET_DATA, raw.watching("/a", True))
            await ask(remote, raw.SET_DATA, raw.set_data("/a", b"2"))
            assert await asyncio.wait_for(told.get(), PATIENCE_S) == WatchEvent(EventType.DATA_CHANGED, "/a")
            assert remote.events == [raw.Event(3, 3, "/a")]
            remote.events.clear()
            await ask(remote, raw.GET_CHILDREN, raw.watching("/", True))
            await local.create("/mine", ephemeral=True)
            # The event comes by itself: nobody asks anything.
            frame = await in_thread(remote.read_frame)
            assert frame[-5:] == b"\0\0\0\1/"
            answer = await ask(remote, raw.EXISTS, raw.watching("/mine"))
            assert isinstance(answer.result, raw.Stat)
            assert answer.result.ephemeral_owner == local.session_id

    run(body)


def test_a_silent_session_ends_and_its_connection_with_it() -> None:
    async def body() -> None:
        clock = VirtualClock(1_700_000_000_000)
        async with Served(clock=clock).running() as served:
            silent, alive = await served.client(timeout_ms=1000), await served.client(timeout_ms=2000)
            await ask(silent, raw.CREATE, raw.create("/e", flags=1))
            await ask(alive, raw.EXISTS, raw.watching("/e", True))
            clock.advance(999)
            served.server.expire_sessions()
            await in_thread(alive.ping)
            assert alive.events == []
            clock.advance(1)
            served.server.expire_sessions()
            with pytest.raises(ConnectionError):
                await in_thread(silent.read_frame)
            await in_thread(alive.ping)
            assert alive.events == [raw.Event(2, 3, "/e")]
            back = await served.client(session_id=silent.session_id, password=silent.password)
            assert (back.session_id, back.timeout_ms) == (0, 0)

    run(body)


def test_a_loop_that_was_held_up_ends_no_session_before_it_has_read_what_came() -> None:
    async def body() -> None:
        clock = VirtualClock(1_700_000_000_000)
        async with Served(clock=clock).running() as served:
            silent, busy = await served.client(timeout_ms=1000), await served.client(timeout_ms=1000)
            clock.advance(5000)
            # The process was stopped; the timer runs before what has come is read.
            served.server._look()
            assert len(served.server.sessions) == 2
            await in_thread(busy.ping)
            served.server._look()
            assert [session.id for session in served.server.sessions] == [busy.session_id]
            with pytest.raises(ConnectionError):
                await in_thread(silent.read_frame)

    run(body)


def test_sessions_outlive_a_restart_with_their_whole_timeout() -> None:
    async def body() -> None:
        clock, disk = VirtualClock(1_700_000_000_000), MemoryDisk()
        async with Served(disk, clock).running() as served:
            client = await served.client(timeout_ms=1000)
            await ask(client, raw.CREATE, raw.create("/e", flags=1))
            seen = client.last_zxid
        clock.advance(100_000)
        async with Served(disk, clock).running() as served:
            clock.advance(999)
            served.server.expire_sessions()
            options = {"session_id": client.session_id, "password": client.password, "last_zxid": seen}
            back = await served.client(timeout_ms=1000, **options)
            assert back.session_id == client.session_id
            fresh = await served.client()
            assert fresh.session_id > client.session_id
            assert (await ask(back, raw.EXISTS, raw.watching("/e"))).error == 0

    run(body)


def test_a_client_that_does_not_read_is_read_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MOST_QUEUED_BYTES", 200_000)

    async def body() -> None:
        async with Served().running() as served:
            client, count = await served.client(), 1000
            await ask(client, raw.CREATE, raw.create("/big", b"x" * 100_000))
            frame = raw.watching("/big")

            def send() -> None:
                for _ in range(count):
                    client.send(raw.GET_DATA, frame)

            await in_thread(send)
            (connection,) = served.server._connections
            await until_settled(lambda: connection._paused)
            assert connection.received < count / 2
            assert connection._queued_bytes < 400_000

            def receive() -> list[int]:
                return [client.receive(raw.GET_DATA).xid for _ in range(count)]

            xids = await in_thread(receive)
            assert xids == sorted(xids)

    run(body)


def test_a_client_that_does_not_read_its_events_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MOST_UNREAD_BYTES", 1000)

    async def body() -> None:
        async with Served().running() as served:
            client = await served.client()
            (connection,) = served.server._connections
            served.executor.held = True
            await ask(client, raw.EXISTS, raw.watching("/x", True))
            for number in range(100):
                served.store.watches.watch_data(f"/{number}", connection)
            local = LocalClient(served.store)
            changes = pending(*[local.create(f"/{number}") for number in range(100)])
            await until_settled(lambda: connection.closed)
            served.executor.let_go()
            await asyncio.gather(*changes)

    run(body)


def test_limits_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with Served().running() as served:
            with monkeypatch.context() as patch:
                patch.setattr(server_module, "SESSIONLESS_S", 0.01)
                idle = await in_thread(lambda: RawClient(served.server.port))
                with pytest.raises(ConnectionError):
                    await in_thread(idle.read_frame)
                idle.close()
            for _ in range(8):
                await served.client()
            ninth = await in_thread(lambda: RawClient(served.server.port))
            with pytest.raises(ConnectionError):
                await in_thread(ninth.connect)
            ninth.close()

    run(body)


def test_a_frame_may_come_in_pieces() -> None:
    async def body() -> None:
        async with Served().running() as served:
            client = await served.client()
            data = b"y" * 300_000
            await ask(client, raw.CREATE, raw.create("/big", data))
            answer = await ask(client, raw.GET_DATA, raw.watching("/big"))
            assert isinstance(answer.result, tuple)
            assert answer.result[0] == data
            whole = b"\0\0\0\x11" + (7).to_bytes(4, "big") + (raw.EXISTS).to_bytes(4, "big") + raw.watching("/big")
            for position in range(len(whole)):
                client.socket.send(whole[position : position + 1])
                await asyncio.sleep(0)
            assert (await in_thread(lambda: client.receive(raw.EXISTS))).xid == 7

    run(body)


def test_a_port_in_use_is_reported() -> None:
    async def body() -> None:
        async with Served().running() as served:
            store = TreeStore.open(MemoryDisk(), "/t", SystemClock(), InlineExecutor())
            second = ZooKeeperServer(store, SystemClock(), Randomness(1), port=served.server.port)
            with pytest.raises(NetworkError, match="in use"):
                await second.start()

    run(body)


def test_nothing_is_worked_on_behind_the_end_of_a_session() -> None:
    """Nor twice, when an earlier answer is sent while that of the end waits for the disk."""

    async def body() -> None:
        async with Served().running() as served:
            client, other = await served.client(), await served.client()
            for path in ("/a", "/apart"):
                await ask(other, raw.CREATE, raw.create(path))
            served.executor.held = True
            requests = [
                (raw.EXISTS, raw.watching("/apart")),
                (raw.SET_DATA, raw.set_data("/a", b"1")),
                (raw.CLOSE, b""),
                (raw.SET_DATA, raw.set_data("/a", b"2")),
            ]
            frames = b"".join(
                struct.pack(">iii", 8 + len(request), xid, op) + request for xid, (op, request) in enumerate(requests)
            )
            # In two pieces, the first of which holds no whole request.
            connection = next(each for each in served.server._connections if each.session.id == client.session_id)
            await in_thread(lambda: client.socket.sendall(frames[:10]))
            await until_settled(lambda: len(connection._partial) == 10)
            await in_thread(lambda: client.socket.sendall(frames[10:]))
            assert (await in_thread(lambda: client.receive(raw.EXISTS))).xid == 0
            await in_thread(lambda: client.socket.sendall(frames))
            served.executor.let_go()
            assert [(await in_thread(lambda op=op: client.receive(op))).xid for op, _ in requests[1:3]] == [1, 2]
            with pytest.raises(ConnectionError):
                await in_thread(client.read_frame)
            node = served.store.tree.get("/a")
            assert (node.version, node.data) == (1, b"1")

    run(body)


def test_last_answers_that_nobody_takes_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "LAST_ANSWERS_S", 0.05)

    async def body() -> None:
        async with Served().running() as served:
            client = await served.client()
            await ask(client, raw.CREATE, raw.create("/big", b"x" * 1_000_000))

            def send() -> None:
                # More answers than sockets hold; none is read.
                for _ in range(20):
                    client.send(raw.GET_DATA, raw.watching("/big"))
                client.send(raw.CLOSE)

            monkeypatch.setattr(connection_module, "MOST_QUEUED_BYTES", 1 << 30)
            await in_thread(send)
            await until_settled(lambda: not served.server._connections)

    run(body)


def test_a_defect_ends_its_connection_only(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with Served(force=False).running() as served:
            unlucky, other = await served.client(), await served.client()
            monkeypatch.setitem(served.server._requests._handlers, raw.SYNC, lambda *_: 1 // 0)
            with pytest.raises(ConnectionError):
                await ask(unlucky, raw.SYNC, raw.string("/"))
            assert "could not be worked on" in caplog.text
            await ask(other, raw.EXISTS, raw.watching("/a", True))
            await LocalClient(served.store).create("/a")
            await in_thread(other.read_frame)  # the event, although nobody asks anything

    run(body)


@pytest.mark.spec("S5")
def test_a_flood_of_refused_clients_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with Served().running() as served:
            await served.client()
            connection = next(iter(served.server._connections))
            for _ in range(5 * REPORTS_PER_PERIOD):  # in one slice of the loop
                served.server.refused(connection, "its login is refused")
            assert caplog.text.count("is cut off: its login is refused") == REPORTS_PER_PERIOD

    asyncio.run(body())


def test_a_session_whose_end_cannot_be_written_lives_on(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        clock = VirtualClock(1_700_000_000_000)
        async with Served(clock=clock).running() as served:
            client = await served.client(timeout_ms=1000)
            clock.advance(1000)
            served.disk.capacity = 0
            served.server.expire_sessions()
            assert "it is tried again" in caplog.text
            served.disk.heal()
            clock.advance(900)
            await in_thread(client.ping)
            clock.advance(900)
            served.server.expire_sessions()
            await in_thread(client.ping)
            clock.advance(1000)
            served.server.expire_sessions()
            with pytest.raises(ConnectionError):
                await in_thread(client.read_frame)

    run(body)


def test_asking_whether_it_lives_counts_nothing() -> None:
    async def body() -> None:
        async with Served().running() as served:
            counted = 0

            class Nodes(dict[str, object]):
                def items(self):
                    nonlocal counted
                    counted += 1
                    return super().items()

            served.store.tree.nodes = Nodes(served.store.tree.nodes)
            for word in (b"crst", b"dirs", b"gtmk", b"hash", b"srst", b"stmk", b"wchc", b"wchp"):
                refused = word + b" is not executed because it is not in the whitelist.\n"
                assert served.server.answer_to_word(word) == refused
            assert served.server.answer_to_word(b"what") is None
            for word in (b"ruok", b"srvr", b"isro", b"conf", b"envi", b"stat", b"cons"):
                assert served.server.answer_to_word(word) is not None
            assert counted == 0
            for _ in range(100):
                assert b"zk_approximate_data_size\t1\n" in (served.server.answer_to_word(b"mntr") or b"")
            assert counted == 1

    run(body)


def test_counts_that_do_not_fit_any_more_begin_again() -> None:
    async def body() -> None:
        async with Served().running() as served:
            client = await served.client()
            node = served.store.tree.get("/")
            node.created = node.version = 2**31 - 1
            made = await ask(client, raw.CREATE, raw.create("/n", flags=2))
            assert made.result == "/n2147483647"
            made = await ask(client, raw.CREATE, raw.create("/n", flags=2))
            assert made.result == "/n-2147483648"
            stat = (await ask(client, raw.SET_DATA, raw.set_data("/", b""))).result
            read = (await ask(client, raw.EXISTS, raw.watching("/"))).result
            assert stat == read
            assert isinstance(stat, raw.Stat)
            assert (stat.version, stat.cversion) == (-(2**31), 0)

    run(body)


@pytest.mark.slow
def test_a_server_that_stood_still_reads_before_it_takes_clients_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of a server that runs alone, uvloop, calls timers first."""
    uvloop = pytest.importorskip("uvloop")
    stands, asked = threading.Event(), threading.Event()

    def stand_still(*_: object) -> None:
        stands.set()
        assert asked.wait(PATIENCE_S)
        assert not threading.Event().wait(2.3)  # until the session is over

    async def body() -> None:
        async with Served().running() as served:
            other, client = await served.client(), await served.client(timeout_ms=2000)
            monkeypatch.setitem(served.server._requests._handlers, raw.SYNC, stand_still)

            def ping() -> raw.Answer:
                assert stands.wait(PATIENCE_S)
                client.send(raw.PING, xid=raw.PING_XID)
                asked.set()
                return client.receive(raw.PING)

            pinging = asyncio.get_running_loop().run_in_executor(None, ping)  # it runs before the loop stands still
            other.send(raw.SYNC, raw.string("/"))
            assert (await pinging).error == 0
            assert (await ask(client, raw.EXISTS, raw.watching("/"))).error == 0

    uvloop.run(asyncio.wait_for(body(), 4 * PATIENCE_S))


def test_only_so_many_clients_may_leave_much_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MOST_QUEUED_BYTES", 40_000_000)
    monkeypatch.setattr(connection_module, "MODEST_QUEUED_BYTES", 200_000)
    monkeypatch.setattr(connection_module, "MOST_LONG_QUEUES", 1)

    async def body() -> None:
        async with Served().running() as served:
            clients = [await served.client() for _ in range(3)]
            await ask(clients[0], raw.CREATE, raw.create("/big", b"x" * 100_000))
            count = 300

            def ask_for_all(client: RawClient) -> None:
                for _ in range(count):
                    client.send(raw.GET_DATA, raw.watching("/big"))

            for client in clients:
                await in_thread(lambda client=client: ask_for_all(client))
            by_session = served.server._by_session
            first, *others = (by_session[client.session_id] for client in clients)
            await until_settled(lambda: first.received > count and all(each._paused for each in others))
            assert first._queued_bytes > 10_000_000
            assert all(each._queued_bytes < 400_000 for each in others)
            for client in reversed(clients):
                for _ in range(count):
                    assert (await in_thread(lambda client=client: client.receive(raw.GET_DATA))).error == 0
                assert (await in_thread(client.ping)).error == 0
            assert not served.server.long_queues

    run(body)


@pytest.mark.slow
def test_who_takes_its_answers_slowly_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pings wait behind them."""
    monkeypatch.setattr(connection_module, "MOST_QUEUED_BYTES", 30_000_000)

    async def body() -> None:
        clock = VirtualClock(1_700_000_000_000)
        async with Served(clock=clock).running() as served:
            client = await served.client(timeout_ms=1000)
            await ask(client, raw.CREATE, raw.create("/big", b"x" * 1_000_000))
            for _ in range(60):
                await in_thread(lambda: client.send(raw.GET_DATA, raw.watching("/big")))
            (connection,) = served.server._connections
            await until_settled(lambda: connection._paused)
            session = connection.session
            for _ in range(3):
                clock.advance(600)
                deadline_ms = session.deadline_ms
                for _ in range(8):
                    await in_thread(lambda: client.receive(raw.GET_DATA))
                await until_settled(lambda before=deadline_ms: session.deadline_ms > before)
                served.server.expire_sessions()
            assert not connection.closed
            clock.advance(1000)
            served.server.expire_sessions()
            assert connection.closed

    run(body)


@pytest.mark.parametrize("wanted_ms", [-(2**31), 0, 2**31 - 1])
def test_no_timeout_is_longer_than_a_client_can_be_given(wanted_ms: int) -> None:
    agreed_ms = ServerSettings(tick_time_ms=99_999_999_999).agreed_timeout_ms(wanted_ms)
    assert len(wire.connect_response(agreed_ms, 1, bytes(16), None)) == 40
