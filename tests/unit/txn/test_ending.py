"""EndTxn in both protocols: every state, every epoch, and what follows."""

from __future__ import annotations

import pytest

from ottla.txn.events import EndTxn, EndTxnResult
from ottla.txn.records import decode_record
from ottla.txn.states import TransactionState
from ottla.wire.errors import ErrorCode
from support.transaction_world import FIRST_PRODUCER_ID as FIRST
from support.transaction_world import ID, T0, T1, World

pytestmark = pytest.mark.spec("X1")

NONE, FENCED, WAIT = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
INVALID, UNKNOWN = ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
#: In the order of the columns below.
STATES = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]

#: `transaction.version`, epoch of the request less the current one, commit or not: the error in each state.
#: Apache Kafka 3.9 (0) and 4.0 (2); there a request with the current epoch while markers are written is fenced.
ENDS: dict[tuple[int, int, bool], list[ErrorCode]] = {
    (0, -1, True): [FENCED] * 6,
    (0, -1, False): [FENCED] * 6,
    (0, 0, True): [INVALID, NONE, WAIT, WAIT, NONE, INVALID],
    (0, 0, False): [INVALID, NONE, WAIT, WAIT, INVALID, NONE],
    (0, 1, True): [FENCED] * 6,
    (0, 1, False): [FENCED] * 6,
    (2, -2, True): [FENCED] * 6,
    (2, -2, False): [FENCED] * 6,
    (2, -1, True): [FENCED, FENCED, WAIT, WAIT, NONE, INVALID],
    (2, -1, False): [FENCED, FENCED, WAIT, WAIT, INVALID, NONE],
    (2, 0, True): [INVALID, NONE, WAIT, WAIT, INVALID, INVALID],
    (2, 0, False): [NONE, NONE, WAIT, WAIT, NONE, NONE],
    (2, 1, True): [FENCED] * 6,
    (2, 1, False): [FENCED] * 6,
}
CASES = [
    pytest.param(*request, state, error, id=f"v{request[0]}-{request[1]:+}-{request[2]}-{state.value}")
    for request, errors in ENDS.items()
    for state, error in zip(STATES, errors, strict=True)
]


@pytest.mark.parametrize(("version", "distance", "is_commit", "state", "error"), CASES)
def test_every_state(version: int, distance: int, is_commit: bool, state: TransactionState, error: ErrorCode):
    world = World(version)
    world.put(state)
    written = len(world.log)
    assert world.end(is_commit, epoch=5 + distance)[0] is error
    was_done = state in (COMPLETE_COMMIT, COMPLETE_ABORT) and (version == 0 or distance == -1)
    assert (len(world.log) == written) is (error is not NONE or was_done)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", STATES)
def test_another_producer_id(version: int, state: TransactionState):
    world = World(version)
    world.put(state)
    assert world.end(producer_id=77) == (UNKNOWN, -1, -1)


