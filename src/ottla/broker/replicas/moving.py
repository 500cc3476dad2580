"""Moves partitions of this broker into other log directories (AlterReplicaLogDirs, KIP-113).

What Apache Kafka's `ReplicaAlterLogDirsThread` does: a few partitions at a time are copied into future logs, in slices
that a disk thread reads and the loop appends, while the partition is led or followed as before. A future log that has
everything and is on disk takes the partition's place; the loop does that in one go, and nothing is appended meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.broker.quotas.replication import ReplicationQuota
from ottla.broker.replicas.manager import ReplicaManager
from ottla.broker.replicas.partition import is_report_due
from ottla.broker.slices import LoopSlices
from ottla.env.clock import Clock
from ottla.env.disk import Disk, DiskError
from ottla.env.executor import Executor, NoThread
from ottla.env.futures import settle
from ottla.env.warmth import bring, without_waiting
from ottla.records.errors import BatchError
from ottla.storage.checkpoints import OFFSET_FILES, forget_moves, read_moves, write_moves
from ottla.storage.flushing import begin_flush, end_flush
from ottla.storage.following import append_as_follower
from ottla.storage.log import PartitionLog
from ottla.storage.log_directory import LogDirectory
from ottla.storage.manager import LogManager
from ottla.storage.placement import FutureLog, can_be_moved, has_all
from ottla.storage.results import AppendRefusal, LogRead, ReadRefusal
from ottla.storage.topic_settings import copy_topic_settings
from ottla.wire.errors import ErrorCode

log = logging.getLogger("ottla.broker")

PartitionKey = tuple[str, int]

#: Bytes copied in one go: with the smallest of batches their append takes the loop some milliseconds.
SLICE_BYTES: Final = 256 * 1024
#: A future log is flushed after this much: its last flush must be short, and the page cache is for others, too.
FLUSH_BYTES: Final = 64 * 1024 * 1024
#: Most bytes that are not on disk yet when a future log takes its place.
LAST_BYTES: Final = 4 * 1024 * 1024
#: Flushes of a future log that its source overtakes, before no flush of the source is begun until the change.
MOST_OVERTAKEN: Final = 3
#: Flushes of the source are held back for this long, and what was begun by then: producers wait for them.
LONGEST_HOLD_MS: Final = 5_000
#: Batches of any leader epoch are copied: the log that they come from has accepted them.
ANY_EPOCH: Final = 2**31 - 1
#: A move that failed is tried again after this time.
AGAIN_S: Final = 5.0
#: The limit may be changed, and the move be ended, while it waits.
LONGEST_WAIT_S: Final = 1.0
#: Attempts to read from the page cache, before the loop waits for the disk.
MOST_COLD_ROUNDS: Final = 8


class _Trouble(Exception):
    """A move cannot continue for now; the message says why."""


class ReplicaMover:
    """The moves of one broker. `threads` of them are worked on at a time (`num.replica.alter.log.dirs.threads`)."""

    def __init__(
        self,
        replicas: ReplicaManager,
        logs: LogManager,
        disk: Disk,
        executor: Executor,
        clock: Clock,
        slices: LoopSlices,
        threads: int,
        limit: ReplicationQuota,
    ) -> None:
        self._replicas = replicas
        self._logs = logs
        self._disk = disk
        self._executor = executor
        self._clock = clock
        self._slices = slices
        self._threads = threads
        self._limit = limit
        #: Moves that wait for their turn, those that wait for a time, and those being worked on.
        self._queue: dict[PartitionKey, None] = {}
        self._delayed: dict[PartitionKey, asyncio.TimerHandle] = {}
        self._active: set[PartitionKey] = set()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._reported_ms: dict[PartitionKey, float] = {}
        self._is_stopped = False
        #: Called after each step of a move, with its name: tests stop a broker there.
        self.on_point: Callable[[str], None] = lambda name: None
        #: Bytes copied, and moves completed, so far.
        self.bytes_copied = 0
        self.moved = 0

    # -- requests

    def move(self, topic: str, index: int, path: str) -> ErrorCode:
        """Begin to move a partition to the log directory of this absolute path, or end its move if it is there.

        A partition that is not hosted here will be created there.
        """
        key = (topic, index)
        log_dir = self._logs.directories.at(path)
        if not can_be_moved(topic, index):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if log_dir is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if log_dir.failure is not None or self._replicas.is_offline(topic, index):
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._replicas.get(topic, index)
        if partition is None:
            self._logs.placement.prefer(key, log_dir)
            missing = self._replicas.missing(topic, index)
            is_elsewhere = missing is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else missing
        try:
            future = self._logs.placement.begin_move(partition.log, log_dir)
        except DiskError as error:
            log.warning("%s-%d cannot be moved to %s: %s", topic, index, path, error)
            self._logs.directories.probe_soon(log_dir)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if future is None:
            self._forget(key)
        else:
            self._begin(key)
        return ErrorCode.NONE

    def resume(self, topic: str, index: int) -> None:
        """Resume an interrupted move, now that the partition has a role."""
        partition = self._replicas.get(topic, index)
        if partition is None or (topic, index) in self._active:
            return
        self._logs.placement.agree(partition.log)
        if self._logs.placement.futures.get((topic, index)) is not None:
            self._begin((topic, index))

    def end(self, topic: str, index: int) -> None:
        """Stop the move: the partition is stopped, deleted or offline."""
        self._forget((topic, index))

    async def stop(self) -> None:
        """End all work; the future logs stay."""
        self._is_stopped = True
        self._queue.clear()
        for timer in self._delayed.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- the queue

    def _begin(self, key: PartitionKey) -> None:
        self._forget(key)
        if self._is_stopped:
            return
        self._queue[key] = None
        if len(self._tasks) < self._threads:
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    def _forget(self, key: PartitionKey) -> None:
        self._queue.pop(key, None)
        self._reported_ms.pop(key, None)
        timer = self._delayed.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def _work(self) -> None:
        """Work on moves, one after the other, as long as one waits."""
        while (key := next((each for each in self._queue if each not in self._active), None)) is not None:
            del self._queue[key]
            self._active.add(key)
            try:
                await _Move(key, self).run()
            except (DiskError, BatchError, NoThread, _Trouble) as error:
                self._postpone(key, str(error))
            except Exception as error:
                log.exception("the move of %s-%d failed", *key)
                self._postpone(key, str(error))
            finally:
                self._active.discard(key)

    def _postpone(self, key: PartitionKey, why: str) -> None:
        """Try again after some time, and say why, but not again and again."""
        future = self._logs.placement.futures.get(key)
        if future is None or self._is_stopped or key in self._queue:
            return
        partition = self._replicas.get(*key)
        for each in (future.log, *(() if partition is None else (partition.log,))):
            self._logs.suspect(each)
        now_ms = self._clock.monotonic_ms()
        if is_report_due(self._reported_ms.get(key), now_ms):
            self._reported_ms[key] = now_ms
            log.warning("the move of %s-%d to %s cannot continue for now: %s", *key, future.log_dir.path, why)
        self._delayed[key] = asyncio.get_running_loop().call_later(AGAIN_S, self._begin_again, key)

    def _begin_again(self, key: PartitionKey) -> None:
        reported_ms = self._reported_ms.get(key)
        self._begin(key)
        if reported_ms is not None:
            self._reported_ms[key] = reported_ms

    def lag(self, topic: str, index: int) -> int:
        """How many offsets the future log of a partition is behind, -1 if the partition is not online."""
        partition, future = self._replicas.get(topic, index), self._logs.placement.futures.get((topic, index))
        if partition is None or future is None:
            return -1
        return partition.log.log_end_offset - future.log.log_end_offset

    @property
    def largest_lag(self) -> int:
        """The largest of all moves; 0 if there is none."""
        return max(
            (self.lag(each.log.topic, each.log.partition) for each in self._logs.placement.futures.values()), default=0
        )


class _Move:
    """The work on one future log, from where it stands until it has taken its place."""

    def __init__(self, key: PartitionKey, mover: ReplicaMover) -> None:
        self._key = key
        self._mover = mover
        self._replicas = mover._replicas
        self._logs = mover._logs
        self._executor = mover._executor
        self._disk = mover._disk
        self._unflushed = 0
        #: Flushes since which more of the source is on disk again.
        self._overtaken = 0
        #: The source, while no flush of it is begun, and since when.
        self._held_back: PartitionLog | None = None
        self._held_since_ms = 0.0

    async def run(self) -> None:
        """Copy, until the future log is in place or has been removed.

        Raises DiskError, BatchError, NoThread and _Trouble: it may be tried again.
        """
        try:
            await self._run()
        finally:
            self._let_go()

    async def _run(self) -> None:
        mover = self._mover
        while (found := self._found()) is not None:
            source, future = found
            await mover._slices.pause()
            if self._found() != found:
                continue
            if future.log.failure is not None:
                self._give_up(future)
                return
            self._logs.placement.follow(source)
            if future.is_cut:
                await self._store_cut(future)
            elif self._must_copy(source, future):
                if self._held_back is not None and self._now_ms() - self._held_since_ms > LONGEST_HOLD_MS:
                    self._let_go()
                await self._copy(source, future)
            elif not future.is_prepared:
                await self._prepare(source, future)
            elif future.log.recovery_point < source.recovery_point or self._unflushed > LAST_BYTES:
                await self._flush_last(source, future)
            elif self._copy_rest(source, future):
                await self._put_in_place(source, future)
                return

    def _found(self) -> tuple[PartitionLog, FutureLog] | None:
        """The log and its future log; None if the partition is not online, or is not moved any more."""
        partition, future = self._replicas.get(*self._key), self._logs.placement.futures.get(self._key)
        if partition is None or future is None or self._mover._is_stopped:
            return None
        return partition.log, future

    def _give_up(self, future: FutureLog) -> None:
        """End the move: after a failed flush the future log's content on disk is unknown."""
        log.error("the move of %s-%d to %s has ended: %s", *self._key, future.log_dir.path, future.log.failure)
        self._logs.suspect(future.log)
        self._logs.placement.remove_future(self._key)

    def _must_copy(self, source: PartitionLog, future: FutureLog) -> bool:
        """Whether more is missing than the loop may copy in one go."""
        if future.log.log_end_offset >= source.log_end_offset:
            return False
        return self._mover._limit.wait_ms > 0 or not self._is_near(source, future)

    @property
    def _slice_bytes(self) -> int:
        return max(1, min(SLICE_BYTES, self._mover._limit.most_at_once))

    def _is_near(self, source: PartitionLog, future: FutureLog) -> bool:
        """Whether what is missing is so little that the loop may copy it in one go."""
        found: list[LogRead | ReadRefusal] = []
        offset = future.log.log_end_offset
        if without_waiting(partial(_into, found, partial(source.read, offset, self._slice_bytes))):
            return False
        (read,) = found
        if isinstance(read, ReadRefusal) or read.slice is None:
            return not isinstance(read, ReadRefusal)
        is_warm = read.slice.is_warm()
        if read.slice.release is not None:
            read.slice.release()
        return is_warm and read.next_offset >= source.log_end_offset

    # -- copying

    async def _copy(self, source: PartitionLog, future: FutureLog) -> None:
        limit = self._mover._limit
        wait_ms = limit.wait_ms
        if wait_ms > 0:
            await asyncio.sleep(min(wait_ms / 1000, LONGEST_WAIT_S))  # sleep: the limit of bytes a second
            return
        offset, cuts = future.log.log_end_offset, future.cuts
        read = await self._read(source, offset, self._slice_bytes)
        if read.slice is None:
            has_all(future.log, source)
            return
        try:
            data = await self._executor.submit(read.slice.read)
        finally:
            if read.slice.release is not None:
                read.slice.release()
        if self._found() == (source, future) and future.cuts == cuts:
            self._append(future, data)
            if self._unflushed >= FLUSH_BYTES:
                await self._flush(future)

    async def _read(self, source: PartitionLog, offset: int, size: int) -> LogRead:
        """Find the next slice, without waiting for the disk on the loop. Raises _Trouble."""
        found: list[LogRead | ReadRefusal] = []
        for rounds in range(MOST_COLD_ROUNDS + 1):
            work = partial(_into, found, partial(source.read, offset, size))
            if rounds == MOST_COLD_ROUNDS:
                work()
            elif cold := without_waiting(work):
                await self._executor.submit(bring, self._disk, cold)
            if found:
                break
        (read,) = found
        if isinstance(read, ReadRefusal):
            raise _Trouble(read.message)
        return read

    def _append(self, future: FutureLog, data: bytes) -> None:
        """Append a slice. Raises _Trouble."""
        now_ms = self._mover._clock.now_ms()
        done = append_as_follower(future.log, memoryview(data), leader_epoch=ANY_EPOCH, now_ms=now_ms)
        if isinstance(done, AppendRefusal):
            if done.error is ErrorCode.KAFKA_STORAGE_ERROR:
                self._logs.suspect(future.log)
            raise _Trouble(done.message)
        if not done.size:
            raise _Trouble("a batch is damaged")
        self._unflushed += done.size
        self._mover._limit.record(done.size)
        self._mover.bytes_copied += done.size
        self._mover.on_point("copied")

    def _copy_rest(self, source: PartitionLog, future: FutureLog) -> bool:
        """Copy the little that is missing; False if that is not possible now. Raises _Trouble."""
        log_ = future.log
        while log_.log_end_offset < source.log_end_offset:
            if not self._is_near(source, future):
                return False
            read = source.read(log_.log_end_offset, self._slice_bytes)
            if isinstance(read, ReadRefusal):
                raise _Trouble(read.message)
            if read.slice is None:
                has_all(log_, source)
                break
            try:
                data = read.slice.read()
            finally:
                if read.slice.release is not None:
                    read.slice.release()
            self._append(future, data)
        return log_.recovery_point >= source.recovery_point

    # -- to the disk

    async def _flush(self, future: FutureLog) -> None:
        """Force the future log to the disk. Raises DiskError: what is there is not known then."""
        job = begin_flush(future.log)
        if job is None:
            self._unflushed = 0
            return
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_result: None, error: BaseException | None) -> None:
            end_flush(future.log, job, error, self._mover._clock.now_ms())
            settle(flushed, None, error)

        self._executor.call(job.run, done)
        await flushed
        self._unflushed = future.log.unflushed.bytes
        self._mover.on_point("flushed")

    async def _flush_last(self, source: PartitionLog, future: FutureLog) -> None:
        """Flush while the source still grows. Raises DiskError and _Trouble.

        Where appends wait for the disk, and that of the source is the faster one, it is always ahead. So after some
        flushes none of the source is begun until the future log has taken its place.
        """
        self._overtaken += 1
        if self._overtaken > MOST_OVERTAKEN and self._held_back is None:
            self._held_back, self._held_since_ms = source, self._now_ms()
            self._logs.upkeep.flushes.hold_back(source)
        # A flush of the source that is under way may cover all that it holds now.
        self._copy_rest(source, future)
        await self._flush(future)

    def _now_ms(self) -> float:
        return self._mover._clock.monotonic_ms()

    def _let_go(self) -> None:
        self._overtaken = 0
        if self._held_back is not None:
            self._logs.upkeep.flushes.let_go(self._held_back)
            self._held_back = None

    async def _store_cut(self, future: FutureLog) -> None:
        future.is_cut = False
        future.is_prepared = False
        await self._stored(self._logs.checkpoints.store_recovery_points)
        self._unflushed = 0

    async def _prepare(self, source: PartitionLog, future: FutureLog) -> None:
        """Store what a start needs that finds the future log in its place. Raises DiskError."""
        log_ = future.log
        await self._flush(future)
        moves = await self._executor.submit(read_moves, self._disk, source.directory)
        await self._executor.submit(copy_topic_settings, self._disk, source.directory, log_.directory)
        await self._executor.submit(write_moves, self._disk, log_.directory, moves + 1)
        self._mover.on_point("marked")
        await self._store_checkpoints(future.log_dir)
        future.is_prepared = True
        self._mover.on_point("prepared")

    async def _store_checkpoints(self, log_dir: LogDirectory) -> None:
        """Store all checkpoints, one in a slice: with many partitions each takes it tens of milliseconds."""
        for name in OFFSET_FILES:
            await self._mover._slices.pause()
            await self._stored(partial(self._logs.checkpoints.store, log_dir, name))

    async def _stored(self, store: Callable[[Callable[[], None]], None]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        store(partial(settle, done, None))
        await done

    # -- the change

    async def _put_in_place(self, source: PartitionLog, future: FutureLog) -> None:
        """Have the future log serve the partition, then remove the former one. Raises DiskError before that."""
        former = self._logs.placement.put_in_place(future)
        self._replicas.replace_log(*self._key, future.log)
        mover = self._mover
        mover.moved += 1
        mover.on_point("renamed")
        log.info("%s-%d was moved from %s to %s", *self._key, former.log_dir.path, future.log_dir.path)
        try:
            moves = await self._executor.submit(read_moves, self._disk, source.directory)
            await self._executor.submit(self._disk.fsync_dir, future.log_dir.path)
            mover.on_point("synced")
            self._logs.placement.retire(former)
            mover.on_point("retired")
            await self._executor.submit(self._disk.fsync_dir, former.log_dir.path)
            for log_dir in (future.log_dir, former.log_dir):
                await self._store_checkpoints(log_dir)
            mover.on_point("stored")
            # An older copy may be in a log directory that has failed.
            if not moves and not self._logs.failed_log_dirs:
                await self._executor.submit(forget_moves, self._disk, future.log.directory)
            mover.on_point("done")
        except (DiskError, NoThread) as error:
            log.warning("what is left of %s is removed at the next start: %s", source.directory, error)
            self._logs.directories.probe_soon(former.log_dir)


def _into(found: list[LogRead | ReadRefusal], read: Callable[[], LogRead | ReadRefusal]) -> None:
    found.append(read())
