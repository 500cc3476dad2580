"""Queries of both connectors that continue while brokers die and come back, and stand still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla.testing
from interop.spark.sides import OFFICIAL, OURS, Batches, Side, places
from support.brokers import Address
from support.filled_topics import fill_topic
from support.records_of_tests import numbered
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spec("D1", "D2")

TOPIC = "events"
#: Records in each of the topic's partitions, for each turn.
COUNT = 300
PARTITIONS = 3
#: Seconds in which a first batch comes, on a machine that is busy too.
START_S = 300.0


@pytest.fixture
def cluster() -> Iterator[ottla.testing.Cluster]:
    with ottla.testing.Cluster(3) as made:
        made.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas=2, retention_ms=-1)
        yield made


@pytest.fixture(params=[OURS, pytest.param(OFFICIAL, marks=[pytest.mark.needs_connector, pytest.mark.long])])
def side(request: pytest.FixtureRequest, cluster: ottla.testing.Cluster) -> Side:
    """Our connector on the cluster, in long runs Spark's own, too."""
    return Side(request.param, Address(cluster.bootstrap_servers))


def fill(side: Side) -> None:
    fill_topic(side.broker, TOPIC, [numbered(COUNT)] * PARTITIONS, create=False)


def test_leaders_die_and_come_back_while_a_stream_runs(
    spark: SparkSession, side: Side, cluster: ottla.testing.Cluster, tmp_path: Path
) -> None:
    fill(side)
    stream = side.stream(spark, subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger="500")
    batches = Batches()
    query = batches.start(stream, tmp_path / "checkpoint")
    try:
        for broker_id in list(cluster.running):
            wait_until(lambda: batches.places, "the first batches", START_S)
            cluster.kill(broker_id)
            for partition in range(PARTITIONS):
                cluster.wait_for_leader(TOPIC, partition, other_than=broker_id)
            fill(side)
            query.processAllAvailable()
            cluster.restart(broker_id)
            wait_until(
                lambda: all(len(cluster.in_sync(TOPIC, each)) == 3 for each in range(PARTITIONS)),
                "replicas in sync",
                START_S,
            )
        query.processAllAvailable()
        assert batches.seen == places(TOPIC, *((each, 0, 4 * COUNT) for each in range(PARTITIONS)))
    finally:
        query.stop()


def test_all_brokers_are_gone_for_a_while(
    spark: SparkSession, side: Side, cluster: ottla.testing.Cluster, tmp_path: Path
) -> None:
    fill(side)
    stream = side.stream(spark, subscribe=TOPIC, startingOffsets="earliest")
    batches = Batches()
    query = batches.start(stream, tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        before = list(cluster.running)
        for broker_id in before:
            cluster.kill(broker_id)
        for broker_id in before:
            cluster.restart(broker_id)
        for partition in range(PARTITIONS):
            cluster.wait_for_leader(TOPIC, partition)
        fill(side)
        query.processAllAvailable()
        assert batches.seen == places(TOPIC, *((each, 0, 2 * COUNT) for each in range(PARTITIONS)))
    finally:
        query.stop()


def test_a_sink_writes_while_a_leader_dies(
    spark: SparkSession, side: Side, cluster: ottla.testing.Cluster, tmp_path: Path
) -> None:
    stream = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=COUNT, numPartitions=2).load()
    written = stream.selectExpr("CAST(value AS STRING) AS value", f"CAST(value % {PARTITIONS} AS INT) AS partition")
    writer = written.writeStream.format(side.connector).option("kafka.bootstrap.servers", side.broker.bootstrap)
    query = writer.options(topic=TOPIC, checkpointLocation=str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: query.recentProgress, "the first batch", START_S)
        leader = cluster.wait_for_leader(TOPIC)
        cluster.kill(leader)
        cluster.wait_for_leader(TOPIC, other_than=leader)
        done = len(query.recentProgress)
        wait_until(lambda: len(query.recentProgress) > done + 2, "batches under the new leader", START_S)
    finally:
        query.stop()
    read = (
        Side(OURS, side.broker)
        .frame(spark, subscribe=TOPIC)
        .selectExpr("CAST(CAST(value AS STRING) AS LONG) AS number")
    )
    numbers = {row.number for row in read.collect()}
    committed = COUNT * len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))
    assert numbers >= set(range(committed)), "at least once"
