"""What the transcripts of tests/scenarios/groups leave out: results in full, contract, story."""

from __future__ import annotations

import pytest

from ottla.assign.consumer_protocol import encode_assignment, encode_subscription
from ottla.groups.classic.group import JOIN, SYNC, GroupLimits
from ottla.groups.classic.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.groups.classic.machine import GroupMachine
from ottla.groups.classic.states import GroupState
from ottla.groups.events import (
    AppendFailed,
    Heartbeat,
    JoinedMember,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncResult,
)
from ottla.groups.records import GroupRecord
from ottla.wire.errors import ErrorCode

METADATA = encode_subscription(["t"])


def machine(**limits: int) -> GroupMachine:
    return GroupMachine("g", 4, GroupLimits(initial_rebalance_delay_ms=0, **limits))


def join(token: str, member_id: str = "", **more: object) -> JoinGroup:
    event = JoinGroup(
        token, "g", member_id, None, "client", "/h", 10_000, 30_000, "consumer", (("range", METADATA),), f"id{token}"
    )
    for name, value in more.items():
        setattr(event, name, value)
    return event


def carry_out(group: GroupMachine, step: object, offset: int = 0) -> None:
    for batch in step.batches:  # type: ignore[attr-defined]
        for record in batch.records:
            group.replay(record, offset)
    group.check_invariants()


def stable() -> GroupMachine:
    group = machine()
    group.handle(join("1"), 0)
    sync = SyncGroup("2", "g", 1, "client-id1", assignments={"client-id1": encode_assignment({"t": [0]})})
    carry_out(group, group.handle(sync, 5))
    return group


def test_the_leaders_answer_in_full():
    group = machine()
    step = group.handle(join("1"), 0)
    (reply,) = step.replies
    assert (reply.token, step.group_id, step.batches) == ("1", "g", [])
    assert reply.result == JoinResult(
        ErrorCode.NONE,
        "client-id1",
        1,
        "consumer",
        "range",
        "client-id1",
        members=[JoinedMember("client-id1", None, METADATA)],
    )


def test_an_assignment_takes_place_in_replay_only():
    group = machine()
    group.handle(join("1"), 0)
    assignment = encode_assignment({"t": [0]})
    step = group.handle(SyncGroup("2", "g", 1, "client-id1", assignments={"client-id1": assignment}), 5)
    assert group.state is GroupState.COMPLETING_REBALANCE
    (batch,) = step.batches
    assert batch.partition == 4
    (record,) = batch.records
    assert isinstance(record, GroupRecord)
    assert record.value is not None
    assert record.value.current_state_timestamp == 0, "that of CompletingRebalance, as Apache Kafka writes it"
    assert [reply.result for reply in step.replies] == [SyncResult(ErrorCode.NONE, "consumer", "range", assignment)]
    assert step.notes == []
    carry_out(group, step)
    assert group.state is GroupState.STABLE
    assert [note.value["outcome"] for note in step.notes] == ["stable"]


@pytest.mark.spec("G3")
def test_deadlines():
    group = machine()
    assert group.next_deadline_ms() is None
    group.handle(join("1", session_timeout_ms=10_000, rebalance_timeout_ms=30_000), 100)
    assert (group.deadlines.get("client-id1"), group.deadlines.get(SYNC)) == (10_100, 30_100)
    assert JOIN not in group.deadlines
    group.handle(join("2"), 200)
    assert (group.deadlines.get(JOIN), SYNC in group.deadlines) == (30_200, False)
    assert group.deadlines.get("client-id2") == 200 + NEW_MEMBER_JOIN_TIMEOUT_MS
    assert group.next_deadline_ms() == 10_100


@pytest.mark.spec("G3")
def test_only_one_delayed_join_however_many_join():
    group = stable()
    for number in range(10, 20):
        group.handle(join(str(number)), number)
    assert group.deadlines.get(JOIN) == 10 + 30_000


def test_a_new_member_that_waits_too_long_is_reported():
    group = machine()
    group.handle(join("1", group_instance_id="i", rebalance_timeout_ms=10**7, session_timeout_ms=1_800_000), 0)
    group.handle(join("2", rebalance_timeout_ms=10**7), 0)
    step = group.expire(NEW_MEMBER_JOIN_TIMEOUT_MS)
    (reply,) = step.replies
    assert (reply.token, reply.result) == ("2", JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))


def test_expire_stops_at_the_first_batch():
    group = stable()
    group.handle(join("3", requires_member_id=True, session_timeout_ms=10_006), 0)
    step = group.expire(10_006)
    assert len(step.batches) == 1, "the only member has expired"
    assert group.members.pending, "the pending one has too, and its turn comes next"
    carry_out(group, step)
    assert group.state is GroupState.EMPTY
    assert group.next_deadline_ms() == 10_006
    assert group.expire(10_006).batches == []
    assert not group.members.pending


