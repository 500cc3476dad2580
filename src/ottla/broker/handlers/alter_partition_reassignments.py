"""AlterPartitionReassignments (key 45), version 0: place partitions on other brokers, or give that up (KIP-455).

The answer comes when the moves have begun; ListPartitionReassignments says which are under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.error_answers import error_fields
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.cluster.controller_events import PartitionKey
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

#: Partitions that the controller is asked to move in one event, which bounds the time on the loop.
MOST_AT_ONCE = 500


def accesses(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Accesses:
    return (on_cluster(Operation.ALTER),)


def handle(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> None:
    if not context.permits(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        context.spawn(_refuse(context, request))
    else:
        context.spawn(_alter(context, request))


def _whole(
    refusal: TopicRefusal, responses: list[ReassignableTopicResponse] | None = None
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=int(refusal.error), error_message=refusal.message, responses=responses or []
    )


async def _refuse(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> None:
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refused = TopicRefusal(error, error.message)
    wanted = await _wanted(context, request)
    await context.replied(_whole(refused, await _results(context, wanted, dict.fromkeys(wanted, refused))))


async def _wanted(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> dict[PartitionKey, tuple[int, ...] | None]:
    slices = context.broker.slices
    wanted: dict[PartitionKey, tuple[int, ...] | None] = {}
    for topic in request.topics:
        await slices.point()
        for each in topic.partitions:
            await slices.point()
            wanted[topic.name, each.partition_index] = None if each.replicas is None else tuple(each.replicas)
    return wanted


async def _alter(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> None:
    control, slices = context.broker.control, context.broker.slices
    await control.served.wait_for_controller(request.timeout_ms, lambda: context.is_gone)
    if not control.is_controller:
        await context.replied(_whole(TopicRefusal(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER.message)))
        return
    wanted = await _wanted(context, request)
    refusals: dict[PartitionKey, TopicRefusal] = {}
    keys = list(wanted)
    for start in range(0, len(keys), MOST_AT_ONCE):
        part = {key: wanted[key] for key in keys[start : start + MOST_AT_ONCE]}
        result = await control.admin.reassign(part, needs_live=True)
        if isinstance(result, TopicRefusal):
            await context.replied(_whole(result))
            return
        refusals.update(result.refusals)
        await slices.point()
    await context.replied(AlterPartitionReassignmentsResponse(responses=await _results(context, keys, refusals)))


async def _results(
    context: RequestContext, keys: Iterable[PartitionKey], refusals: Mapping[PartitionKey, TopicRefusal]
) -> list[ReassignableTopicResponse]:
    results: dict[str, ReassignableTopicResponse] = {}
    for name, index in keys:
        await context.broker.slices.point()
        refusal = refusals.get((name, index))
        topic = results.setdefault(name, ReassignableTopicResponse(name=name, partitions=[]))
        topic.partitions.append(ReassignablePartitionResponse(partition_index=index, **error_fields(refusal)))
    return list(results.values())
