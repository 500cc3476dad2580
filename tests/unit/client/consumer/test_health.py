"""What a consumer tells of its group when it makes no progress."""

from __future__ import annotations

import pytest

from ottla.client.consumer.health import HealthCause, group_findings, problem_finding
from ottla.client.consumer.membership import MemberSettings, Membership
from ottla.client.errors import BrokerError, BrokerUnreachableError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

pytestmark = pytest.mark.spec("G10")


@pytest.fixture
def member() -> Membership:
    return Membership(MemberSettings("g", "instance"))


def names(member: Membership, now_ms: float = 0, *, has_partitions: bool = False) -> tuple[HealthCause, str] | None:
    found = group_findings(member, now_ms, has_partitions=has_partitions)
    assert len(found) <= 1
    return (found[0].cause, found[0].message) if found else None


def request(member: Membership) -> JoinGroupRequest | SyncGroupRequest:
    found = member.actions.pop().request
    member.actions.clear()
    return found


def test_each_step_of_a_member(member: Membership) -> None:
    assert names(member) == (HealthCause.NOT_JOINED, "the group is not joined yet: poll")
    member.start(0)
    member.coordinator_not_found(BrokerUnreachableError("nobody listens", retriable=True), 500)
    looking = "the group's coordinator is not found for 2.0 s: nobody listens"
    assert names(member, 2_000) == (HealthCause.NO_COORDINATOR, looking)
    member.coordinator_found(2_000)
    assert names(member, 2_000) == (HealthCause.REBALANCING, "the group is rebalancing; poll to take part")
    member.join([], 3_000)
    waits = "the group is rebalancing for 1.5 s; it waits for other members to join"
    assert names(member, 4_500) == (HealthCause.REBALANCING, waits)
    joined = JoinGroupResponse(generation_id=1, protocol_name="range", leader="other", member_id="m")
    member.receive(request(member), joined, 5_000)
    assert "it waits for the assignment of its leader" in names(member, 5_000)[1]
    member.receive(request(member), SyncGroupResponse(), 5_000)
    assert names(member, 5_000)[1].endswith("poll to take part")
    member.assignment_taken()
    assert names(member, 5_000)[0] is HealthCause.NO_PARTITIONS
    assert names(member, 5_000, has_partitions=True) is None
    member.kicked_out(ErrorCode.FENCED_INSTANCE_ID, "heartbeat")
    assert names(member, 5_000)[0] is HealthCause.FENCED


def test_problems_of_partitions_and_of_brokers() -> None:
    assert problem_finding(BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "t-0")).cause is HealthCause.NO_LEADER
    assert problem_finding(BrokerUnreachableError("nobody listens")).cause is HealthCause.BROKER