def test_heartbeat_as_event_and_as_call_are_one():
    group = stable()
    (reply,) = group.handle(Heartbeat("h", "g", 1, "client-id1"), 10).replies
    assert reply.result.error is ErrorCode.NONE  # type: ignore[union-attr]
    assert group.heartbeat("client-id1", None, 1, 20) is ErrorCode.NONE
    assert group.deadlines.get("client-id1") == 10_020
    assert group.heartbeat("client-id1", None, 2, 30) is ErrorCode.ILLEGAL_GENERATION
    assert group.heartbeat("client-id1", "instance", 1, 30) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.deadlines.get("client-id1") == 10_020


def test_evidence_says_when_a_heartbeat_notified_a_member():
    group = stable()
    group.handle(join("3"), 10)
    assert group.heartbeat("client-id1", None, 1, 20) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.heartbeat("client-id1", None, 1, 30) is ErrorCode.REBALANCE_IN_PROGRESS
    carry_out(group, group.handle(join("4", "client-id1"), 40))
    assignments = dict.fromkeys(("client-id1", "client-id3"), encode_assignment({"t": []}))
    carry_out(group, group.handle(SyncGroup("5", "g", 2, "client-id1", assignments=assignments), 50))
    (evidence,) = group.handle(SyncGroup("6", "g", 2, "client-id3", assignments={}), 60).notes
    notified = {each["member_id"]: each["told_at_ms"] for each in evidence.value["members"]}
    assert notified == {"client-id1": 20, "client-id3": None}


def test_a_failure_of_another_step_is_nobodys():
    group = stable()
    step = group.handle(AppendFailed("g", 99, ErrorCode.KAFKA_STORAGE_ERROR), 10)
    assert (step.replies, group.state) == ([], GroupState.STABLE)


def test_unload_answers_who_waits():
    group = stable()
    group.handle(join("3"), 10)
    step = group.unload(20)
    assert [(reply.token, reply.result) for reply in step.replies] == [
        ("3", JoinResult(ErrorCode.NOT_COORDINATOR, "client-id3"))
    ]
    assert group.state is GroupState.DEAD
    assert [note.value["outcome"] for note in step.notes] == ["superseded"]
    group = stable()
    group.handle(join("3"), 10)
    group.handle(join("4", "client-id1"), 10)
    group.handle(SyncGroup("5", "g", 2, "client-id3"), 10)
    assert [(reply.token, reply.result) for reply in group.unload(20).replies] == [
        ("5", SyncResult(ErrorCode.NOT_COORDINATOR))
    ]


@pytest.mark.spec("G2")
def test_a_group_loaded_too_large_sheds_members():
    records = []
    group = machine()
    for number in range(3):
        group.handle(join(str(number)), 0)
    group.handle(join("again", "client-id0"), 0)
    step = group.handle(SyncGroup("s", "g", group.generation_id, "client-id0"), 0)
    records += [record for batch in step.batches for record in batch.records]
    loaded = machine(max_size=2)
    for record in records:
        loaded.replay(record, 0)
    assert loaded.state is GroupState.STABLE
    loaded.loaded(100)
    assert loaded.state is GroupState.PREPARING_REBALANCE
    results = []
    for number in range(3):
        results += loaded.handle(join(f"r{number}", f"client-id{number}"), 200).replies
    errors = {reply.token: reply.result.error for reply in results}  # type: ignore[union-attr]
    assert errors == {
        "r0": ErrorCode.NONE,
        "r1": ErrorCode.NONE,
        "r2": ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
    loaded.check_invariants()


def test_the_story_reports_what_led_here():
    group = stable()
    group.handle(LeaveGroup("l", "g", [LeavingMember("client-id1", None, "bye")]), 50)
    story = group.story()
    assert story.startswith("group 'g': PreparingRebalance, generation 1")
    assert "0 Empty -> PreparingRebalance, generation 0" in story
    assert "50 rebalance: member_left client-id1" in story
    for number in range(500):
        group._note(number, "something")
    assert len(group.story().splitlines()) < 100


def test_broken_invariants_are_reported_with_the_story():
    group = stable()
    group.pending_sync.add("nobody")
    group.deadlines.set("who", 1)
    with pytest.raises(AssertionError) as caught:
        group.check_invariants()
    text = str(caught.value)
    for part in ("nobody should sync but is not", "sync deadline None", "deadline of who", "group 'g': Stable"):
        assert part in text


@pytest.mark.spec("G12")
def test_a_group_that_apache_kafka_left_with_old_records():
    """Values of version 0 have neither rebalance timeout nor time."""
    group = stable()
    record = group._generation_record(group.members, group.members.leader, {"client-id1": b""})
    assert record.value is not None
    record.value.current_state_timestamp = -1
    for member in record.value.members:
        member.rebalance_timeout = -1
    loaded = machine()
    loaded.replay(record, 0)
    (member,) = loaded.members
    assert (member.rebalance_timeout_ms, loaded.state_timestamp_ms) == (10_000, None)
    loaded.loaded(7)
    assert loaded.deadlines.get("client-id1") == 10_007
    loaded.check_invariants()
