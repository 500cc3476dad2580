from __future__ import annotations

import asyncio
import threading
from collections import defaultdict

import pyarrow
import pytest

from ottla.client import BulkFuture, ProducerRecord
from ottla.client import Producer as AsyncProducer
from ottla.client.errors import (
    ClientError,
    ClientTimeoutError,
    DeliveryError,
    InvalidArgumentError,
    RecordTooLargeError,
)
from ottla.client.producer.bulk_future import OffsetRange
from ottla.client.producer.partitioners import partition_for_key
from ottla.client.sync import Producer
from ottla.env.clock import SystemClock
from ottla.records.batch import parse_batch_header
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.quick_settings import QUICK_PRODUCER
from support.waiting import Stopwatch


@pytest.fixture
def producer(fake):
    with Producer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER) as producer:
        yield producer


def written(fake, partition):
    return [(record.key, record.value) for record in fake.logs[partition].records()]


def by_key(pairs, count):
    found = defaultdict(list)
    for key, value in pairs:
        found[partition_for_key(key, count)].append((key, value))
    return found


@pytest.mark.spec("P1", "P3")
@pytest.mark.parametrize("given", [list, iter])
def test_pairs_go_to_the_partitions_of_their_keys_in_order(fake, producer, given):
    partitions = fake.topic("t", 0, 0, 0)
    pairs = [(b"k%d" % (at % 50), b"%d" % at) for at in range(5000)]
    ranges = producer.send_many(given(pairs), "t").result(60)
    expected = by_key(pairs, 3)
    assert ranges == [OffsetRange("t", each, 0, len(expected[each]), len(expected[each])) for each in range(3)]
    assert [written(fake, partition) for partition in partitions] == [expected[each] for each in range(3)]


def test_the_same_with_an_event_loop(fake):
    [p] = fake.topic("t", 0)

    async def work():
        async with AsyncProducer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER) as producer:
            future = await producer.send_many([(None, b"%d" % at) for at in range(1000)], "t")
            assert future.count == 1000
            assert await future == [OffsetRange("t", 0, 0, 1000, 1000)]
            table = pyarrow.table({"value": [b"%d" % at for at in range(1000)]})
            assert await (await producer.send_arrow(table, "t")) == [OffsetRange("t", 0, 1000, 2000, 1000)]

    asyncio.run(work())
    assert written(fake, p) == [(None, b"%d" % at) for at in range(1000)] * 2


def test_pairs_of_all_kinds_keep_their_order(fake, producer):
    [p] = fake.topic("t", 0)

    def some():
        for at in range(2500):
            value = b"%d" % at
            key = (None, b"k", bytearray(b"b"))[at % 3]
            yield ProducerRecord("t", value, key) if at % 7 == 0 else [key, value] if at % 11 == 0 else (key, value)
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        producer.send_many(some(), "t")
    producer.flush()
    for number, key in enumerate((None, b"k", b"b")):
        values = [value for found, value in written(fake, p) if found == key]
        assert values == [b"%d" % at for at in range(number, 2500, 3)]


@pytest.mark.spec("P1")
def test_records_with_everything_for_several_topics(fake, producer):
    [a] = fake.topic("a", 0)
    _, b = fake.topic("b", 0, 0)
    records = [
        ProducerRecord("a", b"1", b"k", timestamp=7, headers=[("h", b"x")]),
        ProducerRecord("b", None, b"k", partition=1),
        ProducerRecord("a", b"2"),
    ]
    assert [each.record_count for each in producer.send_many(records).result(60)] == [2, 1]
    first, second = sorted(fake.logs[a].records(), key=lambda record: record.value)
    assert (first.key, first.timestamp, first.headers) == (b"k", 7, (("h", b"x"),))
    assert second.timestamp > 1_000_000
    assert written(fake, b) == [(b"k", None)]


