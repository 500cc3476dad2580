"""Options: the Kafka source's names, and refusals that say what to do."""

from __future__ import annotations

import pytest

from ottla.client.model import TopicPartition
from ottla.spark.connection import connect
from ottla.spark.errors import OptionError
from ottla.spark.sink.options import parse_write_options
from ottla.spark.source.offsets import EARLIEST, LATEST
from ottla.spark.source.option_table import ROWS
from ottla.spark.source.options import (
    AdmissionLimits,
    Bound,
    FetchOptions,
    RetryOptions,
    SplitOptions,
    TimestampMiss,
    parse_read_options,
)

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"}


def test_defaults_are_those_of_spark_s_kafka_source() -> None:
    batch, stream = parse_read_options(BASE, streaming=False), parse_read_options(BASE, streaming=True)
    assert (batch.starting.offset, batch.ending.offset) == (EARLIEST, LATEST)
    assert stream.starting.offset == LATEST
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert stream.group_id is None
    assert stream.limits == AdmissionLimits(None, None, 15 * 60_000)
    assert stream.fetch == FetchOptions(2 * 1024 * 1024, 120_000, read_committed=False, check_crcs=True)
    assert stream.retry == RetryOptions(3, 1_000)
    assert stream.split == SplitOptions()


def test_the_defaults_of_the_page_are_those_of_the_parser() -> None:
    stream = parse_read_options(BASE, streaming=True)
    told = {row.name: row.default for row in ROWS}
    assert told["maxTriggerDelay"] == f"`{stream.limits.max_delay_ms // 60_000}m`"
    assert told["fetchOffset.numRetries"] == str(stream.retry.attempts)
    assert told["fetchOffset.retryIntervalMs"] == str(stream.retry.interval_ms)
    assert told["kafkaConsumer.pollTimeoutMs"] == str(stream.fetch.poll_timeout_ms)
    assert told["kafka.fetch.max.bytes"] == str(stream.fetch.max_bytes)
    assert told["rowsPerBatch"] == str(stream.rows_per_batch)
    assert told["failOnBadTimestamp"] == f"`{str(stream.fail_on_bad_timestamp).lower()}`"
    assert told["failOnDataLoss"] == f"`{str(stream.fail_on_data_loss).lower()}`"


@pytest.mark.spec("D1")
def test_every_option_is_read_whatever_its_case() -> None:
    options = parse_read_options(
        {
            "KAFKA.bootstrap.SERVERS": "h1:1,h2:2",
            "SUBSCRIBE": " a , b,a",
            "startingoffsets": '{"a": {"0": 5}, "b": {"0": -2}}',
            "MaxOffsetsPerTrigger": "1000",
            "minPartitions": "8",
            "failOnBadTimestamp": "False",
            "failOnDataLoss": "FALSE",
            "includeHeaders": "true",
            "kafka.group.id": "g",
            "kafka.client.id": "c",
            "kafka.request.timeout.ms": "1500",
            "kafka.fetch.max.bytes": "2000000",
            "kafka.security.protocol": "PLAINTEXT",
            "rowsPerBatch": "4000",
        },
        streaming=True,
    )
    assert options.connection.bootstrap_servers == "h1:1,h2:2"
    assert options.connection.consumer.client_id == "c"
    assert options.connection.consumer.request_timeout_ms == 1_500
    assert options.selection.topics == ("a", "b")
    assert options.starting.offsets == {TopicPartition("a", 0): 5, TopicPartition("b", 0): -2}
    assert options.limits.max_offsets == 1_000
    assert options.split.min_tasks == 8
    assert not options.fail_on_bad_timestamp
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert options.group_id == "g"
    assert (options.fetch.max_bytes, options.rows_per_batch) == (2_000_000, 4_000)


