"""LeaderAndIsr (key 4), versions 0-7: the controller gives this broker's replicas their roles.

1 says which replicas are new; 2 checks the broker epoch (KIP-380), partitions by topic; 3 names replicas that are added
and removed (KIP-455), which nothing here depends on; 5 topic ids, results by topic id (KIP-516); 6 recovery state of
the leader (KIP-704); 7 says whether the controller is one of KRaft, which is refused (KIP-866).
"""

from __future__ import annotations

from uuid import UUID

from ottla.broker.authorization import CLUSTER_ACTION, Accesses
from ottla.broker.context import RequestContext
from ottla.broker.control.control_requests import entries_by_topic, header_of
from ottla.cluster.control_batches import PartitionEntry
from ottla.cluster.image import PartitionImage
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.zk.layout import RECOVERING
from ottla.zk.tree import ZkError

#: First version with topic ids, and with results by topic id.
WITH_TOPIC_IDS = 5


def accesses(context: RequestContext, request: LeaderAndIsrRequest) -> Accesses:
    return (CLUSTER_ACTION,)


def handle(context: RequestContext, request: LeaderAndIsrRequest) -> None:
    """Apply it to the end, also if the controller disconnects: it sends it again then."""
    if not context.permits(*CLUSTER_ACTION):
        context.answer_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request)
        return
    context.spawn(_apply(context, request))


async def _apply(context: RequestContext, request: LeaderAndIsrRequest) -> None:
    topics = await entries_by_topic(request, context.broker.slices, _entry)
    try:
        results = await context.broker.control_requests.lead_or_follow(header_of(request), topics)
    except ZkError:
        context.disconnect()  # without the settings of topics nothing can be hosted: the controller tries again
        return
    response = LeaderAndIsrResponse()
    if isinstance(results, ErrorCode):
        response.error_code = int(results)
        results = [(topic, [results] * len(topic.entries)) for topic in topics]
    for topic, errors in results:
        partitions: list[LeaderAndIsrPartitionError] = []
        async for chunk in context.broker.slices.chunks(zip(topic.entries, errors, strict=True)):
            partitions += [
                LeaderAndIsrPartitionError(
                    topic_name=topic.name, partition_index=entry.partition, error_code=int(error)
                )
                for entry, error in chunk
            ]
        if context.api_version >= WITH_TOPIC_IDS:
            response.topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=partitions))
        else:
            response.partition_errors.extend(partitions)
    await context.replied(response)


def _entry(topic: str, topic_id: UUID, state: LeaderAndIsrPartitionState) -> PartitionEntry:
    image = PartitionImage(state.leader, state.leader_epoch, tuple(state.replicas), tuple(state.isr))
    is_recovering = state.leader_recovery_state == RECOVERING
    return PartitionEntry(
        topic, topic_id, state.partition_index, image, state.partition_epoch, (), state.is_new, is_recovering
    )
