from __future__ import annotations

import re

import pytest

from ottla.client.consumer.subscription_state import (
    FetchPosition,
    FetchState,
    LeaderAndEpoch,
    OffsetReset,
    SubscriptionState,
    SubscriptionType,
)
from ottla.client.errors import IllegalStateError, InvalidArgumentError
from ottla.client.model import OffsetAndMetadata, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
LEADER_5 = LeaderAndEpoch(1, 5)
LEADER_6 = LeaderAndEpoch(2, 6)

pytestmark = pytest.mark.spec("C1")


@pytest.fixture
def state():
    return SubscriptionState(OffsetReset.EARLIEST)


@pytest.fixture
def reading(state):
    """Two partitions of `a`, both being read from offset 10."""
    state.assign_from_user([A0, A1])
    for each in (A0, A1):
        state.state(each).settle_at(FetchPosition(10, 4, LEADER_5))
    return state


def fetchable(state):
    return [each for each, known in state.snapshot().items() if known.is_fetchable]


def test_the_kinds_of_subscription_exclude_each_other(state):
    assert state.has_no_subscription_or_user_assignment
    assert state.subscribe(["a"]) is True
    assert state.subscribe(["a"]) is False
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        state.assign_from_user([A0])
    with pytest.raises(IllegalStateError, match="pattern"):
        state.subscribe_pattern(re.compile("a"))
    state.unsubscribe()
    state.assign_from_user([A0])
    with pytest.raises(IllegalStateError, match="user assigned"):
        state.subscribe(["a"])
    assert state.type is SubscriptionType.USER_ASSIGNED
    assert state.metadata_topics() == {"a"}


def test_a_pattern_matches_whole_names(state):
    state.subscribe_pattern(re.compile("a.*"))
    assert state.matches_pattern("ab")
    assert not state.matches_pattern("ba")
    assert state.subscribe_from_pattern(["ab", "ac"]) is True
    assert state.subscribe_from_pattern(["ac", "ab"]) is False
    assert state.subscription == {"ab", "ac"}


def test_a_leader_of_a_group_needs_metadata_of_all_topics(state):
    state.subscribe(["a"])
    assert state.group_subscribe(["a", "b"]) is True
    assert state.group_subscribe(["b"]) is False
    assert state.metadata_topics() == {"a", "b"}
    state.reset_group_subscription()
    assert state.metadata_topics() == {"a"}


def test_partitions_kept_keep_position_and_pause(state):
    state.subscribe(["a", "b"])
    state.assign_from_subscribed([A0, A1])
    state.state(A1).settle_at(FetchPosition(7))
    state.pause([A1])
    before = state.assignment_id
    state.assign_from_subscribed([A1, B0])
    assert list(state.assigned_partitions) == [A1, B0]
    assert state.assignment_id > before
    assert state.state(A1).position == FetchPosition(7)
    assert state.paused_partitions() == {A1}
    assert state.in_state(FetchState.INITIALIZING) == [B0]


def test_the_way_of_a_position(state):
    state.assign_from_user([A0])
    assert not state.has_all_fetch_positions()
    assert state.reset_initializing_positions() == []
    assert state.in_state(FetchState.AWAIT_RESET, 0) == [A0]
    state.set_next_allowed_retry([A0], 100)
    assert state.in_state(FetchState.AWAIT_RESET, 99) == []
    assert state.complete_reset(A0, OffsetReset.LATEST, FetchPosition(3)) is False
    assert state.complete_reset(A0, OffsetReset.EARLIEST, FetchPosition(3)) is True
    assert state.has_all_fetch_positions()
    assert fetchable(state) == [A0]
    state.request_reset(A0, OffsetReset.LATEST)
    assert state.settled is False
    state.seek(A0, FetchPosition(5))
    assert state.complete_reset(A0, OffsetReset.LATEST, FetchPosition(3)) is False
    assert state.valid_position(A0) == FetchPosition(5)


def test_without_a_policy_there_is_no_reset():
    state = SubscriptionState(OffsetReset.NONE)
    state.assign_from_user([A0])
    assert state.reset_initializing_positions() == [A0]
    assert state.state(A0).fetch_state is FetchState.INITIALIZING


def test_what_is_paused_or_about_to_go_is_not_handed_out(reading):
    reading.pause([A0])
    assert fetchable(reading) == [A1]
    reading.resume([A0])
    reading.mark_pending_revocation([A0, B0])
    assert fetchable(reading) == [A1]


def test_a_commit_without_arguments(reading):
    reading.request_reset(A1)
    assert reading.all_consumed() == {A0: OffsetAndMetadata(10, "", 4)}


