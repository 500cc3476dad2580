"""Validation of appends, and timestamping. As in Kafka 3.9 (`UnifiedLog.scala`, `LogValidator.java`): batches as a
whole, and the records of uncompressed ones by compiled code (`ottla.records.walk`). Compressed batches are decoded only
where the topic's settings require it: keys on compacted topics, and `message.timestamp.before.max.ms` where it is set;
without the compiled code, uncompressed ones likewise.

What Kafka checks and this does not, and why that is safe, is described in docs/record-checks.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.config.topic import LogConfig
from ottla.records import walk
from ottla.records.batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    LOG_APPEND_TIME_FLAG,
    MAX_INT32,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    check_crc,
    parse_batch_header,
    patch_max_timestamp,
    split_batches,
)
from ottla.records.compression import Compression
from ottla.records.errors import BatchError, UnsupportedMagicError
from ottla.records.record import Record
from ottla.records.walked import RecordFault, RecordsSummary
from ottla.storage.bounded import decode_bounded
from ottla.storage.results import AppendRefusal
from ottla.wire.errors import ErrorCode

#: Origin of an append: a client's Produce request, or a coordinator of this broker writing its own records.
CLIENT: Final = 0
COORDINATOR: Final = 1

LOG_APPEND_TIME: Final = "LogAppendTime"
NO_BOUND: Final = 0x7FFFFFFFFFFFFFFF
#: Record errors listed in a message.
ERRORS_SHOWN: Final = 3
_COMPRESSIONS: Final = frozenset(int(compression) for compression in Compression)


def split(buf: memoryview) -> list[BatchHeader] | AppendRefusal:
    """The batches in the received data. As in Kafka a truncated last one is left out."""
    try:
        only = parse_batch_header(buf)
        if only.length == len(buf):
            return [only]
    except BatchError:
        # It may be truncated, which is allowed; anything else is refused below.
        pass
    try:
        return split_batches(buf, partial_tail=True)
    except UnsupportedMagicError as error:
        if error.magic in (0, 1):
            return AppendRefusal(
                ErrorCode.INVALID_RECORD,
                "Produce requests with version 3 or later are only allowed to contain record batches with magic "
                f"version 2, not {error.magic}",
                bad_request=True,
            )
        return AppendRefusal(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt ({error})")
    except BatchError as error:
        return AppendRefusal(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt ({error})")


def check_append(
    buf: memoryview,
    headers: Sequence[BatchHeader],
    config: LogConfig,
    partition: str,
    now_ms: int,
    origin: int,
    records_checked: bool,
) -> AppendRefusal | None:
    """Check all batches of an append; `records_checked` says that their records need not be looked at any more."""
    if not headers or (origin == CLIENT and len(headers) != 1):
        many = "exactly" if headers else "at least"
        return AppendRefusal(
            ErrorCode.INVALID_RECORD,
            f"Produce requests must have {many} one record batch per partition",
            bad_request=True,
        )
    length = 0
    for header in headers:
        refusal = check_batch(buf, header, partition, config.max_message_bytes, origin)
        if refusal is None and origin == CLIENT and not records_checked:
            refusal = check_contents(buf, header, config, now_ms, partition)
        if refusal is not None:
            return refusal
        length += header.length
    if length > config.segment_bytes:
        return AppendRefusal(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {length} bytes in append to partition {partition}, which exceeds the maximum "
            f"configured segment size of {config.segment_bytes}.",
        )
    return None


def check_batch(
    buf: memoryview, header: BatchHeader, partition: str, max_message_bytes: int, origin: int
) -> AppendRefusal | None:
    """Check a batch as a whole, in Kafka's order: offset, size, checksum, then the rest."""
    if origin == CLIENT and header.base_offset != 0:
        return AppendRefusal(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch in the append to {partition} should be 0, "
            f"but it is {header.base_offset}",
        )
    if header.length > max_message_bytes:
        return AppendRefusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {partition} is {header.length} bytes which exceeds the maximum "
            f"configured value of {max_message_bytes}.",
        )
    if not check_crc(buf, header):
        return AppendRefusal(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {header.crc}) in topic partition {partition}.",
        )
    if origin != CLIENT:
        return None
    # What clients in particular may not send.
    delta = header.last_offset_delta
    if (
        0 <= delta < MAX_INT32
        and header.records_count == delta + 1
        and not header.attributes & 0x20
        and (header.producer_id < 0 or header.base_sequence >= 0)
        and header.attributes & 0x07 in _COMPRESSIONS
    ):
        return None
    return AppendRefusal(ErrorCode.INVALID_RECORD, _client_fault(header, partition))


