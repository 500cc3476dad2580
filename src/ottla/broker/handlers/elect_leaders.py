"""ElectLeaders (key 43), versions 0-2: elect the preferred replicas, or any live ones, as leaders (KIP-183, KIP-460).

1 adds the type of the election and an error of the whole request; 2 is flexible. None as partitions stands for all;
those that need no election are then left out of the response.
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.error_answers import error_fields
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.cluster.controller_events import PartitionKey
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

UNCLEAN = 1

#: Partitions for which the controller is asked in one event, which bounds the time on the loop.
MOST_AT_ONCE = 1_000


def accesses(context: RequestContext, request: ElectLeadersRequest) -> Accesses:
    return (on_cluster(Operation.ALTER),)


def handle(context: RequestContext, request: ElectLeadersRequest) -> None:
    """Have the controller elect leaders; where this broker is not the controller each partition says so."""
    if not context.permits(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        context.reply(_refused(context, request))
        return
    context.spawn(_elect(context, request))


def _refused(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[PartitionResult(partition_id=index, error_code=int(error)) for index in topic.partitions],
        )
        for topic in request.topic_partitions or ()
    ]
    of_all = int(error) if context.api_version >= 1 else 0
    return ElectLeadersResponse(error_code=of_all, replica_election_results=results)


async def _elect(context: RequestContext, request: ElectLeadersRequest) -> None:
    await context.broker.control.served.wait_for_controller(request.timeout_ms, lambda: context.is_gone)
    control, slices = context.broker.control, context.broker.slices
    requested = request.topic_partitions
    keys = await _keys(context, request)
    refusals: dict[PartitionKey, TopicRefusal] = {}
    for start in range(0, len(keys), MOST_AT_ONCE):
        await slices.point()
        result = await control.admin.elect_leaders(
            keys[start : start + MOST_AT_ONCE], is_unclean=request.election_type == UNCLEAN
        )
        refusals.update(result.refusals)
    results: dict[str, ReplicaElectionResult] = {}
    for name, index in keys:
        await slices.point()
        refusal = refusals.get((name, index))
        if requested is None and refusal is not None and refusal.error is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        topic = results.setdefault(name, ReplicaElectionResult(topic=name, partition_result=[]))
        topic.partition_result.append(PartitionResult(partition_id=index, **error_fields(refusal)))
    await context.replied(ElectLeadersResponse(replica_election_results=list(results.values())))


async def _keys(context: RequestContext, request: ElectLeadersRequest) -> list[PartitionKey]:
    """The partitions that are named, or all."""
    slices = context.broker.slices
    keys: list[PartitionKey] = []
    if request.topic_partitions is None:
        for name, known in tuple(context.broker.control.image.topics.items()):
            await slices.point()
            keys.extend((name, index) for index in range(len(known.partitions)))
        return keys
    for topic in request.topic_partitions:
        async for chunk in slices.chunks(topic.partitions):
            keys.extend((topic.topic, index) for index in chunk)
    return keys
