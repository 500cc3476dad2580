"""Markers: when they are sent, what their leaders may answer, and coordinators that change meanwhile."""

from __future__ import annotations

import pytest

from ottla.txn.machine import RETRY_BACKOFF_MS
from ottla.txn.states import TransactionState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersResponse
from support.transaction_world import FIRST_PRODUCER_ID as FIRST
from support.transaction_world import OFFSETS, T0, T1, World, marker_response

pytestmark = pytest.mark.spec("X1")

ONGOING, PREPARE_COMMIT = TransactionState.ONGOING, TransactionState.PREPARE_COMMIT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
RETRIED = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
]
FENCING = [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]


def ending(*partitions: tuple[str, int]) -> World:
    world = World()
    world.put(ONGOING, partitions=frozenset(partitions))
    world.end()
    return world


def test_each_partition_is_sent_one():
    world = ending(T1, OFFSETS, T0)
    assert list(world.markers) == [OFFSETS, T0, T1]
    assert set(world.markers.values()) == {(FIRST, 5, world.coordinator_epoch, True)}


def test_it_is_complete_when_each_partition_has_one():
    world = ending(T0, T1, OFFSETS)
    for partition, missing in ((T1, {T0, OFFSETS}), (OFFSETS, {T0})):
        world.write_marker(partition)
        assert world.metadata.state is PREPARE_COMMIT
        view = world.machine.view()
        assert view is not None
        assert view.partitions == missing
    world.write_marker(T0)
    assert world.metadata.state is COMPLETE_COMMIT


@pytest.mark.parametrize("error", RETRIED)
def test_errors_that_pass_are_tried_again_after_a_pause(error: ErrorCode):
    world = ending(T0, T1)
    world.write_marker(T0, error)
    world.write_marker(T1)
    world.advance(RETRY_BACKOFF_MS - 1)
    assert world.asked == []
    world.advance(1)
    assert list(world.markers) == [T0]
    world.write_all_markers()
    assert world.metadata.state is COMPLETE_COMMIT


@pytest.mark.parametrize("error", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE])
def test_a_leader_that_cannot_be_reached_is_tried_again(error: ErrorCode):
    world = ending(T0)
    world.answer(world.asked[0], error)
    assert (world.metadata.state, world.asked) == (PREPARE_COMMIT, [])
    world.advance(RETRY_BACKOFF_MS)
    assert list(world.markers) == [T0]
    world.write_all_markers()
    assert world.metadata.state is COMPLETE_COMMIT


def test_an_answer_about_nothing_is_no_answer():
    world = ending(T0)
    world.answer(world.asked[0], response=WriteTxnMarkersResponse())
    assert world.metadata.state is PREPARE_COMMIT
    world.advance(RETRY_BACKOFF_MS)
    assert list(world.markers) == [T0]


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_a_partition_of_an_old_message_format_needs_none(error: ErrorCode):
    world = ending(T0)
    world.write_marker(T0, error)
    assert world.metadata.state is COMPLETE_COMMIT


def test_a_partition_that_is_gone_needs_none():
    world = ending(T0)
    world.answer(world.asked[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert world.metadata.state is COMPLETE_COMMIT


@pytest.mark.parametrize("error", FENCING)
def test_a_coordinator_that_is_fenced_sends_no_more(error: ErrorCode):
    world = ending(T0, T1, OFFSETS)
    world.write_marker(T0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.write_marker(T1, error)
    world.write_marker(OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.shard.next_deadline_ms() is None
    world.advance(600_000)
    assert (world.asked, world.metadata.state) == ([], PREPARE_COMMIT)


@pytest.mark.parametrize("state", [PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_a_coordinator_that_takes_over_sends_all_again_in_its_epoch(state: TransactionState):
    world = World()
    world.put(state, partitions=frozenset({T0, T1}))
    world.write_marker(T0)
    former = world.coordinator_epoch
    world.restart()
    is_commit = state is PREPARE_COMMIT
    assert set(world.markers.values()) == {(FIRST, 5, former + 1, is_commit)}
    assert list(world.markers) == [T0, T1]
    world.write_all_markers()
    assert world.metadata.state is (COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)


def test_a_coordinator_that_takes_over_completes_what_has_no_partitions():
    world = World()
    world.put(PREPARE_COMMIT, partitions=frozenset())
    assert (world.metadata.state, world.asked) == (COMPLETE_COMMIT, [])


def test_the_same_leader_in_a_newer_epoch_sends_what_is_missing_in_that_epoch():
    world = ending(T0, T1)
    late = world.asked[1]
    world.write_marker(T0)
    for step in world.shard.lead(7, world.now_ms):
        world.carry_out(step)
    world.answer(late, response=marker_response(T1, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
    assert [marker.coordinator_epoch for marker in world.markers.values()] == [7]
    world.write_all_markers()
    assert world.metadata.state is COMPLETE_COMMIT


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, *FENCING])
def test_a_newer_epoch_begins_afresh(error: ErrorCode):
    world = ending(T0, T1)
    world.write_marker(T0, error)
    world.asked.clear()
    for step in world.shard.lead(7, world.now_ms):
        world.carry_out(step)
    world.advance(10 * RETRY_BACKOFF_MS)
    assert [request.destination for request in world.asked] == [T0, T1], "once"
    world.write_marker(T1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.advance(RETRY_BACKOFF_MS)
    assert [request.destination for request in world.asked] == [T0, T1], "once"
    world.write_all_markers()
    assert world.metadata.state is COMPLETE_COMMIT


def test_a_newer_epoch_while_the_partition_loads_sends_nothing_yet():
    world = ending(T0)
    shard = world.restored()
    assert list(shard.lead(9, world.now_ms)) == []
    (step,) = shard.loaded(world.now_ms)
    assert len(step.requests) == 1
    assert step.requests[0].token[-1] == 9  # type: ignore[index]


def test_a_late_answer_from_a_former_transaction_is_ignored():
    world = World(2)
    world.put(ONGOING)
    world.end()
    late = world.asked[0]
    world.write_all_markers()
    world.add(T0)
    world.end()
    world.asked.append(late)
    world.answer(late, response=marker_response(T0, ErrorCode.NONE))
    assert world.metadata.state is PREPARE_COMMIT
    world.write_all_markers()
    assert world.metadata.state is COMPLETE_COMMIT
    world.asked.append(late)
    world.answer(late, ErrorCode.NETWORK_EXCEPTION)
    assert world.metadata.state is COMPLETE_COMMIT


def test_a_completion_that_the_log_refuses_is_written_later():
    world = ending(T0)
    world.errors = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS]
    world.write_all_markers()
    assert world.metadata.state is PREPARE_COMMIT
    world.advance(RETRY_BACKOFF_MS)
    assert world.metadata.state is PREPARE_COMMIT
    world.advance(RETRY_BACKOFF_MS)
    assert (world.metadata.state, world.errors) == (COMPLETE_COMMIT, [])