def _client_fault(header: BatchHeader, partition: str) -> str:
    first, last, count = header.base_offset, header.last_offset, header.records_count
    if last - first + 1 <= 0:
        return f"Batch has an invalid offset range: [{first}, {last}] in topic partition {partition}"
    if count <= 0:
        return f"Invalid reported count for record batch: {count} in topic partition {partition}"
    if last - first + 1 != count:
        return (
            f"Inconsistent batch offset range [{first}, {last}] and count of records {count} "
            f"in topic partition {partition}"
        )
    if header.is_control:
        return f"Clients are not allowed to write control records in topic partition {partition}"
    if header.producer_id >= 0 and header.base_sequence < 0:
        return (
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id} "
            f"in topic partition {partition}"
        )
    return f"Unknown compression type id: {header.attributes & 0x07} in topic partition {partition}"


def check_contents(
    buf: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, partition: str
) -> AppendRefusal | None:
    """Check the records' form where compiled code does so, timestamps, and the keys that compacted topics need.

    As in Kafka the largest timestamp of an uncompressed batch is set, in place, to that of its records.
    """
    seen: RecordsSummary | None = None
    if walk.COMPILED and not header.attributes & COMPRESSION_MASK:
        found = _walk(buf, header)
        if isinstance(found, RecordFault):
            message = (
                f"Record {found.record_index} of the batch for topic partition {partition} is malformed: {found.reason}"
            )
            return AppendRefusal(ErrorCode.INVALID_RECORD, message)
        seen = found
        if config.message_timestamp_type != LOG_APPEND_TIME and seen.highest_timestamp != header.max_timestamp:
            _correct_newest(buf, header, seen.highest_timestamp)
    if not config.reads_records:
        return None
    stamped = bool(header.attributes & LOG_APPEND_TIME_FLAG)
    too_new = False
    if config.message_timestamp_type == LOG_APPEND_TIME:
        doubtful = stamped
    else:
        newest = header.max_timestamp
        too_new = newest != NO_TIMESTAMP and newest - now_ms > config.message_timestamp_after_max_ms
        doubtful = too_new or config.message_timestamp_before_max_ms < NO_BOUND
    if not doubtful and not config.compact:
        return None
    if seen is not None and not _needs_records(seen, stamped, config, now_ms):
        return None
    try:
        records = decode_bounded(buf, header)
    except BatchError as error:
        return AppendRefusal(ErrorCode.INVALID_RECORD, f"Record batch for topic partition {partition}: {error}")
    refusal = check_records(records, stamped, config, now_ms, partition)
    if refusal is None and too_new:
        # No record is out of range, but the header's timestamp is, and indexes and retention use the header.
        message = _out_of_range(header.max_timestamp, header.last_offset, now_ms, config)
        return _records_refused(ErrorCode.INVALID_TIMESTAMP, [(0, message)])
    return refusal


def _walk(buf: memoryview, header: BatchHeader) -> RecordsSummary | RecordFault:
    position = header.position
    records = buf[position + BATCH_OVERHEAD : position + header.length]
    return walk.check_records(records, header.records_count, header.base_timestamp)


def _correct_newest(buf: memoryview, header: BatchHeader, newest: int) -> None:
    """Set the header's largest timestamp to that of the records."""
    stamped = header.attributes & LOG_APPEND_TIME_FLAG
    kind = TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME
    header.max_timestamp = newest
    header.crc = patch_max_timestamp(buf, header.position, newest, kind)


