"""Damaged batches, the tail of a segment that is written to, message formats 0 and 1."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

from ottla.client.errors import RecordTimestampError
from ottla.records.batch import split_batches
from ottla.records.compression import Compression
from ottla.records.crc import crc32c
from ottla.records.message_set import encode_messages
from ottla.records.record import Record, encode_batch
from ottla.spark.backfill.errors import DamagedBatchError, SegmentError
from ottla.spark.backfill.reading import SegmentRange, read_rows
from ottla.storage.checkpoints import HIGH_WATERMARK_FILE, encode_offsets
from support.storage_logs import FOLDER_NAME, NOW_MS, TOPIC
from support.transacted_logs import TransactedLog

pytestmark = pytest.mark.spec("D5")

SEGMENT = "00000000000000000000.log"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A segment of ten batches of three records."""
    log = TransactedLog(tmp_path, segment_bytes=100_000)
    for _ in range(10):
        log.write(3)
    log.checkpoint()
    return log.directory / SEGMENT


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (70, b"\x99", "the batch has a wrong checksum"),
        (16, b"\x09", "its format would be 9"),
        (8, b"\x00\x00\x00\x05", "its length 17"),
        (8, b"\x0f\x00\x00\x00", "the file ends within a batch of 251658252 bytes"),
    ],
)
def test_a_damaged_batch_is_named_by_file_position_and_offset(
    written: Path, plan, rows, at: int, data: bytes, reason: str
) -> None:
    [wanted] = plan().ranges
    content = bytearray(written.read_bytes())
    damaged = split_batches(content)[4]
    content[damaged.position + at : damaged.position + at + len(data)] = data
    written.write_bytes(content)
    with pytest.raises(DamagedBatchError) as caught:
        rows(wanted)
    expected = f"{written} is damaged at position {damaged.position}, offset 12: "
    assert str(caught.value).startswith(expected)
    assert reason in str(caught.value)
    before = SegmentRange(wanted.directory, TOPIC, 0, 0, 12)
    assert len(rows(before)) == 12, "what lies before can be read"
    assert offsets_until(DamagedBatchError, wanted) == list(range(12)), "and comes before the error"


def offsets_until(error: type[Exception], wanted: SegmentRange, **options: Any) -> list[int]:
    """The offsets of the rows that come before the error."""
    found: list[int] = []
    settings = {"rows_per_batch": 5, "include_headers": False, "fail_on_data_loss": True} | options
    with pytest.raises(error):
        found.extend(each for batch in read_rows(wanted, **settings) for each in batch.column("offset").to_pylist())
    return found


@pytest.mark.parametrize(
    ("wrong", "reason"), [(11, "the one before ends"), (13, "the one before ends"), (99, "behind")]
)
def test_a_wrong_base_offset_is_damage(written: Path, plan, rows, wrong: int, reason: str) -> None:
    [wanted] = plan().ranges
    content = bytearray(written.read_bytes())
    position = split_batches(content)[4].position
    content[position : position + 8] = wrong.to_bytes(8, "big")
    written.write_bytes(content)
    with pytest.raises(DamagedBatchError, match=reason):
        rows(wanted)


def test_a_repeated_batch_is_read_once(written: Path, plan, rows) -> None:
    [wanted] = plan().ranges
    content = written.read_bytes()
    second = split_batches(content)[1]
    written.write_bytes(content[: second.position] * 2 + content[second.position :])
    assert [offset for offset, _, _ in rows(wanted)] == list(range(30)), "as a consumer does"


def test_records_that_cannot_be_decoded_are_damage(tmp_path: Path, plan, rows) -> None:
    whole = bytearray(encode_batch([Record(0, NOW_MS, b"k", b"v")]))
    whole[61] = 0x7E
    whole[17:21] = crc32c(memoryview(whole)[21:]).to_bytes(4, "big")
    whole[:8] = (3).to_bytes(8, "big")
    good = encode_batch(records(0, 3))
    folder(tmp_path, good + whole, 4)
    [wanted] = plan().ranges
    with pytest.raises(DamagedBatchError, match=rf"position {len(good)}, offset 3"):
        rows(wanted)
    assert offsets_until(DamagedBatchError, wanted) == [0, 1, 2]


def test_a_timestamp_that_parquet_and_spark_cannot_hold(tmp_path: Path, plan, rows) -> None:
    folder(tmp_path, encode_batch([Record(0, ms, None, b"v") for ms in (1, 2, 2**62, 4)]), 4)
    [wanted] = plan().ranges
    with pytest.raises(RecordTimestampError, match=rf"offset 2 of {TOPIC}-0 has the timestamp {2**62}, ") as caught:
        rows(wanted)
    assert "in the option columns, or leave the record out by starting and ending offsets" in str(caught.value)
    assert offsets_until(RecordTimestampError, wanted) == [0, 1]
    assert len(rows(wanted, timestamp_unit=None)) == 4


