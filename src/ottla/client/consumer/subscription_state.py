"""What a consumer reads and where it stands: subscription, assigned partitions, a position for each. Pure.

The subscription is of one of four kinds that exclude each other: nothing, topics, a pattern, or partitions that the
user assigned. With topics and a pattern the group's coordinator assigns partitions (`assign_from_subscribed`).

A partition goes through `FetchState`: it begins INITIALIZING, gets its position from what the group committed or by a
reset, is validated where its leader changed (KIP-320), and is FETCHING in between.

Threads: the set of assigned partitions is replaced as a whole, and positions are immutable, so a thread that hands out
records may go on beside an event loop that builds requests. Everything else is called by one of them at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from ottla.client.consumer.listener import ConsumerRebalanceListener
from ottla.client.errors import IllegalStateError, InvalidArgumentError
from ottla.client.model import OffsetAndMetadata, TopicPartition

NO_EPOCH = -1
NO_LEADER = -1


class SubscriptionType(Enum):
    """How it is decided what is read."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    USER_ASSIGNED = "user assigned"


class FetchState(Enum):
    """Where a partition stands between being assigned and being read."""

    INITIALIZING = "initializing"
    """No position yet: committed offsets are to be asked for."""
    FETCHING = "fetching"
    AWAIT_RESET = "await reset"
    """The position is to be set to the beginning or the end of the log."""
    AWAIT_VALIDATION = "await validation"
    """The leader changed: whether the log still holds what was read is to be asked for (KIP-320)."""


class OffsetReset(Enum):
    """What auto.offset.reset says: where to begin where there is no position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class LeaderAndEpoch(NamedTuple):
    """The leader's node id and its epoch, each -1 where not known."""

    leader: int = NO_LEADER
    epoch: int = NO_EPOCH


class FetchPosition(NamedTuple):
    """The offset to read next, the epoch of the record before it (-1: not known), and the leader it was set with."""

    offset: int
    offset_epoch: int = NO_EPOCH
    current_leader: LeaderAndEpoch = LeaderAndEpoch()


class LogTruncation(NamedTuple):
    """A position that validation found beyond the end of its epoch; None where the broker could not tell that end."""

    partition: TopicPartition
    position: FetchPosition
    divergent_offset: OffsetAndMetadata | None


