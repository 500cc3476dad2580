"""Consumer groups as a test sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.assign.consumer_protocol import Assignment, decode_assignment
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.server import Broker
    from ottla.groups.machine import GroupMachine

TopicAndPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SeenMember:
    """A member of a group, and the partitions that are assigned to it (none while the group rebalances)."""

    member_id: str
    client_id: str
    group_instance_id: str | None
    partitions: frozenset[TopicAndPartition]


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """A consumer group at one moment. `state` is Kafka's word (`Stable`, `PreparingRebalance`, …)."""

    group_id: str
    state: str
    generation_id: int
    protocol: str | None
    members: tuple[SeenMember, ...]
    #: Committed offsets.
    committed: dict[TopicAndPartition, int]
    #: Records between the committed offset and the end of each partition.
    lag: dict[TopicAndPartition, int]


def see_group(broker: Broker, group_id: str) -> SeenGroup | None:
    """The group; None where there is none, or where it is being loaded."""
    machine = broker.groups.describe(group_id)
    if machine is None or isinstance(machine, ErrorCode):
        return None
    return _seen(broker, machine)


def see_groups(broker: Broker) -> list[SeenGroup]:
    """All groups, by their names."""
    _, machines = broker.groups.groups()
    return sorted((_seen(broker, machine) for machine in machines), key=lambda group: group.group_id)


def _seen(broker: Broker, machine: GroupMachine) -> SeenGroup:
    committed = {(key[0], key[1]): stored.offset for key, stored in machine.offsets.items()}
    lag: dict[TopicAndPartition, int] = {}
    for (topic, index), offset in committed.items():
        hosted = broker.partitions.get(topic, index)
        if hosted is not None:
            lag[topic, index] = max(0, hosted.log.high_watermark - offset)
    members = tuple(
        SeenMember(member.member_id, member.client_id, member.group_instance_id, _partitions(member.assignment))
        for member in machine.members
    )
    return SeenGroup(
        machine.group_id,
        machine.state.value,
        machine.generation_id,
        machine.protocol_name,
        members,
        committed,
        lag,
    )


def _partitions(assignment: bytes) -> frozenset[TopicAndPartition]:
    decoded = decode_assignment(assignment)
    if not isinstance(decoded, Assignment):
        return frozenset()
    return frozenset((topic, index) for topic, indexes in decoded.partitions.items() for index in indexes)