@pytest.mark.parametrize("tail", [b"\0" * 5, b"\0" * 200_000, b"cut"])
def test_the_tail_that_is_being_written_is_not_read(written: Path, plan, read, tail: bytes) -> None:
    content = written.read_bytes()
    if tail == b"cut":
        tail = content[: split_batches(content)[0].length - 1]
        tail = (30).to_bytes(8, "big") + tail[8:]
    written.write_bytes(content + tail)
    assert plan().ending == {(TOPIC, 0): 30}
    assert len(read()) == 30


def test_a_log_that_ends_before_the_high_watermark_is_read_to_its_end(written: Path, plan, read) -> None:
    content = written.read_bytes()
    written.write_bytes(content[: split_batches(content)[7].position + 20])
    assert plan().ending == {(TOPIC, 0): 21}
    assert plan().notes == ("orders-0: its log ends at 21, before the high watermark 30",)
    assert len(read()) == 21


def folder(root: Path, content: bytes, end: int) -> Path:
    """A log directory with one segment of this content."""
    directory = root / FOLDER_NAME
    directory.mkdir()
    (directory / SEGMENT).write_bytes(content)
    (root / HIGH_WATERMARK_FILE).write_bytes(encode_offsets({(TOPIC, 0): end}))
    return directory / SEGMENT


def records(first: int, count: int) -> list[Record]:
    return [Record(n, NOW_MS + n, b"k%d" % n, b"v%d" % n) for n in range(first, first + count)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY])
def test_old_formats(tmp_path: Path, plan, rows, magic: int, codec: Compression) -> None:
    old = b"".join(bytes(encode_messages(records(first, 4), magic=magic, compression=codec)) for first in (0, 4, 8))
    new = encode_batch(records(12, 3), base_offset=12)
    folder(tmp_path, old + new, 15)
    [wanted] = plan().ranges
    expected = [(n, b"k%d" % n, b"v%d" % n) for n in range(15)]
    assert rows(wanted) == expected
    part = SegmentRange(wanted.directory, TOPIC, 0, 5, 10)
    assert rows(part) == expected[5:10]


def test_a_damaged_message_of_an_old_format(tmp_path: Path, plan, rows) -> None:
    first, second = (bytes(encode_messages(records(n, 1), magic=1)) for n in (0, 1))
    folder(tmp_path, first + second[:-1] + b"X", 2)
    [wanted] = plan().ranges
    with pytest.raises(DamagedBatchError, match=rf"position {len(first)}, offset 1: the message has a wrong checksum"):
        rows(wanted)
    assert offsets_until(DamagedBatchError, wanted) == [0]


def test_a_damaged_wrapper_of_an_old_format(tmp_path: Path, plan, rows) -> None:
    """Its checksum is right, and what it holds cannot be decompressed."""
    first, second = (bytes(encode_messages(records(n, 2), magic=1, compression=Compression.GZIP)) for n in (0, 2))
    wrapper = bytearray(second)
    wrapper[-10] ^= 0x55
    wrapper[12:16] = zlib.crc32(wrapper[16:]).to_bytes(4, "big")
    folder(tmp_path, first + wrapper, 4)
    [wanted] = plan().ranges
    with pytest.raises(DamagedBatchError, match=rf"position {len(first)}, offset 3: "):
        rows(wanted)
    assert offsets_until(DamagedBatchError, wanted) == [0, 1]


def test_a_batch_larger_than_the_window(tmp_path: Path, plan, rows, small) -> None:
    content = encode_batch([Record(n, NOW_MS, None, bytes(5_000)) for n in range(3)])
    folder(tmp_path, content + encode_batch(records(3, 1), base_offset=3), 4)
    [wanted] = plan().ranges
    assert [offset for offset, _, _ in rows(wanted)] == [0, 1, 2, 3]


def test_headers_timestamps_and_names(tmp_path: Path, plan) -> None:
    from ottla.spark.backfill.reading import read_rows

    folder(tmp_path, encode_batch([Record(0, NOW_MS, None, b"v", (("h", b"1"),))]), 1)
    [wanted] = plan().ranges
    [batch] = read_rows(wanted, rows_per_batch=10, include_headers=True, fail_on_data_loss=True)
    [row] = batch.to_pylist()
    assert row["headers"] == [{"key": "h", "value": b"1"}]
    assert (row["topic"], row["partition"], row["timestampType"]) == (TOPIC, 0, 0)
    assert row["timestamp"].timestamp() * 1000 == NOW_MS


def test_a_segment_with_nothing_in_it(tmp_path: Path, plan) -> None:
    folder(tmp_path, b"", 0)
    assert plan().ranges == ()
    assert plan().ending == {(TOPIC, 0): 0}


def test_a_directory_without_segments(tmp_path: Path, plan) -> None:
    folder(tmp_path, b"", 0).unlink()
    with pytest.raises(SegmentError, match="holds no segment"):
        plan()
