"""Making znodes whose parents may be missing, one operation at a time as the older consumer does."""

from __future__ import annotations

from ottla.zk.client import ZkClient
from ottla.zk.tree import NodeExistsError, NoNodeError, parent_of


async def make_node(zk: ZkClient, path: str, data: bytes | None, *, ephemeral: bool = False) -> None:
    """Make the node, and durable parents for it where they are missing. Raises NodeExistsError, other `ZkError`s."""
    try:
        await zk.create(path, data, ephemeral=ephemeral)
    except NoNodeError:
        await make_parents(zk, path)
        await zk.create(path, data, ephemeral=ephemeral)


async def make_parents(zk: ZkClient, path: str) -> None:
    """Make the nodes above `path` that are missing."""
    parent = parent_of(path)
    try:
        await make_node(zk, parent, None)
    except NodeExistsError:
        return


async def children_or_none(zk: ZkClient, path: str) -> list[str]:
    """The names of the node's children; none where the node does not exist."""
    try:
        return await zk.children(path)
    except NoNodeError:
        return []