@pytest.mark.parametrize(
    ("extra", "streaming", "complaint"),
    [
        ({"kafka.bootstrap.servers": " "}, True, "kafka.bootstrap.servers is missing"),
        (
            {"subscribePattern": "a.*"},
            True,
            "exactly one of the options subscribe, subscribePattern, assign; got subscribe and",
        ),
        ({"subscribe": ","}, True, "names no topic"),
        (
            {"startingOffset": "earliest"},
            True,
            "unknown option 'startingoffset' when reading; did you mean startingOffsets?",
        ),
        ({"zzz": "1"}, True, "unknown option 'zzz' when reading; known are"),
        ({"topic": "a"}, True, "option topic is not served when reading: name topics with subscribe"),
        ({"path": "/x"}, True, "option path is not served when reading: name topics with subscribe"),
        (
            {"segments": "/x"},
            True,
            "option segments is not served when reading: segment files are read by batch queries",
        ),
        ({"kafka.nonsense": "x"}, True, "option kafka.nonsense is not a known setting of consumers"),
        ({"kafka.fetch.max.bytes": "x"}, True, "the default is 2097152."),
        ({"kafka.auto.offset.reset": "latest"}, True, "use startingOffsets"),
        (
            {"kafka.security.protocol": "SASL_SSL"},
            True,
            "option kafka.sasl.mechanism=GSSAPI (Kerberos, the default) logs in by",
        ),
        ({"startingOffsets": "first"}, True, "neither earliest, latest nor JSON"),
        ({"startingOffsets": "{"}, True, "option startingOffsets: not JSON"),
        ({"startingTimestamp": "soon"}, True, "not a whole number"),
        ({"endingOffsets": "latest"}, True, "for batch reads only"),
        ({"endingTimestamp": "5"}, True, "for batch reads only"),
        ({"startingOffsets": "latest"}, False, "a batch read cannot start at latest"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, False, "a batch read cannot start at latest"),
        ({"endingOffsets": "earliest"}, False, "cannot end at earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, False, "cannot end at earliest"),
        ({"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, True, "(6) is more than maxOffsetsPerTrigger (5)"),
        ({"maxTriggerDelay": "soon"}, True, "option maxTriggerDelay: 'soon' is not a time"),
        ({"fetchOffset.numRetries": "0"}, True, "option fetchOffset.numRetries: '0' is not a whole number of 1"),
        ({"kafkaConsumer.pollTimeoutMs": "x"}, True, "option kafkaConsumer.pollTimeoutMs"),
        ({"columns": " , "}, True, "option columns names no column"),
        ({"startingOffsets": "committed"}, True, "committed needs the group"),
        ({"kafka.enable.auto.commit": "false"}, True, "option kafka.enable.auto.commit is not served when reading"),
        ({"kafka.key.deserializer": "x"}, True, "keys are binary"),
        ({"kafka.isolation.level": "all"}, True, "for configuration kafka.isolation.level"),
        ({"kafka.fetch.max.byte": "1"}, True, "did you mean kafka.fetch.max.bytes"),
        (
            {"kafka.linger.ms": "5"},
            True,
            "option kafka.linger.ms is a setting of producers, not of consumers. Remove it.",
        ),
        (
            {"kafka.fetch.min.bytes": "9", "kafka.fetch.max.bytes": "8"},
            True,
            "option kafka.fetch.min.bytes=9 is more than kafka.fetch.max.bytes=8",
        ),
        ({"maxOffsetsPerTrigger": "0"}, True, "not a whole number of 1 or more"),
        ({"failOnDataLoss": "maybe"}, True, "'maybe' is not one of true, false"),
        ({"includeHeaders": "yes"}, True, "'yes' is not one of true, false"),
        ({"groupId": "a", "kafka.group.id": "b"}, True, "groupId ('a') and kafka.group.id ('b') contradict"),
        ({"kafka.group.id": ""}, True, "kafka.group.id is empty"),
        ({"startingOffsetsByTimestampStrategy": "first"}, True, "not one of error, latest"),
    ],
)
def test_a_wrong_option_is_refused_with_its_cure(extra: dict[str, str], streaming: bool, complaint: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_read_options(BASE | extra, streaming=streaming)
    assert complaint in str(refused.value)


def test_topics_must_be_chosen_in_one_way() -> None:
    only_servers = {"kafka.bootstrap.servers": "h:1"}
    with pytest.raises(OptionError, match="got none"):
        parse_read_options(only_servers, streaming=True)
    assert parse_read_options(only_servers | {"subscribePattern": " a.*"}, streaming=True).selection.pattern == "a.*"
    assigned = parse_read_options(only_servers | {"assign": '{"a": [2]}'}, streaming=True).selection.assigned
    assert assigned == (TopicPartition("a", 2),)
    for wrong in ({"subscribePattern": "a("}, {"subscribePattern": " "}, {"assign": "{}"}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            parse_read_options(only_servers | wrong, streaming=True)


def test_times_bound_a_read() -> None:
    options = parse_read_options(
        BASE
        | {
            "startingOffsetsByTimestamp": '{"a": {"0": 1000}}',
            "endingTimestamp": "2000",
            "startingOffsetsByTimestampStrategy": "latest",
        },
        streaming=False,
    )
    assert options.starting.timestamps_ms == {TopicPartition("a", 0): 1_000}
    assert options.starting.names_partitions
    assert options.ending.timestamp_ms == 2_000
    assert options.timestamp_miss is TimestampMiss.LATEST


def test_either_name_of_the_group_will_do() -> None:
    assert parse_read_options(BASE | {"groupId": "g"}, streaming=True).group_id == "g"
    assert parse_read_options(BASE | {"groupId": "g", "kafka.group.id": "g"}, streaming=True).group_id == "g"


def test_timestamps_go_before_offsets_as_with_spark_s_kafka_source() -> None:
    by_time = {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"a": {"0": 7}}', "startingOffsets": "earliest"}
    options = parse_read_options(BASE | by_time, streaming=True)
    assert (options.starting.timestamp_ms, options.starting.timestamps_ms) == (5, {})
    del by_time["startingTimestamp"]
    options = parse_read_options(BASE | by_time, streaming=True)
    assert options.starting.timestamps_ms == {TopicPartition("a", 0): 7}


def test_a_batch_read_passes_over_what_is_for_streams(caplog: pytest.LogCaptureFixture) -> None:
    parse_read_options(BASE | {"maxOffsetsPerTrigger": "5", "maxTriggerDelay": "1m"}, streaming=False)
    assert "option maxOffsetsPerTrigger is for streams" in caplog.text
    assert "option maxTriggerDelay is for streams" in caplog.text


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("15m", 900_000), ("250", 250), ("2 h", 7_200_000)])
def test_times_are_written_as_spark_writes_them(text: str, ms: int) -> None:
    options = parse_read_options(BASE | {"minOffsetsPerTrigger": "5", "maxTriggerDelay": text}, streaming=True)
    assert options.limits == AdmissionLimits(None, 5, ms)


def test_a_read_may_start_where_its_group_committed() -> None:
    committed = BASE | {"startingOffsets": " Committed", "kafka.group.id": "g"}
    assert parse_read_options(committed, streaming=True).starting == Bound(LATEST, committed=True)
    assert parse_read_options(committed, streaming=False).starting == Bound(EARLIEST, committed=True)
    none = parse_read_options(committed | {"kafka.auto.offset.reset": "none"}, streaming=True)
    assert none.starting == Bound(None, committed=True)
    with pytest.raises(OptionError, match="cannot start at latest"):
        parse_read_options(committed | {"kafka.auto.offset.reset": "latest"}, streaming=False)


def test_settings_of_fetches_are_taken_from_the_client_s() -> None:
    settings = {
        "kafka.isolation.level": "read_committed",
        "kafka.check.crcs": "false",
        "kafka.max.partition.fetch.bytes": "500",
        "kafkaConsumer.pollTimeoutMs": "700",
        "kafka.session.timeout.ms": "30000",
    }
    options = parse_read_options(BASE | settings, streaming=True)
    assert options.fetch == FetchOptions(500, 700, read_committed=True, check_crcs=False)


def test_the_group_s_prefix_begins_the_name_that_brokers_see() -> None:
    prefixed = BASE | {"groupIdPrefix": "nightly"}
    options = parse_read_options(prefixed, streaming=True)
    assert options.connection.consumer.client_id.startswith("nightly-")
    assert options.group_id is None
    named = parse_read_options(prefixed | {"kafka.group.id": "g"}, streaming=True)
    assert named.connection.consumer.client_id == "ottla-spark"


def test_connections_have_the_client_s_settings(cluster) -> None:
    settings = {"kafka.client.id": "c", "kafka.retry.backoff.ms": "7", "kafka.default.api.timeout.ms": "900"}
    options = parse_read_options(BASE | settings, streaming=True)
    connect(options.connection)
    connect(options.connection, 50)
    first, second = cluster.settings
    assert (first["client_id"], first["retry_backoff_ms"], first["default_api_timeout_ms"]) == ("c", 7, 900)
    assert second["default_api_timeout_ms"] == 50


def test_write_options() -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    plain = parse_write_options(servers)
    assert plain.topic is None
    assert plain.connection.all_settings == {
        "bootstrap.servers": "h:1",
        "client.id": "ottla-spark",
        "batch.size": "131072",
        "linger.ms": "5",
    }
    given = {"kafka.acks": "1", "kafka.compression.type": "zstd", "kafka.batch.size": "9", "kafka.max.block.ms": "77"}
    full = parse_write_options(servers | {"topic": "t"} | given)
    assert full.topic == "t"
    assert (
        full.connection.all_settings.items()
        >= {
            "acks": "1",
            "compression.type": "zstd",
            "batch.size": "9",
            "max.block.ms": "77",
        }.items()
    )
    assert parse_write_options(servers | {"checkpointLocation": "/c", "queryName": "q"}).topic is None


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        ({"topic": " "}, "option topic is empty"),
        ({"kafka.transactional.id": "x"}, "option kafka.transactional.id is not served when writing: the tasks"),
        ({"kafka.value.serializer": "x"}, "option kafka.value.serializer is not served when writing"),
        ({"kafka.group.id": "g"}, "option kafka.group.id is a setting of consumers"),
        ({"path": "/x"}, "option path is not served when writing: name the topic with topic"),
        ({"subscribe": "a"}, "option subscribe is not served when writing: name the topic with topic, or in a column"),
        (
            {"kafka.acks": "2"},
            "value 2 for configuration kafka.acks: String must be one of: all, -1, 0, 1. Give kafka.acks one",
        ),
        (
            {"kafka.acks": "1", "kafka.enable.idempotence": "true"},
            "kafka.enable.idempotence=true is not possible with kafka.acks=1: set kafka.acks to all, or set kafka.",
        ),
        (
            {"kafka.batch.size": "x"},
            "Give kafka.batch.size a whole number of bytes from 0 to 2147483647; the default is 131072",
        ),
        ({"kafka.compression.type": "lzma"}, "Invalid value lzma for configuration kafka.compression.type"),
    ],
)
def test_a_wrong_write_option_is_refused(extra: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_write_options({"kafka.bootstrap.servers": "h:1"} | extra)
    assert complaint in str(refused.value)
