"""Several clusters in one query, several queries at once, and their groups as Kafka's tools show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interop.spark.sides import OFFICIAL, OURS, Batches, Side, places
from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from support.apache import ApacheKafka
from support.brokers import RunningBroker
from support.filled_topics import fill_topic, read_topic
from support.java import GROUP_TOOL, java_tool
from support.ottla_server import OttlaServer
from support.records_of_tests import numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APACHE_IN_LONG_RUNS = pytest.param("apache", marks=[pytest.mark.needs_kafka, pytest.mark.long])


@pytest.mark.needs_kafka
@pytest.mark.needs_connector
@pytest.mark.spec("D1", "D2")
@pytest.mark.parametrize(
    "connectors",
    [
        pytest.param((OURS, OURS), id="both-ours"),
        pytest.param((OURS, OFFICIAL), id="one-official", marks=pytest.mark.long),
    ],
)
def test_one_query_reads_two_clusters_and_writes_to_one(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    apache_kafka: ApacheKafka,
    unique: str,
    tmp_path: Path,
    connectors: tuple[str, str],
) -> None:
    here, there = Side(connectors[0], shared_ottla_server), Side(connectors[1], apache_kafka)
    fill_topic(here.broker, unique, [numbered(40), numbered(20)])
    fill_topic(there.broker, unique, [numbered(100, first=1_000)])
    fill_topic(here.broker, f"{unique}-to", [[]])
    streams = [side.stream(spark, subscribe=unique, startingOffsets="earliest") for side in (here, there)]
    both = streams[0].union(streams[1]).select("key", "value")
    here.write_available(both, tmp_path / "checkpoint", topic=f"{unique}-to")
    fill_topic(there.broker, unique, [numbered(5, first=1_100)], create=False)
    here.write_available(both, tmp_path / "checkpoint", topic=f"{unique}-to")
    written = sorted(record.value or b"" for record in read_topic(here.broker, f"{unique}-to")[0])
    numbers = [*range(40), *range(20), *range(1_000, 1_105)]
    assert written == sorted(b"value %d" % number for number in numbers)


@pytest.mark.spec("D1", "D4")
@pytest.mark.parametrize("broker", ["ottla", APACHE_IN_LONG_RUNS], indirect=True)
def test_queries_at_once_have_their_own_groups(
    spark: SparkSession, broker: RunningBroker, unique: str, tmp_path: Path
) -> None:
    fill_topic(broker, unique, [numbered(200), numbered(100)])
    side = Side(OURS, broker)
    names = ("first", "second", "third")
    noted = {name: Batches() for name in names}
    queries = {}
    try:
        for name in names:
            options = {"kafka.group.id": f"{unique}-{name}", "maxOffsetsPerTrigger": "90"}
            stream = side.stream(spark, subscribe=unique, startingOffsets="earliest", **options)
            queries[name] = noted[name].start(stream, tmp_path / name)
        fill_topic(broker, unique, [numbered(100), numbered(100)], create=False)
        for query in queries.values():
            query.processAllAvailable()
    finally:
        for query in queries.values():
            query.stop()
    for name in names:
        assert noted[name].seen == places(unique, (0, 0, 300), (1, 0, 200))


def committed(broker: RunningBroker, group: str) -> dict[int, tuple[int, int]]:
    """Offset and lag of each partition, as Apache Kafka's tool shows them."""
    shown = java_tool(
        GROUP_TOOL, "--bootstrap-server", broker.bootstrap, "--describe", "--group", group, check=False
    ).stdout
    lines = [line.split() for line in shown.splitlines() if line.startswith(group)]
    return {int(line[2]): (int(line[3]), int(line[5])) for line in lines}


@pytest.mark.needs_kafka
@pytest.mark.spec("D4")
@pytest.mark.parametrize("broker", ["ottla", APACHE_IN_LONG_RUNS], indirect=True)
def test_groups_are_seen_by_the_tools_of_kafka(
    spark: SparkSession, broker: RunningBroker, unique: str, tmp_path: Path
) -> None:
    fill_topic(broker, unique, [numbered(200), numbered(100)])
    options = {"subscribe": unique, "startingOffsets": "earliest", "kafka.group.id": unique}
    batches = Batches()
    batches.run(Side(OURS, broker).stream(spark, **options), tmp_path / "checkpoint")
    fill_topic(broker, unique, [numbered(7), []], create=False)
    assert committed(broker, unique) == {0: (200, 7), 1: (100, 0)}, "the last batch is committed, too"
    partitions = [TopicPartition(unique, number) for number in (0, 1)]
    with Client(broker.bootstrap) as client:
        assert client.committed(unique, partitions) == dict(zip(partitions, (200, 100), strict=True))
    assert json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]) == {
        unique: {"0": 200, "1": 100}
    }
