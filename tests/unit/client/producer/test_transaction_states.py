"""The table of a transactional producer's states, and what errors make of it."""

from __future__ import annotations

import random

import pytest

from ottla.client.errors import (
    AuthenticationError,
    BrokerError,
    BrokerUnreachableError,
    ClientError,
    ClientTimeoutError,
    IllegalStateError,
    TransactionAbortableError,
    UnsupportedVersionError,
)
from ottla.client.model import TopicPartition
from ottla.client.producer.transaction_states import (
    HANDLINGS,
    RULES,
    ErrorHandling,
    ProducerTransaction,
    TransactionCall,
    TransactionPhase,
    handling_of,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

P = TopicPartition("t", 0)
Q = TopicPartition("t", 1)
FIRST, SECOND = ClientError("first"), ClientError("second")
COORDINATORS = [each for each in HANDLINGS if each is not ApiKey.PRODUCE]


def in_phase(phase: TransactionPhase) -> ProducerTransaction:
    """A transaction that has come to this state by the table."""
    made = ProducerTransaction()
    path = {
        TransactionPhase.UNINITIALIZED: [],
        TransactionPhase.INITIALIZING: [TransactionPhase.INITIALIZING],
        TransactionPhase.READY: [TransactionPhase.INITIALIZING, TransactionPhase.READY],
    }
    begun = [*path[TransactionPhase.READY], TransactionPhase.IN_TRANSACTION]
    path[TransactionPhase.IN_TRANSACTION] = begun
    path[TransactionPhase.COMMITTING] = [*begun, TransactionPhase.COMMITTING]
    path[TransactionPhase.ABORTING] = [*begun, TransactionPhase.ABORTING]
    for each in path.get(phase, begun):
        made.move(each)
    if phase is TransactionPhase.ABORTABLE_ERROR:
        made.failed(FIRST, ErrorHandling.ABORT)
    elif phase is TransactionPhase.FATAL_ERROR:
        made.failed(FIRST, ErrorHandling.CLOSE)
    assert made.phase is phase
    return made


def test_every_state_has_rules_and_can_be_reached() -> None:
    assert RULES.keys() == set(TransactionPhase)
    reached = {phase for rules in RULES.values() for phase in rules.exits}
    assert reached == set(TransactionPhase) - {TransactionPhase.UNINITIALIZED}
    possible = {call for rules in RULES.values() for call in rules.calls}
    assert possible == set(TransactionCall)


@pytest.mark.parametrize("phase", TransactionPhase)
@pytest.mark.parametrize("call", TransactionCall)
def test_a_call_is_possible_or_says_what_to_do(phase: TransactionPhase, call: TransactionCall) -> None:
    refusal = in_phase(phase).refusal(call)
    if call in RULES[phase].calls:
        assert refusal is None
    elif phase is TransactionPhase.FATAL_ERROR:
        assert str(refusal) == "first"
        assert refusal is not FIRST  # each raise has its own traceback
    elif phase is TransactionPhase.ABORTABLE_ERROR:
        assert isinstance(refusal, TransactionAbortableError)
        assert refusal.__cause__ is FIRST
    else:
        assert isinstance(refusal, IllegalStateError)
        assert str(refusal) == f"{call.value} is not possible now: {RULES[phase].reason}"


@pytest.mark.parametrize("phase", TransactionPhase)
@pytest.mark.parametrize("handling", ErrorHandling)
def test_errors_lead_along_the_table(phase: TransactionPhase, handling: ErrorHandling) -> None:
    transaction = in_phase(phase)
    transaction.failed(SECOND, handling)
    exits = RULES[phase].exits
    if handling is ErrorHandling.CALL_AGAIN:
        assert transaction.phase is phase
    elif handling is ErrorHandling.CLOSE:
        assert transaction.phase is TransactionPhase.FATAL_ERROR
        assert transaction.error is (FIRST if phase is TransactionPhase.FATAL_ERROR else SECOND)
    else:
        expected = TransactionPhase.ABORTABLE_ERROR if TransactionPhase.ABORTABLE_ERROR in exits else phase
        assert transaction.phase is expected
        if phase is TransactionPhase.ABORTABLE_ERROR:
            assert transaction.error is FIRST
        if phase is not TransactionPhase.FATAL_ERROR:
            assert transaction.needs_epoch == (handling is ErrorHandling.ABORT_AND_RENEW)


@pytest.mark.spec("X3")
@pytest.mark.parametrize("api_key", COORDINATORS)
def test_of_coordinators(api_key: ApiKey) -> None:
    def handling(code: ErrorCode) -> ErrorHandling:
        return handling_of(api_key, BrokerError(code, "refused"))

    assert handling(ErrorCode.PRODUCER_FENCED) is ErrorHandling.CLOSE
    assert handling(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) is ErrorHandling.CLOSE
    assert handling_of(api_key, UnsupportedVersionError("too old")) is ErrorHandling.CLOSE
    assert handling_of(api_key, AuthenticationError("not trusted")) is ErrorHandling.CLOSE
    in_doubt = handling_of(api_key, ClientTimeoutError("too late"))
    assert handling(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is in_doubt
    assert handling_of(api_key, BrokerUnreachableError("not there")) is in_doubt
    if api_key in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
        assert in_doubt is ErrorHandling.CALL_AGAIN
    else:
        assert in_doubt is ErrorHandling.ABORT_AND_RENEW
        assert handling(ErrorCode.INVALID_PRODUCER_ID_MAPPING) is ErrorHandling.ABORT_AND_RENEW
        assert handling(ErrorCode.TRANSACTION_ABORTABLE) is ErrorHandling.ABORT


@pytest.mark.spec("X3")
def test_of_leaders() -> None:
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            closes = code in (
                ErrorCode.PRODUCER_FENCED,
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            )
            expected = ErrorHandling.CLOSE if closes else ErrorHandling.ABORT_AND_RENEW
            assert handling_of(ApiKey.PRODUCE, BrokerError(code, "refused")) is expected


def test_a_partition_is_added_once_and_then_sent_to() -> None:
    transaction = in_phase(TransactionPhase.IN_TRANSACTION)
    assert not transaction.may_send(P, is_new=True)
    assert not transaction.has_end
    assert transaction.begin_to_add() == [P]
    assert transaction.has_end
    assert not transaction.is_known
    assert not transaction.may_send(P, is_new=True)
    assert not transaction.may_send(Q, is_new=True)
    transaction.added([P])
    assert transaction.is_known
    assert transaction.may_send(P, is_new=True)
    assert transaction.begin_to_add() == [Q]
    transaction.added([])  # refused
    assert not transaction.may_send(Q, is_new=True)
    assert transaction.begin_to_add() == [Q]


def test_after_an_error_only_numbered_batches_are_sent() -> None:
    """They may have been written; the broker has to see them before the marker."""
    transaction = in_phase(TransactionPhase.IN_TRANSACTION)
    transaction.may_send(P, is_new=True)
    transaction.added(transaction.begin_to_add())
    transaction.failed(FIRST, ErrorHandling.ABORT)
    for phase in (TransactionPhase.ABORTABLE_ERROR, TransactionPhase.ABORTING):
        transaction.move(phase)
        assert not transaction.may_send(P, is_new=True)
        assert transaction.may_send(P, is_new=False)
        assert not transaction.may_send(Q, is_new=True)
        assert not transaction.to_add
    transaction.move(TransactionPhase.READY)
    assert (transaction.partitions, transaction.has_end, transaction.error) == (set(), False, None)


def test_a_record_of_another_thread_does_not_overtake_the_commit() -> None:
    transaction = in_phase(TransactionPhase.IN_TRANSACTION)
    transaction.may_send(P, is_new=True)
    transaction.added(transaction.begin_to_add())
    transaction.move(TransactionPhase.COMMITTING)
    assert transaction.may_send(P, is_new=True)
    transaction.end()
    assert not transaction.may_send(P, is_new=True)
    assert not transaction.may_send(Q, is_new=True)
    assert not transaction.to_add
    transaction.move(TransactionPhase.READY)
    transaction.move(TransactionPhase.IN_TRANSACTION)
    transaction.may_send(P, is_new=True)
    assert transaction.begin_to_add() == [P]


def test_a_forgotten_producer_has_nothing_to_end() -> None:
    transaction = in_phase(TransactionPhase.IN_TRANSACTION)
    transaction.adds_offsets()
    assert transaction.has_end
    forgotten = BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "refused")
    transaction.failed(forgotten, ErrorHandling.ABORT_AND_RENEW)
    assert not transaction.has_end
    assert transaction.needs_epoch


@pytest.mark.parametrize("seed", range(20))
def test_any_walk_stays_in_the_table(seed: int) -> None:
    rng = random.Random(seed)
    transaction = ProducerTransaction()
    for _ in range(200):
        if rng.random() < 0.3:
            transaction.failed(rng.choice([FIRST, SECOND]), rng.choice([*ErrorHandling][:3]))
        elif exits := [*RULES[transaction.phase].exits.keys() - {TransactionPhase.FATAL_ERROR}]:
            target = rng.choice(sorted(exits, key=lambda each: each.value))
            if target is not TransactionPhase.ABORTABLE_ERROR:
                transaction.move(target)
        transaction.may_send(rng.choice([P, Q]), is_new=rng.random() < 0.5)
        if rng.random() < 0.5:
            transaction.added(transaction.begin_to_add())
        has_error = transaction.phase is TransactionPhase.ABORTABLE_ERROR
        assert (transaction.error is not None) == has_error
        assert not transaction.partitions or transaction.phase is not TransactionPhase.READY
