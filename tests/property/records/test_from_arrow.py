"""Records from Arrow columns are the bytes of the same records one by one, however the columns are cut."""

from __future__ import annotations

from array import array
from types import ModuleType

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import _building, from_arrow
from ottla.records.from_arrow import encode_arrow, source_of, strings_of
from ottla.records.record import Record, encode_batch

try:
    from ottla.records import _building_native as compiled
except ImportError:
    compiled = None

BUILDS = [build for build in (_building, compiled) if build is not None]
HEADERS_TYPE = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
KINDS = st.sampled_from([pyarrow.binary(), pyarrow.large_binary()])
TIMESTAMPS = st.none() | st.integers(-1, 2**41)
OPTIONAL = st.none() | st.binary(max_size=150)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=80)), max_size=3)
ROWS = st.lists(st.tuples(TIMESTAMPS, OPTIONAL, OPTIONAL, HEADERS), min_size=1, max_size=40)
DEFAULT_TIMESTAMP = 77
#: Where Arrow's strings may be said to begin and end.
PLACES = st.sampled_from([0, 1, 3, 9, 10, 11, -1, -(2**63), 2**63 - 1])


def records_of(rows) -> list[Record]:
    return [
        Record(0, DEFAULT_TIMESTAMP if timestamp is None else timestamp, key, value, tuple(headers or ()))
        for timestamp, key, value, headers in rows
    ]


def columns_of(rows, key_kind, value_kind):
    timestamps, keys, values, headers = zip(*rows, strict=True)
    pairs = [each and [{"key": name, "value": value} for name, value in each] for each in headers]
    return (
        pyarrow.array(values, value_kind),
        pyarrow.array(keys, key_kind),
        pyarrow.array(timestamps, pyarrow.timestamp("ms")),
        pyarrow.array(pairs, HEADERS_TYPE),
    )


def use(build: ModuleType, patch: pytest.MonkeyPatch) -> None:
    for name in ("RecordsBuilder", "SourceColumns", "Strings"):
        patch.setattr(from_arrow, name, getattr(build, name))


@given(ROWS, KINDS, KINDS, st.data())
def test_equal_bytes(rows, key_kind, value_kind, data):
    first = data.draw(st.integers(0, len(rows) - 1))
    count = data.draw(st.integers(1, len(rows) - first))
    chosen = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20))
    columns = [column.slice(first, count) for column in columns_of(rows, key_kind, value_kind)]
    cut = data.draw(st.integers(0, count))
    chunked = [pyarrow.chunked_array([column[:cut], column[cut:]]) for column in columns]
    wanted = records_of(rows[first : first + count])
    for build in BUILDS:
        with pytest.MonkeyPatch.context() as patch:
            use(build, patch)
            for given_columns in (columns, chunked):
                source = source_of(*given_columns, timestamp=DEFAULT_TIMESTAMP)
                assert list(encode_arrow(source, 1 << 30)) == [encode_batch(wanted)]
                some = list(encode_arrow(source, 1 << 30, array("q", chosen)))
                assert some == [encode_batch([wanted[row] for row in chosen])]


@given(st.lists(st.none() | st.binary(max_size=40), max_size=60), st.integers(1, 5))
def test_every_row_has_one_partition(keys, count):
    column = pyarrow.array(keys, pyarrow.binary())
    for build in BUILDS:
        with pytest.MonkeyPatch.context() as patch:
            use(build, patch)
            chosen = build.partitions_for_keys(strings_of(column), count)
        assert list(chosen) == [-1 if key is None else (build.murmur2(key) & 0x7FFFFFFF) % count for key in keys]
        rows = build.rows_by_partition(chosen, count)
        assert [list(each) for each in rows] == [
            [row for row, partition in enumerate(chosen) if partition == wanted] for wanted in (*range(count), -1)
        ]


@given(
    st.lists(PLACES, min_size=4, max_size=4), st.none() | st.binary(max_size=2), st.integers(0, 4), st.integers(0, 5)
)
def test_columns_that_lie_are_errors(places, valid, offset, count):
    """Nothing outside of the buffers is read, and both say the same."""
    told = []
    for build in BUILDS:
        strings = build.Strings(memoryview(array("q", places)), b"0123456789", valid, offset, count)
        builder = build.RecordsBuilder()
        try:
            builder.append_rows(build.SourceColumns(count, strings, None, None, 0, None), 0, count)
        except IndexError:
            told.append((builder.count, builder.payload(), "error"))
        else:
            told.append((builder.count, builder.payload(), "none"))
    assert told == [told[0]] * len(told)
