"""The tree on disk: a log of transactions and, now and then, a snapshot.

Files (in one folder, the first of the broker's log folders): `ottla-tree.log`, `ottla-tree.snapshot`; `tree_format`
tells what is in them. `ottla-tree.marker` says how far they came (`tree_marker`).

A transaction is in the page cache before anybody sees its effect, and is forced to disk in the background: it survives
the death of the process. With `flush_on_ack` whoever awaits `forced` knows that it survives a loss of power, too; after
a flush that failed nobody knows what is on the disk, so nothing more is written. Ephemeral nodes of sessions in this
process end with it and are never written; those of other processes last as long as their sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.env.disk import TEMPORARY_SUFFIX, DiskError
from ottla.env.futures import settle
from ottla.zk.flushes import FlushPace
from ottla.zk.tree import ServerOperation, Transaction, parent_of
from ottla.zk.tree_format import LOG_NAME as LOG_NAME
from ottla.zk.tree_format import SNAPSHOT_NAME as SNAPSHOT_NAME
from ottla.zk.tree_format import (
    Captured,
    captured,
    logged,
    snapshot_records,
    transaction_record,
)
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
"""A log that has grown beyond this, and beyond `SNAPSHOT_SHARE`, is replaced by a snapshot at once."""
SNAPSHOT_SHARE = 2
"""How many times as large as the last snapshot the log grows first: large trees are written rarely."""
NEW_SUFFIX = ".new"
"""Of a file that is about to replace another."""
EPOCH_BITS = 32
"""Transaction ids count within an epoch in so many bits, as ZooKeeper's do."""
SNAPSHOT_AT_CLOSE_BYTES = 256 * 1024
"""A log that has grown beyond this is replaced by a snapshot when the tree is opened or closed."""


