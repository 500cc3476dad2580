"""The ZooKeeper client: one interface for the embedded znode tree and a ZooKeeper over the wire (`zk.kazoo_client`)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from ottla.env.disk import DiskError
from ottla.zk.acl import OPEN_ACL, SASL_SCHEME, AclList
from ottla.zk.tree import (
    ANY_VERSION,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Result,
    Set,
    SetAcl,
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

T = TypeVar("T")
Watcher: TypeAlias = Callable[[WatchEvent], None]
"""Called once, on the event loop, after the change that it watches for; the watcher has to set the watch again."""

LOCAL_SESSION = 1
LARGEST_TRANSACTION = 64 * 1024 * 1024
"""Limit of a transaction in the process, in bytes; the log takes records of four times that size."""
LARGEST_OVER_THE_WIRE = 512 * 1024
"""Limit of a transaction over the wire, in bytes: half of what a server takes, which leaves room for the chroot of each
path.
"""


class SessionEvent(Enum):
    """A change of the session's state."""

    CONNECTED = "connected"
    """There is a connection, either in the old session (whose watches stay set) or in a new one after EXPIRED."""
    SUSPENDED = "suspended"
    """The connection is lost. Session, watches and ephemeral nodes may or may not still exist."""
    EXPIRED = "expired"
    """The session has expired: its ephemeral nodes and watches are gone. A new one is being opened."""


SessionListener: TypeAlias = Callable[[SessionEvent], None]
"""Called on the event loop, in order with the watches."""


class ConnectionLossError(ZkError):
    """The connection to ZooKeeper is missing, or was lost before the response: a change may have been made."""

    CODE = -4


class ZkUnreachableError(Exception):
    """No ZooKeeper responds at the address; the message names the servers, the cause, and what to do."""


class ZkClient(Protocol):
    """The ZooKeeper API that Kafka's brokers and consumers need. Every call may raise a `ZkError`."""

    @property
    def session_id(self) -> int:
        """The session that owns ephemeral nodes created now; another one after EXPIRED."""
        ...

    def on_session(self, listener: SessionListener) -> None:
        """Call `listener(event)` from now on for each change of the session's state."""
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
        """Create a node; returns its path, which for a sequential one includes its number."""
        ...

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """A node's data and Stat."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """Data and Stat of each of these nodes, None where there is none; not all at the same moment.

        Over the wire that takes a request for a hundred of them: thousands of small nodes are read in a fraction of
        the time.
        """
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
        """A node's Stat, None if it does not exist; the watch is set either way."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """Execute several operations as one transaction; if one fails its error is raised, and nothing was changed."""
        ...

    async def close(self) -> None:
        """Close the session; its ephemeral nodes are deleted."""
        ...


#: Size of an operation on the wire besides path and data: headers, version, flags, the ACL of a create.
_CREATE_BYTES, _OTHER_BYTES = 64, 32


def operation_bytes(operation: Operation) -> int:
    """Estimated size of an operation in a request, rounded up."""
    size = len(operation.path.encode())
    if isinstance(operation, Create | Set):
        size += len(operation.data or b"")
    return size + (_CREATE_BYTES if isinstance(operation, Create) else _OTHER_BYTES)


def with_acls(operations: Sequence[Operation], acl_of: Callable[[str], AclList] | None) -> Sequence[Operation]:
    """The operations, new nodes with the access lists of their paths."""
    if acl_of is None:
        return operations
    return [each._replace(acl=acl_of(each.path)) if isinstance(each, Create) else each for each in operations]


def in_transactions(
    operations: Iterable[Operation], most_bytes: int, most_operations: int | None = None
) -> Iterator[list[Operation]]:
    """The operations in order, in as many transactions as the limits of size and number require; one alone is atomic.

    An operation above the size limit gets a transaction of its own.
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
    """Single changes of a `ZkClient`, each implemented as a transaction of one operation."""

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """See `ZkClient.set`."""
        (stat,) = await self.multi([Set(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `ZkClient.delete`."""
        await self.multi([Delete(path, version)])

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """See `ZkClient.create`. With `make_parents` missing parents are created one by one before it."""
        operation = Create(path, data, ephemeral, sequential)
        try:
            (made,) = await self.multi([operation])
        except NoNodeError:
            if not make_parents or parent_of(path) == "/":
                raise
            await self._make_parent(parent_of(path))
            (made,) = await self.multi([operation])
        assert isinstance(made, str)
        return made

    async def _make_parent(self, path: str) -> None:
        with suppress(NodeExistsError):
            await self.create(path, make_parents=True)

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """See `ZkClient.multi`."""


class OwnSession(ByTransactions):
    """A `ZkClient` with a session of its own."""

    def __init__(self, session_id: int = 0) -> None:
        self._session_id = session_id
        self._listeners: list[SessionListener] = []

    @property
    def session_id(self) -> int:
        """See `ZkClient.session_id`."""
        return self._session_id

    def on_session(self, listener: SessionListener) -> None:
        """See `ZkClient.on_session`."""
        self._listeners.append(listener)


