"""Whom Produce and Fetch name as leader to a client that asked another broker, or in an old leader epoch (KIP-951)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.server import Broker
from ottla.cluster.image import BrokerImage, ImageDelta, PartitionImage
from ottla.config.listeners import Endpoint
from ottla.wire.errors import ErrorCode
from unit.broker.handlers.test_roles import OTHER, ask_fetch, ask_produce, follow, lead, topic_of, with_broker

pytestmark = pytest.mark.spec("R2")

WRONG = ErrorCode.NOT_LEADER_OR_FOLLOWER


def introduce(broker: Broker) -> None:
    """Have the image know the other broker."""
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "other.example", 9095)
    brokers = {**broker.image.brokers, OTHER: BrokerImage(OTHER, (endpoint,), "r2")}
    broker.image.apply(ImageDelta(brokers=brokers))


async def named(asked: Any) -> tuple[int, int, int, list[tuple[int, str, int, str | None]]]:
    """Error, leader and epoch of the one partition, and the endpoints of the response."""
    answer = await asked.answered()
    (topic,) = answer.responses
    (one,) = getattr(topic, "partition_responses", None) or topic.partitions
    endpoints = [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
    return one.error_code, one.current_leader.leader_id, one.current_leader.leader_epoch, endpoints


THERE = [(OTHER, "other.example", 9095, "r2")]


def test_a_follower_names_its_leader(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        introduce(broker)
        follow(broker, 3)
        assert await named(ask_produce(broker, version=10)) == (WRONG, OTHER, 3, THERE)
        assert await named(ask_produce(broker, version=9)) == (WRONG, -1, -1, [])
        fenced = ErrorCode.FENCED_LEADER_EPOCH
        assert await named(ask_fetch(broker, version=16, epoch=2)) == (fenced, OTHER, 3, THERE)
        assert await named(ask_fetch(broker, version=15, epoch=2)) == (fenced, -1, -1, [])

    with_broker(tmp_path, scenario)


def test_a_leader_names_itself_to_who_knows_an_old_epoch(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        lead(broker, 5)
        error, leader, epoch, endpoints = await named(ask_fetch(broker, version=17, epoch=4))
        assert (error, leader, epoch) == (ErrorCode.FENCED_LEADER_EPOCH, broker.id, 5)
        own = broker.image.brokers[broker.id].endpoints[0]
        assert endpoints == [(broker.id, own.host, own.port, None)]
        error, leader, epoch, endpoints = await named(ask_fetch(broker, version=17, epoch=6))
        assert (error, leader, endpoints) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, []), "the client knows better"

    with_broker(tmp_path, scenario)


def test_a_partition_of_other_brokers_is_answered_from_the_image(tmp_path: Path) -> None:
    """It exists, so that the client is to look for its leader; a partition that nobody has is unknown."""

    async def scenario(broker: Broker) -> None:
        introduce(broker)
        topic = topic_of(broker)
        state = PartitionImage(OTHER, 7, (OTHER,), (OTHER,))
        assert broker.partitions.delete("t", 0)
        broker.image.apply(ImageDelta((broker.image.delta_of("t", topic._replace(partitions=(state,))),)))
        assert await named(ask_produce(broker, version=11)) == (WRONG, OTHER, 7, THERE)
        assert await named(ask_fetch(broker, version=17)) == (WRONG, OTHER, 7, THERE)
        broker.image.apply(ImageDelta((broker.image.delta_of("t", topic._replace(partitions=())),)))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await named(ask_produce(broker, version=11)) == (unknown, -1, -1, [])
        assert await named(ask_fetch(broker, version=17)) == (unknown, -1, -1, [])

    with_broker(tmp_path, scenario)


def test_without_a_leader_that_is_known_nobody_is_named(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        follow(broker, 3)
        assert await named(ask_produce(broker, version=10)) == (WRONG, OTHER, 3, []), "it is not registered"

    with_broker(tmp_path, scenario)


def test_a_replica_without_a_role_is_not_read(tmp_path: Path) -> None:
    """Its log may lack anything; Apache Kafka has no such partition after StopReplica."""

    async def scenario(broker: Broker) -> None:
        assert broker.partitions.stop("t", 0)
        error, leader, _, _ = await named(ask_fetch(broker, version=17))
        assert (error, leader) == (WRONG, broker.id), "as the image says, which is told later"

    with_broker(tmp_path, scenario)
