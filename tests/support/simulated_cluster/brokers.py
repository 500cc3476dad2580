"""Shipped brokers as processes on machines of a simulation, beside one ZooKeeper.

Each broker has a host on the network, a disk, a clock, and a session. A process that ends is started again by whoever
plays the operator (`start`).
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.control.coordination import Coordination
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.environment import Environment
from ottla.env.randomness import Randomness
from ottla.sim.processes import ProcessLoop, SimulatedProcess
from ottla.sim.virtual_loop import LoopClock
from ottla.sim.zookeeper_service import SimulatedZk, SimulatedZooKeeper
from ottla.zk.layout import TopicZnode
from ottla.zk.watches import EventType, WatchEvent
from support.simulated_cluster.machine_disk import MachineDisk, SimulatedExecutor
from support.simulated_cluster.network import SimulatedNetwork
from support.simulated_cluster.story import ClusterStory

PORT = 9092
START_MS = 1_700_000_000_000
ZOOKEEPER_DELAY_MS = (1, 5)
SESSION_TIMEOUT_MS = 6_000
LOOK_S = 0.1
DATA = "/data"
#: Nodes whose changes are told.
TOLD_PATHS = ("/controller", "/brokers/ids/", "/brokers/topics/")

SETTINGS: Mapping[str, str] = {
    "log.dirs": DATA,
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.fetch.wait.max.ms": "1000",
    "replica.lag.time.max.ms": "5000",
    "replica.socket.timeout.ms": "5000",
    "controller.socket.timeout.ms": "5000",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "log.segment.bytes": "16384",
    "log.index.interval.bytes": "512",
}


def rack_of(broker_id: int) -> str:
    """The rack of a broker."""
    return f"rack{broker_id}"


class SimulatedBroker:
    """A machine with a broker: it may be running, paused, dead. The disk stays."""

    def __init__(self, cluster: SimulatedCluster, broker_id: int) -> None:
        self._cluster = cluster
        self.id = broker_id
        self.host = f"broker{broker_id}"
        self.clock = LoopClock(cluster.loop, START_MS)
        self.disk = MachineDisk(self.clock.now_ms)
        self.executor = SimulatedExecutor()
        #: The process and its parts; None while there is none.
        self.process: SimulatedProcess | None = None
        self.broker: Broker | None = None
        self.zk: SimulatedZk | None = None
        #: Whether the broker has started.
        self.is_up = False
        self._former: list[Broker | None] = []
        #: How often a process was started here.
        self.starts = 0

    def __repr__(self) -> str:
        return self.host

    @property
    def is_running(self) -> bool:
        """Whether there is a process that has started and is not paused."""
        return self.is_up and self.process is not None and self.process.is_running

    def start(self) -> asyncio.Task[None]:
        """Start a process with the disk that is there; returns the task of its start."""
        assert self.process is None, f"{self.host} runs already"
        self.starts += 1
        self.process = self._cluster.loop.process(self.host)
        self._cluster.story.tell(self.host, f"starts, process {self.starts}")
        return self.process.start(self._run(self.process))

    async def _run(self, process: SimulatedProcess) -> None:
        cluster = self._cluster
        host = cluster.network.host(self.host)
        zk = self.zk = cluster.zookeeper.connect()
        broker = self.broker = Broker(
            cluster.config(self.id, self.host),
            clock=self.clock,
            disk=self.disk.disk,
            executor=self.executor,
            randomness=Randomness(cluster.number()),
            network=host,
            outgoing=host,
            coordination=Coordination(zk, SESSION_TIMEOUT_MS, accepts_others=True),
        )
        broker.on_fatal = lambda message: self._fatal(process, message)
        refusal = await broker.start()
        if refusal is not None:
            self._fatal(process, f"does not start: {refusal.message}")
            return
        self.is_up = True
        cluster.story.tell(self.host, f"is up, broker epoch {broker.control.membership.broker_epoch}")

    def _fatal(self, process: SimulatedProcess, message: str) -> None:
        self._cluster.story.tell(self.host, f"ends: {message}")
        if self.process is process:
            loop = self._cluster.loop
            loop.call_soon(self.kill, context=loop.outside)

    def kill(self) -> None:
        """End the process as `kill -9` does; the system closes its connections, and its session times out."""
        if self.process is None:
            return
        self._end()
        self._cluster.network.end_host(self.host)
        self.disk.process_ended()

    def lose_power(self, choice: Callable[[int], int]) -> None:
        """The machine stops, and loses what was not forced to its disk. It is silent until the next `start`."""
        self._end()
        self._cluster.network.power_off(self.host)
        self.disk.power_lost(choice)

    def _end(self) -> None:
        assert self.process is not None
        self.process.kill()
        # What is left of a killed broker must not be collected: that would run code of it.
        self._former.append(self.broker)
        self.process = self.broker = None
        self.is_up = False
        if self.zk is not None:
            self.zk.die()

    async def stop(self) -> None:
        """Stop the broker in order, as SIGTERM does."""
        process, broker = self.process, self.broker
        assert process is not None
        assert broker is not None
        self.is_up = False
        stopping = process.start(broker.stop())
        await self._cluster.until(lambda: stopping.done() or process.is_killed, float("inf"))
        if self.process is process:
            self.kill()

    def pause(self) -> None:
        """Pause the process."""
        assert self.process is not None
        assert self.zk is not None
        self.process.pause()
        self.zk.freeze()

    def resume(self) -> None:
        """Let the process continue, if it was not killed meanwhile."""
        if self.process is not None and self.zk is not None and not self.process.is_running:
            self.process.resume()
            self.process.start(self.zk.thaw())


class SimulatedCluster:
    """Brokers 1, 2, … on a network beside a ZooKeeper; make it, then `run` a script that starts them.

    With `in_racks` each broker has a rack of its own: `rack_of` its id.
    """

    def __init__(
        self, seed: int, brokers: int = 3, settings: Mapping[str, str] | None = None, in_racks: bool = False
    ) -> None:
        self.loop = ProcessLoop()
        self.story = ClusterStory(self.loop)
        self._chance = random.Random(seed)
        self._settings = {**SETTINGS, **(settings or {})}
        self._protocol = self._settings.get("security.inter.broker.protocol", "PLAINTEXT")
        self._in_racks = in_racks
        self.network = SimulatedNetwork(self.loop, self.number())
        self.zookeeper = SimulatedZooKeeper(
            self.loop, random.Random(self.number()), ZOOKEEPER_DELAY_MS, SESSION_TIMEOUT_MS
        )
        self.zookeeper.on_change = self._node_changed
        #: Hosts that clients run on.
        self.client_hosts: list[str] = []
        self.brokers = {broker_id: SimulatedBroker(self, broker_id) for broker_id in range(1, brokers + 1)}

    def _node_changed(self, event: WatchEvent) -> None:
        """Tell of elections, registrations and states of partitions."""
        path = event.path
        if event.type is not EventType.CHILDREN_CHANGED and path.startswith(TOLD_PATHS):
            node = self.zookeeper.tree.nodes.get(path)
            data = "gone" if node is None else (node.data or b"").decode()
            self.story.tell("zookeeper", f"{path.removeprefix('/brokers/')}: {data}")

    def number(self) -> int:
        """A number of the seed."""
        return self._chance.getrandbits(32)

    def config(self, broker_id: int, host: str) -> BrokerConfig:
        """The settings of a broker."""
        own = {"broker.id": str(broker_id), "listeners": f"{self._protocol}://{host}:{PORT}"}
        if self._in_racks:
            own["broker.rack"] = rack_of(broker_id)
        parsed = parse_broker_config(own | self._settings)
        assert isinstance(parsed, BrokerConfig), parsed
        return parsed

    def run(self, script: Callable[[SimulatedCluster], Any]) -> Any:
        """Run a script to its end, and return its result. What still runs then is dropped."""
        try:
            with self.story.listening():
                return self.loop.run_and_close(script(self))
        finally:
            self.network.end()

    # Clients

    def environment(self, host: str) -> Environment:
        """Make the environment of a client on that host."""
        return Environment(LoopClock(self.loop, START_MS), self.network.host(host), Randomness(self.number()))

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{each.host}:{PORT}" for each in self.brokers.values())

    def client_settings(self, host: str) -> dict[str, Any]:
        """Settings of a client on that host, which is its client id, too."""
        trust = {name: text for name, text in self._settings.items() if name.startswith("ssl.truststore.")}
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "environment": self.environment(host),
            "client_id": host,
            "security_protocol": self._protocol,
            **{name.replace(".", "_"): text for name, text in trust.items()},
        }

    # What is known of it

    def up(self) -> list[SimulatedBroker]:
        """The brokers that run, and have started."""
        return [each for each in self.brokers.values() if each.is_running]

    def controller(self) -> SimulatedBroker | None:
        """The broker that is the controller, as it is written in ZooKeeper; None if there is none that runs."""
        for each in self.up():
            if each.broker is not None and each.broker.control.is_controller:
                return each
        return None

    def out_of_sync(self) -> list[str]:
        """Why the cluster has not recovered, in words; empty if all replicas are in sync and all brokers agree."""
        if len(self.up()) < len(self.brokers):
            return [f"{each.host} is not up" for each in self.brokers.values() if not each.is_running]
        controllers = [each for each in self.up() if each.broker is not None and each.broker.control.is_controller]
        if len(controllers) != 1:
            return [f"controllers: {controllers}"]
        images = {each.host: each.broker.image for each in self.up() if each.broker is not None}
        decides = controllers[0].broker
        assert decides is not None
        found = [f"{topic}-{index} moves" for topic, index in decides.control.controller.controller.reassignments()]
        first = images[controllers[0].host]
        for host, image in images.items():
            if set(image.brokers) != set(self.brokers):
                found.append(f"{host} knows brokers {sorted(image.brokers)}")
            for name, topic in first.topics.items():
                known = image.topics.get(name)
                for index, state in enumerate(topic.partitions):
                    if known is None or index >= len(known.partitions) or known.partitions[index] != state:
                        found.append(f"{host} does not know {name}-{index} as the controller does: {state}")
                    elif len(state.isr) < len(state.replicas) or state.leader not in self.brokers:
                        found.append(f"{name}-{index}: {state}")
        return found or [f"{name} moves in ZooKeeper: {moves}" for name in first.topics if (moves := self._moves(name))]

    def _moves(self, topic: str) -> str:
        """Return the moves in the topic's znode, whether the controller knows of them or not; empty for none."""
        node = self.zookeeper.tree.nodes.get(TopicZnode.path(topic))
        if node is None or node.data is None:
            return ""
        found = TopicZnode.decode(topic, node.data)
        return f"adding {found.adding}, removing {found.removing}" if found.adding or found.removing else ""

    async def until(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Let virtual time pass until the condition holds; False if it does not in time."""
        end_s = self.loop.time() + within_s
        while not condition():
            if self.loop.time() >= end_s:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def until_whole(self, within_s: float) -> bool:
        """Wait until all brokers are up and all replicas in sync."""
        return await self.until(lambda: not self.out_of_sync(), within_s)

    def files(self) -> list[tuple[int, str, int]]:
        """A checksum of each file on the disks."""
        return [
            (broker.id, path, zlib.crc32(data))
            for broker in self.brokers.values()
            for path, data in broker.disk.walk("")
        ]
