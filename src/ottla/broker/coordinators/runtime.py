"""The runtime of coordinators: the shell around the state machines whose durable state is an internal topic.

It hosts one shard for each partition of its kind's topic that this broker leads: `load` and `unload` follow this
broker's roles. It appends the batches of each step, replays their records at once, and delivers the step's replies and
sends its requests when everything that the shard has appended is committed. Markers of transactions that other
coordinators end take the same way into the log and the shard (`append_marker`). One timer is armed for the earliest
deadline. Everything happens on the event loop, so work on one shard is serial. Source: Apache Kafka 3.9,
`CoordinatorRuntime`.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic

from ottla.broker.coordinators.coordinator_log import Appended, CoordinatorLog
from ottla.broker.coordinators.loading import load_shard
from ottla.broker.coordinators.shard import (
    BrokerRequests,
    CoordinatorBatch,
    CoordinatorKind,
    CoordinatorReply,
    RequestingShard,
    Shard,
    ShardState,
    Step,
)
from ottla.env.clock import Clock
from ottla.env.disk import DiskError
from ottla.net.reports import LimitedReports, call_later
from ottla.records.compression import Compression
from ottla.records.control import TransactionMarker, end_transaction_batch
from ottla.records.record import Record, encode_batch
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode, WireError

STEPS_PER_SLICE = 200
"""Steps carried out in one slice, if all of a shard's state machines have one."""
EARLIEST_TIMER_MS = 1
LOAD_RETRY_S = 2.0
"""Pause before a partition is loaded again after a disk error."""


@dataclass(slots=True)
class CoordinatorMetrics:
    """Plain counters, read at each scrape."""

    append_failures: int = 0
    loaded_records: int = 0
    load_ms_max: int = 0
    timer_runs: int = 0


class _Hosted(Generic[Shard]):
    """A shard, and the progress of its log."""

    __slots__ = ("appended", "committed", "is_watched", "leader_epoch", "shard", "waiting")

    def __init__(self, shard: Shard, leader_epoch: int) -> None:
        self.shard = shard
        self.leader_epoch = leader_epoch
        #: The offset after the last appended record, and the high watermark.
        self.appended = 0
        self.committed = 0
        #: Steps and markers whose records are not committed yet, in the order of the log.
        self.waiting: deque[_Uncommitted] = deque()
        #: Whether the log calls back when the first of these is committed.
        self.is_watched = False


