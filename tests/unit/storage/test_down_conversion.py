"""Ranges of the log as message sets: sizes fixed ahead, memory bounded, damage where it shows."""

from __future__ import annotations

import pytest

from ottla.env.disk import DiskFile
from ottla.records.batch import MAGIC_AT
from ottla.records.compression import Compression
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.errors import BatchError, UnsupportedCompressionError
from ottla.records.message_set import decode_message, encode_messages, parse_message_header
from ottla.records.record import Record, encode_batch
from ottla.storage.down_conversion import CHUNK_BYTES, DownConversion
from ottla.testing.disk_memory import MemoryDisk
from support.storage_logs import NOW_MS, records

KEEP = 1 << 20


def file_of(*batches: bytes) -> DiskFile:
    disk = MemoryDisk()
    disk.mkdirs("/d")
    file = disk.open("/d/log", create=True)
    file.append([b"".join(batches)])
    return file


def conversion(data: bytes, *, magic: int = 1, first_offset: int = 0) -> DownConversion:
    return DownConversion(file_of(data), 0, len(data), magic, first_offset)


def taken(one: DownConversion, keep: int = KEEP) -> bytes:
    one.prepare(keep)
    size = one.left_bytes
    out = []
    while one.left_bytes:
        out.append(one.next_chunk())
        assert out[-1]
    assert sum(map(len, out)) == size
    return b"".join(out)


def messages(data: bytes) -> list[Record]:
    found: list[Record] = []
    position = 0
    while len(data) - position > MAGIC_AT:
        length = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        if position + length > len(data):
            break
        found += decode_message(data, parse_message_header(data, position), KEEP)
        position += length
    return found


def batches(count: int, size: int = 500, codec: Compression = Compression.NONE) -> bytes:
    return b"".join(
        encode_batch(records(3, size, first=3 * i), base_offset=3 * i, compression=codec) for i in range(count)
    )


@pytest.mark.spec("L7")
@pytest.mark.parametrize("keep", [0, KEEP])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_all_that_fits_into_the_size_of_the_range(keep: int, codec: Compression) -> None:
    data = batches(2000, codec=codec)
    found = messages(taken(conversion(data), keep))
    assert [record.offset for record in found] == list(range(len(found)))
    assert len(found) > (5000 if codec is Compression.NONE else 2000)
    assert found[:3] == [Record(r.offset, r.timestamp, r.key, r.value) for r in records(3, 500)]


def test_a_range_further_behind_in_its_segment() -> None:
    before, data = batches(50), batches(20)
    one = DownConversion(file_of(before, data), len(before), len(data), 1, 0)
    one.prepare(KEEP)
    assert one.left_bytes == len(data)


def test_no_more_than_a_chunk_is_made_at_a_time() -> None:
    one = conversion(batches(2000))
    one.prepare(KEEP)
    sizes = []
    while one.left_bytes:
        sizes.append(len(one.next_chunk()))
    assert max(sizes) < 2 * CHUNK_BYTES
    assert len(sizes) > 20


def test_a_first_batch_that_grows_is_given_whole() -> None:
    data = encode_batch(records(200, size=1))
    assert len(messages(taken(conversion(data)))) == 200


@pytest.mark.parametrize("keep", [0, KEEP])
def test_records_below_the_offset_are_left_out(keep: int) -> None:
    data = encode_batch(records(200, size=1))
    assert messages(taken(conversion(data, first_offset=150), keep))[0].offset == 150
    packed = encode_batch(records(200, size=1), compression=Compression.LZ4)
    assert messages(taken(conversion(packed, first_offset=150), keep))[0].offset == 0


def marker(offset: int) -> bytes:
    key, value = end_transaction_record(ControlRecordType.COMMIT, 1)
    return encode_batch([Record(0, NOW_MS, key, value)], base_offset=offset, is_control=True, is_transactional=True)


def test_markers_of_transactions_are_left_out() -> None:
    data = marker(0) + encode_batch(records(1), base_offset=1) + marker(2) + encode_batch(records(1), base_offset=3)
    assert [record.offset for record in messages(taken(conversion(data)))] == [1, 3]


def test_what_is_left_of_markers_alone_is_the_head_of_a_message_too_large() -> None:
    out = taken(conversion(marker(0) * 2))
    assert len(out) == 12
    assert int.from_bytes(out[8:], "big") > 12


@pytest.mark.parametrize("length", [0, 5, 17, 60])
def test_a_batch_that_is_cut_off_is_nothing(length: int) -> None:
    assert taken(conversion(encode_batch(records(1))[:length])) == b""


def test_older_messages_are_left_as_they_are() -> None:
    old = encode_messages(records(3), 0) + encode_messages(records(3), 1, compression=Compression.GZIP)
    assert taken(conversion(old)) == old
    found = messages(taken(conversion(old, magic=0)))
    assert {record.timestamp for record in found} == {-1}


def test_zstd_first_is_an_error_and_later_the_end() -> None:
    packed = encode_batch(records(3, first=3), base_offset=3, compression=Compression.ZSTD)
    with pytest.raises(UnsupportedCompressionError):
        conversion(packed).prepare(KEEP)
    out = taken(conversion(encode_batch(records(3)) + packed))
    assert [record.offset for record in messages(out)] == [0, 1, 2]


@pytest.mark.parametrize("keep", [0, KEEP])
def test_damage_first_is_an_error_and_later_the_end(keep: int) -> None:
    damaged = bytearray(encode_batch(records(3, first=3), base_offset=3))
    damaged[70:] = b"\xff" * len(damaged[70:])
    with pytest.raises(BatchError):
        conversion(bytes(damaged)).prepare(keep)
    out = taken(conversion(encode_batch(records(3)) + damaged), keep)
    assert [record.offset for record in messages(out)] == [0, 1, 2]


def test_a_length_that_cannot_be_is_damage() -> None:
    with pytest.raises(BatchError, match="no record batch at position 0"):
        conversion(bytes(8) + b"\xff\xff\xff\xf5" + bytes(100)).prepare(KEEP)


def test_records_that_no_message_can_hold_are_damage() -> None:
    data = bytearray(encode_batch(records(2)))
    second = bytes(data).rindex(b"\x02\x02")  # timestamp and offset deltas of the second record
    data[second + 1] = 0
    with pytest.raises(BatchError, match="offsets must rise"):
        conversion(bytes(data)).prepare(KEEP)
