from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress

import pytest

import ottla.client
from ottla.client.consumer.records import ConsumerRecords
from ottla.client.errors import BrokerError, IllegalStateError, RecordTimestampError
from ottla.client.interceptors import ConsumerInterceptor
from ottla.client.model import TopicPartition
from ottla.records.record import Record, encode_batch
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.waiting import wait_until

pytestmark = pytest.mark.spec("C1")


def offsets(records):
    return [record.offset for record in records]


def read(consumer, count):
    found = []
    while len(found) < count:
        found += consumer.poll(1000)
    return found


@pytest.fixture(autouse=True)
def patient(fake):
    """Fetches wait for records, as with real brokers."""
    fake.waits_for_records = True


@pytest.fixture
def consumer(fake, facade):
    with facade.consumer(bootstrap_servers=fake.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20) as made:
        yield made


def test_records_of_assigned_partitions(fake, consumer):
    p0, p1 = fake.topic("t", 0, 0)
    fake.fill(p0, 30)
    fake.fill(p1, 20)
    consumer.assign([p0, p1])
    found = read(consumer, 50)
    assert [r.offset for r in found if r.partition == 0] == list(range(30))
    assert [r.offset for r in found if r.partition == 1] == list(range(20))
    assert (found[0].topic, found[0].key, found[0].timestamp) == ("t", b"k0", 1000)
    assert consumer.position(p0) == 30
    assert not consumer.poll(0)


def test_poll_gives_at_most_max_poll_records(fake, facade):
    [p] = fake.topic("t", 0)
    fake.fill(p, 100, per_batch=50)
    with facade.consumer(
        bootstrap_servers=fake.bootstrap, auto_offset_reset="earliest", max_poll_records=30
    ) as consumer:
        consumer.assign([p])
        assert offsets(consumer.poll(1000)) == list(range(30))
        assert consumer.position(p) == 30
        assert offsets(read(consumer, 70)) == list(range(30, 100))


def test_iteration(fake, consumer):
    [p] = fake.topic("t", 0)
    fake.fill(p, 30)
    consumer.assign([p])
    found = []
    for record in consumer:
        found.append(record.offset)
        assert consumer.position(p) == record.offset + 1
        if record.offset == 24:
            break
    assert found == list(range(25))
    assert offsets(read(consumer, 5)) == list(range(25, 30))


def test_seek_drops_what_was_fetched_ahead(fake, consumer):
    [p] = fake.topic("t", 0)
    fake.fill(p, 100)
    consumer.assign([p])
    assert read(consumer, 10)
    consumer.seek(p, 95)
    assert offsets(read(consumer, 5)) == [95, 96, 97, 98, 99]
    consumer.seek_to_beginning()
    assert consumer.position(p) == 0
    consumer.seek_to_end([p])
    assert consumer.position(p) == 100


def test_paused_partitions_give_nothing(fake, consumer):
    p0, p1 = fake.topic("t", 0, 0)
    fake.fill(p0, 10)
    fake.fill(p1, 10)
    consumer.assign([p0, p1])
    consumer.pause([p0])
    assert {record.partition for record in read(consumer, 10)} == {1}
    assert not consumer.poll(50)
    consumer.resume([p0])
    assert offsets(read(consumer, 10)) == list(range(10))


def test_poll_without_anything_to_read(consumer):
    with pytest.raises(IllegalStateError, match="subscribe or assign"):
        consumer.poll(0)


def test_offsets(fake, consumer):
    [p] = fake.topic("t", 0)
    fake.fill(p, 30)
    consumer.assign([p])
    assert consumer.beginning_offsets([p]) == {p: 0}
    assert consumer.end_offsets([p]) == {p: 30}
    assert consumer.offsets_for_times({p: 1005})[p].offset == 5
    assert consumer.offsets_for_times({p: 5000}) == {p: None}
    assert consumer.partitions_for("t") == [TopicPartition("t", 0)]


def test_the_next_fetch_is_under_way_while_records_are_worked_on(fake, consumer):
    [p] = fake.topic("t", 0)
    fake.fill(p, 10)
    consumer.assign([p])
    assert consumer.poll(1000)
    seen = len(fake.requests_of(ApiKey.FETCH))
    assert seen >= 1