class CoordinatorRuntime(Generic[Shard, Step]):
    """The shards of one kind of coordinator.

    `load` and `unload` set which partitions this broker leads; `carry_out` carries out the steps of a shard in
    `shards`. `commit_timeout_ms` is how long replies wait for the high watermark; `requests` is needed by kinds that
    send requests to other brokers. Call `stop` once.
    """

    def __init__(
        self,
        kind: CoordinatorKind[Shard, Step],
        coordinator_log: CoordinatorLog,
        clock: SteadyClock,
        compression: Compression,
        commit_timeout_ms: int,
        requests: BrokerRequests | None = None,
    ) -> None:
        self.metrics = CoordinatorMetrics()
        #: By partition, including those still loading.
        self.shards: dict[int, Shard] = {}
        self._kind = kind
        self._log = coordinator_log
        self._clock = clock
        self._compression = compression
        self._commit_timeout_s = commit_timeout_ms / 1000
        self._requests = requests
        self._hosted: dict[int, _Hosted[Shard]] = {}
        #: The newest leader epoch seen of each partition, including partitions that are led elsewhere now.
        self._epochs: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._report = partial(LimitedReports(kind.log.warning, call_later), kind.topic)

    @property
    def loading(self) -> bool:
        """Whether any partition is still being loaded."""
        return any(shard.loading for shard in self.shards.values())

    def is_hosted(self, shard: Shard) -> bool:
        """Whether the shard still serves its partition."""
        return self.shards.get(shard.partition) is shard

    async def stop(self) -> None:
        """Stop; pending requests get no response, since their connections are closed, too."""
        if self._timer is not None:
            self._timer.cancel()
        for hosted in self._hosted.values():
            for waiting in hosted.waiting:
                waiting.drop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.shards.clear()
        self._hosted.clear()

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run work in the background until `stop`; an exception is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._kind.log.error("the coordinator of %s failed in the background", self._kind.topic, exc_info=error)

    # Partitions

    def load(self, partition: int, leader_epoch: int) -> None:
        """Become coordinator of a partition in `leader_epoch`: replay its log in the background, then serve it.

        A partition that is already hosted continues in the newer epoch, as in Apache Kafka: no other broker has written
        to its log meanwhile. An epoch older than the newest seen is ignored.
        """
        if leader_epoch < self._epochs.get(partition, leader_epoch):
            return
        self._epochs[partition] = leader_epoch
        hosted = self._hosted.get(partition)
        if hosted is None:
            self._host(partition, leader_epoch, ShardState.ABSENT)
        else:
            is_new_epoch = leader_epoch > hosted.leader_epoch
            hosted.leader_epoch = leader_epoch
            self._watch(hosted)
            if is_new_epoch:
                self.spawn(self._carry_out_all(hosted.shard, hosted.shard.lead(leader_epoch, self._clock.now_ms())))

    def unload(self, partition: int, leader_epoch: int | None) -> None:
        """Resign as coordinator of a partition: fail pending requests with NOT_COORDINATOR.

        `leader_epoch` is that of the new leader; an epoch older than the newest seen is ignored. None is for a replica
        that is removed from this broker, regardless of the epoch.
        """
        if leader_epoch is None:
            self._epochs.pop(partition, None)
        elif leader_epoch < self._epochs.get(partition, leader_epoch):
            return
        else:
            self._epochs[partition] = leader_epoch
        hosted = self._hosted.pop(partition, None)
        if hosted is None:
            return
        shard = self.shards.pop(partition)
        self._kind.state_changed(partition, _state_of(shard), ShardState.ABSENT)
        while hosted.waiting:
            hosted.waiting.popleft().answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        steps = shard.unload(self._clock.now_ms())
        for step in islice(steps, STEPS_PER_SLICE):
            self._unloaded(step)
        self.spawn(self._unload_rest(steps))

    def _unloaded(self, step: Step) -> None:
        self._kind.unloaded(step)
        _deliver(step.replies)

    async def _unload_rest(self, steps: Iterator[Step]) -> None:
        for number, step in enumerate(steps, 1):
            self._unloaded(step)
            if number % STEPS_PER_SLICE == 0:
                await asyncio.sleep(0)

    def _host(self, partition: int, leader_epoch: int, before: ShardState) -> None:
        shard = self.shards[partition] = self._kind.new_shard(partition)
        self._hosted[partition] = _Hosted(shard, leader_epoch)
        shard.lead(leader_epoch, self._clock.now_ms())
        if self._log.is_empty(self._kind.topic, partition):
            shard.loading = False
            self._kind.state_changed(partition, before, ShardState.ACTIVE)
        else:
            self._kind.state_changed(partition, before, ShardState.LOADING)
            self.spawn(self._load(shard))

    async def _load(self, shard: Shard) -> None:
        kind, partition = self._kind, shard.partition
        begun_ms = self._clock.now_ms()
        try:
            records = await load_shard(shard, kind, self._log, lambda: self.is_hosted(shard))
        except DiskError as error:
            if not self.is_hosted(shard):
                return
            # Results from part of the records would be wrong: serve nothing until the disk returns all of them.
            kind.log.error("%s-%d cannot be read, it is tried again: %s", kind.topic, partition, error)
            await asyncio.sleep(LOAD_RETRY_S)
            if self.is_hosted(shard):
                self._host(partition, self._hosted[partition].leader_epoch, ShardState.LOADING)
            return
        if not self.is_hosted(shard):
            return
        # A decision that is not committed yet may still be lost with this leader: no marker may precede it.
        hosted = self._hosted[partition]
        hosted.appended = self._log.end_offset(kind.topic, partition)
        hosted.committed = self._log.high_watermark(kind.topic, partition)
        await self._carry_out_all(shard, shard.loaded(self._clock.now_ms()))
        if not self.is_hosted(shard):
            return
        kind.state_changed(partition, ShardState.LOADING, ShardState.ACTIVE)
        taken_ms = self._clock.now_ms() - begun_ms
        self.metrics.loaded_records += records
        self.metrics.load_ms_max = max(self.metrics.load_ms_max, taken_ms)
        kind.log.info("loaded %d records of %s-%d in %d ms", records, kind.topic, partition, taken_ms)

    # Steps

    async def _carry_out_all(self, shard: Shard, steps: Iterator[Step]) -> None:
        """Carry out steps in slices, as long as the shard is hosted."""
        for number, step in enumerate(steps):
            if number and number % STEPS_PER_SLICE == 0:
                await asyncio.sleep(0)
            if not self.is_hosted(shard):
                return
            self.carry_out(shard, step)

    def carry_out(self, shard: Shard, step: Step) -> None:
        """Append, replay, settle; then deliver replies and send requests, at once or when all is committed."""
        hosted = self._hosted.get(shard.partition)
        if hosted is None or hosted.shard is not shard:
            # A failed append may have removed the partition before its step is carried out.
            self._fail(step.replies, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        is_awaited = bool(step.replies or step.requests)
        for batch in step.batches:
            error = self._append(hosted, batch, is_awaited)
            if error is not None:
                self.carry_out(shard, shard.append_failed(step, error, self._clock.now_ms()))
                return
        self._kind.carried_out(shard, step)
        shard.settle(step)
        self._arm(shard)
        if hosted.committed >= hosted.appended:
            _deliver(step.replies)
            self._send(shard, step.requests)
            return
        if is_awaited:
            answer = partial(self._answer, step.replies) if step.replies else None
            self._wait(hosted, answer, self._commit_timeout_s, step.requests)
        self._watch(hosted)

    def append_marker(
        self, partition: int, marker: TransactionMarker, timeout_ms: int, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append a marker that a transaction coordinator sends for this partition, and replay it.

        `done` is called once: with NONE when the marker is committed, else with the log's error. While the partition is
        not served here, or is being loaded, that is NOT_LEADER_OR_FOLLOWER, at which the coordinator sends it again.
        """
        hosted = self._hosted.get(partition)
        if hosted is None or hosted.shard.loading:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        error = self._append(hosted, marker, is_awaited=True)
        if error is not None:
            done(error)
        elif hosted.committed >= hosted.appended:
            done(ErrorCode.NONE)
        else:
            self._wait(hosted, done, timeout_ms / 1000)
            self._watch(hosted)

    def _append(
        self, hosted: _Hosted[Shard], batch: CoordinatorBatch | TransactionMarker, is_awaited: bool
    ) -> ErrorCode | None:
        """Append a batch or a marker, and replay it; return the error of a failed append, which is logged."""
        shard = hosted.shard
        appended = self._write(hosted, batch, is_awaited)
        if isinstance(appended, ErrorCode):
            self.metrics.append_failures += 1
            self._report(f"an append to {self._kind.topic}-{shard.partition} failed: {appended.message}")
            return appended
        if isinstance(batch, TransactionMarker):
            shard.replay_marker(batch, appended.first_offset)
            hosted.appended = appended.first_offset + 1
        else:
            for index, record in enumerate(batch.records):
                shard.replay(record, appended.first_offset + index, batch.producer_id)
            hosted.appended = appended.first_offset + len(batch.records)
        hosted.committed = appended.high_watermark
        shard.committed(appended.high_watermark)
        return None

    def _write(
        self, hosted: _Hosted[Shard], batch: CoordinatorBatch | TransactionMarker, is_awaited: bool
    ) -> Appended | ErrorCode:
        encoded = self._encode(batch)
        if isinstance(encoded, ErrorCode):
            return encoded
        # What no request waits for need not be on other brokers, as in Apache Kafka: the next coordinator writes it
        # again.
        return self._log.append(
            self._kind.topic,
            hosted.shard.partition,
            bytearray(encoded),
            hosted.leader_epoch,
            needs_replicas=is_awaited,
        )

    def _encode(self, batch: CoordinatorBatch | TransactionMarker) -> bytes | ErrorCode:
        now_ms = self._clock.now_ms()
        if isinstance(batch, TransactionMarker):
            return end_transaction_batch(batch, now_ms)
        try:
            records = [Record(0, now_ms, *self._kind.encode(record)) for record in batch.records]
        except (WireError, struct.error):
            self._kind.log.exception("a record of %s cannot be written", self._kind.topic)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return encode_batch(
            records,
            compression=self._compression,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            is_transactional=batch.producer_id >= 0,
        )

    def _wait(
        self,
        hosted: _Hosted[Shard],
        answer: Callable[[ErrorCode], None] | None,
        timeout_s: float,
        requests: Sequence[BrokerRequest] = (),
    ) -> None:
        """Keep an answer and requests until all is committed; answer with an error after the timeout."""
        waiting = _Uncommitted(hosted.appended, answer, requests)
        hosted.waiting.append(waiting)
        if answer is not None:
            loop = asyncio.get_running_loop()
            waiting.timer = loop.call_later(timeout_s, self._timed_out, hosted, waiting)

    def _timed_out(self, hosted: _Hosted[Shard], waiting: _Uncommitted) -> None:
        """Answer with an error; nothing is undone, since the records may still be committed."""
        if not waiting.requests:
            hosted.waiting.remove(waiting)
        waiting.answer(ErrorCode.REQUEST_TIMED_OUT)

    def _watch(self, hosted: _Hosted[Shard]) -> None:
        """Have the log call back when the first that waits is committed, or, if none does, all that was appended."""
        if hosted.is_watched or hosted.committed >= hosted.appended:
            return
        hosted.is_watched = True
        end = hosted.waiting[0].end if hosted.waiting else hosted.appended
        self._log.when_committed(
            self._kind.topic, hosted.shard.partition, end - 1, partial(self._high_watermark_moved, hosted)
        )

    def _high_watermark_moved(self, hosted: _Hosted[Shard], error: ErrorCode) -> None:
        """Answer what is committed now. With an error this broker's role has ended: the answers carry it.

        The requests of steps stay for the newer epoch, should `load` begin one.
        """
        hosted.is_watched = False
        shard = hosted.shard
        if not self.is_hosted(shard):
            return
        if error is not ErrorCode.NONE:
            failed, hosted.waiting = hosted.waiting, deque(each for each in hosted.waiting if each.requests)
            for waiting in failed:
                waiting.answer(error)
            return
        hosted.committed = self._log.high_watermark(self._kind.topic, shard.partition)
        shard.committed(hosted.committed)
        while hosted.waiting and hosted.waiting[0].end <= hosted.committed:
            waiting = hosted.waiting.popleft()
            waiting.answer(ErrorCode.NONE)
            self._send(shard, waiting.requests)
        self._watch(hosted)

    def _send(self, shard: Shard, requests: Sequence[BrokerRequest]) -> None:
        for request in requests:
            assert isinstance(shard, RequestingShard)
            assert self._requests is not None
            self._requests.send(request, lambda outcome: self._request_done(shard, outcome))

    def _answer(self, replies: Sequence[CoordinatorReply], error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            _deliver(replies)
        else:
            self._fail(replies, error)

    def _fail(self, replies: Sequence[CoordinatorReply], error: ErrorCode) -> None:
        for reply in replies:
            answer = reply.token
            assert callable(answer)
            answer(self._kind.failed_result(reply.result, error))

    def _request_done(self, shard: Any, outcome: BrokerOutcome) -> None:
        if self.is_hosted(shard):
            self.carry_out(shard, shard.request_done(outcome, self._clock.now_ms()))

    # Timer

    def _arm(self, shard: Shard) -> None:
        """Make sure that the timer fires by the shard's next deadline."""
        at_ms = shard.next_deadline_ms()
        if at_ms is None or (self._timer is not None and self._timer_at_ms <= at_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = max(at_ms - self._clock.now_ms(), EARLIEST_TIMER_MS)
        self._timer_at_ms = at_ms
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self.metrics.timer_runs += 1
        now_ms = self._clock.now_ms()
        for shard in list(self.shards.values()):
            if shard.loading:
                continue
            while (step := shard.expire(now_ms)) is not None:
                self.carry_out(shard, step)
            self._arm(shard)


class _Uncommitted:
    """The answer and the requests of a step or marker, which wait until all records below `end` are committed."""

    __slots__ = ("_answer", "end", "requests", "timer")

    def __init__(self, end: int, answer: Callable[[ErrorCode], None] | None, requests: Sequence[BrokerRequest]) -> None:
        self.end = end
        self._answer = answer
        self.requests = requests
        #: Runs while there is an answer to give.
        self.timer: asyncio.TimerHandle | None = None

    def answer(self, error: ErrorCode) -> None:
        """Give the answer, unless it was given or dropped before."""
        answer = self._answer
        self.drop()
        if answer is not None:
            answer(error)

    def drop(self) -> None:
        """Give no answer any more."""
        self._answer = None
        if self.timer is not None:
            self.timer.cancel()


def _state_of(shard: Any) -> ShardState:
    return ShardState.LOADING if shard.loading else ShardState.ACTIVE


def _deliver(replies: Sequence[CoordinatorReply]) -> None:
    for reply in replies:
        answer = reply.token
        assert callable(answer)
        answer(reply.result)


MAX_CORRECTION_MS = 500.0


class SteadyClock:
    """Wall-clock milliseconds that never jump, since session timeouts are measured with them.

    It starts at the wall clock's time and runs with the monotonic clock; `correct` follows the wall in small steps.
    """

    __slots__ = ("_clock", "_offset_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return int(self._clock.monotonic_ms() + self._offset_ms)

    def correct(self) -> None:
        """Move towards the wall clock, in a step too small to affect heartbeats."""
        drift_ms = self._clock.now_ms() - self._clock.monotonic_ms() - self._offset_ms
        self._offset_ms += max(-MAX_CORRECTION_MS, min(MAX_CORRECTION_MS, drift_ms))
