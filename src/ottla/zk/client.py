"""The client of the tree: one interface for the embedded tree and for a ZooKeeper over the wire (`zk.kazoo_client`)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ottla.env.disk import DiskError
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
    Transaction,
    WatchEvent,
    WatchTable,
    ZkError,
    check_path,
    parent_of,
)
from ottla.zk.watches import LocalWatch

if TYPE_CHECKING:
    from ottla.zk.store import TreeStore

Watcher: TypeAlias = Callable[[WatchEvent], None]
"""Called once, on the event loop, after the change it was set for; setting it again is the watcher's business."""

LOCAL_SESSION = 1
LARGEST_TRANSACTION = 64 * 1024 * 1024
"""Bytes of a transaction in the process; the log takes records of four times as many."""
LARGEST_OVER_THE_WIRE = 512 * 1024
"""Bytes of a transaction over the wire: half of what a server takes, which leaves room for the chroot of each path."""


class SessionEvent(Enum):
    """What became of the session."""

    CONNECTED = "connected"
    """There is a connection, be it in the old session (whose watches stay set) or in a new one after EXPIRED."""
    SUSPENDED = "suspended"
    """The connection is lost. Session, watches and ephemeral nodes may still be there: nobody knows."""
    EXPIRED = "expired"
    """The session is over: its ephemeral nodes and watches are gone. A new one is being made."""


SessionListener: TypeAlias = Callable[[SessionEvent], None]
"""Called on the event loop, in order with the watches."""


class ConnectionLossError(ZkError):
    """There is no connection to ZooKeeper, or it was lost before the answer came: a change was made, or was not."""

    CODE = -4


class ZkUnreachableError(Exception):
    """No ZooKeeper answers where one should be; the message names the servers, the cause, and what to do."""


class ZkClient(Protocol):
    """What Kafka's brokers and consumers need of ZooKeeper. Every call may raise a `ZkError`."""

    @property
    def session_id(self) -> int:
        """The session that owns the ephemeral nodes made now; another one after EXPIRED."""
        ...

    def on_session(self, listener: SessionListener) -> None:
        """Have `listener(event)` called from now on with what becomes of the session."""
        ...

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


#: What an operation takes on the wire beside path and data: headers, version, flags, the access list of a create.
_CREATE_BYTES, _OTHER_BYTES = 64, 32


def operation_bytes(operation: Operation) -> int:
    """About what an operation takes of a request, rather too many than too few."""
    size = len(operation.path.encode())
    if isinstance(operation, Create | Set):
        size += len(operation.data or b"")
    return size + (_CREATE_BYTES if isinstance(operation, Create) else _OTHER_BYTES)


def in_transactions(
    operations: Iterable[Operation], most_bytes: int, most_operations: int | None = None
) -> Iterator[list[Operation]]:
    """The operations in order, in as many transactions as size and number demand; where that is one, all or none is
    done.

    An operation that alone is larger stands alone.
    """
    part: list[Operation] = []
    size = 0
    for operation in operations:
        adds = operation_bytes(operation)
        if part and (size + adds > most_bytes or len(part) == most_operations):
            yield part
            part, size = [], 0
        part.append(operation)
        size += adds
    if part:
        yield part


class ByTransactions(ABC):
    """The single changes of a `ZkClient` that makes each a transaction of one operation."""

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """See `ZkClient.set`."""
        (stat,) = await self.multi([Set(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `ZkClient.delete`."""
        await self.multi([Delete(path, version)])

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """See `ZkClient.multi`."""


class LocalClient(ByTransactions):
    """A session in the process that holds the tree."""

    def __init__(self, store: TreeStore, session_id: int = LOCAL_SESSION, watches: WatchTable | None = None) -> None:
        self._store = store
        self._session_id = session_id
        self._watches = watches if watches is not None else store.watches
        self._closed = False
        self._listeners: list[SessionListener] = []

    @property
    def session_id(self) -> int:
        """See `ZkClient.session_id`."""
        return self._session_id

    def on_session(self, listener: SessionListener) -> None:
        """See `ZkClient.on_session`. Nothing happens to a session in the tree's own process, but for `expire`."""
        self._listeners.append(listener)

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
            self._watches.watch_data(path, LocalWatch(self._session_id, watch))
        return node.data, node.stat()

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """See `ZkClient.children`."""
        names = self._store.tree.children(path)
        if watch is not None:
            self._watches.watch_children(path, LocalWatch(self._session_id, watch))
        return names

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """See `ZkClient.exists`."""
        node = self._store.tree.nodes.get(path)
        if watch is not None:
            self._watches.watch_data(path, LocalWatch(self._session_id, watch))
        return None if node is None else node.stat()

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """See `ZkClient.multi`. Raises `DiskError` too, where the tree's log cannot be written or forced to disk."""
        for operation in operations:
            # As ZooKeeper's clients do before they ask: its servers first look for what the path names.
            numbered = isinstance(operation, Create) and operation.sequential
            check_path(f"{operation.path}0" if numbered else operation.path)
        transaction = self._store.execute(operations, self._session_id)
        self.tell(transaction)
        await self._store.forced()
        return transaction.results

    async def close(self) -> None:
        """See `ZkClient.close`. The store stays open: it belongs to whoever opened it."""
        if not self._closed:
            self._closed = True
            # A tree that takes nothing more leaves the nodes of this process's sessions to the end of the process.
            with suppress(DiskError):
                self.tell(self._store.expire_session(self._session_id))

    def expire(self, new_session_id: int) -> None:
        """End the session as an ensemble does that has not heard of it for too long, and go on in a new one."""
        expired, self._session_id = self._session_id, new_session_id
        self._watches.drop_if(lambda watch: isinstance(watch, LocalWatch) and watch.session_id == expired)
        self.tell(self._store.expire_session(expired))
        loop = asyncio.get_running_loop()
        for event in (SessionEvent.EXPIRED, SessionEvent.CONNECTED):
            for listener in self._listeners:
                loop.call_soon(listener, event)

    def tell(self, transaction: Transaction) -> None:
        """Call the watchers of a transaction."""
        self._watches.tell(transaction.events, transaction.zxid, asyncio.get_running_loop().call_soon)


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
