"""The runtime of the group coordinator: the shell around the machines of `ottla.groups`.

It hosts one shard for each partition of the offsets topic that this broker leads. For every step of a machine it
appends the batches, replays their records at once, and sends the replies when everything the shard has appended is
committed. One timer is armed for the earliest deadline. Everything happens on the event loop, so work on one group is
serial. Source: Apache Kafka 3.9, `CoordinatorRuntime`, `GroupCoordinator`; DESIGN 3.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.broker.group_clock import SteadyClock
from ottla.broker.group_evidence import EvidenceWriter, Topics
from ottla.broker.group_loading import load_shard
from ottla.broker.group_log import Appended, CoordinatorLog
from ottla.env.disk import DiskError
from ottla.groups.coordinator import STATE_OF, CoordinatorState
from ottla.groups.events import (
    AppendFailed,
    Batch,
    ExpireOffsets,
    GroupEvent,
    GroupRequest,
    PartitionsChanged,
    Reply,
    Step,
    TopicsDeleted,
)
from ottla.groups.failures import failed_result
from ottla.groups.group import GroupLimits
from ottla.groups.machine import GroupMachine
from ottla.groups.offsets import OffsetAndMetadata
from ottla.groups.records import encode_record, partition_of
from ottla.groups.shard import GroupShard, refused, refused_while_loading
from ottla.groups.states import GroupState
from ottla.records.compression import Compression
from ottla.records.record import Record, encode_batch
from ottla.wire.errors import ErrorCode, WireError

if TYPE_CHECKING:
    from ottla.cluster.image import ClusterImage
    from ottla.config.broker import BrokerConfig
    from ottla.env.clock import Clock
    from ottla.env.randomness import Randomness

log = logging.getLogger("ottla.groups")

OFFSETS_TOPIC = "__consumer_offsets"

PARTITION_CACHE_LIMIT = 100_000
"""Group ids whose partition is remembered."""
GROUPS_PER_SLICE = 200
"""Groups worked on, where all are, before the loop gets its turn."""
EARLIEST_TIMER_MS = 1
LOAD_RETRY_S = 2.0
"""After this long a partition that the disk did not give is read again."""
MS_PER_MINUTE = 60_000

COORDINATOR_OF_GROUP = "coordinator of group"
COORDINATOR_OF_PARTITION = "coordinator of partition"
"""How log events about states begin; what it was and what it is now stand at their end, as in `ready -> preparing`."""

CommittedOffset = tuple[str, int, OffsetAndMetadata | None, ErrorCode]
"""Topic, partition, what is committed (None for nothing), and UNSTABLE_OFFSET_COMMIT where that may change."""


@dataclass(slots=True)
class GroupMetrics:
    """Plain counters, read when they are scraped."""

    requests: int = 0
    heartbeats: int = 0
    rebalances: int = 0
    append_failures: int = 0
    expired_offsets: int = 0
    loaded_records: int = 0
    load_ms_max: int = 0
    timer_runs: int = 0


class GroupRuntime:
    """Groups of this broker. Handlers call `submit`, `heartbeat` and the reading methods."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        coordinator_log: CoordinatorLog,
        topics: Topics,
        randomness: Randomness,
        broker_id: int,
    ) -> None:
        self.metrics = GroupMetrics()
        self._log = coordinator_log
        self._topics = topics
        self._randomness = randomness
        self._broker_id = broker_id
        self._clock = SteadyClock(clock)
        self._limits = GroupLimits(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            max_size=config.get_int("group.max.size"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        )
        self._retention_ms = config.get_int("offsets.retention.minutes") * MS_PER_MINUTE
        self._expiry_interval_ms = config.get_long("offsets.retention.check.interval.ms")
        self._commit_timeout_ms = config.get_int("offsets.commit.timeout.ms")
        self._configured_partitions = config.get_int("offsets.topic.num.partitions")
        self._compression = Compression(config.get_int("offsets.topic.compression.codec"))
        self._evidence = EvidenceWriter(coordinator_log, topics, config.get_boolean("ottla.rebalance.evidence.enable"))
        self._shards: dict[int, GroupShard] = {}
        self._partition_count = 0
        self._partition_cache: dict[str, int] = {}
        self._partition_counts: dict[str, int] = {}
        #: By partition: the offset after the last record appended, and how far the partition is committed.
        self._appended: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        #: What was last logged of coordinators that are not ready, by group.
        self._told: dict[str, CoordinatorState] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._active = False

    # Life

    def start(self) -> None:
        """Load the partitions that this broker leads (in the background) and begin to answer."""
        self._active = True
        self.image_changed(self._topics.image)
        self._arm_expiry()

    async def stop(self) -> None:
        """Stop answering; nobody who waits is told, since their connections go too."""
        self._active = False
        for timer in (self._timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        self._evidence.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._shards.clear()

    def image_changed(self, image: ClusterImage) -> None:
        """Topics changed. The broker calls this once the logs of new partitions are there."""
        if not self._active:
            return
        topic = image.topics.get(OFFSETS_TOPIC)
        partitions = topic.partitions if topic is not None else ()
        if len(partitions) != self._partition_count:
            self._partition_count = len(partitions)
            self._partition_cache.clear()
        led = {index for index, partition in enumerate(partitions) if partition.leader == self._broker_id}
        for partition in self._shards.keys() - led:
            self._resign(partition)
        for partition in sorted(led - self._shards.keys()):
            self._elect(partition)
        self._tell_partition_counts({name: len(known.partitions) for name, known in image.topics.items()})

    @property
    def loading(self) -> bool:
        """Whether some partition is still being read."""
        return any(shard.loading for shard in self._shards.values())

    async def ensure_offsets_topic(self) -> ErrorCode:
        """Make the offsets topic unless it is there; COORDINATOR_NOT_AVAILABLE where that cannot be."""
        if OFFSETS_TOPIC in self._topics.image.topics:
            return ErrorCode.NONE
        refusal = await self._topics.ensure_topic(OFFSETS_TOPIC)
        if refusal is None:
            return ErrorCode.NONE
        log.warning("the topic %s cannot be made: %s", OFFSETS_TOPIC, refusal.message)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    @property
    def has_offsets_topic(self) -> bool:
        """Whether the offsets topic is there."""
        return self._partition_count > 0

    # Requests

    def now_ms(self) -> int:
        """The coordinator's time, for what goes into events."""
        return self._clock.now_ms()

    def new_id(self) -> str:
        """A random id for a new member."""
        return str(self._randomness.uuid())

    def submit(self, request: GroupRequest, allow_empty_group_id: bool = False) -> None:
        """Take in a request; its `token`, a `Callable[[Result], None]`, is called once with the answer."""
        self.metrics.requests += 1
        shard = self._shard(request.group_id, allow_empty_group_id)
        if isinstance(shard, ErrorCode):
            loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            result = refused_while_loading(request) if loading else refused(request, shard)
            _deliver([Reply(request.token, result)])
            return
        self._run(shard, request)

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """The answer to a Heartbeat."""
        self.metrics.heartbeats += 1
        shard = self._shard(group_id, False)
        if isinstance(shard, ErrorCode):
            return ErrorCode.NONE if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else shard
        machine = shard.machines.get(group_id)
        if machine is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return machine.heartbeat(member_id, group_instance_id, generation_id, self._clock.now_ms())

    def committed(
        self, group_id: str, wanted: Iterable[tuple[str, int]] | None, require_stable: bool
    ) -> Sequence[CommittedOffset] | ErrorCode:
        """Committed offsets of the partitions `wanted`, of all partitions where it is None."""
        shard = self._shard(group_id, True)
        if isinstance(shard, ErrorCode):
            return shard
        machine = shard.machines.get(group_id)
        if machine is None:
            return [(topic, index, None, ErrorCode.NONE) for topic, index in wanted or ()]
        offsets = machine.offsets
        if wanted is None:
            wanted = [key for key, _ in offsets.items()]
        found: list[CommittedOffset] = []
        for topic, index in wanted:
            if require_stable and offsets.is_unstable(topic, index):
                found.append((topic, index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                found.append((topic, index, offsets.get(topic, index), ErrorCode.NONE))
        return found

    def describe(self, group_id: str) -> GroupMachine | ErrorCode | None:
        """The group, to be read only; None where there is none."""
        shard = self._shard(group_id, True)
        return shard if isinstance(shard, ErrorCode) else shard.machines.get(group_id)

    def groups(self) -> tuple[ErrorCode, list[GroupMachine]]:
        """All groups of this broker, to be read only, with an error while some are still being loaded."""
        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.loading else ErrorCode.NONE
        return error, [m for shard in self._shards.values() if not shard.loading for m in shard.machines.values()]

    def coordinator_state(self, group_id: str) -> CoordinatorState:
        """How far this broker is as the coordinator of a group."""
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None or not self._active:
            return CoordinatorState.DOWN
        if shard.loading:
            return CoordinatorState.CATCHING_UP
        machine = shard.machines.get(group_id)
        return CoordinatorState.READY if machine is None else STATE_OF[machine.state]

    def coordinator_states(self) -> dict[CoordinatorState, int]:
        """How many coordinators are in each state: groups; partitions where it is not known yet which groups they hold.

        That is so of partitions of the offsets topic that are led elsewhere, or still being read.
        """
        counts = dict.fromkeys(CoordinatorState, 0)
        counts[CoordinatorState.DOWN] = self._partition_count - len(self._shards)
        for shard in self._shards.values():
            if shard.loading:
                counts[CoordinatorState.CATCHING_UP] += 1
                continue
            for machine in shard.machines.values():
                counts[STATE_OF[machine.state]] += 1
        return counts

    def partition_of(self, group_id: str) -> int:
        """The partition of the offsets topic that holds the group."""
        partition = self._partition_cache.get(group_id)
        if partition is None:
            if len(self._partition_cache) >= PARTITION_CACHE_LIMIT:
                self._partition_cache.clear()
            partition = partition_of(group_id, self._partition_count or self._configured_partitions)
            self._partition_cache[group_id] = partition
        return partition

    def _shard(self, group_id: str, allow_empty_group_id: bool) -> GroupShard | ErrorCode:
        """The shard that answers for a group, or why none does."""
        if not group_id and not allow_empty_group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if shard.loading else shard

    # Steps

    def _run(self, shard: GroupShard, event: GroupEvent) -> None:
        self._carry_out(shard, shard.handle(event, self._clock.now_ms()))

    def _carry_out(self, shard: GroupShard, step: Step) -> None:
        """Append, replay, settle; then answer, at once or when all is committed."""
        for batch in step.batches:
            error = self._append(shard, batch)
            if error is not None:
                self.metrics.append_failures += 1
                log.warning("group %s: append to %s failed: %s", step.group_id, OFFSETS_TOPIC, error.message)
                failure = AppendFailed(step.group_id, step.id, error)
                self._carry_out(shard, shard.handle(failure, self._clock.now_ms()))
                return
        machine = shard.machines.get(step.group_id)
        shard.settle(step.group_id)
        self._arm(shard)
        if machine is not None and machine.entered:
            self._tell_states(machine)
        if step.notes:
            self.metrics.rebalances += len(step.notes)
            self._evidence.add(step.notes)
        if step.replies:
            self._reply(shard, step)

    def _tell_states(self, machine: GroupMachine) -> None:
        """Log what the coordinator of a group went through, once the step that led there is in the log."""
        before = self._told.get(machine.group_id, CoordinatorState.READY)
        for state in machine.entered:
            now = STATE_OF[state]
            if now is not before:
                log.debug("%s %s: %s -> %s", COORDINATOR_OF_GROUP, machine.group_id, before.label, now.label)
            before = now
        machine.entered.clear()
        if before is CoordinatorState.READY:
            self._told.pop(machine.group_id, None)
        else:
            self._told[machine.group_id] = before

    def _append(self, shard: GroupShard, batch: Batch) -> ErrorCode | None:
        now_ms = self._clock.now_ms()
        try:
            records = [Record(0, now_ms, *encode_record(record)) for record in batch.records]
        except (WireError, struct.error):
            log.exception("a record of %s cannot be written", OFFSETS_TOPIC)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        encoded = encode_batch(
            records,
            compression=self._compression,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            is_transactional=batch.producer_id >= 0,
        )
        appended = self._log.append(OFFSETS_TOPIC, batch.partition, bytearray(encoded))
        if not isinstance(appended, Appended):
            return appended
        for index, record in enumerate(batch.records):
            shard.replay(record, appended.first_offset + index, batch.producer_id)
        self._appended[shard.partition] = appended.first_offset + len(batch.records)
        self._committed[shard.partition] = appended.high_watermark
        shard.advance(appended.high_watermark)
        return None

    def _reply(self, shard: GroupShard, step: Step) -> None:
        partition = shard.partition
        end = self._appended.get(partition, 0)
        if self._committed.get(partition, 0) >= end:
            _deliver(step.replies)
            return
        waiting = _WaitingReplies(step.replies)

        def committed(error: ErrorCode) -> None:
            if self._shards.get(partition) is shard:
                self._committed[partition] = self._log.high_watermark(OFFSETS_TOPIC, partition)
                shard.advance(self._committed[partition])
            waiting.done(error)

        seconds = self._commit_timeout_ms / 1000
        waiting.timer = asyncio.get_running_loop().call_later(seconds, waiting.done, ErrorCode.REQUEST_TIMED_OUT)
        self._log.when_committed(OFFSETS_TOPIC, partition, end - 1, committed)

    # Timers

    def _arm(self, shard: GroupShard) -> None:
        """Make sure that the timer runs by the shard's next deadline."""
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
        for shard in list(self._shards.values()):
            if shard.loading:
                continue
            while (step := shard.expire(now_ms)) is not None:
                self._carry_out(shard, step)
            self._arm(shard)

    def _arm_expiry(self) -> None:
        seconds = self._expiry_interval_ms / 1000
        self._expiry_timer = asyncio.get_running_loop().call_later(seconds, self._start_expiry)

    def _start_expiry(self) -> None:
        self._clock.correct()
        self._spawn(self._expire_offsets())
        self._arm_expiry()

    async def _expire_offsets(self) -> None:
        """`offsets.retention.minutes`: look at every group, a slice at a time."""
        before = self._offset_count()
        looked_at = 0
        for shard in list(self._shards.values()):
            for group_id in list(shard.machines):
                if not shard.loading and self._shards.get(shard.partition) is shard:
                    self._run(shard, ExpireOffsets(group_id, self._retention_ms))
                looked_at += 1
                if looked_at % GROUPS_PER_SLICE == 0:
                    await asyncio.sleep(0)
        self.metrics.expired_offsets += max(0, before - self._offset_count())

    def _offset_count(self) -> int:
        return sum(len(machine.offsets) for shard in self._shards.values() for machine in shard.machines.values())

    # Partitions

    def _elect(self, partition: int) -> None:
        """Lead a partition from now on, or begin anew to read it."""
        before = CoordinatorState.CATCHING_UP if partition in self._shards else CoordinatorState.DOWN
        shard = self._shards[partition] = GroupShard(partition, self._limits)
        if self._log.is_empty(OFFSETS_TOPIC, partition):
            shard.loading = False
            _tell_partition(partition, before, CoordinatorState.READY)
        else:
            _tell_partition(partition, before, CoordinatorState.CATCHING_UP)
            self._spawn(self._load(shard))

    def _resign(self, partition: int) -> None:
        """Lead it no longer: its members are sent to look for the coordinator again."""
        shard = self._shards.pop(partition)
        before = CoordinatorState.CATCHING_UP if shard.loading else CoordinatorState.READY
        _tell_partition(partition, before, CoordinatorState.DOWN)
        for step in shard.unload(self._clock.now_ms()):
            self._told.pop(step.group_id, None)
            self._evidence.add(step.notes)
            _deliver(step.replies)
        self._appended.pop(partition, None)
        self._committed.pop(partition, None)

    async def _load(self, shard: GroupShard) -> None:
        begun_ms = self._clock.now_ms()
        try:
            records = await load_shard(shard, self._log, OFFSETS_TOPIC)
        except DiskError as error:
            # Answers from half of the records would send consumers back: none until the disk gives all of them.
            log.error("%s-%d cannot be read, it is tried again: %s", OFFSETS_TOPIC, shard.partition, error)
            await asyncio.sleep(LOAD_RETRY_S)
            if self._shards.get(shard.partition) is shard:
                self._elect(shard.partition)
            return
        for number, step in enumerate(shard.loaded(self._clock.now_ms())):
            if number % GROUPS_PER_SLICE == 0:
                await asyncio.sleep(0)
            if self._shards.get(shard.partition) is not shard:
                return
            self._carry_out(shard, step)
        _tell_partition(shard.partition, CoordinatorState.CATCHING_UP, CoordinatorState.READY)
        taken_ms = self._clock.now_ms() - begun_ms
        self.metrics.loaded_records += records
        self.metrics.load_ms_max = max(self.metrics.load_ms_max, taken_ms)
        log.info(
            "loaded %d groups from %d records of %s-%d in %d ms",
            len(shard.machines),
            records,
            OFFSETS_TOPIC,
            shard.partition,
            taken_ms,
        )

    def _tell_partition_counts(self, counts: dict[str, int]) -> None:
        """Let the groups know which topics changed: it explains their rebalances, and ends offsets of dead topics."""
        before, self._partition_counts = self._partition_counts, counts
        if not before:
            return
        changed = {
            name: (before.get(name, 0), counts.get(name, 0))
            for name in before.keys() | counts.keys()
            if before.get(name, 0) != counts.get(name, 0)
        }
        if not changed:
            return
        gone = frozenset(name for name, (_, now) in changed.items() if now == 0)
        for shard in self._shards.values():
            for group_id, machine in list(shard.machines.items()):
                if shard.loading:
                    continue
                if machine.state is GroupState.STABLE:
                    self._run(shard, PartitionsChanged(group_id, changed))
                if gone:
                    self._run(shard, TopicsDeleted(group_id, gone))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the group coordinator failed in the background", exc_info=error)


class _WaitingReplies:
    """Replies that wait for their records to be committed, or for the time that this may take."""

    __slots__ = ("_replies", "timer")

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._replies: Sequence[Reply] = replies
        self.timer: asyncio.TimerHandle | None = None

    def done(self, error: ErrorCode) -> None:
        """Answer; only the first call counts."""
        replies, self._replies = self._replies, ()
        if self.timer is not None:
            self.timer.cancel()
        if error is not ErrorCode.NONE:
            replies = [Reply(reply.token, failed_result(reply.result, error)) for reply in replies]
        _deliver(replies)


def _tell_partition(partition: int, before: CoordinatorState, now: CoordinatorState) -> None:
    """Log what became of a partition's coordinator; where there is nothing to catch up with, that is no news."""
    if now is not before:
        is_news = (before, now) != (CoordinatorState.DOWN, CoordinatorState.READY)
        level = logging.INFO if is_news else logging.DEBUG
        names = (before.label, now.label)
        log.log(level, "%s %s-%d: %s -> %s", COORDINATOR_OF_PARTITION, OFFSETS_TOPIC, partition, *names)


def _deliver(replies: Sequence[Reply]) -> None:
    for reply in replies:
        answer = reply.token
        assert callable(answer)
        answer(reply.result)
