"""AddPartitionsToTxn (key 24), versions 0-5: add partitions to a transaction before records are sent to them (KIP-98).

2 adds PRODUCER_FENCED; 3 is flexible; 4 takes several transactions, and questions whether partitions are in one, and is
for brokers (KIP-890); 5 adds TRANSACTION_ABORTABLE. If one partition of a transaction is refused, none is added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ottla.broker.authorization import CLUSTER_ACTION, Access, Accesses, on_topics
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.cluster.topics import is_internal_topic
from ottla.env.futures import settle
from ottla.txn.events import AddPartitionsToTxn, PartitionsResult, VerifyPartitionsInTxn
from ottla.txn.failures import error_in_version
from ottla.txn.metadata import TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.sliced import mapped

FOR_BROKERS_SINCE = 4


def accesses(context: RequestContext, request: AddPartitionsToTxnRequest) -> Accesses:
    """CLUSTER_ACTION between brokers; of clients WRITE of the transactional id and of each topic."""
    if context.api_version >= FOR_BROKERS_SINCE:
        yield CLUSTER_ACTION
        return
    yield Access(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    yield from on_topics(Operation.WRITE, (topic.name for topic in request.v3_and_below_topics))


def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> None:
    """Have the coordinator add or verify the partitions of each transaction."""
    if context.api_version < FOR_BROKERS_SINCE:
        context.run(_add_one(context, request))
    elif context.permits(*CLUSTER_ACTION):
        context.run(_add_all(context, request))
    else:
        context.reply(AddPartitionsToTxnResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))


async def _add_one(context: RequestContext, request: AddPartitionsToTxnRequest) -> None:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )
    errors = await _errors_of(context, transaction)
    await context.replied(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(errors)))


async def _add_all(context: RequestContext, request: AddPartitionsToTxnRequest) -> None:
    found: list[AddPartitionsToTxnResult] = []
    for transaction in request.transactions:
        errors = await _errors_of(context, transaction)
        result = AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=_results(errors))
        found.append(result)
    await context.replied(AddPartitionsToTxnResponse(results_by_transaction=found))


async def _errors_of(
    context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> Mapping[TopicPartition, ErrorCode]:
    """The error of each partition of a transaction."""
    is_of_client = context.api_version < FOR_BROKERS_SINCE
    writer = transaction.transactional_id
    may_write = not is_of_client or context.permits(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, writer)
    refusal = ErrorCode.NONE if may_write else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in transaction.topics:
        error = _topic_error(context, topic, is_of_client) if may_write else refusal
        known = context.broker.image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        for index in topic.partitions:
            await context.broker.slices.point()
            is_missing = error is ErrorCode.NONE and not 0 <= index < count
            errors[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_missing else error
    if any(errors.values()):
        # As in Kafka the others of the transaction are not added either.
        attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
        return {each: error or attempted for each, error in errors.items()}
    result = await _submit(context, transaction, list(errors))
    version = context.api_version
    return {
        each: error_in_version(error, ApiKey.ADD_PARTITIONS_TO_TXN, version) for each, error in result.errors.items()
    }


def _topic_error(context: RequestContext, topic: AddPartitionsToTxnTopic, is_of_client: bool) -> ErrorCode:
    if not is_of_client:
        return ErrorCode.NONE
    is_allowed = not is_internal_topic(topic.name) and context.permits(Operation.WRITE, ResourceType.TOPIC, topic.name)
    return ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _submit(
    context: RequestContext, transaction: AddPartitionsToTxnTransaction, partitions: Sequence[TopicPartition]
) -> PartitionsResult:
    answered: asyncio.Future[PartitionsResult] = asyncio.get_running_loop().create_future()
    kind = VerifyPartitionsInTxn if transaction.verify_only else AddPartitionsToTxn
    producer = transaction.producer_id, transaction.producer_epoch
    context.broker.transactions.submit(
        kind(partial(settle, answered), transaction.transactional_id, *producer, partitions)
    )
    return await answered


def _results(errors: Mapping[TopicPartition, ErrorCode]) -> Any:
    by_topic: dict[str, list[tuple[int, ErrorCode]]] = {}
    for (name, index), error in errors.items():
        by_topic.setdefault(name, []).append((index, error))
    return mapped(by_topic.items(), _topic_result)


def _topic_result(item: tuple[str, list[tuple[int, ErrorCode]]]) -> AddPartitionsToTxnTopicResult:
    name, errors = item
    return AddPartitionsToTxnTopicResult(
        name=name,
        results_by_partition=mapped(
            errors,
            lambda each: AddPartitionsToTxnPartitionResult(partition_index=each[0], partition_error_code=each[1]),
        ),
    )
