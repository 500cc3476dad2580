"""Extents to read, by the partitions' leaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.client.errors import UnsupportedVersionError
from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.spark.backfill.directories import Replica
from ottla.spark.backfill.errors import SegmentError
from ottla.spark.backfill.extent import UNKNOWN, Extent, LeaderOffsets, extent_by_leader

if TYPE_CHECKING:
    from ottla.client.sync import Client


def extents_by_leaders(
    client: Client, replicas: Mapping[TopicPartition, Sequence[Replica]]
) -> dict[TopicPartition, list[Extent]]:
    """Find the extents to read of each partition's replicas. Raises SegmentError, ClientError."""
    if not replicas:
        return {}
    partitions = list(replicas)
    topics = client.describe_topics(sorted({each.topic for each in partitions}))
    # In this order: the high watermark is not below the last stable offset.
    log_starts = client.offsets_at(partitions, EARLIEST)
    stable = client.offsets_at(partitions, LATEST, read_committed=True)
    high_watermarks = client.offsets_at(partitions, LATEST)
    extents: dict[TopicPartition, list[Extent]] = {}
    for each, found in replicas.items():
        leader = LeaderOffsets(log_starts[each], stable[each], high_watermarks[each])
        topic_id = topics[each.topic].topic_id
        others = [replica.directory for replica in found if topic_id and replica.topic_id not in (None, topic_id)]
        if others:
            raise SegmentError(
                f"{', '.join(others)} holds another topic of the name {each.topic} than the cluster has: it was "
                "deleted and made again, or the log directory is of another cluster; name the right log directories"
            )
        end_of_epoch = partial(_end_of_epoch, client, each)
        extents[each] = [extent_by_leader(replica, leader, end_of_epoch) for replica in found]
    return extents


def _end_of_epoch(client: Client, partition: TopicPartition, epoch: int) -> tuple[int, int]:
    try:
        return client.end_of_epoch(partition, epoch)
    except UnsupportedVersionError:
        return UNKNOWN, UNKNOWN
