"""Groups as a kind of coordinator: topic, record format, logging and counting of steps."""

from __future__ import annotations

import logging

from ottla.broker.coordinators.evidence import EvidenceWriter
from ottla.broker.coordinators.rebalance_figures import RebalanceFigures
from ottla.broker.coordinators.shard import ShardState, UnreadableRecord
from ottla.broker.coordinators.shard_router import RoutedTopic
from ottla.groups.classic.group import GroupLimits
from ottla.groups.classic.machine import GroupMachine
from ottla.groups.coordinator import STATE_OF, CoordinatorState
from ottla.groups.events import Result, Step
from ottla.groups.failures import failed_result
from ottla.groups.records import LogRecord, MalformedRecord, UnknownRecord, decode_record, encode_record
from ottla.groups.shard import GroupShard
from ottla.wire.errors import ErrorCode

OFFSETS_TOPIC = "__consumer_offsets"
ROUTED_TOPIC = RoutedTopic(
    OFFSETS_TOPIC, "offsets.topic.num.partitions", "offsets.topic.replication.factor", served="Groups"
)

COORDINATOR_OF_GROUP = "coordinator of group"
COORDINATOR_OF_PARTITION = "coordinator of partition"
"""Prefix of log events about states; they end in the old and the new state, as in `ready -> preparing`."""

_STATE_OF_SHARD = {
    ShardState.ABSENT: CoordinatorState.DOWN,
    ShardState.LOADING: CoordinatorState.CATCHING_UP,
    ShardState.ACTIVE: CoordinatorState.READY,
}


class GroupKind:
    """`CoordinatorKind` of consumer groups."""

    topic = OFFSETS_TOPIC
    log = logging.getLogger("ottla.groups")

    def __init__(self, limits: GroupLimits, evidence: EvidenceWriter) -> None:
        self._limits = limits
        self._evidence = evidence
        #: Rebalances completed since the start.
        self.rebalances = 0
        self.figures = RebalanceFigures()
        #: Last logged state of the coordinators that are not ready, by group.
        self._logged: dict[str, CoordinatorState] = {}

    def new_shard(self, partition: int) -> GroupShard:
        """See `CoordinatorKind`."""
        return GroupShard(partition, self._limits)

    def encode(self, record: LogRecord) -> tuple[bytes, bytes | None]:
        """See `CoordinatorKind`."""
        return encode_record(record)

    def decode(self, key: bytes | None, value: bytes | None) -> LogRecord | UnreadableRecord:
        """See `CoordinatorKind`."""
        try:
            record = decode_record(key, value)
        except MalformedRecord as error:
            return UnreadableRecord(str(error), is_damage=True)
        if isinstance(record, UnknownRecord):
            message = f"has a key of version {record.key_version}, which is not known here; skipped"
            return UnreadableRecord(message, is_damage=False)
        return record

    def failed_result(self, result: Result, error: ErrorCode) -> Result:
        """See `CoordinatorKind`."""
        return failed_result(result, error)

    def carried_out(self, shard: GroupShard, step: Step) -> None:
        """Log the state changes of the group, and write the evidence of completed rebalances."""
        machine = shard.machines.get(step.group_id)
        if machine is not None and machine.entered:
            self._log_states(machine)
        if step.notes:
            self.rebalances += len(step.notes)
            self.figures.add(step.notes)
            self._evidence.add(step.notes)

    def unloaded(self, step: Step) -> None:
        """Write the evidence of a rebalance that was cut short by the loss of leadership."""
        self._logged.pop(step.group_id, None)
        self._evidence.add(step.notes)

    def state_changed(self, partition: int, before: ShardState, now: ShardState) -> None:
        """Log the change, at debug level if there was nothing to load."""
        if now is before:
            return
        is_news = (before, now) != (ShardState.ABSENT, ShardState.ACTIVE)
        level = logging.INFO if is_news else logging.DEBUG
        labels = (_STATE_OF_SHARD[before].label, _STATE_OF_SHARD[now].label)
        self.log.log(level, "%s %s-%d: %s -> %s", COORDINATOR_OF_PARTITION, self.topic, partition, *labels)

    def _log_states(self, machine: GroupMachine) -> None:
        before = self._logged.get(machine.group_id, CoordinatorState.READY)
        for state in machine.entered:
            now = STATE_OF[state]
            if now is not before:
                self.log.debug("%s %s: %s -> %s", COORDINATOR_OF_GROUP, machine.group_id, before.label, now.label)
            before = now
        machine.entered.clear()
        if before is CoordinatorState.READY:
            self._logged.pop(machine.group_id, None)
        else:
            self._logged[machine.group_id] = before
