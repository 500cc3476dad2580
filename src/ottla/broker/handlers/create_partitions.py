"""CreatePartitions (key 37), versions 0-3: add partitions to topics (KIP-195).

2 is flexible; 3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from itertools import islice

from ottla.broker.authorization import Accesses, on_topics
from ottla.broker.context import RequestContext
from ottla.broker.error_answers import error_fields
from ottla.broker.handlers.create_topics import ASSIGNMENTS_LIMIT
from ottla.cluster.acls import Operation, ResourceType
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.sliced import GrowingArray

#: The first version that is refused where a quota is used up; older ones are only throttled.
REFUSES_SINCE = 3


def accesses(context: RequestContext, request: CreatePartitionsRequest) -> Accesses:
    return on_topics(Operation.ALTER, (topic.name for topic in request.topics))


def handle(context: RequestContext, request: CreatePartitionsRequest) -> None:
    """Add partitions topic by topic; each topic has its own result."""
    context.spawn(_grow(context, request))


async def _grow(context: RequestContext, request: CreatePartitionsRequest) -> None:
    await context.broker.control.served.wait_for_controller(request.timeout_ms, lambda: context.is_gone)
    slices = context.broker.slices
    # How often each topic is named. There may be very many: names go from here as their results are encoded.
    counts: dict[str, int] = {}
    for topic in request.topics:
        await slices.point()
        counts[topic.name] = counts.get(topic.name, 0) + 1
    results = GrowingArray(CreatePartitionsResponse, "results", context.api_version)
    for topic in request.topics:
        await slices.point()
        if context.is_gone:
            return
        count = counts.pop(topic.name, 0)
        if count == 0:
            continue
        by_hand = None
        if topic.assignments is not None:
            by_hand = [assigned.broker_ids for assigned in islice(topic.assignments, ASSIGNMENTS_LIMIT + 1)]
        if by_hand is not None and len(by_hand) > ASSIGNMENTS_LIMIT:
            refusal: TopicRefusal | None = TopicRefusal(
                ErrorCode.INVALID_REQUEST, f"A request places at most {ASSIGNMENTS_LIMIT} partitions of a topic."
            )
        elif count > 1:
            refusal = TopicRefusal(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        elif not context.permits(Operation.ALTER, ResourceType.TOPIC, topic.name):
            refusal = TopicRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")
        else:
            refusal = await _grown(context, topic, by_hand, request.validate_only)
        results.add(CreatePartitionsTopicResult(name=topic.name, **error_fields(refusal)))
    await context.replied(CreatePartitionsResponse(results=results.encoded()))


async def _grown(
    context: RequestContext, topic: CreatePartitionsTopic, by_hand: list[list[int]] | None, validate_only: bool
) -> TopicRefusal | None:
    """Add partitions, unless the client's quota of changes is used up; what is not valid does not count in it."""
    grow = context.broker.control.admin.create_partitions
    if not validate_only and context.charge is not None and context.charge.limits_mutations:
        present = context.broker.image.topics.get(topic.name)
        refusal = await grow(topic.name, topic.count, by_hand, validate_only=True)
        if refusal is None:
            added = topic.count - (0 if present is None else len(present.partitions))
            refusal = context.charge.mutation_refusal(added, strict=context.api_version >= REFUSES_SINCE)
        if refusal is not None:
            return refusal
    return await grow(topic.name, topic.count, by_hand, validate_only=validate_only)
