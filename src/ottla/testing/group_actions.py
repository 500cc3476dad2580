"""Actions of a test on consumer groups: a rebalance, the end of a member's session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.groups.events import ExpireMember, RequestRebalance
from ottla.testing.errors import TestBrokerError
from ottla.testing.faults.named import listed
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.server import Broker
    from ottla.groups.machine import GroupMachine
    from ottla.groups.membership import GroupMemberState


def rebalance(broker: Broker, group_id: str, reason: str | None) -> None:
    """Ask all members of the group to rejoin. Raises `TestBrokerError`."""
    group = _group(broker, group_id)
    if not len(group.members):
        raise TestBrokerError(f"the group {group_id} has no members, so that nobody can rejoin")
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


def _group(broker: Broker, group_id: str) -> GroupMachine:
    group = broker.groups.describe(group_id)
    if group is None or isinstance(group, ErrorCode):
        _, groups = broker.groups.groups()
        raise TestBrokerError(f"there is no group {group_id}; there are: {listed(each.group_id for each in groups)}")
    return group


def _described(members: list[GroupMemberState]) -> str:
    return listed(
        f"{each.member_id} (client id {each.client_id}"
        + (f", instance id {each.group_instance_id})" if each.group_instance_id is not None else ")")
        for each in members
    )
