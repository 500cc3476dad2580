"""What brokers of both makes answer alike in one cluster: at a follower, at one that is not the controller, on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop.cluster.mixes import ASSIGNMENT
from ottla.env.environment import Environment
from ottla.peer.connection import open_connection
from ottla.peer.settings import ConnectionSettings
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.metadata import MetadataRequest
from support.tapped_cluster import TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.spec("R8")]

TOPIC = "answers"


def ask(cluster: TappedCluster, broker_id: int, request: Any, version: int) -> Any:
    async def asked() -> Any:
        settings = ConnectionSettings(client_id="test", request_timeout_ms=30_000)
        host, _, port = cluster.brokers[broker_id].bootstrap.rpartition(":")
        connection = await open_connection(host, int(port), settings, Environment())
        try:
            return await connection.request(request, versions=(version, version))
        finally:
            connection.close()

    return asyncio.run(asked())


def producers(cluster: TappedCluster, broker_id: int) -> list[tuple[str, int]]:
    """Of each partition the error, and how many producers the broker's replica knows."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0, 1, 2, 3])])
    found = ask(cluster, broker_id, request, 0).topics[0].partitions
    return [(ErrorCode(each.error_code).name, len(each.active_producers)) for each in found]


def not_controller(cluster: TappedCluster, broker_id: int) -> list[str]:
    """Errors of requests to a broker that is not the controller."""
    wanted = [TopicPartitions(topic=TOPIC, partitions=[0])]
    elected = ask(
        cluster, broker_id, ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=5_000), 2
    )
    result = elected.replica_election_results[0].partition_result[0]
    shutdown = ask(cluster, broker_id, ControlledShutdownRequest(broker_id=broker_id, broker_epoch=-1), 2)
    return [ErrorCode(code).name for code in (elected.error_code, result.error_code, shutdown.error_code)]


def offline(cluster: TappedCluster, broker_id: int) -> list[list[int]]:
    [topic] = [each for each in ask(cluster, broker_id, MetadataRequest(topics=None), 9).topics if each.name == TOPIC]
    return [each.offline_replicas for each in sorted(topic.partitions, key=lambda each: each.partition_index)]


def test_followers_and_those_that_are_not_the_controller_answer_alike(tmp_path: Path) -> None:
    with TappedCluster(tmp_path, ("ottla", "apache", "ottla")).prepared() as cluster:
        cluster.start_all()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 3, replica_assignment=ASSIGNMENT)])[TOPIC].result(60)
        cluster.wait_for_isr(TOPIC)
        for broker in cluster.brokers.values():
            for index in range(3):
                path = broker.log_dir / f"{TOPIC}-{index}" / "partition.metadata"
                wait_until(path.exists, f"{path}, before anything is appended")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        for index in range(3):
            producer.produce(TOPIC, b"v", partition=index)
        assert producer.flush(120) == 0
        known = [("NONE", 1)] * 3 + [("UNKNOWN_TOPIC_OR_PARTITION", 0)]
        for broker_id in cluster.brokers:
            wait_until(lambda broker_id=broker_id: producers(cluster, broker_id) == known, "replicas have the records")
        assert cluster.controller() == 1
        assert not_controller(cluster, 2) == not_controller(cluster, 3)
        assert not_controller(cluster, 3) == ["NONE", "NOT_CONTROLLER", "STALE_CONTROLLER_EPOCH"]
        cluster.brokers[3].kill9()
        cluster.wait_until_gone(3)
        for broker_id in (1, 2):
            wait_until(lambda broker_id=broker_id: offline(cluster, broker_id) == [[3]] * 3, "3 is named offline")
