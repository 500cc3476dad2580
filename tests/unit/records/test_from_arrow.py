"""Records out of Arrow columns, with the builder in plain Python and compiled: each test runs with both."""

from __future__ import annotations

from array import array
from types import ModuleType

import pyarrow
import pytest

from ottla.records import _building, building, from_arrow
from ottla.records.batch import split_batches
from ottla.records.compression import Compression
from ottla.records.from_arrow import encode_arrow, source_of
from ottla.records.record import Record, decode_batch, encode_batch

HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


@pytest.fixture(params=["python", "compiled"])
def builders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    chosen = _building
    if request.param == "compiled":
        chosen = pytest.importorskip("ottla.records._building_native", reason="not compiled here")
    for name in ("RecordsBuilder", "SourceColumns", "Strings"):
        monkeypatch.setattr(from_arrow, name, getattr(chosen, name))
    return chosen


def records_of(batches) -> list[Record]:
    return [record for batch in batches for record in decode_batch(batch, split_batches(batch)[0])]


def values_of(batches) -> list[bytes | None]:
    return [record.value for record in records_of(batches)]


def texts(*values, kind=None):
    return pyarrow.array(values, kind or pyarrow.binary())


@pytest.mark.parametrize("codec", list(Compression))
def test_a_whole_table(builders, codec):
    """The bytes are those of the same records one by one."""
    records = [
        Record(0, 1000, b"k", b"v", (("a", b"1"), ("ü", None))),
        Record(1, 2000, None, b""),
        Record(2, 7, b"", None, (("", b""),)),
        Record(3, 500, None, None),
    ]
    headers = pyarrow.array(
        [[{"key": key, "value": value} for key, value in record.headers] or None for record in records], HEADERS
    )
    source = source_of(
        texts(*[record.value for record in records]),
        texts(*[record.key for record in records]),
        pyarrow.array([1000, 2000, None, 500], pyarrow.timestamp("ms")),
        headers,
        timestamp=7,
    )
    [batch] = encode_arrow(source, 10_000, compression=codec, producer_id=3, producer_epoch=0, base_sequence=9)
    assert batch == encode_batch(records, compression=codec, producer_id=3, producer_epoch=0, base_sequence=9)


@pytest.mark.parametrize("kind", [HEADERS, pyarrow.large_list(HEADERS.value_type)], ids=["list", "large"])
def test_slices_of_headers(builders, kind):
    """Neither what is before a slice nor what lies under a null counts."""
    whole = [[{"key": f"{at}-{i}", "value": b"%d" % i if i else None} for i in range(at % 4)] for at in range(30)]
    sliced = pyarrow.array(whole, kind)[13:23]
    source = source_of(pyarrow.nulls(10, pyarrow.binary()), headers=sliced)
    wanted = [tuple((pair["key"], pair["value"]) for pair in pairs) for pairs in whole[13:23]]
    assert [record.headers for record in records_of(encode_arrow(source, 10_000))] == wanted
    pairs = pyarrow.array([{"key": f"k{at}", "value": None} for at in range(10)], HEADERS.value_type)
    mask = pyarrow.array([at % 2 == 0 for at in range(10)])
    is_large = pyarrow.types.is_large_list(kind)
    make = pyarrow.LargeListArray if is_large else pyarrow.ListArray
    starts = pyarrow.array(range(11), pyarrow.int64() if is_large else pyarrow.int32())
    hidden = make.from_arrays(starts, pairs, mask=mask)
    found = records_of(encode_arrow(source_of(pyarrow.nulls(10, pyarrow.binary()), headers=hidden), 10_000))
    assert [record.headers for record in found] == [() if at % 2 == 0 else ((f"k{at}", None),) for at in range(10)]


def test_headers_in_the_other_order(builders):
    kind = pyarrow.list_(pyarrow.struct([("value", pyarrow.binary()), ("key", pyarrow.binary())]))
    headers = pyarrow.array([[{"key": b"k", "value": b"v"}]], kind)
    assert records_of(encode_arrow(source_of(None, headers=headers), 100)) == [
        Record(0, -1, None, None, (("k", b"v"),))
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.list_(pyarrow.string()),
        pyarrow.string(),
        pyarrow.list_(pyarrow.struct([("name", pyarrow.string()), ("value", pyarrow.binary())])),
    ],
    ids=str,
)
def test_headers_of_another_kind(builders, kind):
    with pytest.raises(ValueError, match="of key and value"):
        source_of(None, headers=pyarrow.nulls(2, kind))


def test_headers_without_a_name(builders):
    headers = pyarrow.array([None, [{"key": None, "value": b"v"}]], HEADERS)
    builder = builders.RecordsBuilder()
    with pytest.raises(ValueError, match="row 1 has no name"):
        builder.append_rows(source_of(None, headers=headers), 0, 2)
    assert builder.payload() == encode_batch([Record(0, -1, None, None)])[61:]


@pytest.mark.parametrize("kind", [pyarrow.binary(), pyarrow.large_string()], ids=str)
def test_columns_of_several_chunks(builders, kind):
    pieces = [["a", None], [], ["", "b" * 300], ["c"]]
    column = pyarrow.chunked_array([pyarrow.array(piece, kind) for piece in pieces], kind)
    source = source_of(column, column.slice(0), timestamps=pyarrow.chunked_array([[1, 2], [3], [4, 5]]))
    found = records_of(encode_arrow(source, 10_000))
    assert [record.value for record in found] == [b"a", None, b"", b"b" * 300, b"c"]
    assert [record.key for record in found] == [record.value for record in found]
    assert [record.timestamp for record in found] == [1, 2, 3, 4, 5]
    none = source_of(pyarrow.chunked_array([], kind))
    assert (none.count, list(encode_arrow(none, 100))) == (0, [])
    assert values_of(encode_arrow(source_of(column[1:4]), 10_000)) == [None, b"", b"b" * 300]


