"""DeleteRecords (key 21), versions 0-2: advance a partition's log start offset (KIP-107).

1 is the same as 0, 2 is flexible. Offset -1 stands for the high watermark. Records below the new start can no longer be
read at once; whole segments are deleted in the background.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import Operation, ResourceType, on_topics
from ottla.storage.results import DeleteRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.wire.stepwise import mapped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.authorization import Access
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 2

#: Partitions processed between two slices.
PARTITIONS_PER_STEP = 64


def accesses(context: RequestContext, request: DeleteRecordsRequest) -> Iterable[Access]:
    """DELETE of each topic."""
    return on_topics(Operation.DELETE, (topic.name for topic in request.topics))


def handle(context: RequestContext, request: DeleteRecordsRequest) -> None:
    """Reply with the low watermark of each partition, which is the new log start offset; each partition once."""
    context.run(_delete_all(context, request))


async def _delete_all(context: RequestContext, request: DeleteRecordsRequest) -> None:
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        for number, partition in enumerate(topic.partitions):
            # As in Apache Kafka, a topic without partitions is not in the answer.
            offsets = asked.setdefault(topic.name, {})
            offsets[partition.partition_index] = partition.offset
            if number % PARTITIONS_PER_STEP == 0:
                await context.broker.slices.point()
        await context.broker.slices.point()
    await context.replied(DeleteRecordsResponse(topics=mapped(asked.items(), lambda item: _topic(context, *item))))


def _topic(context: RequestContext, name: str, offsets: dict[int, int]) -> DeleteRecordsTopicResult:
    """The results for a topic's partitions; records are deleted while the response is encoded."""

    def partition(item: tuple[int, int]) -> DeleteRecordsPartitionResult:
        index, offset = item
        low_watermark, error = _delete(context, name, index, offset)
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=int(error))

    return DeleteRecordsTopicResult(name=name, partitions=mapped(offsets.items(), partition))


def _delete(context: RequestContext, topic: str, index: int, offset: int) -> tuple[int, ErrorCode]:
    if not context.permits(Operation.DELETE, ResourceType.TOPIC, topic):
        return -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partition = context.broker.partitions.get(topic, index)
    if partition is None:
        return -1, context.broker.partitions.missing(topic, index)
    if partition.is_internal:
        return -1, ErrorCode.INVALID_TOPIC_EXCEPTION
    if partition.leader is None:
        return -1, ErrorCode.NOT_LEADER_OR_FOLLOWER
    deleted = partition.log.delete_records(offset)
    if isinstance(deleted, DeleteRefusal):
        return -1, deleted.error
    return deleted, ErrorCode.NONE
