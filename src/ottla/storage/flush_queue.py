"""Queue of logs to flush, and their distribution to the disk threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final
from zlib import crc32

from ottla.env.disk import DiskError
from ottla.env.executor import Executor
from ottla.storage.flushing import FlushJob, begin_flush, end_flush, run_jobs
from ottla.storage.log import PartitionLog

#: Disk threads that flush logs at the same time, so that one is left for reads.
ROUNDS: Final = 3
#: Logs that one of them flushes before it reports; the open segments of each stay pinned meanwhile.
LOGS_PER_ROUND: Final = 16
#: Logs that are flushed in parallel when all are flushed at once.
FLUSHES_AT_ONCE: Final = 16

#: Callback at the end of every flush: the log, bytes of batches flushed, and the error if it failed.
Flushed = Callable[["PartitionLog", int, BaseException | None], None]


class FlushQueue:
    """Logs that wait for a disk thread. Used from the event loop.

    A log is flushed by one thread at a time; what is appended meanwhile shares its next flush, which begins when this
    one has ended.
    """

    def __init__(self, executor: Executor, clock_now_ms: Callable[[], int], on_flushed: Flushed) -> None:
        self._executor = executor
        self._now_ms = clock_now_ms
        self._on_flushed = on_flushed
        self._queue: deque[PartitionLog] = deque()
        #: The logs in the queue, those being flushed, and those to be flushed again after that.
        self._queued: set[PartitionLog] = set()
        self._flushing: set[PartitionLog] = set()
        self._again: set[PartitionLog] = set()
        #: Those of which no flush is begun for now.
        self._held_back: set[PartitionLog] = set()
        self._rounds = 0
        self._starting = False

    def add(self, logs: Iterable[PartitionLog]) -> None:
        """Flush these logs as soon as possible."""
        for log in logs:
            if log in self._flushing:
                self._again.add(log)
            else:
                self._enqueue(log)
        self._start()

    def hold_back(self, log: PartitionLog) -> None:
        """Begin no flush of this log until `let_go`."""
        self._held_back.add(log)

    def let_go(self, log: PartitionLog) -> None:
        """Do what was asked for while the log was held back."""
        self._held_back.discard(log)
        if log in self._again and log not in self._flushing:
            self._again.discard(log)
            self.add([log])

    def _enqueue(self, log: PartitionLog) -> None:
        if log not in self._queued:
            self._queued.add(log)
            self._queue.append(log)

    def _start(self) -> None:
        """Pass queued logs to the disk threads, in few rounds, so that a busy broker passes many logs at once."""
        # A round that completes synchronously starts no other: a long queue must not become a deep recursion.
        if self._starting:
            return
        self._starting = True
        try:
            self._start_rounds()
        finally:
            self._starting = False

    def _start_rounds(self) -> None:
        queue = self._queue
        while queue and self._rounds < ROUNDS:
            share = -(-len(queue) // (ROUNDS - self._rounds))
            jobs: list[tuple[PartitionLog, FlushJob]] = []
            while queue and len(jobs) < min(share, LOGS_PER_ROUND):
                log = queue.popleft()
                self._queued.discard(log)
                if log in self._held_back:
                    self._again.add(log)
                    continue
                job = None if log.closed else self._begin(log)
                if job is not None:
                    jobs.append((log, job))
            if jobs:
                self._run(jobs)

    def _begin(self, log: PartitionLog) -> FlushJob | None:
        try:
            return begin_flush(log)
        except DiskError as error:
            self._on_flushed(log, 0, error)
            return None

    def _run(self, jobs: list[tuple[PartitionLog, FlushJob]]) -> None:
        self._rounds += 1
        self._flushing.update(log for log, _ in jobs)

        def done(outcomes: list[Exception | None] | None, error: BaseException | None) -> None:
            self._rounds -= 1
            now_ms = self._now_ms()
            failures: Sequence[BaseException | None] = [error] * len(jobs) if outcomes is None else outcomes
            for (log, job), failure in zip(jobs, failures, strict=True):
                end_flush(log, job, failure, now_ms)
                self._flushing.discard(log)
                self._on_flushed(log, job.unflushed_bytes, failure)
                if log in self._again:
                    self._again.discard(log)
                    self._enqueue(log)  # of one that is held back it is noted again
            self._start()

        self._executor.call(partial(run_jobs, [job for _, job in jobs]), done)


class FlushTurns:
    """When logs are flushed: each once in an interval, at a moment of its own.

    All at once, every few seconds, they would hold up the appends of that moment: the system writes what was appended
    since the last time, and an append to a file may wait for it.
    """

    def __init__(self, interval_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        #: Turns up to this time were taken.
        self._taken_ms = now_ms

    def begin(self, now_ms: int) -> Callable[[PartitionLog], bool]:
        """Tells of a log whether its turn has come since the last call."""
        since_ms, self._taken_ms = self._taken_ms, now_ms
        passed_ms, interval_ms = now_ms - since_ms, self._interval_ms
        # A wall clock that was set back must not delay flushes by more than an interval.
        is_all = not 0 <= passed_ms < interval_ms
        return lambda log: is_all or (_moment(log, interval_ms) - since_ms - 1) % interval_ms < passed_ms


def _moment(log: PartitionLog, interval_ms: int) -> int:
    """When in an interval it is the log's turn: replicas on one machine differ."""
    return crc32(log.directory.encode()) % interval_ms


def flush_due(log: PartitionLog, now_ms: int) -> bool:
    """Whether the topic's own settings (`flush.messages`, `flush.ms`) or a closed segment ask for a flush now."""
    if not log.unflushed.bytes:
        return False
    if log.recovery_point < log.segment_list.active.base_offset:
        return True  # closed segments: as in Kafka they are flushed soon after a roll
    config = log.config
    return log.unflushed.records >= config.flush_messages or now_ms - log.unflushed.last_flush_ms >= config.flush_ms


def flush_now(
    logs: Collection[PartitionLog],
    executor: Executor,
    now_ms: int,
    note: Callable[[str], None],
    *,
    closing: bool = False,
) -> tuple[int, list[PartitionLog]]:
    """Flush all these logs with all disk threads, some at a time, and wait for it. `closing` completes them first.

    Returns the bytes of batches flushed, and the logs that could not be (`note` receives why).
    """
    forced = 0
    failed: list[PartitionLog] = []
    waiting = iter(list(logs))
    while some := list(islice(waiting, FLUSHES_AT_ONCE)):
        jobs = []
        for log in some:
            if log.failure is not None:
                failed.append(log)
                continue
            try:
                if closing:
                    log.prepare_close()
                job = begin_flush(log)
            except DiskError as refused:
                note(f"closing {log.name}: {refused}")
                failed.append(log)
                continue
            if job is not None:
                jobs.append((log, job))
        outcomes = executor.run_all([job.run for _, job in jobs])
        for (log, job), error in zip(jobs, outcomes, strict=True):
            end_flush(log, job, error, now_ms)
            if error is None:
                forced += job.unflushed_bytes
            else:
                note(f"closing {log.name}: {error}")
                failed.append(log)
    return forced, failed
