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
    """Hand on the known partitions; the others are refused one by one, as Kafka does."""
    known = context.broker.image.topics
    asked = {(topic.name, one.partition_index): None for topic in request.topics for one in topic.partitions}
    handed_on = [
        (name, index) for name, index in asked if (found := known.get(name)) and 0 <= index < len(found.partitions)
    ]
    answer = partial(_answer, context, list(asked), handed_on)
    context.broker.groups.submit(DeleteOffsets(answer, request.group_id, handed_on))


def _answer(
    context: RequestContext,
    asked: list[tuple[str, int]],
    handed_on: list[tuple[str, int]],
    result: DeleteOffsetsResult,
) -> None:
    """Every partition once, however often it was named; one that was not handed on is unknown."""
    if result.error is not ErrorCode.NONE:
        context.reply(OffsetDeleteResponse(error_code=result.error))
        return
    errors = dict(zip(handed_on, result.errors, strict=True))
    topics: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for name, index in asked:
        error = errors.get((name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        answer = OffsetDeleteResponsePartition(partition_index=index, error_code=error)
        topics.setdefault(name, []).append(answer)
    context.reply(
        OffsetDeleteResponse(
            error_code=ErrorCode.NONE,
            topics=[OffsetDeleteResponseTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
    )
