"""OffsetForLeaderEpoch (key 23), versions 0-4: where a leader epoch ended (KIP-101, KIP-320).

1 adds the epoch that was found, 2 the client's current epoch and the throttle time, 3 the replica id, 4 is flexible.
Consumers use it to notice a truncated log, followers to truncate their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 4


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> None:
    """Answer per partition; -1 and -1 where the epoch is not known."""
    context.reply(
        OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[_answer(context, topic.topic, asked) for asked in topic.partitions],
                )
                for topic in request.topics
            ]
        )
    )


def _answer(context: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partitions = context.broker.partitions
    partition = partitions.get(topic, asked.partition)
    if partition is None:
        error = partitions.missing(topic, asked.partition)
    else:
        error = partition.check_epoch(asked.current_leader_epoch)
    if partition is None or error is not ErrorCode.NONE:
        return EpochEndOffset(error_code=int(error), partition=asked.partition, leader_epoch=-1, end_offset=-1)
    found = partition.log.epoch_end_offset(asked.leader_epoch)
    return EpochEndOffset(
        error_code=0, partition=asked.partition, leader_epoch=found.leader_epoch, end_offset=found.end_offset
    )
