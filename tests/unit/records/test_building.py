"""Building batches, in plain Python and compiled: each test runs with both."""

from __future__ import annotations

import signal
from types import ModuleType

import pyarrow
import pytest

from ottla.records import _building, building, from_arrow
from ottla.records.batch import BATCH_OVERHEAD, check_crc, split_batches
from ottla.records.building import finish_batch, finish_in_place
from ottla.records.compression import Compression
from ottla.records.record import Record, decode_batch, encode_batch

RECORDS = [
    Record(0, 1000, b"k", b"v"),
    Record(1, 2000, None, bytes(300), (("a", b"1"), ("ü", None), ("", b""))),
    Record(2, 500, b"", None),
    Record(3, -1, b"x" * 20_000, b"y" * 70_000),
]


@pytest.fixture(params=["python", "compiled"])
def builders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    chosen = _building
    if request.param == "compiled":
        chosen = pytest.importorskip("ottla.records._building_native", reason="not compiled here")
    for name in ("RecordsBuilder", "SourceColumns", "Strings"):
        monkeypatch.setattr(from_arrow, name, getattr(chosen, name))
    return chosen


def built(builders: ModuleType, records: list[Record]):
    builder = builders.RecordsBuilder()
    for index, record in enumerate(records):
        assert builder.append(record.timestamp, record.key, record.value, record.headers) == index
    return builder


def test_the_builder_in_use_is_the_compiled_one_where_there_is_one() -> None:
    assert (building.RecordsBuilder is not _building.RecordsBuilder) == building.COMPILED


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_is_the_one_that_the_encoder_makes(builders, compression):
    builder = built(builders, RECORDS)
    whole = finish_batch(builder, compression=compression, producer_id=7, producer_epoch=2, base_sequence=40)
    wanted = encode_batch(RECORDS, compression=compression, producer_id=7, producer_epoch=2, base_sequence=40)
    assert whole == wanted
    assert (builder.count, builder.base_timestamp, builder.max_timestamp) == (4, 1000, 2000)
    assert builder.size == len(builder.payload())


def test_a_batch_can_be_framed_again_with_another_sequence(builders):
    builder = built(builders, RECORDS)
    first, second = (finish_batch(builder, producer_id=1, producer_epoch=0, base_sequence=at) for at in (0, 9))
    (header,) = split_batches(second)
    assert header.base_sequence == 9
    assert check_crc(second, header)
    assert first[61:] == second[61:]


def test_without_records_there_is_no_batch(builders):
    with pytest.raises(ValueError, match="at least one record"):
        finish_batch(builders.RecordsBuilder())


@pytest.mark.parametrize("timestamp", [0, -1, 2**62, -(2**62), 63, 64, -64, -65])
def test_timestamps_however_far_from_the_first(builders, timestamp):
    records = [Record(0, 0, None, None), Record(1, timestamp, None, None)]
    assert finish_batch(built(builders, records)) == encode_batch(records)


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1])
def test_a_timestamp_too_far_away_adds_nothing(builders, timestamp):
    builder = built(builders, RECORDS[:1])
    with pytest.raises(OverflowError):
        builder.append(timestamp, None, None)
    assert finish_batch(builder) == encode_batch(RECORDS[:1])


@pytest.mark.spec("P3")
def test_a_record_without_room_is_left_to_the_next_batch(builders):
    size = built(builders, RECORDS[:2]).size
    builder = builders.RecordsBuilder(size)
    assert builder.limit == size
    assert [builder.append(r.timestamp, r.key, r.value, r.headers) for r in RECORDS[:3]] == [0, 1, -1]
    assert finish_batch(builder) == encode_batch(RECORDS[:2])
    builder = builders.RecordsBuilder(size - 1)
    assert [builder.append(r.timestamp, r.key, r.value, r.headers) for r in RECORDS[:2]] == [0, -1]


@pytest.mark.spec("P3")
def test_a_closed_builder_takes_nothing_however_it_is_offered(builders):
    builder = built(builders, RECORDS[:2])
    key = next(bytes((octet,)) for octet in range(256) if _partition(builders, octet) == 0)
    builder.close()
    assert builder.is_closed
    assert builder.append(5, b"k", b"v") == -1
    assert builders.append_pairs([(key, b"v")], 0, 1, [builder, None, None, None], 3, 1000) == 0
    columns = from_arrow.source_of(pyarrow.array([b"v"]), timestamp=5)
    assert builder.append_rows(columns, 0, 1) == 0
    assert finish_batch(builder) == encode_batch(RECORDS[:2])
    never_begun = builders.RecordsBuilder()
    never_begun.close()
    assert never_begun.append(5, None, b"v") == -1


