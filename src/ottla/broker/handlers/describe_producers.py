"""DescribeProducers (key 61), version 0: the idempotent and transactional producers of partitions (KIP-664).

Any replica answers, each from its own log. A producer is shown as long as its sequence numbers are known
(`producer.id.expiration.ms`).
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_topics
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.storage.producer_state import ProducerEntry
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from ottla.wire.sliced import mapped


def accesses(context: RequestContext, request: DescribeProducersRequest) -> Accesses:
    yield from on_topics(Operation.READ, (topic.name for topic in request.topics))


def handle(context: RequestContext, request: DescribeProducersRequest) -> None:
    def topic_result(topic: TopicRequest) -> TopicResponse:
        refused = ErrorCode.NONE
        if not context.permits(Operation.READ, ResourceType.TOPIC, topic.name):
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic.name not in context.broker.image.topics:
            refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return TopicResponse(
            name=topic.name,
            partitions=mapped(topic.partition_indexes, lambda index: _answer(context, topic.name, index, refused)),
        )

    context.reply_in_slices(DescribeProducersResponse(topics=mapped(request.topics, topic_result)))


def _answer(context: RequestContext, topic: str, index: int, refused: ErrorCode) -> PartitionResponse:
    if refused is not ErrorCode.NONE:
        # As in Kafka only these errors come with their text.
        return PartitionResponse(
            partition_index=index, error_code=int(refused), error_message=refused.message, active_producers=[]
        )
    partitions = context.broker.partitions
    partition = partitions.get(topic, index)
    if partition is None:
        error = partitions.missing(topic, index)
        return PartitionResponse(partition_index=index, error_code=int(error), active_producers=[])
    producers = list(partition.log.producers)
    return PartitionResponse(partition_index=index, error_code=0, active_producers=mapped(producers, _producer))


def _producer(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_start,
    )
