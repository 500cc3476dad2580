"""DeleteTopics (key 20), versions 0-6: delete topics with their logs.

1 adds the throttle time; 3 may answer TOPIC_DELETION_DISABLED; 4 is flexible; 5 adds error messages; 6 takes topics by
name or by id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from itertools import islice

from ottla.broker.authorization import Accesses, on_topic
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.schema import ZERO_UUID
from ottla.wire.sliced import mapped

TOPICS_SINCE = 6
#: The least wait. (Apache Kafka answers REQUEST_TIMED_OUT at once where a client's timeout is 0.)
LEAST_WAIT_S = 1.0
#: Topics deleted at the same time.
DELETED_AT_ONCE = 500
TIMED_OUT = TopicRefusal(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT.message)
DELETION_DISABLED_SINCE = 3
#: The first version that is refused where a quota is used up; older ones are only throttled.
REFUSES_SINCE = 5


def accesses(context: RequestContext, request: DeleteTopicsRequest) -> Accesses:
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
    if context.api_version >= TOPICS_SINCE:
        topics: Collection[DeleteTopicState] = request.topics
    else:
        topics = mapped(request.topic_names, lambda name: DeleteTopicState(name=name))
    context.spawn(_delete(context, topics, request.timeout_ms))


def _name_and_id(topic: DeleteTopicState) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=int(ErrorCode.INVALID_REQUEST),
        error_message="Topic name and topic ID can not both be specified.",
    )


async def _delete(context: RequestContext, topics: Collection[DeleteTopicState], timeout_ms: int) -> None:
    slices = context.broker.slices
    ends_at_s = asyncio.get_running_loop().time() + timeout_ms / 1000
    for topic in topics:
        await slices.point()
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            await context.replied(DeleteTopicsResponse(responses=mapped(topics, _name_and_id)))
            return
    results: list[DeletableTopicResult] = []
    await context.broker.control.served.wait_for_controller(timeout_ms, lambda: context.is_gone)
    remaining = iter(topics)
    while some := list(islice(remaining, DELETED_AT_ONCE)):
        if context.is_gone:
            return
        results += await _deleted(context, some, ends_at_s)
    await context.replied(DeleteTopicsResponse(responses=results))


async def _deleted(
    context: RequestContext, topics: Iterable[DeleteTopicState], ends_at_s: float
) -> list[DeletableTopicResult]:
    """Delete topics at once, and wait until all brokers have done so, up to `ends_at_s` by the loop's clock.

    Clients do not see them any more before that; one of the brokers may not answer for long.
    """
    broker, loop = context.broker, asyncio.get_running_loop()
    results = []
    deletions: dict[asyncio.Task[TopicRefusal | None], DeletableTopicResult] = {}
    try:
        for topic in topics:
            await broker.slices.point()
            result = _checked(context, topic)
            results.append(result)
            if context.charge is not None and result.error_code == ErrorCode.NONE:
                _note(result, _over_quota(context, result.name), context.api_version)
            if result.error_code == ErrorCode.NONE and result.name is not None:
                topic_id = topic.topic_id if topic.name is None else None
                deletions[loop.create_task(broker.control.admin.delete_topic(result.name, topic_id))] = result
        if deletions:
            await asyncio.wait(deletions, timeout=max(ends_at_s - loop.time(), LEAST_WAIT_S))
        for task, result in deletions.items():
            if task.done():
                _note(result, task.result(), context.api_version)
            elif result.name in broker.image.topics:
                _note(result, TIMED_OUT, context.api_version)
    finally:
        for task in deletions:
            task.cancel()  # what has begun continues
    return results


def _checked(context: RequestContext, topic: DeleteTopicState) -> DeletableTopicResult:
    """The result of a topic that cannot be deleted, or one without an error."""
    name = topic.name if topic.name is not None else context.broker.image.topic_names.get(topic.topic_id)
    result = DeletableTopicResult(name=name, topic_id=topic.topic_id, error_code=0)
    if name is None:
        result.error_code = int(ErrorCode.UNKNOWN_TOPIC_ID)
    elif topic.name is None and not _permits(context, Operation.DESCRIBE, name):
        # The client does not learn the name.
        result.name = None
        result.error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif not _permits(context, Operation.DELETE, name):
        result.error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return result


def _over_quota(context: RequestContext, name: str | None) -> TopicRefusal | None:
    """The refusal of a client whose quota of changes is used up; where deletion is disabled it is not used."""
    topic = context.broker.image.topics.get(name or "")
    if topic is None or context.charge is None or not context.broker.config.get_boolean("delete.topic.enable"):
        return None
    return context.charge.mutation_refusal(len(topic.partitions), strict=context.api_version >= REFUSES_SINCE)


def _note(result: DeletableTopicResult, refusal: TopicRefusal | None, version: int) -> None:
    if refusal is not None:
        result.error_code = int(_known_to(refusal.error, version))
        # For an unknown topic Kafka sends no message.
        unknown = refusal.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        result.error_message = None if unknown else refusal.response_message


def _permits(context: RequestContext, operation: Operation, name: str) -> bool:
    return context.permits(operation, ResourceType.TOPIC, name)


def _known_to(error: ErrorCode, version: int) -> ErrorCode:
    """Map an error for older clients, which do not know that deletion can be disabled."""
    if error is ErrorCode.TOPIC_DELETION_DISABLED and version < DELETION_DISABLED_SINCE:
        return ErrorCode.INVALID_REQUEST
    return error
