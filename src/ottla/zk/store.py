"""The tree on disk: a log of transactions and, now and then, a snapshot.

Files (in one folder, the first of the broker's log folders): `ottla-tree.log`, `ottla-tree.snapshot`. Both consist of
records `length (u32) | crc32c (u32) | payload`, the payload JSON in UTF-8; node data is text in which each byte is one
character (latin-1), so that any data survives and JSON in it stays readable.

    log       [zxid, time_ms, [[kind, path, data, version, owner, acl], ...], 2]
              kind and version as `tree.Change` has them; owner and acl are left out at the end where nobody owns the
              node and everybody may do everything
    snapshot  [format, last_zxid, nodes, sessions], and each node
              [path, data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, created, aversion, owner, acl],
              each session [id, password, timeout_ms]

Older trees have records without the 2, and snapshots of format 1 without owners, access lists and sessions; the counts
of created children in them are counts of created and deleted ones, from which sequential numbers went on then, too.

A transaction is in the page cache before anybody sees its effect, and is forced to disk in the background: it survives
the death of the process. With `flush_on_ack` whoever awaits `forced` knows that it survives a loss of power, too; after
a flush that failed nobody knows what is on the disk, so nothing more is written. Ephemeral nodes of sessions in this
process end with it and are never written; those of other processes last as long as their sessions.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ottla.env.disk import DiskError
from ottla.records.crc import crc32c
from ottla.zk.acl import OPEN_ACL, Acl, AclList
from ottla.zk.sessions import FIRST_DURABLE_SESSION
from ottla.zk.tree import Change, Node, ServerOperation, SessionRecord, Transaction, Tree, ZkError, parent_of
from ottla.zk.watches import WatchTable

if TYPE_CHECKING:
    from ottla.env.clock import Clock
    from ottla.env.disk import Disk, DiskFile
    from ottla.env.executor import Executor
    from ottla.zk.acl import Identity

LOG_NAME = "ottla-tree.log"
SNAPSHOT_NAME = "ottla-tree.snapshot"
FORMAT = 2
OLD_FORMAT = 1
SNAPSHOT_AFTER_BYTES = 16 * 1024 * 1024
"""A log that has grown beyond this is replaced by a snapshot at once."""
SNAPSHOT_AT_CLOSE_BYTES = 256 * 1024
"""A log that has grown beyond this is replaced by a snapshot when the tree is opened or closed."""
LARGEST_RECORD = 256 * 1024 * 1024

HOLE = bytes(512)
"""A sector that was never written. No record holds so many zeros: JSON has none, and a head is short."""

_HEAD = struct.Struct(">II")


def holds_tree(disk: Disk, folder: str) -> bool:
    """Whether a folder holds a tree, be it one that is not to be read. Raises `DiskError`."""
    path = f"{folder}/{LOG_NAME}"
    return disk.exists(f"{folder}/{SNAPSHOT_NAME}") or (disk.exists(path) and disk.file_size(path) > 0)


class TreeDamaged(Exception):
    """A file of the tree cannot be read; the message says which, why, and what to do."""


class StoreListener(Protocol):
    """Who serves the tree to other processes."""

    def forced(self, zxid: int) -> None:
        """Transactions up to this one are on the disk."""
        ...

    def failed(self, error: DiskError) -> None:
        """Nobody knows any more what is on the disk; nothing more is written."""
        ...


class TreeStore:
    """A tree whose durable nodes survive the process. Open it with `TreeStore.open`."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        clock: Clock,
        executor: Executor | None,
        tree: Tree,
        file: DiskFile,
        flush_on_ack: bool = False,
    ) -> None:
        self.tree = tree
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._executor = executor
        self._file = file
        #: Where the last whole record of the log ends.
        self._end = file.size
        self._flushing = False
        self._flush_is_due = False
        self._dirty = False
        self._closed = False
        self._flush_on_ack = flush_on_ack and executor is not None
        #: Who waits for the flush under way, and who for the one after it.
        self._waiting: list[asyncio.Future[None]] = []
        self._waiting_next: list[asyncio.Future[None]] = []
        self._failure: DiskError | None = None
        self.watches = WatchTable()
        #: The last transaction that nothing takes back any more, as far as this store promises that.
        self.forced_zxid = tree.last_zxid
        #: The paths that transactions touched which are not forced yet: by the flush under way, and after it.
        self._touched: dict[str, int] = {}
        self._touched_next: dict[str, int] = {}
        self._listener: StoreListener | None = None

    @staticmethod
    def open(
        disk: Disk, folder: str, clock: Clock, executor: Executor | None = None, flush_on_ack: bool = False
    ) -> TreeStore:
        """Read the tree in `folder`, or begin an empty one.

        A torn record at the end of the log, which was never acknowledged, is cut off. Raises `TreeDamaged` where
        anything before it cannot be read, `DiskError` where the disk fails.
        """
        disk.mkdirs(folder)
        snapshot_path = f"{folder}/{SNAPSHOT_NAME}"
        tree = Tree()
        if disk.exists(snapshot_path):
            _load_snapshot(tree, disk.read_bytes(snapshot_path), snapshot_path)
        is_new = not disk.exists(f"{folder}/{LOG_NAME}")
        file = disk.open(f"{folder}/{LOG_NAME}", create=True)
        if is_new and flush_on_ack:
            # What is forced into a file is lost with its name.
            disk.fsync_dir(folder)
            disk.fsync_dir(folder.rpartition("/")[0] or ("/" if folder.startswith("/") else "."))
        good = _replay_log(tree, file.pread(file.size, 0), file.path)
        if good < file.size:
            file.truncate(good)
        store = TreeStore(disk, folder, clock, executor, tree, file, flush_on_ack)
        if file.size > SNAPSHOT_AT_CLOSE_BYTES:
            store._snapshot_if_possible()
        return store

    def listen(self, listener: StoreListener | None) -> None:
        """Tell a server of other processes what is forced to disk.

        From now on every transaction is logged, if only as a number: a client that has seen one would take a server
        with lower ones for a stale one. A flush begins when the loop has taken up what came with the first write.
        """
        self._listener = listener
        if listener is not None:
            self.execute([], 0)

    def unforced(self, path: str) -> int:
        """The last transaction that touched the node (or its children) and may still be lost; 0 where none may."""
        return self._touched_next.get(path) or self._touched.get(path) or 0

    def execute(
        self, operations: Sequence[ServerOperation], session_id: int, identities: Collection[Identity] | None = None
    ) -> Transaction:
        """Apply operations as one transaction and log it.

        Raises `ZkError` where an operation fails, `DiskError` where it cannot be written; the tree is then as before.
        """
        if self._failure is not None:
            raise self._failure
        transaction = self.tree.execute(operations, session_id, self._clock.now_ms(), identities)
        self._log(transaction)
        return transaction

    async def forced(self) -> None:
        """Wait, with `flush_on_ack`, until what was executed so far is on the disk. Raises `DiskError`."""
        if not self._flush_on_ack:
            return
        if self._failure is not None:
            raise self._failure
        if self._flushing or self._flush_is_due:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            (self._waiting_next if self._dirty else self._waiting).append(waiting)
            await waiting

    def expire_session(self, session_id: int) -> Transaction:
        """End a session and delete its ephemeral nodes."""
        transaction = self.tree.expire_session(session_id, self._clock.now_ms())
        self._log(transaction)
        return transaction

    def snapshot(self) -> None:
        """Write all durable nodes into the snapshot and begin the log anew. Raises `DiskError`."""
        nodes = [_node_fields(path, node) for path, node in self.tree.nodes.items() if _outlasts(node.ephemeral_owner)]
        sessions = [[number, _text(kept.password), kept.timeout_ms] for number, kept in self.tree.sessions.items()]
        record = _record([FORMAT, self.tree.last_zxid, nodes, sessions])
        self._disk.write_atomic(f"{self._folder}/{SNAPSHOT_NAME}", b"".join(record))
        # A crash between the two leaves records that the snapshot holds already; their ids tell.
        self._file.truncate(0)
        self._end = 0

    def close(self) -> None:
        """Force the log to disk and close it; a long one is replaced by a snapshot."""
        self._closed = True
        try:
            if self._file.size > SNAPSHOT_AT_CLOSE_BYTES:
                self._snapshot_if_possible()
            if self._dirty or self._flushing:
                self._file.flush()
        finally:
            # A disk thread that still forces the file must not find its descriptor given to another.
            if not self._flushing:
                self._file.close()

    def _log(self, transaction: Transaction) -> None:
        durable = [_change_fields(change) for change in transaction.changes if _outlasts(change.owner)]
        if not durable and self._listener is None:
            self._nothing_to_force()
            return
        try:
            if self._file.damaged:
                # A write failed and its remains stayed: records behind them would not be found again.
                self._file.truncate(self._end)
            self._file.append(_record([transaction.zxid, transaction.time_ms, durable, FORMAT]))
        except DiskError:
            self.tree.undo_last()
            raise
        self._end = self._file.size
        self._dirty = True
        if self._flush_on_ack:
            self._touch(transaction)
        else:
            self.forced_zxid = transaction.zxid
        self._flush_soon()
        if self._file.size > SNAPSHOT_AFTER_BYTES:
            self._snapshot_if_possible()

    def _touch(self, transaction: Transaction) -> None:
        touched, zxid = self._touched_next, transaction.zxid
        for kind, path, *_ in transaction.changes:
            touched[path] = zxid
            if kind in ("create", "delete"):
                touched[parent_of(path)] = zxid

    def _nothing_to_force(self) -> None:
        if not self._flushing and not self._dirty:
            self.forced_zxid = self.tree.last_zxid

    def _snapshot_if_possible(self) -> None:
        """Shorten the log. A disk that fails here costs nothing: the log is complete, the next write tries again."""
        try:
            self.snapshot()
        except DiskError:
            return

    def _flush_soon(self) -> None:
        """Force the log to disk in a disk thread, one flush at a time for however many transactions."""
        if self._executor is None or self._flushing or self._flush_is_due:
            return
        if self._listener is None:
            self._flush()
            return
        self._flush_is_due = True
        asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        assert self._executor is not None
        self._flush_is_due = False
        if self._closed:
            return
        self._flushing = True
        self._dirty = False
        self._waiting, self._waiting_next = self._waiting_next, []
        self._touched, self._touched_next = self._touched_next, self._touched
        zxid = self.tree.last_zxid
        self._executor.call(self._file.flush, lambda _, error: self._flushed(zxid, error))

    def _flushed(self, zxid: int, error: BaseException | None) -> None:
        self._flushing = False
        waiting, self._waiting = self._waiting, []
        if error is None:
            self._touched.clear()
            self.forced_zxid = max(zxid, self.forced_zxid)
            if not self._dirty:
                self.forced_zxid = self.tree.last_zxid
        elif self._flush_on_ack and isinstance(error, DiskError):
            self._failure = error
            waiting += self._waiting_next
            self._waiting_next = []
        _tell(waiting, error)
        if self._closed:
            self._file.close()
            return
        if error is not None:
            self._dirty = True
        elif self._dirty:
            self._flush_soon()
        self._tell_listener(error)

    def _tell_listener(self, error: BaseException | None) -> None:
        if self._listener is None:
            return
        if error is None:
            self._listener.forced(self.forced_zxid)
        elif self._failure is not None:
            self._listener.failed(self._failure)


