"""The states of a transactional producer, the handling of each error, and the transitions: one table each.

Pure. Source: Apache Kafka 3.9, `TransactionManager`; KIP-98, KIP-360 (a new epoch in place of an end), KIP-1050 (what a
user has to do about an error). The protocol is that of `transaction.version` 0 and 1: partitions are added before
records are sent to them, and the epoch stays from one transaction to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from enum import Enum
from typing import NamedTuple

from ottla.client.errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    IllegalStateError,
    TransactionAbortableError,
    UnsupportedVersionError,
)
from ottla.client.model import TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


class TransactionCall(Enum):
    """A method of the producer that depends on the state of its transaction."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


class TransactionPhase(Enum):
    """The state of the producer, named as in Kafka's `TransactionManager`."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    """The producer id and epoch are requested; other producers of the transactional id are fenced then."""
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING = "COMMITTING_TRANSACTION"
    """What was sent is being acknowledged, or the coordinator was asked to commit."""
    ABORTING = "ABORTING_TRANSACTION"
    """What was sent is being acknowledged, or the coordinator was asked to abort, or for a new epoch."""
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    """Records or offsets of the transaction are lost: it can only be aborted."""
    FATAL_ERROR = "FATAL_ERROR"
    """The producer is fenced, or may not use its transactional id: it can only be closed."""


class PhaseRules(NamedTuple):
    """The rules of one state: calls that are possible, the reason for refusing others, and the exits."""

    calls: frozenset[TransactionCall]
    reason: str
    exits: Mapping[TransactionPhase, str]


_REFUSED = "the broker refused for good: fenced, not authorized, or too old"
_LOST = "a batch failed, or the coordinator refused a partition or offsets"

RULES: Mapping[TransactionPhase, PhaseRules] = {
    TransactionPhase.UNINITIALIZED: PhaseRules(
        frozenset({TransactionCall.INIT}),
        "the producer has no producer id yet; call init_transactions first",
        {TransactionPhase.INITIALIZING: "init_transactions"},
    ),
    TransactionPhase.INITIALIZING: PhaseRules(
        frozenset({TransactionCall.INIT}),
        "init_transactions has not succeeded yet; call it again",
        {
            TransactionPhase.READY: "the coordinator gave a producer id and epoch",
            TransactionPhase.FATAL_ERROR: _REFUSED,
        },
    ),
    TransactionPhase.READY: PhaseRules(
        frozenset({TransactionCall.BEGIN}),
        "no transaction is open; call begin_transaction first",
        {TransactionPhase.IN_TRANSACTION: "begin_transaction"},
    ),
    TransactionPhase.IN_TRANSACTION: PhaseRules(
        frozenset({TransactionCall.SEND, TransactionCall.SEND_OFFSETS, TransactionCall.COMMIT, TransactionCall.ABORT}),
        "a transaction is open; commit or abort it first",
        {
            TransactionPhase.COMMITTING: "commit_transaction",
            TransactionPhase.ABORTING: "abort_transaction, or close",
            TransactionPhase.ABORTABLE_ERROR: _LOST,
            TransactionPhase.FATAL_ERROR: _REFUSED,
        },
    ),
    TransactionPhase.COMMITTING: PhaseRules(
        frozenset({TransactionCall.COMMIT}),
        "commit_transaction has not ended, and may yet succeed; call it again",
        {
            TransactionPhase.READY: "the coordinator has committed, or there was nothing to commit",
            TransactionPhase.ABORTABLE_ERROR: _LOST,
            TransactionPhase.FATAL_ERROR: _REFUSED,
        },
    ),
    TransactionPhase.ABORTING: PhaseRules(
        frozenset({TransactionCall.ABORT}),
        "abort_transaction has not succeeded yet; call it again",
        {
            TransactionPhase.READY: "the coordinator has aborted, and given a new epoch where one was needed",
            TransactionPhase.FATAL_ERROR: _REFUSED,
        },
    ),
    TransactionPhase.ABORTABLE_ERROR: PhaseRules(
        frozenset({TransactionCall.ABORT}),
        "the transaction must be aborted",
        {TransactionPhase.ABORTING: "abort_transaction, or close", TransactionPhase.FATAL_ERROR: _REFUSED},
    ),
    TransactionPhase.FATAL_ERROR: PhaseRules(frozenset(), "the producer must be closed", {}),
}


class ErrorHandling(Enum):
    """The remedy of an error (KIP-1050) that remains after retries."""

    CALL_AGAIN = "call the method again"
    ABORT = "abort the transaction"
    ABORT_AND_RENEW = "abort the transaction, and get a new epoch"
    CLOSE = "close the producer"


class _Handlings(NamedTuple):
    """The handling of errors of one API: by code, of other codes, and where no answer came."""

    by_code: Mapping[int, ErrorHandling]
    otherwise: ErrorHandling
    in_doubt: ErrorHandling


_OF_ALL: Mapping[int, ErrorHandling] = {
    ErrorCode.PRODUCER_FENCED: ErrorHandling.CLOSE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorHandling.CLOSE,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorHandling.ABORT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorHandling.ABORT,
    # The coordinator has forgotten the producer.
    ErrorCode.UNKNOWN_PRODUCER_ID: ErrorHandling.ABORT_AND_RENEW,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorHandling.ABORT_AND_RENEW,
}

HANDLINGS: Mapping[ApiKey, _Handlings] = {
    ApiKey.INIT_PRODUCER_ID: _Handlings(
        {ErrorCode.TRANSACTION_ABORTABLE: ErrorHandling.CALL_AGAIN}, ErrorHandling.CLOSE, ErrorHandling.CALL_AGAIN
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _Handlings(
        {**_OF_ALL, ErrorCode.INVALID_TXN_STATE: ErrorHandling.CLOSE},
        ErrorHandling.ABORT,
        ErrorHandling.ABORT_AND_RENEW,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: _Handlings(_OF_ALL, ErrorHandling.CLOSE, ErrorHandling.ABORT_AND_RENEW),
    ApiKey.TXN_OFFSET_COMMIT: _Handlings(
        {
            **_OF_ALL,
            ErrorCode.FENCED_INSTANCE_ID: ErrorHandling.ABORT,
            ErrorCode.ILLEGAL_GENERATION: ErrorHandling.ABORT,
            ErrorCode.UNKNOWN_MEMBER_ID: ErrorHandling.ABORT,
            ErrorCode.OFFSET_METADATA_TOO_LARGE: ErrorHandling.ABORT,
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorHandling.ABORT,
        },
        ErrorHandling.CLOSE,
        ErrorHandling.ABORT_AND_RENEW,
    ),
    ApiKey.END_TXN: _Handlings(_OF_ALL, ErrorHandling.CLOSE, ErrorHandling.CALL_AGAIN),
    # INVALID_PRODUCER_EPOCH among others: whether the producer is fenced is for the coordinator to say (KIP-588).
    ApiKey.PRODUCE: _Handlings(
        {
            ErrorCode.PRODUCER_FENCED: ErrorHandling.CLOSE,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorHandling.CLOSE,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorHandling.CLOSE,
        },
        ErrorHandling.ABORT_AND_RENEW,
        ErrorHandling.ABORT_AND_RENEW,
    ),
}
"""By the request that failed; a coordinator says INVALID_PRODUCER_EPOCH in old versions for PRODUCER_FENCED."""


def handling_of(api_key: ApiKey, error: ClientError) -> ErrorHandling:
    """Return what the final error of a request asks for."""
    rules = HANDLINGS[api_key]
    if isinstance(error, UnsupportedVersionError | AuthenticationError):
        return ErrorHandling.CLOSE
    if not isinstance(error, BrokerError):
        return rules.in_doubt
    return rules.by_code.get(error.code, rules.in_doubt if error.retriable else rules.otherwise)


def must_abort(error: ClientError) -> TransactionAbortableError:
    """Return the error of a transaction that must be aborted because of another one."""
    abortable = TransactionAbortableError(
        f"the transaction cannot be committed: {error}; call abort_transaction, then begin another one"
    )
    abortable.__cause__ = error
    return abortable


class ProducerTransaction:
    """The transaction of one producer, and its state between transactions."""

    def __init__(self) -> None:
        self.phase = TransactionPhase.UNINITIALIZED
        #: Why the phase is ABORTABLE_ERROR or FATAL_ERROR.
        self.error: ClientError | None = None
        self.partitions: set[TopicPartition] = set()
        """Partitions that the coordinator knows to be part of the transaction."""
        self.to_add: dict[TopicPartition, None] = {}
        """Partitions with batches that wait until they are part of it."""
        self._being_added: frozenset[TopicPartition] = frozenset()
        self.is_known = False
        """Whether the coordinator has confirmed a partition or a group of this transaction."""
        self.has_end = False
        """Whether the coordinator may know the transaction, and so has to be asked to end it."""
        self.needs_epoch = False
        """Whether a new epoch has to be requested before the next transaction."""
        self.is_ending = False
        """Whether all records are acknowledged, and the coordinator is asked to commit."""

    def refusal(self, call: TransactionCall) -> ClientError | None:
        """Return the error of a call that is not possible now; None if it is."""
        rules = RULES[self.phase]
        if call in rules.calls:
            return None
        if self.phase is TransactionPhase.FATAL_ERROR:
            return copy(self.error)
        if self.error is not None:
            return must_abort(self.error)
        return IllegalStateError(f"{call.value} is not possible now: {rules.reason}")

    def move(self, phase: TransactionPhase) -> None:
        """Go to another state, or stay in this one where a call is repeated."""
        assert phase is self.phase or phase in RULES[self.phase].exits, (self.phase, phase)
        self.phase = phase
        if phase is TransactionPhase.ABORTING:
            self.to_add.clear()
            self.error = None
        elif phase is TransactionPhase.READY:
            self.to_add.clear()
            self.partitions.clear()
            self.is_known = self.has_end = self.needs_epoch = self.is_ending = False

    def failed(self, error: ClientError, handling: ErrorHandling) -> None:
        """Handle the final error of a request or batch. The first error of a transaction is kept."""
        if handling is ErrorHandling.CALL_AGAIN or self.phase is TransactionPhase.FATAL_ERROR:
            return
        if handling is ErrorHandling.CLOSE:
            self.phase, self.error = TransactionPhase.FATAL_ERROR, error
            return
        self.needs_epoch = self.needs_epoch or handling is ErrorHandling.ABORT_AND_RENEW
        if isinstance(error, BrokerError) and error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            self.has_end = False  # the coordinator has forgotten it: only a new epoch helps
        if TransactionPhase.ABORTABLE_ERROR in RULES[self.phase].exits:
            self.phase, self.error = TransactionPhase.ABORTABLE_ERROR, error
            self.to_add.clear()

    @property
    def takes_records(self) -> bool:
        """Whether records that were accepted are part of the transaction."""
        may_take = self.phase in (TransactionPhase.IN_TRANSACTION, TransactionPhase.COMMITTING)
        return may_take and not self.is_ending

    def end(self) -> None:
        """All records are acknowledged: one that another thread sends now is too late."""
        self.is_ending = True

    def may_send(self, partition: TopicPartition, *, is_new: bool) -> bool:
        """Whether a batch may be sent now; a batch that was numbered before, whatever becomes of the transaction.

        A partition that is not part of the transaction yet is added `to_add`.
        """
        takes_records = self.takes_records
        if partition in self.partitions:
            return takes_records or not is_new
        if takes_records and partition not in self._being_added:
            self.to_add[partition] = None
        return False

    def begin_to_add(self) -> list[TopicPartition]:
        """Take the partitions that the coordinator is asked to add now."""
        partitions = list(self.to_add)
        self.to_add.clear()
        self._being_added = frozenset(partitions)
        self.has_end = True
        return partitions

    def added(self, partitions: Iterable[TopicPartition]) -> None:
        """Handle the coordinator's response: these partitions are part of the transaction; empty if it refused."""
        self._being_added = frozenset()
        self.partitions.update(partitions)
        self.is_known = self.is_known or bool(self.partitions)

    def adds_offsets(self) -> None:
        """The coordinator is asked to add a group."""
        self.has_end = True

    def offsets_added(self) -> None:
        """The coordinator has added the group."""
        self.is_known = True
