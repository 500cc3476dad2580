"""Znodes and subtrees as they are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ottla.env.clock import VirtualClock
from ottla.ops.znodes import ZnodeView, read_subtree, read_znode
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import LocalClient, Watcher
from ottla.zk.store import TreeStore
from ottla.zk.tree import NoAuthError, NoNodeError, Stat

pytestmark = pytest.mark.spec("Z1", "U2")

NODES = {"/a": b'{"version":1}', "/a/x": b"text", "/a/x/deep": b"\xff", "/a/y": None, "/b": b""}


def client(kind: type[LocalClient] = LocalClient) -> LocalClient:
    zk = kind(TreeStore.open(MemoryDisk(), "/t", VirtualClock(1)))

    async def fill() -> None:
        for path, data in NODES.items():
            await zk.create(path, data, ephemeral=path == "/a/y")

    asyncio.run(fill())
    return zk


async def paths(zk: LocalClient, path: str, most_depth: int | None = None) -> list[tuple[int, str]]:
    return [(each.depth, each.path) async for each in read_subtree(zk, path, most_depth)]


def test_a_subtree_is_read_parents_first() -> None:
    zk = client()
    assert asyncio.run(paths(zk, "/a")) == [(0, "/a"), (1, "/a/x"), (2, "/a/x/deep"), (1, "/a/y")]
    assert asyncio.run(paths(zk, "/a", 1)) == [(0, "/a"), (1, "/a/x"), (1, "/a/y")]
    assert [path for depth, path in asyncio.run(paths(zk, "/")) if depth == 1] == ["/a", "/b"]
    with pytest.raises(NoNodeError):
        asyncio.run(paths(zk, "/c"))


def test_a_node_that_goes_meanwhile_is_left_out() -> None:
    zk = client()

    async def read() -> list[str]:
        found = []
        async for node in read_subtree(zk, "/a"):
            found.append(node.path)
            if node.path == "/a/x":
                await zk.delete("/a/x/deep")
        return found

    assert asyncio.run(read()) == ["/a", "/a/x", "/a/y"]


def test_data_as_json_text_or_bytes() -> None:
    zk = client()
    values = {path: asyncio.run(read_znode(zk, path)).value for path in NODES}
    assert values == {"/a": {"version": 1}, "/a/x": "text", "/a/x/deep": None, "/a/y": None, "/b": ""}
    rows = {path: asyncio.run(read_znode(zk, path)).row() for path in NODES}
    assert rows["/a/x/deep"]["data_hex"] == "ff"
    assert rows["/a/y"]["data"] is None
    assert rows["/a/y"]["ephemeral_owner"] == "0x1"
    assert (rows["/a"]["data"], rows["/a"]["children"], rows["/a"]["ephemeral_owner"]) == ('{"version":1}', 2, None)
    assert ZnodeView("/n", b"[" * 100_000, Stat(*[0] * 11)).value == "[" * 100_000


class Guarded(LocalClient):
    """A client that may not read one node."""

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        if path == "/a/x":
            raise NoAuthError(path)
        return await super().get(path, watch)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        return [await self.get(path) for path in paths]


def test_a_node_that_may_not_be_read_is_there_without_what_is_below() -> None:
    zk = client(Guarded)

    async def read() -> list[tuple[str, bool]]:
        return [(each.path, each.is_readable) async for each in read_subtree(zk, "/a")]

    assert asyncio.run(read()) == [("/a", True), ("/a/x", False), ("/a/y", True)]
