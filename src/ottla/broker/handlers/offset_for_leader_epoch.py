"""OffsetForLeaderEpoch (key 23), versions 0-4: the end offset of a leader epoch (KIP-101, KIP-320).

1 adds the epoch found, 2 the client's current epoch and the throttle time, 3 the replica id, 4 is flexible. Consumers
use it to detect a truncated log, followers to truncate their own.
"""

from __future__ import annotations

from ottla.broker.authorization import CLUSTER_ACTION, Accesses, on_topics, or_else
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ottla.wire.sliced import mapped


def accesses(context: RequestContext, request: OffsetForLeaderEpochRequest) -> Accesses:
    """CLUSTER_ACTION, as brokers have it, or DESCRIBE of each topic."""
    return or_else(CLUSTER_ACTION, on_topics(Operation.DESCRIBE, (topic.topic for topic in request.topics)))


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> None:
    """Reply per partition; -1 and -1 for an unknown epoch."""
    is_broker = context.permits(*CLUSTER_ACTION)

    def topic_result(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
        allowed = is_broker or context.permits(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        return OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=mapped(topic.partitions, lambda requested: _answer(context, topic.topic, requested, allowed)),
        )

    context.reply_in_slices(OffsetForLeaderEpochResponse(topics=mapped(request.topics, topic_result)))


def _answer(context: RequestContext, topic: str, requested: OffsetForLeaderPartition, allowed: bool) -> EpochEndOffset:
    if not allowed:
        refused = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return EpochEndOffset(error_code=refused, partition=requested.partition, leader_epoch=-1, end_offset=-1)
    partitions = context.broker.partitions
    partition = partitions.get(topic, requested.partition)
    if partition is None:
        error = partitions.missing(topic, requested.partition)
    else:
        error = partition.check_leads(requested.current_leader_epoch)
    if partition is None or error is not ErrorCode.NONE:
        return EpochEndOffset(error_code=int(error), partition=requested.partition, leader_epoch=-1, end_offset=-1)
    found = partition.log.epochs.end_of(requested.leader_epoch, partition.log.log_end_offset)
    return EpochEndOffset(
        error_code=0, partition=requested.partition, leader_epoch=found.leader_epoch, end_offset=found.end_offset
    )
