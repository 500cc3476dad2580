"""The tree of znodes: versions, ephemeral and sequential nodes, atomic transactions, watches. Pure: no disk, no clock.

Semantics are Apache ZooKeeper's (Programmer's Guide, sections "Znodes", "ZooKeeper Sessions" and "ZooKeeper Watches").
A transaction is applied operation by operation and undone as a whole when one of them fails.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

ANY_VERSION = -1
LARGEST_NODE = 1024 * 1024
"""The most bytes of data in a node, as ZooKeeper's `jute.maxbuffer`."""
MOST_OPERATIONS = 100_000
"""The most operations of one transaction: a topic of Kafka's takes two nodes per partition."""


class ZkError(Exception):
    """An operation that the tree refuses. `path` is the node it failed at."""

    def __init__(self, path: str, reason: str = "") -> None:
        super().__init__(f"{type(self).__name__} for {path}" + (f": {reason}" if reason else ""))
        self.path = path


class NoNodeError(ZkError):
    """The node, or the parent of a node to be made, is not there."""


class NodeExistsError(ZkError):
    """The node to be made is there already."""


class BadVersionError(ZkError):
    """The node has another version than the operation demands."""


class NotEmptyError(ZkError):
    """A node with children cannot be deleted."""


class NoChildrenForEphemeralsError(ZkError):
    """An ephemeral node cannot have children."""


class BadArgumentsError(ZkError):
    """A path or data that no node can have."""


class SessionExpiredError(ZkError):
    """The session is over; what it asked last was not done."""


class NoAuthError(ZkError):
    """The node's access list does not allow it."""


class Stat(NamedTuple):
    """What ZooKeeper tells about a node: transaction ids, times in milliseconds, versions, owner."""

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
    """Make a node. A sequential one gets its parent's counter appended, in ten digits."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


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


Operation: TypeAlias = Create | Set | Delete | Check
Result: TypeAlias = str | Stat | None
"""What an operation gives: the path made by Create, the new Stat of Set, None for the others."""


class EventType(Enum):
    """What a watch tells, in ZooKeeper's words."""

    CREATED = "NodeCreated"
    DELETED = "NodeDeleted"
    DATA_CHANGED = "NodeDataChanged"
    CHILDREN_CHANGED = "NodeChildrenChanged"


class WatchEvent(NamedTuple):
    """Something happened to the node `path`."""

    type: EventType
    path: str


class Node:
    """One znode. Changed by `Tree` only."""

    __slots__ = (
        "aversion", "children", "ctime_ms", "cversion", "czxid", "data", "ephemeral_owner", "mtime_ms", "mzxid",
        "pzxid", "version",
    )  # fmt: skip

    def __init__(self, data: bytes | None, zxid: int, now_ms: int, ephemeral_owner: int = 0) -> None:
        self.data = data
        self.children: set[str] = set()
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = now_ms
        self.version = self.cversion = self.aversion = 0
        self.ephemeral_owner = ephemeral_owner

    def stat(self) -> Stat:
        """The node's Stat."""
        return Stat(
            self.czxid, self.mzxid, self.ctime_ms, self.mtime_ms, self.version, self.cversion, self.aversion,
            self.ephemeral_owner, len(self.data or b""), len(self.children), self.pzxid,
        )  # fmt: skip


class Change(NamedTuple):
    """A change that was made, with what is needed to make it again after a restart.

    `kind` is create, set or delete; `version` is the parent's child version after a create or delete, the node's
    version after a set.
    """

    kind: str
    path: str
    data: bytes | None
    version: int
    ephemeral: bool


class Transaction(NamedTuple):
    """A transaction that was applied: its id, its time, results in order, changes, and the events for watches."""

    zxid: int
    time_ms: int
    results: tuple[Result, ...]
    changes: tuple[Change, ...]
    events: tuple[WatchEvent, ...]


def parent_of(path: str) -> str:
    """The path of a node's parent."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """Raise `BadArgumentsError` for a path that ZooKeeper would not take."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise BadArgumentsError(path, "a path starts with /, does not end with it, and has no empty part")
    if "/./" in path + "/" or "/../" in path + "/":
        raise BadArgumentsError(path, "relative paths are not allowed")


class _Before(NamedTuple):
    """A node as it was before a transaction touched it; `node` is None where there was none."""

    path: str
    node: Node | None
    data: bytes | None = None
    mzxid: int = 0
    pzxid: int = 0
    mtime_ms: int = 0
    version: int = 0
    cversion: int = 0


