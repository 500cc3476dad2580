"""Finding records by their timestamps (ListOffsets), as Kafka 3.9 does it."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.env.disk import DiskError, DiskFile
from ottla.env.warmth import pread
from ottla.records.batch import MAGIC, MAGIC_AT, NO_LEADER_EPOCH, NO_TIMESTAMP, TimestampType, parse_batch_header
from ottla.records.errors import BatchError
from ottla.records.message_set import parse_message_header
from ottla.records.record import Record
from ottla.storage.bounded import decode_bounded, decode_message_bounded
from ottla.storage.log import PartitionLog
from ottla.storage.results import OffsetTimestamp, ReadRefusal
from ottla.storage.scan import Place, batch_at, max_timestamp_at
from ottla.storage.segment import Segment
from ottla.wire.errors import ErrorCode


def offset_for_timestamp(log: PartitionLog, timestamp_ms: int) -> OffsetTimestamp | ReadRefusal | None:
    """The first record of the log whose timestamp is at least `timestamp_ms`; None if there is none.

    Refused where the disk fails or a batch cannot be read.
    """
    try:
        return _first_at_or_after(log.segments, timestamp_ms, log.log_start_offset)
    except (DiskError, BatchError) as error:
        return _refused(error)


def offset_of_max_timestamp(log: PartitionLog) -> OffsetTimestamp | ReadRefusal | None:
    """The first record that has the largest timestamp of all; None if no record has a timestamp. Refused as above."""
    try:
        return _newest(log.segments)
    except (DiskError, BatchError) as error:
        return _refused(error)


def _refused(error: DiskError | BatchError) -> ReadRefusal:
    is_of_disk = isinstance(error, DiskError)
    return ReadRefusal(ErrorCode.KAFKA_STORAGE_ERROR if is_of_disk else ErrorCode.CORRUPT_MESSAGE, str(error))


def _first_at_or_after(segments: Sequence[Segment], timestamp: int, start_offset: int) -> OffsetTimestamp | None:
    for segment in segments:
        if segment.retention_timestamp() >= timestamp:
            from_offset = max(segment.time_index.lookup(timestamp), start_offset)
            found = _search(segment, segment.indexed_position(from_offset), timestamp, start_offset)
            if found is not None:
                return found
            # Only records below the log's start were late enough (Apache Kafka finds nothing here, too).
    return None


def _newest(segments: Sequence[Segment]) -> OffsetTimestamp | None:
    best: Segment | None = None
    largest = NO_TIMESTAMP
    for segment in segments:
        timestamp = segment.largest_timestamp_so_far()
        if timestamp > largest:
            best, largest = segment, timestamp
    if best is None:
        return None
    position = best.indexed_position(best.max_timestamp_offset)
    return _search(best, position, largest, best.base_offset)


def _search(segment: Segment, position: int, timestamp: int, start_offset: int) -> OffsetTimestamp | None:
    file = segment.log.get()
    while position < segment.size:
        place = batch_at(file, position)
        if place is None:
            return None
        segment.check_ends_within(place)
        if place.last_offset >= start_offset and max_timestamp_at(file, position) >= timestamp:
            found = _in_batch(file, place, timestamp, start_offset)
            if found is not None:
                return found
        position += place.length
    return None


def _in_batch(file: DiskFile, place: Place, timestamp: int, start_offset: int) -> OffsetTimestamp | None:
    data = memoryview(pread(file, place.length, place.position))
    if len(data) > MAGIC_AT and data[MAGIC_AT] < MAGIC:
        return _first_late_enough(
            decode_message_bounded(data, parse_message_header(data)), timestamp, start_offset, NO_LEADER_EPOCH
        )
    header = parse_batch_header(data)
    if header.timestamp_type == TimestampType.LOG_APPEND_TIME:
        # Every record has the batch's timestamp, which the caller found to be late enough.
        return OffsetTimestamp(
            header.max_timestamp, max(header.base_offset, start_offset), header.partition_leader_epoch
        )
    return _first_late_enough(decode_bounded(data, header), timestamp, start_offset, header.partition_leader_epoch)


def _first_late_enough(
    records: Sequence[Record], timestamp: int, start_offset: int, leader_epoch: int
) -> OffsetTimestamp | None:
    for record in records:
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return OffsetTimestamp(record.timestamp, record.offset, leader_epoch)
    return None
