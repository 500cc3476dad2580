"""OffsetForLeaderEpoch (key 23), versions 0-4: the end offset of a leader epoch (KIP-101, KIP-320).

1 adds the epoch found, 2 the client's current epoch and the throttle time, 3 the replica id, 4 is flexible. Consumers
use it to detect a truncated log, followers to truncate their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import CLUSTER_ACTION, Operation, ResourceType, on_topics
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ottla.wire.stepwise import mapped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.authorization import Access
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 4


def accesses(context: RequestContext, request: OffsetForLeaderEpochRequest) -> Iterable[Access]:
    """CLUSTER_ACTION, as brokers have it, or DESCRIBE of each topic."""
    yield CLUSTER_ACTION
    yield from on_topics(Operation.DESCRIBE, (topic.topic for topic in request.topics))


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> None:
    """Reply per partition; -1 and -1 for an unknown epoch."""
    is_broker = context.permits(*CLUSTER_ACTION)

    def topic_result(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
        allowed = is_broker or context.permits(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        return OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=mapped(topic.partitions, lambda asked: _answer(context, topic.topic, asked, allowed)),
        )

    context.reply_in_slices(OffsetForLeaderEpochResponse(topics=mapped(request.topics, topic_result)))


def _answer(context: RequestContext, topic: str, asked: OffsetForLeaderPartition, allowed: bool) -> EpochEndOffset:
    if not allowed:
        refused = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return EpochEndOffset(error_code=refused, partition=asked.partition, leader_epoch=-1, end_offset=-1)
    partitions = context.broker.partitions
    partition = partitions.get(topic, asked.partition)
    if partition is None:
        error = partitions.missing(topic, asked.partition)
    else:
        error = partition.check_leads(asked.current_leader_epoch)
    if partition is None or error is not ErrorCode.NONE:
        return EpochEndOffset(error_code=int(error), partition=asked.partition, leader_epoch=-1, end_offset=-1)
    found = partition.log.epochs.end_of(asked.leader_epoch, partition.log.log_end_offset)
    return EpochEndOffset(
        error_code=0, partition=asked.partition, leader_epoch=found.leader_epoch, end_offset=found.end_offset
    )
