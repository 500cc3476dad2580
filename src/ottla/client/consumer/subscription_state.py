"""Subscription, assigned partitions, and the position of each. Pure.

There are four exclusive kinds of subscription: none, topics, a pattern, or partitions that the
user assigned. With topics or a pattern the group coordinator assigns partitions (`assign_from_subscribed`).

A partition goes through `FetchState`: it starts INITIALIZING, gets its position from the committed offset or by a
reset, is validated when its leader changed (KIP-320), and is FETCHING in between.

Threads: the set of assigned partitions is replaced as a whole, and positions are immutable, so a thread that returns
records may run beside an event loop that builds requests. Everything else must not be called concurrently.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ottla.client.consumer.listener import ConsumerRebalanceListener
from ottla.client.errors import IllegalStateError, InvalidArgumentError
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.peer.metadata import NO_NODE

NO_EPOCH = -1


class SubscriptionType(Enum):
    """How the partitions to read are determined."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    USER_ASSIGNED = "user assigned"


class FetchState(Enum):
    """State of a partition between assignment and reading."""

    INITIALIZING = "initializing"
    """No position yet: committed offsets have to be fetched."""
    FETCHING = "fetching"
    AWAIT_RESET = "await reset"
    """The position has to be looked up: beginning or end of the log."""
    AWAIT_VALIDATION = "await validation"
    """The leader changed: it has to be checked whether the log was truncated (KIP-320)."""


class OffsetReset(Enum):
    """auto.offset.reset: where to start without a position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class LeaderAndEpoch(NamedTuple):
    """The leader's node id and its epoch, each -1 if unknown."""

    leader: int = NO_NODE
    epoch: int = NO_EPOCH


class FetchPosition(NamedTuple):
    """The offset to read next, the epoch of the record before it (-1: unknown), and the leader when it was set."""

    offset: int
    offset_epoch: int = NO_EPOCH
    current_leader: LeaderAndEpoch = LeaderAndEpoch()


