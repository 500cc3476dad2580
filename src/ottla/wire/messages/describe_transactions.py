"""DescribeTransactions (key 65): the transactions of transactional ids, as their coordinator knows them (KIP-664)."""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@message(versions=(0, 0), flexible_since=0, api_key=65)
class DescribeTransactionsRequest(Message):
    transactional_ids: list[str] = field(array(STRING))


@struct
class TopicData(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@struct
class DescribeTransactionsResponseTransactionState(Struct):
    error_code: int = field(INT16)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[TopicData] = field(array(TopicData))


@message(versions=(0, 0), flexible_since=0, api_key=65)
class DescribeTransactionsResponse(Message):
    throttle_time_ms: int = field(INT32)
    transaction_states: list[DescribeTransactionsResponseTransactionState] = field(
        array(DescribeTransactionsResponseTransactionState)
    )
