"""Timestamps of single records, to compute the age of a group's first unread record."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.peer.cluster import FETCH, Cluster
from ottla.peer.fetch import FetchLimits, fetch_without_session
from ottla.peer.fetch_session import NO_LEADER_EPOCH, WantedFetch
from ottla.records.batch import split_batches
from ottla.records.errors import BatchError
from ottla.records.record import decode_batch
from ottla.records.upgrade import upgrade
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchRequest, FetchResponse

PARTITION_MAX_BYTES = 64 * 1024
"""Enough for an ordinary batch; larger ones are fetched one per request, as the first one is always sent whole."""
MAX_BYTES = 4 * 1024 * 1024


async def timestamps_at(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the timestamp (ms) of the first record at or after each offset, without partitions that have none.

    Partitions that cannot be read (no leader, deleted meanwhile, damaged) are left out, too; no error is raised.
    """
    found, _ = await _read(cluster, positions, {})
    return found


async def without_records(
    cluster: Cluster, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Return the partitions that have only markers of transactions, if anything, from the offset to the end.

    Partitions that cannot be read are left out; no error is raised.
    """
    _, bare = await _read(cluster, positions, ends)
    return bare


async def _read(
    cluster: Cluster, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """Timestamps of first records, and the partitions with an end that have no record before it."""
    grouped: dict[int, dict[TopicPartition, int]] = {}
    for partition, offset in positions.items():
        leader = cluster.metadata.leader(*partition)
        if leader is not None and leader >= 0:
            grouped.setdefault(leader, {})[partition] = offset
    found: dict[TopicPartition, int] = {}
    bare: set[TopicPartition] = set()
    await asyncio.gather(
        *(_of_leader(cluster, leader, wanted, ends, found, bare) for leader, wanted in grouped.items())
    )
    return found, bare


async def _of_leader(
    cluster: Cluster,
    leader: int,
    missing: dict[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    found: dict[TopicPartition, int],
    bare: set[TopicPartition],
) -> None:
    while missing:
        try:
            answer: FetchResponse = await cluster.request(leader, _request(missing), purpose=FETCH)
        except ClientError:
            break
        before = dict(missing)
        for topic in answer.responses:
            for each in topic.partitions:
                partition = TopicPartition(topic.topic, each.partition_index)
                if each.error_code != ErrorCode.NONE:
                    missing.pop(partition, None)
                elif each.records and partition in missing:
                    _take(partition, memoryview(each.records), missing, found, ends.get(partition))
        for partition in [each for each, at in missing.items() if each in ends and at >= ends[each]]:
            del missing[partition]
            bare.add(partition)
        if missing == before:
            break


def _request(positions: Mapping[TopicPartition, int]) -> FetchRequest:
    wanted = {each: WantedFetch(offset, NO_LEADER_EPOCH, PARTITION_MAX_BYTES) for each, offset in positions.items()}
    return fetch_without_session(wanted, FetchLimits(MAX_BYTES, min_bytes=0, max_wait_ms=0))


def _take(
    partition: TopicPartition,
    data: memoryview,
    missing: dict[TopicPartition, int],
    found: dict[TopicPartition, int],
    end: int | None,
) -> None:
    """Record the timestamp of the partition's record before the end, or continue after batches that have none."""
    position = missing.pop(partition)
    try:
        buffer = upgrade(data)
        headers = split_batches(buffer, partial_tail=True)
        for header in headers:
            records = [] if header.is_control else decode_batch(buffer, header)
            at = next((record.timestamp for record in records if record.offset >= position), None)
            if at is not None and (end is None or header.base_offset < end):
                found[partition] = at
                return
    except BatchError:
        return
    if headers and headers[-1].next_offset > position:
        missing[partition] = headers[-1].next_offset
