"""The readers, without Spark around them: what they plan, read and commit."""

from __future__ import annotations

import pickle
import uuid
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StringType, StructField, StructType

from ottla.client.errors import ClientTimeoutError, CorruptBatchError, RecordTimestampError, UnknownTopicError
from ottla.client.model import TopicPartition
from ottla.client.sync import Producer
from ottla.env.clock import VirtualClock
from ottla.records.batch import parse_batch_header
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.spark.errors import DataLossError, OptionError
from ottla.spark.source.commits import GroupCommits
from ottla.spark.source.data_source import OttlaDataSource
from ottla.spark.source.options import parse_read_options
from ottla.spark.source.planning import PartitionRange
from ottla.spark.source.reading import read_as_written
from ottla.spark.source.schema import source_schema
from ottla.spark.source.stream import StreamReader
from support.waiting import wait_until

#: Offsets that are lower than expected are asked for again, after a pause; not here.
BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "fetchOffset.retryIntervalMs": "0"}
ALL = ReadAllAvailable()
#: A timestamp in milliseconds that microseconds cannot hold.
FARTHEST = 2**63 - 1


def _stream(**extra: str | None) -> StreamReader:
    options = {name: value for name, value in (BASE | extra).items() if value is not None}
    reader = OttlaDataSource(options).streamReader(source_schema(include_headers=False))
    assert isinstance(reader, StreamReader)
    return reader


def test_a_stream_refuses_wrong_options_when_it_is_asked_something() -> None:
    """PySpark's worker loses what `streamReader` raises."""
    source = OttlaDataSource(BASE | {"startingOffsets": "{"})
    reader = source.streamReader(source.schema())
    refused = (
        reader.initialOffset,
        lambda: reader.latestOffset({}, ALL),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(PartitionRange("a", 0, 0, 1)),
    )
    for call in refused:
        with pytest.raises(OptionError, match="option startingOffsets: not JSON"):
            call()
    reader.stop()


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
        OttlaDataSource(BASE).streamReader(other).initialOffset()


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
    cloudpickle.dumps(reader)


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


def _offsets(batches) -> list[int]:
    return [each for batch in batches for each in batch.column("offset").to_pylist()]


def test_records_deleted_while_a_range_is_read_are_a_loss_and_gaps_are_none(cluster) -> None:
    cluster.holds("a", (0, 12))
    schema = source_schema(include_headers=False)
    for fail, expected in (("true", None), ("false", [0, 1, 7, 8, 9])):
        cluster.first[TopicPartition("a", 0)] = 0
        cluster.deletions = {1: (TopicPartition("a", 0), 7)}
        reader = OttlaDataSource(BASE | {"failOnDataLoss": fail, "rowsPerBatch": "2"}).reader(schema)
        rows = reader.read(PartitionRange("a", 0, 0, 10))
        if expected is None:
            with pytest.raises(DataLossError, match="a-0 wanted 2, has 7 to 12"):
                _offsets(rows)
        else:
            assert _offsets(rows) == expected


def test_a_range_behind_the_end_of_a_topic_made_anew_gives_nothing(cluster) -> None:
    cluster.holds("a", (0, 3))
    schema = source_schema(include_headers=False)
    lenient = OttlaDataSource(BASE | {"failOnDataLoss": "false"}).reader(schema)
    assert _offsets(lenient.read(PartitionRange("a", 0, 5, 9))) == []
    with pytest.raises(DataLossError, match="a-0 wanted 5, has 0 to 3"):
        _offsets(OttlaDataSource(BASE).reader(schema).read(PartitionRange("a", 0, 5, 9)))


def test_fetches_have_the_settings_of_the_options(cluster) -> None:
    cluster.holds("a", (0, 3))
    options = {
        "kafka.isolation.level": "read_committed",
        "kafka.check.crcs": "false",
        "kafka.fetch.max.bytes": "99",
        "kafkaConsumer.pollTimeoutMs": "77",
        "kafka.client.rack": "r1",
    }
    reader = OttlaDataSource(BASE | options).reader(source_schema(include_headers=False))
    _offsets(reader.read(PartitionRange("a", 0, 0, 3)))
    connection, fetch = cluster.settings
    assert connection["default_api_timeout_ms"] == 77
    assert (fetch["read_committed"], fetch["check_crcs"], fetch["fetch_max_bytes"]) == (True, False, 99)
    assert fetch["rack"] == "r1"


