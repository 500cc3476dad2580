"""AddPartitionsToTxn (key 24): add partitions to a transaction before records are sent to them (KIP-98).

Versions: 2 PRODUCER_FENCED; 3 flexible; 4 several transactions, and verification alone, between brokers (KIP-890);
5 TRANSACTION_ABORTABLE. Clients use 3 and below.
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class AddPartitionsToTxnTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@struct
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field(STRING, since=4)
    producer_id: int = field(INT64, since=4)
    producer_epoch: int = field(INT16, since=4)
    verify_only: bool = field(BOOL, since=4)
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), since=4)


@message(versions=(0, 5), flexible_since=3, api_key=24)
class AddPartitionsToTxnRequest(Message):
    transactions: list[AddPartitionsToTxnTransaction] = field(array(AddPartitionsToTxnTransaction), since=4)
    v3_and_below_transactional_id: str = field(STRING, until=3)
    v3_and_below_producer_id: int = field(INT64, until=3)
    v3_and_below_producer_epoch: int = field(INT16, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), until=3)


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


@struct
class AddPartitionsToTxnTopicResult(Struct):
    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(array(AddPartitionsToTxnPartitionResult))


@struct
class AddPartitionsToTxnResult(Struct):
    transactional_id: str = field(STRING, since=4)
    topic_results: list[AddPartitionsToTxnTopicResult] = field(array(AddPartitionsToTxnTopicResult), since=4)


@message(versions=(0, 5), flexible_since=3, api_key=24)
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(array(AddPartitionsToTxnResult), since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), until=3
    )
