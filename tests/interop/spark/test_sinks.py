"""Frames and streams written by our sink and by Spark's own, to ottla and to Apache Kafka: the same records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from interop.spark.sides import OURS_ON_BOTH, Side
from ottla.records.building import partition_for_key
from ottla.records.record import Record
from support.filled_topics import fill_topic, read_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_MS = 1_357_017_300_123


def contents(records: Sequence[Record]) -> list[Any]:
    """What a record says, without its time."""
    return [(record.key, record.value, tuple(record.headers)) for record in records]


def keyed(spark: SparkSession, count: int) -> DataFrame:
    """Records k0 to k6 in turn, in one task."""
    return spark.range(0, count, 1, 1).selectExpr("concat('k', id % 7) AS key", "concat('value ', id) AS value")


@pytest.mark.spec("D1", "D2")
@pytest.mark.parametrize("side", OURS_ON_BOTH, indirect=True)
def test_a_frame_is_written_by_key_with_headers_and_nulls(spark: SparkSession, side: Side, unique: str) -> None:
    fill_topic(side.broker, unique, [[], [], []])
    rows = [
        (b"a", b"1", [("h", b"x"), ("h", None), ("\u00fc", b"")]),
        (b"a", None, None),
        (b"b", b"", []),
        (b"", b"3", None),
        (b"c" * 1_000, b"4" * 100_000, None),
    ]
    frame = spark.createDataFrame(rows, "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>")
    side.write(frame.coalesce(1), topic=unique, includeHeaders="true")
    written = [contents(records) for records in read_topic(side.broker, unique)]
    expected: list[list[Any]] = [[], [], []]
    for key, value, headers in rows:
        expected[partition_for_key(key, 3)].append((key, value, tuple(headers or ())))
    assert written == expected


@pytest.mark.spec("D1", "D2")
@pytest.mark.parametrize("side", OURS_ON_BOTH, indirect=True)
def test_columns_name_topics_and_partitions(spark: SparkSession, side: Side, unique: str) -> None:
    for name in ("a", "b"):
        fill_topic(side.broker, f"{unique}-{name}", [[], [], []])
    frame = spark.range(0, 30, 1, 1).selectExpr(
        "concat('v', id) AS value",
        f"CASE WHEN id % 2 = 0 THEN '{unique}-a' ELSE '{unique}-b' END AS topic",
        "CAST(id % 3 AS INT) AS partition",
    )
    side.write(frame)
    for number, name in enumerate(("a", "b")):
        written = [[record.value for record in records] for records in read_topic(side.broker, f"{unique}-{name}")]
        assert written == [[b"v%d" % n for n in range(30) if n % 2 == number and n % 3 == part] for part in range(3)]


@pytest.mark.spec("D1", "D2")
def test_a_stream_is_written_and_goes_on_where_it_was(
    spark: SparkSession, side: Side, unique: str, tmp_path: Path
) -> None:
    records = [Record(0, START_MS + n, b"k%d" % (n % 7), b"value %d" % n) for n in range(500)]
    fill_topic(side.broker, f"{unique}-from", [records[:300], records[300:400]])
    fill_topic(side.broker, f"{unique}-to", [[], [], []])
    stream = side.stream(spark, subscribe=f"{unique}-from", startingOffsets="earliest", maxOffsetsPerTrigger="150")
    copied = stream.select("key", "value")
    side.write_available(copied, tmp_path / "checkpoint", topic=f"{unique}-to")
    fill_topic(side.broker, f"{unique}-from", [records[400:], []], create=False)
    side.write_available(copied, tmp_path / "checkpoint", topic=f"{unique}-to")
    written = read_topic(side.broker, f"{unique}-to")
    assert sorted(each for part in written for each in contents(part)) == sorted(contents(records))
    for number, part in enumerate(written):
        assert {partition_for_key(record.key or b"", 3) for record in part} <= {number}


@pytest.mark.spec("D1", "D2")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_frames_are_compressed_as_asked(spark: SparkSession, side: Side, unique: str, codec: str) -> None:
    fill_topic(side.broker, unique, [[]])
    side.write(keyed(spark, 1_000), topic=unique, **{"kafka.compression.type": codec})
    assert [record.value for record in read_topic(side.broker, unique)[0]] == [b"value %d" % n for n in range(1_000)]
