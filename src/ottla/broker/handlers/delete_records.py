"""DeleteRecords (key 21), versions 0-2: moves a partition's log start (KIP-107).

1 is the same as 0, 2 is flexible. Offset -1 stands for the high watermark. What lies below the new start can no longer
be read at once; whole segments go in the background.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.results import DeleteRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 2


def handle(context: RequestContext, request: DeleteRecordsRequest) -> None:
    """Answer each partition, once, with its low watermark: the new log start."""
    asked = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics
        for partition in topic.partitions
    }
    results: dict[str, DeleteRecordsTopicResult] = {}
    for (name, index), offset in asked.items():
        low_watermark, error = _delete(context, name, index, offset)
        topic = results.setdefault(name, DeleteRecordsTopicResult(name=name))
        topic.partitions.append(
            DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=int(error))
        )
    context.reply(DeleteRecordsResponse(topics=list(results.values())))


def _delete(context: RequestContext, topic: str, index: int, offset: int) -> tuple[int, ErrorCode]:
    partition = context.broker.partitions.get(topic, index)
    if partition is None:
        return -1, context.broker.partitions.missing(topic, index)
    if partition.is_internal:
        return -1, ErrorCode.INVALID_TOPIC_EXCEPTION
    deleted = partition.log.delete_records(offset)
    if isinstance(deleted, DeleteRefusal):
        return -1, deleted.error
    return deleted, ErrorCode.NONE
