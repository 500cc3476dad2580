"""The walk in plain Python, the compiled one and the decoder agree about whatever bytes there are."""

from __future__ import annotations

from itertools import pairwise
from struct import calcsize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import _walk
from ottla.records.batch import RECORDS_AT
from ottla.records.errors import BatchError
from ottla.records.record import Record, decode_columns, encode_batch
from ottla.records.walk import KeyScan, RecordFault, RecordsSummary

try:
    from ottla.records import _walk_native as compiled
except ImportError:
    compiled = None

TIMESTAMPS = st.one_of(st.integers(-1, 10), st.integers(0, 2**41))
OPTIONAL = st.none() | st.binary(max_size=150)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=80)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(Record, st.just(0), TIMESTAMPS, OPTIONAL, OPTIONAL, HEADERS | st.just(())), min_size=1, max_size=80
)
BASE_OFFSET = 2**40
# Bytes of which varints and records tend to be made.
ADVERSE = st.lists(st.sampled_from([0, 1, 2, 6, 12, 13, 14, 0x7F, 0x80, 0x81, 0xFF]), max_size=60).map(bytes)


def encoded(records: list[Record]) -> bytes:
    return encode_batch(records)[RECORDS_AT:]


def scan(walker, data: bytes, count: int) -> KeyScan | None:
    try:
        return walker.scan_keys(data, count)
    except BatchError:
        return None


def rows(walker, data: bytes, count: int, base_timestamp: int) -> list[tuple[object, ...]] | None:
    """The fields of records as tuples and as columns, which must be the same; None where they are malformed."""
    columns = walker.RowColumns(True)
    gathered = (data, count, BASE_OFFSET, base_timestamp, None, -(2**63), 2**63 - 1)
    try:
        made = walker.read_records(
            data, count, tuple, "t", 1, BASE_OFFSET, base_timestamp, 0, None, 3, -(2**63), None, None
        )
    except BatchError:
        with pytest.raises(BatchError):
            columns.append(*gathered)
        assert columns.count == columns.keys.count == columns.values.used == columns.header_keys.count == 0
        with pytest.raises(BatchError):
            walker.read_columns(data, count)
        return None
    assert columns.append(*gathered) == columns.count == len(made)
    header_values = strings(columns.header_values)
    header_names = [name.decode("utf-8", "replace") for name in strings(columns.header_keys)]
    pairs = list(zip(header_names, header_values, strict=True))
    headers = [tuple(pairs[start:end]) for start, end in pairwise(numbers(columns.header_ends, "i", columns.count + 1))]
    by_column = [
        numbers(columns.offsets, "q", columns.count),
        numbers(columns.timestamps, "q", columns.count),
        strings(columns.keys),
        strings(columns.values),
        headers,
    ]
    assert [[record[at] for record in made] for at in (2, 3, 5, 6, 7)] == by_column
    assert walker.read_columns(data, count)[2:] == tuple(by_column[2:])
    assert all((record[9], record[10]) == (length(record[5]), length(record[6])) for record in made)
    return made


def numbers(buffer: bytearray, kind: str, count: int) -> list[int]:
    return memoryview(buffer)[: count * calcsize(kind)].cast(kind).tolist()


def strings(column) -> list[bytes | None]:
    ends, valid = numbers(column.ends, "i", column.count + 1), column.valid
    return [
        bytes(column.data[ends[at] : ends[at + 1]]) if valid[at >> 3] >> (at & 7) & 1 else None
        for at in range(column.count)
    ]


def length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def check_agreement(data: bytes, count: int, base_timestamp: int = 0) -> RecordsSummary | RecordFault:
    """What they say of the bytes; an AssertionError where they do not say the same."""
    found = _walk.check_records(data, count, base_timestamp)
    scanned = scan(_walk, data, count)
    made = rows(_walk, data, count, base_timestamp)
    try:
        columns = decode_columns(data, count)
    except BatchError:
        assert isinstance(found, RecordFault)
        assert scanned is None
        assert made is None
    else:
        assert isinstance(found, RecordsSummary)
        assert scanned is not None
        assert made is not None
        assert [record[2] - BASE_OFFSET for record in made] == columns.offset_deltas
        assert [record[5] for record in made] == columns.keys
        assert [record[6] for record in made] == columns.values
        assert [record[7] for record in made] == columns.headers
        assert scanned[:3] == (columns.offset_deltas, columns.timestamp_deltas, columns.keys)
        assert scanned.has_values == [value is not None for value in columns.values]
        assert found.keyless == columns.keys.count(None)
        assert found.counts_up == (columns.offset_deltas == list(range(count)))
    if compiled is not None:
        assert compiled.check_records(data, count, base_timestamp) == found
        assert compiled.check_records(memoryview(bytearray(data)), count, base_timestamp) == found
        assert scan(compiled, data, count) == scanned
        assert rows(compiled, data, count, base_timestamp) == made
    return found


@given(RECORDS)
def test_records_that_were_encoded(records):
    timestamps = [record.timestamp for record in records]
    with_time = [timestamp for timestamp in timestamps if timestamp != -1]
    assert check_agreement(encoded(records), len(records), timestamps[0]) == RecordsSummary(
        min(with_time, default=2**63 - 1),
        max(timestamps),
        sum(record.key is None for record in records),
        True,
    )


@given(RECORDS, st.data())
def test_records_with_changed_bytes(records, data):
    changed = bytearray(encoded(records))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    check_agreement(bytes(changed), max(0, len(records) + data.draw(st.integers(-1, 1))))


@given(RECORDS, st.data())
def test_records_with_bytes_taken_out_or_put_in(records, data):
    whole = encoded(records)
    first, second = sorted(data.draw(st.integers(0, len(whole))) for _ in range(2))
    check_agreement(whole[:first] + data.draw(ADVERSE) + whole[second:], len(records))


@given(st.binary(max_size=60) | ADVERSE, st.integers(0, 8) | st.just(2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_any_bytes(data, count, base_timestamp):
    check_agreement(data, count, base_timestamp)


@pytest.mark.skipif(compiled is None, reason="not compiled here")
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_timestamps_are_cut_alike(base_timestamp, delta):
    number = (delta << 1) ^ (delta >> 63)
    body = bytearray(b"\0")
    while number > 127:
        body.append(number & 127 | 128)
        number >>= 7
    body += bytes([number, 0, 1, 1, 0])
    data = bytes([len(body) * 2]) + bytes(body)
    found = check_agreement(data, 1, base_timestamp)
    assert isinstance(found, RecordsSummary)
    assert found.highest_timestamp == max(-1, (base_timestamp + delta + 2**63) % 2**64 - 2**63)
