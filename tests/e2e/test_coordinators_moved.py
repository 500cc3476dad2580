"""Coordinators of groups that move from broker to broker, in a cluster of three on real sockets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from ottla.groups.classic.machine import GroupMachine
from ottla.groups.classic.states import GroupState
from ottla.groups.evidence import EVIDENCE_TOPIC
from ottla.peer.errors import KNOWN_CODES
from ottla.testing import Cluster
from ottla.testing.groups import expire_member
from ottla.wire.errors import ErrorCode
from support.raw_client import RawClient
from support.raw_members import GROUP, OFFSETS_TOPIC, Disconnected, Member, RawGroup
from support.waiting import wait_until


def port_of(cluster: Cluster, broker_id: int) -> int:
    return cluster.broker(broker_id).listening[0].port


def found(cluster: Cluster, broker_id: int, group: str = "g") -> ErrorCode:
    with RawClient(port_of(cluster, broker_id)) as client:
        return KNOWN_CODES[client.find_coordinator(group)]


def has_coordinator(cluster: Cluster, broker_id: int) -> bool:
    return found(cluster, broker_id) is ErrorCode.NONE


@pytest.mark.spec("G11")
def test_there_is_no_coordinator_before_enough_brokers_live(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(3) as cluster:
        cluster.kill(2)
        cluster.wait_for(lambda: all(len(cluster.broker(each).image.brokers) == 2 for each in (0, 1)))
        for broker_id in (0, 1, 0, 1):
            assert found(cluster, broker_id) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        told = [
            record for record in caplog.messages if "Replication factor: 3 larger than available brokers: 2." in record
        ]
        assert len(told) == 2, "each broker says it once"
        assert "set offsets.topic.replication.factor" in told[0]
        cluster.restart(2)
        for broker_id in range(3):
            wait_until(partial(has_coordinator, cluster, broker_id), "a coordinator")
        assert len(cluster.replicas("__consumer_offsets")) == 3


@pytest.fixture
def group() -> Iterator[RawGroup]:
    """Three members in a stable group, all of which have committed; the broker that coordinates them may be killed."""
    with Cluster(3) as cluster:
        made = RawGroup(cluster)
        try:
            made.form(3)
            yield made
        finally:
            made.close()


def generation(group: RawGroup) -> int:
    return group.check_settled()


@pytest.mark.spec("G11")
def test_phase_one_before_it_reacts(group: RawGroup) -> None:
    before = generation(group)
    newcomer = Member(group, "new")
    rule = group.cluster.faults(group.coordinator).drop("JoinGroup", client_id="new")
    newcomer.begin_join()
    rule.wait_until_fired()
    group.take_over()
    newcomer.disconnect()
    assert generation(group) == before, "nobody notices"
    # The newcomer, which never had an answer, joins the new coordinator.
    group.add(newcomer)
    assert generation(group) == before + 1


@pytest.mark.spec("G11")
def test_phase_two_some_were_told(group: RawGroup) -> None:
    before = generation(group)
    told, silent = group.followers
    expire(group, silent)
    assert told.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    group.take_over()
    # The silent one recovers before the failover is over, and the one that was told joins again: no rebalance.
    assert silent.heartbeat() is ErrorCode.NONE
    assert told.join() is ErrorCode.NONE
    assert told.sync() is ErrorCode.NONE
    assert generation(group) == before


@pytest.mark.spec("G11")
def test_phase_two_the_leader_was_told(group: RawGroup) -> None:
    before = generation(group)
    leader, (silent, third) = group.leader, group.followers
    expire(group, silent)
    assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    group.take_over()
    assert silent.heartbeat() is ErrorCode.NONE
    leader.begin_join()
    for member in (silent, third):
        wait_until(member.is_told, "the leader's rebalance")
        member.begin_join()
    for member in group.members:
        assert member.end_join() is ErrorCode.NONE
    group.sync_all(group.members)
    assert generation(group) == before + 1, "nobody is lost, nobody is new"


@pytest.mark.spec("G11")
def test_phase_three_some_had_joined(group: RawGroup) -> None:
    before = generation(group)
    newcomer = Member(group, "new")
    newcomer.begin_join()
    joined = group.followers[0]
    wait_until(joined.is_told, "the rebalance")
    joined.begin_join()
    wait_for_join(group, joined)
    group.take_over()
    newcomer.disconnect()
    # The joins are gone; who joins again is answered at once, and the newcomer rebalances.
    assert joined.join() is ErrorCode.NONE
    assert joined.sync() is ErrorCode.NONE
    assert generation(group) == before
    group.add(newcomer)
    assert generation(group) == before + 1


@pytest.mark.spec("G11")
def test_phase_four_the_generation_was_written_but_not_answered(group: RawGroup) -> None:
    before = generation(group)
    rejoin(group)
    group.cluster.faults(group.coordinator).cut("SyncGroup", 0)
    for member in (*group.followers, group.leader):
        member.begin_sync()
    for member in group.members:
        with pytest.raises(Disconnected):
            member.end_sync()
    group.take_over()
    # Generation and members are one record.
    for member in group.members:
        assert member.heartbeat(before) is ErrorCode.ILLEGAL_GENERATION
        assert member.heartbeat() is ErrorCode.NONE
        assert member.sync() is ErrorCode.NONE
    assert generation(group) == before + 1


@pytest.mark.spec("G11")
def test_phase_four_the_generation_was_written_and_not_copied(group: RawGroup) -> None:
    before = generation(group)
    rejoin(group)
    hold_back_followers(group)
    for member in (*group.followers, group.leader):
        member.begin_sync()
    machine = described(group)
    group.cluster.wait_for(lambda: machine.state is GroupState.STABLE, "the generation to be written")
    group.take_over()
    # Nobody was told the generation's assignment; the older generation is there again.
    for member in group.members:
        assert member.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    rejoin(group)
    group.sync_all(group.members)
    assert generation(group) == before + 1


@pytest.mark.spec("G11")
def test_phase_five_some_answers_were_sent(group: RawGroup) -> None:
    before = generation(group)
    rejoin(group)
    late, other = group.followers
    leader = group.leader
    group.cluster.faults(group.coordinator).cut("SyncGroup", 0, client_id=late.name)
    for member in (late, other, leader):
        member.begin_sync()
    assert leader.end_sync() is ErrorCode.NONE
    assert other.end_sync() is ErrorCode.NONE
    with pytest.raises(Disconnected):
        late.end_sync()
    group.take_over()
    # Holders of the new generation continue; a follower that joins again is answered at once.
    for member in (leader, other):
        assert member.heartbeat() is ErrorCode.NONE
        assert member.commit(member.owned[0], 50) is ErrorCode.NONE
    assert late.join() is ErrorCode.NONE
    assert late.sync() is ErrorCode.NONE
    assert generation(group) == before + 1
    # The leader's join rebalances.
    leader.begin_join()
    for member in (late, other):
        wait_until(member.is_told, "the leader's rebalance")
        member.begin_join()
    for member in group.members:
        assert member.end_join() is ErrorCode.NONE
    group.sync_all(group.members)
    assert generation(group) == before + 2


@pytest.mark.spec("G11")
def test_phase_five_a_member_that_comes_too_late_counts_as_new(group: RawGroup) -> None:
    before = generation(group)
    group.take_over()
    leader, (late, other) = group.leader, group.followers
    expire(group, late)
    late.owned = ()
    assert late.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    for member in (leader, other):
        assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        member.begin_join()
    for member in (leader, other):
        assert member.end_join() is ErrorCode.NONE
    group.sync_all((leader, other))
    former_id = late.member_id
    assert late.join() is ErrorCode.UNKNOWN_MEMBER_ID
    late.begin_join()
    for member in (leader, other):
        wait_until(member.is_told, "the newcomer's rebalance")
        member.begin_join()
    for member in group.members:
        assert member.end_join() is ErrorCode.NONE
    group.sync_all(group.members)
    assert late.member_id != former_id
    assert generation(group) == before + 2


@pytest.mark.spec("G11")
def test_between_the_answers_to_joins_and_the_leaders_assignment(group: RawGroup) -> None:
    before = generation(group)
    rejoin(group)
    assert {member.generation for member in group.members} == {before + 1}
    group.take_over()
    for member in group.members:
        assert member.heartbeat() is ErrorCode.ILLEGAL_GENERATION
        assert member.heartbeat(before) is ErrorCode.NONE
    rejoin(group)
    group.sync_all(group.members)
    assert generation(group) == before + 1


@pytest.mark.spec("G11")
def test_a_coordinator_that_lives_on_answers_who_waits(group: RawGroup) -> None:
    before, cluster = generation(group), group.cluster
    preferred = group.take_over()
    cluster.restart(preferred)
    cluster.wait_until_in_sync(OFFSETS_TOPIC)
    newcomer = Member(group, "new")
    newcomer.begin_join()
    wait_until(lambda: rebalances(group.leader), "the rebalance")
    assert cluster.controller is not None
    control = cluster.broker(cluster.controller).control
    assert cluster._running.run(control.admin.elect_preferred([(OFFSETS_TOPIC, 0)])) == {}
    assert newcomer.end_join() is ErrorCode.NOT_COORDINATOR
    for member in group.members:
        assert member.heartbeat() is ErrorCode.NOT_COORDINATOR
    group.moved(preferred)
    newcomer.disconnect()
    assert generation(group) == before
    group.add(newcomer)
    assert generation(group) == before + 1


@pytest.mark.spec("G10", "G11")
def test_ottla_group_why_names_the_move(group: RawGroup) -> None:
    """Though the evidence has another leader than the group, and that one may have been the broker that died."""
    for last in (3, 4, 5):
        # What all brokers have survives the kill.
        wait_until(partial(is_everywhere, group, last), f"the evidence of generation {last}")
        former = group.take_over()
        rejoin(group)
        group.sync_all(group.members)
        group.cluster.restart(former)
        group.cluster.wait_until_in_sync()
    last = generation(group)
    wait_until(partial(is_everywhere, group, last), f"the evidence of generation {last}")
    command = ["group", "why", GROUP, "-b", group.cluster.bootstrap_servers, "--last", "4"]
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *command], capture_output=True, text=True, timeout=120, check=True
    )
    assert re.findall(r"→ (\d+) ", done.stdout) == ["3", "4", "5", "6"], "no evidence is lost"
    assert done.stdout.count("the coordinator of the group moved") == 3
    assert done.stdout.count("the leader, m0") == 3


def is_everywhere(group: RawGroup, generation: int) -> bool:
    """Whether each broker has the evidence of the rebalance that led to a generation."""
    for broker_id in group.cluster.running:
        if EVIDENCE_TOPIC not in group.cluster.broker(broker_id).image.topics:
            return False
        records = group.cluster.records(EVIDENCE_TOPIC, broker=broker_id)
        if not any(json.loads(each.value or b"{}")["generation"] == generation for each in records):
            return False
    return True


def rejoin(group: RawGroup) -> None:
    """The leader asks for a rebalance, and everybody joins; nobody has synced yet."""
    leader, followers = group.leader, group.followers
    leader.begin_join()
    for member in followers:
        wait_until(partial(rebalances, member), "the rebalance")
        member.begin_join()
    for member in group.members:
        assert member.end_join() is ErrorCode.NONE


def rebalances(member: Member) -> bool:
    """Whether the member is told of the rebalance, or that its generation is not there."""
    return member.heartbeat() in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


def expire(group: RawGroup, member: Member) -> None:
    """The coordinator has not heard of a member for its session timeout."""
    server = group.cluster.broker(group.coordinator)
    group.cluster._running.call(expire_member, server, GROUP, member.member_id)


def hold_back_followers(group: RawGroup) -> None:
    """The other brokers copy nothing of the coordinator's from now on."""
    rule = group.cluster.faults(group.coordinator).drop(
        "Fetch", when=lambda request: request.replica_state.replica_id >= 0
    )
    rule.wait_until_fired(2)


def described(group: RawGroup) -> GroupMachine:
    """The group in the words of its coordinator."""
    machine = group.cluster.broker(group.coordinator).groups.describe(GROUP)
    assert isinstance(machine, GroupMachine)
    return machine


def wait_for_join(group: RawGroup, member: Member) -> None:
    """Until the member's join waits for those of the others."""
    known = described(group).members.get(member.member_id)
    assert known is not None
    group.cluster.wait_for(lambda: known.join_token is not None, f"the join of {member.name}")
