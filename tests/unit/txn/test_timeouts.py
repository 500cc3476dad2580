"""Deadlines: transactions that take too long, and transactional ids that are not used any more."""

from __future__ import annotations

import pytest

from ottla.txn.machine import RETRY_BACKOFF_MS, TransactionLimits
from ottla.txn.states import TransactionState
from ottla.wire.errors import ErrorCode
from support.transaction_world import FIRST_PRODUCER_ID as FIRST
from support.transaction_world import ID, T0, T1, TIMEOUT_MS, World

pytestmark = pytest.mark.spec("X1")

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_ABORT, COMPLETE_ABORT = TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT
EXPIRATION_MS = 1_000_000
LIMITS = TransactionLimits(id_expiration_ms=EXPIRATION_MS)


def test_a_transaction_is_aborted_when_its_timeout_has_passed():
    world = World()
    world.init()
    world.add(T0)
    world.advance(TIMEOUT_MS // 2)
    world.add(T1)
    world.advance(TIMEOUT_MS - TIMEOUT_MS // 2)
    assert world.metadata.state is ONGOING, "partitions that are added give no more time"
    world.advance(1)
    assert (world.metadata.state, world.metadata.producer_epoch) == (PREPARE_ABORT, 1)
    world.write_all_markers()
    assert world.metadata.state is COMPLETE_ABORT
    assert world.end(epoch=0)[0] is ErrorCode.PRODUCER_FENCED
    assert world.add(T0, epoch=0) is ErrorCode.PRODUCER_FENCED


def test_with_the_newer_protocol_its_producer_may_go_on_after_an_abort_of_its_own():
    world = World(2)
    world.put(ONGOING)
    world.advance(TIMEOUT_MS + 1)
    world.write_all_markers()
    assert world.end(is_commit=True, epoch=5) == (ErrorCode.INVALID_TXN_STATE, -1, -1)
    assert world.end(is_commit=False, epoch=5) == (ErrorCode.NONE, FIRST, 6)
    assert world.add(T0, epoch=6) is ErrorCode.NONE


def test_after_a_takeover_the_time_runs_on():
    world = World()
    world.put(ONGOING)
    world.advance(TIMEOUT_MS)
    world.restart()
    world.advance(1)
    assert world.metadata.state is PREPARE_ABORT


def test_an_abort_that_the_log_refuses_is_tried_again():
    world = World()
    world.put(ONGOING)
    world.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.advance(TIMEOUT_MS + 1)
    assert world.metadata.state is ONGOING
    world.advance(RETRY_BACKOFF_MS)
    assert (world.metadata.state, world.metadata.producer_epoch) == (PREPARE_ABORT, 6)


def test_an_abort_that_needs_a_producer_id_waits_for_one():
    world = World(2)
    world.put(ONGOING, producer_epoch=32766)
    world.has_ids = False
    world.advance(TIMEOUT_MS + 5 * RETRY_BACKOFF_MS)
    assert world.metadata.state is ONGOING
    world.has_ids = True
    world.advance(RETRY_BACKOFF_MS)
    world.write_all_markers()
    assert (world.metadata.producer_id, world.metadata.producer_epoch) == (FIRST + 1, 0)


@pytest.mark.parametrize("state", [EMPTY, TransactionState.COMPLETE_COMMIT, COMPLETE_ABORT])
def test_an_id_that_is_not_used_is_forgotten(state: TransactionState):
    world = World(limits=LIMITS)
    world.put(state)
    world.advance(EXPIRATION_MS - 1)
    assert world.metadata.state is state
    world.advance(1)
    assert world.shard.machines == {}
    assert world.log[-1][1] is None
    assert world.restored().machines.keys() <= {ID}
    assert world.shard.describe(ID) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    result = world.init()
    assert (result.producer_id, result.producer_epoch) == (FIRST + 1, 0)


def test_use_keeps_it():
    world = World(limits=LIMITS)
    world.put(EMPTY)
    world.advance(EXPIRATION_MS - 1)
    world.init()
    world.advance(EXPIRATION_MS - 1)
    assert world.metadata.state is EMPTY


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, PREPARE_ABORT])
def test_a_transaction_that_ends_keeps_it(state: TransactionState):
    world = World(limits=LIMITS)
    world.put(state)
    world.advance(10 * EXPIRATION_MS)
    assert world.metadata.state is state


def test_a_tombstone_that_the_log_refuses_is_written_later():
    world = World(limits=LIMITS)
    world.put(EMPTY)
    world.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.advance(EXPIRATION_MS)
    assert world.metadata.state is EMPTY
    assert world.init().error is ErrorCode.NONE
    world.advance(EXPIRATION_MS)
    assert world.shard.machines == {}


def test_a_loaded_tombstone_leaves_nothing():
    world = World(limits=LIMITS)
    world.put(EMPTY)
    world.advance(EXPIRATION_MS)
    world.restart()
    assert world.shard.machines == {}
    assert world.shard.next_deadline_ms() is None
