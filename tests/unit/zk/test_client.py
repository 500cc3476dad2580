from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from ottla.env.clock import VirtualClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import LocalClient, SessionEvent, delete_recursive, ensure_path
from ottla.zk.store import TreeStore
from ottla.zk.tree import (
    BadVersionError,
    Create,
    EventType,
    NodeExistsError,
    NoNodeError,
    Set,
    WatchEvent,
    WatchTable,
)


def store() -> TreeStore:
    return TreeStore.open(MemoryDisk(), "/t", VirtualClock(1))


def run(test: Coroutine[object, object, None]) -> None:
    asyncio.run(test)


def test_reading_and_writing() -> None:
    async def scenario() -> None:
        zk = LocalClient(store())
        assert await zk.create("/a/b/c", b"1", make_parents=True) == "/a/b/c"
        data, stat = await zk.get("/a/b/c")
        assert (data, stat.version) == (b"1", 0)
        assert (await zk.set("/a/b/c", b"2", 0)).version == 1
        with pytest.raises(BadVersionError):
            await zk.set("/a/b/c", b"3", 0)
        assert await zk.children("/a") == ["b"]
        assert await zk.exists("/nope") is None
        assert (await zk.exists("/a")).children_count == 1  # type: ignore[union-attr]
        await zk.delete("/a/b/c", 1)
        with pytest.raises(NoNodeError):
            await zk.get("/a/b/c")
        assert await zk.create("/a/s-", sequential=True) == "/a/s-0000000001"

    run(scenario())


def test_multi_is_all_or_nothing() -> None:
    async def scenario() -> None:
        zk = LocalClient(store())
        with pytest.raises(NoNodeError):
            await zk.multi([Create("/a"), Set("/b", b"")])
        assert await zk.exists("/a") is None
        assert (await zk.multi([Create("/a"), Create("/a/b")])) == ("/a", "/a/b")

    run(scenario())


def test_watches_fire_after_the_change_and_once() -> None:
    async def scenario() -> None:
        tree = store()
        watches = WatchTable()
        zk, other = LocalClient(tree, 1, watches), LocalClient(tree, 2, watches)
        told: list[WatchEvent] = []
        await zk.create("/a", b"")
        await zk.get("/a", told.append)
        await zk.children("/a", told.append)
        await zk.exists("/later", told.append)
        await other.set("/a", b"x")
        assert told == [], "watchers are called by the loop, not inside the change"
        await other.create("/a/b")
        await other.create("/later")
        await other.set("/a", b"y")
        await asyncio.sleep(0)
        assert told == [
            WatchEvent(EventType.DATA_CHANGED, "/a"),
            WatchEvent(EventType.CHILDREN_CHANGED, "/a"),
            WatchEvent(EventType.CREATED, "/later"),
        ]

    run(scenario())


def test_closing_ends_the_session() -> None:
    async def scenario() -> None:
        tree = store()
        watches = WatchTable()
        zk, other = LocalClient(tree, 1, watches), LocalClient(tree, 2, watches)
        told: list[WatchEvent] = []
        await zk.create("/mine", ephemeral=True)
        await other.exists("/mine", told.append)
        await zk.close()
        await zk.close()
        await asyncio.sleep(0)
        assert told == [WatchEvent(EventType.DELETED, "/mine")]

    run(scenario())


def test_paths_are_made_and_removed_whole() -> None:
    async def scenario() -> None:
        zk = LocalClient(store())
        assert await ensure_path(zk, "/a/b/c", b"1")
        assert not await ensure_path(zk, "/a/b/c", b"2")
        assert (await zk.get("/a/b/c"))[0] == b"1"
        await delete_recursive(zk, "/a")
        await delete_recursive(zk, "/a")
        assert await zk.children("/") == []
        with pytest.raises(NodeExistsError):
            await zk.create("/")

    run(scenario())


def test_a_session_that_expires_loses_its_ephemeral_nodes_and_watches_and_another_goes_on() -> None:
    async def scenario() -> None:
        tree, watches = store(), WatchTable()
        zk, other = LocalClient(tree, 1, watches), LocalClient(tree, 2, watches)
        told: list[WatchEvent | SessionEvent] = []
        others: list[WatchEvent] = []
        zk.on_session(told.append)
        await zk.create("/mine", ephemeral=True)
        await zk.create("/stays", b"")
        await zk.get("/stays", told.append)
        await zk.children("/", told.append)
        await other.get("/mine", others.append)
        zk.expire(3)
        await other.set("/stays", b"x")
        await asyncio.sleep(0)
        assert told == [SessionEvent.EXPIRED, SessionEvent.CONNECTED]
        assert others == [WatchEvent(EventType.DELETED, "/mine")]
        assert zk.session_id == 3
        await zk.create("/mine", ephemeral=True)
        assert (await zk.exists("/mine")).ephemeral_owner == 3  # type: ignore[union-attr]

    run(scenario())