class PartitionState:
    """One assigned partition. High watermark, log start and last stable offset are None until a broker told them."""

    __slots__ = (
        "fetch_state",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "next_retry_at_ms",
        "paused",
        "pending_revocation",
        "position",
        "preferred_read_replica",
        "preferred_until_ms",
        "reset_strategy",
        "seeks",
    )

    def __init__(self) -> None:
        self.fetch_state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        self.paused = False
        self.pending_revocation = False
        self.reset_strategy: OffsetReset | None = None
        self.preferred_read_replica: int | None = None
        self.preferred_until_ms = 0.0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.next_retry_at_ms = 0.0
        """Resets and validations are not tried again before."""
        self.seeks = 0
        """Counts how often the position was set other than by reading on: what was fetched ahead is void then."""

    @property
    def is_fetchable(self) -> bool:
        """Whether records may be fetched and handed out."""
        return self.fetch_state is FetchState.FETCHING and not self.paused and not self.pending_revocation

    def lag(self, *, read_committed: bool) -> int | None:
        """Records between position and end as it was last told, None where either is not known."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        position = self.position
        return None if end is None or position is None else max(0, end - position.offset)

    def settle_at(self, position: FetchPosition) -> None:
        """Read from there."""
        self.seeks += 1
        self.fetch_state = FetchState.FETCHING
        self.position = position
        self.reset_strategy = None
        self.next_retry_at_ms = 0.0

    def validate_at(self, position: FetchPosition) -> None:
        """Read from there once it is known to be right; at once where there are no epochs to compare."""
        self.settle_at(position)
        if position.offset_epoch != NO_EPOCH and position.current_leader.epoch != NO_EPOCH:
            self.fetch_state = FetchState.AWAIT_VALIDATION

    def reset(self, strategy: OffsetReset) -> None:
        """Forget the position; it is looked up by `strategy`."""
        self.seeks += 1
        self.fetch_state = FetchState.AWAIT_RESET
        self.position = None
        self.reset_strategy = strategy
        self.next_retry_at_ms = 0.0


class SubscriptionState:
    """See the module. `default_reset` is auto.offset.reset."""

    def __init__(self, default_reset: OffsetReset = OffsetReset.LATEST) -> None:
        self.default_reset = default_reset
        self.type = SubscriptionType.NONE
        self.listener: ConsumerRebalanceListener | None = None
        self.pattern: re.Pattern[str] | None = None
        self.subscription: frozenset[str] = frozenset()
        """Topics asked for by name, or found by the pattern."""
        self._group_subscription: frozenset[str] = frozenset()
        self._assignment: dict[TopicPartition, PartitionState] = {}
        self.assignment_id = 0
        """Grows with every change of the assigned partitions."""
        self._assigned_topics: tuple[int, frozenset[str]] = (0, frozenset())
        """The topics of the assigned partitions, and which assignment that was."""
        self.settled = True
        """False while some partition may have no valid position; `has_all_fetch_positions` finds out."""
        self.has_preferred_replicas = False
        """Whether a broker ever named a replica to read from (KIP-392)."""

    # What is subscribed

    def subscribe(self, topics: Collection[str], listener: ConsumerRebalanceListener | None = None) -> bool:
        """Subscribe to topics by name; whether that is a change. IllegalStateError beside another kind."""
        self._set_type(SubscriptionType.TOPICS)
        self.listener = listener
        return self._change_subscription(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: ConsumerRebalanceListener | None = None) -> None:
        """Subscribe to all topics that match; `subscribe_from_pattern` says which there are."""
        self._set_type(SubscriptionType.PATTERN)
        self.listener = listener
        self.pattern = pattern

    def subscribe_from_pattern(self, topics: Collection[str]) -> bool:
        """The topics that match the pattern at the moment; whether they changed."""
        if self.type is not SubscriptionType.PATTERN:
            raise IllegalStateError(f"the subscription is not a pattern but {self.type.value}")
        return self._change_subscription(topics)

    def unsubscribe(self) -> None:
        """Forget subscription and assignment."""
        self.type = SubscriptionType.NONE
        self.listener = None
        self.pattern = None
        self.subscription = self._group_subscription = frozenset()
        self._replace_assignment({})

    def _set_type(self, kind: SubscriptionType) -> None:
        if self.type not in (SubscriptionType.NONE, kind):
            raise IllegalStateError(
                f"the consumer's subscription is of the kind {self.type.value}, so it cannot be {kind.value}, too: "
                "topics, pattern and assigned partitions exclude each other; call unsubscribe before"
            )
        self.type = kind

    def _change_subscription(self, topics: Collection[str]) -> bool:
        changed = frozenset(topics)
        if changed == self.subscription:
            return False
        self.subscription = changed
        return True

    @property
    def has_auto_assigned_partitions(self) -> bool:
        """Whether the coordinator assigns the partitions."""
        return self.type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN)

    @property
    def has_no_subscription_or_user_assignment(self) -> bool:
        """Whether there is nothing to poll for."""
        return self.type is SubscriptionType.NONE

    def matches_pattern(self, topic: str) -> bool:
        """Whether the pattern matches the whole name, as in Java."""
        return self.pattern is not None and self.pattern.fullmatch(topic) is not None

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """For the group's leader: what all members subscribe to. Whether metadata of more topics is needed now."""
        before = self.metadata_topics()
        self._group_subscription = frozenset(topics)
        return not self.metadata_topics() <= before

    def reset_group_subscription(self) -> None:
        """Forget what other members subscribe to."""
        self._group_subscription = frozenset()

    @property
    def group_subscription(self) -> frozenset[str]:
        """What all members subscribe to where this one leads the group, else its own subscription."""
        return self._group_subscription | self.subscription

    def metadata_topics(self) -> frozenset[str]:
        """Topics whose metadata must be known."""
        if self.type is not SubscriptionType.USER_ASSIGNED:
            return self.group_subscription
        if self._assigned_topics[0] != self.assignment_id:
            self._assigned_topics = (self.assignment_id, frozenset(each.topic for each in self._assignment))
        return self._assigned_topics[1]

    # What is assigned

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Read exactly these partitions; whether that is a change. Those kept keep their positions."""
        self._set_type(SubscriptionType.USER_ASSIGNED)
        wanted = dict.fromkeys(partitions)
        if wanted.keys() == self._assignment.keys():
            return False
        self._assign(wanted)
        return True

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """Read what the coordinator assigned. Partitions that were assigned before keep state and position."""
        if not self.has_auto_assigned_partitions:
            raise IllegalStateError("partitions cannot be assigned by a group without a subscription to topics")
        self._assign(dict.fromkeys(partitions))
        for state in self._assignment.values():
            state.pending_revocation = False  # one that was to be revoked may be given back

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._replace_assignment({each: self._assignment.get(each) or PartitionState() for each in partitions})

    def _replace_assignment(self, assignment: dict[TopicPartition, PartitionState]) -> None:
        self._assignment = assignment
        self.assignment_id += 1
        self.settled = False

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """These are about to be revoked: nothing of them is handed out any more."""
        for each in partitions:
            if (state := self._assignment.get(each)) is not None:
                state.pending_revocation = True

    @property
    def assigned_partitions(self) -> Collection[TopicPartition]:
        """The assigned partitions in their order."""
        return self._assignment.keys()

    def state_or_none(self, partition: TopicPartition) -> PartitionState | None:
        """The partition's state, None where it is not assigned (any more)."""
        return self._assignment.get(partition)

    def state(self, partition: TopicPartition) -> PartitionState:
        """The partition's state. IllegalStateError where it is not assigned."""
        found = self._assignment.get(partition)
        if found is None:
            assigned = ", ".join(map(str, self._assignment)) or "none"
            raise IllegalStateError(f"{partition} is not assigned to this consumer now (assigned: {assigned})")
        return found

    # Where reading stands

    def seek(self, partition: TopicPartition, position: FetchPosition) -> None:
        """Read from there, after validation where that is possible."""
        if position.offset < 0:
            raise InvalidArgumentError(f"cannot seek to offset {position.offset} of {partition}: offsets begin at 0")
        self.settled = False
        self.state(partition).validate_at(position)

    def seek_validated(self, partition: TopicPartition, position: FetchPosition) -> None:
        """Read from there at once."""
        self.state(partition).settle_at(position)

    def request_reset(self, partition: TopicPartition, strategy: OffsetReset | None = None) -> None:
        """Have the position looked up by `strategy`, by auto.offset.reset for None."""
        state = self.state(partition)
        self.settled = False
        state.reset(strategy or self.default_reset)

    def complete_reset(self, partition: TopicPartition, strategy: OffsetReset, position: FetchPosition) -> bool:
        """The position that a reset found; False where somebody sought elsewhere, or revoked it, meanwhile."""
        state = self._assignment.get(partition)
        if state is None or state.fetch_state is not FetchState.AWAIT_RESET or state.reset_strategy is not strategy:
            return False
        state.settle_at(position)
        return True

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until `resume`."""
        for state in [self.state(each) for each in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out records of these again."""
        for state in [self.state(each) for each in partitions]:
            state.paused = False

    def paused_partitions(self) -> set[TopicPartition]:
        """Assigned partitions that are paused."""
        return {each for each, state in self._assignment.items() if state.paused}

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """Where the next record is read, None while that is not known. IllegalStateError where not assigned."""
        return self.state(partition).position

    def valid_position(self, partition: TopicPartition) -> FetchPosition | None:
        """The position where it can be relied on: neither reset nor validation is under way."""
        state = self.state(partition)
        return state.position if state.fetch_state is FetchState.FETCHING else None

    def fetchable_partitions(self, wanted: Callable[[TopicPartition], bool] | None = None) -> list[TopicPartition]:
        """Partitions with a valid position that are not paused, in order, of those `wanted`."""
        return [
            each for each, state in self._assignment.items() if state.is_fetchable and (wanted is None or wanted(each))
        ]

    def is_fetchable(self, partition: TopicPartition) -> bool:
        """Whether records of the partition may be handed out."""
        state = self._assignment.get(partition)
        return state is not None and state.is_fetchable

    def has_all_fetch_positions(self) -> bool:
        """Whether every assigned partition has a valid position; remembered in `settled`."""
        self.settled = all(state.fetch_state is FetchState.FETCHING for state in self._assignment.values())
        return self.settled

    def _in_state(self, wanted: FetchState, now_ms: float | None = None) -> list[TopicPartition]:
        return [
            each
            for each, state in self._assignment.items()
            if state.fetch_state is wanted and (now_ms is None or state.next_retry_at_ms <= now_ms)
        ]

    def needs_initializing_positions(self) -> list[TopicPartition]:
        """Partitions that have no position and nobody looks for one: committed offsets are to be asked for."""
        return self._in_state(FetchState.INITIALIZING)

    def reset_initializing_positions(self) -> list[TopicPartition]:
        """Have partitions reset for which nothing is committed; those that cannot be, as the policy is none."""
        partitions = self.needs_initializing_positions()
        if self.default_reset is OffsetReset.NONE:
            return partitions
        for each in partitions:
            self.request_reset(each)
        return []

    def partitions_needing_reset(self, now_ms: float) -> list[TopicPartition]:
        """Partitions whose offset is to be looked up now."""
        return self._in_state(FetchState.AWAIT_RESET, now_ms)

    def partitions_needing_validation(self, now_ms: float) -> list[TopicPartition]:
        """Partitions whose position is to be validated now."""
        return self._in_state(FetchState.AWAIT_VALIDATION, now_ms)

    def set_next_allowed_retry(self, partitions: Iterable[TopicPartition], at_ms: float) -> None:
        """Do not try resets or validations of these again before."""
        for each in partitions:
            if (state := self._assignment.get(each)) is not None:
                state.next_retry_at_ms = at_ms

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit without arguments commits: every partition with a valid position."""
        return {
            each: OffsetAndMetadata(state.position.offset, "", state.position.offset_epoch)
            for each, state in self._assignment.items()
            if state.position is not None and state.fetch_state is FetchState.FETCHING
        }

    # Leaders and their epochs

    def maybe_validate_position(self, partition: TopicPartition, leader: LeaderAndEpoch) -> bool:
        """Have the position validated where the leader is another one than when it was set; whether it is to be."""
        state = self._assignment.get(partition)
        if state is None or state.position is None:
            return False
        if state.position.current_leader == leader or leader.leader == NO_LEADER:
            return state.fetch_state is FetchState.AWAIT_VALIDATION
        state.preferred_read_replica = None
        state.validate_at(state.position._replace(current_leader=leader))
        self.settled = False
        return state.fetch_state is FetchState.AWAIT_VALIDATION

    def complete_validation(
        self, partition: TopicPartition, validated: FetchPosition, end: tuple[int, int] | None
    ) -> LogTruncation | None:
        """What the leader answered: the end (offset, epoch) of the position's epoch, None where it is not known.

        A position beyond that end is reset or brought back to it, or told as a LogTruncation where auto.offset.reset is
        none. Answers that came too late are ignored.
        """
        state = self._assignment.get(partition)
        if state is None or state.fetch_state is not FetchState.AWAIT_VALIDATION or state.position != validated:
            return None
        if end is not None and end[0] >= validated.offset:
            state.fetch_state = FetchState.FETCHING
            return None
        if self.default_reset is OffsetReset.NONE:
            divergent = None if end is None else OffsetAndMetadata(end[0], "", end[1])
            return LogTruncation(partition, validated, divergent)
        if end is None:
            self.request_reset(partition)
        else:
            state.settle_at(FetchPosition(end[0], end[1], validated.current_leader))
        return None

    def skip_validation(self, partition: TopicPartition) -> None:
        """The broker is too old to validate a position: go on reading."""
        state = self._assignment.get(partition)
        if state is not None and state.fetch_state is FetchState.AWAIT_VALIDATION:
            state.fetch_state = FetchState.FETCHING

    def set_preferred_read_replica(self, partition: TopicPartition, node_id: int, until_ms: float) -> None:
        """Read from that replica until then (KIP-392)."""
        if (state := self._assignment.get(partition)) is not None:
            state.preferred_read_replica, state.preferred_until_ms = node_id, until_ms
            self.has_preferred_replicas = True

    def preferred_read_replica(self, partition: TopicPartition, now_ms: float) -> int | None:
        """The replica to read from, None for the leader."""
        state = self._assignment.get(partition)
        if state is None or state.preferred_read_replica is None:
            return None
        if now_ms > state.preferred_until_ms:
            state.preferred_read_replica = None
        return state.preferred_read_replica

    def clear_preferred_read_replica(self, partition: TopicPartition) -> int | None:
        """Go back to the leader; which replica it was."""
        state = self._assignment.get(partition)
        if state is None:
            return None
        before, state.preferred_read_replica = state.preferred_read_replica, None
        return before

    # How far there is to go

    def partition_lag(self, partition: TopicPartition, *, read_committed: bool = False) -> int | None:
        """Records between position and end as it was last told, None where either is not known."""
        return self.state(partition).lag(read_committed=read_committed)

    def snapshot(self) -> Mapping[TopicPartition, PartitionState]:
        """Assigned partitions and their states, for metrics and health."""
        return self._assignment
