"""Events and effects of the transaction coordinator: plain data, independent of the request versions.

An event has a `token`, which the state machine never looks at, and returns in exactly one `TransactionReply`. Results
of the leaders' writes of markers come as `ottla.wire.broker_requests.BrokerOutcome`, with a `MarkerToken`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.txn.metadata import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ottla.txn.records import TransactionRecord
from ottla.txn.states import TransactionState
from ottla.wire.broker_requests import BrokerRequest
from ottla.wire.errors import ErrorCode


@dataclass(slots=True)
class InitProducerId:
    """InitProducerId with a transactional id; producer id and epoch are those that the producer has (KIP-360)."""

    token: object
    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(slots=True)
class AddPartitionsToTxn:
    """AddPartitionsToTxn for one transaction, or AddOffsetsToTxn: the group's partition of the offsets topic.

    `transaction_version` is that of the client: 2 where a leader adds its partition for it (KIP-890).
    """

    token: object
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    transaction_version: int = 0


@dataclass(slots=True)
class VerifyPartitionsInTxn:
    """AddPartitionsToTxn that asks whether the partitions are in the transaction (KIP-890)."""

    token: object
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]


@dataclass(slots=True)
class EndTxn:
    """EndTxn; `transaction_version` is 2 from version 5 of the request on, else 0."""

    token: object
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int = 0


TransactionRequest = InitProducerId | AddPartitionsToTxn | VerifyPartitionsInTxn | EndTxn


@dataclass(slots=True)
class InitProducerIdResult:
    """Response to InitProducerId."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(slots=True)
class PartitionsResult:
    """Response to AddPartitionsToTxn, which has one error for all partitions, or to its verification."""

    errors: Mapping[TopicPartition, ErrorCode]
    error: ErrorCode
    """The error of all partitions, for AddOffsetsToTxn; NONE if each has its own."""


@dataclass(slots=True)
class EndTxnResult:
    """Response to EndTxn; with the newer protocol the producer id and epoch for the next transaction."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


TransactionResult = InitProducerIdResult | PartitionsResult | EndTxnResult


@dataclass(slots=True)
class TransactionReply:
    """The response to the request with this `token`; sent when everything appended before is committed."""

    token: object
    result: TransactionResult


@dataclass(slots=True)
class TransactionBatch:
    """Records to append together to the shard's partition."""

    records: Sequence[TransactionRecord]
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(slots=True)
class TransactionStep:
    """Effects of one event: records to append, then responses and requests to send when these are committed."""

    transactional_id: str
    batches: list[TransactionBatch] = field(default_factory=list)
    replies: list[TransactionReply] = field(default_factory=list)
    requests: list[BrokerRequest] = field(default_factory=list)


class MarkerToken(NamedTuple):
    """The marker that a request to a leader is about."""

    transactional_id: str
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class TransactionView(NamedTuple):
    """A transactional id as DescribeTransactions and ListTransactions show it."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """When the latest transaction began; -1 if none has since InitProducerId."""
    partitions: frozenset[TopicPartition]
    """Those of the transaction under way; while it ends, those that still need a marker."""
