"""Records that are gone before a query reads them, and topics that are deleted and made again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla.testing
from interop.spark.sides import OFFICIAL, OURS, OURS_ON_BOTH, Batches, Side, places
from ottla.client.errors import TopicExistsError
from ottla.client.model import EARLIEST, TopicPartition
from ottla.client.sync import Admin, Client
from ottla.records.record import Record
from support.brokers import Address, Bootstrapped
from support.filled_topics import ANY_TIME, fill_topic
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = 1_357_017_300_123
#: Topics keep records for a week.
DAYS = 5


def _records(count: int) -> list[Record]:
    return [Record(0, START_MS + n, b"k%d" % (n % 7), b"value %d" % n) for n in range(count)]


def delete_records(broker: Bootstrapped, topic: str, offset: int, partition: int = 0) -> None:
    """Move the start of a partition's log, as retention does."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, partition): offset})


def make_again(broker: Bootstrapped, topic: str, count: int) -> None:
    """Delete a topic, and make it again with this many records."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin, Client(broker.bootstrap) as client:
        admin.delete_topics([topic])

        def is_made() -> bool:
            # Until its files are gone Apache Kafka says that it exists.
            with suppress(TopicExistsError):
                client.create_topic(topic, 1, config=ANY_TIME)
                return True
            return False

        wait_until(is_made, "the deletion")
    fill_topic(broker, topic, [_records(count)], create=False)


@pytest.mark.spec("D1", "D2")
def test_retention_overtakes_a_stopped_query(spark: SparkSession, side: Side, unique: str, tmp_path: Path) -> None:
    fill_topic(side.broker, unique, [_records(100), _records(10)])
    batches, checkpoint = Batches(), tmp_path / "checkpoint"
    options = {"subscribe": unique, "startingOffsets": "earliest"}
    batches.run(side.stream(spark, **options), checkpoint)
    fill_topic(side.broker, unique, [_records(100), _records(10)], create=False)
    delete_records(side.broker, unique, 150)
    with pytest.raises(Exception, match="failOnDataLoss"):
        batches.run(side.stream(spark, **options), checkpoint)
    assert batches.places == []
    left = batches.run(side.stream(spark, **options, failOnDataLoss="false"), checkpoint)
    assert left == [places(unique, (0, 150, 200), (1, 10, 20))]


@pytest.mark.spec("D1", "D2")
@pytest.mark.parametrize("side", OURS_ON_BOTH, indirect=True)
def test_a_batch_asks_for_records_that_are_gone(spark: SparkSession, side: Side, unique: str) -> None:
    fill_topic(side.broker, unique, [_records(100)])
    delete_records(side.broker, unique, 50)
    bounds = {"subscribe": unique, "startingOffsets": f'{{"{unique}": {{"0": 30}}}}'}
    with pytest.raises(Exception, match="failOnDataLoss"):
        side.frame(spark, **bounds).collect()
    left = side.frame(spark, **bounds, failOnDataLoss="false").collect()
    assert sorted(row.offset for row in left) == list(range(50, 100))


@pytest.mark.spec("D1", "D2")
def test_a_topic_is_made_again_while_a_query_is_stopped(
    spark: SparkSession, side: Side, unique: str, tmp_path: Path
) -> None:
    fill_topic(side.broker, unique, [_records(100)])
    batches, checkpoint = Batches(), tmp_path / "checkpoint"
    options = {"subscribe": unique, "startingOffsets": "earliest"}
    batches.run(side.stream(spark, **options), checkpoint)
    make_again(side.broker, unique, 30)
    with pytest.raises(Exception, match="failOnDataLoss"):
        batches.run(side.stream(spark, **options), checkpoint)
    going_on = side.stream(spark, **options, failOnDataLoss="false")
    assert batches.run(going_on, checkpoint) == []
    fill_topic(side.broker, unique, [_records(5)], create=False)
    assert batches.run(going_on, checkpoint) == [places(unique, (0, 30, 35))]


@pytest.mark.spec("D1", "D2")
def test_an_assigned_partition_that_does_not_exist(
    spark: SparkSession, side: Side, unique: str, tmp_path: Path
) -> None:
    """Spark's own source passes over it without a word; ours does in streams, where loss may be passed over."""
    fill_topic(side.broker, unique, [_records(5)])
    assigned = {"assign": f'{{"{unique}": [0, 7]}}', "startingOffsets": "earliest"}
    there = places(unique, (0, 0, 5))
    batches = Batches()
    if side.connector == OFFICIAL:
        found = side.frame(spark, **assigned).collect()
        assert sorted((row.topic, row.partition, row.offset) for row in found) == there
        assert batches.run(side.stream(spark, **assigned), tmp_path / "checkpoint") == [there]
        return
    missing = f"option assign: topic {unique} has no partition 7; it has 0"
    with pytest.raises(Exception, match=missing):
        side.frame(spark, **assigned).collect()
    with pytest.raises(Exception, match=missing):
        batches.run(side.stream(spark, **assigned), tmp_path / "checkpoint")
    going_on = side.stream(spark, **assigned, failOnDataLoss="false")
    assert batches.run(going_on, tmp_path / "another checkpoint") == [there]


@pytest.fixture
def test_broker() -> Iterator[ottla.testing.Broker]:
    with ottla.testing.Broker() as broker:
        yield broker


@pytest.fixture(params=[OURS, pytest.param(OFFICIAL, marks=pytest.mark.needs_connector)])
def held(request: pytest.FixtureRequest, test_broker: ottla.testing.Broker) -> Side:
    """Each connector on a broker of this process, whose time and answers can be changed."""
    return Side(request.param, Address(test_broker.bootstrap_servers))


def send(broker: ottla.testing.Broker) -> None:
    """Put 200 records of now into topic t, in small batches."""
    for first in range(0, 200, 20):
        broker.send_all("t", [b"value %d" % n for n in range(first, first + 20)])


def first_offset(client: Client) -> int:
    partition = TopicPartition("t", 0)
    return client.offsets_at([partition], EARLIEST)[partition]


@pytest.mark.spec("D1", "D2")
def test_retention_by_time_overtakes_a_stopped_query(
    spark: SparkSession, held: Side, test_broker: ottla.testing.Broker, tmp_path: Path
) -> None:
    test_broker.create_topic("t", segment_bytes=2_000)
    batches, checkpoint = Batches(), tmp_path / "checkpoint"
    options = {"subscribe": "t", "startingOffsets": "earliest"}
    send(test_broker)
    assert batches.run(held.stream(spark, **options), checkpoint) == [places("t", (0, 0, 200))]
    send(test_broker)
    test_broker.advance(days=DAYS)
    send(test_broker)
    test_broker.advance(days=DAYS)
    with Client(test_broker.bootstrap_servers) as client:
        first = wait_until(lambda: first_offset(client), "retention")
    assert 200 < first <= 400
    with pytest.raises(Exception, match="failOnDataLoss"):
        batches.run(held.stream(spark, **options), checkpoint)
    left = batches.run(held.stream(spark, **options, failOnDataLoss="false"), checkpoint)
    assert left == [places("t", (0, first, 600))]