class LocalClient(OwnSession):
    """A session in the process that has the znode tree; it only ever ends by `expire`."""

    def __init__(
        self,
        store: TreeStore,
        session_id: int = LOCAL_SESSION,
        watches: WatchTable | None = None,
        acl_of: Callable[[str], AclList] | None = None,
    ) -> None:
        self._store = store
        self._acl_of = acl_of
        super().__init__(session_id)
        self._watches = watches if watches is not None else store.watches
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
            self._watches.watch_data(path, LocalWatch(self._session_id, watch))
        return node.data, node.stat()

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """See `ZkClient.get_many`."""
        found: list[tuple[bytes | None, Stat] | None] = []
        for path in paths:
            try:
                found.append(await self.get(path))
            except NoNodeError:
                found.append(None)
        return found

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
        """See `ZkClient.multi`. Also raises `DiskError` if the tree's log cannot be written or synced."""
        for operation in operations:
            # As ZooKeeper's clients do before they send it: its servers check the named node first.
            numbered = isinstance(operation, Create) and operation.sequential
            check_path(f"{operation.path}0" if numbered else operation.path)
        transaction = self._store.execute(with_acls(operations, self._acl_of), self._session_id)
        self.notify(transaction)
        await self._store.forced()
        return transaction.results

    def protect(self, acl_of: Callable[[str], AclList]) -> None:
        """Give nodes that are there the access lists of their paths, but for open ones. Raises `DiskError`.

        A list with a user of SASL, which former releases did not take, stays.
        """
        nodes = self._store.tree.nodes.items()
        former = [path for path, node in nodes if all(entry.scheme != SASL_SCHEME for entry in node.acl)]
        changes = [SetAcl(path, wanted) for path in former if (wanted := acl_of(path)) is not OPEN_ACL]
        if changes:
            self._store.execute(changes, self._session_id)

    async def close(self) -> None:
        """See `ZkClient.close`. The store stays open: its owner closes it."""
        if not self._closed:
            self._closed = True
            # If the tree can no longer be written, ephemeral nodes of this process stay until the process ends.
            with suppress(DiskError):
                self.notify(self._store.expire_session(self._session_id))

    def expire(self, new_session_id: int) -> None:
        """Expire the session, as an ensemble does after the session timeout, and continue in a new one."""
        expired, self._session_id = self._session_id, new_session_id
        self._watches.drop_if(lambda watch: isinstance(watch, LocalWatch) and watch.session_id == expired)
        self.notify(self._store.expire_session(expired))
        loop = asyncio.get_running_loop()
        for event in (SessionEvent.EXPIRED, SessionEvent.CONNECTED):
            for listener in self._listeners:
                loop.call_soon(listener, event)

    def notify(self, transaction: Transaction) -> None:
        """Call the watchers of a transaction."""
        self._watches.notify(transaction.events, transaction.zxid, asyncio.get_running_loop().call_soon)


class ForwardingZk:
    """A `ZkClient` that passes each call to another one; subclasses override `_forward` and `_watcher`."""

    def __init__(self, zk: ZkClient) -> None:
        self._zk = zk

    async def _forward(
        self, paths: Sequence[str], call: Callable[[], Coroutine[Any, Any, T]], *, changes: bool = False
    ) -> T:
        """Make a call that concerns these nodes; `changes`: it is not only a read."""
        return await call()

    def _watcher(self, watch: Watcher | None) -> Watcher | None:
        """The watcher to register for this one."""
        return watch

    @property
    def session_id(self) -> int:
        """See `ZkClient.session_id`."""
        return self._zk.session_id

    def on_session(self, listener: SessionListener) -> None:
        """See `ZkClient.on_session`."""
        self._zk.on_session(listener)

    async def create(self, path: str, data: bytes | None = None, **options: bool) -> str:
        """See `ZkClient.create`."""
        return await self._forward([path], lambda: self._zk.create(path, data, **options), changes=True)

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """See `ZkClient.get`."""
        return await self._forward([path], lambda: self._zk.get(path, self._watcher(watch)))

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """See `ZkClient.get_many`."""
        return await self._forward(paths, lambda: self._zk.get_many(paths))

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """See `ZkClient.set`."""
        return await self._forward([path], lambda: self._zk.set(path, data, version), changes=True)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `ZkClient.delete`."""
        await self._forward([path], lambda: self._zk.delete(path, version), changes=True)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """See `ZkClient.children`."""
        return await self._forward([path], lambda: self._zk.children(path, self._watcher(watch)))

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """See `ZkClient.exists`."""
        return await self._forward([path], lambda: self._zk.exists(path, self._watcher(watch)))

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """See `ZkClient.multi`."""
        paths = [operation.path for operation in operations]
        return await self._forward(paths, lambda: self._zk.multi(operations), changes=True)

    async def close(self) -> None:
        """See `ZkClient.close`."""
        await self._zk.close()


async def ensure_path(zk: ZkClient, path: str, data: bytes | None = None) -> bool:
    """Create a persistent node if it is missing; returns whether it was created."""
    try:
        await zk.create(path, data, make_parents=True)
    except NodeExistsError:
        return False
    return True


async def delete_recursive(zk: ZkClient, path: str) -> None:
    """Delete a node and all its descendants, in one transaction; a missing node is ignored."""
    paths = [path]
    try:
        for found in paths:
            paths.extend(f"{found}/{name}" for name in await zk.children(found))
    except NoNodeError:
        if len(paths) == 1:
            return
        raise
    await zk.multi([Delete(found) for found in reversed(paths)])