def test_the_first_record_may_be_larger_than_the_limit(builders):
    builder = builders.RecordsBuilder(1)
    assert builder.append(5, b"k", b"v" * 1000) == 0
    assert builder.append(5, None, None) == -1
    assert finish_batch(builder) == encode_batch([Record(0, 5, b"k", b"v" * 1000)])


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_limits_that_cannot_be(builders, limit):
    with pytest.raises(ValueError, match="limit"):
        builders.RecordsBuilder(limit)


def test_whatever_holds_bytes_can_be_added(builders):
    builder = builders.RecordsBuilder()
    builder.append(1, bytearray(b"k"), memoryview(b"v--")[:1], [("h", bytearray(b"x")), ("g", None)])
    builder.append(1, b"k", b"v", None)
    assert finish_batch(builder) == encode_batch(
        [Record(0, 1, b"k", b"v", (("h", b"x"), ("g", None))), Record(0, 1, b"k", b"v")]
    )


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [("k", b"v", ()), (b"k", "v", ()), (b"k", 5, ()), (b"k", b"v", [("h", "x")]), (b"k", b"v", [(b"h", b"x")])],
)
def test_what_is_no_bytes_adds_nothing(builders, key, value, headers):
    builder = built(builders, RECORDS[:1])
    with pytest.raises(TypeError, match=r"are (bytes|strings)"):
        builder.append(2, key, value, headers)
    assert finish_batch(builder) == encode_batch(RECORDS[:1])


def test_differences_of_timestamps_are_cut_as_java_cuts_them(builders):
    builder = builders.RecordsBuilder()
    builder.append(-(2**63), None, None)
    builder.append(2**63 - 1, None, None)  # one less than the first, in 64 bits
    assert builder.payload() == bytes([12, 0, 0, 0, 1, 1, 0, 12, 0, 1, 2, 1, 1, 0])
    assert (builder.base_timestamp, builder.max_timestamp) == (-(2**63), 2**63 - 1)


def arrow_batch(builders: ModuleType, keys, values, timestamps=None, start=0, stop=None, limit=1 << 30):
    builder = builders.RecordsBuilder(limit)
    source = from_arrow.source_of(values, keys, timestamps, timestamp=5)
    reached = builder.append_rows(source, start, source.count if stop is None else stop)
    return builder, reached


@pytest.mark.parametrize(
    "kind", [pyarrow.binary(), pyarrow.string(), pyarrow.large_binary(), pyarrow.large_string()], ids=str
)
def test_rows_of_arrow_arrays(builders, kind):
    texts = [None if at % 5 == 3 else "v" * at for at in range(40)]
    values = pyarrow.array(texts, kind)
    keys = pyarrow.array([None if at % 3 == 0 else f"k{at}" for at in range(50)], kind)[10:]
    times = pyarrow.array(range(1000, 1040), pyarrow.int64())
    builder, reached = arrow_batch(builders, keys, values, times)
    assert reached == 40
    whole = finish_batch(builder)
    assert decode_batch(whole, split_batches(whole)[0]) == [
        Record(at, 1000 + at, key and key.encode(), None if text is None else text.encode())
        for at, (key, text) in enumerate(
            zip([None if at % 3 == 0 else f"k{at}" for at in range(10, 50)], texts, strict=True)
        )
    ]


def test_rows_go_on_where_a_batch_is_full(builders):
    values = pyarrow.array([b"x" * 100] * 10, pyarrow.binary())
    builder, reached = arrow_batch(builders, None, values, limit=350)
    assert (builder.count, reached) == (3, 3)
    builder, reached = arrow_batch(builders, None, values, start=reached, limit=1)
    assert (builder.count, reached) == (1, 4)


def test_columns_without_rows_or_shorter_than_said(builders):
    none = pyarrow.array([], pyarrow.binary())
    builder, reached = arrow_batch(builders, None, none)
    assert (builder.count, reached) == (0, 0)
    with pytest.raises(IndexError):
        arrow_batch(builders, None, none, stop=1)
    all_null = pyarrow.array([None, None], pyarrow.binary())
    builder, reached = arrow_batch(builders, all_null, all_null)
    assert finish_batch(builder) == encode_batch([Record(0, 5, None, None), Record(1, 5, None, None)])


