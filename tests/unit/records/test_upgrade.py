"""Old messages made into batches for readers that know only those."""

from __future__ import annotations

import random

import pytest

from ottla.records.batch import TimestampType, check_crc, split_batches
from ottla.records.compression import Compression
from ottla.records.errors import BatchError, CorruptMessageError
from ottla.records.message_set import encode_messages
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.records.upgrade import RECORDS_PER_BATCH, upgrade

T = 1_700_000_000_000
APPEND = TimestampType.LOG_APPEND_TIME


def some(first: int, count: int = 3, timestamp: int = T) -> list[Record]:
    return [Record(first + 2 * i, timestamp + i, None if i == 1 else b"k", b"v%d" % i) for i in range(count)]


def upgraded(*parts: bytes) -> list[Record]:
    out = upgrade(memoryview(b"".join(parts)))
    headers = split_batches(out)
    assert all(check_crc(out, header) for header in headers)
    return [record for header in headers for record in decode_batch(out, header)]


@pytest.mark.spec("L7")
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_all_formats_in_a_row(codec: Compression) -> None:
    first, second, third = some(5), some(20), some(40)
    found = upgraded(
        encode_messages(first, 0, compression=codec),
        encode_messages(second, 1, compression=codec),
        encode_batch(third, base_offset=40, keep_offsets=True, compression=codec),
    )
    assert found == [*(Record(one.offset, -1, one.key, one.value) for one in first), *second, *third]


@pytest.mark.parametrize("magic", [0, 1])
def test_the_smallest_message_has_neither_key_nor_value(magic: int) -> None:
    smallest = Record(7, -1 if magic == 0 else T, None, None)
    assert upgraded(encode_messages([smallest], magic)) == [smallest]


def test_the_brokers_times_are_kept() -> None:
    stamped = [
        encode_messages(some(at), 1, timestamp_type=APPEND, log_append_time_ms=T + at, compression=codec)
        for at, codec in ((0, Compression.NONE), (10, Compression.GZIP))
    ]
    times = [record.timestamp for record in upgraded(*stamped, encode_messages(some(20), 1))]
    assert times == [T] * 3 + [T + 10] * 3 + [T, T + 1, T + 2]


def test_batches_alone_are_left_where_they_are() -> None:
    buf = memoryview(encode_batch(some(0)) + encode_batch(some(5))[:30])
    assert upgrade(buf) is buf


def test_what_is_cut_off_stays() -> None:
    whole, cut = encode_messages(some(0), 1), encode_messages(some(10, 1), 1)[:-1]
    out = upgrade(memoryview(whole + cut))
    assert out[-len(cut) :] == cut
    assert len(split_batches(out[: -len(cut)])) == 1


def test_many_messages_become_several_batches() -> None:
    records = [Record(i, T, None, b"v") for i in range(2 * RECORDS_PER_BATCH + 5)]
    out = upgrade(memoryview(encode_messages(records, 1)))
    assert len(split_batches(out)) == 3


def test_damage() -> None:
    good = encode_messages(some(0), 1)
    with pytest.raises(CorruptMessageError, match="wrong checksum"):
        upgrade(memoryview(good[:-1] + b"?"))
    with pytest.raises(CorruptMessageError, match="size -1"):
        upgrade(memoryview(bytes(8) + b"\xff\xff\xff\xff" + bytes(40)))
    with pytest.raises(CorruptMessageError, match="size 0"):
        upgrade(memoryview(bytes(100)))
    for size in range(1, 14):
        with pytest.raises(CorruptMessageError, match=f"size {size}"):
            upgrade(memoryview(good + bytes(8) + size.to_bytes(4, "big") + bytes(40)))
    rng = random.Random(3)
    for _ in range(500):
        data = bytearray(good + encode_batch(some(50)))
        for _ in range(2):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            upgrade(memoryview(data))
        except BatchError:
            continue


def test_what_is_intact_before_damage() -> None:
    good = encode_messages(some(0), 1)
    broken = encode_messages(some(0, 1), 1)[:-1] + b"?"
    none = bytes(8) + b"\x00\x00\x00\x03" + bytes(40)
    for damage in (broken, none):
        out = upgrade(memoryview(good + damage + good), intact_only=True)
        assert [len(decode_batch(out, each)) for each in split_batches(out)] == [len(some(0))]
        whole = encode_batch(some(0))
        assert upgrade(memoryview(whole + damage + whole), intact_only=True)[: len(whole)] == whole
        with pytest.raises(CorruptMessageError):
            upgrade(memoryview(damage + good), intact_only=True)
    assert len(split_batches(encode_batch(some(0)) + none, intact_only=True)) == 1
    with pytest.raises(BatchError):
        split_batches(none, intact_only=True)
