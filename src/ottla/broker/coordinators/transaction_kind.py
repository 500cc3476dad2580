"""Transactions as a kind of coordinator: topic, record format, logging of steps."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.broker.coordinators.shard import ShardState, UnreadableRecord
from ottla.broker.coordinators.shard_router import RoutedTopic
from ottla.cluster.topics import TRANSACTION_STATE_TOPIC
from ottla.txn.events import TransactionResult, TransactionStep
from ottla.txn.failures import failed_result
from ottla.txn.machine import TransactionLimits
from ottla.txn.records import TransactionRecord, UnreadableTransaction, decode_record, encode_record, value_version
from ottla.txn.shard import TransactionShard
from ottla.wire.errors import ErrorCode

ROUTED_TOPIC = RoutedTopic(
    TRANSACTION_STATE_TOPIC,
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    served="Transactions",
)


class TransactionKind:
    """`CoordinatorKind` of transactions; `take_producer_id` returns a new producer id, None if none is at hand."""

    topic = TRANSACTION_STATE_TOPIC
    log = logging.getLogger("ottla.transactions")

    def __init__(self, limits: TransactionLimits, take_producer_id: Callable[[], int | None]) -> None:
        self._limits = limits
        self._take_producer_id = take_producer_id

    def new_shard(self, partition: int) -> TransactionShard:
        """See `CoordinatorKind`."""
        return TransactionShard(partition, self._limits, self._take_producer_id)

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        """See `CoordinatorKind`."""
        return encode_record(record, value_version(0))

    def decode(self, key: bytes | None, value: bytes | None) -> TransactionRecord | UnreadableRecord:
        """See `CoordinatorKind`."""
        try:
            return decode_record(key, value)
        except UnreadableTransaction as error:
            return UnreadableRecord(str(error), is_damage=error.unknown_key_version is None)

    def failed_result(self, result: TransactionResult, error: ErrorCode) -> TransactionResult:
        """See `CoordinatorKind`."""
        return failed_result(result, error)

    def carried_out(self, shard: TransactionShard, step: TransactionStep) -> None:
        """See `CoordinatorKind`; nothing is counted or logged for each step."""

    def unloaded(self, step: TransactionStep) -> None:
        """See `CoordinatorKind`; a shard of transactions has no steps at its end."""

    def state_changed(self, partition: int, before: ShardState, now: ShardState) -> None:
        """Log the change, at debug level if there was nothing to load."""
        is_news = now is not before and (before, now) != (ShardState.ABSENT, ShardState.ACTIVE)
        level = logging.INFO if is_news else logging.DEBUG
        self.log.log(level, "%s-%d: %s -> %s", self.topic, partition, before.name.lower(), now.name.lower())
