"""Spark's own Kafka connector, unchanged, against our broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from ottla.records.record import Record
from support.filled_topics import fill_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.ottla_server import OttlaServer

pytestmark = pytest.mark.needs_connector

START_MS = 1_357_017_300_123


@pytest.mark.spec("D2")
def test_a_batch_read_gives_every_record_as_it_is(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str
) -> None:
    odd = [
        Record(0, START_MS, None, b"no key"),
        Record(0, START_MS + 1, b"no value", None),
        Record(0, START_MS + 2, b"", b"", (("a", b"1"), ("a", None), ("\u00fc", b""))),
    ]
    fill_topic(shared_ottla_server, unique, [odd, [Record(0, START_MS + n, b"k", b"%d" % n) for n in range(500)], []])
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", shared_ottla_server.bootstrap)
    frame = reader.options(subscribe=unique, includeHeaders="true").load()
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [(0, 0), (0, 1), (0, 2), *((1, n) for n in range(500))]
    assert [(row.key, row.value) for row in rows[:3]] == [(None, b"no key"), (b"no value", None), (b"", b"")]
    assert [bytes(row.value) for row in rows[3:]] == [b"%d" % n for n in range(500)]
    assert [(header.key, header.value) for header in rows[2].headers] == [("a", b"1"), ("a", None), ("\u00fc", b"")]
    assert {row.topic for row in rows} == {unique}
    assert {row.timestampType for row in rows} == {0}
    assert rows[0].timestamp.astimezone(UTC) == datetime.fromtimestamp(START_MS / 1_000, UTC)
