"""The walk over records, in plain Python and compiled: each test runs with both."""

from __future__ import annotations

import tracemalloc
from types import ModuleType

import pytest

from ottla.records import _walk, walk
from ottla.records.batch import RECORDS_AT
from ottla.records.errors import BatchError
from ottla.records.record import Record, encode_batch
from ottla.records.varint import encode_varint
from ottla.records.walk import KeyScan, RecordFault, RecordsSummary

MOST_NEGATIVE, LARGEST = -(2**63), 2**63 - 1
NO_LOWEST = LARGEST


@pytest.fixture(params=["python", "compiled"])
def walker(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "python":
        return _walk
    return pytest.importorskip("ottla.records._walk_native", reason="not compiled here")


def encoded(*records: Record) -> bytes:
    return encode_batch(records)[RECORDS_AT:]


def raw(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


# attributes, timestamp delta, offset delta, key length, value length, number of headers
NULLS = bytes([0, 0, 0, 1, 1, 0])
RECORDS = (
    Record(0, 1000, b"k", b"v"),
    Record(1, 2000, None, bytes(300), (("a", b"1"), ("b", None), ("", b""))),
    Record(2, 500, b"", None),
)


def test_the_walk_in_use_is_the_compiled_one_where_there_is_one() -> None:
    assert (walk.check_records is not _walk.check_records) == walk.COMPILED


def test_a_summary(walker):
    assert walker.check_records(encoded(*RECORDS), 3, 1000) == RecordsSummary(500, 2000, 1, True)


def test_records_without_timestamps(walker):
    assert walker.check_records(encoded(Record(0, -1, b"k", b"v")), 1, -1) == RecordsSummary(NO_LOWEST, -1, 0, True)
    assert walker.check_records(encoded(Record(0, -5, b"k", b"v")), 1, -5) == RecordsSummary(-5, -1, 0, True)


def test_timestamps_are_cut_to_64_bits(walker):
    one = raw(b"\0" + encode_varint(LARGEST) + NULLS[2:])
    assert walker.check_records(one, 1, LARGEST) == RecordsSummary(-2, -1, 1, True)
    one = raw(b"\0" + encode_varint(MOST_NEGATIVE) + NULLS[2:])
    assert walker.check_records(one, 1, MOST_NEGATIVE) == RecordsSummary(0, 0, 1, True)
    assert walker.check_records(one, 1, 0) == RecordsSummary(MOST_NEGATIVE, -1, 1, True)


@pytest.mark.parametrize("deltas", [(1,), (0, 0), (1, 0), (0, 2), (-1, 0)])
def test_offsets_that_do_not_count_up(walker, deltas):
    records = b"".join(raw(b"\0\0" + encode_varint(delta) + NULLS[3:]) for delta in deltas)
    assert walker.check_records(records, len(deltas), 0) == RecordsSummary(0, 0, len(deltas), False)
    assert walker.scan_keys(records, len(deltas)).offset_deltas == list(deltas)


def test_a_scan(walker):
    records = encoded(*RECORDS)
    ends = [len(encoded(RECORDS[0])), len(encoded(*RECORDS[:2])), len(records)]
    assert walker.scan_keys(records, 3) == KeyScan(
        [0, 1, 2], [0, 1000, -500], [b"k", None, b""], [True, True, False], ends
    )


def test_nothing(walker):
    assert walker.check_records(b"", 0, 0) == RecordsSummary(NO_LOWEST, -1, 0, True)
    assert walker.scan_keys(b"", 0) == KeyScan([], [], [], [], [])


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_every_kind_of_buffer(walker, buffer):
    assert walker.check_records(buffer(encoded(*RECORDS)), 3, 1000).highest_timestamp == 2000


@pytest.mark.parametrize("size", range(1, 11))
def test_numbers_of_every_length(walker, size):
    """The same numbers with needless bytes: five are allowed for a number of 32 bits, ten for one of 64."""

    def padded(number: int) -> bytes:
        return bytes([number | 0x80] + [0x80] * (size - 2) + [0]) if size > 1 else bytes([number])

    as_varlong = raw(b"\0" + padded(8) + NULLS[2:])
    assert walker.check_records(as_varlong, 1, 0) == RecordsSummary(4, 4, 1, True)
    for before, after in ((NULLS[:2], NULLS[3:]), (NULLS[:3], NULLS[4:]), (NULLS[:4], NULLS[5:]), (NULLS[:5], b"")):
        found = walker.check_records(raw(before + padded(0) + after), 1, 0)
        assert isinstance(found, RecordsSummary) == (size <= 5)
    found = walker.check_records(padded(12) + NULLS, 1, 0)
    assert isinstance(found, RecordsSummary) == (size <= 5)


def test_numbers_are_too_long(walker):
    assert isinstance(walker.check_records(raw(b"\0" + b"\x80" * 10 + b"\0" + NULLS[2:]), 1, 0), RecordFault)
    assert isinstance(walker.check_records(b"\x80" * 5 + b"\0" + NULLS, 1, 0), RecordFault)


FAULTS = {
    "no records": (b"", 1),
    "fewer than declared": (raw(NULLS), 2),
    "more than declared": (raw(NULLS) * 2, 1),
    "far more declared": (raw(NULLS), 2**31 - 1),
    "bytes behind": (raw(NULLS) + b"\0", 1),
    "length of nothing": (b"\0" + NULLS, 1),
    "length negative": (b"\x01" + NULLS, 1),
    "length too small": (encode_varint(5) + NULLS, 1),
    "length too large": (encode_varint(7) + NULLS, 1),
    "length that reaches into the next": (encode_varint(7) + NULLS + raw(NULLS), 2),
    "length absurd": (encode_varint(2**31 - 1) + NULLS, 1),
    "key longer than the record": (raw(b"\0\0\0" + encode_varint(1) + b"\1\0"), 1),
    "key longer than the batch": (raw(b"\0\0\0" + encode_varint(2**31 - 1) + b"\1\0"), 1),
    "key that reaches into the next": (raw(b"\0\0\0" + encode_varint(4) + b"\1\0") + raw(NULLS), 2),
    "value longer than the batch": (raw(b"\0\0\0\1" + encode_varint(2**31 - 1) + b"\0"), 1),
    "value that ends the batch": (raw(b"\0\0\0\1" + encode_varint(1) + b"\0"), 1),
    "headers negative": (raw(b"\0\0\0\1\1" + encode_varint(-1)), 1),
    "headers absurd": (raw(b"\0\0\0\1\1" + encode_varint(2**31 - 1)), 1),
    "headers that are not there": (raw(b"\0\0\0\1\1" + encode_varint(1)), 1),
    "more headers than there are": (raw(b"\0\0\0\1\1" + encode_varint(2) + b"\2a\1"), 1),
    "header key null": (raw(b"\0\0\0\1\1" + encode_varint(1) + b"\1\1"), 1),
    "header key too long": (raw(b"\0\0\0\1\1" + encode_varint(1) + encode_varint(2**31 - 1) + b"\1"), 1),
    "header value too long": (raw(b"\0\0\0\1\1" + encode_varint(1) + b"\0" + encode_varint(2**31 - 1)), 1),
    "only a length": (b"\0", 1),
    "half a length": (b"\x80", 1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(walker, name):
    records, count = FAULTS[name]
    fault = walker.check_records(records, count, 0)
    assert isinstance(fault, RecordFault)
    assert 0 <= fault.record_index < count
    with pytest.raises(BatchError):
        walker.scan_keys(records, count)
    assert fault == _walk.check_records(records, count, 0)


def test_the_faulty_record_is_named(walker):
    records = encoded(Record(0, 0, b"k", b"v"), Record(0, 0, b"k", b"v")) + raw(NULLS + b"\0")
    assert walker.check_records(records, 3, 0) == RecordFault(
        2, f"its fields do not end with it, at byte {len(records)} of the records"
    )
    assert walker.check_records(records, 2, 0) == RecordFault(
        1, "the batch declares 2 records, but 8 bytes follow them"
    )


def test_every_truncation_is_a_fault(walker):
    records = encoded(*RECORDS, Record(3, 0, bytes(20_000), b"v"))
    for size in [*range(400), *range(len(records) - 30, len(records))]:
        assert isinstance(walker.check_records(records[:size], 4, 0), RecordFault)
        with pytest.raises(BatchError):
            walker.scan_keys(records[:size], 4)


def test_nothing_behind_the_batch_is_read(walker):
    """What follows in the buffer would make the records whole."""
    records = encoded(*RECORDS)
    whole = memoryview(records + encoded(*RECORDS))
    for size in range(len(records)):
        assert walker.check_records(whole[:size], 3, 1000) == walker.check_records(records[:size], 3, 1000)


def test_a_lying_count_costs_no_memory(walker):
    records = encoded(*[Record(0, 0, None, b"v")] * 1000)
    tracemalloc.start()
    try:
        assert isinstance(walker.check_records(records, 2**31 - 1, 0), RecordFault)
        assert tracemalloc.get_traced_memory()[1] < 20_000
        with pytest.raises(BatchError):
            walker.scan_keys(records, 2**31 - 1)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_buffers_that_are_no_bytes_are_refused(walker):
    with pytest.raises((TypeError, ValueError)):
        walker.check_records("text", 1, 0)
