"""OffsetDelete (key 47), version 0: forget committed offsets of topics that a group does not subscribe to (KIP-496)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.groups.events import DeleteOffsets, DeleteOffsetsResult
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 0


def handle(context: RequestContext, request: OffsetDeleteRequest) -> None:
    """Hand on what belongs to known topics; the others are refused one by one, as Kafka does."""
    known = context.broker.image.topics
    asked = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        if topic.name in known
        for partition in topic.partitions
    ]
    context.broker.groups.submit(DeleteOffsets(partial(_answer, context, request, asked), request.group_id, asked))


def _answer(
    context: RequestContext, request: OffsetDeleteRequest, asked: list[tuple[str, int]], result: DeleteOffsetsResult
) -> None:
    if result.error is not ErrorCode.NONE:
        context.reply(OffsetDeleteResponse(error_code=result.error))
        return
    errors = dict(zip(asked, result.errors, strict=True))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=one.partition_index,
                    error_code=errors.get((topic.name, one.partition_index), unknown),
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    context.reply(OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics))
