"""Gaps that transactions and compaction leave are no loss, and both connectors give the same rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from interop.spark.queries import rows
from interop.spark.sides import OFFICIAL, OURS, Batches, Side, places
from ottla.records.record import Record
from support.apache import ApacheKafka
from support.brokers import RunningBroker
from support.filled_topics import fill_topic, read_topic
from support.ottla_server import OttlaServer
from support.records_of_tests import START_MS
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.needs_connector, pytest.mark.spec("D1", "D2")]

TRANSACTED, COMPACTED = "transacted", "compacted"
TIMEOUT_S = 60.0
#: The most that brokers allow; then the open one is aborted.
LONGEST_TRANSACTION_MS = 900_000
ISOLATION = "kafka.isolation.level"
READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"


def produce(producer: Producer, name: str, count: int) -> None:
    for number in range(count):
        producer.produce(TRANSACTED, f"{name} {number}", key=name, partition=0, timestamp=START_MS + number)
    assert producer.flush(TIMEOUT_S) == 0


def transactional(broker: RunningBroker, name: str) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": name}
    producer = Producer({**settings, "transaction.timeout.ms": LONGEST_TRANSACTION_MS})
    producer.init_transactions(TIMEOUT_S)
    return producer


class Transactions:
    """A topic of Apache Kafka with committed and aborted transactions, and one that stays open."""

    def __init__(self, broker: ApacheKafka) -> None:
        fill_topic(broker, TRANSACTED, [[]], config={"segment.bytes": "20000"})
        plain = Producer({"bootstrap.servers": broker.bootstrap})
        writers = {name: transactional(broker, name) for name in ("a", "b")}
        for turn in range(8):
            for name, writer in writers.items():
                writer.begin_transaction()
                produce(writer, f"{name}{turn}", 40)
            produce(plain, f"plain{turn}", 10)
            for number, writer in enumerate(writers.values()):
                if (turn + number) % 3:
                    writer.commit_transaction(TIMEOUT_S)
                else:
                    writer.abort_transaction(TIMEOUT_S)
        self._open = transactional(broker, "open")
        self._open.begin_transaction()
        produce(self._open, "open", 30)
        produce(plain, "behind", 20)


#: Records of 8 turns: 2 transactions of 40 and 10 of none; of the 16 transactions 5 were aborted.
STABLE = 11 * 40 + 8 * 10
WRITTEN = 16 * 40 + 8 * 10 + 30 + 20


@pytest.fixture(scope="module")
def transactions(apache_kafka: ApacheKafka) -> Transactions:
    return Transactions(apache_kafka)


@pytest.fixture(scope="module")
def adopted(
    apache_kafka: ApacheKafka, transactions: Transactions, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OttlaServer]:
    """Our broker with a copy of the topic's folder."""
    folder = tmp_path_factory.mktemp("adopted")
    partition = f"{TRANSACTED}-0"
    shutil.copytree(apache_kafka.log_dir / partition, folder / "data" / partition)
    server = OttlaServer(folder, overrides={"log.retention.ms": "-1"})
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.mark.needs_kafka
@pytest.mark.parametrize(
    ("isolation", "count"), [pytest.param(READ_UNCOMMITTED, WRITTEN, marks=pytest.mark.long), (READ_COMMITTED, STABLE)]
)
def test_batches_of_transactions(
    spark: SparkSession, apache_kafka: ApacheKafka, adopted: OttlaServer, isolation: str, count: int
) -> None:
    options = {"subscribe": TRANSACTED, ISOLATION: isolation}
    expected = rows(spark, OFFICIAL, apache_kafka, options)
    assert expected.num_rows == count
    assert rows(spark, OURS, apache_kafka, options).equals(expected)
    assert rows(spark, OURS, adopted, options).equals(expected)
    assert rows(spark, OFFICIAL, adopted, options).equals(expected)
    # Tasks begin and end in the middle of transactions.
    assert rows(spark, OURS, apache_kafka, options | {"minPartitions": "13"}).equals(expected)
    assert rows(spark, OURS, adopted, options | {"minPartitions": "13"}).equals(expected)


@pytest.mark.needs_kafka
@pytest.mark.parametrize("connector", [OURS, OFFICIAL])
def test_streams_of_transactions(spark: SparkSession, adopted: OttlaServer, tmp_path: Path, connector: str) -> None:
    side = Side(connector, adopted)
    options = {"subscribe": TRANSACTED, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
    batches = Batches()
    batches.run(side.stream(spark, **options, **{ISOLATION: READ_COMMITTED}), tmp_path / "committed")
    assert len(batches.seen) == len(set(batches.seen)) == STABLE
    batches.run(side.stream(spark, **options), tmp_path / "all")
    assert len(batches.seen) == len(set(batches.seen)) == WRITTEN


@pytest.fixture(scope="module")
def compacting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaServer]:
    settings = {
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.segment.delete.delay.ms": "100",
        "log.retention.ms": "-1",
    }
    server = OttlaServer(tmp_path_factory.mktemp("compacting"), overrides=settings)
    try:
        yield server.start()
    finally:
        server.stop()


def compact(server: OttlaServer) -> list[int]:
    """A compacted topic of 10 keys, one record without a value and a newest segment: the offsets that are left."""
    config = {"cleanup.policy": "compact", "segment.bytes": "15000", "delete.retention.ms": "3600000"}
    records = [Record(0, START_MS + n, b"k%d" % (n % 10), b"value %d" % n) for n in range(980)]
    records.insert(500, Record(0, START_MS + 500, b"gone", None))
    fill_topic(server, COMPACTED, [records], config=config, batch_size=1_000)
    # The newest segment stays as it is.
    newest = [Record(0, START_MS + n, b"n%d" % n, b"x" * 500) for n in range(50)]
    fill_topic(server, COMPACTED, [newest], create=False, batch_size=10_000)

    def left() -> list[int]:
        return [record.offset for record in read_topic(server, COMPACTED)[0]]

    wait_until(lambda: len(left()) < 300, "compaction", interval_s=0.5)
    return left()


def test_compacted_topics(spark: SparkSession, compacting: OttlaServer, tmp_path: Path) -> None:
    left = compact(compacting)
    gaps = [offset for offset in range(900) if offset not in left]
    assert len(gaps) > 700
    assert 500 in left
    whole = rows(spark, OFFICIAL, compacting, {"subscribe": COMPACTED})
    for low, high in ((gaps[0], gaps[-1]), (gaps[5], 501), (gaps[10], gaps[11])):
        bounds = {
            "subscribe": COMPACTED,
            "startingOffsets": f'{{"{COMPACTED}": {{"0": {low}}}}}',
            "endingOffsets": f'{{"{COMPACTED}": {{"0": {high}}}}}',
        }
        ours = rows(spark, OURS, compacting, bounds)
        assert ours.column("offset").to_pylist() == [each for each in left if low <= each < high]
        assert ours.equals(rows(spark, OFFICIAL, compacting, bounds))
    assert whole.column("offset").to_pylist() == left
    assert rows(spark, OURS, compacting, {"subscribe": COMPACTED, "minPartitions": "9"}).equals(whole)
    for connector in (OURS, OFFICIAL):
        options = {"subscribe": COMPACTED, "startingOffsets": f'{{"{COMPACTED}": {{"0": {gaps[3]}}}}}'}
        stream = Side(connector, compacting).stream(spark, **options, maxOffsetsPerTrigger="400")
        batches = Batches()
        batches.run(stream, tmp_path / connector)
        assert batches.seen == [each for each in places(COMPACTED, (0, gaps[3], 1_031)) if each[2] in left]