def test_only_the_columns_wanted_are_made(cluster) -> None:
    cluster.holds("a", (0, 3))
    source = OttlaDataSource(BASE | {"columns": "Offset, headers"})
    assert source.schema().simpleString() == "struct<offset:bigint,headers:array<struct<key:string,value:binary>>>"
    [batch] = source.reader(source.schema()).read(PartitionRange("a", 0, 0, 3))
    assert batch.schema.names == ["offset", "headers"]
    assert batch.num_rows == 3
    with pytest.raises(OptionError, match="there is no column ofset; there are key, value, topic"):
        OttlaDataSource(BASE | {"columns": "ofset"}).schema()


@pytest.mark.parametrize("columns", [None, "offset,timestamp", "value", "offset,value,headers"])
def test_a_timestamp_beyond_spark_s_range_matters_where_it_is_wanted(fake, columns: str | None) -> None:
    [p] = fake.topic("a", 0)
    fake.logs[p].append(encode_batch([Record(0, ms, None, b"v") for ms in (1, 2, 2**62, 4)]))
    options = {"kafka.bootstrap.servers": fake.bootstrap} | ({} if columns is None else {"columns": columns})
    source = OttlaDataSource(BASE | options)
    rows = source.reader(source.schema()).read(PartitionRange("a", 0, 0, 4))
    if columns is not None and "timestamp" not in columns:
        assert sum(batch.num_rows for batch in rows) == 4
        return
    assert next(rows).column("offset").to_pylist() == [0, 1], "what is before it comes first"
    with pytest.raises(RecordTimestampError) as caught:
        next(rows)
    assert str(caught.value).startswith(f"the record at offset 2 of a-0 has the timestamp {2**62}, ")
    assert "set failOnBadTimestamp to false, in a pipeline among the options of its source" in str(caught.value)
    assert "name the columns that are needed, without timestamp, in the option columns" in str(caught.value)


def test_a_timestamp_beyond_spark_s_range_can_be_null(fake) -> None:
    [p] = fake.topic("a", 0)
    most = (2**63 - 1) // 1_000
    fake.logs[p].append(encode_batch([Record(0, ms, None, b"v") for ms in (1, most, most + 1, FARTHEST, 4)]))
    source = OttlaDataSource(BASE | {"kafka.bootstrap.servers": fake.bootstrap, "failOnBadTimestamp": "false"})
    for reader in (source.reader(source.schema()), source.streamReader(source.schema())):
        [rows] = reader.read(PartitionRange("a", 0, 0, 5))
        times = rows.column("timestamp")
        assert str(times.type) == "timestamp[us, tz=UTC]"
        assert times.cast("int64").to_pylist() == [1_000, most * 1_000, None, None, 4_000]


def test_a_mirror_reads_any_timestamp(fake) -> None:
    source, target = fake.topic("a", 0, 0)
    written = [1, FARTHEST, 2, 4]
    fake.logs[source].append(encode_batch([Record(0, ms, b"k", b"v", (("h", b"x"),)) for ms in written], base_offset=0))
    options = parse_read_options(BASE | {"kafka.bootstrap.servers": fake.bootstrap}, streaming=True)
    [rows] = read_as_written(PartitionRange("a", 0, 0, 4), options)
    assert rows.column("timestamp").cast("int64").to_pylist() == written
    with Producer(bootstrap_servers=fake.bootstrap) as producer:
        columns = ["key", "value", "timestamp", "headers"]
        producer.send_arrow(rows.select(columns), "a", partition=1).result()
    [batch] = fake.logs[target].batches
    sent = decode_batch(batch, parse_batch_header(batch))
    assert [(each.timestamp, each.key, each.value, each.headers) for each in sent] == [
        (ms, b"k", b"v", (("h", b"x"),)) for ms in written
    ]


def test_rows_before_a_damaged_batch_come_before_its_error(fake) -> None:
    [p] = fake.topic("a", 0)
    fake.fill(p, 30)
    fake.logs[p].batches[2] = fake.logs[p].batches[2][:-1] + b"?"
    source = OttlaDataSource(BASE | {"kafka.bootstrap.servers": fake.bootstrap})
    rows = source.reader(source.schema()).read(PartitionRange("a", 0, 0, 30))
    assert next(rows).column("offset").to_pylist() == list(range(20))
    with pytest.raises(
        CorruptBatchError, match=r"reading a-0 .*: the batch at offset 20 has .*; read from offset 30 on"
    ):
        next(rows)


