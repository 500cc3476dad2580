"""AddPartitionsToTxn: added by clients, added by leaders, and asked for only (KIP-890)."""

from __future__ import annotations

import pytest

from ottla.txn.events import AddPartitionsToTxn, PartitionsResult, VerifyPartitionsInTxn
from ottla.txn.metadata import TopicPartition
from ottla.txn.states import TransactionState
from ottla.wire.errors import ErrorCode
from support.transaction_world import FIRST_PRODUCER_ID as FIRST
from support.transaction_world import ID, OFFSETS, T0, T1, World

pytestmark = pytest.mark.spec("X1")

NONE, FENCED, WAIT = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
ONGOING = TransactionState.ONGOING
SETTLED = [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
ENDING = [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]


def verify(world: World, *partitions: TopicPartition, producer_id: int = FIRST, epoch: int = 5) -> PartitionsResult:
    result = world.ask(VerifyPartitionsInTxn(None, ID, producer_id, epoch, partitions))
    assert isinstance(result, PartitionsResult)
    return result


@pytest.mark.parametrize("state", SETTLED)
def test_the_first_partition_begins_a_transaction(state: TransactionState):
    world = World()
    world.put(state)
    world.advance(10)
    assert world.add(T0) is NONE
    begun = world.metadata
    assert (begun.state, begun.partitions, begun.start_ms) == (ONGOING, {T0}, world.now_ms)
    world.advance(10)
    assert world.add(T1, OFFSETS, T0) is NONE
    assert world.metadata.partitions == {T0, T1, OFFSETS}
    assert (world.metadata.start_ms, world.metadata.last_update_ms) == (begun.start_ms, world.now_ms)
    assert (world.metadata.producer_id, world.metadata.producer_epoch) == (FIRST, 5)


def test_nothing_is_written_for_partitions_that_it_has():
    world = World()
    world.put(ONGOING, partitions=frozenset({T0, T1}))
    assert world.add(T1) is NONE
    assert world.add() is NONE
    assert len(world.log) == 1


def test_a_transaction_may_begin_without_a_partition():
    world = World()
    world.put(TransactionState.EMPTY)
    assert world.add() is NONE
    assert (world.metadata.state, world.metadata.partitions) == (ONGOING, frozenset())


@pytest.mark.parametrize("state", [*SETTLED, *ENDING, ONGOING])
def test_other_producers_are_refused(state: TransactionState):
    world = World()
    world.put(state)
    assert world.add(T0, producer_id=77) is UNKNOWN
    assert world.add(T0, epoch=4) is FENCED
    assert world.add(T0, epoch=6) is FENCED
    assert verify(world, T0, producer_id=77).errors == {T0: UNKNOWN}
    assert verify(world, T0, epoch=6).errors == {T0: FENCED}
    assert len(world.log) == 1


def test_an_unknown_transactional_id():
    world = World()
    added = world.ask(AddPartitionsToTxn(None, "other", 1, 0, [T0, T1]))
    asked = world.ask(VerifyPartitionsInTxn(None, "other", 1, 0, [T0]))
    assert added == PartitionsResult({T0: UNKNOWN, T1: UNKNOWN}, UNKNOWN)
    assert asked == PartitionsResult({T0: UNKNOWN}, UNKNOWN)
    nameless = world.ask(VerifyPartitionsInTxn(None, "", 1, 0, [T0]))
    assert nameless == PartitionsResult({T0: ErrorCode.INVALID_REQUEST}, ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("state", ENDING)
def test_while_a_transaction_ends_the_next_one_waits(state: TransactionState):
    world = World()
    world.put(state)
    assert world.add(T1) is WAIT
    assert verify(world, T0) == PartitionsResult({T0: WAIT}, WAIT)


@pytest.mark.parametrize("state", SETTLED)
def test_verification_names_what_is_missing(state: TransactionState):
    world = World()
    world.put(state)
    missing = ErrorCode.TRANSACTION_ABORTABLE
    assert verify(world, T0, T1) == PartitionsResult({T0: missing, T1: missing}, NONE)
    world.add(T1)
    assert verify(world, T0, T1) == PartitionsResult({T0: missing, T1: NONE}, NONE)


@pytest.mark.parametrize("producer_id", [FIRST + 1, 77])
def test_the_producer_id_after_an_exhausted_one_waits_for_the_end_of_the_transaction(producer_id: int):
    """Only the producer has it, from the response to its EndTxn; another one is unknown."""
    world = World(2)
    world.put(ONGOING, producer_epoch=32766)
    assert world.end() == (NONE, FIRST + 1, 0)
    error = world.add(T0, producer_id=producer_id, epoch=0)
    assert error is (WAIT if producer_id == FIRST + 1 else UNKNOWN)
    world.write_all_markers()
    assert world.add(T0, producer_id=producer_id, epoch=0) is (NONE if producer_id == FIRST + 1 else UNKNOWN)


def test_a_write_that_is_refused_changes_nothing():
    world = World()
    world.put(ONGOING)
    world.errors = [ErrorCode.REQUEST_TIMED_OUT]
    assert world.add(T1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.metadata.partitions == {T0}
    assert world.add(T1) is NONE
