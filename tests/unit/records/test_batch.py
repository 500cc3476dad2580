from __future__ import annotations

import struct

import pytest

from ottla.records.batch import (
    BATCH_OVERHEAD,
    DELETE_HORIZON_FLAG,
    MAX_INT32,
    TimestampType,
    check_crc,
    is_cut_off,
    parse_batch_header,
    patch_batch,
    patch_max_timestamp,
    split_batches,
)
from ottla.records.compression import Compression
from ottla.records.errors import BatchError, UnsupportedMagicError
from ottla.records.record import Record, decode_batch, encode_batch

LENGTH = slice(8, 12)
MAGIC = 16
ATTRIBUTES = 22  # the low byte


def batch(count: int = 3, **options) -> bytearray:
    return bytearray(encode_batch([Record(0, 1000 + i, b"k", b"v%d" % i) for i in range(count)], **options))


def test_header_of_a_batch_in_the_middle_of_a_buffer():
    first, second = batch(base_offset=10), batch(5, base_offset=13, producer_id=7, producer_epoch=1, base_sequence=4)
    header = parse_batch_header(first + second, len(first))
    assert (header.base_offset, header.last_offset, header.next_offset) == (13, 17, 18)
    assert (header.position, header.length, header.end_position) == (len(first), len(second), len(first + second))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 1, 4, 8)
    assert (header.base_timestamp, header.max_timestamp, header.records_count) == (1000, 1004, 5)
    assert header.partition_leader_epoch == -1
    assert header.delete_horizon is None


def test_without_a_producer_there_is_no_sequence():
    header = parse_batch_header(batch())
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("base", "count", "last"), [(MAX_INT32, 1, MAX_INT32), (MAX_INT32, 2, 0), (MAX_INT32 - 1, 4, 1)]
)
def test_sequences_wrap(base, count, last):
    assert parse_batch_header(batch(count, base_sequence=base)).last_sequence == last


def test_flags():
    data = batch(is_transactional=True, is_control=True, timestamp_type=TimestampType.LOG_APPEND_TIME)
    header = parse_batch_header(data)
    assert header.is_transactional
    assert header.is_control
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    plain = parse_batch_header(batch())
    assert not plain.is_transactional
    assert not plain.is_control
    assert plain.timestamp_type == TimestampType.CREATE_TIME
    assert plain.compression == Compression.NONE


def test_delete_horizon_is_in_the_base_timestamp():
    data = batch()
    data[ATTRIBUTES] |= DELETE_HORIZON_FLAG
    assert parse_batch_header(data).delete_horizon == 1000


def test_an_unknown_compression_is_an_error():
    data = batch()
    data[ATTRIBUTES] |= 5
    header = parse_batch_header(data)
    with pytest.raises(BatchError, match="unknown compression type 5"):
        _ = header.compression


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_formats_are_named(magic):
    data = batch()
    data[MAGIC] = magic & 0xFF
    with pytest.raises(UnsupportedMagicError) as caught:
        parse_batch_header(data)
    assert caught.value.magic == magic


def test_a_small_message_of_an_old_format_is_named_too():
    with pytest.raises(UnsupportedMagicError, match="magic\\) 1 "):
        parse_batch_header(bytes(16) + b"\x01" + bytes(20))


@pytest.mark.parametrize("size", [0, 1, 16, BATCH_OVERHEAD - 1])
def test_too_few_bytes_for_a_header(size):
    with pytest.raises(BatchError):
        parse_batch_header((bytes(16) + b"\x02" + bytes(100))[:size])


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_smaller_than_the_header(length):
    data = batch()
    data[LENGTH] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(BatchError, match="smaller than its header"):
        parse_batch_header(data)


@pytest.mark.parametrize("length", [2**31 - 1, 1000])
def test_a_batch_that_is_cut_off(length):
    data = batch()
    data[LENGTH] = length.to_bytes(4, "big")
    with pytest.raises(BatchError, match=f"says {length + 12} bytes, there are {len(data)}"):
        parse_batch_header(data)


def test_split_batches():
    parts = [batch(1), batch(2, base_offset=1), batch(3, base_offset=3)]
    headers = split_batches(memoryview(b"".join(parts)))
    assert [header.base_offset for header in headers] == [0, 1, 3]
    assert [header.length for header in headers] == [len(part) for part in parts]
    assert split_batches(b"") == []


@pytest.mark.parametrize("cut", [1, 5, 13, 40, 70])
def test_a_partial_tail_is_left_out_where_allowed(cut):
    whole, tail = batch(2), batch(2)[:cut]
    assert [header.length for header in split_batches(whole + tail, partial_tail=True)] == [len(whole)]
    with pytest.raises(BatchError):
        split_batches(whole + tail)


def test_a_broken_tail_is_no_partial_tail():
    tail = batch()
    tail[LENGTH] = bytes(4)
    with pytest.raises(BatchError, match="smaller than its header"):
        split_batches(batch() + tail, partial_tail=True)


@pytest.mark.parametrize(
    ("size", "magic", "available", "cut_off"),
    [
        (-1, 2, 11, True),
        (-1, 2, 12, False),
        (13, 0, 16, False),
        (14, 0, 12, True),
        (14, 3, 16, True),
        (14, 3, 17, False),
        (14, -1, 17, False),
        (14, 0, 25, True),
        (14, 0, 26, False),
        (48, 2, 17, True),
        (2**31 - 1, 1, 1000, True),
    ],
)
def test_what_may_go_on_behind_the_end(size, magic, available, cut_off):
    head = struct.pack(">qiib", 0, size, 0, magic) + bytes(1000)
    assert is_cut_off(b"before" + head[:available], 6) is cut_off


def test_crc_covers_everything_from_the_attributes_on():
    data = batch(base_offset=4)
    header = parse_batch_header(data)
    assert check_crc(data, header)
    for at in range(21, len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        assert not check_crc(damaged, parse_batch_header(damaged)), at


def test_patching_offset_and_epoch_leaves_crc_and_neighbours_alone():
    first, second = batch(), batch()
    data = bytearray(first + second)
    patch_batch(memoryview(data), len(first), 2**40, 77)
    assert data[: len(first)] == first
    header = parse_batch_header(data, len(first))
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 77)
    assert check_crc(data, header)
    assert [record.offset for record in decode_batch(data, header)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_patching_the_timestamp_gives_a_right_crc():
    data = batch() + batch()
    at = len(data) // 2
    crc = patch_max_timestamp(memoryview(data), at, 5555, TimestampType.LOG_APPEND_TIME)
    header = parse_batch_header(data, at)
    assert (header.max_timestamp, header.timestamp_type, header.crc) == (5555, TimestampType.LOG_APPEND_TIME, crc)
    assert check_crc(data, header)
    assert check_crc(data, parse_batch_header(data))
    assert {record.timestamp for record in decode_batch(data, header)} == {5555}
    patch_max_timestamp(data, at, 1002, TimestampType.CREATE_TIME)
    assert data[at:] == batch()
