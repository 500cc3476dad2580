"""The znode tree: versions, ephemeral and sequential nodes, sessions, atomic transactions. Pure: no disk, no clock.

Semantics are Apache ZooKeeper's (Programmer's Guide, sections "Znodes", "ZooKeeper Sessions" and "ZooKeeper access
control using ACLs"); a request is checked in the order of its `PrepRequestProcessor`. A transaction is applied
operation by operation and rolled back if one of them fails.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ottla.zk.acl import ADMIN, CREATE, DELETE, OPEN_ACL, READ, WRITE, AclList, Identity, check_access, settled_acl
from ottla.zk.errors import BadArgumentsError as BadArgumentsError
from ottla.zk.errors import BadVersionError as BadVersionError
from ottla.zk.errors import InvalidAclError as InvalidAclError
from ottla.zk.errors import NoAuthError as NoAuthError
from ottla.zk.errors import NoChildrenForEphemeralsError as NoChildrenForEphemeralsError
from ottla.zk.errors import NodeExistsError as NodeExistsError
from ottla.zk.errors import NoNodeError as NoNodeError
from ottla.zk.errors import NotEmptyError as NotEmptyError
from ottla.zk.errors import SessionExpiredError as SessionExpiredError
from ottla.zk.errors import SessionMovedError as SessionMovedError
from ottla.zk.errors import ZkError as ZkError
from ottla.zk.sessions import FIRST_DURABLE_SESSION
from ottla.zk.watches import EventType as EventType
from ottla.zk.watches import WatchEvent as WatchEvent
from ottla.zk.watches import WatchTable as WatchTable
from ottla.zk.watches import event_of, new_tuple

ANY_VERSION = -1
LARGEST_NODE = 1024 * 1024
"""Limit of a node's data in bytes, as ZooKeeper's `jute.maxbuffer`."""
HIGHEST_VERSION = 2**31 - 1
MOST_OPERATIONS = 100_000
"""Limit of operations in one transaction: a Kafka topic has two nodes per partition."""

#: Not allowed in paths: empty and relative parts, and characters that cannot be shown (or, in Java, take two).
_NOT_IN_PATHS = re.compile("//|/\\.{1,2}(?:/|$)|[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


class Stat(NamedTuple):
    """ZooKeeper's metadata of a node: transaction ids, times in milliseconds, versions, owner."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    children_count: int
    pzxid: int


class Create(NamedTuple):
    """Create a node. A sequential one gets its parent's counter appended, in ten digits."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False
    acl: AclList = OPEN_ACL


class Set(NamedTuple):
    """Replace a node's data, if it has this version."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node without children, if it has this version."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fail the transaction unless the node has this version."""

    path: str
    version: int = ANY_VERSION


class SetAcl(NamedTuple):
    """Replace a node's ACL, if that has this version (`aversion`)."""

    path: str
    acl: AclList
    version: int = ANY_VERSION


class OpenSession(NamedTuple):
    """Open a session of a client in another process."""

    session_id: int
    password: bytes
    timeout_ms: int


class CloseSession(NamedTuple):
    """Close a session and delete its ephemeral nodes."""

    session_id: int


Operation: TypeAlias = Create | Set | Delete | Check
ServerOperation: TypeAlias = Operation | SetAcl | OpenSession | CloseSession
"""Operations of a server for its clients, beyond those of client transactions."""
Result: TypeAlias = str | Stat | None
"""Result of an operation: the path for Create, the new Stat for Set and SetAcl, None for the others."""


NO_CHILDREN: frozenset[str] = frozenset()
"""Shared by all nodes without children, which most are: a set of their own would be half of their memory."""


