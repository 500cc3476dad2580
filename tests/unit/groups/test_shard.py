"""One partition's groups: made, found, dropped; deadlines of all; transactions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.assign.consumer_protocol import encode_subscription
from ottla.groups.classic.group import GroupLimits
from ottla.groups.classic.states import GroupState
from ottla.groups.events import (
    CommitResult,
    DeleteGroup,
    ErrorResult,
    ExpireOffsets,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    LeavingMember,
    OffsetCommit,
    Step,
    SyncGroup,
    SyncResult,
    TopicsDeleted,
)
from ottla.groups.records import GroupMetadataValue, GroupRecord, LogRecord, OffsetRecord, StoredOffset
from ottla.groups.shard import GroupShard, refused, refused_while_loading
from ottla.records.control import TransactionMarker
from ottla.wire.errors import ErrorCode

VALUE = StoredOffset(1, -1, "", 0)
MEMBER = LeavingMember("m")
REQUESTS = [
    (
        JoinGroup("t", "g", "m", None, "c", "/h", 10_000, 1, "consumer", (), "1"),
        JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "m"),
    ),
    (SyncGroup("t", "g", 1, "m"), SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)),
    (Heartbeat("t", "g", 1, "m"), ErrorResult(ErrorCode.UNKNOWN_MEMBER_ID)),
    (LeaveGroup("t", "g", [MEMBER]), LeaveResult(ErrorCode.NONE, [(MEMBER, ErrorCode.UNKNOWN_MEMBER_ID)])),
    (OffsetCommit("t", "g", 1, "m", None, [("t", 0, VALUE)]), CommitResult([ErrorCode.ILLEGAL_GENERATION])),
    (DeleteGroup("t", "g"), ErrorResult(ErrorCode.GROUP_ID_NOT_FOUND)),
]


def shard() -> GroupShard:
    made = GroupShard(0, GroupLimits())
    made.loading = False
    return made


def joining(group: str, number: int, session_ms: int = 10_000) -> JoinGroup:
    protocols = (("range", encode_subscription(["t"])),)
    return JoinGroup(
        f"{group}{number}", group, "", None, "c", "/h", session_ms, 60_000, "consumer", protocols, str(number)
    )


@pytest.mark.spec("G1")
@pytest.mark.parametrize(("request_", "answer"), REQUESTS)
def test_groups_that_do_not_exist_are_not_made_by_asking(request_: object, answer: object):
    groups = shard()
    (reply,) = groups.handle(request_, 0).replies  # type: ignore[arg-type]
    assert (reply.token, reply.result) == ("t", answer)
    assert groups.machines == {}


def test_events_without_an_answer_for_groups_that_do_not_exist():
    assert shard().handle(TopicsDeleted("g", frozenset({"t"})), 0).replies == []


@pytest.mark.parametrize(("request_", "_"), REQUESTS)
def test_refusals_have_the_form_of_the_request(request_: object, _: object):
    result = refused(request_, ErrorCode.NOT_COORDINATOR)  # type: ignore[arg-type]
    errors = result.errors if isinstance(result, CommitResult) else [result.error]
    assert list(errors) == [ErrorCode.NOT_COORDINATOR]
    result = refused_while_loading(request_)  # type: ignore[arg-type]
    (error,) = result.errors if isinstance(result, CommitResult) else [result.error]
    expected = {SyncGroup: ErrorCode.REBALANCE_IN_PROGRESS, Heartbeat: ErrorCode.NONE}
    assert error is expected.get(type(request_), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def test_a_group_without_anything_is_dropped():
    groups = shard()
    step = groups.handle(joining("g", 1, session_ms=1), 0)
    assert "g" in groups.machines
    groups.settle(step)
    assert "g" not in groups.machines, "its only join was refused"
    groups.settle(Step(1, "nosuch"))


def test_a_group_that_was_asked_for_stays_until_it_is_deleted_or_an_expiry_run_comes_by():
    groups = shard()
    for group, end in (("g", ExpireOffsets("g", 1)), ("h", DeleteGroup(9, "h"))):
        step = groups.handle(replace(joining(group, 1), protocol_type=""), 0)
        assert [reply.result.error for reply in step.replies] == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
        groups.settle(step)
        assert groups.machines[group].state is GroupState.EMPTY
        step = groups.handle(end, 1)
        assert not step.batches, "it has nothing in the log"
        groups.settle(step)
        assert group not in groups.machines


def test_one_heap_for_the_deadlines_of_all():
    groups = shard()
    for number, group in enumerate(["a", "b", "c"]):
        groups.settle(groups.handle(joining(group, number), number * 100))
    assert groups.next_deadline_ms() == 3000
    assert groups.expire(2999) is None
    expired = []
    while (step := groups.expire(3100)) is not None:
        expired.append(step.group_id)
        groups.settle(step)
    assert expired == ["a", "b"]
    assert groups.next_deadline_ms() == 3200


def test_transactions_by_their_markers():
    groups = shard()
    groups.replay(OffsetRecord("g", "t", 0, VALUE), 0, producer_id=7)
    groups.replay(OffsetRecord("h", "t", 0, VALUE), 1, producer_id=7)
    groups.replay(OffsetRecord("i", "t", 0, VALUE), 2, producer_id=8)
    for number, (producer_id, is_commit) in enumerate([(7, True), (8, False), (9, True)]):
        groups.replay_marker(TransactionMarker(producer_id, 0, 0, is_commit), 3 + number)
    assert groups.machines["g"].committed.get(("t", 0)) is None
    assert groups.machines["i"].offsets.is_unstable("t", 0)
    groups.committed(6)
    found = {name: machine.committed.get(("t", 0)) for name, machine in groups.machines.items()}
    assert found == {"g": VALUE, "h": VALUE}, "nothing is left of the aborted one"


def test_a_group_of_offsets_only_is_gone_once_its_end_is_committed_by_other_brokers():
    """DeleteGroups had succeeded, and ListGroups showed the group until its coordinator moved."""
    groups = shard()
    groups.loading = False
    groups.replay(OffsetRecord("g", "t", 0, VALUE), 0)
    groups.committed(1)
    step = groups.handle(DeleteGroup(9, "g"), 5)
    (batch,) = step.batches
    for number, record in enumerate(batch.records):
        groups.replay(record, 1 + number)
        groups.committed(1)
    groups.settle(step)
    assert "g" in groups.machines, "its end is not committed yet"
    groups.committed(1 + len(batch.records))
    assert "g" not in groups.machines


@pytest.mark.parametrize("generation", [0, 1])
def test_a_deleted_group_does_not_come_back_with_an_open_transaction_where_the_log_is_loaded(generation: int):
    """As in Apache Kafka's `OffsetMetadataManager.deleteAllOffsets`."""
    groups, loaded = shard(), shard()
    groups.loading = False
    log: list[tuple[LogRecord, int]] = [(OffsetRecord("g", "t", 0, VALUE), -1), (OffsetRecord("g", "t", 1, VALUE), 7)]
    if generation:
        log.insert(0, (GroupRecord("g", GroupMetadataValue(generation=generation, protocol_type="consumer")), -1))
    for number, (record, producer_id) in enumerate(log):
        groups.replay(record, number, producer_id)
    groups.committed(len(log))
    step = groups.handle(DeleteGroup(9, "g"), 5)
    for record in step.batches[0].records:
        groups.replay(record, len(log))
        log.append((record, -1))
    groups.settle(step)
    for number, (record, producer_id) in enumerate(log):
        loaded.replay(record, number, producer_id)
        loaded.committed(number + 1)
    for each in (groups, loaded):
        each.replay_marker(TransactionMarker(7, 0, 0, is_commit=True), len(log))
        each.committed(len(log) + 1)
    for last in loaded.loaded(9):
        loaded.settle(last)
    assert [each.machines for each in (groups, loaded)] == [{}, {}]


def test_tombstones_of_what_is_not_there_make_nothing():
    groups = shard()
    groups.replay(OffsetRecord("g", "t", 0, None), 0)
    groups.replay(GroupRecord("g", None), 1)
    assert groups.machines == {}


def test_a_group_ends_and_its_name_is_used_again_for_offsets_only():
    groups = shard()
    groups.loading = True
    groups.replay(OffsetRecord("g", "t", 0, VALUE), 0)
    groups.replay(GroupRecord("g", None), 1)
    groups.replay(OffsetRecord("g", "t", 1, VALUE), 2)
    groups.committed(3)
    for step in groups.loaded(0):
        groups.settle(step)
    machine = groups.machines["g"]
    assert (machine.generation_id, len(machine.committed), groups.loading) == (0, 2, False)
