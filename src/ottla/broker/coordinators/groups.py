"""The group coordinator: consumer groups and committed offsets of the offsets topic's partitions led here.

Handlers call it; the group state machines are in `ottla.groups`, hosted by `CoordinatorRuntime`. Source: Apache Kafka
3.9, `GroupCoordinatorService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.broker.coordinators.evidence import EvidenceWriter
from ottla.broker.coordinators.group_kind import OFFSETS_TOPIC, ROUTED_TOPIC, GroupKind
from ottla.broker.coordinators.rebalance_figures import RebalanceFigures
from ottla.broker.coordinators.runtime import STEPS_PER_SLICE, CoordinatorRuntime, SteadyClock
from ottla.broker.coordinators.shard import BrokerRequests, Topics
from ottla.broker.coordinators.shard_router import ShardRouter
from ottla.cluster.image import ImageDelta, TopicImage
from ottla.config.broker import BrokerConfig
from ottla.env.clock import Clock
from ottla.env.randomness import Randomness
from ottla.groups.classic.group import GroupLimits
from ottla.groups.classic.states import GroupState
from ottla.groups.coordinator import STATE_OF, CoordinatorState
from ottla.groups.events import (
    ExpireMember,
    ExpireOffsets,
    GroupEvent,
    GroupRequest,
    PartitionsChanged,
    RequestRebalance,
    Step,
    TopicsDeleted,
)
from ottla.groups.records import StoredOffset
from ottla.groups.shard import GroupShard, refused, refused_while_loading
from ottla.groups.view import GroupView
from ottla.records.compression import Compression
from ottla.wire.errors import ErrorCode

log = logging.getLogger("ottla.groups")

MS_PER_MINUTE = 60_000

CommittedOffset = tuple[str, int, StoredOffset | None, ErrorCode]
"""Topic, partition, committed offset (None for none), and UNSTABLE_OFFSET_COMMIT while a transaction may change it."""


@dataclass(slots=True)
class GroupMetrics:
    """Plain counters, read at each scrape."""

    requests: int = 0
    heartbeats: int = 0
    expired_offsets: int = 0


class GroupCoordinatorService:
    """The groups of this broker. Handlers call `submit`, `heartbeat` and the reading methods."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        coordinator_log: CoordinatorLog,
        topics: Topics,
        randomness: Randomness,
        evidence_requests: BrokerRequests | None = None,
    ) -> None:
        self.metrics = GroupMetrics()
        self._log = coordinator_log
        self._randomness = randomness
        self._clock = SteadyClock(clock)
        self._retention_ms = config.get_int("offsets.retention.minutes") * MS_PER_MINUTE
        self._expiry_interval_ms = config.get_long("offsets.retention.check.interval.ms")
        keeps_evidence = config.get_boolean("ottla.rebalance.evidence.enable")
        self.evidence = EvidenceWriter(coordinator_log, topics, keeps_evidence, evidence_requests)
        limits = GroupLimits(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            max_size=config.get_int("group.max.size"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        )
        self._kind = GroupKind(limits, self.evidence)
        self.runtime: CoordinatorRuntime[GroupShard, Step] = CoordinatorRuntime(
            self._kind,
            coordinator_log,
            self._clock,
            Compression(config.get_int("offsets.topic.compression.codec")),
            config.get_int("offsets.commit.timeout.ms"),
        )
        self._shards = self.runtime.shards
        self.router: ShardRouter[GroupShard] = ShardRouter(ROUTED_TOPIC, config, topics, self._shards, log)
        self._expiry_timer: asyncio.TimerHandle | None = None

    # Life cycle

    def start(self) -> None:
        """Load the partitions that this broker leads (in the background) and begin to serve requests."""
        self.router.start()
        self._log.follow_roles(OFFSETS_TOPIC, self.runtime)
        self._arm_expiry()

    async def stop(self) -> None:
        """Stop; pending requests get no response, since their connections are closed, too."""
        self.router.stop()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._log.follow_roles(OFFSETS_TOPIC, None)
        self.evidence.stop()
        await self.runtime.stop()

    def image_changed(self, delta: ImageDelta) -> None:
        """Handle a change of topics. Which partitions this broker coordinates follows from its roles, not from this."""
        if self.router.is_active:
            self.router.image_changed(delta)
            self._submit_partition_counts(delta)

    @property
    def loading(self) -> bool:
        """Whether any partition is still being loaded."""
        return self.runtime.loading

    @property
    def loading_count(self) -> int:
        """Partitions of the offsets topic that are still being loaded."""
        return sum(shard.loading for shard in self._shards.values())

    @property
    def rebalances(self) -> int:
        """Rebalances completed since the start."""
        return self._kind.rebalances

    @property
    def rebalance_figures(self) -> RebalanceFigures:
        """Causes and pauses of rebalances by group."""
        return self._kind.figures

    # Requests

    def now_ms(self) -> int:
        """The coordinator's time, used in events."""
        return self._clock.now_ms()

    def new_id(self) -> str:
        """A random id for a new member."""
        return str(self._randomness.uuid())

    def submit(self, request: GroupRequest, allow_empty_group_id: bool = False) -> None:
        """Handle a request; its `token`, a `Callable[[Result], None]`, is called once with the result."""
        self.metrics.requests += 1
        shard = self._shard(request.group_id, allow_empty_group_id)
        if isinstance(shard, ErrorCode):
            loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer = request.token
            assert callable(answer)
            answer(refused_while_loading(request) if loading else refused(request, shard))
            return
        self._run(shard, request)

    def intervene(self, event: RequestRebalance | ExpireMember) -> ErrorCode:
        """Handle an event that comes from no client."""
        shard = self._shard(event.group_id, True)
        if isinstance(shard, ErrorCode):
            return shard
        self._run(shard, event)
        return ErrorCode.NONE

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Handle a Heartbeat and return its error code."""
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
        """Committed offsets of the `wanted` partitions; of all partitions if it is None."""
        shard = self._shard(group_id, True)
        if isinstance(shard, ErrorCode):
            return shard
        machine = shard.machines.get(group_id)
        if machine is None:
            return [(topic, index, None, ErrorCode.NONE) for topic, index in wanted or ()]
        offsets = machine.offsets
        if wanted is None:
            wanted = list(offsets.committed)
        found: list[CommittedOffset] = []
        for topic, index in wanted:
            if require_stable and offsets.is_unstable(topic, index):
                found.append((topic, index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                found.append((topic, index, offsets.committed.get((topic, index)), ErrorCode.NONE))
        return found

    def describe(self, group_id: str) -> GroupView | ErrorCode | None:
        """The group; None if it does not exist."""
        shard = self._shard(group_id, True)
        return shard if isinstance(shard, ErrorCode) else shard.machines.get(group_id)

    def groups(self) -> tuple[ErrorCode, list[GroupView]]:
        """All groups of this broker, read-only, with an error while some are still being loaded."""
        if not self.router.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.loading else ErrorCode.NONE
        return error, [m for shard in self._shards.values() if not shard.loading for m in shard.machines.values()]

    def coordinator_state(self, group_id: str) -> CoordinatorState:
        """The state of this broker as coordinator of a group."""
        shard = self.router.find(group_id)
        if isinstance(shard, ErrorCode):
            is_loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return CoordinatorState.CATCHING_UP if is_loading else CoordinatorState.DOWN
        machine = shard.machines.get(group_id)
        return CoordinatorState.READY if machine is None else STATE_OF[machine.state]

    def coordinator_states(self) -> dict[CoordinatorState, int]:
        """Number of coordinators per state: one per group, or one per partition while its groups are unknown.

        Groups are unknown in partitions of the offsets topic that are led elsewhere or still being loaded.
        """
        counts = dict.fromkeys(CoordinatorState, 0)
        counts[CoordinatorState.DOWN] = max(0, self.router.partition_count - len(self._shards))
        for shard in self._shards.values():
            if shard.loading:
                counts[CoordinatorState.CATCHING_UP] += 1
                continue
            for machine in shard.machines.values():
                counts[STATE_OF[machine.state]] += 1
        return counts

    def _shard(self, group_id: str, allow_empty_group_id: bool) -> GroupShard | ErrorCode:
        """The shard that serves a group, or the error if there is none."""
        if not group_id and not allow_empty_group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self.router.find(group_id)

    def _run(self, shard: GroupShard, event: GroupEvent) -> None:
        self.runtime.carry_out(shard, shard.handle(event, self._clock.now_ms()))

    # All groups

    def _arm_expiry(self) -> None:
        seconds = self._expiry_interval_ms / 1000
        self._expiry_timer = asyncio.get_running_loop().call_later(seconds, self._start_expiry)

    def _start_expiry(self) -> None:
        self._clock.correct()
        self.runtime.spawn(self._expire_offsets())
        self._arm_expiry()

    async def _expire_offsets(self) -> None:
        """Expire offsets (`offsets.retention.minutes`) of all groups, in slices."""
        before = self._offset_count()
        looked_at = 0
        for shard in list(self._shards.values()):
            for group_id in list(shard.machines):
                if not shard.loading and self.runtime.is_hosted(shard):
                    self._run(shard, ExpireOffsets(group_id, self._retention_ms))
                looked_at += 1
                if looked_at % STEPS_PER_SLICE == 0:
                    await asyncio.sleep(0)
        self.metrics.expired_offsets += max(0, before - self._offset_count())

    def _offset_count(self) -> int:
        return sum(len(machine.committed) for shard in self._shards.values() for machine in shard.machines.values())

    def _submit_partition_counts(self, delta: ImageDelta) -> None:
        """Submit changes of partition counts to the groups, as evidence; deleted topics also lose their offsets."""
        counts = ((topic.name, _count(topic.before), _count(topic.after)) for topic in delta.topics)
        changed = {name: (before, after) for name, before, after in counts if before != after}
        if not changed:
            return
        gone = frozenset(name for name, (_, now) in changed.items() if now == 0)
        for shard in list(self._shards.values()):
            for group_id, machine in list(shard.machines.items()):
                if shard.loading:
                    continue
                if machine.state is GroupState.STABLE:
                    self._run(shard, PartitionsChanged(group_id, changed))
                if gone:
                    self._run(shard, TopicsDeleted(group_id, gone))


def _count(topic: TopicImage | None) -> int:
    return len(topic.partitions) if topic is not None else 0
