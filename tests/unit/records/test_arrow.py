from __future__ import annotations

import datetime
import subprocess
import sys

import pyarrow as pa
import pytest

from ottla.records import arrow
from ottla.records.arrow import ArrowRows, arrow_schema
from ottla.records.batch import TimestampType, parse_batch_header
from ottla.records.compression import Compression
from ottla.records.errors import BatchError, TimestampRangeError
from ottla.records.record import Record, encode_batch

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def rows_of(*batches: bytes, start: int = 0, end: int = 2**62, rows_per_batch: int = 1000, **options):
    rows = ArrowRows("clicks", 3, start, end, rows_per_batch=rows_per_batch, **options)
    for batch in batches:
        rows.add(batch, parse_batch_header(batch))
    return rows


def test_all_columns():
    records = [Record(0, 1_700_000_000_123, b"k", b"v"), Record(0, -1, None, None), Record(0, 0, b"", b"")]
    [batch] = rows_of(encode_batch(records, base_offset=7)).take()
    assert batch.schema == arrow_schema()
    assert batch.to_pydict() == {
        "key": [b"k", None, b""],
        "value": [b"v", None, b""],
        "topic": ["clicks"] * 3,
        "partition": [3] * 3,
        "offset": [7, 8, 9],
        "timestamp": [EPOCH + datetime.timedelta(milliseconds=ms) for ms in (1_700_000_000_123, -1, 0)],
        "timestampType": [0, 0, 0],
    }


def test_headers_are_null_where_there_are_none():
    records = [Record(0, 0, None, b"1", (("a", b"x"), ("b", None))), Record(0, 0, None, b"2")]
    [batch] = rows_of(encode_batch(records), include_headers=True).take()
    assert batch.schema == arrow_schema(include_headers=True)
    assert batch.column("headers").to_pylist() == [[{"key": "a", "value": b"x"}, {"key": "b", "value": None}], None]


@pytest.mark.parametrize("codec", list(Compression))
def test_compressed_batches(codec):
    records = [Record(0, i, b"%d" % i, b"v" * i) for i in range(200)]
    [batch] = rows_of(encode_batch(records, compression=codec)).take()
    assert batch.column("value").to_pylist() == [record.value for record in records]
    assert batch.column("offset").to_pylist() == list(range(200))


def test_append_time_holds_for_all_records():
    batch = encode_batch(
        [Record(0, 5, None, None), Record(0, 9, None, None)], timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    [rows] = rows_of(batch).take()
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [9000, 9000]
    assert rows.column("timestampType").to_pylist() == [1, 1]


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        (0, 100, [10, 11, 15, 20]),
        (11, 16, [11, 15]),
        (12, 20, [15]),
        (10, 20, [10, 11, 15]),
        (16, 20, []),
        (21, 30, []),
        (0, 10, []),
    ],
)
def test_only_offsets_of_the_range(start, end, offsets):
    records = [Record(offset, offset, b"k", b"%d" % offset, (("h", None),)) for offset in (10, 11, 15, 20)]
    batch = encode_batch(records, base_offset=10, keep_offsets=True)
    taken = list(rows_of(batch, start=start, end=end, include_headers=True).take())
    assert [offset for rows in taken for offset in rows.column("offset").to_pylist()] == offsets
    assert [value for rows in taken for value in rows.column("value").to_pylist()] == [b"%d" % o for o in offsets]


def test_rows_are_handed_out_in_pieces():
    batch = encode_batch([Record(0, 0, None, b"%d" % i) for i in range(10)])
    rows = ArrowRows("t", 0, 0, 100, rows_per_batch=4)
    assert not rows.full
    assert list(rows.take()) == []
    rows.add(batch, parse_batch_header(batch))
    assert rows.full
    assert [piece.num_rows for piece in rows.take()] == [4, 4, 2]
    assert not rows.full
    assert list(rows.take()) == []


def test_it_is_full_before_a_batch_more_would_leave_a_rest():
    batches = [encode_batch([Record(0, 0, None, b"v")] * 40, base_offset=40 * number) for number in range(3)]
    rows = ArrowRows("t", 0, 0, 1000, rows_per_batch=100)
    pieces = []
    for batch in batches:
        rows.add(batch, parse_batch_header(batch))
        if rows.full:
            pieces += rows.take()
    assert [piece.num_rows for piece in (*pieces, *rows.take())] == [80, 40]