class Tree:
    """All znodes by path, and the id of the last transaction."""

    __slots__ = ("_ephemerals", "_undo", "last_zxid", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self.last_zxid = 0
        self._ephemerals: dict[int, set[str]] = {}
        self._undo: list[_Before] = []

    # Reading

    def get(self, path: str) -> Node:
        """The node at `path`. Raises `NoNodeError`."""
        node = self.nodes.get(path)
        if node is None:
            check_path(path)
            raise NoNodeError(path)
        return node

    def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted. Raises `NoNodeError`."""
        return sorted(self.get(path).children)

    # Writing

    def execute(self, operations: Sequence[Operation], session_id: int, now_ms: int) -> Transaction:
        """Apply operations as one transaction, all or none.

        Ephemeral nodes belong to `session_id`. Raises the `ZkError` of the first operation that fails; the tree is
        then as it was. Use `undo` with the transaction where it could not be made durable.
        """
        if len(operations) > MOST_OPERATIONS:
            raise BadArgumentsError("/", f"more than {MOST_OPERATIONS} operations in one transaction")
        self._undo = []
        zxid = self.last_zxid + 1
        results: list[Result] = []
        changes: list[Change] = []
        events: list[WatchEvent] = []
        try:
            results.extend(
                self._apply(operation, session_id, zxid, now_ms, changes, events) for operation in operations
            )
        except ZkError:
            self._roll_back()
            raise
        self.last_zxid = zxid
        return Transaction(zxid, now_ms, tuple(results), tuple(changes), tuple(events))

    def undo_last(self) -> None:
        """Take back the transaction that was just executed, as if it had never been."""
        self._roll_back()
        self.last_zxid -= 1

    def expire_session(self, session_id: int, now_ms: int) -> Transaction:
        """Delete the ephemeral nodes of a session, as one transaction."""
        owned = sorted(self._ephemerals.get(session_id, ()))
        return self.execute([Delete(path) for path in owned], session_id, now_ms)

    def replay(self, zxid: int, time_ms: int, changes: Iterable[Change]) -> None:
        """Make changes of a recorded transaction again. Changes that do not fit the tree are a bug or a damaged log."""
        for change in changes:
            if change.kind == "create":
                self._insert(change.path, change.data, 0, zxid, time_ms).cversion = change.version
            elif change.kind == "delete":
                self._remove(change.path, zxid).cversion = change.version
            else:
                node = self.get(change.path)
                node.data, node.version, node.mzxid, node.mtime_ms = change.data, change.version, zxid, time_ms
        self.last_zxid = zxid

    def _apply(
        self,
        operation: Operation,
        session_id: int,
        zxid: int,
        now_ms: int,
        changes: list[Change],
        events: list[WatchEvent],
    ) -> Result:
        if isinstance(operation, Create):
            return self._create(operation, session_id, zxid, now_ms, changes, events)
        node = self.get(operation.path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(operation.path, f"it is at {node.version}, not {operation.version}")
        if isinstance(operation, Set):
            _check_data(operation.path, operation.data)
            self._remember(node, operation.path)
            node.data, node.version, node.mzxid, node.mtime_ms = operation.data, node.version + 1, zxid, now_ms
            changes.append(Change("set", operation.path, node.data, node.version, node.ephemeral_owner != 0))
            events.append(WatchEvent(EventType.DATA_CHANGED, operation.path))
            return node.stat()
        if isinstance(operation, Delete):
            self._delete(operation.path, node, zxid, changes, events)
        return None

    def _create(
        self,
        operation: Create,
        session_id: int,
        zxid: int,
        now_ms: int,
        changes: list[Change],
        events: list[WatchEvent],
    ) -> str:
        path = operation.path
        parent_path = parent_of(path)
        parent = self.nodes.get(parent_path)
        if parent is not None and operation.sequential:
            path = f"{path}{parent.cversion:010d}"
        check_path(path)
        if parent is None:
            raise NoNodeError(parent_path)
        if path in self.nodes:
            raise NodeExistsError(path)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemeralsError(parent_path)
        _check_data(path, operation.data)
        self._remember(parent, parent_path)
        self._remember(None, path)
        owner = session_id if operation.ephemeral else 0
        self._insert(path, operation.data, owner, zxid, now_ms).cversion += 1
        changes.append(Change("create", path, operation.data, parent.cversion, operation.ephemeral))
        events.append(WatchEvent(EventType.CREATED, path))
        events.append(WatchEvent(EventType.CHILDREN_CHANGED, parent_path))
        return path

    def _delete(self, path: str, node: Node, zxid: int, changes: list[Change], events: list[WatchEvent]) -> None:
        if path == "/":
            raise BadArgumentsError(path, "the root cannot be deleted")
        if node.children:
            raise NotEmptyError(path)
        parent_path = parent_of(path)
        self._remember(self.nodes[parent_path], parent_path)
        self._remember(node, path)
        parent = self._remove(path, zxid)
        parent.cversion += 1
        changes.append(Change("delete", path, None, parent.cversion, node.ephemeral_owner != 0))
        events.append(WatchEvent(EventType.DELETED, path))
        events.append(WatchEvent(EventType.CHILDREN_CHANGED, parent_path))

    def _insert(self, path: str, data: bytes | None, owner: int, zxid: int, now_ms: int) -> Node:
        """Put a new node into the tree; returns its parent."""
        parent_path, _, name = path.rpartition("/")
        parent = self.get(parent_path or "/")
        self.nodes[path] = Node(data, zxid, now_ms, owner)
        parent.children.add(name)
        parent.pzxid = zxid
        if owner:
            self._ephemerals.setdefault(owner, set()).add(path)
        return parent

    def _remove(self, path: str, zxid: int) -> Node:
        """Take a node out of the tree; returns its parent."""
        parent_path, _, name = path.rpartition("/")
        parent = self.get(parent_path or "/")
        self._forget(path)
        parent.children.discard(name)
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

    def _remember(self, node: Node | None, path: str) -> None:
        """Keep how a node is before it changes; None for a node that is about to be made."""
        if node is None:
            self._undo.append(_Before(path, None))
        else:
            self._undo.append(
                _Before(path, node, node.data, node.mzxid, node.pzxid, node.mtime_ms, node.version, node.cversion)
            )

    def _roll_back(self) -> None:
        while self._undo:
            before = self._undo.pop()
            path, node = before.path, before.node
            name = path.rpartition("/")[2]
            if node is None:
                self._forget(path)
                self.nodes[parent_of(path)].children.discard(name)
                continue
            node.data, node.mzxid, node.pzxid = before.data, before.mzxid, before.pzxid
            node.mtime_ms, node.version, node.cversion = before.mtime_ms, before.version, before.cversion
            if path not in self.nodes:
                self.nodes[path] = node
                self.nodes[parent_of(path)].children.add(name)
                if node.ephemeral_owner:
                    self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)


def _check_data(path: str, data: bytes | None) -> None:
    if data is not None and len(data) > LARGEST_NODE:
        raise BadArgumentsError(path, f"{len(data)} bytes of data are more than the {LARGEST_NODE} a node may hold")


class WatchTable:
    """One-shot watches: who wants to know of which node. A watcher is any hashable thing the caller knows."""

    __slots__ = ("_children", "_data")

    def __init__(self) -> None:
        self._data: dict[str, dict[Hashable, None]] = {}
        self._children: dict[str, dict[Hashable, None]] = {}

    def watch_data(self, path: str, watcher: Hashable) -> None:
        """Tell `watcher` when the node is made, changed or deleted."""
        self._data.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: Hashable) -> None:
        """Tell `watcher` when the node gets or loses a child, or is deleted."""
        self._children.setdefault(path, {})[watcher] = None

    def fire(self, events: Iterable[WatchEvent]) -> list[tuple[Hashable, WatchEvent]]:
        """Who is to be told of what; these watches are used up. A deletion tells each watcher once."""
        told: list[tuple[Hashable, WatchEvent]] = []
        for event in events:
            if event.type is EventType.CHILDREN_CHANGED:
                watchers = self._children.pop(event.path, {})
            else:
                watchers = self._data.pop(event.path, {})
                if event.type is EventType.DELETED:
                    watchers = {**watchers, **self._children.pop(event.path, {})}
            told.extend((watcher, event) for watcher in watchers)
        return told

    def drop(self, watcher: Hashable) -> None:
        """Forget all watches of a watcher."""
        self.drop_if(watcher.__eq__)

    def drop_if(self, gone: Callable[[Hashable], bool]) -> None:
        """Forget all watches of the watchers that are gone."""
        for table in (self._data, self._children):
            for path, watchers in list(table.items()):
                for watcher in [watcher for watcher in watchers if gone(watcher)]:
                    del watchers[watcher]
                if not watchers:
                    del table[path]