def test_decoded_columns_stand_in_the_place_of_the_value(cluster) -> None:
    cluster.holds("a", (0, 2))
    cluster.values = [b'{"n": 5}', b"broken"]
    decoding = {"valueFormat": "json", "valueSchema": "n BIGINT"}
    source = OttlaDataSource(BASE | decoding)
    assert source.schema().names[:4] == ["key", "n", "_bad_value", "_bad_reason"]
    [batch] = source.reader(source.schema()).read(PartitionRange("a", 0, 0, 2))
    assert batch.column("n").to_pylist() == [5, None]
    assert batch.column("_bad_value").to_pylist() == [None, b"broken"]
    chosen = OttlaDataSource(BASE | decoding | {"columns": "n,offset"})
    [batch] = chosen.streamReader(chosen.schema()).read(PartitionRange("a", 0, 0, 2))
    assert batch.to_pylist() == [{"n": 5, "offset": 0}, {"n": None, "offset": 1}]
    bytes_only = OttlaDataSource(BASE | decoding | {"columns": "key"})
    [batch] = bytes_only.reader(bytes_only.schema()).read(PartitionRange("a", 0, 0, 2))
    assert batch.schema.names == ["key"]


def test_a_committed_read_ends_where_the_first_open_transaction_begins(cluster) -> None:
    cluster.holds("a", (0, 10))
    cluster.stable = {TopicPartition("a", 0): 6}
    committed = BASE | {"kafka.isolation.level": "read_committed"}
    reader = OttlaDataSource(committed).reader(source_schema(include_headers=False))
    assert reader.partitions() == [PartitionRange("a", 0, 0, 6)]
    stream = _stream(**{"kafka.isolation.level": "read_committed"})
    assert stream.initialOffset() == {"a": {"0": 6}}
    assert stream.latestOffset({"a": {"0": 0}}, ALL) == {"a": {"0": 6}}


def test_a_stream_waits_for_as_many_records_as_it_wants(cluster) -> None:
    clock = VirtualClock()
    options = BASE | {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1m", "maxOffsetsPerTrigger": "15"}
    reader = StreamReader(parse_read_options(options, streaming=True), clock)
    limit = reader.getDefaultReadLimit()
    cluster.holds("a", (0, 4))
    assert reader.latestOffset({"a": {"0": 0}}, limit) == {"a": {"0": 4}}, "the first batch does not wait"
    cluster.holds("a", (0, 9))
    at = {"a": {"0": 4}}
    assert reader.latestOffset(at, limit) == at
    cluster.holds("a", (0, 40))
    assert reader.latestOffset(at, limit) == {"a": {"0": 19}}, "enough, and then not more than allowed"
    at = {"a": {"0": 39}}
    assert reader.latestOffset(at, limit) == at
    clock.advance(60_000)
    assert reader.latestOffset(at, limit) == {"a": {"0": 40}}, "the delay is over"
    assert reader.latestOffset({"a": {"0": 30}}, ALL) == {"a": {"0": 40}}


def test_the_limit_of_a_stream_says_what_it_waits_for() -> None:
    assert _stream(minOffsetsPerTrigger="10").getDefaultReadLimit() == ReadMinRows(10)
    assert _stream(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="20").getDefaultReadLimit() == ReadMaxRows(20)


def test_available_now_does_not_wait_for_more(cluster) -> None:
    cluster.holds("a", (0, 10))
    reader = _stream(minOffsetsPerTrigger="100")
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"a": {"0": 0}}, limit) == {"a": {"0": 10}}
    assert reader.latestOffset({"a": {"0": 3}}, limit) == {"a": {"0": 10}}


def test_a_leader_that_knows_less_is_asked_again(cluster) -> None:
    cluster.holds("a", (0, 3))
    reader = _stream(**{"fetchOffset.numRetries": "4"})
    before = cluster.calls
    with pytest.raises(DataLossError, match="was read to 8, ends at 3"):
        reader.latestOffset({"a": {"0": 8}}, ALL)
    assert cluster.calls - before == 4


def test_offsets_are_looked_up_again_where_the_cluster_does_not_answer(cluster) -> None:
    cluster.holds("a", (0, 3))
    cluster.failures = [ClientTimeoutError("no answer"), ClientTimeoutError("no answer")]
    assert _stream(startingOffsets="earliest").initialOffset() == {"a": {"0": 0}}
    cluster.failures = [ClientTimeoutError("no answer")] * 4
    with pytest.raises(ClientTimeoutError):
        OttlaDataSource(BASE).reader(source_schema(include_headers=False)).partitions()
    assert len(cluster.failures) == 1, "three attempts"
    cluster.failures = [UnknownTopicError("a", "the fake"), ClientTimeoutError("never asked")]
    with pytest.raises(UnknownTopicError):
        _stream(startingOffsets="earliest").initialOffset()


