"""Changes of the cluster that are asked for while ZooKeeper is away for longer than the session: they wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.peer.connection import open_connection
from ottla.peer.settings import ConnectionSettings
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from support.simulated_cluster.brokers import PORT, SimulatedCluster

pytestmark = pytest.mark.spec("R1")

AWAY_S = 30.0
#: How long ZooKeeper is away after the request has come.
STILL_AWAY_S = 10.0
TIMEOUT_MS = 20_000


def creation(name: str, timeout_ms: int = TIMEOUT_MS) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


#: A request, its version, and where its error stands.
REQUESTS: dict[str, tuple[Any, int, Callable[[Any], int]]] = {
    "CreateTopics": (creation("new"), 7, lambda answer: answer.topics[0].error_code),
    "CreatePartitions": (
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)],
            timeout_ms=TIMEOUT_MS,
            validate_only=False,
        ),
        3,
        lambda answer: answer.results[0].error_code,
    ),
    "DeleteTopics": (
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=TIMEOUT_MS),
        6,
        lambda answer: answer.responses[0].error_code,
    ),
    "AlterPartitionReassignments": (
        AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])],
            timeout_ms=TIMEOUT_MS,
        ),
        0,
        lambda answer: answer.error_code or answer.responses[0].partitions[0].error_code,
    ),
    "ElectLeaders": (
        ElectLeadersRequest(
            election_type=0,
            topic_partitions=[TopicPartitions(topic="t", partitions=[0])],
            timeout_ms=TIMEOUT_MS,
        ),
        2,
        lambda answer: answer.replica_election_results[0].partition_result[0].error_code,
    ),
}


def asked_while_away(request: Any, version: int, error_of: Callable[[Any], int], *, comes_back: bool) -> ErrorCode:
    cluster = SimulatedCluster(1, brokers=1, settings={"min.insync.replicas": "1"})

    async def script(_: SimulatedCluster) -> ErrorCode:
        machine = cluster.brokers[1]
        await machine.start()
        settings = ConnectionSettings(client_id="admin", request_timeout_ms=60_000)
        connection = await open_connection(machine.host, PORT, settings, cluster.environment("client"))
        made = await connection.request(creation("t"), versions=(7, 7))
        assert made.topics[0].error_code == ErrorCode.NONE
        zk = machine.zk
        assert zk is not None
        zk.cut()
        await asyncio.sleep(AWAY_S)  # sleep: in virtual time
        asked = asyncio.ensure_future(connection.request(request, versions=(version, version)))
        await asyncio.sleep(STILL_AWAY_S)  # sleep: in virtual time
        if comes_back:
            assert not asked.done(), "it has waited for so long"
            await zk.reconnect()
        error = ErrorCode(error_of(await asked))
        connection.close()
        return error

    found = cluster.run(script)
    assert isinstance(found, ErrorCode)
    return found


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_waits_for_zookeeper_and_the_election_after_it(name: str) -> None:
    wanted = ErrorCode.ELECTION_NOT_NEEDED if name == "ElectLeaders" else ErrorCode.NONE
    assert asked_while_away(*REQUESTS[name], comes_back=True) is wanted


def test_it_waits_no_longer_than_it_may() -> None:
    _, version, error_of = REQUESTS["CreateTopics"]
    found = asked_while_away(creation("new", timeout_ms=5_000), version, error_of, comes_back=False)
    assert found is ErrorCode.REQUEST_TIMED_OUT
