"""OffsetDelete (key 47), version 0: delete committed offsets of topics that a group does not subscribe to (KIP-496)."""

from __future__ import annotations

from functools import partial

from ottla.broker.authorization import Accesses, on_group, on_topics
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.groups.events import DeleteOffsets, DeleteOffsetsResult
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.sliced import mapped

#: Partitions processed between two slices.
PARTITIONS_PER_SLICE = 64


def accesses(context: RequestContext, request: OffsetDeleteRequest) -> Accesses:
    yield on_group(Operation.DELETE, request.group_id)
    yield from on_topics(Operation.READ, (topic.name for topic in request.topics))


def handle(context: RequestContext, request: OffsetDeleteRequest) -> None:
    """Submit the known partitions to the group; the others get an error each, as in Kafka."""
    if not context.permits(Operation.DELETE, ResourceType.GROUP, request.group_id):
        context.reply(OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    context.run(_delete(context, request))


async def _delete(context: RequestContext, request: OffsetDeleteRequest) -> None:
    known = context.broker.image.topics
    errors: dict[str, dict[int, ErrorCode]] = {}
    handed_on: list[tuple[str, int]] = []
    for topic in request.topics:
        await context.broker.slices.point()
        name = topic.name
        found = known.get(name)
        size = len(found.partitions) if found is not None else 0
        allowed = context.permits(Operation.READ, ResourceType.TOPIC, name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        indexes = errors.setdefault(name, {})
        for number, one in enumerate(topic.partitions):
            index = one.partition_index
            if index not in indexes:
                indexes[index] = error
                if allowed and 0 <= index < size:
                    handed_on.append((name, index))
            if number % PARTITIONS_PER_SLICE == 0:
                await context.broker.slices.point()
    answer = partial(_answer, context, errors, handed_on)
    context.broker.groups.submit(DeleteOffsets(answer, request.group_id, handed_on))


def _answer(
    context: RequestContext,
    errors: dict[str, dict[int, ErrorCode]],
    handed_on: list[tuple[str, int]],
    result: DeleteOffsetsResult,
) -> None:
    """Send each partition's error, once even if it is named repeatedly; one not submitted has its error already."""
    if result.error is not ErrorCode.NONE:
        context.reply(OffsetDeleteResponse(error_code=result.error))
        return
    for (name, index), error in zip(handed_on, result.errors, strict=True):
        errors[name][index] = error
    context.reply_in_slices(OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=mapped(errors.items(), _topic)))


def _topic(item: tuple[str, dict[int, ErrorCode]]) -> OffsetDeleteResponseTopic:
    name, errors = item
    return OffsetDeleteResponseTopic(
        name=name,
        partitions=mapped(
            errors.items(), lambda one: OffsetDeleteResponsePartition(partition_index=one[0], error_code=one[1])
        ),
    )
