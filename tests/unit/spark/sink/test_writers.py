"""The writers, without Spark around them: which frames they take, what they send."""

from __future__ import annotations

import datetime

import pyarrow
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.spark.connection import ConnectionOptions
from ottla.spark.errors import OptionError
from ottla.spark.sink.columns import check_columns
from ottla.spark.sink.options import WriteOptions
from ottla.spark.sink.writers import BatchWriter, RecordsWritten, StreamWriter, write_rows

TO_TOPIC = WriteOptions(ConnectionOptions("h:1"), topic="t")
ANYWHERE = WriteOptions(ConnectionOptions("h:1"))
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
FULL = (
    "key binary, value binary, headers headers, topic string, partition int, timestamp timestamp, offset bigint, "
    "timestampType int"
)


def _frame(columns: str) -> StructType:
    named = [each.split() for each in columns.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in named])


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("value string", TO_TOPIC),
        ("value binary, key string", TO_TOPIC),
        ("value string, topic string", ANYWHERE),
        (FULL, ANYWHERE),
    ],
)
def test_frames_with_the_sink_s_columns_are_taken(columns: str, options: WriteOptions) -> None:
    check_columns(_frame(columns), options)


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ("key string", TO_TOPIC, "no column named value; it has key"),
        ("value string", ANYWHERE, "give the option topic or a column of that name"),
        ("value int", TO_TOPIC, "column value is int; cast it to string or binary"),
        ("value string, partition string", TO_TOPIC, "column partition is string; cast it to integer"),
        ("value string, colour string", TO_TOPIC, "column colour has no place in a record"),
    ],
)
def test_other_frames_are_refused(columns: str, options: WriteOptions, complaint: str) -> None:
    with pytest.raises(OptionError) as refused:
        check_columns(_frame(columns), options)
    assert complaint in str(refused.value)


@pytest.mark.spec("D1")
def test_records_keep_partition_key_value_time_headers_and_order(cluster) -> None:
    moment = datetime.datetime(2013, 1, 1, 5, 15, 0, 123_000, tzinfo=datetime.UTC)
    batch = pyarrow.record_batch(
        {
            "key": pyarrow.array([b"k", None], pyarrow.binary()),
            "value": pyarrow.array([None, b"v"], pyarrow.binary()),
            "partition": pyarrow.array([3, None], pyarrow.int32()),
            "timestamp": pyarrow.array([moment, None], pyarrow.timestamp("us", tz="UTC")),
            "headers": pyarrow.array(
                [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None],
                pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])),
            ),
        }
    )
    assert write_rows(iter([batch, batch]), TO_TOPIC) == RecordsWritten(4)
    first = ("t", None, b"k", 3, 1_357_017_300_123, (("a", b"1"), ("a", None)))
    second = ("t", b"v", None, None, None, ())
    assert cluster.sent == [first, second, first, second]
    assert cluster.flushed == 1, "acknowledged before the task ends"
    assert [future.calls for future in cluster.futures] == [1, 1], "failures are heard of"


def test_strings_are_sent_as_utf_8(cluster) -> None:
    batch = pyarrow.record_batch({"value": ["grün"], "key": ["ключ"]})
    write_rows(iter([batch]), TO_TOPIC)
    assert cluster.sent[0][:3] == ("t", "grün".encode(), "ключ".encode())


def test_the_topic_comes_from_the_option_or_each_row(cluster) -> None:
    batch = pyarrow.record_batch({"value": ["1", "2"], "topic": ["a", "b"]})
    write_rows(iter([batch]), ANYWHERE)
    assert [record[0] for record in cluster.sent] == ["a", "b"]
    cluster.sent.clear()
    write_rows(iter([batch]), TO_TOPIC)
    assert [record[0] for record in cluster.sent] == ["t", "t"]


def test_a_row_without_topic_is_refused(cluster) -> None:
    batch = pyarrow.record_batch({"value": ["1"], "topic": pyarrow.array([None], pyarrow.string())})
    with pytest.raises(OptionError, match="a row has no topic"):
        write_rows(iter([batch]), ANYWHERE)


def test_producer_settings_are_handed_on(cluster) -> None:
    settings = {"acks": "1", "compression.type": "lz4", "batch.size": "7"}
    write_rows(iter(()), WriteOptions(ConnectionOptions("h:1", settings), topic="t"))
    assert cluster.producer_settings == {"bootstrap.servers": "h:1", "client.id": "ottla-spark", **settings}


@pytest.mark.parametrize("writer", [BatchWriter, StreamWriter])
def test_both_writers_send(cluster, writer: type[BatchWriter]) -> None:
    assert writer(TO_TOPIC).write(iter([pyarrow.record_batch({"value": ["x"]})])) == RecordsWritten(1)
    assert cluster.sent == [("t", b"x", None, None, None, ())]
