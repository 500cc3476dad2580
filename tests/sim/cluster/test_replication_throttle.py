"""Throttled replication on virtual time: how exactly the limits hold, and that nobody spins while they are used up."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from ottla.broker.server import Broker
from ottla.client import Admin, ConfigResource, NewTopic, Producer
from ottla.wire.apis import API
from support.simulated_cluster.brokers import SimulatedCluster

pytestmark = pytest.mark.spec("R2")

MB: Final = 1_000_000
TOPIC: Final = "moved"
FETCH: Final = next(key for key, api in API.items() if api.name == "Fetch")
SETTINGS: Final = {"min.insync.replicas": "1", "log.segment.bytes": str(1 << 30), "message.max.bytes": str(16 * MB)}


class Catching:
    """Broker 1 leads a partition of brokers 1 and 2; broker 2 is killed, misses records, and catches up."""

    def __init__(self, seed: int = 1) -> None:
        self.cluster = SimulatedCluster(seed, 2, SETTINGS)
        self.admin: Admin

    def run(self, story: Callable[[Catching], Coroutine[Any, Any, None]]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            self.cluster.run(lambda _: self._run(story))
            gc.collect()

    async def _run(self, story: Callable[[Catching], Coroutine[Any, Any, None]]) -> None:
        cluster = self.cluster
        for broker in cluster.brokers.values():
            broker.start()
        assert await cluster.until_whole(60.0), cluster.out_of_sync()

        async def work() -> None:
            environment = cluster.environment("client")
            self.admin = Admin(bootstrap_servers=cluster.bootstrap_servers, environment=environment)
            await self.admin.create_topics([NewTopic(TOPIC, replica_assignments={0: (1, 2)})])
            await story(self)

        await cluster.loop.process("client").start(work())

    def broker(self, number: int) -> Broker:
        broker = self.cluster.brokers[number].broker
        assert broker is not None
        return broker

    def end(self, number: int) -> int:
        broker = self.cluster.brokers[number].broker
        partition = broker.partitions.get(TOPIC, 0) if broker is not None and broker._control is not None else None
        return -1 if partition is None else partition.log.log_end_offset

    async def produce(self, count: int, size: int) -> None:
        environment = self.cluster.environment("producer")
        producer: Producer[bytes, bytes] = Producer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            environment=environment,
            batch_size=1,
            max_request_size=16 * MB,
            acks=1,
        )
        async with producer:
            for _ in range(count):
                await producer.send(TOPIC, bytes(size), None, 0)

    async def throttle(self, limit: int, side: str, replicas: str = "*") -> None:
        resources = [ConfigResource.broker(number) for number in (1, 2) if self.cluster.brokers[number].is_running]
        await self.admin.incremental_alter_configs(
            {each: {f"{side}.replication.throttled.rate": str(limit)} for each in resources}
            | {ConfigResource.topic(TOPIC): {f"{side}.replication.throttled.replicas": replicas}}
        )

    async def fall_behind(self, count: int, size: int) -> None:
        """Broker 2 is killed, and misses this many records of this size."""
        self.cluster.brokers[2].kill()
        image = self.broker(1).image
        assert await self.cluster.until(lambda: 2 not in image.brokers, 60.0)
        await self.produce(count, size)

    async def come_back(self) -> None:
        self.cluster.brokers[2].start()
        assert await self.cluster.until(lambda: self.end(2) >= 0, 30.0)

    async def caught_up(self, within_s: float) -> float:
        """The seconds until broker 2 has everything."""
        begun_s = self.cluster.loop.time()
        assert await self.cluster.until(lambda: self.end(2) == self.end(1), within_s), (self.end(2), self.end(1))
        return self.cluster.loop.time() - begun_s


@pytest.mark.parametrize("side", ["leader", "follower", "both"])
@pytest.mark.parametrize(("count", "size"), [(400, 50_000), (5, 4 * MB)], ids=["small", "large"])
def test_a_limit_is_kept_within_a_tenth(side: str, count: int, size: int) -> None:
    async def story(at: Catching) -> None:
        # All brokers are given the limit while they are there, and the one that comes back still has it.
        for each in ("leader", "follower") if side == "both" else (side,):
            await at.throttle(MB, each)
        # The fetcher has others to ask for, of which nothing comes.
        await at.admin.create_topics([NewTopic("quiet", replica_assignments=dict.fromkeys(range(3), (1, 2)))])
        await at.fall_behind(count, size)
        fetches = sum(at.broker(1).dispatcher.requests[FETCH].by_version)
        await at.come_back()
        seconds = await at.caught_up(60.0)
        assert seconds == pytest.approx(count * size / MB, rel=0.1, abs=size / MB)
        asked = sum(at.broker(1).dispatcher.requests[FETCH].by_version) - fetches
        assert asked < 60 * seconds, "the follower asks again and again"

    Catching().run(story)


def test_what_is_appended_to_a_throttled_partition_wakes_nobody_in_vain() -> None:
    async def story(at: Catching) -> None:
        await at.throttle(100_000, "leader")
        await at.fall_behind(20, 100_000)
        await at.come_back()
        fetches, begun_s = sum(at.broker(1).dispatcher.requests[FETCH].by_version), at.cluster.loop.time()
        for _ in range(500):
            await at.produce(1, 10)
        seconds = at.cluster.loop.time() - begun_s
        asked = sum(at.broker(1).dispatcher.requests[FETCH].by_version) - fetches
        assert asked < 25 * seconds + 10
        assert asked < 250, "a fetch for each append"

    Catching().run(story)


def test_a_limit_that_is_lifted_is_gone_at_once() -> None:
    async def story(at: Catching) -> None:
        for side in ("leader", "follower"):
            await at.throttle(1_000, side)
        await at.fall_behind(40, 100_000)
        await at.come_back()
        await asyncio.sleep(20.0)  # sleep: virtual
        assert at.end(2) < at.end(1)
        # Broker 1 has its limit from the settings of all brokers now: every broker obeys at once.
        await at.admin.incremental_alter_configs(
            {ConfigResource.broker(1): {"leader.replication.throttled.rate": None}}
            | {ConfigResource.broker(2): {"follower.replication.throttled.rate": None}}
        )
        assert await at.caught_up(10.0) < 3.0

    Catching().run(story)


def test_other_replicas_and_consumers_are_not_throttled() -> None:
    async def story(at: Catching) -> None:
        # The replica of broker 2 leads nowhere, and that of broker 1 follows nobody.
        await at.throttle(1_000, "leader", "0:2")
        await at.throttle(1_000, "follower", "0:1")
        await at.fall_behind(40, 100_000)
        await at.come_back()
        assert await at.caught_up(10.0) < 3.0

    Catching().run(story)


def test_a_follower_in_sync_is_not_held_back_by_the_limit() -> None:
    async def story(at: Catching) -> None:
        await at.throttle(1_000, "leader")
        await at.throttle(1_000, "follower")
        for _ in range(20):
            await at.produce(1, 10_000)
            await at.caught_up(2.0)
        partition = at.broker(1).partitions.get(TOPIC, 0)
        assert partition is not None
        assert partition.leader is not None
        assert partition.leader.isr == {1, 2}
        assert at.broker(1).replication_quotas.leader.rate > 1_000

    Catching().run(story)
