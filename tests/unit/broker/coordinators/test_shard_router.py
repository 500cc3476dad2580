"""The way from a key to its shard, for a kind of coordinator that is not that of groups."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from typing import Any

import pytest

from ottla.broker.coordinators.shard_router import RoutedTopic, ShardRouter, partition_of
from ottla.cluster.image import ImageDelta
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from unit.broker.coordinators.group_fakes import BROKER_ID, FakeLog, FakeTopics, broker_config

TOPIC = "__transaction_state"
PARTITIONS = "transaction.state.log.num.partitions"
FACTOR = "transaction.state.log.replication.factor"


class OneShard:
    def __init__(self) -> None:
        self.loading = False


class Routed:
    """A router beside topics that tell it of changes, as a broker does."""

    def __init__(self) -> None:
        self.shards: dict[int, Any] = {}
        self.topics = FakeTopics([self], FakeLog())  # type: ignore[list-item]
        routed = RoutedTopic(TOPIC, PARTITIONS, FACTOR, served="Transactions")
        log = logging.getLogger("ottla.transactions")
        self.router: ShardRouter[Any] = ShardRouter(routed, broker_config(), self.topics, self.shards, log)

    def image_changed(self, delta: ImageDelta) -> None:
        self.router.image_changed(delta)


def test_a_key_has_a_shard_while_its_partition_is_served_here() -> None:
    routed = Routed()
    router = routed.router
    routed.topics.put(TOPIC, 1)
    shard = routed.shards[0] = OneShard()
    assert router.find("k") is ErrorCode.COORDINATOR_NOT_AVAILABLE, "before the start"
    router.start()
    assert router.find("k") is shard
    shard.loading = True
    assert router.find("k") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    routed.shards.clear()
    assert router.find("k") is ErrorCode.NOT_COORDINATOR
    router.stop()
    assert router.find("k") is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_partition_of_a_key_follows_the_topic() -> None:
    routed = Routed()
    router = routed.router
    assert (router.partition_of("my-key"), router.partition_count) == (partition_of("my-key", 50), 0)
    assert router.leader_of("my-key") is None
    for count in (3, 5):
        routed.topics.put(TOPIC, count)
        assert (router.partition_of("my-key"), router.partition_count) == (partition_of("my-key", count), count)
    leader = router.leader_of("my-key")
    assert leader is not None
    assert leader.id == BROKER_ID
    routed.topics.put(TOPIC, 5, leader=9)
    assert router.leader_of("my-key") is None, "a broker that is not known"


def test_the_topic_is_made_when_it_is_asked_for() -> None:
    async def scenario() -> None:
        routed = Routed()
        for _ in range(2):
            assert await routed.router.ensure_topic() is ErrorCode.NONE
            assert routed.router.partition_count == routed.topics.partitions

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (ErrorCode.INVALID_REPLICATION_FACTOR, [f": start more brokers, or set {FACTOR} to what there is"]),
        (ErrorCode.REQUEST_TIMED_OUT, [""]),
        (ErrorCode.LEADER_NOT_AVAILABLE, []),
    ],
)
def test_why_there_is_no_topic_is_logged_once(
    error: ErrorCode, cure: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        routed = Routed()
        routed.topics.refusal = TopicRefusal(error, "Why.")
        for _ in range(2):
            assert await routed.router.ensure_topic() is ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(scenario())
    begin = f"the topic {TOPIC} cannot be made: Why. Transactions have no coordinator before"
    assert caplog.messages == [begin + each for each in cure]


@pytest.mark.spec("S5")
def test_long_keys_that_clients_ask_for_are_not_kept() -> None:
    routed = Routed()
    routed.topics.put(TOPIC, 3)
    routed.router.start()
    tracemalloc.start()
    try:
        for number in range(60):
            assert routed.router.find(f"{number:032000}") is ErrorCode.NOT_COORDINATOR
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000


@pytest.mark.parametrize(
    ("key", "hash_code"),
    [("", 0), ("a", 97), ("polygenelubricants", -(2**31)), ("\U0001f418", 1772411), ("consumers", -421004483)],
)
def test_the_partition_of_a_key_is_that_of_java(key: str, hash_code: int) -> None:
    magnitude = 0 if hash_code == -(2**31) else abs(hash_code)
    assert partition_of(key, 50) == magnitude % 50