def _tell(waiting: Sequence[asyncio.Future[None]], error: BaseException | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def _record(value: Any) -> list[bytes]:
    payload = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return [_HEAD.pack(len(payload), crc32c(payload)), payload]


def _outlasts(owner: int) -> bool:
    """Whether what belongs to that session (0: nobody's) is still there when this process has ended."""
    return owner == 0 or owner >= FIRST_DURABLE_SESSION


def _node_fields(path: str, node: Node) -> list[Any]:
    fields: list[Any] = [
        path, _text(node.data), node.czxid, node.mzxid, node.pzxid, node.ctime_ms, node.mtime_ms, node.version,
        node.created, node.aversion,
    ]  # fmt: skip
    return fields + _owner_and_acl(node.ephemeral_owner, node.acl)


def _change_fields(change: Change) -> list[Any]:
    kind, path, data, version, owner, acl = change
    fields: list[Any] = [kind, path, _text(data), version]
    return fields + _owner_and_acl(owner, acl) if owner or acl is not OPEN_ACL else fields


def _owner_and_acl(owner: int, acl: AclList) -> list[Any]:
    """What is left out at the end of a record where it says nothing."""
    if acl is not OPEN_ACL:
        return [owner, acl]
    return [owner] if owner else []


def _acl(entries: Sequence[Sequence[Any]]) -> AclList:
    acl = tuple(Acl(*entry) for entry in entries)
    return OPEN_ACL if acl == OPEN_ACL else acl


def _next_record(content: bytes, position: int) -> tuple[Any, int] | None:
    """The record at `position` and where the next one starts; None where none is whole."""
    if position + _HEAD.size > len(content):
        return None
    length, crc = _HEAD.unpack_from(content, position)
    start = position + _HEAD.size
    # The checksum of nothing is 0: zeros, as a loss of power leaves them at a file's end, are no record.
    if length == 0 or length > LARGEST_RECORD or start + length > len(content):
        return None
    payload = content[start : start + length]
    if crc32c(payload) != crc:
        return None
    return json.loads(payload), start + length


def _load_snapshot(tree: Tree, content: bytes, path: str) -> None:
    found = _next_record(content, 0)
    if found is None or found[1] != len(content) or found[0][0] not in (OLD_FORMAT, FORMAT):
        raise TreeDamaged(
            f"{path} is damaged or of another format. Restore it from a copy, or remove it together with {LOG_NAME}: "
            "topics are then found again by their folders, but their settings are lost."
        )
    _, tree.last_zxid, nodes, *rest = found[0]
    for fields in nodes:
        _load_node(tree, *fields)
    for node_path in tree.nodes:
        if node_path != "/":
            parent, _, name = node_path.rpartition("/")
            tree.nodes[parent or "/"].children.add(name)
    for session_id, password, timeout_ms in rest[0] if rest else ():
        tree.sessions[session_id] = SessionRecord(_bytes(password) or b"", timeout_ms)


def _load_node(
    tree: Tree,
    path: str,
    data: str | None,
    czxid: int,
    mzxid: int,
    pzxid: int,
    ctime_ms: int,
    mtime_ms: int,
    version: int,
    created: int,
    aversion: int,
    owner: int = 0,
    acl: Sequence[Sequence[Any]] | None = None,
) -> None:
    node = tree.nodes.get(path)
    if node is None:
        node = tree.nodes[path] = Node(None, czxid, ctime_ms, owner)
        if owner:
            tree.own(path, node)
    node.data = _bytes(data)
    node.mzxid, node.pzxid, node.mtime_ms = mzxid, pzxid, mtime_ms
    node.version, node.created, node.aversion = version, created, aversion
    if acl is not None:
        node.acl = _acl(acl)


def _change(
    kind: str, path: str, data: str | None, version: int, owner: int = 0, acl: Sequence[Sequence[Any]] | None = None
) -> Change:
    return Change(kind, path, _bytes(data), version, owner, OPEN_ACL if acl is None else _acl(acl))


def _replay_log(tree: Tree, content: bytes, path: str) -> int:
    """Apply the log's records that the snapshot does not hold; returns how many bytes are good."""
    position = 0
    while (found := _next_record(content, position)) is not None:
        (zxid, time_ms, changes, *_), position_after = found
        if zxid > tree.last_zxid:
            try:
                tree.replay(zxid, time_ms, [_change(*change) for change in changes])
            except ZkError as error:
                raise TreeDamaged(
                    f"{path} does not fit its snapshot at byte {position} ({error}). Restore both from a copy, or "
                    "remove both: topics are then found again by their folders, but their settings are lost."
                ) from error
        position = position_after
    _refuse_if_torn_within(content, position, path)
    return position


def _refuse_if_torn_within(content: bytes, position: int, path: str) -> None:
    """Raise `TreeDamaged` where whole records lie behind one that is not: that is no write that was cut short.

    Except behind a hole, as a loss of power leaves it among writes that were not forced yet.
    """
    behind = _next_whole_record(content, position + 1)
    if behind is not None and HOLE not in content[position:behind]:
        raise TreeDamaged(
            f"{path} is damaged at byte {position}, and goes on at byte {behind}. Restore it from a copy; or cut it "
            f"there (truncate -s {position}), and what was changed later is lost: settings of topics and brokers"
        )


def _next_whole_record(content: bytes, start: int) -> int | None:
    """Where the first whole record from `start` on begins, None where there is none."""
    payload = content.find(b"[", start + _HEAD.size)
    while payload >= 0:
        if _next_record(content, payload - _HEAD.size) is not None:
            return payload - _HEAD.size
        payload = content.find(b"[", payload + 1)
    return None
