from __future__ import annotations

import pytest

from ottla.records.batch import parse_batch_header
from ottla.records.compression import Compression
from ottla.records.errors import BatchError
from ottla.records.record import Record, batch_payload, decode_batch, decode_columns, encode_batch
from ottla.records.varint import encode_varint

# length, attributes, timestamp delta, offset delta, key length, value length, number of headers
NULLS = bytes([12, 0, 0, 0, 1, 1, 0])


def payload(*records: Record) -> bytes:
    data = encode_batch(records)
    return batch_payload(data, parse_batch_header(data))


def round_trip(records: list[Record], **options) -> list[Record]:
    data = encode_batch(records, **options)
    return decode_batch(data, parse_batch_header(data))


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 127, 128, 1023, 1024, 8191, 8192, 20_000, 2_000_000])
def test_keys_and_values_of_all_sizes(size):
    records = [Record(0, 5, bytes(size), b"v"), Record(1, 5, b"k", bytes(size)), Record(2, 5, bytes(size), bytes(size))]
    assert round_trip(records) == records


@pytest.mark.parametrize("delta", [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31, -(2**31), 2**62, -(2**62)])
def test_timestamps_of_all_distances(delta):
    records = [Record(0, 0, b"k", b"v"), Record(1, delta, None, None)]
    assert round_trip(records) == records
    assert parse_batch_header(encode_batch(records)).max_timestamp == max(0, delta)


def test_more_records_than_one_byte_of_delta():
    records = [Record(100 + i, 7, None, b"%d" % i) for i in range(20_000)]
    assert round_trip(records, base_offset=100) == records


def test_headers():
    headers = (("a", b"1"), ("", None), ("größe", b""), ("a", bytes(300)), ("x" * 200, None))
    many = tuple((str(i), None) for i in range(500))
    records = [Record(0, 1, None, b"v", headers), Record(1, 1, None, b"v"), Record(2, 1, None, b"v", many)]
    assert round_trip(records) == records


def test_header_keys_that_are_no_utf8_are_shown_with_replacements():
    data = payload(Record(0, 0, None, None, (("ab", None),)))
    assert decode_columns(data.replace(b"ab", b"a\xff"), 1).headers == [(("a\ufffd", None),)]


def test_offsets_can_have_gaps_when_they_are_kept():
    records = [Record(12, 1, b"a", b"1"), Record(90, 1, b"b", b"2"), Record(10_000, 1, b"c", None)]
    assert round_trip(records, base_offset=10, keep_offsets=True) == records


@pytest.mark.parametrize("offsets", [[5, 5], [6, 5], [3]])
def test_offsets_that_cannot_be_kept(offsets):
    with pytest.raises(ValueError, match="must rise"):
        encode_batch([Record(offset, 1, None, None) for offset in offsets], base_offset=4, keep_offsets=True)


def test_no_records_no_batch():
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


@pytest.mark.parametrize("codec", list(Compression))
def test_compressed_batches(codec):
    records = [Record(i, i, b"k%d" % i, b"value " * i) for i in range(100)]
    data = encode_batch(records, compression=codec)
    assert parse_batch_header(data).compression == codec
    assert decode_batch(data, parse_batch_header(data)) == records


def test_expansion_has_a_limit():
    data = encode_batch([Record(0, 0, None, bytes(100_000))], compression=Compression.ZSTD)
    with pytest.raises(BatchError, match="limit of 1000 bytes"):
        decode_batch(data, parse_batch_header(data), 1000)


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_counts_that_the_bytes_cannot_hold(count):
    with pytest.raises(BatchError, match="cannot hold"):
        decode_columns(NULLS, count)


def test_too_few_records_declared():
    with pytest.raises(BatchError, match="1 records declared, but 7 bytes follow"):
        decode_columns(NULLS * 2, 1)


def test_every_truncation_is_refused():
    data = payload(Record(0, 5, b"key", b"value", (("h", b"1"), ("g", None))), Record(1, 900, b"x" * 200, b"y" * 9000))
    for size in range(len(data)):
        with pytest.raises(BatchError):
            decode_columns(data[:size], 2)


@pytest.mark.parametrize(
    "damaged",
    [
        bytes([14, 0, 0, 0, 1, 1, 0]),  # says it is longer than it is
        bytes([10, 0, 0, 0, 1, 1, 0]),  # says it is shorter
        bytes([1, 0, 0, 0, 1, 1, 0]),  # negative length
        bytes([12, 0, 0, 0, 40, 1, 0]),  # key beyond the end
        bytes([12, 0, 0, 0, 1, 40, 0]),  # value beyond the end
        bytes([12, 0, 0, 0, 1, 1, 1]),  # -1 headers
        bytes([12, 0, 0, 0, 1, 1, 80]),  # 40 headers
        bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]),  # a header with a null key
        bytes([22, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 1, 0]),  # a varint of more than five bytes
        bytes([30, 0, *[0xFF] * 10, 1, 0, 1, 1, 0]),  # a varlong of more than ten
    ],
)
def test_damaged_records(damaged):
    with pytest.raises(BatchError):
        decode_columns(damaged, 1)


def test_huge_lengths_allocate_nothing():
    length = encode_varint(2**31 - 1)
    with pytest.raises(BatchError):
        decode_columns(b"\x30" + bytes(3) + length + length + b"\x00" * 13, 1)
