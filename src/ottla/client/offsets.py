"""Offsets of partitions: the first, the last, or that of a timestamp (ListOffsets)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerError
from ottla.client.model import TopicPartition, by_topic
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CONSUMER = -1
READ_UNCOMMITTED = 0


async def offsets_at(cluster: Cluster, partitions: Sequence[TopicPartition], at: int) -> dict[TopicPartition, int]:
    """The offset of each partition: EARLIEST, LATEST, or the first with this timestamp (ms) or a later one, else -1."""
    found: dict[TopicPartition, int] = {}

    async def attempt() -> None:
        missing = [partition for partition in partitions if partition not in found]
        grouped = await cluster.by_leader(missing)
        answers = await asyncio.gather(
            *(_ask(cluster, leader, asked, at, found) for leader, asked in grouped.items()), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    await cluster.retry("looking up offsets", attempt)
    return {partition: found[partition] for partition in partitions}


async def _ask(
    cluster: Cluster, leader: int, partitions: Sequence[TopicPartition], at: int, found: dict[TopicPartition, int]
) -> None:
    """Put the offsets into `found`; raise the first error only when all answers are taken in."""
    answer: ListOffsetsResponse = await cluster.request(leader, list_offsets_request(partitions, at))
    take_offsets(answer, leader, partitions, found)


def list_offsets_request(partitions: Sequence[TopicPartition], at: int) -> ListOffsetsRequest:
    """The question for these partitions' offsets at EARLIEST, LATEST or a timestamp in milliseconds."""
    wanted = {each: ListOffsetsPartition(partition_index=each.partition, timestamp=at) for each in partitions}
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=READ_UNCOMMITTED,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in by_topic(wanted).items()],
    )


def take_offsets(
    answer: ListOffsetsResponse,
    leader: int,
    partitions: Sequence[TopicPartition],
    found: dict[TopicPartition, int],
) -> None:
    """Put what the leader tells of `partitions` into `found`, then raise the first error among the answers."""
    problem: BrokerError | None = None
    for told in answer.topics:
        for each in told.partitions:
            if each.error_code == ErrorCode.NONE:
                found[TopicPartition(told.name, each.partition_index)] = each.offset
            else:
                problem = BrokerError(each.error_code, f"no offset of {told.name}-{each.partition_index} from {leader}")
    if problem is None and any(partition not in found for partition in partitions):
        problem = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader} left partitions out of its answer")
    if problem is not None:
        raise problem
