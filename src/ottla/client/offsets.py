"""Offsets of partitions: beginning, end, or by timestamp (ListOffsets).

Also the ends of leader epochs in the log of a partition's leader (OffsetForLeaderEpoch, KIP-101).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ottla.client.errors import BrokerError
from ottla.client.model import NO_OFFSET, OffsetAndTimestamp, TopicPartition, by_topic
from ottla.peer.cluster import Cluster
from ottla.peer.model import CONSUMER, READ_UNCOMMITTED
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

Found = dict[TopicPartition, OffsetAndTimestamp | None]
"""Result of ListOffsets per partition; None if no record is as late as the timestamp."""
Failed = dict[TopicPartition, BrokerError]


async def offsets_at(
    cluster: Cluster, partitions: Sequence[TopicPartition], at: int, isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Return each partition's offset at EARLIEST, LATEST, or the first at or after a timestamp (ms), else -1.

    LATEST is the high watermark, and the last stable offset with `isolation_level` READ_COMMITTED.
    """
    found = await find_offsets(cluster, dict.fromkeys(partitions, at), isolation_level)
    return {partition: NO_OFFSET if each is None else each.offset for partition, each in found.items()}


async def find_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: int | None = None,
) -> Found:
    """Return each partition's offset at EARLIEST, LATEST, or of the first record at or after a timestamp (ms).

    None without such a record. Raises ClientTimeoutError, and fatal errors of brokers.
    """
    found: Found = {}

    async def attempt() -> None:
        missing = [each for each in timestamps if each not in found]
        grouped = await cluster.by_leader(missing)
        answers = await asyncio.gather(
            *(
                list_offsets(cluster, leader, {each: timestamps[each] for each in partitions}, isolation_level)
                for leader, partitions in grouped.items()
            ),
            return_exceptions=True,
        )
        problem: BaseException | None = None
        for answer in answers:
            if isinstance(answer, BaseException):
                problem = answer
                continue
            offsets, failed = answer
            found.update(offsets)
            problem = next(iter(failed.values()), problem)
        if problem is not None:
            raise problem

    await cluster.retry("looking up offsets", attempt, timeout_ms)
    return {each: found[each] for each in timestamps}


async def list_offsets(
    cluster: Cluster, leader: int, timestamps: Mapping[TopicPartition, int], isolation_level: int
) -> tuple[Found, Failed]:
    """Ask one leader; returns offsets, and an error for each partition that failed."""
    answer: ListOffsetsResponse = await cluster.request(leader, list_offsets_request(timestamps, isolation_level))
    return offsets_in(answer, leader, timestamps)


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int], isolation_level: int = READ_UNCOMMITTED, *, replica_id: int = CONSUMER
) -> ListOffsetsRequest:
    """Return a request for partitions' offsets, each at EARLIEST, LATEST or a timestamp in milliseconds."""
    wanted = {
        each: ListOffsetsPartition(partition_index=each.partition, timestamp=at) for each, at in timestamps.items()
    }
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in by_topic(wanted).items()],
    )


def offsets_in(
    answer: ListOffsetsResponse, leader: int, partitions: Sequence[TopicPartition] | Mapping[TopicPartition, int]
) -> tuple[Found, Failed]:
    """Return the offsets of `partitions` in the leader's response, and an error for each without one."""
    found: Found = {}
    failed: Failed = {}
    for topic in answer.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code != ErrorCode.NONE:
                failed[partition] = BrokerError(each.error_code, f"no offset of {partition} from {leader}")
            elif each.offset == NO_OFFSET:
                found[partition] = None
            else:
                found[partition] = OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
    for partition in partitions:
        if partition not in found and partition not in failed:
            left_out = f"broker {leader} left {partition} out of its answer"
            failed[partition] = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, left_out)
    return found, failed


async def end_of_epoch(cluster: Cluster, partition: TopicPartition, epoch: int) -> tuple[int, int]:
    """Return the leader's largest epoch that is at most `epoch`, and the offset where it ends there.

    Both are -1 if the leader knows none. Raises the errors of `Cluster.retry`.
    """

    async def attempt() -> tuple[int, int]:
        leader = await cluster.leader(partition)
        wanted = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=epoch)
        topic = OffsetForLeaderTopic(topic=partition.topic, partitions=[wanted])
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=[topic])
        answer: OffsetForLeaderEpochResponse = await cluster.request(leader, request)
        for found in answer.topics:
            for each in found.partitions:
                if each.error_code != ErrorCode.NONE:
                    raise BrokerError(each.error_code, f"no end of leader epoch {epoch} of {partition} from {leader}")
                return each.leader_epoch, each.end_offset
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader} left {partition} out of its answer")

    return await cluster.retry(f"looking up leader epoch {epoch} of {partition}", attempt)
