"""Verification of the first write of a transaction to a partition (KIP-890): which answers of the coordinator count."""

from __future__ import annotations

import pytest

from ottla.records.control import TransactionMarker, end_transaction_batch
from ottla.storage.log import COORDINATOR, AppendInfo, AppendRefusal, PartitionLog
from ottla.storage.producer_state import NOT_VERIFIED, ProducerState, Verification
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from support.storage_logs import NOW_MS, batch, new_log

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


def transactional(sequence: int, epoch: int = 0) -> memoryview:
    return batch(1, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)


def appended(log: PartitionLog, sequence: int, verification: Verification | None, epoch: int = 0) -> ErrorCode:
    """Append a client's batch; the error."""
    done = log.append(transactional(sequence, epoch), leader_epoch=0, now_ms=NOW_MS, verification=verification)
    return done.error if isinstance(done, AppendRefusal) else ErrorCode.NONE


def mark(log: PartitionLog, epoch: int = 0) -> None:
    marker = end_transaction_batch(TransactionMarker(PRODUCER, epoch, 0, is_commit=False), NOW_MS)
    done = log.append(memoryview(bytearray(marker)), leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR)
    assert isinstance(done, AppendInfo)


def test_the_first_batch_begins_the_transaction_and_the_next_need_no_verification() -> None:
    log = new_log(MemoryDisk(), "/data")
    assert appended(log, 0, None) is ErrorCode.INVALID_TXN_STATE
    assert appended(log, 0, begun(log.producers)) is ErrorCode.NONE
    assert log.producers.begin_verification(PRODUCER, 0, 1, 0) is None
    assert appended(log, 1, None) is ErrorCode.NONE
    assert list(log.producers.open_transactions) == [PRODUCER]


def test_a_marker_between_the_question_and_the_append_makes_the_answer_void() -> None:
    """The answer may be about a transaction before the marker, and the producer's next one not know the partition."""
    log = new_log(MemoryDisk(), "/data")
    old = begun(log.producers)
    mark(log)
    assert appended(log, 0, old) is ErrorCode.INVALID_TXN_STATE
    begun(log.producers)
    assert appended(log, 0, old) is ErrorCode.INVALID_TXN_STATE, "of the newer question it is not the answer either"


def test_a_later_batch_does_not_overtake_the_first_one() -> None:
    """The first may have been refused for a reason that passes, and comes again."""
    log = new_log(MemoryDisk(), "/data")
    begun(log.producers, sequence=0)
    assert appended(log, 5, begun(log.producers, sequence=5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert appended(log, 0, begun(log.producers, sequence=0)) is ErrorCode.NONE
