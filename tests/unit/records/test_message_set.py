"""Message sets of formats 0 and 1: what is refused, and what old producers are forgiven."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from ottla.records.batch import TimestampType
from ottla.records.compression import Compression, compress, xxh32
from ottla.records.errors import BatchError, CorruptMessageError
from ottla.records.message_set import (
    check_message_crc,
    decode_message,
    encode_messages,
    parse_message_header,
)
from ottla.records.record import Record

LIMIT = 1 << 20
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


def message(
    magic: int, attributes: int, key: bytes | None, value: bytes | None, *, offset: int = 0, timestamp: int = 7
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def decode(data: bytes, limit: int = LIMIT, most: int = 1000) -> list[Record]:
    return decode_message(data, parse_message_header(data), limit, most)


def wrapper(magic: int, inner: bytes, codec: Compression = Compression.GZIP, offset: int = 0) -> bytes:
    return message(magic, codec, None, compress(codec, inner, broken_lz4=magic == 0), offset=offset)


@pytest.mark.spec("L7")
@pytest.mark.parametrize("codec", CODECS)
def test_offsets_within_a_wrapper_of_format_1_count_from_its_base(codec: Compression) -> None:
    inner = message(1, 0, b"a", b"1", offset=0) + message(1, 0, b"b", b"2", offset=4)
    assert [record.offset for record in decode(wrapper(1, inner, codec, offset=104))] == [100, 104]


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_within_a_wrapper_of_format_0_are_absolute(codec: Compression) -> None:
    inner = message(0, 0, b"a", b"1", offset=100) + message(0, 0, b"b", b"2", offset=104)
    assert [record.offset for record in decode(wrapper(0, inner, codec, offset=104))] == [100, 104]


def test_a_wrapper_offset_of_zero_is_librdkafkas_way_of_saying_nothing() -> None:
    inner = message(1, 0, b"a", b"1", offset=0) + message(1, 0, b"b", b"2", offset=1)
    assert [record.offset for record in decode(wrapper(1, inner, offset=0))] == [0, 1]


def test_a_wrapper_offset_below_its_last_message_is_refused() -> None:
    inner = message(1, 0, b"a", b"1", offset=0) + message(1, 0, b"b", b"2", offset=5)
    with pytest.raises(BatchError, match="less than that of its last message"):
        decode(wrapper(1, inner, offset=3))


def test_a_message_that_is_cut_off_within_a_wrapper_is_left_out() -> None:
    inner = message(1, 0, b"a", b"1", offset=0) + message(1, 0, b"b", b"2", offset=1)[:-1]
    assert [record.key for record in decode(wrapper(1, inner))] == [b"a"]


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (message(0, 0, b"k", b"v")[:20], CorruptMessageError, "at least 26 bytes"),
        (message(0, 0, b"k", b"v")[:-1], CorruptMessageError, "cut off"),
        (message(3, 0, b"k", b"v"), CorruptMessageError, "format 3"),
        (struct.pack(">qi", 0, 13) + message(0, 0, b"k", b"v")[12:], CorruptMessageError, "size 13"),
        (struct.pack(">qi", 0, -5) + message(0, 0, b"k", b"v")[12:], CorruptMessageError, "size -5"),
        (message(0, 4, None, b"v"), BatchError, "cannot have compression type 4"),
        (message(1, 1, None, None), BatchError, "has no value"),
        (message(1, 1, None, b""), BatchError, "gzip data is empty"),
        (message(1, 1, None, b"no gzip"), BatchError, "malformed gzip"),
        (wrapper(1, b""), BatchError, "no messages"),
        (wrapper(1, message(0, 0, b"k", b"v")), BatchError, "format 0 within a wrapper of format 1"),
        (wrapper(0, message(0, 1, b"k", b"v")), BatchError, "a compressed message within a wrapper"),
        (wrapper(0, message(0, 0, b"k", b"v")[:-1] + b"x"), CorruptMessageError, "wrong checksum"),
        (wrapper(0, struct.pack(">qi", 0, 3) + bytes(60)), CorruptMessageError, "size 3"),
    ],
)
def test_what_is_refused(data: bytes, error: type[BatchError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        decode(data)


@pytest.mark.parametrize("size", [3, 1 << 30])
@pytest.mark.parametrize("at", [18, 23])
def test_sizes_of_keys_and_values_stay_within_the_message(size: int, at: int) -> None:
    good = message(0, 0, b"k", b"v")
    with pytest.raises(BatchError, match="are left in the message"):
        decode(good[:at] + struct.pack(">i", size) + good[at + 4 :])


def test_a_wrapper_may_not_grow_beyond_its_limits() -> None:
    inner = b"".join(message(0, 0, None, bytes(10_000), offset=i) for i in range(50))
    with pytest.raises(BatchError, match="beyond the limit"):
        decode(wrapper(0, inner), limit=100_000)
    with pytest.raises(BatchError, match="more than 49 messages"):
        decode(wrapper(0, inner), most=49)


def test_random_damage_is_never_more_than_an_error() -> None:
    rng = random.Random(4)
    inner = b"".join(message(1, 0, b"key-%d" % i, b"value", offset=i) for i in range(20))
    for codec in (Compression.NONE, *CODECS):
        good = wrapper(1, inner, codec, offset=19) if codec else inner
        refused = 0
        for _ in range(300):
            data = bytearray(good)
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            try:
                decode(bytes(data))
            except BatchError:
                refused += 1
        assert refused > 0


def test_the_checksum_is_that_of_the_message() -> None:
    data = bytearray(message(1, 0, b"k", b"v"))
    assert check_message_crc(data, parse_message_header(data))
    data[-1] ^= 1
    assert not check_message_crc(data, parse_message_header(data))


def test_what_cannot_be_built() -> None:
    records = [Record(5, 1, None, b"a"), Record(5, 1, None, b"b")]
    with pytest.raises(ValueError, match="offsets must rise"):
        encode_messages(records, 1)
    with pytest.raises(ValueError, match="cannot be compressed with zstd"):
        encode_messages(records[:1], 1, compression=Compression.ZSTD)


def test_format_0_knows_no_time_of_append() -> None:
    data = encode_messages([Record(5, 1, None, b"a")], 0, timestamp_type=TimestampType.LOG_APPEND_TIME)
    header = parse_message_header(data)
    assert (header.attributes, header.timestamp, header.timestamp_type) == (0, -1, TimestampType.NO_TIMESTAMP_TYPE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxh32(text: bytes, expected: int) -> None:
    assert xxh32(text) == expected
