"""ListPartitionReassignments (key 46), version 0: the moves of partitions that are under way (KIP-455).

None as topics stands for all; partitions that do not move, or do not exist, are left out of the response.
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def accesses(context: RequestContext, request: ListPartitionReassignmentsRequest) -> Accesses:
    return (on_cluster(Operation.DESCRIBE),)


def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> None:
    error = ErrorCode.NONE
    if not context.permits(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif not context.broker.control.served.is_active:
        error = ErrorCode.NOT_CONTROLLER
    if error is not ErrorCode.NONE:
        context.reply(ListPartitionReassignmentsResponse(error_code=int(error), error_message=error.message))
        return
    context.spawn(_list(context, request))


async def _list(context: RequestContext, request: ListPartitionReassignmentsRequest) -> None:
    slices = context.broker.slices
    control = context.broker.control
    # One that takes office reads the moves in slices: before it has, they would look as if they had ended.
    await control.controller.settled()
    if not control.served.is_active:
        error = ErrorCode.NOT_CONTROLLER
        await context.replied(ListPartitionReassignmentsResponse(error_code=int(error), error_message=error.message))
        return
    controller = control.controller.controller
    if request.topics is None:
        moves = controller.reassignments()
    else:
        moves = {}
        for topic in request.topics:
            async for chunk in slices.chunks(topic.partition_indexes):
                moves.update(controller.reassignments((topic.name, each) for each in chunk))
    found: dict[str, OngoingTopicReassignment] = {}
    for (name, index), (known, move) in sorted(moves.items()):
        await slices.point()
        found.setdefault(name, OngoingTopicReassignment(name=name, partitions=[])).partitions.append(
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(known.replicas),
                adding_replicas=list(move.adding),
                removing_replicas=list(move.removing),
            )
        )
    await context.replied(ListPartitionReassignmentsResponse(topics=list(found.values())))