def test_arrow_tables(fake, consumer):
    p0, p1 = fake.topic("t", 0, 0)
    fake.fill(p0, 30)
    fake.fill(p1, 30)
    consumer.assign([p0, p1])
    gathered = []
    while len(gathered) < 60:
        table = consumer.poll_arrow(1000, max_rows=7)
        assert table.num_rows <= 7
        gathered += table.select(["partition", "offset", "key"]).to_pylist()
    for partition in (0, 1):
        rows = [row for row in gathered if row["partition"] == partition]
        assert [row["offset"] for row in rows] == list(range(30))
        assert rows[3]["key"] == b"k3"
    assert consumer.position(p0) == 30
    assert consumer.poll_arrow(0, include_headers=True).num_rows == 0


def test_records_and_arrow_rows_in_turns(fake, consumer):
    [p] = fake.topic("t", 0)
    fake.fill(p, 30, per_batch=30)
    consumer.assign([p])
    assert consumer.poll_arrow(1000, max_rows=4).column("offset").to_pylist() == [0, 1, 2, 3]
    iterator = iter(consumer)
    assert [next(iterator).offset for _ in range(3)] == [4, 5, 6]
    assert consumer.poll_arrow(1000, max_rows=2).column("offset").to_pylist() == [7, 8]
    assert offsets(consumer.poll(1000)) == list(range(9, 30))


def test_arrow_batches(fake, consumer):
    [p] = fake.topic("t", 0)
    fake.fill(p, 30, per_batch=30)
    consumer.assign([p])
    found = []
    for batch in consumer.arrow_batches(max_rows=8):
        found.append(batch.num_rows)
        if len(found) == 2:
            break
    assert found == [8, 8]
    assert offsets(consumer.poll(1000)) == list(range(16, 30))


FAR = 1_764_412_345_678_000_000
"""What a producer writes that takes nanoseconds for milliseconds."""


@pytest.mark.parametrize("how", ["tables", "batches"])
def test_arrow_passes_a_timestamp_that_it_cannot_hold(fake, consumer, how):
    p, other = fake.topic("t", 0, 0)
    fake.logs[p].append(encode_batch([Record(0, ms, None, b"v") for ms in (1, 2, FAR, 3)]))
    fake.fill(other, 10)
    consumer.assign([p, other])
    found = {0: [], 1: []}

    def take(count):
        while len(found[0]) + len(found[1]) < count:
            read_once()

    def read_once():
        table = consumer.poll_arrow(1000) if how == "tables" else next(iter(consumer.arrow_batches()))
        for row in table.select(["partition", "offset"]).to_pylist():
            found[row["partition"]].append(row["offset"])

    def all_of_the_other_partition():
        with suppress(RecordTimestampError):
            read_once()
        return len(found[1]) == 10

    with pytest.raises(RecordTimestampError, match=f"offset 2 of t-0 has the timestamp {FAR}, .*; seek to 3") as raised:
        take(13)
    wait_until(all_of_the_other_partition, "the records of the other partition")
    assert found[0] == [0, 1]
    consumer.seek(raised.value.partition, raised.value.offset + 1)
    take(13)
    assert found == {0: [0, 1, 3], 1: list(range(10))}


def test_metrics_by_kafkas_names(fake, consumer):
    [p] = fake.topic("t", 0)
    fake.fill(p, 30)
    consumer.assign([p])
    consumer.seek(p, 10)
    read(consumer, 20)
    names = consumer.metrics()
    assert names["records-consumed-total"] == 20
    assert names["bytes-consumed-total"] == sum(map(len, fake.logs[p].batches[1:])), "everything is fetched once"
    assert names["assigned-partitions"] == 1
    assert names["records-lag-max"] == 0
    assert names["fetch-total"] >= 1
    assert 0 < names["fetch-latency-avg"] <= names["fetch-latency-max"]
    assert 0 <= names["last-poll-seconds-ago"] < 10
    assert names["records-lag{topic=t,partition=0}"] == 0
    assert names["records-lead-min"] == 30


def test_health(fake, consumer):
    assert "subscribe or assign" in consumer.health().reasons[0]
    p0, p1 = fake.topic("t", 0, 0)
    fake.fill(p0, 30)
    consumer.assign([p0, p1])
    assert not consumer.health().is_progressing
    assert "t-0, t-1" in consumer.health().reasons[0]
    read(consumer, 30)
    healthy = consumer.health()
    assert (healthy.is_progressing, healthy.reasons, healthy.assigned_partitions) == (True, (), 2)
    consumer.pause([p0, p1])
    paused = consumer.health()
    assert (paused.is_progressing, paused.reasons) == (False, ("paused: t-0, t-1; resume them to read on",))
    consumer.resume([p0, p1])
    fake.stop(0)
    wait_until(lambda: not consumer.poll(50) and not consumer.health().is_progressing, "the loss of the broker")
    assert any("127.0.0.1" in reason for reason in consumer.health().reasons)


