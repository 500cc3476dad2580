"""The lag of a group, in records and in time.

The committed offset is read before the end offset, so that a commit in between can only make
the lag look larger than it was, never negative. If the group's coordinator also leads the partition,
both requests are sent together on one connection, which a broker handles directly one after the other: the closest to
a consistent snapshot that the protocol allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ottla.client.coordinator import GroupCoordinator
from ottla.client.group_offsets import CommittedOffset, GroupOffsets, fetch_request
from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.client.offsets import list_offsets_request, offsets_at, offsets_in
from ottla.ops.record_times import timestamps_at, without_records
from ottla.peer.cluster import Cluster
from ottla.peer.model import READ_COMMITTED

NO_TIMESTAMP = -1


@dataclass(slots=True, frozen=True)
class PartitionLag:
    """The lag of one partition; None stands for unknown or missing values."""

    partition: TopicPartition
    committed_offset: int | None
    metadata: str | None
    log_start_offset: int | None
    log_end_offset: int | None
    first_unread_timestamp_ms: int | None
    """When the first unconsumed record was written; None also if everything is consumed."""
    measured_at_ms: int

    @property
    def lag(self) -> int | None:
        """Records from the committed offset to the end of the log; 0 if the offset is beyond the end."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return max(0, self.log_end_offset - self.committed_offset)

    @property
    def lag_ms(self) -> int | None:
        """Age of the first unconsumed record; 0 if there is none."""
        if self.lag == 0:
            return 0
        if self.first_unread_timestamp_ms is None:
            return None
        return max(0, self.measured_at_ms - self.first_unread_timestamp_ms)

    @property
    def is_beyond_end(self) -> bool:
        """Whether the committed offset is beyond the end: the topic was created again, or its log was truncated."""
        return None not in (self.committed_offset, self.log_end_offset) and (self.committed_offset or 0) > (
            self.log_end_offset or 0
        )

    @property
    def missed(self) -> int:
        """Records that were deleted before they were consumed."""
        if self.committed_offset is None or self.log_start_offset is None:
            return 0
        return max(0, self.log_start_offset - self.committed_offset)


@dataclass(slots=True, frozen=True)
class GroupLag:
    """All partitions with committed offsets of the group, or assigned in it, sorted."""

    committed_at_ms: int
    ended_at_ms: int
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int:
        """Total lag in records of the partitions where it is known."""
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def lag_ms(self) -> int | None:
        """The largest lag of a partition, None if none is known."""
        return max((each.lag_ms for each in self.partitions if each.lag_ms is not None), default=None)


@dataclass(slots=True)
class _Measured:
    committed: dict[TopicPartition, CommittedOffset]
    committed_at_ms: int
    ends: dict[TopicPartition, int]
    ended_at_ms: int


async def measure_lag(cluster: Cluster, group: str, assigned: Iterable[TopicPartition] = ()) -> GroupLag:
    """Measure the lag of a group in all partitions with committed offsets, and in those `assigned` to its members."""
    coordinator = GroupCoordinator(cluster, group)
    offsets = GroupOffsets(cluster, group, coordinator)
    partitions = sorted({*await offsets.fetch_all(), *assigned})
    usable = await _usable(cluster, partitions)
    what = f"measuring the lag of group {group}"
    measured = await cluster.retry(what, lambda: _measure(cluster, coordinator, group, offsets, usable))
    partitions = sorted({*partitions, *measured.committed})
    starts = await offsets_at(cluster, usable, EARLIEST)
    unread: dict[TopicPartition, int] = {}
    for partition, end in measured.ends.items():
        committed = measured.committed.get(partition)
        if committed is not None and max(committed.offset, starts[partition]) < end:
            unread[partition] = max(committed.offset, starts[partition])
    times = await timestamps_at(cluster, unread)
    return GroupLag(
        measured.committed_at_ms,
        measured.ended_at_ms,
        tuple(_partition_lag(each, measured, starts, times) for each in partitions),
    )


async def readable_lag(cluster: Cluster, measured: GroupLag) -> GroupLag:
    """The lag that consumers with read_committed can work off.

    That is to the last stable offset, and none where only markers of transactions follow the committed offset.
    """
    positions = {
        each.partition: max(each.committed_offset or 0, each.log_start_offset or 0)
        for each in measured.partitions
        if each.lag
    }
    stable = await offsets_at(cluster, list(positions), LATEST, READ_COMMITTED) if positions else {}
    bare = await without_records(cluster, positions, stable)

    def readable(each: PartitionLag) -> PartitionLag:
        if each.partition not in positions:
            return each
        committed = each.committed_offset or 0
        end = committed if each.partition in bare else max(committed, stable[each.partition])
        return replace(each, log_end_offset=end)

    return replace(measured, partitions=tuple(map(readable, measured.partitions)))


async def _usable(cluster: Cluster, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that exist and have a leader: topics of others may have been deleted long ago."""
    topics = list(dict.fromkeys(each.topic for each in partitions))
    metadata = await cluster.retry("looking up topics", lambda: cluster.refresh(topics))
    return [each for each in partitions if (metadata.leader(*each) or 0) >= 0 and metadata.leader(*each) is not None]


async def _measure(
    cluster: Cluster,
    coordinator: GroupCoordinator,
    group: str,
    offsets: GroupOffsets,
    partitions: Sequence[TopicPartition],
) -> _Measured:
    node = (await coordinator.node()).node_id
    leaders = await cluster.by_leader(partitions)
    here = leaders.pop(node, [])
    requests = [fetch_request(group, None), *([list_offsets_request(dict.fromkeys(here, LATEST))] if here else [])]
    committed_answer, *ends_answer = await coordinator.ask_in_a_row(*requests)
    committed, committed_at_ms = offsets.committed_in(committed_answer), cluster.clock.now_ms()
    ends: dict[TopicPartition, int] = {}
    for answer in ends_answer:
        found_here, failed = offsets_in(answer, node, here)
        for error in failed.values():
            raise error
        ends |= {each: found.offset for each, found in found_here.items() if found is not None}
    elsewhere = await asyncio.gather(*(offsets_at(cluster, partitions, LATEST) for partitions in leaders.values()))
    for found in elsewhere:
        ends |= found
    return _Measured(committed, committed_at_ms, ends, cluster.clock.now_ms())


def _partition_lag(
    partition: TopicPartition,
    measured: _Measured,
    starts: Mapping[TopicPartition, int],
    times: Mapping[TopicPartition, int],
) -> PartitionLag:
    committed = measured.committed.get(partition)
    at = times.get(partition, NO_TIMESTAMP)
    return PartitionLag(
        partition=partition,
        committed_offset=None if committed is None else committed.offset,
        metadata=None if committed is None else committed.metadata,
        log_start_offset=starts.get(partition),
        log_end_offset=measured.ends.get(partition),
        first_unread_timestamp_ms=None if at == NO_TIMESTAMP else at,
        measured_at_ms=measured.ended_at_ms,
    )