class Znode:
    """One znode. Changed by `Tree` only."""

    __slots__ = (
        "acl", "aversion", "children", "created", "ctime_ms", "czxid", "data", "ephemeral_owner", "mtime_ms", "mzxid",
        "pzxid", "version",
    )  # fmt: skip

    def __init__(
        self, data: bytes | None, zxid: int, now_ms: int, ephemeral_owner: int = 0, acl: AclList = OPEN_ACL
    ) -> None:
        self.data = data
        self.acl = acl
        self.children: set[str] | frozenset[str] = NO_CHILDREN
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = now_ms
        self.version = self.aversion = 0
        #: Number of children ever created: the number of the next sequential one.
        self.created = 0
        self.ephemeral_owner = ephemeral_owner

    def add_child(self, name: str) -> None:
        """Add a child's name."""
        if isinstance(self.children, frozenset):
            self.children = {name}
        else:
            self.children.add(name)

    def discard_child(self, name: str) -> None:
        """Remove a child's name."""
        if isinstance(self.children, set):
            self.children.discard(name)

    @property
    def cversion(self) -> int:
        """Number of children created and deleted, as an i32."""
        changes = (2 * self.created - len(self.children)) & 0xFFFFFFFF
        return changes if changes <= HIGHEST_VERSION else changes - 2**32

    def stat(self) -> Stat:
        """The node's Stat."""
        return new_tuple(Stat, (
            self.czxid, self.mzxid, self.ctime_ms, self.mtime_ms, self.version, self.cversion, self.aversion,
            self.ephemeral_owner, len(self.data or b""), len(self.children), self.pzxid,
        ))  # fmt: skip


class ZnodeChange(NamedTuple):
    """A change that was made, with what is needed to replay it after a restart.

    `kind` is create, set, delete, acl, open or close; `version` is the parent's count of created children after a
    create or delete, the node's version after a set, that of its ACL after acl, the timeout of an opened session.
    `owner` is the session of an ephemeral node, or the one that was opened or closed.
    """

    kind: str
    path: str
    data: bytes | None
    version: int
    owner: int = 0
    acl: AclList = OPEN_ACL


class Transaction(NamedTuple):
    """An applied transaction: its id, its time, results in order, changes, and the watch events."""

    zxid: int
    time_ms: int
    results: tuple[Result, ...]
    changes: tuple[ZnodeChange, ...]
    events: tuple[WatchEvent, ...]


class SessionRecord(NamedTuple):
    """The stored part of a session of another process."""

    password: bytes
    timeout_ms: int


def version_after(version: int) -> int:
    """The next version, or number of a sequential node: they are i32, and the highest is followed by the lowest."""
    return version + 1 if version != HIGHEST_VERSION else -HIGHEST_VERSION - 1


def parent_of(path: str) -> str:
    """The path of a node's parent."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """Raise `BadArgumentsError` for a path that ZooKeeper would refuse."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/"):
        raise BadArgumentsError(path, "a path starts with / and does not end with it")
    if _NOT_IN_PATHS.search(path):
        raise BadArgumentsError(path, "a path has no empty part, no . or .. as a part, and no unprintable characters")


_Before: TypeAlias = tuple[str, Znode, bytes | None, int, int, int, int, int, int, AclList]
"""A node before a transaction changed it: path, node, data, mzxid, pzxid, mtime_ms, version, created, aversion, acl. A
plain tuple, since every change makes one.
"""


class _SessionBefore(NamedTuple):
    """A session before a transaction; `record` is None if it did not exist."""

    session_id: int
    record: SessionRecord | None


class _Making:
    """A transaction under way."""

    __slots__ = ("changes", "events", "identities", "now_ms", "session_id", "zxid")

    def __init__(self, session_id: int, zxid: int, now_ms: int, identities: Collection[Identity] | None) -> None:
        self.session_id = session_id
        self.zxid = zxid
        self.now_ms = now_ms
        self.identities = identities
        self.changes: list[ZnodeChange] = []
        self.events: list[WatchEvent] = []


class NodeCopier(Protocol):
    """Copies the tree while it changes."""

    def copy_node(self, path: str, node: Znode) -> None:
        """Called before a node changes."""
        ...


