"""The tree on disk: a log of transactions and, now and then, a snapshot.

Files (in one folder, the first of the broker's log folders): `ottla-tree.log`, `ottla-tree.snapshot`. Both consist of
records `length (u32) | crc32c (u32) | payload`, the payload JSON in UTF-8; node data is text in which each byte is one
character (latin-1), so that any data survives and JSON in it stays readable.

    log       [zxid, time_ms, [["create" | "set" | "delete", path, data, version], ...]]
    snapshot  [format, last_zxid, nodes], and each node
              [path, data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, cversion, aversion]

A transaction is in the page cache before anybody sees its effect, and is forced to disk in the background: it survives
the death of the process. With `flush_on_ack` whoever awaits `forced` knows that it survives a loss of power, too; after
a flush that failed nobody knows what is on the disk, so nothing more is written. Ephemeral nodes of sessions in this
process end with it and are never written.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.env.disk import DiskError
from ottla.records.crc import crc32c
from ottla.zk.tree import Change, Node, Operation, Transaction, Tree, ZkError

if TYPE_CHECKING:
    from ottla.env.clock import Clock
    from ottla.env.disk import Disk, DiskFile
    from ottla.env.executor import Executor

LOG_NAME = "ottla-tree.log"
SNAPSHOT_NAME = "ottla-tree.snapshot"
FORMAT = 1
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
        self._dirty = False
        self._closed = False
        self._flush_on_ack = flush_on_ack
        #: Who waits for the flush under way, and who for the one after it.
        self._waiting: list[asyncio.Future[None]] = []
        self._waiting_next: list[asyncio.Future[None]] = []
        self._failure: DiskError | None = None

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
        file = disk.open(f"{folder}/{LOG_NAME}", create=True)
        good = _replay_log(tree, file.pread(file.size, 0), file.path)
        if good < file.size:
            file.truncate(good)
        store = TreeStore(disk, folder, clock, executor, tree, file, flush_on_ack)
        if file.size > SNAPSHOT_AT_CLOSE_BYTES:
            store._snapshot_if_possible()
        return store

    def execute(self, operations: Sequence[Operation], session_id: int) -> Transaction:
        """Apply operations as one transaction and log it.

        Raises `ZkError` where an operation fails, `DiskError` where it cannot be written; the tree is then as before.
        """
        if self._failure is not None:
            raise self._failure
        transaction = self.tree.execute(operations, session_id, self._clock.now_ms())
        self._log(transaction)
        return transaction

    async def forced(self) -> None:
        """Wait, with `flush_on_ack`, until what was executed so far is on the disk. Raises `DiskError`."""
        if not self._flush_on_ack:
            return
        if self._failure is not None:
            raise self._failure
        if self._flushing:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            (self._waiting_next if self._dirty else self._waiting).append(waiting)
            await waiting

    def expire_session(self, session_id: int) -> Transaction:
        """Delete the ephemeral nodes of a session."""
        transaction = self.tree.expire_session(session_id, self._clock.now_ms())
        self._log(transaction)
        return transaction

    def snapshot(self) -> None:
        """Write all durable nodes into the snapshot and begin the log anew. Raises `DiskError`."""
        nodes = [_node_fields(path, node) for path, node in self.tree.nodes.items() if not node.ephemeral_owner]
        record = _record([FORMAT, self.tree.last_zxid, nodes])
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
        durable = [change for change in transaction.changes if not change.ephemeral]
        if not durable:
            return
        try:
            if self._file.damaged:
                # A write failed and its remains stayed: records behind them would not be found again.
                self._file.truncate(self._end)
            self._file.append(
                _record(
                    [
                        transaction.zxid,
                        transaction.time_ms,
                        [[change.kind, change.path, _text(change.data), change.version] for change in durable],
                    ]
                )
            )
        except DiskError:
            self.tree.undo_last()
            raise
        self._end = self._file.size
        self._dirty = True
        self._flush_soon()
        if self._file.size > SNAPSHOT_AFTER_BYTES:
            self._snapshot_if_possible()

    def _snapshot_if_possible(self) -> None:
        """Shorten the log. A disk that fails here costs nothing: the log is complete, the next write tries again."""
        try:
            self.snapshot()
        except DiskError:
            return

    def _flush_soon(self) -> None:
        """Force the log to disk in a disk thread, one flush at a time for however many transactions."""
        if self._executor is None or self._flushing:
            return
        self._flushing = True
        self._dirty = False
        self._waiting, self._waiting_next = self._waiting_next, []
        self._executor.call(self._file.flush, self._flushed)

    def _flushed(self, _result: object, error: BaseException | None) -> None:
        self._flushing = False
        waiting, self._waiting = self._waiting, []
        if self._flush_on_ack and isinstance(error, DiskError):
            self._failure = error
            waiting += self._waiting_next
            self._waiting_next = []
        _tell(waiting, error)
        if self._closed:
            self._file.close()
        elif error is not None:
            self._dirty = True
        elif self._dirty:
            self._flush_soon()


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


def _node_fields(path: str, node: Node) -> list[Any]:
    return [
        path, _text(node.data), node.czxid, node.mzxid, node.pzxid, node.ctime_ms, node.mtime_ms, node.version,
        node.cversion, node.aversion,
    ]  # fmt: skip


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
    if found is None or found[1] != len(content) or found[0][0] != FORMAT:
        raise TreeDamaged(
            f"{path} is damaged or of another format. Restore it from a copy, or remove it together with {LOG_NAME}: "
            "topics are then found again by their folders, but their settings are lost."
        )
    _, tree.last_zxid, nodes = found[0]
    for node_path, data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, cversion, aversion in nodes:
        node = tree.nodes.get(node_path)
        if node is None:
            node = tree.nodes[node_path] = Node(None, czxid, ctime_ms)
        node.data = _bytes(data)
        node.mzxid, node.pzxid, node.mtime_ms = mzxid, pzxid, mtime_ms
        node.version, node.cversion, node.aversion = version, cversion, aversion
    for node_path in tree.nodes:
        if node_path != "/":
            parent, _, name = node_path.rpartition("/")
            tree.nodes[parent or "/"].children.add(name)


def _replay_log(tree: Tree, content: bytes, path: str) -> int:
    """Apply the log's records that the snapshot does not hold; returns how many bytes are good."""
    position = 0
    while (found := _next_record(content, position)) is not None:
        (zxid, time_ms, changes), position_after = found
        if zxid > tree.last_zxid:
            try:
                tree.replay(
                    zxid,
                    time_ms,
                    (Change(kind, node, _bytes(data), version, False) for kind, node, data, version in changes),
                )
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
