"""The client of the tree: one interface for the embedded tree and, later, for a real ZooKeeper ensemble."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ottla.zk.tree import (
    ANY_VERSION,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Result,
    Set,
    Stat,
    WatchEvent,
    WatchTable,
    parent_of,
)

if TYPE_CHECKING:
    from ottla.zk.store import TreeStore

Watcher: TypeAlias = Callable[[WatchEvent], None]
"""Called once, on the event loop, after the change it was set for; setting it again is the watcher's business."""

LOCAL_SESSION = 1


class ZkClient(Protocol):
    """What Kafka's brokers and consumers need of ZooKeeper. Every call may raise a `ZkError`."""

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Make a node; returns its path, which for a sequential one carries its number."""
        ...

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """A node's data and Stat."""
        ...

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data; returns the new Stat."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node without children."""
        ...

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """The names of a node's children, sorted."""
        ...

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """A node's Stat, None where there is none; the watch is set either way."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """Several operations as one transaction; the first that fails raises, and nothing was done."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes go."""
        ...


class LocalClient:
    """A session in the process that holds the tree."""

    def __init__(self, store: TreeStore, session_id: int = LOCAL_SESSION, watches: WatchTable | None = None) -> None:
        self._store = store
        self._session_id = session_id
        self._watches = watches if watches is not None else WatchTable()
        self._closed = False

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """See `ZkClient.create`."""
        operations: list[Operation] = [Create(path, data, ephemeral, sequential)]
        parent = parent_of(path)
        while make_parents and parent not in self._store.tree.nodes:
            operations.insert(0, Create(parent))
            parent = parent_of(parent)
        made = (await self.multi(operations))[-1]
        assert isinstance(made, str)
        return made

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """See `ZkClient.get`."""
        node = self._store.tree.get(path)
        if watch is not None:
            self._watches.watch_data(path, watch)
        return node.data, node.stat()

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """See `ZkClient.set`."""
        (stat,) = await self.multi([Set(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `ZkClient.delete`."""
        await self.multi([Delete(path, version)])

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """See `ZkClient.children`."""
        names = self._store.tree.children(path)
        if watch is not None:
            self._watches.watch_children(path, watch)
        return names

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """See `ZkClient.exists`."""
        node = self._store.tree.nodes.get(path)
        if watch is not None:
            self._watches.watch_data(path, watch)
        return None if node is None else node.stat()

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """See `ZkClient.multi`. Raises `DiskError` too, where the tree's log cannot be written or forced to disk."""
        transaction = self._store.execute(operations, self._session_id)
        self._tell(transaction.events)
        await self._store.forced()
        return transaction.results

    async def close(self) -> None:
        """See `ZkClient.close`. The store stays open: it belongs to whoever opened it."""
        if not self._closed:
            self._closed = True
            self._tell(self._store.expire_session(self._session_id).events)

    def _tell(self, events: Sequence[WatchEvent]) -> None:
        told = self._watches.fire(events)
        if told:
            loop = asyncio.get_running_loop()
            for watcher, event in told:
                assert callable(watcher)
                loop.call_soon(watcher, event)


async def ensure_path(zk: ZkClient, path: str, data: bytes | None = None) -> bool:
    """Make a durable node where it is missing; tells whether it was."""
    try:
        await zk.create(path, data, make_parents=True)
    except NodeExistsError:
        return False
    return True


async def delete_recursive(zk: ZkClient, path: str) -> None:
    """Delete a node with all below it, in one transaction; a missing one is no error."""
    paths = [path]
    try:
        for found in paths:
            paths.extend(f"{found}/{name}" for name in await zk.children(found))
    except NoNodeError:
        if len(paths) == 1:
            return
        raise
    await zk.multi([Delete(found) for found in reversed(paths)])