@pytest.mark.spec("P6")
def test_a_transaction_gets_positions_that_await_validation_too(reading):
    """The records before them are in the transaction; without their offsets they would be read again."""
    reading.request_reset(A1)
    reading.maybe_validate_position(A0, LEADER_6)
    assert reading.all_consumed() == {}
    assert reading.positions() == {A0: OffsetAndMetadata(10, "", 4)}


def test_calls_that_cannot_be(reading):
    with pytest.raises(IllegalStateError, match=r"b-0 is not assigned .* a-0, a-1"):
        reading.state(B0)
    with pytest.raises(IllegalStateError):
        reading.pause([A0, B0])
    assert reading.paused_partitions() == set()
    with pytest.raises(InvalidArgumentError, match="-3"):
        reading.seek(A0, FetchPosition(-3))
    with pytest.raises(IllegalStateError):
        reading.assign_from_subscribed([A0])


def test_a_new_leader_asks_for_validation(reading):
    assert reading.maybe_validate_position(A0, LEADER_5) is False
    reading.set_preferred_read_replica(A0, 3, until_ms=1000)
    assert reading.maybe_validate_position(A0, LEADER_6) is True
    assert reading.state(A0).replica_to_read(0) is None
    assert reading.in_state(FetchState.AWAIT_VALIDATION, 0) == [A0]
    assert not reading.has_all_fetch_positions()
    asked = reading.state(A0).position
    assert asked == FetchPosition(10, 4, LEADER_6)
    assert reading.complete_validation(A0, FetchPosition(9, 4, LEADER_6), (0, 4)) is None  # an answer to another
    assert reading.complete_validation(A0, asked, (10, 4)) is None
    assert reading.valid_position(A0) == asked


def test_a_truncated_log_is_read_from_where_it_was_cut(reading):
    reading.maybe_validate_position(A0, LEADER_6)
    assert reading.complete_validation(A0, reading.state(A0).position, (8, 3)) is None
    assert reading.valid_position(A0) == FetchPosition(8, 3, LEADER_6)
    reading.maybe_validate_position(A1, LEADER_6)
    assert reading.complete_validation(A1, reading.state(A1).position, None) is None
    assert reading.in_state(FetchState.AWAIT_RESET, 0) == [A1]


@pytest.mark.parametrize(("end", "divergent"), [((8, 3), OffsetAndMetadata(8, "", 3)), (None, None)])
def test_a_truncated_log_is_reported_without_a_policy(end, divergent):
    state = SubscriptionState(OffsetReset.NONE)
    state.assign_from_user([A0])
    state.seek(A0, FetchPosition(10, 4, LEADER_5))
    truncation = state.complete_validation(A0, FetchPosition(10, 4, LEADER_5), end)
    assert truncation is not None
    assert truncation.divergent_offset == divergent
    assert state.valid_position(A0) is None


def test_a_position_without_epoch_needs_no_validation(state):
    state.assign_from_user([A0])
    state.seek(A0, FetchPosition(10, -1, LEADER_5))
    assert state.maybe_validate_position(A0, LEADER_6) is False
    assert state.valid_position(A0) == FetchPosition(10, -1, LEADER_6)
    state.seek(A0, FetchPosition(10, 4, LEADER_5))
    state.skip_validation(A0)
    assert state.valid_position(A0) is not None


def test_a_preferred_replica_is_preferred_for_a_while(reading):
    reading.set_preferred_read_replica(A0, 3, until_ms=1000)
    assert reading.state(A0).replica_to_read(1000) == 3
    assert reading.state(A0).replica_to_read(1001) is None
    reading.set_preferred_read_replica(A0, 3, until_ms=1000)
    assert reading.state(A0).replica_to_read(1000) == 3
    reading.clear_preferred_read_replica(A0)
    assert reading.state(A0).replica_to_read(0) is None


def test_lag(reading):
    assert reading.state(A0).lag(read_committed=False) is None
    reading.state(A0).high_watermark = 25
    reading.state(A0).last_stable_offset = 12
    assert reading.state(A0).lag(read_committed=False) == 15
    assert reading.state(A0).lag(read_committed=True) == 2


@pytest.mark.spec("C7")
def test_a_partition_that_was_to_be_revoked_and_is_given_back_is_read_on(state):
    state.subscribe(["a"])
    state.assign_from_subscribed([A0, A1])
    for each in (A0, A1):
        state.state(each).settle_at(FetchPosition(10, 4, LEADER_5))
    state.mark_pending_revocation([A0])
    assert fetchable(state) == [A1]
    state.assign_from_subscribed([A0, A1])
    assert fetchable(state) == [A0, A1]