@pytest.mark.parametrize(("transactional_id", "error"), [("other", UNKNOWN), ("", ErrorCode.INVALID_REQUEST)])
def test_an_unknown_transactional_id(transactional_id: str, error: ErrorCode):
    assert World().ask(EndTxn(None, transactional_id, 1, 0, True)) == EndTxnResult(error)


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_older_protocol_keeps_the_epoch(is_commit: bool):
    world = World()
    world.put(EMPTY)
    world.add(T0, T1)
    begun_ms = world.now_ms
    world.advance(10)
    assert world.end(is_commit)[0] is NONE
    assert world.metadata.state is (PREPARE_COMMIT if is_commit else PREPARE_ABORT)
    assert {(each.producer_epoch, each.is_commit) for each in world.markers.values()} == {(5, is_commit)}
    world.write_all_markers()
    ended = world.metadata
    assert ended.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    assert (ended.producer_id, ended.producer_epoch, ended.partitions) == (FIRST, 5, frozenset())
    assert (ended.start_ms, ended.last_update_ms) == (begun_ms, world.now_ms)
    assert world.add(T0) is NONE, "the next transaction"


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_newer_protocol_bumps_the_epoch(is_commit: bool):
    world = World(2)
    world.put(ONGOING)
    assert world.end(is_commit) == (NONE, FIRST, 6)
    assert {each.producer_epoch for each in world.markers.values()} == {6}
    assert world.end(is_commit, epoch=5) == (WAIT, -1, -1), "the answer was lost"
    world.write_all_markers()
    assert world.end(is_commit, epoch=5) == (NONE, FIRST, 6), "it was lost, too"
    world.restart()
    assert world.end(is_commit, epoch=5) == (NONE, FIRST, 6), "the coordinator that takes over knows it"
    assert world.add(T0, epoch=5) is FENCED
    assert world.add(T0, epoch=6) is NONE


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_newer_protocol_aborts_what_has_not_begun(state: TransactionState):
    """A producer that does not know whether its transaction began is safe from its own late requests afterwards."""
    world = World(2)
    world.put(state)
    world.advance(10)
    assert world.end(is_commit=False) == (NONE, FIRST, 6)
    assert world.metadata.state is COMPLETE_ABORT
    assert world.metadata.start_ms == world.now_ms
    records = [decode_record(*each).metadata for each in world.log[-2:]]
    assert [each.state for each in records if each] == [PREPARE_ABORT, COMPLETE_ABORT]
    assert world.end(is_commit=False, epoch=5) == (NONE, FIRST, 6)
    assert world.end(is_commit=False, epoch=6) == (NONE, FIRST, 7)


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_without_partitions_is_complete_at_once(version: int):
    world = World(version)
    world.put(ONGOING, partitions=frozenset())
    assert world.end()[0] is NONE
    assert (world.metadata.state, world.asked) == (COMPLETE_COMMIT, [])


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_newer_protocol_rotates_an_exhausted_producer_id(is_commit: bool):
    world = World(2)
    world.put(ONGOING, producer_epoch=32766)
    assert world.end(is_commit) == (NONE, FIRST + 1, 0)
    marker = world.markers[T0]
    assert (marker.producer_id, marker.producer_epoch) == (FIRST, 32767)
    assert (world.metadata.producer_id, world.metadata.next_producer_id) == (FIRST, FIRST + 1)
    assert world.end(is_commit, producer_id=FIRST, epoch=32766) == (WAIT, -1, -1)
    world.restart()
    world.write_all_markers()
    assert (world.metadata.previous_producer_id, world.metadata.next_producer_id) == (FIRST, -1)
    assert world.end(is_commit, producer_id=FIRST, epoch=32766) == (NONE, FIRST + 1, 0)
    assert world.end(not is_commit, producer_id=FIRST, epoch=32766) == (INVALID, -1, -1)
    assert world.end(is_commit, producer_id=FIRST, epoch=32765) == (UNKNOWN, -1, -1)
    world.add(T0)
    assert world.end(is_commit, producer_id=FIRST, epoch=32766) == (FENCED, -1, -1)


def test_without_a_new_producer_id_at_hand_the_end_waits():
    world = World(2)
    world.put(ONGOING, producer_epoch=32766)
    world.has_ids = False
    assert world.end() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert world.metadata.state is ONGOING


def test_the_older_protocol_needs_no_new_producer_id():
    world = World()
    world.put(ONGOING, producer_epoch=32766)
    world.has_ids = False
    assert world.end()[0] is NONE
    assert world.metadata.producer_epoch == 32766


def test_the_epoch_before_is_known_only_where_the_newer_protocol_bumped_it():
    """Else a zombie would be given its successor's epoch."""
    world = World(2)
    world.put(COMPLETE_COMMIT, client_transaction_version=0)
    assert world.end(epoch=4) == (FENCED, -1, -1)


def test_a_write_that_is_refused_changes_nothing_and_no_marker_is_sent():
    world = World(2)
    world.put(ONGOING)
    world.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.end() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    assert (world.metadata.state, world.metadata.producer_epoch, world.asked) == (ONGOING, 5, [])
    assert world.end(is_commit=False) == (NONE, FIRST, 6)
    assert ID in world.shard.machines