class LogTruncation(NamedTuple):
    """A position that validation found beyond the end of its epoch; None if the broker does not know that end."""

    partition: TopicPartition
    position: FetchPosition
    divergent_offset: OffsetAndMetadata | None


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition. High watermark, log start and last stable offset are None until a broker reports them."""

    fetch_state: FetchState = FetchState.INITIALIZING
    position: FetchPosition | None = None
    paused: bool = False
    pending_revocation: bool = False
    reset_strategy: OffsetReset | None = None
    preferred_read_replica: int | None = None
    preferred_until_ms: float = 0.0
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    next_retry_at_ms: float = 0.0
    """Resets and validations are not retried before this time."""
    seeks: int = 0
    """Counts the times the position was set other than by reading on, which makes fetched data obsolete."""

    @property
    def is_fetchable(self) -> bool:
        """Whether records may be fetched and returned."""
        return self.fetch_state is FetchState.FETCHING and not self.paused and not self.pending_revocation

    def replica_to_read(self, now_ms: float) -> int | None:
        """The preferred read replica, None for the leader."""
        if self.preferred_read_replica is not None and now_ms > self.preferred_until_ms:
            self.preferred_read_replica = None
        return self.preferred_read_replica

    def lag(self, *, read_committed: bool) -> int | None:
        """Return the lag: records between position and last known end, None if either is unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        position = self.position
        return None if end is None or position is None else max(0, end - position.offset)

    def settle_at(self, position: FetchPosition) -> None:
        """Set a valid position."""
        self.seeks += 1
        self.fetch_state = FetchState.FETCHING
        self.position = position
        self.reset_strategy = None
        self.next_retry_at_ms = 0.0

    def validate_at(self, position: FetchPosition) -> None:
        """Set a position that needs validation first; valid at once without epochs to compare."""
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
        """Topics subscribed by name, or matching the pattern."""
        self._group_subscription: frozenset[str] = frozenset()
        self._assignment: dict[TopicPartition, PartitionState] = {}
        self.assignment_id = 0
        """Grows with every change of the assigned partitions."""
        self._assigned_topics: tuple[int, frozenset[str]] = (0, frozenset())
        """The topics of the assigned partitions, with the assignment id they belong to."""
        self.settled = True
        """False while a partition may lack a valid position; `has_all_fetch_positions` updates it."""
        self.has_preferred_replicas = False
        """Whether a broker ever returned a preferred read replica (KIP-392)."""

    # Subscription

    def subscribe(self, topics: Collection[str], listener: ConsumerRebalanceListener | None = None) -> bool:
        """Subscribe to topics by name; returns whether that is a change. IllegalStateError beside another kind."""
        self._set_type(SubscriptionType.TOPICS)
        self.listener = listener
        return self._change_subscription(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: ConsumerRebalanceListener | None = None) -> None:
        """Subscribe to all topics that match; `subscribe_from_pattern` sets which ones exist."""
        self._set_type(SubscriptionType.PATTERN)
        self.listener = listener
        self.pattern = pattern

    def subscribe_from_pattern(self, topics: Collection[str]) -> bool:
        """Set the topics that match the pattern at the moment; returns whether they changed."""
        if self.type is not SubscriptionType.PATTERN:
            raise IllegalStateError(f"the subscription is not a pattern but {self.type.value}")
        return self._change_subscription(topics)

    def unsubscribe(self) -> None:
        """Drop subscription and assignment."""
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
        """As group leader, add the topics of all members; returns whether metadata of more topics is needed."""
        before = self.metadata_topics()
        self._group_subscription = frozenset(topics)
        return not self.metadata_topics() <= before

    def reset_group_subscription(self) -> None:
        """Drop the topics of other members."""
        self._group_subscription = frozenset()

    def metadata_topics(self) -> frozenset[str]:
        """Topics whose metadata is needed: by a group leader also those of the other members."""
        if self.type is not SubscriptionType.USER_ASSIGNED:
            return self._group_subscription | self.subscription
        if self._assigned_topics[0] != self.assignment_id:
            self._assigned_topics = (self.assignment_id, frozenset(each.topic for each in self._assignment))
        return self._assigned_topics[1]

    # Assignment

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Read exactly these partitions; returns whether that is a change. Those kept keep their positions."""
        self._set_type(SubscriptionType.USER_ASSIGNED)
        wanted = dict.fromkeys(partitions)
        if wanted.keys() == self._assignment.keys():
            return False
        self._assign(wanted)
        return True

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the coordinator's assignment. Partitions that were assigned before keep state and position."""
        if not self.has_auto_assigned_partitions:
            raise IllegalStateError("partitions cannot be assigned by a group without a subscription to topics")
        self._assign(dict.fromkeys(partitions))
        for state in self._assignment.values():
            state.pending_revocation = False  # a partition marked for revocation may be assigned again

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._replace_assignment({each: self._assignment.get(each) or PartitionState() for each in partitions})

    def _replace_assignment(self, assignment: dict[TopicPartition, PartitionState]) -> None:
        self._assignment = assignment
        self.assignment_id += 1
        self.settled = False

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """These are about to be revoked: none of their records are returned any more."""
        for each in partitions:
            if (state := self._assignment.get(each)) is not None:
                state.pending_revocation = True

    @property
    def assigned_partitions(self) -> Collection[TopicPartition]:
        """The assigned partitions in order."""
        return self._assignment.keys()

    def state_or_none(self, partition: TopicPartition) -> PartitionState | None:
        """Return the partition's state, None if it is not assigned (any more)."""
        return self._assignment.get(partition)

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return the partition's state. Raises IllegalStateError if it is not assigned."""
        found = self._assignment.get(partition)
        if found is None:
            assigned = ", ".join(map(str, self._assignment)) or "none"
            raise IllegalStateError(f"{partition} is not assigned to this consumer now (assigned: {assigned})")
        return found

    # Positions

    def seek(self, partition: TopicPartition, position: FetchPosition) -> None:
        """Read from there, after validation if that is possible."""
        if position.offset < 0:
            raise InvalidArgumentError(f"cannot seek to offset {position.offset} of {partition}: offsets begin at 0")
        self.settled = False
        self.state(partition).validate_at(position)

    def request_reset(self, partition: TopicPartition, strategy: OffsetReset | None = None) -> None:
        """Reset the position by `strategy`, by auto.offset.reset for None."""
        state = self.state(partition)
        self.settled = False
        state.reset(strategy or self.default_reset)

    def complete_reset(self, partition: TopicPartition, strategy: OffsetReset, position: FetchPosition) -> bool:
        """Set the position that a reset found; False if the partition was revoked or seek was called meanwhile."""
        state = self._assignment.get(partition)
        if state is None or state.fetch_state is not FetchState.AWAIT_RESET or state.reset_strategy is not strategy:
            return False
        state.settle_at(position)
        return True

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until `resume`."""
        for state in [self.state(each) for each in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these again."""
        for state in [self.state(each) for each in partitions]:
            state.paused = False

    def paused_partitions(self) -> set[TopicPartition]:
        """Assigned partitions that are paused."""
        return {each for each, state in self._assignment.items() if state.paused}

    def valid_position(self, partition: TopicPartition) -> FetchPosition | None:
        """The position if it is valid: neither reset nor validation is pending."""
        state = self.state(partition)
        return state.position if state.fetch_state is FetchState.FETCHING else None

    def has_all_fetch_positions(self) -> bool:
        """Whether every assigned partition has a valid position; cached in `settled`."""
        self.settled = all(state.fetch_state is FetchState.FETCHING for state in self._assignment.values())
        return self.settled

    def in_state(self, wanted: FetchState, now_ms: float | None = None) -> list[TopicPartition]:
        """Partitions in this state; with `now_ms` only those whose lookup or validation is due."""
        return [
            each
            for each, state in self._assignment.items()
            if state.fetch_state is wanted and (now_ms is None or state.next_retry_at_ms <= now_ms)
        ]

    def reset_initializing_positions(self) -> list[TopicPartition]:
        """Reset partitions without a committed offset; returns those that cannot be, as auto.offset.reset is none."""
        partitions = self.in_state(FetchState.INITIALIZING)
        if self.default_reset is OffsetReset.NONE:
            return partitions
        for each in partitions:
            self.request_reset(each)
        return []

    def set_next_allowed_retry(self, partitions: Iterable[TopicPartition], at_ms: float) -> None:
        """Do not retry resets or validations of these before `at_ms`."""
        for each in partitions:
            if (state := self._assignment.get(each)) is not None:
                state.next_retry_at_ms = at_ms

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets for a commit without arguments: every partition with a valid position."""
        assignment = self._assignment
        return {
            each: at for each, at in self.positions().items() if assignment[each].fetch_state is FetchState.FETCHING
        }

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets for a transaction: every partition with a position, one that awaits validation included.

        The records before it are in the transaction, and their offsets must not come later than they.
        """
        return {
            each: OffsetAndMetadata(state.position.offset, "", state.position.offset_epoch)
            for each, state in self._assignment.items()
            if state.position is not None
        }

    # Leader epochs

    def maybe_validate_position(self, partition: TopicPartition, leader: LeaderAndEpoch) -> bool:
        """Require validation if the leader has changed since the position was set; returns whether it is required."""
        state = self._assignment.get(partition)
        if state is None or state.position is None:
            return False
        if state.position.current_leader == leader or leader.leader == NO_NODE:
            return state.fetch_state is FetchState.AWAIT_VALIDATION
        state.preferred_read_replica = None
        state.validate_at(state.position._replace(current_leader=leader))
        self.settled = False
        return state.fetch_state is FetchState.AWAIT_VALIDATION

    def complete_validation(
        self, partition: TopicPartition, validated: FetchPosition, end: tuple[int, int] | None
    ) -> LogTruncation | None:
        """Handle the leader's response: the end (offset, epoch) of the position's epoch, None if unknown.

        A position beyond that end is reset or moved back to it, or returned as a LogTruncation if auto.offset.reset is
        none. Late responses are ignored.
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
        """The broker is too old to validate a position: continue to read."""
        state = self._assignment.get(partition)
        if state is not None and state.fetch_state is FetchState.AWAIT_VALIDATION:
            state.fetch_state = FetchState.FETCHING

    def set_preferred_read_replica(self, partition: TopicPartition, node_id: int, until_ms: float) -> None:
        """Read from that replica until then (KIP-392)."""
        if (state := self._assignment.get(partition)) is not None:
            state.preferred_read_replica, state.preferred_until_ms = node_id, until_ms
            self.has_preferred_replicas = True

    def clear_preferred_read_replica(self, partition: TopicPartition) -> None:
        """Go back to the leader."""
        if (state := self._assignment.get(partition)) is not None:
            state.preferred_read_replica = None

    def snapshot(self) -> Mapping[TopicPartition, PartitionState]:
        """Assigned partitions and their states, for metrics and health."""
        return self._assignment