@pytest.mark.spec("P4")
def test_interceptors_see_records_before_the_caller(fake, facade):
    class Upper(ConsumerInterceptor):
        def on_consume(self, records):
            kept = {
                each: [record._replace(value=b"seen") for record in records.records(each) if record.offset % 2]
                for each in records.partitions()
            }
            return ConsumerRecords(kept)

    [p] = fake.topic("t", 0)
    fake.fill(p, 20)
    settings = {"bootstrap.servers": fake.bootstrap, "auto.offset.reset": "earliest", "interceptor.classes": [Upper()]}
    with facade.consumer(settings) as consumer:
        consumer.assign([p])
        assert [(r.offset, r.value) for r in read(consumer, 10)] == [(at, b"seen") for at in range(1, 20, 2)]
        assert consumer.position(p) == 20
        consumer.seek(p, 10)
        iterator = iter(consumer)
        assert [next(iterator).offset for _ in range(2)] == [11, 13]
        assert consumer.position(p) == 14


def test_close_closes_the_deserializers(fake, facade):
    class Counted:
        closed = 0

        def deserialize(self, topic, data, headers=None):
            return data

        def close(self):
            self.closed += 1

    key, value = Counted(), Counted()
    settings = {"bootstrap.servers": fake.bootstrap, "key.deserializer": key, "value.deserializer": value}
    with facade.consumer(settings):
        assert (key.closed, value.closed) == (0, 0)
    assert (key.closed, value.closed) == (1, 1)


def test_what_is_fetched_of_paused_partitions_neither_spins_nor_blocks_others(fake, facade):
    p0, p1 = fake.topic("t", 0, 0)
    fake.fill(p0, 10, size=500)
    size = len(fake.logs[p0].batches[0])
    settings = {"bootstrap_servers": fake.bootstrap, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
    with facade.consumer(**settings, fetch_max_bytes=size, max_poll_records=1) as consumer:
        consumer.assign([p0, p1])
        assert offsets(read(consumer, 1)) == [0]
        consumer.pause([p0])
        before = time.process_time()
        assert not consumer.poll(300)
        assert time.process_time() - before < 0.2
        fake.fill(p1, 10)
        assert {record.partition for record in read(consumer, 10)} == {1}
        consumer.resume([p0])
        assert offsets(read(consumer, 9)) == list(range(1, 10))


def test_topics_that_cannot_be(fake, consumer):
    consumer.assign([("no such topic", 0)])
    fake.faults[ApiKey.METADATA] += [ErrorCode.INVALID_TOPIC_EXCEPTION] * 100
    with pytest.raises(BrokerError, match="no such topic"):
        read(consumer, 1)
    fake.faults[ApiKey.METADATA].clear()
    fake.topic("t", 0)
    consumer.assign([("t", 7)])
    wait_until(lambda: not consumer.poll(50) and len(consumer.health().reasons) > 1, "the reason")
    assert any("t-7 has no leader, or does not exist" in reason for reason in consumer.health().reasons)


@pytest.mark.usefixtures("patient")
def test_a_poll_that_finds_nothing_looks_at_no_partition(fakes):
    """However many are assigned: what it does is counted, by the functions that are called."""

    async def calls_of_polls(topic, count):
        calls = 0

        def count_call(frame, event, argument):
            nonlocal calls
            calls += event == "call"

        settings = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20_000}
        async with ottla.client.Consumer(bootstrap_servers=fakes.bootstrap, **settings) as consumer:
            await consumer.assign(fakes.topic(topic, *[0] * count))
            while not (consumer.delegate.subscriptions.settled and consumer.delegate.fetcher._in_flight):
                await consumer.poll(10)
            rounds = []
            for _ in range(10):  # in the first ones the last positions may still arrive
                calls = 0
                sys.setprofile(count_call)
                try:
                    for _ in range(20):
                        await consumer.poll(0)
                finally:
                    sys.setprofile(None)
                rounds.append(calls)
                await consumer.poll(20)
        return min(rounds)

    few, many = asyncio.run(calls_of_polls("few", 10)), asyncio.run(calls_of_polls("many", 1000))
    assert many < few + 200