def test_both_types_of_timestamps():
    created = encode_batch([Record(0, 1000, None, b"v")] * 2)
    appended = encode_batch([Record(0, 1000, None, b"v")], timestamp_type=TimestampType.LOG_APPEND_TIME)
    [rows] = rows_of(created, appended, created).take()
    assert rows.column("timestampType").to_pylist() == [0, 0, 1, 0, 0]
    assert rows.column("topic").to_pylist() == ["clicks"] * 5


def test_pandas_is_not_imported():
    batch = encode_batch([Record(0, 1000, b"k", b"v")])
    program = (
        "import sys; from ottla.records.arrow import ArrowRows; from ottla.records.batch import parse_batch_header; "
        f"batch = {batch!r}; rows = ArrowRows('t', 0, 0, 9, rows_per_batch=9); "
        "rows.add(batch, parse_batch_header(batch)); [taken] = rows.take(); taken.cast(taken.schema); "
        "print(taken.num_rows, 'pyarrow' in sys.modules, 'pandas' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert told.split() == ["1", "True", "False"]


def test_large_records_fill_it_too(monkeypatch):
    monkeypatch.setattr(arrow, "MAX_ROWS_BYTES", 1000)
    assert not rows_of(encode_batch([Record(0, 0, None, bytes(900))])).full
    assert rows_of(encode_batch([Record(0, 0, None, bytes(1000))])).full
    assert rows_of(encode_batch([Record(0, 0, None, bytes(1000))]), bytes_per_batch=2000).full
    assert not rows_of(encode_batch([Record(0, 0, None, bytes(400))]), bytes_per_batch=500).full
    assert rows_of(encode_batch([Record(0, 0, None, bytes(500))]), bytes_per_batch=500).full


FARTHEST_MS = (2**63 - 1) // 1000


@pytest.mark.parametrize("timestamp", [2**63 - 1, FARTHEST_MS + 1, -FARTHEST_MS - 1, -(2**63)])
def test_timestamps_that_microseconds_cannot_hold(timestamp):
    rows = rows_of(encode_batch([Record(0, timestamp, None, None)]))
    with pytest.raises(TimestampRangeError, match=f"the record at offset 0 has the timestamp {timestamp}, "):
        next(rows.take())


@pytest.mark.parametrize("timestamp", [FARTHEST_MS, -FARTHEST_MS])
def test_the_farthest_timestamps(timestamp):
    [rows] = rows_of(encode_batch([Record(0, timestamp, None, None)])).take()
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [timestamp * 1000]


def test_rows_before_a_timestamp_out_of_range_come_first():
    batches = [
        encode_batch([Record(0, ms, None, b"v", (("h", None),)) for ms in times], base_offset=first)
        for first, times in ((10, (1, 2, 3)), (20, (4, 2**62, 5)))
    ]
    rows = rows_of(*batches, rows_per_batch=2, include_headers=True)
    taken = rows.take()
    assert [next(taken).column("offset").to_pylist() for _ in range(2)] == [[10, 11], [12, 20]]
    with pytest.raises(TimestampRangeError) as raised:
        next(taken)
    assert (raised.value.offset, raised.value.timestamp) == (21, 2**62)


def test_timestamps_are_of_no_concern_where_they_are_no_column():
    rows = rows_of(encode_batch([Record(0, 2**62, b"k", b"v")]), timestamp_unit=None, include_headers=True)
    [batch] = rows.take()
    assert batch.schema == arrow_schema(timestamp_unit=None, include_headers=True)
    assert batch.schema.names == ["key", "value", "topic", "partition", "offset", "timestampType", "headers"]
    assert batch.column("value").to_pylist() == [b"v"]


@pytest.mark.parametrize("timestamp", [-(2**63), 2**62, 2**63 - 1])
def test_milliseconds_hold_any_timestamp(timestamp):
    [batch] = rows_of(encode_batch([Record(0, timestamp, None, b"v")]), timestamp_unit="ms").take()
    assert batch.schema == arrow_schema(timestamp_unit="ms")
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [timestamp]


def test_timestamps_beyond_64_bits():
    records = [Record(0, 2**62, None, None), Record(0, 2**62 + 2**62 - 1, None, None)]
    data = bytearray(encode_batch(records))
    data[27:35] = (2**63 - 1).to_bytes(8, "big")  # the base timestamp
    with pytest.raises(TimestampRangeError, match=f"offset 0 has the timestamp {2**63 - 1}, "):
        next(rows_of(bytes(data)).take())


def test_malformed_records():
    data = bytearray(encode_batch([Record(0, 0, b"k", b"v")]))
    data[61] += 2
    with pytest.raises(BatchError):
        rows_of(bytes(data))
