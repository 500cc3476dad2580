"""The plan of a backfill: ranges of segments, and the offsets where it starts and ends."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.client.errors import UnsupportedVersionError
from ottla.client.model import TopicPartition
from ottla.cluster.topics import is_internal_topic
from ottla.env.disk import DiskError, RealDisk
from ottla.spark.backfill.directories import Replica, check_complete, find_replicas
from ottla.spark.backfill.errors import SegmentError
from ottla.spark.backfill.extent import UNKNOWN, Extent, LeaderOffsets, extent_by_checkpoints, extent_by_leader
from ottla.spark.backfill.options import BackfillOptions
from ottla.spark.backfill.reading import SegmentRange
from ottla.spark.backfill.segments import SegmentName, list_segments, read_index
from ottla.spark.connection import connect
from ottla.spark.errors import DataLossError, OptionError
from ottla.spark.source.offsets import EARLIEST, LATEST, Offsets
from ottla.spark.source.partitions import ending_offsets, selected_partitions, starting_offsets
from ottla.storage.files import LOG_SUFFIX

if TYPE_CHECKING:
    from ottla.client.sync import Client

log = logging.getLogger(__name__)

#: Larger segments are read by several tasks, smaller ones that follow each other by one.
RANGE_BYTES: Final = 256 * 1024 * 1024
#: The least that is worth a task of its own, whatever minPartitions says.
LEAST_RANGE_BYTES: Final = 64 * 1024
#: Segments that one task reads at most, since it holds them open.
MOST_SEGMENTS: Final = 64


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """Ranges for the tasks, and where each partition starts and ends: the next offset that a stream has to read.

    `notes` say for which partitions less was found than is committed, and why.
    """

    ranges: tuple[SegmentRange, ...]
    starting: Offsets
    ending: Offsets
    notes: tuple[str, ...] = ()


def make_plan(options: BackfillOptions) -> BackfillPlan:
    """Find replicas and what may be read of them. Raises OptionError, DataLossError, SegmentError, ClientError."""
    replicas = find_replicas(options.log_dirs)
    if options.read.connection.bootstrap_servers:
        extents, starting, ending = _by_brokers(options, replicas)
    else:
        extents, starting, ending = _by_directories(options, replicas)
    starting = _retained(starting, extents, fail=options.read.fail_on_data_loss)
    # A partition whose start is past its end also ends at that start: no row comes twice.
    ending = {each: max(end, starting[each]) for each, end in _readable(ending, extents, options).items()}
    ranges = _divided(options, extents, starting, ending)
    notes = tuple(
        f"{each.topic}-{each.partition}: {extents[each].note}" for each in sorted(ending) if extents[each].note
    )
    return BackfillPlan(tuple(ranges), starting, ending, notes)


def _divided(
    options: BackfillOptions, extents: dict[TopicPartition, Extent], starting: Offsets, ending: Offsets
) -> list[SegmentRange]:
    """The ranges of all partitions, as many as `minPartitions` says where there are records enough for them."""
    wanted = [each for each in sorted(ending) if ending[each] > starting[each]]
    split_bytes = RANGE_BYTES
    while True:
        ranges = [
            found
            for each in wanted
            for found in plan_ranges(extents[each].replica, starting[each], ending[each], split_bytes)
        ]
        if len(ranges) >= (options.read.split.min_tasks or 0) or split_bytes <= LEAST_RANGE_BYTES:
            return ranges
        split_bytes //= 2


_Found = tuple[dict[TopicPartition, Extent], Offsets, Offsets]
"""What may be read, and where reading starts and ends."""


def _by_brokers(options: BackfillOptions, replicas: dict[TopicPartition, list[Replica]]) -> _Found:
    with connect(options.read.connection) as client:
        chosen = list(selected_partitions(client, options.read.selection))
        missing = [each for each in chosen if each not in replicas]
        if missing:
            raise SegmentError(
                f"{', '.join(map(str, missing))} not found in {', '.join(options.log_dirs)}; name the log directories "
                "of all brokers that hold the topics, or the partitions to read with assign"
            )
        candidates = _extents_by_leaders(client, {each: replicas[each] for each in chosen})
        extents = {each: _furthest(found) for each, found in candidates.items()}
        starting = starting_offsets(client, chosen, options.read)
        if options.read.ending.offset == LATEST:
            return extents, starting, {each: extent.end for each, extent in extents.items()}
        return extents, starting, ending_offsets(client, chosen, options.read)


def _extents_by_leaders(
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


def _by_directories(options: BackfillOptions, replicas: dict[TopicPartition, list[Replica]]) -> _Found:
    selection = options.read.selection
    if selection.assigned:
        missing = [each for each in selection.assigned if each not in replicas]
        if missing:
            raise SegmentError(f"{', '.join(map(str, missing))} not found in {', '.join(options.log_dirs)}")
        chosen = sorted(selection.assigned)
    else:
        topics: Sequence[str] = selection.topics
        if selection.pattern is not None:
            pattern = re.compile(selection.pattern)
            topics = sorted(
                {each.topic for each in replicas if pattern.search(each.topic) and not is_internal_topic(each.topic)}
            )
        check_complete(topics, replicas, options.log_dirs)
        chosen = sorted(each for each in replicas if each.topic in topics)
    extents = {each: _furthest([extent_by_checkpoints(replica) for replica in replicas[each]]) for each in chosen}
    # A log's beginning, even if segments there are missing.
    starting = {
        each: found.start if found.missing_from is None else found.missing_from for each, found in extents.items()
    }
    starting |= {each: at for each, at in options.read.starting.offsets.items() if at != EARLIEST}
    ending = {each: extents[each].end for each in chosen}
    ending |= {each: at for each, at in options.read.ending.offsets.items() if at != LATEST}
    for side, bound in (("starting", options.read.starting), ("ending", options.read.ending)):
        if bound.offsets and bound.offsets.keys() != set(chosen):
            raise OptionError(
                f"the {side} offsets must name the partitions that are read: {', '.join(map(str, chosen))}"
            )
    return extents, starting, ending


def _furthest(extents: Sequence[Extent]) -> Extent:
    """The replica that reaches furthest; of several the one that begins first."""
    return max(extents, key=lambda each: (each.end, -each.start))


def _readable(ending: Offsets, extents: dict[TopicPartition, Extent], options: BackfillOptions) -> Offsets:
    """The ending offsets, latest and those of timestamps where what may be read ends. OptionError for an offset that
    was given and is behind that.
    """
    for each, end in options.read.ending.offsets.items():
        if end > extents[each].end:
            raise OptionError(
                f"the ending offset {end} of {each} is beyond {extents[each].end}, where what may be read of the "
                f"replica in {extents[each].replica.directory} ends; give a lower one, or latest"
            )
    return {each: min(end, extents[each].end) for each, end in ending.items()}


def _retained(starting: Offsets, extents: dict[TopicPartition, Extent], *, fail: bool) -> Offsets:
    """The starting offsets, where records before are gone the first that are left. Raises DataLossError if `fail`."""
    lost = [each for each, at in starting.items() if at < extents[each].start]
    if not lost:
        return starting
    detail = ", ".join(
        f"{each.topic}-{each.partition} wanted {starting[each]}, {extents[each].replica.directory} begins at "
        f"{extents[each].start}"
        for each in lost
    )
    if fail:
        raise DataLossError(
            f"records are not in the log directories any more ({detail}); name another replica's, start from what is "
            "left, or set failOnDataLoss to false to continue without them"
        )
    log.warning("records are not in the log directories any more, continuing without them: %s", detail)
    return starting | {each: extents[each].start for each in lost}


def plan_ranges(replica: Replica, start: int, end: int, split_bytes: int) -> list[SegmentRange]:
    """The ranges that together hold the offsets from `start` to `end`. Raises SegmentError."""
    ranges: list[SegmentRange] = []
    topic, partition = replica.partition
    segments = 0
    for low, high, size, is_first in _pieces(replica, start, end, split_bytes):
        last = ranges[-1] if ranges else None
        if last is not None and segments < MOST_SEGMENTS and last.size_bytes + size <= split_bytes:
            size += last.size_bytes
            low = ranges.pop().start
        else:
            segments = 0
        segments += is_first
        ranges.append(SegmentRange(replica.directory, topic, partition, low, high, size))
    return ranges


def _pieces(replica: Replica, start: int, end: int, split_bytes: int) -> Iterator[tuple[int, int, int, bool]]:
    """Offsets from, to and bytes of segments, large ones in pieces; and whether it is the first one of its segment."""
    try:
        names = [each for each in list_segments(replica.directory) if each.base_offset < end]
        cuts = [cut for name in names for cut in _cuts(replica.directory, name, split_bytes)]
    except DiskError as error:
        raise SegmentError(f"{replica.partition} cannot be read: {error}") from error
    for number, (begins, size, is_first) in enumerate(cuts):
        stops = cuts[number + 1][0] if number + 1 < len(cuts) else end
        low, high = max(begins, start), min(stops, end)
        if not number:
            low = start
        if low < high:
            yield low, high, size, is_first


def _cuts(directory: str, name: SegmentName, split_bytes: int) -> Iterator[tuple[int, int, bool]]:
    """Yield each piece's first offset, bytes, and whether it begins the segment."""
    size = RealDisk().file_size(f"{directory}/{name.file(LOG_SUFFIX)}")
    pieces = -(-size // split_bytes)
    begins = [name.base_offset]
    if pieces > 1:
        index = read_index(directory, name)
        for piece in range(1, pieces):
            number = bisect_left(index.positions, size * piece // pieces)
            if number < len(index.offsets) and (at := name.base_offset + index.offsets[number] + 1) > begins[-1]:
                begins.append(at)
    for at in begins:
        yield at, size // len(begins), at == name.base_offset
