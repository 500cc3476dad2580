"""DeleteTopics (key 20), versions 0-6: delete topics with their logs.

1 adds the throttle time; 3 may answer TOPIC_DELETION_DISABLED; 4 is flexible; 5 says what is wrong in words; 6 takes
topics by name or by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 6

TOPICS_SINCE = 6
DELETION_DISABLED_SINCE = 3


def handle(context: RequestContext, request: DeleteTopicsRequest) -> None:
    """Delete the topics one after the other; each has its own result."""
    if context.api_version >= TOPICS_SINCE:
        topics = request.topics
    else:
        topics = [DeleteTopicState(name=name) for name in request.topic_names]
    if any(topic.name is not None and topic.topic_id != ZERO_UUID for topic in topics):
        context.reply(DeleteTopicsResponse(responses=[_name_and_id(topic) for topic in topics]))
        return
    context.spawn(_delete(context, topics))


def _name_and_id(topic: DeleteTopicState) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=int(ErrorCode.INVALID_REQUEST),
        error_message="Topic name and topic ID can not both be specified.",
    )


async def _delete(context: RequestContext, topics: list[DeleteTopicState]) -> None:
    results = []
    for topic in topics:
        name = topic.name if topic.name is not None else context.broker.image.topic_names.get(topic.topic_id)
        result = DeletableTopicResult(name=name, topic_id=topic.topic_id, error_code=0)
        if name is None:
            result.error_code = int(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            refusal = await context.broker.control.delete_topic(name)
            if refusal is not None:
                result.error_code = int(_known_to(refusal.error, context.api_version))
                # Of a topic that is not there Kafka says nothing more than that.
                unknown = refusal.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                result.error_message = None if unknown else refusal.told
        results.append(result)
    context.reply(DeleteTopicsResponse(responses=results))


def _known_to(error: ErrorCode, version: int) -> ErrorCode:
    """Clients of old do not know that deletion may be switched off."""
    if error is ErrorCode.TOPIC_DELETION_DISABLED and version < DELETION_DISABLED_SINCE:
        return ErrorCode.INVALID_REQUEST
    return error