def test_what_is_taken_before_a_record_that_is_refused_is_sent(fake, producer):
    [p] = fake.topic("t", 0)
    for wrong in ((1, b"v"), (b"k", "text"), ProducerRecord("t", b"v", partition=5), (b"k",), 5):
        with pytest.raises((InvalidArgumentError, TypeError)):
            producer.send_many([(None, b"before"), wrong, (None, b"after")], "t")
    with pytest.raises(InvalidArgumentError, match="need a topic"):
        producer.send_many([(b"k", b"v")])
    with pytest.raises(RecordTooLargeError):
        producer.send_many([(None, b"before"), (None, bytes(2_000_000))], "t")
    producer.flush()
    assert set(written(fake, p)) == {(None, b"before")}
    assert producer.send_many([], "t").result(1) == []
    assert producer.send_many([(b"k", b"v")], "t").result(60)[0].record_count == 1


def test_batches_that_are_large_but_not_too_large(fake):
    [p] = fake.topic("t", 0)
    with Producer(
        bootstrap_servers=fake.bootstrap, max_request_size=100_000, buffer_memory=150_000, **QUICK_PRODUCER
    ) as producer:
        producer.send_many([(None, bytes(1000))] * 1000, "t").result(60)
    sizes = [len(batch) for batch in fake.logs[p].batches]
    assert 90_000 < max(sizes) <= 100_000
    assert sum(parse_batch_header(batch).records_count for batch in fake.logs[p].batches) == 1000


def test_it_keeps_its_place_among_single_records(fake, producer):
    [p] = fake.topic("t", 0)
    producer.send("t", b"first")
    producer.send_many([(None, b"second"), (None, b"third")], "t")
    producer.send("t", b"fourth").result(60)
    assert [value for _, value in written(fake, p)] == [b"first", b"second", b"third", b"fourth"]


@pytest.mark.spec("P5")
def test_failures_are_reported_by_the_future_or_by_flush(fake, producer):
    fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(DeliveryError, match="3 of 3 records") as told:
        producer.send_many([(None, b"%d" % at) for at in range(3)], "t").result(60)
    assert told.value.count == 3
    producer.flush()


def test_split_batches_are_reported_as_one_range(fake, producer):
    fake.topic("t", 0)

    def bounded(request):
        [data] = request.topic_data[0].partition_data
        too_large = parse_batch_header(data.records).records_count > 30
        return fake.on_produce(0, request, ErrorCode.MESSAGE_TOO_LARGE if too_large else None)

    fake.faults[ApiKey.PRODUCE].extend([bounded] * 100)
    assert producer.send_many([(None, b"%d" % at) for at in range(200)], "t").result(60) == [
        OffsetRange("t", 0, 0, 200, 200)
    ]


@pytest.mark.spec("P2")
def test_serializers_are_asked_for_each_record(fake):
    [p] = fake.topic("t", 0)
    settings = {"key_serializer": "StringSerializer", "value_serializer": str.encode}
    with Producer(bootstrap_servers=fake.bootstrap, **settings, **QUICK_PRODUCER) as producer:
        ranges = producer.send_many([("k", str(at)) for at in range(100)], "t").result(60)
    assert ranges == [OffsetRange("t", 0, 0, 100, 100)]
    assert written(fake, p) == [(b"k", b"%d" % at) for at in range(100)]


@pytest.mark.spec("P1", "P3")
def test_arrow_tables(fake, producer):
    partitions = fake.topic("t", 0, 0, 0)
    pairs = [(b"k%d" % (at % 50), b"%d" % at) for at in range(5000)]
    table = pyarrow.table({"id": [key for key, _ in pairs], "text": [value.decode() for _, value in pairs]})
    future = producer.send_arrow(table, "t", key_column="id", value_column="text")
    expected = by_key(pairs, 3)
    assert future.result(60) == [
        OffsetRange("t", each, 0, len(expected[each]), len(expected[each])) for each in range(3)
    ]
    assert [written(fake, partition) for partition in partitions] == [expected[each] for each in range(3)]


