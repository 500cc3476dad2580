"""The figures of replication and of the controller, as metrics say them, on a cluster that lacks something."""

from __future__ import annotations

import pytest

from ottla.broker.metrics.catalogue import BROKER_METRICS
from ottla.client.sync import Admin, Consumer, Producer
from ottla.testing import Cluster
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("R1")]
REPLICAS, CONTROLLER = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"


def value(cluster: Cluster, name: str, labels: dict[str, str] | None = None) -> float:
    """The metric, with these labels among its own, summed up over the brokers that run."""
    (metric,) = [each for each in BROKER_METRICS if each.declaration.name == name]

    async def read() -> float:
        brokers = [cluster.broker(each) for each in cluster.running]
        names, wanted = metric.declaration.labels, (labels or {}).items()
        return sum(
            number
            for broker in brokers
            for values, number in filter(None, metric.read(broker))
            if wanted <= dict(zip(names, values, strict=True)).items()
        )

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


@pytest.mark.spec("U3")
def test_records_count_once_at_their_leader_and_their_copies_at_the_others() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=1)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            for _ in range(5):
                producer.send("orders", b"x" * 100)
        topics, with_topic = "kafka_server_brokertopicmetrics_", {"topic": "orders"}
        taken = value(cluster, f"{topics}bytesin_total", with_topic)
        assert taken > 500
        assert value(cluster, f"{topics}messagesin_total", with_topic) == 5
        assert value(cluster, "kafka_topic_partition_current_offset", with_topic) == 5
        assert value(cluster, "kafka_topic_partitions", with_topic) == 1
        assert value(cluster, "kafka_brokers") == 3
        for direction in ("in", "out"):
            name = f"{topics}replicationbytes{direction}_total"
            wait_until(lambda name=name: value(cluster, name) >= 2 * taken, "two copies")
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest"}
        with Consumer(settings) as consumer:
            consumer.subscribe(["orders"])
            wait_until(lambda: len(consumer.poll(100)), "records")
            consumer.commit()
        wait_until(lambda: value(cluster, "kafka_consumergroup_current_offset", with_topic) == 5, "the commit")
        assert value(cluster, "kafka_consumergroup_lag", with_topic) == 0
        assert value(cluster, f"{topics}bytesout_total", with_topic) >= taken
        requests = "kafka_network_requestmetrics_requests_total"
        of_consumers = value(cluster, requests, {"request": "FetchConsumer"})
        of_followers = value(cluster, requests, {"request": "FetchFollower"})
        assert of_consumers > 0
        assert of_followers > 0
        assert value(cluster, requests, {"request": "Fetch"}) >= of_consumers + of_followers
        times = "kafka_network_requestmetrics_totaltimems"
        kinds = [{"request": each, "quantile": "0.50"} for each in ("FetchConsumer", "FetchFollower")]
        wait_until(lambda: sum(value(cluster, times, each) for each in kinds) > 0, "a fetch that is timed")
        leader = cluster.wait_for_leader("orders")
        follower = next(each for each in cluster.running if each not in (leader, cluster.controller))
        cluster.kill(follower)
        cluster.restart(follower)
        cluster.wait_until_in_sync("orders")
        wait_until(lambda: value(cluster, f"{REPLICAS}isrexpands_total") > 0, "the ISR to grow")


@pytest.mark.spec("U3")
def test_a_broker_that_waits_for_the_leader_of_a_partition_is_ready() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=2)
        controller = cluster.controller
        index = next(each for each in range(3) if controller not in cluster.replicas("orders", each))
        leader, follower = cluster.replicas("orders", index)
        cluster.kill(follower)
        wait_until(lambda: cluster.in_sync("orders", index) == (leader,), "the ISR to shrink")
        cluster.kill(leader)
        wait_until(lambda: cluster.leader("orders", index) is None, "the leader to be missed")
        cluster.restart(follower)
        wait_until(lambda: value(cluster, "ottla_ready") == 2, "both to be ready")
        assert cluster.leader("orders", index) is None
        cluster.restart(leader)
        wait_until(lambda: value(cluster, "ottla_ready") == 3, "all to be ready")
