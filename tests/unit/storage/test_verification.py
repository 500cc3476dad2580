"""Verification of the first write of a transaction to a partition (KIP-890): which answers of the coordinator count."""

from __future__ import annotations

import pytest

from ottla.storage.producer_state import NOT_VERIFIED, ProducerState, Verification

pytestmark = pytest.mark.spec("X2")

PRODUCER = 7


def begun(state: ProducerState, epoch: int = 0, sequence: int = 0, now_ms: int = 0) -> Verification:
    found = state.begin_verification(PRODUCER, epoch, sequence, now_ms)
    assert found is not None
    return found


def test_a_write_needs_the_verification_that_was_begun_for_it() -> None:
    state = ProducerState()
    assert not state.may_write(PRODUCER, None)
    verification = begun(state)
    assert state.may_write(PRODUCER, verification)
    assert not state.may_write(PRODUCER, None)
    assert not state.may_write(PRODUCER + 1, verification)
    assert begun(state) is verification, "another request of the same producer waits for the same answer"


def test_one_that_was_forgotten_meanwhile_counts_no_more() -> None:
    state = ProducerState()
    old = begun(state, now_ms=1_000)
    assert state.expire(5_000, 10_000) == 0
    assert state.may_write(PRODUCER, old)
    state.expire(11_000, 10_000)
    assert not state.may_write(PRODUCER, old)
    new = begun(state)
    assert new is not old
    assert (state.may_write(PRODUCER, old), state.may_write(PRODUCER, new)) == (False, True)


def test_where_verification_is_off_everything_may_be_written() -> None:
    assert ProducerState().may_write(PRODUCER, NOT_VERIFIED)


def test_the_lowest_sequence_of_the_newest_epoch_is_kept() -> None:
    state = ProducerState()
    verification = begun(state, sequence=5)
    for epoch, sequence, lowest in ((0, 9, 5), (0, 2, 2), (1, 4, 4), (0, 0, 4), (1, 7, 4)):
        assert begun(state, epoch, sequence).lowest_sequence == lowest
    assert verification.epoch == 1