class Tree:
    """All znodes by path, the sessions of other processes, and the id of the last transaction."""

    __slots__ = ("_ephemerals", "_undo", "capture", "last_zxid", "nodes", "sessions")

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0)}
        self.sessions: dict[int, SessionRecord] = {}
        self.last_zxid = 0
        self._ephemerals: dict[int, set[str]] = {}
        #: Undo log of the last transaction; a path alone is that of a node that it created.
        self._undo: list[_Before | str | _SessionBefore] = []
        #: The copy under way, which is to know of each node before it changes.
        self.capture: NodeCopier | None = None

    # Reading

    def get(self, path: str) -> Znode:
        """The node at `path`. Raises `NoNodeError`."""
        node = self.nodes.get(path)
        if node is None:
            check_path(path)
            raise NoNodeError(path)
        return node

    def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted. Raises `NoNodeError`."""
        return sorted(self.get(path).children)

    def ephemerals_of(self, session_id: int) -> list[str]:
        """The ephemeral nodes of a session."""
        return sorted(self._ephemerals.get(session_id, ()))

    def ephemerals(self) -> dict[int, list[str]]:
        """The paths of ephemeral nodes by their session."""
        return {session_id: sorted(paths) for session_id, paths in self._ephemerals.items()}

    # Writing

    def execute(
        self,
        operations: Sequence[ServerOperation],
        session_id: int,
        now_ms: int,
        identities: Collection[Identity] | None = None,
    ) -> Transaction:
        """Apply operations as one transaction, all or none.

        Ephemeral nodes belong to `session_id`; `identities` are the client's, None for this process itself, which may
        do everything. Raises the `ZkError` of the first operation that fails, with its `index`; the tree is unchanged
        then. Use `undo_last` if the transaction could not be made durable.
        """
        if len(operations) > MOST_OPERATIONS:
            raise BadArgumentsError("/", f"more than {MOST_OPERATIONS} operations in one transaction")
        self._undo = []
        zxid = self.last_zxid + 1
        making = _Making(session_id, zxid, now_ms, identities)
        results: list[Result] = []
        try:
            for operation in operations:
                results.append(self._apply(operation, making))  # noqa: PERF401 (its length is the index of the failed one)
        except ZkError as error:
            error.index = len(results)
            self._roll_back()
            raise
        self.last_zxid = zxid
        return Transaction(zxid, now_ms, tuple(results), tuple(making.changes), tuple(making.events))

    def undo_last(self) -> None:
        """Roll back the transaction that was just executed."""
        self._roll_back()
        self.last_zxid -= 1

    def expire_session(self, session_id: int, now_ms: int) -> Transaction:
        """End a session and delete its ephemeral nodes, as one transaction."""
        return self.execute([CloseSession(session_id)], session_id, now_ms)

    def replay(self, zxid: int, time_ms: int, changes: Iterable[ZnodeChange]) -> None:
        """Replay the changes of a logged transaction. Changes that do not fit the tree are a bug or a damaged log."""
        for change in changes:
            kind, path, data, version, owner, acl = change
            if kind == "create":
                self._insert(path, Znode(data, zxid, time_ms, owner, acl)).created = version
            elif kind == "delete":
                self._remove(path, zxid).created = version
            elif kind == "set":
                node = self.get(path)
                node.data, node.version, node.mzxid, node.mtime_ms = data, version, zxid, time_ms
            elif kind == "acl":
                node = self.get(path)
                node.acl, node.aversion = acl, version
            elif kind == "open":
                self.sessions[owner] = SessionRecord(data or b"", version)
            else:
                for owned in sorted(self._ephemerals.get(owner, ())):
                    self._remove(owned, zxid)
                self.sessions.pop(owner, None)
        self.last_zxid = zxid

    def _apply(self, operation: ServerOperation, making: _Making) -> Result:
        if isinstance(operation, Set):
            return self._set(operation, making)
        if isinstance(operation, Create):
            return self._create(operation, making)
        if isinstance(operation, Delete):
            self._delete_checked(operation, making)
        elif isinstance(operation, Check):
            node = self.get(operation.path)
            if making.identities is not None:
                check_access(node.acl, READ, making.identities, operation.path)
            _check_version(operation.path, node.version, operation.version)
        elif isinstance(operation, SetAcl):
            return self._set_acl(operation, making)
        elif isinstance(operation, OpenSession):
            session_id = operation.session_id
            self._undo.append(_SessionBefore(session_id, self.sessions.get(session_id)))
            self.sessions[session_id] = SessionRecord(operation.password, operation.timeout_ms)
            making.changes.append(ZnodeChange("open", "", operation.password, operation.timeout_ms, session_id))
        else:
            self._close_session(operation.session_id, making)
        return None

    def _set(self, operation: Set, making: _Making) -> Stat:
        path, data, version = operation
        node = self.nodes.get(path) or self.get(path)
        if node.acl is not OPEN_ACL and making.identities is not None:
            check_access(node.acl, WRITE, making.identities, path)
        if version != ANY_VERSION:
            _check_version(path, node.version, version)
        _check_data(path, data)
        self._remember(node, path)
        node.data, node.mzxid, node.mtime_ms = data, making.zxid, making.now_ms
        node.version = version_after(node.version)
        making.changes.append(new_tuple(ZnodeChange, ("set", path, data, node.version, node.ephemeral_owner, OPEN_ACL)))
        making.events.append(event_of(EventType.DATA_CHANGED, path, node.acl))
        return node.stat()

    def _create(self, operation: Create, making: _Making) -> str:
        path, data, is_ephemeral, is_sequential, acl = operation
        if "\0" in path:
            raise BadArgumentsError(path, "no character of a path is zero")
        if acl is not OPEN_ACL:
            acl = settled_acl(acl, making.identities or (), path)
        parent_path = parent_of(path)
        parent = self.nodes.get(parent_path)
        if parent is None or not path.startswith("/"):
            if not path.startswith("/"):
                raise BadArgumentsError(path, "a path starts with /")
            raise NoNodeError(parent_path)
        if making.identities is not None:
            check_access(parent.acl, CREATE, making.identities, path)
        if is_sequential:
            path = f"{path}{parent.created:010d}"
        check_path(path)
        if path in self.nodes:
            raise NodeExistsError(path)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemeralsError(parent_path)
        _check_data(path, data)
        owner = making.session_id if is_ephemeral else 0
        if owner >= FIRST_DURABLE_SESSION and owner not in self.sessions:
            raise SessionExpiredError(path, f"session 0x{owner:x} has ended")
        self._remember(parent, parent_path)
        self._undo.append(path)
        self._insert(path, Znode(data, making.zxid, making.now_ms, owner, acl))
        parent.created = version_after(parent.created)
        making.changes.append(ZnodeChange("create", path, data, parent.created, owner, acl))
        making.events.append(event_of(EventType.CREATED, path, acl))
        making.events.append(event_of(EventType.CHILDREN_CHANGED, parent_path, parent.acl))
        return path

    def _delete_checked(self, operation: Delete, making: _Making) -> None:
        path = operation.path
        if path == "/":
            raise BadArgumentsError(path, "the root cannot be deleted")
        if "/" not in path or "\0" in path:
            raise BadArgumentsError(path, "a path starts with /, and no character of it is zero")
        node, parent = self.nodes.get(path), self.nodes.get(parent_of(path))
        if parent is not None and making.identities is not None:
            check_access(parent.acl, DELETE, making.identities, path)
        if node is None:
            raise NoNodeError(path)
        _check_version(path, node.version, operation.version)
        if node.children:
            raise NotEmptyError(path)
        self._delete(path, node, making)

    def _delete(self, path: str, node: Znode, making: _Making) -> None:
        parent_path = parent_of(path)
        self._remember(self.nodes[parent_path], parent_path)
        self._remember(node, path)
        parent = self._remove(path, making.zxid)
        making.changes.append(ZnodeChange("delete", path, None, parent.created, node.ephemeral_owner))
        making.events.append(event_of(EventType.DELETED, path, node.acl))
        making.events.append(event_of(EventType.CHILDREN_CHANGED, parent_path, parent.acl))

    def _set_acl(self, operation: SetAcl, making: _Making) -> Stat:
        path = operation.path
        check_path(path)
        acl = settled_acl(operation.acl, making.identities or (), path)
        node = self.get(path)
        if making.identities is not None:
            check_access(node.acl, ADMIN, making.identities, path)
        _check_version(path, node.aversion, operation.version)
        self._remember(node, path)
        node.acl = acl
        node.aversion = version_after(node.aversion)
        making.changes.append(ZnodeChange("acl", path, None, node.aversion, node.ephemeral_owner, acl))
        return node.stat()

    def _close_session(self, session_id: int, making: _Making) -> None:
        for path in sorted(self._ephemerals.get(session_id, ())):
            self._delete(path, self.nodes[path], making)
        record = self.sessions.pop(session_id, None)
        if record is not None:
            self._undo.append(_SessionBefore(session_id, record))
            making.changes.append(ZnodeChange("close", "", None, 0, session_id))

    def _insert(self, path: str, node: Znode) -> Znode:
        """Add a new node to the tree; returns its parent."""
        parent_path, _, name = path.rpartition("/")
        parent = self.get(parent_path or "/")
        self.nodes[path] = node
        parent.add_child(name)
        parent.pzxid = node.czxid
        if node.ephemeral_owner:
            self.own(path, node)
        return parent

    def own(self, path: str, node: Znode) -> None:
        """Register an ephemeral node with its owner."""
        self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)

    def _remove(self, path: str, zxid: int) -> Znode:
        """Remove a node from the tree; returns its parent."""
        parent_path, _, name = path.rpartition("/")
        parent = self.get(parent_path or "/")
        self._forget(path)
        parent.discard_child(name)
        parent.pzxid = zxid
        return parent

    def _forget(self, path: str) -> None:
        node = self.nodes.pop(path, None)
        if node is not None and node.ephemeral_owner:
            owned = self._ephemerals[node.ephemeral_owner]
            owned.discard(path)
            if not owned:
                del self._ephemerals[node.ephemeral_owner]

    # Undoing

    def _remember(self, node: Znode, path: str) -> None:
        """Save a node's state, also for a copy under way. Call it before each change of a node."""
        if self.capture is not None:
            self.capture.copy_node(path, node)
        self._undo.append(
            (
                path, node, node.data, node.mzxid, node.pzxid, node.mtime_ms, node.version, node.created, node.aversion,
                node.acl,
            )
        )  # fmt: skip

    def _roll_back(self) -> None:
        while self._undo:
            before = self._undo.pop()
            if isinstance(before, _SessionBefore):
                if before.record is None:
                    del self.sessions[before.session_id]
                else:
                    self.sessions[before.session_id] = before.record
                continue
            if isinstance(before, str):
                self._forget(before)
                self.nodes[parent_of(before)].discard_child(before.rpartition("/")[2])
                continue
            path, node = before[:2]
            (
                node.data, node.mzxid, node.pzxid, node.mtime_ms, node.version, node.created, node.aversion, node.acl
            ) = before[2:]  # fmt: skip
            if path not in self.nodes:
                self.nodes[path] = node
                self.nodes[parent_of(path)].add_child(path.rpartition("/")[2])
                if node.ephemeral_owner:
                    self.own(path, node)


def _check_version(path: str, there: int, wanted: int) -> None:
    if wanted not in (ANY_VERSION, there):
        raise BadVersionError(path, f"it is at {there}, not {wanted}")


def _check_data(path: str, data: bytes | None) -> None:
    if data is not None and len(data) > LARGEST_NODE:
        raise BadArgumentsError(path, f"{len(data)} bytes of data are more than the {LARGEST_NODE} a node may hold")
