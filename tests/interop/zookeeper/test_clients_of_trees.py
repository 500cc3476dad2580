"""One set of test bodies for every way to a tree: in the process, and over the wire to our server and Apache's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from interop.zookeeper.conftest import Server
from ottla.env.clock import VirtualClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import LocalClient, ZkClient, delete_recursive, ensure_path
from ottla.zk.kazoo_client import connect_kazoo
from ottla.zk.store import TreeStore
from ottla.zk.tree import (
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Set,
    Stat,
    WatchEvent,
    WatchTable,
    ZkError,
)

Open = Callable[[], Awaitable[ZkClient]]
"""Opens another session on the tree of the test."""

pytestmark = [pytest.mark.spec("Z2")]

_numbers = itertools.count()


@pytest.fixture(
    params=[
        "in the process",
        pytest.param("ottla_zookeeper", marks=pytest.mark.slow),
        pytest.param("apache_zookeeper", marks=[pytest.mark.needs_kafka, pytest.mark.slow]),
    ]
)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[Open], Coroutine[object, object, None]]], None]:
    """Runs a test body with a way to open sessions on an empty tree."""

    @asynccontextmanager
    async def local() -> AsyncIterator[Open]:
        tree, watches, sessions = TreeStore.open(MemoryDisk(), "/t", VirtualClock(1)), WatchTable(), itertools.count(1)

        async def open_session() -> ZkClient:
            return LocalClient(tree, next(sessions), watches)

        yield open_session

    @asynccontextmanager
    async def over_the_wire() -> AsyncIterator[Open]:
        zookeeper: Server = request.getfixturevalue(request.param)
        chroot = f"/clients-of-trees/{next(_numbers)}"
        opened = []

        async def open_session() -> ZkClient:
            opened.append(await connect_kazoo(f"{zookeeper.connect}{chroot}", 6_000, 10_000))
            return opened[-1]

        try:
            yield open_session
        finally:
            for zk in opened:
                await zk.close()

    is_local = request.param == "in the process"
    if not is_local:
        request.getfixturevalue(request.param)

    def run_one(body: Callable[[Open], Coroutine[object, object, None]]) -> None:
        async def whole() -> None:
            async with (local if is_local else over_the_wire)() as open_session:
                await body(open_session)

        asyncio.run(whole())

    return run_one


def test_reading_and_writing(run) -> None:
    async def body(open_session: Open) -> None:
        zk = await open_session()
        assert await zk.create("/a/b/c", b"1", make_parents=True) == "/a/b/c"
        data, stat = await zk.get("/a/b/c")
        assert (data, stat.version, stat.data_length, stat.ephemeral_owner) == (b"1", 0, 1, 0)
        assert (await zk.set("/a/b/c", b"22", 0)).version == 1
        assert (await zk.get("/a/b/c"))[0] == b"22"
        assert await zk.children("/a") == ["b"]
        assert await zk.children("/") == ["a"]
        assert await zk.exists("/nope") is None
        found = await zk.exists("/a")
        assert found is not None
        assert (found.children_count, found.cversion) == (1, 1)
        assert not await ensure_path(zk, "/a/b")
        assert await ensure_path(zk, "/a/x/y", b"new")
        await delete_recursive(zk, "/a")
        assert await zk.children("/") == []

    run(body)


def test_no_data_is_not_empty_data(run) -> None:
    async def body(open_session: Open) -> None:
        zk = await open_session()
        await zk.create("/none")
        await zk.create("/empty", b"")
        assert (await zk.get("/none"))[0] is None
        assert (await zk.get("/empty"))[0] == b""
        await zk.set("/empty", None)
        assert (await zk.get("/empty"))[0] is None

    run(body)


def test_many_nodes_are_read_together_and_missing_ones_are_none(run) -> None:
    async def body(open_session: Open) -> None:
        zk = await open_session()
        assert await zk.get_many([]) == []
        paths = [f"/{number}" for number in range(250)]
        data = [None if number % 7 == 0 else b"x" * (number % 5) for number in range(len(paths))]
        missing = {3, 99, 100, 249}
        for number, (path, content) in enumerate(zip(paths, data, strict=True)):
            if number not in missing:
                await zk.create(path, content)
        await zk.set("/8", b"again")
        await zk.create("/8/child")
        found = await zk.get_many(paths)
        assert {number for number, each in enumerate(found) if each is None} == missing
        data[8] = b"again"
        assert all(each is None or each[0] == data[number] for number, each in enumerate(found))
        for number in (0, 1, 8, 248):
            assert found[number] == await zk.get(paths[number])
        assert await zk.get_many(["/no", "/no/child"]) == [None, None]
        with pytest.raises(BadArgumentsError):
            await zk.get_many(["/1", "no path"])

    run(body)


def test_errors_are_those_of_the_tree_and_name_the_node(run) -> None:
    async def body(open_session: Open) -> None:
        zk = await open_session()
        await zk.create("/a", b"1")
        await zk.create("/a/e", ephemeral=True)
        cases: list[tuple[type[ZkError], Coroutine[object, object, object]]] = [
            (NoNodeError, zk.get("/no")),
            (NoNodeError, zk.children("/no")),
            (NoNodeError, zk.set("/no", b"")),
            (NoNodeError, zk.delete("/no")),
            (NodeExistsError, zk.create("/a", b"2")),
            (BadVersionError, zk.set("/a", b"2", 7)),
            (BadVersionError, zk.delete("/a", 7)),
            (NotEmptyError, zk.delete("/a")),
            (NoChildrenForEphemeralsError, zk.create("/a/e/below")),
            (BadArgumentsError, zk.get("no/slash")),
            (BadArgumentsError, zk.create("no/slash")),
        ]
        for error, call in cases:
            with pytest.raises(error) as raised:
                await call
            assert raised.value.path
        with pytest.raises(NoNodeError):
            await zk.create("/x/y")

    run(body)


def test_a_transaction_is_all_or_nothing_and_reports_which_operation_failed(run) -> None:
    async def body(open_session: Open) -> None:
        zk = await open_session()
        made = await zk.multi([Create("/a", b"1"), Create("/a/b", None), Set("/a", b"2"), Check("/a", 1)])
        assert made[:2] == ("/a", "/a/b")
        assert isinstance(made[2], Stat)
        assert (made[2].version, made[3]) == (1, None)
        with pytest.raises(BadVersionError) as raised:
            await zk.multi([Delete("/a/b"), Set("/a", b"3", 0), Create("/c")])
        assert raised.value.path == "/a"
        with pytest.raises(NodeExistsError) as exists:
            await zk.multi([Create("/c"), Create("/a")])
        assert exists.value.path == "/a"
        assert (await zk.children("/"), await zk.children("/a")) == (["a"], ["b"])
        assert (await zk.get("/a"))[0] == b"2"
        assert await zk.multi([]) == ()

    run(body)


def test_sequential_nodes_are_numbered_by_their_parent(run) -> None:
    async def body(open_session: Open) -> None:
        zk = await open_session()
        await zk.create("/s")
        assert await zk.create("/s/n-", sequential=True) == "/s/n-0000000000"
        assert await zk.create("/s/m-", b"x", sequential=True, ephemeral=True) == "/s/m-0000000001"
        assert await zk.create("/s/", sequential=True) == "/s/0000000002"
        (made,) = await zk.multi([Create("/s/n-", sequential=True)])
        assert made == "/s/n-0000000003"

    run(body)


def test_ephemeral_nodes_are_the_session_s_and_go_with_it(run) -> None:
    async def body(open_session: Open) -> None:
        zk, other = await open_session(), await open_session()
        assert zk.session_id != other.session_id
        await zk.create("/e", b"x", ephemeral=True)
        stat = await other.exists("/e")
        assert stat is not None
        assert stat.ephemeral_owner == zk.session_id
        told: asyncio.Queue[WatchEvent] = asyncio.Queue()
        await other.exists("/e", told.put_nowait)
        await zk.close()
        assert await asyncio.wait_for(told.get(), 10) == WatchEvent(EventType.DELETED, "/e")
        assert await other.exists("/e") is None

    run(body)


def test_watches_report_once_what_they_were_set_for(run) -> None:
    async def body(open_session: Open) -> None:
        zk, other = await open_session(), await open_session()
        told: asyncio.Queue[WatchEvent] = asyncio.Queue()

        async def next_event() -> WatchEvent:
            return await asyncio.wait_for(told.get(), 10)

        await zk.create("/a", b"")
        await zk.get("/a", told.put_nowait)
        await other.set("/a", b"1")
        assert await next_event() == WatchEvent(EventType.DATA_CHANGED, "/a")
        await other.set("/a", b"2")
        await zk.children("/a", told.put_nowait)
        await other.create("/a/b")
        assert await next_event() == WatchEvent(EventType.CHILDREN_CHANGED, "/a")
        await zk.exists("/later", told.put_nowait)
        await other.create("/later")
        assert await next_event() == WatchEvent(EventType.CREATED, "/later")
        await zk.children("/later", told.put_nowait)
        await zk.get("/later", told.put_nowait)
        await other.delete("/later")
        assert await next_event() == WatchEvent(EventType.DELETED, "/later")
        # What was told is all: another change tells nothing.
        await other.create("/later")
        await zk.get("/later")
        await asyncio.sleep(0)
        assert told.empty()

    run(body)


def test_a_name_in_any_script_and_data_of_any_bytes(run) -> None:
    async def body(open_session: Open) -> None:
        zk = await open_session()
        data = bytes(range(256)) * 100
        await zk.create("/потік-流", data)
        assert await zk.children("/") == ["потік-流"]
        assert (await zk.get("/потік-流"))[0] == data

    run(body)


def test_too_much_data_is_refused_and_costs_no_connection(run) -> None:
    async def body(open_session: Open) -> None:
        zk = await open_session()
        with pytest.raises(BadArgumentsError, match="bytes"):
            await zk.create("/large", bytes(1024 * 1024 + 1))
        assert await zk.children("/") == []

    run(body)