def test_a_column_whose_bytes_are_not_there(builders):
    starts = memoryview(bytes(8) + (100).to_bytes(8, "little")).cast("q")
    lying = builders.SourceColumns(1, None, builders.Strings(starts, memoryview(b"abc"), None, 0, 1), None, 0, None)
    with pytest.raises(IndexError):
        builders.RecordsBuilder().append_rows(lying, 0, 1)


@pytest.mark.spec("P3")
@pytest.mark.parametrize(
    ("key", "hashed"),
    # Of `Utils.murmur2`, as Apache Kafka's own test states them.
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_the_hash_of_a_key(builders, key, hashed):
    assert builders.murmur2(key) == hashed % 2**32


@pytest.mark.spec("P3")
def test_partitions_of_a_column_of_keys(builders):
    keys = pyarrow.array([b"1", None, b"2", b"3", b""], pyarrow.binary())
    chosen = list(builders.partitions_for_keys(from_arrow.strings_of(keys), 3))
    assert chosen == [0, -1, 2, 2, (builders.murmur2(b"") & 0x7FFFFFFF) % 3]


@pytest.mark.spec("P3")
def test_pairs_go_to_the_builders_of_their_partitions(builders):
    kept = [builders.RecordsBuilder(200), builders.RecordsBuilder(), None, builders.RecordsBuilder(60)]
    keys = [next(bytes((octet,)) for octet in range(256) if _partition(builders, octet) == each) for each in range(3)]
    pairs = [(keys[0], b"a"), (None, b"b"), (keys[1], None), (keys[0], b"c"), (None, bytes(50)), (keys[2], b"")]
    assert builders.append_pairs(pairs, 0, 9, kept, 3, 1000) == 4, "no room"
    assert [builder and builder.count for builder in kept] == [2, 1, None, 1]
    assert builders.append_pairs(pairs, 5, 9, kept, 3, 1000) == 5, "no builder"
    assert builders.append_pairs(pairs, 2, 9, kept, 3, 2000) == 4
    assert builders.append_pairs(pairs, 6, 9, kept, 3, 2000) == 6
    assert [(each.key, each.value) for each in decoded(kept[1])] == [(keys[1], None)] * 2
    with pytest.raises(ValueError, match="0 partitions"):
        builders.append_pairs(pairs, 0, 9, [None], 0, 1000)


def _partition(builders, octet):
    return (builders.murmur2(bytes((octet,))) & 0x7FFFFFFF) % 3


def decoded(builder):
    whole = finish_batch(builder)
    (header,) = split_batches(whole)
    return decode_batch(whole, header)


def test_a_batch_is_framed_where_its_records_lie(builders):
    builder = builders.RecordsBuilder()
    builder.append(5, b"k", b"v" * 40_000, [("h", b"1")])
    builder.append(3, None, b"v")
    whole = finish_batch(builder, producer_id=7, producer_epoch=1, base_sequence=9)
    assert builder.payload() == whole[BATCH_OVERHEAD:]
    view = finish_in_place(builder, 7, 1, 9)
    assert view == whole
    assert finish_in_place(builder, 7, 2, 0) == view, "the same memory"
    assert view == finish_batch(builder, producer_id=7, producer_epoch=2, base_sequence=0)


def test_pairs_are_taken_up_to_a_number(builders):
    kept = [None, builders.RecordsBuilder()]
    pairs = [(None, b"v")] * 5
    assert builders.append_pairs(pairs, 1, 3, kept, 1, 1000) == 3
    assert builders.append_pairs(pairs, 3, 99, kept, 1, 1000) == 5
    assert kept[1].count == 4


@pytest.mark.parametrize(
    "other", [5, None, [b"k", b"v"], (b"k",), (b"k", b"v", b"w"), ("k", b"v"), (None, "v"), (None, bytearray(2))]
)
def test_pairs_end_where_something_else_comes(builders, other):
    kept = [None, builders.RecordsBuilder()]
    assert builders.append_pairs([(None, b"v"), other, (None, b"v")], 0, 9, kept, 1, 1000) == 1
    assert kept[1].count == 1


def test_a_record_that_is_interrupted_is_not_there(monkeypatch):
    plain = _building.RecordsBuilder()
    plain.append(5, b"k", b"first")
    before = plain.payload()
    with monkeypatch.context() as interrupted:
        interrupted.setattr(_building.RecordsBuilder, "_put_octets", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            plain.append(6, b"k", b"second")
    assert (plain.payload(), plain.count) == (before, 1)
    plain.append(7, None, b"third")
    assert plain.count == 2
