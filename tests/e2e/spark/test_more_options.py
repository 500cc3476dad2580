"""What only the Spark source of ottla has, in running queries: columns, filters, committed offsets, plain errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from ottla.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.brokers import RunningBroker

START_MS = 1_357_017_300_000
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def _read(spark: SparkSession, broker: RunningBroker, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


@pytest.mark.spec("D1")
def test_columns_filters_and_decoded_values(
    spark: SparkSession, shared_ottla_server: RunningBroker, unique: str, fill, pushdown: None
) -> None:
    broker = shared_ottla_server
    rows = [Record(0, START_MS + n * 1_000, b"k", b'{"n": %d}' % n) for n in range(40)]
    fill(broker, unique, [rows, rows[:10], [Record(0, START_MS, None, b"no json")]])
    decoded = {"valueFormat": "json", "valueSchema": "n BIGINT", "columns": "partition,offset,timestamp,n,_bad_value"}
    frame = _read(spark, broker, unique, **decoded)
    assert frame.columns == ["partition", "offset", "timestamp", "n", "_bad_value"]
    late = frame.where("partition in (0, 1) and offset >= 5 and timestamp >= timestamp_millis(1357017308000)")
    assert late.rdd.getNumPartitions() == 2
    found = late.selectExpr("partition", "offset", "n").collect()
    assert sorted(map(tuple, found)) == [*((0, n, n) for n in range(8, 40)), (1, 8, 8), (1, 9, 9)]
    bad = frame.where("partition = 2").collect()
    assert [(row.n, bytes(row._bad_value)) for row in bad] == [(None, b"no json")]


@pytest.mark.spec("D1", "D4")
def test_a_stream_starts_where_its_group_committed_and_waits_for_records(
    spark: SparkSession, shared_ottla_server: RunningBroker, unique: str, tmp_path: Path, fill
) -> None:
    broker = shared_ottla_server
    fill(broker, unique, [[Record(0, START_MS, None, b"v%d" % n) for n in range(30)]])
    seen: list[int] = []
    with Client(broker.bootstrap) as client:
        client.commit(unique, {TopicPartition(unique, 0): 25})
        stream = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", unique)
            .option("startingOffsets", "committed")
            .option("kafka.group.id", unique)
            .option("minOffsetsPerTrigger", "1000")
            .option("maxTriggerDelay", "100ms")
            .option("maxRecordsPerPartition", "2")
            .load()
        )
        writer = stream.writeStream.foreachBatch(lambda batch, _: seen.extend(row.offset for row in batch.collect()))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        assert sorted(seen) == [25, 26, 27, 28, 29]
        assert client.committed(unique, [TopicPartition(unique, 0)]) == {TopicPartition(unique, 0): 30}


def test_errors_are_one_sentence_without_a_traceback(
    spark: SparkSession, shared_ottla_server: RunningBroker, unique: str, fill
) -> None:
    broker = shared_ottla_server
    fill(broker, unique, [[Record(0, START_MS, None, b"v")]])
    beyond = f'{{"{unique}": {{"0": 900}}}}'
    sink = {"kafka.bootstrap.servers": broker.bootstrap}
    no_topic = spark.sql("select 'a' value, cast(null as string) topic").write.format("ottla").mode("append")
    failing = {
        "did you mean startingOffsets": lambda: _read(spark, broker, unique, startingOffset="earliest").collect(),
        "up to 900, ends at 1": lambda: _read(spark, broker, unique, endingOffsets=beyond).collect(),
        "a row has no topic": lambda: no_topic.options(**sink).save(),
    }
    for words, fail in failing.items():
        with pytest.raises(Exception, match=words) as refused:
            fail()
        assert "Traceback" not in str(refused.value)
        assert "File " not in str(refused.value)
