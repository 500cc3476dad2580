"""Options: the Kafka source's names, and refusals that say what to do."""

from __future__ import annotations

import pytest

from ottla.client.model import TopicPartition
from ottla.spark.offsets import EARLIEST, LATEST
from ottla.spark.options import OptionError, TimestampMiss, parse_read_options, parse_write_options

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"}


def test_defaults_are_those_of_spark_s_kafka_source() -> None:
    batch, stream = parse_read_options(BASE, streaming=False), parse_read_options(BASE, streaming=True)
    assert (batch.starting.offset, batch.ending.offset) == (EARLIEST, LATEST)
    assert stream.starting.offset == LATEST
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert stream.group_id is None
    assert stream.max_offsets_per_trigger is None


@pytest.mark.spec("D1")
def test_every_option_is_read_whatever_its_case() -> None:
    options = parse_read_options(
        {
            "KAFKA.bootstrap.SERVERS": "h1:1,h2:2",
            "SUBSCRIBE": " a , b,a",
            "startingoffsets": '{"a": {"0": 5}, "b": {"0": -2}}',
            "MaxOffsetsPerTrigger": "1000",
            "minPartitions": "8",
            "failOnDataLoss": "FALSE",
            "includeHeaders": "true",
            "kafka.group.id": "g",
            "kafka.client.id": "c",
            "kafka.request.timeout.ms": "1500",
            "kafka.fetch.max.bytes": "2000000",
            "kafka.security.protocol": "plaintext",
            "rowsPerBatch": "4000",
        },
        streaming=True,
    )
    assert options.connection.bootstrap_servers == "h1:1,h2:2"
    assert options.connection.client_id == "c"
    assert options.connection.request_timeout_ms == 1_500
    assert options.selection.topics == ("a", "b")
    assert options.starting.offsets == {TopicPartition("a", 0): 5, TopicPartition("b", 0): -2}
    assert options.max_offsets_per_trigger == 1_000
    assert options.min_partitions == 8
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert options.group_id == "g"
    assert (options.fetch_max_bytes, options.rows_per_batch) == (2_000_000, 4_000)


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
        ({"topic": "a"}, True, "unknown option 'topic' when reading"),
        ({"path": "/x"}, True, "option path is not served when reading: name topics with subscribe"),
        ({"kafka.auto.offset.reset": "latest"}, True, "use startingOffsets"),
        ({"kafka.security.protocol": "SASL_SSL"}, True, "'SASL_SSL' is not served yet"),
        ({"startingOffsets": "first"}, True, "neither earliest, latest nor JSON"),
        ({"startingOffsets": "{"}, True, "option startingOffsets: not JSON"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, True, "contradict each other"),
        ({"startingTimestamp": "soon"}, True, "not a whole number"),
        ({"endingOffsets": "latest"}, True, "for batch reads only"),
        ({"endingTimestamp": "5"}, True, "for batch reads only"),
        ({"startingOffsets": "latest"}, False, "a batch read cannot start at latest"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, False, "a batch read cannot start at latest"),
        ({"endingOffsets": "earliest"}, False, "cannot end at earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, False, "cannot end at earliest"),
        ({"maxOffsetsPerTrigger": "5"}, False, "for streams only"),
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
    assert parse_read_options(only_servers | {"subscribePattern": "a.*"}, streaming=True).selection.pattern == "a.*"
    assigned = parse_read_options(only_servers | {"assign": '{"a": [2]}'}, streaming=True).selection.assigned
    assert assigned == (TopicPartition("a", 2),)
    for wrong in ({"subscribePattern": "a("}, {"assign": "{}"}):
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


def test_write_options() -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    plain = parse_write_options(servers)
    assert (plain.topic, plain.acks, plain.compression_type, plain.batch_size) == (None, -1, "none", None)
    full = parse_write_options(
        servers | {"topic": "t", "kafka.acks": "1", "kafka.compression.type": "zstd", "kafka.batch.size": "9"}
    )
    assert (full.topic, full.acks, full.compression_type, full.batch_size) == ("t", 1, "zstd", 9)
    assert parse_write_options(servers | {"checkpointLocation": "/c", "queryName": "q"}).topic is None


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        ({"subscribe": "a"}, "unknown option 'subscribe' when writing"),
        ({"kafka.acks": "2"}, "'2' is not one of all, -1, 0, 1"),
        ({"kafka.compression.type": "lzma"}, "'lzma' is not one of"),
    ],
)
def test_a_wrong_write_option_is_refused(extra: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_write_options({"kafka.bootstrap.servers": "h:1"} | extra)
    assert complaint in str(refused.value)
