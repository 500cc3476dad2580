"""The states of a transactional id, how every request is answered in each, and the transitions: one table.

The state machine (`ottla.txn.machine`) looks up its rules here and may make no other transition; the page of the
documentation is made from `RULES`. Before the rules of a state apply, a request is checked against the producer, and
refused alike in every state:

- an empty transactional id, or a producer id without an epoch: `INVALID_REQUEST`;
- InitProducerId with a timeout that is not above 0, or above `transaction.max.timeout.ms`:
  `INVALID_TRANSACTION_TIMEOUT`;
- an unknown transactional id (InitProducerId makes it), or another producer id than the current one:
  `INVALID_PRODUCER_ID_MAPPING`; for InitProducerId, which may also name the former producer id if its epochs are
  exhausted, `PRODUCER_FENCED`;
- another epoch than the current one: `PRODUCER_FENCED`, in older versions `INVALID_PRODUCER_EPOCH`. A repeated EndTxn
  of the newer protocol has the epoch before the bump, InitProducerId the current one or the one before;
- a new producer id is needed and the broker has none yet: `COORDINATOR_LOAD_IN_PROGRESS`.

With the newer protocol (EndTxn from version 5 on, KIP-890) the end of each transaction bumps the epoch.

Source: Apache Kafka 3.9, `kafka.coordinator.transaction.TransactionState` and `TransactionCoordinator`; for the newer
protocol the same of 4.0.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class TransactionState(Enum):
    """The state of a transactional id, named as in DescribeTransactions."""

    EMPTY = "Empty"
    """A producer has its id and epoch; no transaction has begun since."""

    ONGOING = "Ongoing"
    """A transaction has begun. It is aborted, and its producer fenced, when it takes longer than its timeout."""

    PREPARE_COMMIT = "PrepareCommit"
    """The commit is decided; markers are sent to the partitions until each has one."""

    PREPARE_ABORT = "PrepareAbort"
    """The abort is decided; markers are sent to the partitions until each has one."""

    COMPLETE_COMMIT = "CompleteCommit"
    """Each partition has the marker of the commit."""

    COMPLETE_ABORT = "CompleteAbort"
    """Each partition has the marker of the abort."""

    DEAD = "Dead"
    """The transactional id has expired and is forgotten. In the log this is a record without value."""

    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """A transaction is about to be aborted because a new producer came or time ran out.

    The next epoch, which fences the producer, is written with PrepareAbort; this state is never in the log.
    """


STATE_IDS = tuple(TransactionState)
"""The states by their number in the log."""


class InitRule(Enum):
    """How an InitProducerId is handled."""

    BUMP = "the next epoch; with no epoch left a new producer id"
    FENCE = "`CONCURRENT_TRANSACTIONS`, and the transaction is aborted in the next epoch"
    WAIT = "CONCURRENT_TRANSACTIONS"
    IMPOSSIBLE = "-"


class AddRule(Enum):
    """How partitions that are added are handled (AddPartitionsToTxn, AddOffsetsToTxn)."""

    BEGIN = "a transaction begins"
    ADD = "added; nothing is written if it has all of them"
    WAIT = "CONCURRENT_TRANSACTIONS"
    IMPOSSIBLE = "-"


class VerifyRule(Enum):
    """How an AddPartitionsToTxn is handled that only asks."""

    CHECK = "`TRANSACTION_ABORTABLE` for each partition that is not in it"
    WAIT = "CONCURRENT_TRANSACTIONS"
    IMPOSSIBLE = "-"


class EndRule(Enum):
    """How an EndTxn is handled."""

    END = "the transaction ends: markers are sent"
    END_EMPTY = "an empty transaction ends: the epoch is bumped"
    DONE = "no error"
    WAIT = "CONCURRENT_TRANSACTIONS"
    INVALID = "INVALID_TXN_STATE"
    FENCED = "PRODUCER_FENCED"
    IMPOSSIBLE = "-"


class EndRules(NamedTuple):
    """How a commit and an abort are handled."""

    commit: EndRule
    abort: EndRule


class TransactionRules(NamedTuple):
    """One row of the table: the handling of requests in a state, and the transitions out of it with their causes."""

    init: InitRule
    add: AddRule
    verify: VerifyRule
    end: EndRules
    """With the older protocol."""
    bumping_end: EndRules
    """With the newer protocol."""
    repeated_end: EndRules
    """With the newer protocol and the epoch before the bump."""
    expires: bool
    """Whether the transactional id is forgotten when nothing has happened for `transactional.id.expiration.ms`."""
    exits: dict[TransactionState, str]


_INVALID = EndRules(EndRule.INVALID, EndRule.INVALID)
_FENCED = EndRules(EndRule.FENCED, EndRule.FENCED)
_WAIT = EndRules(EndRule.WAIT, EndRule.WAIT)
_END = EndRules(EndRule.END, EndRule.END)
_ABORT_ONLY = EndRules(EndRule.INVALID, EndRule.END_EMPTY)
_COMMITTED = EndRules(EndRule.DONE, EndRule.INVALID)
_ABORTED = EndRules(EndRule.INVALID, EndRule.DONE)
_NO_END = EndRules(EndRule.IMPOSSIBLE, EndRule.IMPOSSIBLE)
_NEVER_SEEN = TransactionRules(
    InitRule.IMPOSSIBLE, AddRule.IMPOSSIBLE, VerifyRule.IMPOSSIBLE, _NO_END, _NO_END, _NO_END, expires=False, exits={}
)
_INIT = "InitProducerId"
_BEGIN = "the first partition of a transaction is added"
_ABORT_EMPTY = "EndTxn of the newer protocol aborts an empty transaction"
_EXPIRE = "it expires"

RULES: dict[TransactionState, TransactionRules] = {
    TransactionState.EMPTY: TransactionRules(
        InitRule.BUMP,
        AddRule.BEGIN,
        VerifyRule.CHECK,
        end=_INVALID,
        bumping_end=_ABORT_ONLY,
        repeated_end=_FENCED,
        expires=True,
        exits={
            TransactionState.EMPTY: _INIT,
            TransactionState.ONGOING: _BEGIN,
            TransactionState.PREPARE_ABORT: _ABORT_EMPTY,
            TransactionState.DEAD: _EXPIRE,
        },
    ),
    TransactionState.ONGOING: TransactionRules(
        InitRule.FENCE,
        AddRule.ADD,
        VerifyRule.CHECK,
        end=_END,
        bumping_end=_END,
        repeated_end=_FENCED,
        expires=False,
        exits={
            TransactionState.ONGOING: "partitions are added",
            TransactionState.PREPARE_COMMIT: "EndTxn commits",
            TransactionState.PREPARE_ABORT: "EndTxn aborts",
            TransactionState.PREPARE_EPOCH_FENCE: "InitProducerId, or the transaction's timeout has passed",
        },
    ),
    TransactionState.PREPARE_COMMIT: TransactionRules(
        InitRule.WAIT,
        AddRule.WAIT,
        VerifyRule.WAIT,
        end=_WAIT,
        bumping_end=_WAIT,
        repeated_end=_WAIT,
        expires=False,
        exits={TransactionState.COMPLETE_COMMIT: "the markers are written"},
    ),
    TransactionState.PREPARE_ABORT: TransactionRules(
        InitRule.WAIT,
        AddRule.WAIT,
        VerifyRule.WAIT,
        end=_WAIT,
        bumping_end=_WAIT,
        repeated_end=_WAIT,
        expires=False,
        exits={TransactionState.COMPLETE_ABORT: "the markers are written"},
    ),
    TransactionState.COMPLETE_COMMIT: TransactionRules(
        InitRule.BUMP,
        AddRule.BEGIN,
        VerifyRule.CHECK,
        end=_COMMITTED,
        bumping_end=_ABORT_ONLY,
        repeated_end=_COMMITTED,
        expires=True,
        exits={
            TransactionState.EMPTY: _INIT,
            TransactionState.ONGOING: _BEGIN,
            TransactionState.PREPARE_ABORT: _ABORT_EMPTY,
            TransactionState.DEAD: _EXPIRE,
        },
    ),
    TransactionState.COMPLETE_ABORT: TransactionRules(
        InitRule.BUMP,
        AddRule.BEGIN,
        VerifyRule.CHECK,
        end=_ABORTED,
        bumping_end=_ABORT_ONLY,
        repeated_end=_ABORTED,
        expires=True,
        exits={
            TransactionState.EMPTY: _INIT,
            TransactionState.ONGOING: _BEGIN,
            TransactionState.PREPARE_ABORT: _ABORT_EMPTY,
            TransactionState.DEAD: _EXPIRE,
        },
    ),
    TransactionState.DEAD: _NEVER_SEEN,
    TransactionState.PREPARE_EPOCH_FENCE: _NEVER_SEEN._replace(
        exits={TransactionState.PREPARE_ABORT: "the abort is written with the next epoch"}
    ),
}