@pytest.mark.spec("P1")
class Frame:
    """As those of Polars and pandas: no class of pyarrow's, but it can be asked for Arrow's data."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def test_frames_of_other_packages(fake, producer):
    [p] = fake.topic("t", 0)
    table = pyarrow.table({"key": [b"a", b"b"], "value": [b"1", None]})
    assert producer.send_arrow(Frame(table), "t").result() == [OffsetRange("t", 0, 0, 2, 2)]
    assert [(each.key, each.value) for each in fake.logs[p].records()] == [(b"a", b"1"), (b"b", None)]
    with pytest.raises(InvalidArgumentError, match=r"send_arrow takes a pyarrow Table .*, not dict"):
        producer.send_arrow({"value": [b"1"]}, "t")
    with pytest.raises(InvalidArgumentError, match="Frame cannot be made an Arrow table"):
        producer.send_arrow(Frame(pyarrow.chunked_array([[1]])), "t")


def test_arrow_columns_for_everything(fake, producer):
    [a] = fake.topic("a", 0)
    b0, b1 = fake.topic("b", 0, 0)
    batch = pyarrow.record_batch(
        {
            "topic": ["a", "b", "b", "a"],
            "partition": pyarrow.array([0, 1, None, None], pyarrow.int32()),
            "key": [None, b"k", b"21", None],
            "value": [b"1", None, b"3", b"4"],
            "timestamp": pyarrow.array([5, 6, 7, 8], pyarrow.timestamp("ms")),
            "headers": pyarrow.array(
                [[{"key": "h", "value": b"x"}], None, [], None],
                pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])),
            ),
        }
    )
    producer.send_arrow(batch).result(60)
    assert [(each.value, each.timestamp, each.headers) for each in fake.logs[a].records()] == [
        (b"1", 5, (("h", b"x"),)),
        (b"4", 8, ()),
    ]
    where = [b0, b1][partition_for_key(b"21", 2)]
    assert (b"21", b"3") in written(fake, where)
    assert (b"k", None) in written(fake, b1)
    producer.send_arrow(batch, "b", partition=1).result(60)
    assert len(written(fake, b0)) + len(written(fake, b1)) == 6


def test_arrow_columns_that_cannot_be(fake, producer):
    fake.topic("t", 0, 0)
    text = pyarrow.table({"value": ["a"], "number": [1.5], "partition": [7]})
    for wrong in (
        {"value_column": "no"},
        {"value_column": "number"},
        {"topic": None},
        {"partition": 9},
        {},
    ):
        with pytest.raises(InvalidArgumentError):
            producer.send_arrow(text, **{"topic": "t", **wrong})
    with pytest.raises(InvalidArgumentError, match="its topic column is null"):
        producer.send_arrow(pyarrow.table({"value": ["a"], "topic": pyarrow.array([None], pyarrow.string())}))
    with pytest.raises(InvalidArgumentError, match="column partition: -1 is not a partition; null stands for any"):
        producer.send_arrow(pyarrow.table({"value": ["a", "b"], "partition": [0, -1]}), "t")


def test_an_arrow_header_has_a_name(fake, producer):
    fake.topic("t", 0)
    kind = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
    for header in ({"key": None, "value": b"x"}, None):
        headers = pyarrow.array([[], [header]], kind)
        with pytest.raises(InvalidArgumentError, match="column headers: a header of row 1 has no name"):
            producer.send_arrow(pyarrow.table({"value": ["a", "b"], "headers": headers}), "t")


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_a_topic_that_is_not_there_keeps_nothing_back(fake, kind):
    [t] = fake.topic("t", 0)
    records = [ProducerRecord("t", b"1"), ProducerRecord("nowhere", b"2"), ProducerRecord("t", b"3")]
    settings = {"bootstrap_servers": fake.bootstrap, **QUICK_PRODUCER, "max_block_ms": 1000}

    async def waiting():
        async with AsyncProducer(**settings) as producer:
            await producer.send_many(records)

    def blocking():
        with Producer(**settings) as producer:
            producer.send_many(records)

    with pytest.raises(ClientError, match="nowhere"):
        blocking() if kind == "sync" else asyncio.run(waiting())
    assert written(fake, t) == [(None, b"1")]


def test_the_other_partitions_are_sent_where_one_record_is_too_large(fake, producer):
    partitions = fake.topic("t", 0, 0, 0)
    records = [ProducerRecord("t", bytes(2_000_000 if at == 0 else 1), partition=at) for at in range(3)]
    with pytest.raises(RecordTooLargeError) as told:
        producer.send_many(records)
    assert not getattr(told.value, "__notes__", ())
    producer.flush()
    assert [len(fake.logs[each].records()) for each in partitions] == [0, 1, 1]


def test_what_has_no_room_in_time_is_reported(fake, faults):
    fake.topic("t", *[0] * 4)
    settings = {
        "batch_size": 5000,
        "buffer_memory": 5000,
        "max_request_size": 2_000_000,
        **QUICK_PRODUCER,
        "max_block_ms": 1000,
    }
    producer = Producer(bootstrap_servers=fake.bootstrap, **settings)
    producer.send("t", b"first").result(60)
    fake.faults[ApiKey.PRODUCE].extend([faults["SILENT"]] * 10)
    records = [ProducerRecord("t", bytes(3000), partition=at) for at in range(4)]
    watch = Stopwatch()
    with pytest.raises(ClientTimeoutError, match=r"buffer.memory \(5000 bytes\)") as told:
        producer.send_many(records)
    assert watch.seconds() < 3, "max.block.ms is for all of them, not for each"
    assert told.value.__notes__ == ["of the records that were read before that, 3 were not sent, 1 were"]
    with pytest.raises(DeliveryError, match="1 records"):
        producer.close(timeout_ms=10)


def test_a_batchs_time_begins_when_it_is_handed_over(fake, monkeypatch):
    fake.topic("t", 0)
    own, ahead_ms = SystemClock.monotonic_ms, [0]
    monkeypatch.setattr(SystemClock, "monotonic_ms", lambda clock: own(clock) + ahead_ms[0])

    def slow():
        yield ProducerRecord("t", b"1")
        ahead_ms[0] = 2 * QUICK_PRODUCER["delivery_timeout_ms"]
        yield ProducerRecord("t", b"2")

    with Producer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER) as producer:
        assert producer.send_many(slow()).result(60)[0].record_count == 2


@pytest.mark.spec("P3")
def test_arrow_partitions_without_keys(fake, producer):
    partitions = fake.topic("t", 0, 0, 0)
    table = pyarrow.table({"value": ["a", "b", "c", "d"], "partition": [1, 2, 1, 2]})
    producer.send_arrow(table, "t").result(60)
    assert [written(fake, each) for each in partitions] == [
        [],
        [(None, b"a"), (None, b"c")],
        [(None, b"b"), (None, b"d")],
    ]
    assert producer.send_arrow(table.slice(0, 0), "t").result(60) == []
    with pytest.raises(InvalidArgumentError, match="column partition cannot be read"):
        producer.send_arrow(pyarrow.table({"value": ["a"], "partition": [1.5]}), "t")


def test_rows_without_partition_stay_on_the_sticky_one_until_it_has_a_batch(fake, producer):
    partitions = fake.topic("t", 0, 0, 0, 0, 0)
    for _ in range(20):
        columns = {"value": ["v"] * 4, "key": ["k", None, None, None]}
        producer.send_arrow(pyarrow.table(columns), "t").result(60)
    without_key = [sum(key is None for key, _ in written(fake, each)) for each in partitions]
    assert sorted(without_key) == [0, 0, 0, 0, 60]


def test_rows_without_partition_count_for_the_sticky_one(fake, producer):
    fake.topic("t", 0, 0)
    table = pyarrow.table({"value": [b"v" * 100] * 4, "key": ["k", None, None, None]})
    producer.send_arrow(table, "t").result(60)
    [queues] = producer._delegate.accumulator.topics.values()
    assert 3 * 100 <= queues.sticky.produced_bytes <= 3 * 200


def test_rows_that_were_sent_before_an_error_are_reported(fake, producer):
    [p] = fake.topic("t", 0)
    table = pyarrow.table({"value": [b"a", bytes(2_000_000), b"b"]})
    with pytest.raises(RecordTooLargeError) as told:
        producer.send_arrow(table, "t")
    assert told.value.__notes__ == ["1 of the 3 rows were sent before that"]
    producer.flush()
    assert written(fake, p) == [(None, b"a")]
    with pytest.raises(InvalidArgumentError) as told:
        producer.send_arrow(table, "t", value_column="nothing")
    assert not hasattr(told.value, "__notes__")


@pytest.mark.parametrize(
    "times",
    [
        pyarrow.array([5, None, -1], pyarrow.int64()),
        pyarrow.array([5, None, -1], pyarrow.int32()),
        pyarrow.array([5, None, -1], pyarrow.timestamp("us")),
        pyarrow.array([5, None, -1], pyarrow.timestamp("s", "UTC")),
    ],
)
def test_arrow_timestamps_before_1970_are_refused(fake, producer, times):
    [p] = fake.topic("t", 0)
    table = pyarrow.table({"value": [b"1", b"2", b"3"], "timestamp": times})
    with pytest.raises(InvalidArgumentError, match=r"that of row 2 is .* milliseconds since 1970"):
        producer.send_arrow(table, "t")
    assert producer.send_arrow(table.slice(0, 2), "t").result(60)[0].record_count == 2
    unknown = table.set_column(1, "timestamp", pyarrow.nulls(3))
    assert producer.send_arrow(unknown, "t").result(60)[0].record_count == 3
    assert len(written(fake, p)) == 5


@pytest.mark.parametrize("form", ["many", "arrow"])
def test_a_call_that_is_cancelled_reports_how_much_was_sent(fake, form):
    [p] = fake.topic("t", 0)
    sent, release = BulkFuture(), threading.Event()

    def late(request):
        release.wait(20)
        return fake.on_produce(0, request, None)

    async def work():
        settings = {**QUICK_PRODUCER, "max_block_ms": 60_000, "buffer_memory": 50_000, "max_request_size": 10_000}
        async with AsyncProducer(bootstrap_servers=fake.bootstrap, **settings) as producer:
            await (await producer.send("t", b"first"))
            fake.faults[ApiKey.PRODUCE].append(late)
            if form == "many":
                calling = asyncio.create_task(producer.send_many([(None, bytes(1000))] * 500, "t", into=sent))
            else:
                table = pyarrow.table({"value": [bytes(1000)] * 500})
                calling = asyncio.create_task(producer.send_arrow(table, "t", into=sent))
            while not producer._delegate.accumulator._space_waiters:  # noqa: ASYNC110 - the call itself makes it true
                await asyncio.sleep(0)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await calling
            assert 0 < sent.count < 100
            assert caught.value.__notes__ == [
                f"{sent.count} records were handed over before that, and will be sent; the others were not"
            ]
            release.set()
            [told] = await asyncio.wait_for(sent, 60)
            assert (told.start, told.record_count) == (1, sent.count)

    asyncio.run(work())
    assert len(written(fake, p)) == 1 + sent.count


def test_a_call_that_is_interrupted_reports_how_much_was_sent(fake, producer):
    [p] = fake.topic("t", 0)
    sent = BulkFuture()

    def records():
        for _ in range(5000):
            yield None, bytes(1000)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        producer.send_many(records(), "t", into=sent)
    assert 0 < sent.count < 5000
    assert f"{sent.count} records were handed over" in caught.value.__notes__[0]
    assert sum(each.record_count for each in sent.result(60)) == sent.count == len(written(fake, p))
