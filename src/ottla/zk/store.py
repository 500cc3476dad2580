"""The znode tree on disk: a log of transactions and, now and then, a snapshot.

Files (in one directory, the first of the broker's log directories): `ottla-tree.log`, `ottla-tree.snapshot`, in the
formats of `tree_format`. `ottla-tree.marker` records the last durable transactions (`tree_marker`).

A transaction is in the page cache before its effect is visible, and is synced in the background: it survives a crash of
the process. With `flush_on_ack` a caller that has awaited `forced` knows that it survives a power failure, too; after a
failed flush it is unknown what is on disk, so nothing more is written. Ephemeral nodes of sessions in this process end
with it and are never written; those of other processes last as long as their sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.env.collector import pass_over_copy
from ottla.env.disk import TEMPORARY_SUFFIX, DiskError
from ottla.env.futures import settle
from ottla.zk.tree import ServerOperation, Transaction, parent_of
from ottla.zk.tree_capture import TreeCapture, captured
from ottla.zk.tree_format import LOG_NAME as LOG_NAME
from ottla.zk.tree_format import SNAPSHOT_NAME as SNAPSHOT_NAME
from ottla.zk.tree_format import Captured, logged, snapshot_records, transaction_record
from ottla.zk.tree_format import TreeDamaged as TreeDamaged
from ottla.zk.tree_loading import LoadedTree, load_tree
from ottla.zk.tree_marker import Marked, TreeMarker
from ottla.zk.watches import WatchTable

if TYPE_CHECKING:
    from ottla.env.clock import Clock
    from ottla.env.disk import Disk, DiskFile
    from ottla.env.executor import Executor
    from ottla.zk.acl import Identity

SNAPSHOT_AFTER_BYTES = 16 * 1024 * 1024
"""A log larger than this, and than `SNAPSHOT_SHARE` allows, is replaced by a snapshot."""
SNAPSHOT_SHARE = 2
"""The log grows to this multiple of the last snapshot first, so that large trees are written rarely."""
NEW_SUFFIX = ".new"
"""Suffix of a file that is about to replace another."""
EPOCH_BITS = 32
"""Number of bits of a zxid below its epoch, as in ZooKeeper."""
SNAPSHOT_AT_CLOSE_BYTES = 256 * 1024
"""A log larger than this is replaced by a snapshot when the tree is opened or closed."""
QUICK_MS = 5.0
"""Flushes that usually take no longer than this are waited for on the loop."""
#: Weight of one flush in the average: one that takes a second influences the next 50.
_WEIGHT = 1 / 8


def has_metadata_files(disk: Disk, directory: str) -> bool:
    """Whether a directory holds a tree, even one that cannot be read. Raises `DiskError`."""
    path = f"{directory}/{LOG_NAME}"
    return disk.exists(f"{directory}/{SNAPSHOT_NAME}") or (disk.exists(path) and disk.file_size(path) > 0)


class FlushPace:
    """The place of a flush: in a disk thread or, if that is fast and no other client waits, on the event loop.

    Passing a flush to a thread and receiving its result costs more processor time than the flush, and the loop is idle
    while the thread is scheduled. A server without other work thus waits on the loop for a fast disk, as long as only
    clients with pending changes send requests. Their requests that arrive meanwhile are handled in the next slice, and
    flushed together. A client that only reads waits for one flush at most. The first flushes always go to a thread.
    """

    __slots__ = ("usual_ms",)

    def __init__(self) -> None:
        self.usual_ms = 2 * QUICK_MS

    def took(self, length_ms: float) -> None:
        """Register the duration of a flush, on the loop or in a thread."""
        self.usual_ms += (length_ms - self.usual_ms) * _WEIGHT

    def is_waited_for(self, others_ask: bool) -> bool:
        """Whether to run the next flush on the loop.

        `others_ask`: since the last flush there was a request of a client without changes in the next one.
        """
        return not others_ask and self.usual_ms <= QUICK_MS


class StoreListener(Protocol):
    """Implemented by the server of the tree to other processes."""

    def forced(self, zxid: int) -> None:
        """Called when transactions up to this one are durable."""
        ...

    def failed(self, error: DiskError) -> None:
        """Called when it has become unknown what is on disk; nothing more is written."""
        ...


class TreeStore:
    """A tree whose persistent nodes survive the process. Open it with `TreeStore.open`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        clock: Clock,
        executor: Executor | None,
        file: DiskFile,
        loaded: LoadedTree,
        flush_on_ack: bool = False,
        waits_for_disk: bool = False,
    ) -> None:
        self.tree = tree = loaded.tree
        #: Messages to the operator about the state in which the tree was found.
        self.notes = loaded.notes
        self._disk = disk
        self._directory = directory
        self._clock = clock
        self._executor = executor
        self._file = file
        #: End of the last complete record of the log.
        self._end = file.size
        #: Size limit of the log.
        self._longest = max(SNAPSHOT_AFTER_BYTES, SNAPSHOT_SHARE * loaded.snapshot_bytes)
        self._marker = TreeMarker(disk, directory)
        self._snapshot_zxid = loaded.snapshot_zxid
        #: The last transaction in the log, and the last one that the flush under way covers.
        self._logged_zxid = self._forcing_zxid = tree.last_zxid
        self._flushing = False
        self._flush_is_due = False
        self._dirty = False
        self._closed = False
        self._pace = FlushPace() if waits_for_disk else None
        #: The sessions with requests since the last flush, as reported by the server, and those with changes.
        self.requesting_sessions: set[int] = set()
        self._changers: set[int] = set()
        self._flush_on_ack = flush_on_ack and executor is not None
        #: Waiters for the flush under way, and for the next one.
        self._waiting: list[asyncio.Future[None]] = []
        self._waiting_next: list[asyncio.Future[None]] = []
        self._failure: DiskError | None = None
        self.watches = WatchTable()
        #: The last transaction that is durable, as far as this store guarantees that.
        self.forced_zxid = tree.last_zxid
        #: The paths changed by transactions that are not flushed yet: by the flush under way, and after it.
        self._touched: dict[str, int] = {}
        self._touched_next: dict[str, int] = {}
        self._listener: StoreListener | None = None
        #: Where the log continues after the snapshot that a disk thread is writing, None if none is.
        self._cut_at: int | None = None
        self._snapshot_is_there = False
        #: The copy of the tree for that snapshot, while it is being made.
        self._capture: TreeCapture | None = None

    @staticmethod
    def open(
        disk: Disk,
        directory: str,
        clock: Clock,
        executor: Executor | None = None,
        flush_on_ack: bool = False,
        waits_for_disk: bool = False,
        unclean_start: bool = False,
    ) -> TreeStore:
        """Read the tree in `directory`, or create an empty one.

        With `waits_for_disk` the loop waits for a fast disk (see `FlushPace`): it has nothing else to do. An incomplete
        record at the end of the log, which was never acknowledged, is truncated and reported in `notes`. Raises
        `TreeDamaged` if anything before it cannot be read, or durable transactions are missing; with `unclean_start`
        the tree starts with what there is. Raises `DiskError` on a disk error.
        """
        disk.mkdirs(directory)
        for name in disk.listdir(directory):
            if name.startswith((f"{SNAPSHOT_NAME}.", f"{LOG_NAME}.")) and name.endswith((NEW_SUFFIX, TEMPORARY_SUFFIX)):
                disk.remove(f"{directory}/{name}")  # the process was killed while writing it
        loaded = load_tree(disk, directory, unclean_start)
        is_new = not disk.exists(f"{directory}/{LOG_NAME}")
        file = disk.open(f"{directory}/{LOG_NAME}", create=True)
        if is_new and flush_on_ack:
            # Synced file contents are lost if the directory entry is.
            disk.fsync_dir(directory)
            disk.fsync_dir(directory.rpartition("/")[0] or ("/" if directory.startswith("/") else "."))
        if loaded.good_bytes < file.size:
            file.truncate(loaded.good_bytes)
        store = TreeStore(disk, directory, clock, executor, file, loaded, flush_on_ack, waits_for_disk)
        if loaded.is_unclean:
            # From now on this is the expected state.
            store._mark(loaded.tree.last_zxid)
        if file.size > SNAPSHOT_AT_CLOSE_BYTES:
            store._snapshot_if_possible()
        return store

    def listen(self, listener: StoreListener | None) -> None:
        """Notify a server of other processes when transactions are flushed.

        From now on every transaction is logged, if only as a number: a client that has seen a higher zxid would take
        the server for a stale one. A flush begins after the loop has handled everything that arrived with the first
        write.

        If responses do not wait for the disk, a power failure may lose transactions that clients have seen. Their zxids
        belong to an epoch that is over then: as in an ensemble, each start begins a new one. Raises `DiskError`.
        """
        if listener is not None and not self._flush_on_ack:
            self.tree.last_zxid = ((self.tree.last_zxid >> EPOCH_BITS) + 1) << EPOCH_BITS
        self._listener = listener
        if listener is not None:
            self.execute([], 0)
            if not self._flush_on_ack:
                self._file.flush()

    def unforced(self, path: str) -> int:
        """The last transaction that changed the node (or its children) and is not durable yet; 0 if there is none."""
        return self._touched_next.get(path) or self._touched.get(path) or 0

    def execute(
        self, operations: Sequence[ServerOperation], session_id: int, identities: Collection[Identity] | None = None
    ) -> Transaction:
        """Apply operations as one transaction and log it.

        Raises `ZkError` if an operation fails, `DiskError` if it cannot be written; the tree is unchanged then.
        """
        if self._failure is not None:
            raise self._failure
        transaction = self.tree.execute(operations, session_id, self._clock.now_ms(), identities)
        self._changers.add(session_id)
        self._log(transaction)
        return transaction

    async def forced(self) -> None:
        """Wait, with `flush_on_ack`, until everything executed so far is durable. Raises `DiskError`."""
        if not self._flush_on_ack:
            return
        if self._failure is not None:
            raise self._failure
        if self._flushing or self._flush_is_due:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            (self._waiting_next if self._dirty else self._waiting).append(waiting)
            await waiting

    def expire_session(self, session_id: int) -> Transaction:
        """End a session and delete its ephemeral nodes. Raises `DiskError`."""
        if self._failure is not None:
            raise self._failure
        transaction = self.tree.expire_session(session_id, self._clock.now_ms())
        self._log(transaction)
        return transaction

    def snapshot(self) -> None:
        """Write all persistent nodes into the snapshot and start a new log. Raises `DiskError`."""
        assert self._capture is None, "another copy is being made, which is to know of the changes"
        found = captured(self.tree)
        longest = self._write_snapshot(found)
        self._replace_snapshot(found.zxid)
        self._longest = longest
        # After a crash between the two the log has records that the snapshot includes; their ids show that.
        self._file.truncate(0)
        self._end = 0

    def _write_snapshot(self, found: Captured) -> int:
        """Write it beside the last one; returns the size limit of the log after it. Raises `DiskError`."""
        content = snapshot_records(found)
        self._disk.write_atomic(self._new_snapshot_path(found.zxid), content)
        return max(SNAPSHOT_AFTER_BYTES, SNAPSHOT_SHARE * len(content))

    def _new_snapshot_path(self, zxid: int) -> str:
        """A unique path: after close, a thread may still be writing while another process uses the directory."""
        return f"{self._directory}/{SNAPSHOT_NAME}.{zxid}{NEW_SUFFIX}"

    def _replace_snapshot(self, zxid: int) -> None:
        """Replace the last snapshot by the written one. Raises `DiskError`."""
        self._disk.rename(self._new_snapshot_path(zxid), f"{self._directory}/{SNAPSHOT_NAME}")
        self._disk.fsync_dir(self._directory)
        self._snapshot_zxid = zxid
        self._mark(zxid)

    def _mark(self, zxid: int) -> None:
        """Record that transactions up to this one are durable, so that a later start notices if some are missing."""
        self._marker.note(Marked(zxid, self._snapshot_zxid))

    def snapshot_soon(self) -> None:
        """Like `snapshot`, in slices and a disk thread: the log, which grows meanwhile, is cut at the end.

        A disk error here loses nothing: the log is complete. The snapshot is retried later.
        """
        if self._executor is None:
            self._snapshot_if_possible()
        elif self._cut_at is None:
            self._cut_at = self._end
            self._capture = TreeCapture(self.tree)
            self._capture_slice()

    def _capture_slice(self) -> None:
        """Copy some of the tree; once all of it is copied, have a disk thread write it."""
        capture, executor = self._capture, self._executor
        if capture is None or executor is None:
            return  # cancelled
        if not capture.copy_slice(pass_over_copy):
            asyncio.get_running_loop().call_soon(self._capture_slice)
            return
        self._capture = None
        found = capture.end()
        executor.call(
            lambda: self._write_snapshot(found), lambda longest, _: self._snapshot_written(found.zxid, longest)
        )

    def _snapshot_written(self, zxid: int, longest: int | None) -> None:
        if self._closed:
            return  # the directory may be in use by another process by now
        try:
            if longest is not None:
                self._replace_snapshot(zxid)
        except DiskError:
            longest = None
        if longest is None:
            self._cut_at = None
            self._longest = self._end + SNAPSHOT_AFTER_BYTES
            return
        self._longest = longest
        self._snapshot_is_there = True
        self._cut_if_due()

    def _cut_if_due(self) -> None:
        """Remove from the log what the snapshot includes, unless a disk thread is using the file."""
        if not self._snapshot_is_there or self._flushing or self._closed or self._failure is not None:
            return
        assert self._cut_at is not None
        start, self._cut_at, self._snapshot_is_there = self._cut_at, None, False
        try:
            if start == self._end:
                self._file.truncate(0)
                self._end = 0
                return
            self._disk.write_atomic(self._file.path + NEW_SUFFIX, self._file.pread(self._end - start, start))
        except DiskError:
            # The log is complete: records that the snapshot includes are skipped when it is read.
            self._longest = self._end + SNAPSHOT_AFTER_BYTES
            return
        self._switch_to_new_log()

    def _switch_to_new_log(self) -> None:
        """Replace the log by the one written beside it. If that fails it is unknown which of the two is in place."""
        path = self._file.path
        try:
            self._disk.rename(path + NEW_SUFFIX, path)
            self._disk.fsync_dir(self._directory)
            file = self._disk.open(path)
        except DiskError as error:
            self._failure = error
            self._notify_listener(error)
            return
        self._file.close()
        self._file = file
        self._end = file.size

    def close(self) -> None:
        """Sync the log and close it; a long one is replaced by a snapshot."""
        self._closed = True
        if self._capture is not None:
            self._capture.end()
            self._capture = self._cut_at = None
        try:
            # A snapshot that a disk thread is still writing is older, and might replace this one.
            if self._file.size > SNAPSHOT_AT_CLOSE_BYTES and self._cut_at is None:
                self._snapshot_if_possible()
            if self._dirty or self._flushing:
                self._file.flush()
            if self._failure is None:
                self._mark(self._logged_zxid)
        finally:
            self._marker.close()
            # While a disk thread is syncing the file, its descriptor must not be reused.
            if not self._flushing:
                self._file.close()

    def _log(self, transaction: Transaction) -> None:
        durable = logged(transaction.changes)
        if not durable and self._listener is None:
            self._nothing_to_force()
            return
        try:
            if self._file.damaged:
                # A partial write was left behind: records after it could not be read.
                self._file.truncate(self._end)
            self._file.append([transaction_record(transaction.zxid, transaction.time_ms, durable)])
        except DiskError:
            self.tree.undo_last()
            raise
        self._end = self._file.size
        self._logged_zxid = transaction.zxid
        self._dirty = True
        if self._flush_on_ack:
            self._touch(transaction)
        else:
            self.forced_zxid = transaction.zxid
        self._flush_soon()
        if self._end > self._longest:
            self.snapshot_soon()

    def _touch(self, transaction: Transaction) -> None:
        touched, zxid = self._touched_next, transaction.zxid
        for change in transaction.changes:
            path = change.path
            touched[path] = zxid
            if change.kind in ("create", "delete"):
                touched[parent_of(path)] = zxid

    def _nothing_to_force(self) -> None:
        if not self._flushing and not self._dirty:
            self.forced_zxid = self.tree.last_zxid

    def _snapshot_if_possible(self) -> None:
        """Shorten the log. A disk error here loses nothing: the log is complete. It is retried later."""
        try:
            self.snapshot()
        except DiskError:
            self._longest = self._end + SNAPSHOT_AFTER_BYTES

    def _flush_soon(self) -> None:
        """Sync the log in a disk thread, one flush at a time for any number of transactions."""
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
        self._forcing_zxid = self._logged_zxid
        others_ask = not self.requesting_sessions <= self._changers
        self.requesting_sessions.clear()
        self._changers.clear()
        if self._pace is None:
            self._executor.call(self._file.flush, lambda _, error: self._flushed(zxid, error))
        elif not self._pace.is_waited_for(others_ask):
            self._executor.call(self._flush_timed, lambda _, error: self._flushed(zxid, error))
        else:
            try:
                self._flush_timed()
            except DiskError as failure:
                self._flushed(zxid, failure)
            else:
                self._flushed(zxid, None)

    def _flush_timed(self) -> None:
        assert self._pace is not None
        begun_ms = self._clock.monotonic_ms()
        self._file.flush()
        self._pace.took(self._clock.monotonic_ms() - begun_ms)

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
        for future in waiting:
            settle(future, None, error)
        if self._closed:
            self._file.close()
            return
        if error is not None:
            self._dirty = True
        else:
            self._mark(self._forcing_zxid)
            self._cut_if_due()
            if self._dirty:
                self._flush_soon()
        self._notify_listener(error)

    def _notify_listener(self, error: BaseException | None) -> None:
        if self._listener is None:
            return
        if error is None:
            self._listener.forced(self.forced_zxid)
        elif self._failure is not None:
            self._listener.failed(self._failure)