def _needs_records(seen: RecordsSummary, stamped: bool, config: LogConfig, now_ms: int) -> bool:
    """Whether well-formed records have to be decoded, to report which of them are invalid and why."""
    if config.compact and seen.keyless:
        return True
    if config.message_timestamp_type == LOG_APPEND_TIME:
        return stamped
    too_old = (
        seen.lowest_timestamp != NO_BOUND and now_ms - seen.lowest_timestamp > config.message_timestamp_before_max_ms
    )
    too_new = seen.highest_timestamp != NO_TIMESTAMP
    too_new = too_new and seen.highest_timestamp - now_ms > config.message_timestamp_after_max_ms
    return too_old or too_new


def looks_into(attributes: int, config: LogConfig) -> bool:
    """Whether `check_contents` may have to decode all records of a batch with these attributes, in Python."""
    if walk.COMPILED and not attributes & COMPRESSION_MASK:
        return False
    if config.compact:
        return True
    if config.message_timestamp_type == LOG_APPEND_TIME:
        return bool(attributes & LOG_APPEND_TIME_FLAG)
    return min(config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) < NO_BOUND


def check_records(
    records: Sequence[Record], stamped: bool, config: LogConfig, now_ms: int, partition: str
) -> AppendRefusal | None:
    """Check each record's key, if the topic is compacted, and its timestamp, as `LogValidator.validateRecord`.

    `stamped` says that the batch claims to have the broker's timestamps.
    """
    append_time = config.message_timestamp_type == LOG_APPEND_TIME
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    without_key: list[tuple[int, str]] = []
    bad_times: list[tuple[int, str]] = []
    compact = config.compact
    for index, record in enumerate(records):
        timestamp = record.timestamp
        if compact and record.key is None:
            message = f"Compacted topic cannot accept message without key in topic partition {partition}"
            without_key.append((index, message))
        elif not append_time and timestamp != NO_TIMESTAMP:
            if now_ms - timestamp > before or timestamp - now_ms > after:
                bad_times.append((index, _out_of_range(timestamp, record.offset, now_ms, config)))
        elif stamped:
            bad_times.append((index, _stamped_by_producer(record)))
    if bad_times:
        return _records_refused(ErrorCode.INVALID_TIMESTAMP, sorted(without_key + bad_times))
    return _records_refused(ErrorCode.INVALID_RECORD, without_key) if without_key else None


def _stamped_by_producer(record: Record) -> str:
    key_bytes, value_bytes = len(record.key or b""), len(record.value or b"")
    return (
        f"Invalid timestamp type in message DefaultRecord(offset={record.offset}, timestamp={record.timestamp}, "
        f"key={key_bytes} bytes, value={value_bytes} bytes). Producer should not set timestamp type to LogAppendTime."
    )


def _out_of_range(timestamp: int, offset: int, now_ms: int, config: LogConfig) -> str:
    low = now_ms - config.message_timestamp_before_max_ms
    high = now_ms + config.message_timestamp_after_max_ms
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{low}, {high}]"
    )


def _records_refused(error: ErrorCode, faults: list[tuple[int, str]]) -> AppendRefusal:
    if error == ErrorCode.INVALID_TIMESTAMP:
        message = "One or more records have been rejected due to invalid timestamp"
    else:
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in faults[:ERRORS_SHOWN])
        message = (
            f"One or more records have been rejected due to {len(faults)} record errors in total, and only showing "
            f"the first three errors at most: [{shown}]"
        )
    return AppendRefusal(error, message, tuple(faults))


def stamp(buf: memoryview, header: BatchHeader, append_time: bool, now_ms: int) -> None:
    """Set the topic's timestamp type, in place and in the header; the records are left alone."""
    if append_time:
        header.max_timestamp = now_ms
        header.attributes |= LOG_APPEND_TIME_FLAG
        header.crc = patch_max_timestamp(buf, header.position, now_ms, TimestampType.LOG_APPEND_TIME)
    elif header.attributes & LOG_APPEND_TIME_FLAG:
        header.attributes &= ~LOG_APPEND_TIME_FLAG
        header.crc = patch_max_timestamp(buf, header.position, header.max_timestamp, TimestampType.CREATE_TIME)
