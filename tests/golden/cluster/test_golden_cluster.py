"""Refusals are those of Apache Kafka 3.9.1: `kafka_3_9_topic_errors.json` is what its broker 7 told an admin client."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ottla.broker.control.coordination import ClusterSession
from ottla.broker.control.plane import ControlPlane
from ottla.broker.control.startup import Startup
from ottla.cluster.controller_events import TopicCreated
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.listeners import Endpoint
from ottla.env.clock import VirtualClock
from ottla.env.randomness import Randomness
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import LocalClient
from ottla.zk.store import TreeStore

FOLDER = Path(__file__).parent
ERRORS: dict[str, str] = dict(json.loads((FOLDER / "kafka_3_9_topic_errors.json").read_text())["errors"])


SPECS: dict[str, TopicSpec] = {
    "exists": TopicSpec("plain", 2, 1),
    "exists_validate_only": TopicSpec("plain", 2, 1),
    "name .": TopicSpec(".", 1, 1),
    "name ..": TopicSpec("..", 1, 1),
    "name a b": TopicSpec("a b", 1, 1),
    "name a/b": TopicSpec("a/b", 1, 1),
    f"name {'x' * 250}": TopicSpec("x" * 250, 1, 1),
    "name näme": TopicSpec("näme", 1, 1),
    "name a:b": TopicSpec("a:b", 1, 1),
    "coll2": TopicSpec("a_b.c", 1, 1),
    "zero": TopicSpec("z", 0, 1),
    "neg": TopicSpec("z", -2, 1),
    "rf0": TopicSpec("z", 1, 0),
    "rf-2": TopicSpec("z", 1, -2),
    "rf4": TopicSpec("z", 1, 4),
    "badconf": TopicSpec("z", 1, 1, configs={"retention.msx": "1"}),
    "badvalue": TopicSpec("z", 1, 1, configs={"retention.ms": "-5"}),
    "badvalue2": TopicSpec("z", 1, 1, configs={"cleanup.policy": "shred"}),
    "badvalue3": TopicSpec("z", 1, 1, configs={"segment.bytes": "abc"}),
    "badvalue4": TopicSpec("z", 1, 1, configs={"preallocate": "yes"}),
    "lags": TopicSpec("z", 1, 1, configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
    "nullconf": TopicSpec("z", 1, 1, configs={"retention.ms": None}),
    "gap": TopicSpec("z", assignments={1: [7]}),
    "gap2": TopicSpec("z", assignments={0: [7], 2: [7]}),
    "unequal": TopicSpec("z", assignments={0: [7, 8], 1: [7]}),
    "internal": TopicSpec("__consumer_offsets", 1, 1),
    "cluster_metadata": TopicSpec("__cluster_metadata", 1, 1),
}
GROWTH: dict[str, tuple[str, int, list[list[int]] | None]] = {
    "plain 2": ("plain", 2, None),
    "plain 1": ("plain", 1, None),
    "plain 0": ("plain", 0, None),
    "plain -1": ("plain", -1, None),
    "nope 3": ("nope", 3, None),
    "assign-count": ("plain", 4, [[7]]),
    "assign-rf": ("plain", 3, [[7, 8]]),
    "assign-unknown": ("plain", 3, [[9]]),
    "assign-dup": ("plain", 3, [[7, 7]]),
    "assign-empty": ("plain", 3, [[]]),
    "validate-only": ("plain", 5, None),
}
#: Kafka's Java exceptions by error code.
EXCEPTIONS = {
    "TopicExistsException": "TOPIC_ALREADY_EXISTS",
    "InvalidTopicException": "INVALID_TOPIC_EXCEPTION",
    "InvalidPartitionsException": "INVALID_PARTITIONS",
    "InvalidReplicationFactorException": "INVALID_REPLICATION_FACTOR",
    "InvalidConfigurationException": "INVALID_CONFIG",
    "InvalidReplicaAssignmentException": "INVALID_REPLICA_ASSIGNMENT",
    "InvalidRequestException": "INVALID_REQUEST",
    "UnknownTopicOrPartitionException": "UNKNOWN_TOPIC_OR_PARTITION",
}


async def with_topics() -> ControlPlane:
    config = parse_broker_config({"broker.id": "7"})
    assert isinstance(config, BrokerConfig)
    zk = LocalClient(TreeStore.open(MemoryDisk(), "/t", VirtualClock(1)))
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)
    topics = ControlPlane(
        ClusterSession(zk),
        config,
        broker_id=7,
        endpoints=[endpoint],
        clock=VirtualClock(1),
        randomness=Randomness(1),
    )
    assert await Startup(topics).start() is None
    for name, partitions in (("plain", 2), ("a.b_c", 1)):
        assert isinstance(await topics.admin.create_topic(TopicSpec(name, partitions, 1)), TopicCreated)
    return topics


def check(result: object, kafka: str) -> None:
    exception, _, message = kafka.partition(": ")
    if kafka == "OK":
        assert not isinstance(result, TopicRefusal)
    else:
        assert isinstance(result, TopicRefusal)
        assert (result.error.name, result.message) == (EXCEPTIONS[exception], message)


@pytest.mark.parametrize("label", SPECS)
def test_creation_is_refused_in_kafkas_words(label: str) -> None:
    async def scenario() -> object:
        topics = await with_topics()
        return await topics.admin.create_topic(SPECS[label], validate_only="internal" in label or "only" in label)

    check(asyncio.run(scenario()), ERRORS[f"create {label}"])


@pytest.mark.parametrize("label", GROWTH)
def test_growth_is_refused_in_kafkas_words(label: str) -> None:
    async def scenario() -> object:
        topics = await with_topics()
        name, count, assignments = GROWTH[label]
        return await topics.admin.create_partitions(name, count, assignments, validate_only=label == "validate-only")

    check(asyncio.run(scenario()), ERRORS[f"partitions {label}"])


def test_deletion_is_refused_in_kafkas_words() -> None:
    async def scenario() -> object:
        return await (await with_topics()).admin.delete_topic("nope")

    check(asyncio.run(scenario()), ERRORS["delete unknown"])