def test_fixed_size_values(builders):
    column = pyarrow.array([b"abc", None, b"def"], pyarrow.binary(3))[1:]
    assert values_of(encode_arrow(source_of(column), 100)) == [None, b"def"]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1000), ("ms", 1), ("us", 1), ("ns", 1)])
def test_timestamps_of_any_unit(builders, unit, factor):
    finer = {"us": 1000, "ns": 1_000_000}.get(unit, 1)
    times = pyarrow.array([5 * finer + finer // 2, 1_700_000_000 * finer], pyarrow.timestamp(unit, "UTC"))
    source = source_of(pyarrow.nulls(2, pyarrow.binary()), timestamps=times)
    assert [record.timestamp for record in records_of(encode_arrow(source, 100))] == [
        5 * factor,
        1_700_000_000 * factor,
    ]


@pytest.mark.parametrize("kind", [pyarrow.float64(), pyarrow.string()], ids=str)
def test_timestamps_of_another_kind(builders, kind):
    with pytest.raises(ValueError, match="integers of milliseconds"):
        source_of(None, timestamps=pyarrow.array([1, 2]).cast(kind))


def test_seconds_too_large_for_milliseconds(builders):
    with pytest.raises(pyarrow.ArrowInvalid):
        source_of(None, timestamps=pyarrow.array([2**60], pyarrow.timestamp("s")))


@pytest.mark.parametrize("kind", [pyarrow.string_view(), pyarrow.binary_view(), None], ids=str)
def test_views_and_dictionaries(builders, kind):
    column = texts("a", None, "b" * 50, "a", kind=pyarrow.string())
    column = column.dictionary_encode() if kind is None else column.cast(kind)
    for given in (column, pyarrow.chunked_array([column[:1], column[1:]])):
        assert values_of(encode_arrow(source_of(given[1:]), 1000)) == [None, b"b" * 50, b"a"]


def test_columns_of_different_lengths(builders):
    with pytest.raises(ValueError, match=r"one length, these have \[1, 2\]"):
        source_of(texts(b"a"), texts(b"a", b"b"))
    with pytest.raises(ValueError, match="none"):
        source_of(None)


def test_columns_that_are_no_bytes(builders):
    with pytest.raises((pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError)):
        source_of(pyarrow.array([1, 2]))


def test_batches_within_a_limit(builders):
    values = [b"x" * (at * 37 % 200) for at in range(100)]
    batches = list(encode_arrow(source_of(texts(*values)), 700))
    assert values_of(batches) == values
    sizes = [len(batch) - 61 for batch in batches]
    assert max(sizes) <= 700
    assert all(size + len(other) > 500 for size, other in zip(sizes, batches[1:], strict=False))
    assert len(list(encode_arrow(source_of(texts(*values)), 1))) == 100


def test_some_rows_only(builders):
    values = [b"%d" % at for at in range(50)]
    rows = array("q", [49, 0, 7, 7, 30])
    assert values_of(encode_arrow(source_of(texts(*values)), 1000, rows)) == [b"49", b"0", b"7", b"7", b"30"]


@pytest.mark.parametrize("row", [-1, 3, 2**62])
def test_rows_that_are_not_there(builders, row):
    builder = builders.RecordsBuilder()
    timestamps = pyarrow.array([1, 2, 3])
    for source in (source_of(texts(b"a", b"b", b"c"), timestamps=timestamps), source_of(None, timestamps=timestamps)):
        with pytest.raises(IndexError):
            builder.append_rows(source, 0, 1, array("q", [row]))
        with pytest.raises(IndexError):
            builder.append_rows(source, 0, 2, array("q", [0]))
        with pytest.raises(IndexError):
            builder.append_rows(source, -1, 1, array("q", [0]))


@pytest.mark.spec("P3")
def test_a_table_is_split_over_partitions(builders):
    keys = [b"%d" % (at % 17) if at % 5 else None for at in range(300)]
    source = source_of(texts(*[b"v%d" % at for at in range(300)]), texts(*keys))
    chosen = builders.partitions_for_keys(from_arrow.strings_of(texts(*keys)), 4)
    *partitions, without_key = builders.rows_by_partition(chosen, 4)
    assert list(without_key) == [at for at in range(300) if keys[at] is None]
    for partition, rows in enumerate(partitions):
        found = records_of(encode_arrow(source, 1000, rows))
        assert [record.value for record in found] == [b"v%d" % row for row in rows]
        assert all((building.murmur2(record.key) & 0x7FFFFFFF) % 4 == partition for record in found)
    assert sorted(row for rows in (*partitions, without_key) for row in rows) == list(range(300))


@pytest.mark.parametrize("partition", [-2, 3])
def test_partitions_that_are_not_there(builders, partition):
    with pytest.raises(ValueError, match="where there are 3"):
        builders.rows_by_partition(array("i", [0, partition]), 3)


@pytest.mark.parametrize("count", [0, -1, -2])
def test_no_partitions_to_choose_from(builders, count):
    for keys in ([b"k"], []):
        with pytest.raises(ValueError, match="must be one"):
            builders.partitions_for_keys(from_arrow.strings_of(texts(*keys)), count)
        with pytest.raises(ValueError, match="must be one"):
            builders.rows_by_partition(array("i", []), count)
