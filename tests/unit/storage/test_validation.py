"""What Apache Kafka 3.9 refuses on append is refused here, with its codes and words."""

from __future__ import annotations

import struct

import pytest

from ottla.records.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    RECORDS_COUNT_AT,
    TimestampType,
    patch_max_timestamp,
    split_batches,
)
from ottla.records.crc import crc32c
from ottla.records.record import Record
from ottla.storage.log import COORDINATOR, AppendInfo, AppendRefusal, PartitionLog
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from support.storage_logs import NOW_MS, append, batch, log_config, new_log, of_records, read_bytes, refused

LONGEST = 2**63 - 1


def log_with(**settings: object) -> PartitionLog:
    disk = MemoryDisk()
    disk.mkdirs("/data")
    return new_log(disk, "/data", log_config(**settings))


def patched(layout: str, position: int, *values: int, fix_crc: bool = True, **options: object) -> memoryview:
    """A batch of three records with other values at a position."""
    buf = batch(3, **options)  # type: ignore[arg-type]
    struct.pack_into(layout, buf, position, *values)
    if fix_crc:
        struct.pack_into(">I", buf, CRC_AT, crc32c(buf[ATTRIBUTES_AT:]))
    return buf


@pytest.mark.parametrize(
    ("buf", "message"),
    [
        (
            patched(">q", BASE_OFFSET_AT, 5),
            "The baseOffset of the record batch in the append to orders-0 should be 0, but it is 5",
        ),
        (
            patched(">i", LAST_OFFSET_DELTA_AT, -1),
            "Batch has an invalid offset range: [0, -1] in topic partition orders-0",
        ),
        (patched(">i", RECORDS_COUNT_AT, 0), "Invalid reported count for record batch: 0 in topic partition orders-0"),
        (
            patched(">i", RECORDS_COUNT_AT, -4),
            "Invalid reported count for record batch: -4 in topic partition orders-0",
        ),
        (
            patched(">i", RECORDS_COUNT_AT, 4),
            "Inconsistent batch offset range [0, 2] and count of records 4 in topic partition orders-0",
        ),
        (
            patched(">i", LAST_OFFSET_DELTA_AT, 2**31 - 1),
            "Inconsistent batch offset range [0, 2147483647] and count of records 3 in topic partition orders-0",
        ),
        (
            patched(">h", ATTRIBUTES_AT, 0x20),
            "Clients are not allowed to write control records in topic partition orders-0",
        ),
        (
            batch(3, producer_id=5, producer_epoch=0, base_sequence=-1),
            "Invalid sequence number -1 in record batch with producerId 5 in topic partition orders-0",
        ),
        (patched(">h", ATTRIBUTES_AT, 6), "Unknown compression type id: 6 in topic partition orders-0"),
    ],
)
@pytest.mark.spec("L7")
def test_malformed_batches_of_clients(buf: memoryview, message: str) -> None:
    log = log_with()
    refusal = refused(log, buf)
    assert (refusal.error, refusal.message) == (ErrorCode.INVALID_RECORD, message)
    assert log.size_bytes == 0


def test_several_batches_of_a_client() -> None:
    two = memoryview(bytearray(bytes(batch(1)) * 2))
    refusal = refused(log_with(), two)
    assert (refusal.error, refusal.message) == (
        ErrorCode.INVALID_RECORD,
        "Produce requests must have exactly one record batch per partition",
    )


@pytest.mark.spec("L7")
def test_a_wrong_checksum() -> None:
    buf = batch(3)
    buf[-1] ^= 1
    header = split_batches(buf)[0]
    refusal = refused(log_with(), buf)
    assert (refusal.error, refusal.message) == (
        ErrorCode.CORRUPT_MESSAGE,
        f"Record is corrupt (stored crc = {header.crc}) in topic partition orders-0.",
    )
    coordinators = log_with().append(buf, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR)
    assert isinstance(coordinators, AppendRefusal)


def test_a_batch_that_is_too_large() -> None:
    buf = batch(3)
    refusal = refused(log_with(max_message_bytes=len(buf) - 1), buf)
    assert (refusal.error, refusal.message) == (
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size in the append to orders-0 is {len(buf)} bytes which exceeds the maximum configured "
        f"value of {len(buf) - 1}.",
    )
    append(log_with(max_message_bytes=len(buf)), buf)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_not_for_new_versions_of_produce(magic: int) -> None:
    refusal = refused(log_with(), patched(">b", MAGIC_AT, magic, fix_crc=False))
    assert refusal.error == ErrorCode.INVALID_RECORD
    assert "magic version 2" in refusal.message


