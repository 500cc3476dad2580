"""What only a session over the wire knows: connections that are lost, sessions that expire, servers that are away."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from interop.zookeeper.conftest import Server
from ottla.zk.client import ConnectionLossError, SessionEvent, ZkUnreachableError
from ottla.zk.kazoo_client import MOST_READS, KazooZk, connect_kazoo
from ottla.zk.tree import Create, EventType, NoAuthError, SessionExpiredError, WatchEvent
from support.apache import OlderZooKeeper
from support.ports import free_port
from support.proxy import Proxy
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("Z2"), pytest.mark.slow]

SESSION_MS = 4_000
#: Where nothing waits for its end: the time a busy machine takes must not end it.
LONG_SESSION_MS = 30_000
PATIENCE_S = 60.0
#: Turns of the loop in which a call that failed is repeated, at least.
TURNS_TO_ASK_AGAIN = 5

_numbers = itertools.count()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as made:
        yield made


@asynccontextmanager
async def session(servers: str, timeout_ms: int = SESSION_MS) -> AsyncIterator[KazooZk]:
    zk = await connect_kazoo(f"{servers}/kazoo-client/{next(_numbers)}", timeout_ms, 10_000)
    try:
        yield zk
    finally:
        await zk.close()


def run(body: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 50))


async def next_of(told: asyncio.Queue[WatchEvent | SessionEvent]) -> WatchEvent | SessionEvent:
    return await asyncio.wait_for(told.get(), PATIENCE_S)


def expire(zk: KazooZk, servers: str) -> None:
    """End the session as another process with its id and password may."""
    pair = KazooClient(hosts=servers, client_id=zk._client.client_id)
    pair.start()
    pair.stop()
    pair.close()


def close_to_all(server: Server, path: str) -> None:
    """Have nobody but the owner of a password read a node."""
    other = KazooClient(hosts=server.connect)
    other.start()
    other.set_acls(path, [make_digest_acl("me", "secret", all=True)])
    other.stop()
    other.close()


def test_watches_survive_a_connection_that_is_lost_and_report_what_they_missed(proxy: Proxy, server: Server) -> None:
    async def body() -> None:
        async with session(proxy.bootstrap) as zk:
            other = await connect_kazoo(f"{server.connect}{zk.address.chroot}", SESSION_MS, 10_000)
            told: asyncio.Queue[WatchEvent | SessionEvent] = asyncio.Queue()
            zk.on_session(told.put_nowait)
            await zk.create("/mine", ephemeral=True)
            for name in ("/changed", "/same", "/gone", "/parent", "/lone"):
                await zk.create(name, b"")
            for name in ("/changed", "/same", "/gone", "/born", "/unborn"):
                await zk.exists(name, told.put_nowait)
            await zk.children("/parent", told.put_nowait)
            await zk.children("/lone", told.put_nowait)
            before = zk.session_id
            proxy.refuse(3600)
            assert await next_of(told) is SessionEvent.SUSPENDED
            await other.set("/changed", b"x")
            await other.delete("/gone")
            await other.create("/born")
            await other.create("/parent/child")
            read = asyncio.create_task(zk.get("/changed"))
            await asyncio.to_thread(proxy.heal)
            missed = [await next_of(told) for _ in range(4)]
            assert await next_of(told) is SessionEvent.CONNECTED
            assert sorted(missed, key=str) == sorted(
                [
                    WatchEvent(EventType.DATA_CHANGED, "/changed"),
                    WatchEvent(EventType.DELETED, "/gone"),
                    WatchEvent(EventType.CREATED, "/born"),
                    WatchEvent(EventType.CHILDREN_CHANGED, "/parent"),
                ],
                key=str,
            )
            assert (await read)[0] == b"x"
            assert zk.session_id == before
            assert await other.exists("/mine") is not None
            # Those that missed nothing are set again.
            await other.set("/same", b"x")
            assert await next_of(told) == WatchEvent(EventType.DATA_CHANGED, "/same")
            await other.create("/unborn")
            assert await next_of(told) == WatchEvent(EventType.CREATED, "/unborn")
            await other.create("/lone/child")
            assert await next_of(told) == WatchEvent(EventType.CHILDREN_CHANGED, "/lone")
            assert told.empty()
            await other.close()

    run(body)


def test_a_session_that_expires_is_reported_and_followed_by_a_new_one(server: Server) -> None:
    async def body() -> None:
        async with session(server.connect) as zk:
            told: asyncio.Queue[WatchEvent | SessionEvent] = asyncio.Queue()
            zk.on_session(told.put_nowait)
            await zk.create("/mine", ephemeral=True)
            await zk.exists("/mine", told.put_nowait)
            before = zk.session_id
            await asyncio.to_thread(expire, zk, server.connect)
            events = [await next_of(told)]
            while events[-1] is not SessionEvent.CONNECTED:
                events.append(await next_of(told))
            assert events[-2:] == [SessionEvent.EXPIRED, SessionEvent.CONNECTED]
            assert zk.session_id not in (0, before)
            assert await zk.exists("/mine") is None
            await zk.create("/mine", ephemeral=True)
            await zk.set("/mine", b"the old watch is gone")
            await zk.get("/mine")
            assert told.empty()

    run(body)


def test_calls_wait_for_a_connection_no_longer_than_a_session_lasts(proxy: Proxy) -> None:
    async def body() -> None:
        async with session(proxy.bootstrap) as zk:
            told: asyncio.Queue[WatchEvent | SessionEvent] = asyncio.Queue()
            zk.on_session(told.put_nowait)
            proxy.refuse(3600)
            assert await next_of(told) is SessionEvent.SUSPENDED
            calls = [zk.get("/"), zk.create("/a"), zk.multi([Create("/b")]), *(zk.exists("/") for _ in range(50))]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(result) for result in results} == {ConnectionLossError}
            assert f"{zk.address.servers}" in str(results[0])
            assert "Connection refused" in str(results[0])
            proxy.heal()
            while await next_of(told) is not SessionEvent.CONNECTED:
                pass
            assert await zk.children("/") == []

    run(body)


def test_a_change_whose_answer_is_lost_says_so_and_a_read_is_asked_again(proxy: Proxy) -> None:
    async def body() -> None:
        async with session(proxy.bootstrap) as zk:
            proxy.hang()
            write = asyncio.create_task(zk.create("/a"))
            read = asyncio.create_task(zk.children("/"))
            await asyncio.to_thread(wait_until, lambda: proxy.faults.total() or write.done(), "a hanging connection")
            await asyncio.to_thread(proxy.heal)
            with pytest.raises((ConnectionLossError, SessionExpiredError)):
                await write
            try:
                assert await read in ([], ["a"])
            except ConnectionLossError:
                # It is asked again once: on a busy machine the next connection can still hang.
                assert proxy.faults.total() > 1

    run(body)


def test_a_read_waits_for_the_next_connection_though_the_loss_is_not_reported_yet(proxy: Proxy) -> None:
    async def body() -> None:
        async with session(proxy.bootstrap, LONG_SESSION_MS) as zk:
            loop = asyncio.get_running_loop()
            fail_pending = zk._client._notify_pending

            def failing_what_is_asked_meanwhile(state: object) -> None:
                for _ in range(2 * MOST_READS):
                    fail_pending(state)
                    for _ in range(TURNS_TO_ASK_AGAIN):
                        turned = threading.Event()
                        loop.call_soon_threadsafe(turned.set)
                        turned.wait(PATIENCE_S)

            zk._client._notify_pending = failing_what_is_asked_meanwhile
            proxy.hang()
            read = asyncio.create_task(zk.children("/"))
            await asyncio.sleep(0)  # it is asked
            await asyncio.to_thread(proxy.heal)  # this cuts the connection
            assert await read == []

    run(body)


def test_a_server_of_the_list_that_is_away_is_passed_over(server: Server) -> None:
    async def body() -> None:
        async with session(f"127.0.0.1:{free_port()},{server.connect}") as zk:
            assert await zk.children("/") == []

    run(body)


def test_a_chroot_is_made_where_it_is_missing(server: Server) -> None:
    async def body() -> None:
        async with session(f"{server.connect}") as zk:
            chroot = zk.address.chroot
            await zk.create("/inside", b"x")
        async with session(f"{server.connect}") as whole:
            zk = await connect_kazoo(server.connect, SESSION_MS, 10_000)
            assert (await zk.get(f"{chroot}/inside"))[0] == b"x"
            await zk.close()
            assert await whole.exists("/inside") is None

    run(body)


def test_no_zookeeper_is_reported_with_address_cause_and_cure(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        port = free_port()
        with pytest.raises(ZkUnreachableError) as raised:
            await connect_kazoo(f"127.0.0.1:{port}/kafka", SESSION_MS, 500)
        assert f"127.0.0.1:{port}/kafka" in str(raised.value)
        assert "Connection refused" in str(raised.value)
        assert "zookeeper.connect" in str(raised.value)

    with caplog.at_level(logging.INFO):
        run(body)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_calls_after_the_end_of_a_session_say_so(server: Server) -> None:
    async def body() -> None:
        async with session(server.connect) as zk:
            await zk.close()
            with pytest.raises(ConnectionLossError, match="closed"):
                await zk.get("/")
            with pytest.raises(ConnectionLossError, match="closed"):
                await zk.create("/a")

    run(body)


def test_many_calls_at_once(server: Server) -> None:
    async def body() -> None:
        async with session(server.connect) as zk:
            await asyncio.gather(*(zk.create(f"/{number:04}", b"x") for number in range(1_000)))
            assert await zk.children("/") == [f"{number:04}" for number in range(1_000)]
            waiting = [asyncio.create_task(zk.get(f"/{number:04}")) for number in range(1_000)]
            await asyncio.sleep(0)
            for task in waiting[::2]:
                task.cancel()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in done[::2])
            assert {result[0] for result in done[1::2] if isinstance(result, tuple)} == {b"x"}

    run(body)


def test_one_node_of_many_that_may_not_be_read_is_named(server: Server) -> None:
    async def body() -> None:
        async with session(server.connect) as zk:
            for name in ("/a", "/secret", "/b"):
                await zk.create(name, b"x")
            await asyncio.to_thread(close_to_all, server, f"{zk.address.chroot}/secret")
            with pytest.raises(NoAuthError) as raised:
                await zk.get_many(["/missing", "/a", "/secret", "/b"])
            assert raised.value.path == "/secret"
            assert [found and found[0] for found in await zk.get_many(["/missing", "/a", "/b"])] == [None, b"x", b"x"]

    run(body)


def test_a_read_of_many_nodes_whose_answer_is_lost_is_asked_again(proxy: Proxy) -> None:
    async def body() -> None:
        async with session(proxy.bootstrap, LONG_SESSION_MS) as zk:
            await zk.create("/a", b"x")
            proxy.hang()
            read = asyncio.create_task(zk.get_many(["/a", "/b"]))
            await asyncio.sleep(0)  # it is asked
            await asyncio.to_thread(proxy.heal)  # this cuts the connection
            found, missing = await read
            assert found is not None
            assert (found[0], missing) == (b"x", None)

    run(body)


@pytest.mark.needs_kafka
@pytest.mark.needs_older
def test_a_server_that_cannot_read_many_nodes_in_one_request_is_asked_for_one_at_a_time(tmp_path: Path) -> None:
    """Apache ZooKeeper 3.4 answers that it does not know such a request, and closes the connection."""

    async def body(servers: str) -> None:
        async with session(servers, LONG_SESSION_MS) as zk:
            before = zk.session_id
            await zk.create("/mine", b"x", ephemeral=True)
            paths = ["/mine", *(f"/{number}" for number in range(250))]
            losses: list[SessionEvent] = []
            zk.on_session(lambda event: losses.append(event) if event is SessionEvent.SUSPENDED else None)
            for _ in range(2):
                # Several are under way when the first is refused.
                for found in await asyncio.gather(*(zk.get_many(paths) for _ in range(4))):
                    assert [each and each[0] for each in found] == [b"x", *[None] * 250]
            assert len(losses) == 1
            assert zk.session_id == before

    older = OlderZooKeeper(tmp_path)
    try:
        run(partial(body, older.start().connect))
    finally:
        older.stop()


def test_a_watch_is_notified_before_the_read_that_shows_its_change(server: Server) -> None:
    async def body() -> None:
        async with session(server.connect) as zk:
            await zk.create("/a", b"0")
            told: list[WatchEvent] = []
            for number in range(1, 50):
                await zk.get("/a", told.append)
                # The change and the read after it are on their way together.
                write = asyncio.create_task(zk.set("/a", b"%d" % number))
                await asyncio.sleep(0)
                data, _ = await zk.get("/a")
                assert data == b"%d" % number
                assert len(told) == number, "the read was there before the watch"
                await write

    run(body)


def test_a_connection_thread_that_fails_is_replaced_by_a_new_session(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    async def body() -> None:
        async with session(server.connect) as zk:
            told: asyncio.Queue[WatchEvent | SessionEvent] = asyncio.Queue()
            zk.on_session(told.put_nowait)
            before = zk.session_id
            connection = zk._client._connection
            read = connection._read_socket

            def fails(timeout: float) -> object:
                connection._read_socket = read
                raise RuntimeError("an answer to another request")

            connection._read_socket = fails
            with pytest.raises((ConnectionLossError, SessionExpiredError)):
                await zk.create("/a")
            assert await next_of(told) is SessionEvent.EXPIRED
            assert await next_of(told) is SessionEvent.CONNECTED
            assert zk.session_id != before
            await zk.create("/b")

    run(body)
    assert capfd.readouterr().err == ""


def test_a_name_that_nobody_knows_is_reported() -> None:
    async def body() -> None:
        with pytest.raises(ZkUnreachableError, match=r"nowhere\.invalid"):
            await connect_kazoo("nowhere.invalid:2181", SESSION_MS, 300)

    run(body)


def test_a_node_that_is_not_to_be_read_any_more_holds_nobody_up(proxy: Proxy, server: Server) -> None:
    async def body() -> None:
        async with session(proxy.bootstrap) as zk:
            told: asyncio.Queue[WatchEvent | SessionEvent] = asyncio.Queue()
            zk.on_session(told.put_nowait)
            for name in ("/secret", "/open"):
                await zk.create(name, b"")
                await zk.children(name, told.put_nowait)
            proxy.refuse(3600)
            assert await next_of(told) is SessionEvent.SUSPENDED

            await asyncio.to_thread(close_to_all, server, f"{zk.address.chroot}/secret")
            await asyncio.to_thread(proxy.heal)
            assert await next_of(told) == WatchEvent(EventType.CHILDREN_CHANGED, "/secret")
            assert await next_of(told) is SessionEvent.CONNECTED
            with pytest.raises(NoAuthError):
                await zk.children("/secret")
            await zk.create("/open/child")
            assert await next_of(told) == WatchEvent(EventType.CHILDREN_CHANGED, "/open")

    run(body)
