"""Records decoded for consumers and for Arrow, in plain Python and compiled: each test runs with both."""

from __future__ import annotations

import gc
from types import ModuleType

import pytest

from ottla.records import _walk, consumed
from ottla.records.batch import TimestampType, parse_batch_header
from ottla.records.compression import Compression
from ottla.records.consumed import ConsumerRecord, decode_consumed
from ottla.records.errors import BatchError
from ottla.records.record import Record, encode_batch

HEADERS = (("trace", b"1"), ("größe", None), ("", b""))
RECORDS = [
    Record(0, 1000, b"key", b"value", HEADERS),
    Record(1, 1000, None, b""),
    Record(2, 999, b"", None),
    Record(3, 1000, None, None),
]


@pytest.fixture(params=["python", "compiled"])
def walker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    chosen = _walk
    if request.param == "compiled":
        chosen = pytest.importorskip("ottla.records._walk_native", reason="not compiled here")
    monkeypatch.setattr(consumed, "read_records", chosen.read_records)
    return chosen


def decoded(records, *arguments, start_offset=0, **options):
    data = encode_batch(records, **options)
    return decode_consumed(data, parse_batch_header(data), "clicks", 3, start_offset, *arguments)


def test_all_fields(walker):
    first, *others = decoded(RECORDS, base_offset=7, leader_epoch=5)
    assert isinstance(first, ConsumerRecord)
    assert first == ("clicks", 3, 7, 1000, 0, b"key", b"value", HEADERS, 5, 3, 5)
    assert first.timestamp_type is TimestampType.CREATE_TIME
    assert [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in others] == [
        (8, 1000, None, b"", ()),
        (9, 999, b"", None, ()),
        (10, 1000, None, None, ()),
    ]
    assert [(each.serialized_key_size, each.serialized_value_size) for each in others] == [(-1, 0), (0, -1), (-1, -1)]


@pytest.mark.parametrize("codec", list(Compression))
def test_only_what_was_asked_for(walker, codec):
    found = decoded(RECORDS, base_offset=7, start_offset=9, compression=codec)
    assert [record.offset for record in found] == [9, 10]


def test_append_time_holds_for_all_records(walker):
    found = decoded(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {(record.timestamp, record.timestamp_type) for record in found} == {(1000, TimestampType.LOG_APPEND_TIME)}


def test_null_is_not_given_to_deserializers(walker):
    asked = []

    def deserialize(topic, headers, data):
        asked.append((topic, headers, data))
        return data.decode()

    found = decoded(RECORDS, deserialize, deserialize)
    assert [(record.key, record.value) for record in found] == [("key", "value"), (None, ""), ("", None), (None, None)]
    assert asked == [
        ("clicks", HEADERS, b"key"),
        ("clicks", HEADERS, b"value"),
        ("clicks", (), b""),
        ("clicks", (), b""),
    ]
    assert found[0].serialized_value_size == 5


def test_errors_of_deserializers_pass_through(walker):
    with pytest.raises(ZeroDivisionError):
        decoded(RECORDS, None, lambda topic, headers, data: 1 / 0)


def test_offsets_and_timestamps_are_cut_to_64_bits_as_java_cuts_them(walker):
    data = bytearray(encode_batch([Record(0, 0, None, None), Record(1, 1, None, None)]))
    data[0:8] = data[27:35] = (2**63 - 1).to_bytes(8, "big")  # base offset, base timestamp
    found = decode_consumed(data, parse_batch_header(data), "t", 0, -(2**63))
    assert [(record.offset, record.timestamp) for record in found] == [(2**63 - 1, 2**63 - 1), (-(2**63), -(2**63))]


def test_records_without_objects_of_the_user_are_no_work_for_the_collector():
    walker = pytest.importorskip("ottla.records._walk_native", reason="not compiled here")
    data = encode_batch(RECORDS)[61:]
    common = (data, 4, ConsumerRecord, "t", 0, 0, 0, 0, None, -1, 0)
    assert not any(gc.is_tracked(record) for record in walker.read_records(*common, None, None))
    made = walker.read_records(*common, None, lambda topic, headers, value: [value])
    assert all(gc.is_tracked(record) for record in made)


def test_only_tuples_are_made(walker):
    with pytest.raises(TypeError):
        walker.read_records(encode_batch(RECORDS)[61:], 4, list, "t", 0, 0, 0, 0, None, -1, 0, None, None)


def held(columns):
    return [
        (column.count, column.nulls, bytes(column.data[: column.used]), bytes(column.valid[: column.count + 7 >> 3]))
        for column in (columns.keys, columns.values, columns.header_keys, columns.header_values)
    ]


def test_a_malformed_batch_adds_nothing_to_columns(walker):
    columns = walker.RowColumns(True)
    good = encode_batch(RECORDS)[61:]
    for _ in range(3):
        columns.append(good, 4, 0, 0, None, 0, 100)
    before = held(columns)
    with pytest.raises(BatchError):
        columns.append(good[:-1] + b"\x02", 4, 0, 0, None, 0, 100)
    assert (columns.count, held(columns)) == (12, before)
    columns.append(good, 4, 0, 0, None, 0, 100)
    again = walker.RowColumns(True)
    for _ in range(4):
        again.append(good, 4, 0, 0, None, 0, 100)
    assert held(columns) == held(again)


def test_columns_end_where_32_bits_do(walker):
    column = walker.BinaryColumn()
    column.reserve(1, 100)
    with pytest.raises(OverflowError, match="2 GiB"):
        column.reserve(1, 2**31)
    assert len(column.data) == 100
