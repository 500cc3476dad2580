"""Streams of ours and of Spark's own connector, on ottla and on Apache Kafka: the same batches, from run to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interop.spark.sides import OFFICIAL, OURS, OURS_ON_BOTH, Batches, Side, places
from ottla.records.record import Record
from support.filled_topics import add_partitions, fill_topic
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.ottla_server import OttlaServer

START_MS = 1_357_017_300_123
#: Seconds in which a batch comes, on a machine that is busy too.
START_S = 300.0


def _records(count: int) -> list[Record]:
    return [Record(0, START_MS + n, b"k%d" % (n % 7), b"value %d" % n) for n in range(count)]


@pytest.mark.spec("D1", "D2")
def test_a_stream_takes_its_share_per_trigger_and_goes_on_where_it_was(
    spark: SparkSession, side: Side, unique: str, tmp_path: Path
) -> None:
    fill_topic(side.broker, unique, [_records(600), _records(300), []])
    stream = side.stream(spark, subscribe=unique, startingOffsets="earliest", maxOffsetsPerTrigger="300")
    batches, checkpoint = Batches(), tmp_path / "checkpoint"
    assert batches.run(stream, checkpoint) == [
        places(unique, (0, 0, 200), (1, 0, 100)),
        places(unique, (0, 200, 400), (1, 100, 200)),
        places(unique, (0, 400, 600), (1, 200, 300)),
    ]
    assert batches.run(stream, checkpoint) == []
    add_partitions(side.broker, unique, 4)
    fill_topic(side.broker, unique, [_records(10), [], _records(1), _records(5)], create=False)
    assert batches.run(stream, checkpoint) == [places(unique, (0, 600, 610), (2, 0, 1), (3, 0, 5))]


@pytest.mark.spec("D1", "D2")
def test_topics_that_appear_are_read_from_their_beginning(
    spark: SparkSession, side: Side, unique: str, tmp_path: Path
) -> None:
    fill_topic(side.broker, f"{unique}-a", [_records(5)])
    stream = side.stream(spark, subscribePattern=f"^{unique}-", startingOffsets="latest")
    batches, checkpoint = Batches(), tmp_path / "checkpoint"
    assert batches.run(stream, checkpoint) == []
    fill_topic(side.broker, f"{unique}-a", [_records(2)], create=False)
    fill_topic(side.broker, f"{unique}-b", [_records(3), _records(4)])
    expected = places(f"{unique}-a", (0, 5, 7)) + places(f"{unique}-b", (0, 0, 3), (1, 0, 4))
    assert batches.run(stream, checkpoint) == [expected]


@pytest.mark.spec("D1", "D2")
@pytest.mark.parametrize("side", OURS_ON_BOTH, indirect=True)
def test_a_running_stream_takes_what_comes_partitions_and_topics_too(
    spark: SparkSession, side: Side, unique: str, tmp_path: Path
) -> None:
    fill_topic(side.broker, f"{unique}-a", [_records(5), []])
    stream = side.stream(spark, subscribePattern=f"^{unique}-", includeHeaders="true")
    batches = Batches()
    query = batches.start(stream, tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        assert batches.seen == [], "it starts at the latest"
        fill_topic(side.broker, f"{unique}-a", [_records(2), _records(2)], create=False)
        query.processAllAvailable()
        assert batches.seen == places(f"{unique}-a", (0, 5, 7), (1, 0, 2))
        add_partitions(side.broker, f"{unique}-a", 3)
        fill_topic(side.broker, f"{unique}-a", [[], [], _records(1)], create=False)
        fill_topic(side.broker, f"{unique}-b", [_records(3)])
        expected = places(f"{unique}-a", (0, 5, 7), (1, 0, 2), (2, 0, 1)) + places(f"{unique}-b", (0, 0, 3))
        # Brokers tell of new partitions when their metadata says so.
        wait_until(lambda: len(batches.seen) >= len(expected), "rows of the new partitions", START_S)
        query.processAllAvailable()
        assert batches.seen == expected
    finally:
        query.stop()


@pytest.mark.spec("D1", "D2")
def test_a_stream_starts_at_a_time(spark: SparkSession, side: Side, unique: str, tmp_path: Path) -> None:
    fill_topic(side.broker, unique, [_records(20), _records(5)])
    options = {"startingTimestamp": str(START_MS + 10), "startingOffsetsByTimestampStrategy": "latest"}
    stream = side.stream(spark, subscribe=unique, **options)
    batches, checkpoint = Batches(), tmp_path / "checkpoint"
    assert batches.run(stream, checkpoint) == [places(unique, (0, 10, 20))]
    fill_topic(side.broker, unique, [[], _records(1)], create=False)
    assert batches.run(stream, checkpoint) == [places(unique, (1, 5, 6))]


@pytest.mark.spec("D1", "D2")
def test_a_stream_of_assigned_partitions_starts_at_offsets(
    spark: SparkSession, side: Side, unique: str, tmp_path: Path
) -> None:
    fill_topic(side.broker, unique, [_records(20), _records(5), _records(5)])
    starting = f'{{"{unique}": {{"0": 18, "2": -2}}}}'
    stream = side.stream(spark, assign=f'{{"{unique}": [0, 2]}}', startingOffsets=starting, minPartitions="5")
    assert Batches().run(stream, tmp_path / "checkpoint") == [places(unique, (0, 18, 20), (2, 0, 5))]


@pytest.mark.spec("D1", "D2")
def test_a_running_stream_waits_for_enough(spark: SparkSession, side: Side, unique: str, tmp_path: Path) -> None:
    fill_topic(side.broker, unique, [_records(5)])
    enough = {"minOffsetsPerTrigger": "50", "maxTriggerDelay": "1h"}
    batches = Batches()
    query = batches.start(
        side.stream(spark, subscribe=unique, startingOffsets="earliest", **enough), tmp_path / "checkpoint"
    )
    try:
        wait_until(lambda: batches.places, "the first batch, which does not wait", START_S)
        for count in (20, 40):
            # One batch of records: they come at once.
            fill_topic(side.broker, unique, [_records(count)], create=False, linger_ms=500)
        wait_until(lambda: len(batches.places) > 1, "enough records", START_S)
        assert batches.places == [places(unique, (0, 0, 5)), places(unique, (0, 5, 65))]
    finally:
        query.stop()


@pytest.mark.needs_connector
@pytest.mark.spec("D1")
@pytest.mark.parametrize(("first", "then"), [(OFFICIAL, OURS), pytest.param(OURS, OFFICIAL, marks=pytest.mark.long)])
def test_a_query_goes_on_from_the_checkpoint_of_the_other_connector(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, first: str, then: str
) -> None:
    broker = shared_ottla_server
    fill_topic(broker, unique, [_records(20), _records(5)])
    options = {"subscribe": unique, "startingOffsets": "earliest"}
    batches, checkpoint = Batches(), tmp_path / "checkpoint"
    assert batches.run(Side(first, broker).stream(spark, **options), checkpoint) == [
        places(unique, (0, 0, 20), (1, 0, 5))
    ]
    fill_topic(broker, unique, [_records(2), []], create=False)
    assert batches.run(Side(then, broker).stream(spark, **options), checkpoint) == [places(unique, (0, 20, 22))]
