"""ottla's consumers, with an event loop and without, against ottla and Apache Kafka: the same tests for all four."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import polars
import pytest
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient, NewPartitions

from ottla.client.errors import OffsetOutOfRange
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.client.sync import Client, Producer
from support.brokers import RunningBroker
from support.waiting import Stopwatch, wait_until, wait_until_ended

pytestmark = [pytest.mark.slow, pytest.mark.spec("C1")]

T0 = 1_700_000_000_000
PER_PARTITION = 1000
SETTINGS = {"auto.offset.reset": "earliest", "fetch.max.wait.ms": 100, "enable.auto.commit": False}


def fill(broker: RunningBroker, topic: str, partitions: int, count: int = PER_PARTITION) -> list[TopicPartition]:
    """A topic whose records' values are their offsets, a hundred to a batch."""
    with Client(broker.bootstrap) as client, Producer(bootstrap_servers=broker.bootstrap, linger_ms=1000) as producer:
        client.create_topic(topic, partitions)
        for first in range(0, count, 100):
            for partition in range(partitions):
                for at in range(first, first + 100):
                    producer.send(topic, b"%d" % at, b"k%d" % at, partition, T0 + at)
            producer.flush()
    return [TopicPartition(topic, partition) for partition in range(partitions)]


def read(consumer: Any, count: int, timeout_s: float = 60.0) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll(500)
    return found


@pytest.fixture
def consumer(broker, facade):
    with facade.consumer({**SETTINGS, "bootstrap.servers": broker.bootstrap}) as made:
        yield made


def test_every_record_once_and_in_order(broker, consumer, unique):
    partitions = fill(broker, unique, 3)
    consumer.assign(partitions)
    found = read(consumer, 3 * PER_PARTITION)
    for each in partitions:
        of_one = [record for record in found if record.partition == each.partition]
        assert [record.offset for record in of_one] == list(range(PER_PARTITION))
        assert [int(record.value) for record in of_one] == list(range(PER_PARTITION))
        assert [record.timestamp for record in of_one] == list(range(T0, T0 + PER_PARTITION))
    assert {consumer.position(each) for each in partitions} == {PER_PARTITION}
    assert {consumer.current_lag(each) for each in partitions} == {0}


def test_offsets_seeks_and_pauses(broker, consumer, unique):
    first, second = fill(broker, unique, 2)
    consumer.assign([first, second])
    assert consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
    assert consumer.end_offsets([first]) == {first: PER_PARTITION}
    found = consumer.offsets_for_times({first: T0 + 500, second: T0 + 5000})
    assert (found[first].offset, found[first].timestamp, found[second]) == (500, T0 + 500, None)
    consumer.pause([second])
    consumer.seek(first, 990)
    assert [(r.partition, r.offset) for r in read(consumer, 10)] == [(0, offset) for offset in range(990, 1000)]
    consumer.seek_to_beginning([first])
    assert consumer.poll(5000).records(first)[0].offset == 0
    consumer.seek_to_end([first])
    assert consumer.position(first) == PER_PARTITION
    consumer.resume([second])
    assert {record.partition for record in read(consumer, 10)} == {1}
    consumer.seek(first, OffsetAndMetadata(5, "", 0))
    consumer.pause([second])
    assert read(consumer, 1)[0].offset == 5
    assert {each.partition for each in consumer.partitions_for(unique)} == {0, 1}
    assert unique in consumer.list_topics()


def test_out_of_range_without_a_policy(broker, facade, unique):
    [p] = fill(broker, unique, 1, 100)
    settings = {**SETTINGS, "bootstrap.servers": broker.bootstrap, "auto.offset.reset": "none"}
    with facade.consumer(settings) as consumer:
        consumer.assign([p])
        consumer.seek(p, 5000)
        with pytest.raises(OffsetOutOfRange) as raised:
            read(consumer, 1)
        assert (raised.value.earliest, raised.value.latest) == (0, 100)


def test_arrow_and_iteration(broker, consumer, unique):
    [p] = fill(broker, unique, 1)
    consumer.assign([p])
    for record in consumer:
        if record.offset == 333:
            break
    rows = 0
    for batch in consumer.arrow_batches(max_rows=100):
        assert batch.column("offset")[0].as_py() == 334 + rows
        rows += batch.num_rows
        if rows >= 400:
            break
    frame = consumer.poll_arrow(5000).to_pandas()
    assert frame["offset"][0] == 334 + rows
    assert frame["value"][0] == b"%d" % (334 + rows)


def test_frames_of_polars_there_and_back(broker, facade, consumer, unique):
    [p] = fill(broker, unique, 1, 300)
    consumer.assign([p])
    read_back = []
    while sum(map(len, read_back)) < 300:
        read_back.append(polars.from_arrow(consumer.poll_arrow(5000)))
    frame = polars.concat(read_back)
    assert frame["offset"].to_list() == list(range(300))
    assert frame.filter(polars.col("value") == b"7")["offset"].to_list() == [7]
    doubled = polars.DataFrame({"key": ["a", "b"], "value": [b"one", b"two"]})
    with facade.producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.send_arrow(doubled, unique).result(60)
    assert [(r.key, r.value) for r in read(consumer, 2)] == [(b"a", b"one"), (b"b", b"two")]


