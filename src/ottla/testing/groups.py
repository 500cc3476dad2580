"""Consumer groups as a test sees them, and what it does to them: a rebalance, the end of a member's session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.assign.consumer_protocol import Assignment, decode_assignment
from ottla.groups.events import ExpireMember, RequestRebalance
from ottla.testing.errors import TestBrokerError
from ottla.testing.faults.named import listed
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.server import Broker
    from ottla.groups.view import GroupView, MemberView

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
    group = broker.groups.describe(group_id)
    return None if group is None or isinstance(group, ErrorCode) else _seen(broker, group)


def see_groups(broker: Broker) -> list[SeenGroup]:
    """All groups, by their names."""
    return sorted((_seen(broker, group) for group in broker.groups.groups()[1]), key=lambda seen: seen.group_id)


def _seen(broker: Broker, group: GroupView) -> SeenGroup:
    committed = {key: stored.offset for key, stored in group.committed.items()}
    lag: dict[TopicAndPartition, int] = {}
    for (topic, index), offset in committed.items():
        hosted = broker.partitions.get(topic, index)
        if hosted is not None:
            lag[topic, index] = max(0, hosted.log.high_watermark - offset)
    members = tuple(
        SeenMember(member.member_id, member.client_id, member.group_instance_id, _partitions(member.assignment))
        for member in group.members
    )
    return SeenGroup(
        group.group_id, group.state.value, group.generation_id, group.protocol_name, members, committed, lag
    )


def _partitions(assignment: bytes) -> frozenset[TopicAndPartition]:
    decoded = decode_assignment(assignment)
    if not isinstance(decoded, Assignment):
        return frozenset()
    return frozenset((topic, index) for topic, indexes in decoded.partitions.items() for index in indexes)


def rebalance(broker: Broker, group_id: str, reason: str | None) -> None:
    """Ask all members of the group to rejoin. Raises `TestBrokerError`."""
    group = _group(broker, group_id)
    if not len(group.members):
        raise TestBrokerError(f"the group {group_id} has no members that could rejoin")
    broker.groups.intervene(RequestRebalance(group_id, reason))


def expire_member(broker: Broker, group_id: str, name: str) -> str:
    """End the session of the member of this id, instance id or client id; its member id. Raises `TestBrokerError`."""
    members = list(_group(broker, group_id).members)
    found = [member for member in members if name in (member.member_id, member.group_instance_id)]
    found = found or [member for member in members if name == member.client_id]
    if not found:
        raise TestBrokerError(f"the group {group_id} has no member {name}; its members: {_described(members)}")
    if len(found) > 1:
        raise TestBrokerError(
            f"{len(found)} members of the group {group_id} have the client id {name}: name one by its member id or "
            f"group instance id; they are {_described(found)}"
        )
    member_id = found[0].member_id
    broker.groups.intervene(ExpireMember(group_id, member_id))
    return member_id


def _group(broker: Broker, group_id: str) -> GroupView:
    group = broker.groups.describe(group_id)
    if group is None or isinstance(group, ErrorCode):
        _, groups = broker.groups.groups()
        raise TestBrokerError(f"there is no group {group_id}; there are: {listed(each.group_id for each in groups)}")
    return group


def _described(members: list[MemberView]) -> str:
    return listed(
        f"{each.member_id} (client id {each.client_id}"
        + (f", instance id {each.group_instance_id})" if each.group_instance_id is not None else ")")
        for each in members
    )
