"""InitProducerId: ids, epochs, fencing, and what a repeated request gets (KIP-360)."""

from __future__ import annotations

import pytest

from ottla.txn.machine import TransactionLimits
from ottla.txn.states import TransactionState
from ottla.wire.errors import ErrorCode
from support.transaction_world import FIRST_PRODUCER_ID as FIRST
from support.transaction_world import ID, T0, TIMEOUT_MS, World

pytestmark = pytest.mark.spec("X1")

NONE, FENCED, WAIT = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
SETTLED = [EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
ENDING = [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]


def init(world: World, producer_id: int = -1, epoch: int = -1) -> tuple[ErrorCode, int, int]:
    result = world.init(producer_id=producer_id, epoch=epoch)
    return result.error, result.producer_id, result.producer_epoch


def test_a_new_transactional_id_gets_a_producer_id_and_epoch_0():
    world = World()
    assert init(world) == (NONE, FIRST, 0)
    assert (world.metadata.state, world.metadata.timeout_ms) == (EMPTY, TIMEOUT_MS)
    assert world.metadata.last_update_ms == world.now_ms
    result = world.init("another")
    assert (result.producer_id, result.producer_epoch) == (FIRST + 1, 0)


def test_a_producer_that_knows_another_id_of_an_unknown_transactional_id_gets_a_new_one():
    assert init(World(), producer_id=77, epoch=3) == (NONE, FIRST, 0)


@pytest.mark.parametrize("state", SETTLED)
def test_the_next_producer_gets_the_next_epoch_and_its_own_timeout(state: TransactionState):
    world = World()
    world.put(state)
    world.advance(10)
    result = world.init(timeout_ms=5_000)
    assert (result.error, result.producer_id, result.producer_epoch) == (NONE, FIRST, 6)
    assert (world.metadata.state, world.metadata.start_ms, world.metadata.timeout_ms) == (EMPTY, -1, 5_000)
    assert world.metadata.last_update_ms == world.now_ms


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_under_way_is_aborted_with_the_next_epoch(version: int):
    world = World(version)
    world.put(ONGOING)
    assert init(world) == (WAIT, -1, -1)
    assert (world.metadata.state, world.metadata.producer_epoch) == (TransactionState.PREPARE_ABORT, 6)
    marker = world.markers[T0]
    assert (marker.producer_id, marker.producer_epoch, marker.is_commit) == (FIRST, 6, False)
    assert init(world) == (WAIT, -1, -1)
    world.write_all_markers()
    assert init(world) == (NONE, FIRST, 7)


@pytest.mark.parametrize("state", ENDING)
@pytest.mark.parametrize("producer_id", [-1, FIRST, 77])
def test_while_a_transaction_ends_everybody_waits(state: TransactionState, producer_id: int):
    world = World()
    world.put(state)
    assert init(world, producer_id, -1 if producer_id < 0 else 5) == (WAIT, -1, -1)


@pytest.mark.parametrize("state", [*SETTLED, ONGOING])
def test_another_producer_id_is_fenced(state: TransactionState):
    world = World()
    world.put(state)
    assert init(world, producer_id=77, epoch=5) == (FENCED, -1, -1)
    assert world.metadata.state is state


def test_a_producer_goes_on_with_the_next_epoch_and_may_repeat_its_request():
    world = World()
    world.put(TransactionState.COMPLETE_ABORT)
    assert init(world, FIRST, 5) == (NONE, FIRST, 6)
    assert init(world, FIRST, 5) == (NONE, FIRST, 6), "the answer was lost"
    assert init(world, FIRST, 6) == (NONE, FIRST, 7)
    assert init(world, FIRST, 5) == (FENCED, -1, -1)
    assert init(world) == (NONE, FIRST, 8)
    assert init(world, FIRST, 7) == (FENCED, -1, -1), "another producer came between"


def test_the_coordinator_that_takes_over_does_not_know_a_repeated_request():
    world = World()
    world.put(EMPTY)
    init(world, FIRST, 5)
    world.restart()
    assert init(world, FIRST, 5) == (FENCED, -1, -1)


@pytest.mark.parametrize("state", SETTLED)
def test_the_last_epoch_is_followed_by_a_new_producer_id(state: TransactionState):
    world = World()
    world.put(state, producer_epoch=32766)
    assert init(world) == (NONE, FIRST + 1, 0)
    assert world.metadata.previous_producer_id == FIRST


def test_a_producer_with_the_last_epoch_may_repeat_its_request():
    world = World()
    world.put(EMPTY, producer_epoch=32766)
    assert init(world, FIRST, 32766) == (NONE, FIRST + 1, 0)
    assert init(world, FIRST, 32766) == (NONE, FIRST + 1, 0), "the answer was lost"
    assert init(world, FIRST, 32765) == (FENCED, -1, -1)


def test_a_producer_that_is_fenced_in_the_last_epoch():
    """The epoch 32767 fences it and is given to no producer; the next one gets a new id."""
    world = World()
    world.put(ONGOING, producer_epoch=32766)
    assert init(world) == (WAIT, -1, -1)
    assert world.markers[T0].producer_epoch == 32767
    world.write_all_markers()
    assert init(world, FIRST, 32766) == (FENCED, -1, -1)
    assert init(world) == (NONE, FIRST + 1, 0)


def test_the_newer_protocol_gives_a_new_id_with_the_end_of_the_transaction():
    world = World(2)
    world.put(ONGOING, producer_epoch=32766)
    assert init(world) == (WAIT, -1, -1)
    assert world.markers[T0].producer_epoch == 32767
    world.restart()
    world.write_all_markers()
    assert (world.metadata.producer_id, world.metadata.producer_epoch) == (FIRST + 1, 0)
    assert init(world) == (NONE, FIRST + 1, 1)


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "epoch", "timeout_ms", "error"),
    [
        ("", -1, -1, 1, ErrorCode.INVALID_REQUEST),
        ("a", 5, -1, 1, ErrorCode.INVALID_REQUEST),
        ("a", -1, 5, 1, ErrorCode.INVALID_REQUEST),
        ("", 5, -1, 0, ErrorCode.INVALID_REQUEST),
        ("a", -1, -1, 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("a", -1, -1, -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("a", -1, -1, 5_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("a", -1, -1, 5_000, NONE),
    ],
)
def test_requests_that_make_no_sense(
    transactional_id: str, producer_id: int, epoch: int, timeout_ms: int, error: ErrorCode
):
    world = World(limits=TransactionLimits(max_timeout_ms=5_000))
    assert world.init(transactional_id, producer_id, epoch, timeout_ms).error is error
    assert bool(world.log) is bool(world.shard.machines) is (error is NONE)


def test_without_a_producer_id_at_hand_the_client_has_to_come_back():
    world = World()
    world.has_ids = False
    assert init(world) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert world.shard.machines == {}
    world.has_ids = True
    assert init(world) == (NONE, FIRST, 0)


@pytest.mark.parametrize(("version", "state"), [(0, EMPTY), (2, ONGOING), (2, TransactionState.COMPLETE_COMMIT)])
def test_without_a_producer_id_for_an_exhausted_one_nothing_changes(version: int, state: TransactionState):
    world = World(version)
    world.put(state, producer_epoch=32766)
    world.has_ids = False
    assert init(world) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert (world.metadata.state, len(world.log)) == (state, 1)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_write_that_is_refused_changes_nothing(error: ErrorCode, told: ErrorCode):
    world = World()
    world.errors = [error]
    assert init(world) == (told, -1, -1)
    assert ID not in world.shard.machines
    init(world)
    before = world.metadata
    world.errors = [error]
    assert init(world) == (told, -1, -1)
    assert world.metadata == before
