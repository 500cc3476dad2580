"""The readers, without Spark around them: what they plan, read and commit."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from ottla.client.model import TopicPartition
from ottla.spark.offsets import PartitionRange
from ottla.spark.options import OptionError
from ottla.spark.partitions import DataLossError
from ottla.spark.source import OttlaDataSource, StreamReader, source_schema

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
ALL = ReadAllAvailable()


def _stream(**extra: str) -> StreamReader:
    reader = OttlaDataSource(BASE | extra).streamReader(source_schema(include_headers=False))
    assert isinstance(reader, StreamReader)
    return reader


@pytest.mark.spec("D1")
def test_the_schema_is_that_of_spark_s_kafka_source() -> None:
    assert OttlaDataSource(BASE).schema().simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    with_headers = OttlaDataSource(BASE | {"includeHeaders": "true"}).schema()
    assert with_headers["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_another_schema_is_refused() -> None:
    other = StructType([StructField("text", StringType())])
    with pytest.raises(OptionError, match="fixed schema"):
        OttlaDataSource(BASE).reader(other)
    with pytest.raises(OptionError, match="fixed schema"):
        OttlaDataSource(BASE).streamReader(other)


def test_overwriting_is_refused() -> None:
    schema = StructType([StructField("value", StringType())])
    source = OttlaDataSource({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    with pytest.raises(OptionError, match="cannot be overwritten"):
        source.writer(schema, overwrite=True)
    with pytest.raises(OptionError, match="cannot be overwritten"):
        source.streamWriter(schema, overwrite=True)


def test_a_batch_read_plans_the_topic_as_it_is(cluster) -> None:
    cluster.holds("a", (5, 10), (0, 0), (0, 3))
    reader = OttlaDataSource(BASE).reader(source_schema(include_headers=False))
    assert reader.partitions() == [PartitionRange("a", 0, 5, 10), PartitionRange("a", 2, 0, 3)]
    assert cluster.clients == 0, "the connection is closed"
    pickle.dumps(reader)


def test_rows_are_arrow_in_exactly_spark_s_schema(cluster) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    reader = OttlaDataSource(BASE | {"rowsPerBatch": "4", "includeHeaders": "true"}).reader(
        source_schema(include_headers=True)
    )
    batches = list(reader.read(PartitionRange("a", 1, 3, 9)))
    assert [batch.num_rows for batch in batches] == [4, 2]
    assert batches[0].schema == to_arrow_schema(source_schema(include_headers=True), timezone="UTC")
    assert [each for batch in batches for each in batch.column("offset").to_pylist()] == list(range(3, 9))
    assert cluster.clients == 0


def test_reading_without_a_range_gives_nothing(cluster) -> None:
    from pyspark.sql.datasource import InputPartition

    reader = OttlaDataSource(BASE).reader(source_schema(include_headers=False))
    assert list(reader.read(InputPartition(None))) == []


def test_a_range_whose_start_was_deleted_is_read_from_what_is_left(cluster) -> None:
    cluster.holds("a", (6, 10))
    reader = OttlaDataSource(BASE | {"failOnDataLoss": "false"}).reader(source_schema(include_headers=False))
    rows = [each for batch in reader.read(PartitionRange("a", 0, 3, 9)) for each in batch.column("offset").to_pylist()]
    assert rows == [6, 7, 8]
    assert list(reader.read(PartitionRange("a", 0, 3, 6))) == []


def test_a_stream_goes_from_its_start_to_the_latest(cluster) -> None:
    cluster.holds("a", (5, 10), (0, 20))
    reader = _stream(startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == {"a": {"0": 5, "1": 0}}
    end = reader.latestOffset(start, ALL)
    assert end == {"a": {"0": 10, "1": 20}}
    assert reader.partitions(start, end) == [PartitionRange("a", 0, 5, 10), PartitionRange("a", 1, 0, 20)]
    assert reader.reportLatestOffset() == end
    assert reader.partitions(end, end) == []


def test_a_stream_is_limited_per_trigger(cluster) -> None:
    cluster.holds("a", (0, 30), (0, 10))
    reader = _stream(maxOffsetsPerTrigger="20")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    assert _stream().getDefaultReadLimit() == ALL
    assert reader.latestOffset({"a": {"0": 0, "1": 0}}, limit) == {"a": {"0": 15, "1": 5}}
    assert reader.latestOffset({"a": {"0": 0, "1": 0}}, ALL) == {"a": {"0": 30, "1": 10}}, "the engine's limit wins"


def test_new_partitions_are_read_from_their_beginning(cluster) -> None:
    cluster.holds("a", (0, 10), (4, 9))
    reader = _stream(maxOffsetsPerTrigger="5")
    start = {"a": {"0": 10}}
    assert reader.latestOffset(start, ALL) == {"a": {"0": 10, "1": 9}}
    assert reader.latestOffset(start, ReadMaxRows(3)) == {"a": {"0": 10, "1": 7}}
    assert reader.partitions(start, {"a": {"0": 10, "1": 9}}) == [PartitionRange("a", 1, 4, 9)]


def test_a_topic_that_is_gone_or_made_anew_stops_the_stream(cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.holds("a", (0, 3))
    start = {"a": {"0": 8}, "gone": {"0": 4}}
    with pytest.raises(DataLossError, match="a-0 was read to 8, ends at 3, gone-0 was read to 4, is gone"):
        _stream().latestOffset(start, ALL)
    lenient = _stream(failOnDataLoss="false")
    end = lenient.latestOffset(start, ALL)
    assert end == {"a": {"0": 3}, "gone": {"0": 4}}
    assert "made anew" in caplog.text
    assert lenient.partitions(start, end) == []


def test_lost_records_stop_the_stream(cluster) -> None:
    cluster.holds("a", (5, 10))
    with pytest.raises(DataLossError):
        _stream().partitions({"a": {"0": 2}}, {"a": {"0": 10}})
    lenient = _stream(failOnDataLoss="false")
    assert lenient.partitions({"a": {"0": 2}}, {"a": {"0": 10}}) == [PartitionRange("a", 0, 2, 10)]


def test_available_now_ends_at_what_was_there(cluster) -> None:
    cluster.holds("a", (0, 10))
    reader = _stream(maxOffsetsPerTrigger="6")
    reader.prepareForTriggerAvailableNow()
    cluster.holds("a", (0, 50))
    first = reader.latestOffset({"a": {"0": 0}}, ReadMaxRows(6))
    second = reader.latestOffset(first, ReadMaxRows(6))
    assert (first, second) == ({"a": {"0": 6}}, {"a": {"0": 10}})
    assert reader.latestOffset(second, ReadMaxRows(6)) == second


@pytest.mark.spec("D4")
def test_what_a_query_finished_is_committed_also_after_its_last_batch(cluster) -> None:
    cluster.holds("a", (0, 10), (0, 4))
    reader = _stream(groupId="g")
    start = {"a": {"0": 0, "1": 0}}
    end = reader.latestOffset(start, ALL)
    assert cluster.commits == [("g", {TopicPartition("a", 0): 0, TopicPartition("a", 1): 0})]
    reader.latestOffset(end, ALL)
    assert cluster.commits[1:] == [("g", {TopicPartition("a", 0): 10, TopicPartition("a", 1): 4})]
    reader.latestOffset(end, ALL)
    reader.commit(end)
    assert len(cluster.commits) == 2, "nothing new, nothing sent"


def test_only_what_changed_is_committed(cluster) -> None:
    cluster.holds("a", (0, 10), (0, 4))
    reader = _stream(groupId="g")
    reader.commit({"a": {"0": 1, "1": 1}})
    reader.commit({"a": {"0": 1, "1": 3}})
    assert cluster.commits[-1] == ("g", {TopicPartition("a", 1): 3})


def test_a_failed_commit_is_reported_and_tried_again(cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.holds("a", (0, 10))
    cluster.commit_failures = 1
    reader = _stream(groupId="g")
    reader.commit({"a": {"0": 1}})
    assert not cluster.commits
    assert "the coordinator is away" in caplog.text
    reader.commit({"a": {"0": 1}})
    assert len(cluster.commits) == 1


def test_without_a_group_nothing_is_committed(cluster) -> None:
    cluster.holds("a", (0, 10))
    reader = _stream()
    reader.latestOffset({"a": {"0": 3}}, ALL)
    reader.commit({"a": {"0": 3}})
    assert not cluster.commits


def test_stop_closes_the_connections(cluster) -> None:
    cluster.holds("a", (0, 10))
    reader = _stream()
    reader.initialOffset()
    assert cluster.clients == 1
    reader.stop()
    reader.stop()
    assert cluster.clients == 0