def test_formats_that_nobody_knows() -> None:
    assert refused(log_with(), patched(">b", MAGIC_AT, 3, fix_crc=False)).error == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("count", [-1, 0, 2**31 - 1])
def test_the_checksum_is_looked_at_before_the_counts(count: int) -> None:
    refusal = refused(log_with(), patched(">i", RECORDS_COUNT_AT, count, fix_crc=False))
    assert refusal.error == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, 0, 10, -(2**31)])
def test_a_length_that_cannot_be(length: int) -> None:
    refusal = refused(log_with(), patched(">i", LENGTH_AT, length, fix_crc=False))
    assert refusal.error == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [2**31 - 1, 500])
def test_a_batch_that_is_cut_off_is_none(length: int) -> None:
    refusal = refused(log_with(), patched(">i", LENGTH_AT, length, fix_crc=False))
    assert (refusal.error, refusal.message) == (
        ErrorCode.INVALID_RECORD,
        "Produce requests must have at least one record batch per partition",
    )


# Compacted topics


@pytest.mark.spec("L5")
def test_compacted_topics_need_keys() -> None:
    log = log_with(cleanup_policy="compact")
    without = [Record(0, NOW_MS, b"k", b"v", ()), Record(1, NOW_MS, None, b"v", ()), Record(2, NOW_MS, None, b"v", ())]
    refusal = refused(log, of_records(without))
    assert refusal.error == ErrorCode.INVALID_RECORD
    assert refusal.message.startswith("One or more records have been rejected due to 2 record errors in total")
    assert refusal.record_errors == tuple(
        (index, "Compacted topic cannot accept message without key in topic partition orders-0") for index in (1, 2)
    )
    append(log, batch(3))
    append(log, of_records([Record(0, NOW_MS, b"", None, ())]))
    append(log_with(), of_records(without))


def test_records_that_cannot_be_read_where_they_must_be() -> None:
    buf = batch(3)
    buf[61:] = bytes([255]) * (len(buf) - 61)
    struct.pack_into(">I", buf, CRC_AT, crc32c(buf[ATTRIBUTES_AT:]))
    assert refused(log_with(cleanup_policy="compact"), buf).error == ErrorCode.INVALID_RECORD


# Timestamps


def test_timestamps_too_far_ahead() -> None:
    log = log_with(message_timestamp_after_max_ms=1000)
    append(log, batch(1, timestamp=NOW_MS + 1000))
    refusal = refused(log, batch(3, timestamp=NOW_MS + 999))
    assert (refusal.error, refusal.message) == (
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
    )
    assert refusal.record_errors[0][1] == (
        f"Timestamp {NOW_MS + 1001} of message with offset 2 is out of range. The timestamp should be within "
        f"[{NOW_MS - LONGEST}, {NOW_MS + 1000}]"
    )


def test_timestamps_too_old() -> None:
    log = log_with(message_timestamp_before_max_ms=1000)
    append(log, batch(1, timestamp=NOW_MS - 1000))
    old = [Record(0, NOW_MS, b"k", b"v", ()), Record(1, NOW_MS - 1001, b"k", b"v", ())]
    refusal = refused(log, of_records(old))
    assert refusal.error == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [1]
    append(log, batch(1, timestamp=-1))


def test_log_append_time_does_not_look_at_the_producers_times() -> None:
    log = log_with(
        message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=10, message_timestamp_after_max_ms=10
    )
    assert append(log, batch(1, timestamp=5)).first_offset == 0
    assert append(log, batch(1, timestamp=NOW_MS * 2)).first_offset == 1


def test_the_timestamp_type_is_the_topics() -> None:
    stamped = batch(1)
    patch_max_timestamp(stamped, 0, NOW_MS + 3, TimestampType.LOG_APPEND_TIME)
    refusal = refused(log_with(message_timestamp_type="LogAppendTime"), stamped)
    assert refusal.error == ErrorCode.INVALID_TIMESTAMP
    [(index, told)] = refusal.record_errors
    assert index == 0
    assert told.startswith(f"Invalid timestamp type in message DefaultRecord(offset=0, timestamp={NOW_MS + 3}, key=")
    assert told.endswith(" bytes). Producer should not set timestamp type to LogAppendTime.")
    log = log_with()
    info = append(log, stamped)
    assert info == AppendInfo(0, 0, -1, 0)
    header = split_batches(read_bytes(log.read(0, 10_000)))[0]
    assert header.timestamp_type == TimestampType.CREATE_TIME
