"""The figures of replication and of the controller, as metrics say them, on a cluster that lacks something."""

from __future__ import annotations

import pytest

from ottla.broker.metrics.catalogue import BROKER_METRICS
from ottla.client.sync import Admin
from ottla.testing import Cluster
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("R1")]
REPLICAS, CONTROLLER = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"


def value(cluster: Cluster, name: str) -> float:
    """The metric, summed up over the brokers that run."""
    (metric,) = [each for each in BROKER_METRICS if each.declaration.name == name]

    async def read() -> float:
        brokers = [cluster.broker(each) for each in cluster.running]
        return sum(number for broker in brokers for _, number in metric.read(broker))

    return cluster._running.run(read())


def test_replicas_that_lag_and_partitions_without_a_leader() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=3, min_insync_replicas=2)
        cluster.create_topic("alone", partitions=3, replication_factor=1)
        wait_until(lambda: value(cluster, f"{REPLICAS}leadercount") == 6, "all leaders to know it")
        assert value(cluster, f"{REPLICAS}underreplicatedpartitions") == 0
        assert value(cluster, f"{REPLICAS}atminisrpartitioncount") == 0
        assert value(cluster, f"{CONTROLLER}activecontrollercount") == 1
        assert value(cluster, "ottla_log_directory_usable_bytes") > 0
        gone = next(each for each in cluster.running if each != cluster.controller)
        cluster.kill(gone)
        wait_until(lambda: value(cluster, f"{REPLICAS}underreplicatedpartitions") == 3, "three to lack a replica")
        assert value(cluster, f"{REPLICAS}atminisrpartitioncount") == 3
        assert value(cluster, f"{REPLICAS}underminisrpartitioncount") == 0
        wait_until(lambda: value(cluster, f"{CONTROLLER}offlinepartitionscount") == 1, "one to have no leader")
        assert value(cluster, f"{CONTROLLER}preferredreplicaimbalancecount") == 2
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.delete_topics(["orders"])
        wait_until(lambda: value(cluster, f"{CONTROLLER}topicsineligibletodeletecount") == 1, "a deletion to wait")
        assert value(cluster, f"{CONTROLLER}topicstodeletecount") == 1
        cluster.restart(gone)
        wait_until(lambda: value(cluster, f"{CONTROLLER}topicstodeletecount") == 0, "the deletion to end")
