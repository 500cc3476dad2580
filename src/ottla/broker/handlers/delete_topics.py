"""DeleteTopics (key 20), versions 0-6: delete topics with their logs.

1 adds the throttle time; 3 may answer TOPIC_DELETION_DISABLED; 4 is flexible; 5 adds error messages; 6 takes topics by
name or by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import Operation, ResourceType, on_topic
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.schema import ZERO_UUID
from ottla.wire.stepwise import mapped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ottla.broker.authorization import Access
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 6

TOPICS_SINCE = 6
DELETION_DISABLED_SINCE = 3


def accesses(context: RequestContext, request: DeleteTopicsRequest) -> Iterable[Access]:
    """DESCRIBE and DELETE of each topic."""
    known = context.broker.image.topic_names
    names: Iterable[str | None]
    if context.api_version >= TOPICS_SINCE:
        names = (topic.name or known.get(topic.topic_id) for topic in request.topics)
    else:
        names = request.topic_names
    for name in names:
        if name is not None:
            yield on_topic(Operation.DESCRIBE, name)
            yield on_topic(Operation.DELETE, name)


def handle(context: RequestContext, request: DeleteTopicsRequest) -> None:
    """Delete the topics one after the other; each has its own result."""
    if context.api_version >= TOPICS_SINCE:
        topics: Collection[DeleteTopicState] = request.topics
    else:
        topics = mapped(request.topic_names, lambda name: DeleteTopicState(name=name))
    context.spawn(_delete(context, topics))


def _name_and_id(topic: DeleteTopicState) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=int(ErrorCode.INVALID_REQUEST),
        error_message="Topic name and topic ID can not both be specified.",
    )


async def _delete(context: RequestContext, topics: Collection[DeleteTopicState]) -> None:
    slices = context.broker.slices
    for topic in topics:
        await slices.point()
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            await context.replied(DeleteTopicsResponse(responses=mapped(topics, _name_and_id)))
            return
    results = []
    for topic in topics:
        await slices.point()
        if context.is_gone:
            return
        name = topic.name if topic.name is not None else context.broker.image.topic_names.get(topic.topic_id)
        result = DeletableTopicResult(name=name, topic_id=topic.topic_id, error_code=0)
        if name is None or (topic.name is None and not _permits(context, Operation.DESCRIBE, name)):
            result.error_code = int(ErrorCode.UNKNOWN_TOPIC_ID)
        elif not _permits(context, Operation.DELETE, name):
            result.error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            topic_id = topic.topic_id if topic.name is None else None
            refusal = await context.broker.control.delete_topic(name, topic_id)
            if refusal is not None:
                result.error_code = int(_known_to(refusal.error, context.api_version))
                # For an unknown topic Kafka sends no message.
                unknown = refusal.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                result.error_message = None if unknown else refusal.response_message
        results.append(result)
    await context.replied(DeleteTopicsResponse(responses=results))


def _permits(context: RequestContext, operation: Operation, name: str) -> bool:
    return context.permits(operation, ResourceType.TOPIC, name)


def _known_to(error: ErrorCode, version: int) -> ErrorCode:
    """Map an error for older clients, which do not know that deletion can be disabled."""
    if error is ErrorCode.TOPIC_DELETION_DISABLED and version < DELETION_DISABLED_SINCE:
        return ErrorCode.INVALID_REQUEST
    return error