def test_topics_that_do_not_exist_are_passed_over_where_loss_is(cluster) -> None:
    cluster.holds("a", (0, 3))
    reader = _stream(subscribe="a,later", failOnDataLoss="false", startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == {"a": {"0": 0}}
    cluster.holds("later", (0, 5))
    end = reader.latestOffset(start, ALL)
    assert end == {"a": {"0": 3}, "later": {"0": 5}}
    assert reader.partitions(start, end) == [PartitionRange("a", 0, 0, 3), PartitionRange("later", 0, 0, 5)]
    assert _stream(assign='{"a": [0, 7], "b": [1]}', subscribe=None, failOnDataLoss="false").latestOffset({}, ALL) == {
        "a": {"0": 3}
    }


def test_ranges_are_split_by_bytes(cluster) -> None:
    cluster.holds("a", (10, 50))
    cluster.sizes = {TopicPartition("a", 0): 4_000}
    split = {"maxBytesPerPartition": "2000"}
    reader = OttlaDataSource(BASE | split).reader(source_schema(include_headers=False))
    assert reader.partitions() == [PartitionRange("a", 0, 10, 30), PartitionRange("a", 0, 30, 50)]
    stream = _stream(**split)
    assert len(stream.partitions({"a": {"0": 10}}, {"a": {"0": 50}})) == 2


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
    cluster.holds("a", (0, 10), (0, 5))
    reader = _stream(maxOffsetsPerTrigger="5")
    start = {"a": {"0": 10}}
    assert reader.latestOffset(start, ALL) == {"a": {"0": 10, "1": 5}}
    assert reader.latestOffset(start, ReadMaxRows(3)) == {"a": {"0": 10, "1": 3}}
    assert reader.partitions(start, {"a": {"0": 10, "1": 5}}) == [PartitionRange("a", 1, 0, 5)]


def test_a_new_partition_whose_first_records_are_gone_is_a_loss(cluster) -> None:
    """As with Spark's Kafka source: nobody has read them."""
    cluster.holds("a", (0, 10), (4, 9))
    start, end = {"a": {"0": 10}}, {"a": {"0": 10, "1": 9}}
    with pytest.raises(DataLossError, match="a-1, a new partition, begins at 4"):
        _stream().partitions(start, end)
    assert _stream(failOnDataLoss="false").partitions(start, end) == [PartitionRange("a", 1, 4, 9)]


def test_a_topic_that_is_gone_or_made_anew_stops_the_stream(cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.holds("a", (0, 3))
    start = {"a": {"0": 8}, "gone": {"0": 4}}
    with pytest.raises(DataLossError, match="a-0 was read to 8, ends at 3, gone-0 was read to 4, is gone"):
        _stream(subscribe="a,gone").latestOffset(start, ALL)
    lenient = _stream(subscribe="a,gone", failOnDataLoss="false")
    end = lenient.latestOffset(start, ALL)
    assert end == {"a": {"0": 3}}, "a topic of that name that is made later is read from its beginning"
    assert "created again" in caplog.text
    assert lenient.partitions(start, end) == []


def test_a_topic_made_anew_and_longer_than_before_is_told_by_its_id(cluster, caplog: pytest.LogCaptureFixture) -> None:
    before, after = uuid.uuid4(), uuid.uuid4()
    start: dict[str, Any] = {"a": {"0": 8}, "b": {"0": 1}}
    for fail in ("true", "false"):
        cluster.holds("a", (0, 9))
        cluster.holds("b", (0, 3))
        cluster.topic_ids = {"a": before}
        reader = _stream(subscribe="a,b", failOnDataLoss=fail)
        assert reader.latestOffset(start, ALL) == {"a": {"0": 9}, "b": {"0": 3}}
        cluster.topic_ids = {"a": after}
        cluster.holds("a", (0, 20))
        if fail == "true":
            with pytest.raises(DataLossError, match=r"deleted and made again .* \(a-0 was read to 8\); start again"):
                reader.latestOffset(start, ALL)
            continue
        end = reader.latestOffset(start, ALL)
        assert end == {"b": {"0": 3}}, "left out once"
        assert reader.partitions(start, end) == [PartitionRange("b", 0, 1, 3)]
        assert "its id is another one, continuing with what is there: a-0 was read to 8" in caplog.text
        following = reader.latestOffset(end, ALL)
        assert following == {"a": {"0": 20}, "b": {"0": 3}}
        assert reader.partitions(end, following) == [PartitionRange("a", 0, 0, 20)], "from its beginning"
        for known in (before, after):  # a broker that lags behind
            cluster.topic_ids = {"a": known}
            assert reader.latestOffset(following, ALL) == following


@pytest.mark.parametrize("loss", ["made anew", "selected no more"])
def test_what_is_taken_out_of_a_checkpoint_does_not_wait_for_more_records(
    cluster, caplog: pytest.LogCaptureFixture, loss: str
) -> None:
    """While the stream waited it would report the same loss at each of Spark's looks, a hundred times a second."""
    cluster.holds("a", (0, 9))
    cluster.holds("b", (0, 1))
    cluster.topic_ids = {"a": uuid.uuid4()}
    subscribed = "a,b" if loss == "made anew" else "b"
    reader = _stream(subscribe=subscribed, failOnDataLoss="false", minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    at = reader.latestOffset({"b": {"0": 0}}, limit)
    assert at["b"] == {"0": 1}
    cluster.topic_ids = {"a": uuid.uuid4()}
    assert reader.latestOffset({"a": {"0": 9}} | at, limit) == {"b": {"0": 1}}
    assert caplog.text.count("a-0 was read to 9") == 1
    assert reader.latestOffset({"b": {"0": 1}}, limit) == {"b": {"0": 1}}


def test_ids_are_not_needed(cluster) -> None:
    """Brokers before 2.8 have none."""
    cluster.holds("a", (0, 9))
    reader = _stream()
    for topic_ids in ({}, {"a": uuid.uuid4()}, {}):
        cluster.topic_ids = topic_ids
        assert reader.latestOffset({"a": {"0": 8}}, ALL) == {"a": {"0": 9}}


def test_partitions_that_the_query_selects_no_more_are_said_to_be_that(
    cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.holds("a", (0, 9))
    cluster.holds("b", (0, 9))
    start = {"a": {"0": 8}, "b": {"0": 4}}
    selected_no_more = r"does not select any more \(b-0 was read to 4; it has subscribe a\); select them again, or"
    with pytest.raises(DataLossError, match=selected_no_more):
        _stream().latestOffset(start, ALL)
    with pytest.raises(DataLossError, match=r"b-0 was read to 4; it has assign a-0"):
        _stream(subscribe=None, assign='{"a": [0]}').latestOffset(start, ALL)
    with pytest.raises(DataLossError, match=r"b-0 was read to 4; it has subscribePattern \^a"):
        _stream(subscribe=None, subscribePattern="^a").latestOffset(start, ALL)
    assert _stream(failOnDataLoss="false").latestOffset(start, ALL) == {"a": {"0": 9}}
    assert "does not select any more" in caplog.text


def test_a_topic_deleted_while_it_is_read_is_a_loss_and_one_never_read_a_mistake(cluster) -> None:
    cluster.holds("b", (0, 3))
    reader = _stream(subscribe="a,b")
    with pytest.raises(DataLossError, match=r"deleted or created again .*a-0 was read to 8, is gone.* failOnDataLoss"):
        reader.latestOffset({"a": {"0": 8}, "b": {"0": 3}}, ALL)
    with pytest.raises(UnknownTopicError):
        reader.latestOffset({"b": {"0": 3}}, ALL)


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


@pytest.mark.spec("D4")
def test_a_coordinator_that_does_not_answer_delays_one_batch_for_a_short_time(
    cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each planning, and none for default.api.timeout.ms."""
    cluster.holds("a", (0, 90))
    cluster.coordinator_answers.clear()
    reader = StreamReader(parse_read_options(BASE | {"kafka.group.id": "g"}, streaming=True))
    monkeypatch.setattr(reader, "_commits", GroupCommits("g", wait_s=0.01))
    for done in (10, 20, 30):
        assert reader.latestOffset({"a": {"0": done}}, ALL) == {"a": {"0": 90}}
    assert cluster.commits_asked == 1, "the others wait for its end"
    assert caplog.text.count("not committed to group g") == 1
    assert pickle.loads(cloudpickle.dumps(reader)) is not None, "it travels to tasks meanwhile"
    cluster.coordinator_answers.set()
    wait_until(lambda: bool(cluster.commits), "the answer")
    wait_until(
        lambda: (
            reader.latestOffset({"a": {"0": 40}}, ALL) and cluster.commits[1:] == [("g", {TopicPartition("a", 0): 40})]
        ),
        "the next commit",
    )
    assert "committed to group g again" in caplog.text
    reader.stop()


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


def test_a_task_holds_little_at_a_time(cluster) -> None:
    cluster.holds("a", (0, 3))
    reader = OttlaDataSource(BASE).reader(source_schema(include_headers=False))
    [planned] = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(planned)) == 3
    read = cluster.settings[-1]
    assert (read["rows_per_batch"], read["bytes_per_batch"], read["fetch_max_bytes"]) == (8_192, 4 << 20, 2 << 20)
