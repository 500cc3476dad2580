"""The Spark source and sink against a running broker, ours and Apache Kafka's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from ottla.records.record import Record

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.brokers import RunningBroker

START_MS = 1_357_017_300_123


def _records(count: int, partition: int = 0) -> list[Record]:
    return [Record(0, START_MS + n, b"k%d" % (n % 7), b"p%d v%d" % (partition, n)) for n in range(count)]


def _reader(spark: SparkSession, broker: RunningBroker, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


@pytest.mark.spec("D1")
def test_a_batch_read_gives_every_record_as_it_is(
    spark: SparkSession, broker: RunningBroker, unique: str, fill
) -> None:
    odd = [
        Record(0, START_MS, None, b"no key"),
        Record(0, START_MS + 1, b"no value", None),
        Record(0, START_MS + 2, b"", b"", (("a", b"1"), ("a", None), ("ü", b""))),
    ]
    fill(broker, unique, [odd, _records(5, 1), []])
    rows = sorted(
        _reader(spark, broker, unique, includeHeaders="true").collect(), key=lambda row: (row.partition, row.offset)
    )
    assert [(row.partition, row.offset) for row in rows] == [(0, 0), (0, 1), (0, 2), *((1, n) for n in range(5))]
    assert [(row.key, row.value) for row in rows[:3]] == [(None, b"no key"), (b"no value", None), (b"", b"")]
    assert [(header.key, header.value) for header in rows[2].headers] == [("a", b"1"), ("a", None), ("ü", b"")]
    assert {row.topic for row in rows} == {unique}
    assert {row.timestampType for row in rows} == {0}
    # PySpark gives local time without a zone.
    assert rows[0].timestamp.astimezone(UTC) == datetime.fromtimestamp(START_MS / 1_000, UTC)


@pytest.mark.spec("D1")
def test_a_batch_read_is_bounded_by_offsets_and_times(
    spark: SparkSession, broker: RunningBroker, unique: str, fill
) -> None:
    fill(broker, unique, [_records(100), _records(50, 1)])
    by_offset = _reader(
        spark,
        broker,
        unique,
        startingOffsets=f'{{"{unique}": {{"0": 90, "1": -2}}}}',
        endingOffsets=f'{{"{unique}": {{"0": -1, "1": 3}}}}',
    )
    assert sorted((row.partition, row.offset) for row in by_offset.collect()) == [
        *((0, n) for n in range(90, 100)),
        *((1, n) for n in range(3)),
    ]
    by_time = _reader(spark, broker, unique, startingTimestamp=str(START_MS + 40), endingTimestamp=str(START_MS + 45))
    assert sorted((row.partition, row.offset) for row in by_time.collect()) == [
        *((0, n) for n in range(40, 45)),
        *((1, n) for n in range(40, 45)),
    ]


def test_a_range_is_read_by_several_tasks_where_asked(
    spark: SparkSession, shared_ottla_server: RunningBroker, unique: str, fill
) -> None:
    fill(shared_ottla_server, unique, [_records(1_000)])
    frame = _reader(spark, shared_ottla_server, unique, minPartitions="4", rowsPerBatch="100")
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(1_000))


@pytest.mark.spec("D1", "D4")
def test_a_stream_takes_its_share_per_trigger_commits_to_its_group_and_goes_on_where_it_was(
    spark: SparkSession, broker: RunningBroker, unique: str, tmp_path: Path, fill
) -> None:
    fill(broker, unique, [_records(600), _records(300, 1)])
    seen: list[list[tuple[int, int]]] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        seen.append(sorted((row.partition, row.offset) for row in batch.collect()))

    def run() -> list[dict[str, object]]:
        stream = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", unique)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "300")
            .option("kafka.group.id", unique)
            .load()
        )
        writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [each["sources"][0] for each in query.recentProgress]

    progress = run()
    assert [len(batch) for batch in seen] == [300, 300, 300]
    assert seen[0] == [*((0, n) for n in range(200)), *((1, n) for n in range(100))]
    assert '{"0": 600, "1": 300}' in str(progress[-1]["endOffset"])
    partitions = [TopicPartition(unique, 0), TopicPartition(unique, 1)]
    with Client(broker.bootstrap) as client:
        assert client.committed(unique, partitions) == {partitions[0]: 600, partitions[1]: 300}, "the last batch, too"
        fill(broker, unique, [_records(10)], create=False)
        seen.clear()
        run()
        assert [batch for batch in seen if batch] == [[(0, n) for n in range(600, 610)]]
        assert client.committed(unique, partitions)[partitions[0]] == 610


@pytest.mark.spec("D1")
def test_a_frame_is_written_and_read_back(spark: SparkSession, broker: RunningBroker, unique: str, fill, read) -> None:
    fill(broker, unique, [[], [], []])
    frame = spark.sql(
        "SELECT concat('k', id % 3) AS key, CASE WHEN id % 5 > 0 THEN concat('v', id) END AS value, "
        "CAST(id % 3 AS INT) AS partition, timestamp_millis(1357017300123 + id) AS timestamp, "
        "array(named_struct('key', 'h', 'value', CAST(id AS STRING))) AS texts FROM range(0, 30, 1, 1)"
    ).selectExpr(
        "key",
        "value",
        "partition",
        "timestamp",
        "transform(texts, t -> named_struct('key', t.key, 'value', CAST(t.value AS BINARY))) AS headers",
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": unique, "kafka.compression.type": "lz4"}
    frame.write.format("ottla").mode("append").options(**options).save()
    for number, records in enumerate(read(broker, unique)):
        ids = list(range(number, 30, 3))
        assert [record.timestamp for record in records] == [START_MS + n for n in ids], (
            "order, and the records' own time"
        )
        assert [record.value for record in records] == [b"v%d" % n if n % 5 else None for n in ids]
        assert {record.key for record in records} == {b"k%d" % number}
        assert [record.headers for record in records] == [(("h", b"%d" % n),) for n in ids]


def test_mistakes_are_reported_in_words(spark: SparkSession, shared_ottla_server: RunningBroker, unique: str) -> None:
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        _reader(spark, shared_ottla_server, unique, startingOffset="earliest").collect()
    with pytest.raises(Exception, match=f"topic {unique} does not exist"):
        _reader(spark, shared_ottla_server, unique).collect()
    frame = spark.range(3)
    options = {"kafka.bootstrap.servers": shared_ottla_server.bootstrap, "topic": unique}
    with pytest.raises(Exception, match="the frame has no column named value; it has id"):
        frame.write.format("ottla").mode("append").options(**options).save()
