"""StopReplica (key 5), versions 0-4: the controller ends replicas of this broker, and has their logs deleted.

1 checks the broker epoch (KIP-380), partitions by topic; 3 leader epoch and deletion for each partition (KIP-570): a
past epoch answers FENCED_LEADER_EPOCH; 4 says whether the controller is one of KRaft, which is refused (KIP-866).
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.authorization import CLUSTER_ACTION, Accesses
from ottla.broker.context import RequestContext
from ottla.broker.control.control_requests import header_of
from ottla.cluster.control_batches import StopEntry
from ottla.cluster.control_requests import NO_LEADER_EPOCH
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse


def accesses(context: RequestContext, request: StopReplicaRequest) -> Accesses:
    return (CLUSTER_ACTION,)


def handle(context: RequestContext, request: StopReplicaRequest) -> None:
    """Apply it to the end, also if the controller disconnects: it sends it again then."""
    if not context.permits(*CLUSTER_ACTION):
        context.answer_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request)
        return
    context.spawn(_apply(context, request))


async def _apply(context: RequestContext, request: StopReplicaRequest) -> None:
    slices = context.broker.slices
    entries: list[StopEntry] = []
    async for chunk in slices.chunks(_entries(request)):
        entries += chunk
    errors = await context.broker.control_requests.stop(header_of(request), entries)
    response = StopReplicaResponse()
    if isinstance(errors, ErrorCode):
        response.error_code = int(errors)
        errors = []
    async for results in slices.chunks(zip(entries, errors, strict=False)):
        response.partition_errors += [
            StopReplicaPartitionError(topic_name=entry.topic, partition_index=entry.partition, error_code=int(error))
            for entry, error in results
        ]
    await context.replied(response)


def _entries(request: StopReplicaRequest) -> Iterable[StopEntry]:
    is_deletion = request.delete_partitions
    for partition in request.ungrouped_partitions:
        yield StopEntry(partition.topic_name, partition.partition_index, NO_LEADER_EPOCH, is_deletion)
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield StopEntry(topic.name, index, NO_LEADER_EPOCH, is_deletion)
    for state in request.topic_states:
        for one in state.partition_states:
            yield StopEntry(state.topic_name, one.partition_index, one.leader_epoch, one.delete_partition)