def holds_tree(disk: Disk, folder: str) -> bool:
    """Whether a folder holds a tree, be it one that is not to be read. Raises `DiskError`."""
    path = f"{folder}/{LOG_NAME}"
    return disk.exists(f"{folder}/{SNAPSHOT_NAME}") or (disk.exists(path) and disk.file_size(path) > 0)


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
        file: DiskFile,
        loaded: LoadedTree,
        flush_on_ack: bool = False,
        waits_for_disk: bool = False,
    ) -> None:
        self.tree = tree = loaded.tree
        #: What the operator should know of how the tree was found.
        self.notes = loaded.notes
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._executor = executor
        self._file = file
        #: Where the last whole record of the log ends.
        self._end = file.size
        #: How long the log may get.
        self._longest = max(SNAPSHOT_AFTER_BYTES, SNAPSHOT_SHARE * loaded.snapshot_bytes)
        self._marker = TreeMarker(disk, folder)
        self._snapshot_zxid = loaded.snapshot_zxid
        #: The last transaction in the log, and the last one that the flush under way forces.
        self._logged_zxid = self._forcing_zxid = tree.last_zxid
        self._flushing = False
        self._flush_is_due = False
        self._dirty = False
        self._closed = False
        self._pace = FlushPace() if waits_for_disk else None
        #: The sessions that have asked for something since the last flush, as their server says, and for changes.
        self.askers: set[int] = set()
        self._changers: set[int] = set()
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
        #: Where the log goes on behind the snapshot that a disk thread writes, None where none does.
        self._cut_at: int | None = None
        self._snapshot_is_there = False

    @staticmethod
    def open(
        disk: Disk,
        folder: str,
        clock: Clock,
        executor: Executor | None = None,
        flush_on_ack: bool = False,
        waits_for_disk: bool = False,
        unclean_start: bool = False,
    ) -> TreeStore:
        """Read the tree in `folder`, or begin an empty one.

        With `waits_for_disk` the loop waits for a disk that is quick, see `flushes`: it has nothing else to do.
        A torn record at the end of the log, which was never acknowledged, is cut off; `notes` tell of it. Raises
        `TreeDamaged` where anything before it cannot be read, or transactions are missing that were on the disk;
        with `unclean_start` it begins with what there is. Raises `DiskError` where the disk fails.
        """
        disk.mkdirs(folder)
        for name in disk.listdir(folder):
            if name.startswith((f"{SNAPSHOT_NAME}.", f"{LOG_NAME}.")) and name.endswith((NEW_SUFFIX, TEMPORARY_SUFFIX)):
                disk.remove(f"{folder}/{name}")  # killed while it was written
        loaded = load_tree(disk, folder, unclean_start)
        is_new = not disk.exists(f"{folder}/{LOG_NAME}")
        file = disk.open(f"{folder}/{LOG_NAME}", create=True)
        if is_new and flush_on_ack:
            # What is forced into a file is lost with its name.
            disk.fsync_dir(folder)
            disk.fsync_dir(folder.rpartition("/")[0] or ("/" if folder.startswith("/") else "."))
        if loaded.good_bytes < file.size:
            file.truncate(loaded.good_bytes)
        store = TreeStore(disk, folder, clock, executor, file, loaded, flush_on_ack, waits_for_disk)
        if loaded.is_unclean:
            # From now on this is what there was.
            store._mark(loaded.tree.last_zxid)
        if file.size > SNAPSHOT_AT_CLOSE_BYTES:
            store._snapshot_if_possible()
        return store

    def listen(self, listener: StoreListener | None) -> None:
        """Tell a server of other processes what is forced to disk.

        From now on every transaction is logged, if only as a number: a client that has seen one would take a server
        with lower ones for a stale one. A flush begins when the loop has taken up what came with the first write.

        Where answers do not wait for the disk, a loss of power may take transactions that clients have seen. Theirs
        are numbers of an epoch that is over then: as in an ensemble, each start begins another. Raises `DiskError`.
        """
        if listener is not None and not self._flush_on_ack:
            self.tree.last_zxid = ((self.tree.last_zxid >> EPOCH_BITS) + 1) << EPOCH_BITS
        self._listener = listener
        if listener is not None:
            self.execute([], 0)
            if not self._flush_on_ack:
                self._file.flush()

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
        self._changers.add(session_id)
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
        """End a session and delete its ephemeral nodes. Raises `DiskError`."""
        if self._failure is not None:
            raise self._failure
        transaction = self.tree.expire_session(session_id, self._clock.now_ms())
        self._log(transaction)
        return transaction

    def snapshot(self) -> None:
        """Write all durable nodes into the snapshot and begin the log anew. Raises `DiskError`."""
        found = captured(self.tree)
        longest = self._write_snapshot(found)
        self._replace_snapshot(found.zxid)
        self._longest = longest
        # A crash between the two leaves records that the snapshot holds already; their ids tell.
        self._file.truncate(0)
        self._end = 0

    def _write_snapshot(self, found: Captured) -> int:
        """Write it beside the last one; returns how long the log may get after it. Raises `DiskError`."""
        content = snapshot_records(found)
        self._disk.write_atomic(self._new_snapshot_path(found.zxid), content)
        return max(SNAPSHOT_AFTER_BYTES, SNAPSHOT_SHARE * len(content))

    def _new_snapshot_path(self, zxid: int) -> str:
        """None of another's: a thread may still write when the store is closed, and the folder a successor's."""
        return f"{self._folder}/{SNAPSHOT_NAME}.{zxid}{NEW_SUFFIX}"

    def _replace_snapshot(self, zxid: int) -> None:
        """Put the snapshot that was written in place of the last one. Raises `DiskError`."""
        self._disk.rename(self._new_snapshot_path(zxid), f"{self._folder}/{SNAPSHOT_NAME}")
        self._disk.fsync_dir(self._folder)
        self._snapshot_zxid = zxid
        self._mark(zxid)

    def _mark(self, zxid: int) -> None:
        """Transactions up to this one are on the disk: a start that finds fewer can tell."""
        self._marker.note(Marked(zxid, self._snapshot_zxid))

    def snapshot_soon(self) -> None:
        """The same in a disk thread: the log, which goes on meanwhile, is cut when the snapshot is there.

        A disk that fails here costs nothing: the log is complete. It is tried again, not soon.
        """
        if self._executor is None:
            self._snapshot_if_possible()
        elif self._cut_at is None:
            self._cut_at = self._end
            found = captured(self.tree)
            self._executor.call(
                lambda: self._write_snapshot(found), lambda longest, _: self._snapshot_written(found.zxid, longest)
            )

    def _snapshot_written(self, zxid: int, longest: int | None) -> None:
        if self._closed:
            return  # the folder may be another process's by now
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
        """Take out of the log what the snapshot holds, unless a disk thread is at work on the file."""
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
            # The log is complete: what the snapshot holds is passed over when it is read.
            self._longest = self._end + SNAPSHOT_AFTER_BYTES
            return
        self._go_on_in_new_log()

    def _go_on_in_new_log(self) -> None:
        """Replace the log by the one written beside it. Where that fails, nobody knows which of the two is there."""
        path = self._file.path
        try:
            self._disk.rename(path + NEW_SUFFIX, path)
            self._disk.fsync_dir(self._folder)
            file = self._disk.open(path)
        except DiskError as error:
            self._failure = error
            self._tell_listener(error)
            return
        self._file.close()
        self._file = file
        self._end = file.size

    def close(self) -> None:
        """Force the log to disk and close it; a long one is replaced by a snapshot."""
        self._closed = True
        try:
            # One that a disk thread still writes is older, and might replace this one.
            if self._file.size > SNAPSHOT_AT_CLOSE_BYTES and self._cut_at is None:
                self._snapshot_if_possible()
            if self._dirty or self._flushing:
                self._file.flush()
            if self._failure is None:
                self._mark(self._logged_zxid)
        finally:
            self._marker.close()
            # A disk thread that still forces the file must not find its descriptor given to another.
            if not self._flushing:
                self._file.close()

    def _log(self, transaction: Transaction) -> None:
        durable = logged(transaction.changes)
        if not durable and self._listener is None:
            self._nothing_to_force()
            return
        try:
            if self._file.damaged:
                # A write failed and its remains stayed: records behind them would not be found again.
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
        """Shorten the log. A disk that fails here costs nothing: the log is complete. It is tried again, not soon."""
        try:
            self.snapshot()
        except DiskError:
            self._longest = self._end + SNAPSHOT_AFTER_BYTES

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
        self._forcing_zxid = self._logged_zxid
        others_ask = not self.askers <= self._changers
        self.askers.clear()
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
        self._tell_listener(error)

    def _tell_listener(self, error: BaseException | None) -> None:
        if self._listener is None:
            return
        if error is None:
            self._listener.forced(self.forced_zxid)
        elif self._failure is not None:
            self._listener.failed(self._failure)
