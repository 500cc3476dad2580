"""Shipped brokers and clients in one process on virtual time: a simulated network, disks in memory, one tree.

Everything that a run does follows from its seed, and `history` tells what it did.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, TypeVar

from ottla.broker.control.coordination import Coordination
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.environment import Environment
from ottla.env.executor import InlineExecutor
from ottla.env.randomness import Randomness
from ottla.sim.virtual_loop import LoopClock, VirtualTimeLoop, run_in_virtual_time
from ottla.sim.zookeeper_service import SimulatedZooKeeper
from ottla.testing.disk_memory import MemoryDisk
from support.simulated_cluster.network import SimulatedNetwork

T = TypeVar("T")

PORT = 9092
START_MS = 1_700_000_000_000
ZOOKEEPER_DELAY_MS = (1, 5)
SESSION_TIMEOUT_MS = 6_000
LOOK_S = 0.1
MOST_LOOKS = 600
SETTINGS = {"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "1"}


class VirtualCluster:
    """Make it, then `run` a story that starts brokers and makes clients."""

    def __init__(self, seed: int) -> None:
        self.loop = VirtualTimeLoop()
        self.clock = LoopClock(self.loop, START_MS)
        self._chance = random.Random(seed)
        self.network = SimulatedNetwork(self.loop, self._number())
        self.network.history = []
        self.zookeeper = SimulatedZooKeeper(
            self.loop, random.Random(self._number()), ZOOKEEPER_DELAY_MS, SESSION_TIMEOUT_MS
        )
        self.disks: dict[int, MemoryDisk] = {}
        self.brokers: dict[int, Broker] = {}

    def _number(self) -> int:
        return self._chance.getrandbits(32)

    def run(self, story: Callable[[VirtualCluster], Awaitable[T]]) -> T:
        """Run the story to its end; brokers that are left are stopped."""

        async def with_end() -> T:
            try:
                return await story(self)
            finally:
                for broker_id in list(self.brokers):
                    await self.stop(broker_id)

        return run_in_virtual_time(with_end(), self.loop)

    async def start(self, broker_id: int, **settings: str) -> Broker:
        """Start the broker, on the disk that it had before where it was there before."""
        host = f"broker{broker_id}"
        config = parse_broker_config(
            {
                "broker.id": str(broker_id),
                "node.id": str(broker_id),
                "listeners": f"PLAINTEXT://{host}:{PORT}",
                "log.dirs": "/data",
                **SETTINGS,
                **{name if "." in name else name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        assert isinstance(config, BrokerConfig), config
        disk = self.disks.setdefault(broker_id, MemoryDisk(self.clock.now_ms))
        broker = Broker(
            config,
            clock=self.clock,
            disk=disk,
            executor=InlineExecutor(),
            randomness=Randomness(self._number()),
            network=self.network.host(host),
            outgoing=self.network.host(host),
            coordination=Coordination(self.zookeeper.connect(), SESSION_TIMEOUT_MS, accepts_others=True),
        )
        refusal = await broker.start()
        assert refusal is None, refusal
        self.brokers[broker_id] = broker
        return broker

    async def stop(self, broker_id: int) -> None:
        """Stop the broker in order."""
        await self.brokers.pop(broker_id).stop()

    def controller(self) -> int:
        """The id of the controller as all brokers know it; -1 while they do not agree, or there is none."""
        believed = {broker.image.controller_id for broker in self.brokers.values()}
        elected = [broker_id for broker_id, broker in self.brokers.items() if broker.control.is_controller]
        return elected[0] if len(elected) == 1 and believed == set(elected) else -1

    def led(self, topics: Collection[str]) -> dict[tuple[str, int], int]:
        """The broker that holds each partition of these topics."""
        return {
            (each.topic, each.index): broker_id
            for broker_id, broker in self.brokers.items()
            for each in broker.partitions
            if each.topic in topics
        }

    def all_partitions_have_leaders(self) -> bool:
        """Whether every broker knows a live leader of every partition."""
        return all(
            state.leader in self.brokers
            for broker in self.brokers.values()
            for topic in broker.image.topics.values()
            for state in topic.partitions
        )

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Let virtual time pass until the condition holds."""
        for _ in range(MOST_LOOKS):
            if condition():
                return
            await asyncio.sleep(LOOK_S)
        raise AssertionError(f"waited in vain for {what}")

    def environment(self, host: str = "client") -> Environment:
        """What a client on that host reaches outside through."""
        return Environment(self.clock, self.network.host(host), Randomness(self._number()))

    def bootstrap_servers(self) -> str:
        """The brokers that run, as clients are given them."""
        return ",".join(f"broker{broker_id}:{PORT}" for broker_id in self.brokers)

    def history(self) -> list[tuple[Any, ...]]:
        """All that was said on the network, and what lies on the disks in the end."""
        arrivals = [
            (*arrival[:-1], len(arrival.data), zlib.crc32(arrival.data)) for arrival in self.network.history or ()
        ]
        files = [
            (broker_id, path, zlib.crc32(data))
            for broker_id, disk in sorted(self.disks.items())
            for path, data in _files(disk, "/data")
        ]
        return [*arrivals, *files, (self.loop.time(),)]


def _files(disk: MemoryDisk, folder: str) -> Iterator[tuple[str, bytes]]:
    for name in sorted(disk.listdir(folder)):
        path = f"{folder}/{name}"
        if disk.is_dir(path):
            yield from _files(disk, path)
        else:
            yield path, disk.read_bytes(path)