@pytest.mark.spec("C3")
def test_a_group_goes_on_where_it_stopped(broker, facade, unique):
    partitions = fill(broker, unique, 2, 500)
    settings = {**SETTINGS, "bootstrap.servers": broker.bootstrap, "group.id": unique, "max.poll.records": 70}
    with facade.consumer(settings) as consumer:
        consumer.subscribe([unique])
        first = read(consumer, 300)
        consumer.commit()
        committed = consumer.committed(partitions)
        assert sum(each.offset for each in committed.values() if each is not None) == len(first)
    with facade.consumer(settings) as consumer:
        consumer.subscribe([unique])
        rest = read(consumer, 1000 - len(first))
    assert sorted((r.partition, r.offset) for r in [*first, *rest]) == [(p, o) for p in (0, 1) for o in range(500)]


@pytest.mark.spec("C3")
def test_what_is_handed_out_is_committed_on_close(broker, facade, unique):
    [p] = fill(broker, unique, 1, 500)
    settings = {**SETTINGS, "bootstrap.servers": broker.bootstrap, "group.id": unique, "enable.auto.commit": True}
    with facade.consumer(settings) as consumer:
        consumer.subscribe([unique])
        for record in consumer:
            if record.offset == 122:
                break
    with facade.consumer(settings) as consumer:
        assert consumer.committed([p])[p].offset == 123


def test_new_partitions_are_noticed(broker, facade, unique):
    fill(broker, unique, 1, 100)
    settings = {**SETTINGS, "bootstrap.servers": broker.bootstrap, "group.id": unique, "metadata.max.age.ms": 500}
    with facade.consumer(settings) as consumer:
        consumer.subscribe([unique])
        assert len(read(consumer, 100)) == 100
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions(unique, 2)])[unique].result(60)
        wait_until(lambda: consumer.poll(100) is not None and len(consumer.assignment()) == 2, "the new partition")


@pytest.mark.needs_kafka
def test_committed_transactions_only(apache_kafka, facade, unique):
    [p] = fill(apache_kafka, unique, 1, 100)
    producer = ConfluentProducer({"bootstrap.servers": apache_kafka.bootstrap, "transactional.id": unique})
    producer.init_transactions()
    for kept in (b"yes", b"no", b"yes"):
        producer.begin_transaction()
        for _ in range(20):
            producer.produce(unique, kept, partition=0)
        producer.flush()
        (producer.commit_transaction if kept == b"yes" else producer.abort_transaction)()
    producer.begin_transaction()
    producer.produce(unique, b"open", partition=0)
    producer.flush()
    end = 100 + 3 * 21
    settings = {**SETTINGS, "bootstrap.servers": apache_kafka.bootstrap}
    with facade.consumer(settings, isolation_level="read_committed") as consumer:
        consumer.assign([p])
        consumer.seek(p, 100)
        assert [record.value for record in read(consumer, 40)] == [b"yes"] * 40
        assert not consumer.poll(300)
        assert consumer.position(p) == end
        assert consumer.end_offsets([p]) == {p: end}
        consumer.seek(p, 100)
        assert consumer.poll_arrow(5000).num_rows in (20, 40)
    with facade.consumer(settings) as consumer:
        consumer.assign([p])
        consumer.seek(p, 100)
        assert len(read(consumer, 61)) == 61
    producer.abort_transaction()


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_ctrl_c_ends_the_program_within_a_second(broker, unique, kind):
    fill(broker, unique, 1, 100)
    settings = {**SETTINGS, "bootstrap.servers": broker.bootstrap, "group.id": unique}
    body = {
        "sync": f"""
            from ottla.client.sync import Consumer
            try:
                with Consumer({settings!r}) as consumer:
                    consumer.subscribe([{unique!r}])
                    for record in consumer:
                        print(record.offset, flush=True)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        """,
        "asyncio": f"""
            import asyncio
            from ottla.client import Consumer
            async def main():
                async with Consumer({settings!r}) as consumer:
                    await consumer.subscribe([{unique!r}])
                    async for record in consumer:
                        print(record.offset, flush=True)
            try:
                asyncio.run(main())
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        """,
    }[kind]
    program = [sys.executable, "-c", textwrap.dedent(body)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() == "99":
                    break
            watch = Stopwatch(process.pid)
            process.send_signal(signal.SIGINT)
            assert process.stdout.read().strip() == "interrupted"
            wait_until_ended(process.pid)
            assert watch.seconds() < 5
            assert process.wait() == 0
        finally:
            process.kill()


@pytest.mark.parametrize("way", ["poll", "iterate"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
@pytest.mark.timeout(600)
def test_interrupted_at_random_points_it_goes_on(broker, unique, way, seed):
    """Some hundred times in the long run: nothing is lost, doubled or out of order, and `close` is quick."""
    count = 15_000
    fill(broker, unique, 2, count)
    program = [sys.executable, str(Path(__file__).with_name("interrupted_reader.py"))]
    arguments = [broker.bootstrap, unique, "2", str(count), str(seed), way]
    ended = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["seen"] == {"0": list(range(count)), "1": list(range(count))}
    assert told["interruptions"] > 5
    assert told["longest_close_s"] < 5
