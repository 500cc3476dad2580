"""Faults of a simulated cluster: each kind is a coroutine that injects the fault, waits, and ends it.

Brokers whose processes have ended are started again by `Operator`, unless a fault holds them down.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ottla.cluster.controller_events import PartitionKey
from support.simulated_cluster.brokers import SESSION_TIMEOUT_MS, SimulatedBroker, SimulatedCluster

SESSION_S: Final = SESSION_TIMEOUT_MS / 1000
#: When the operator looks for ended processes, seconds.
LOOK_S: Final = 0.5
#: How long a process stays ended, seconds.
DOWN_S: Final = (0.2, 9.0)
ZOOKEEPER: Final = "zookeeper"


class Operator:
    """Starts processes that have ended again."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        #: Brokers that are not to be started now.
        self.held_down: set[int] = set()
        self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for broker in self._cluster.brokers.values():
                if broker.process is None and broker.id not in self.held_down:
                    self._cluster.network.power_on(broker.host)
                    broker.start()


class ClusterFaults:
    """Plays faults on a cluster; `kinds` names them."""

    def __init__(self, cluster: SimulatedCluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._network = cluster.network
        self.operator = Operator(cluster)
        #: How often each kind was played.
        self.played: dict[str, int] = {}

    async def play(self, kind: str) -> None:
        """Play a fault to its end; which brokers it hits is drawn."""
        self._cluster.story.tell("fault", f"{kind} begins")
        self.played[kind] = self.played.get(kind, 0) + 1
        await ALL[kind](self)
        self._cluster.story.tell("fault", f"{kind} ends")

    # Who is harmed

    def _any(self) -> SimulatedBroker | None:
        up = self._cluster.up()
        return self._chance.choice(up) if up else None

    def _controller(self) -> SimulatedBroker | None:
        return self._cluster.controller()

    def _others(self, broker: SimulatedBroker) -> list[SimulatedBroker]:
        return [each for each in self._cluster.brokers.values() if each is not broker]

    def _tell(self, broker: SimulatedBroker, what: str) -> None:
        self._cluster.story.tell(broker.host, f"({what})")

    def _seconds(self, least: float, most: float) -> float:
        return self._chance.uniform(least, most)

    async def _sleep(self, least: float, most: float) -> None:
        await asyncio.sleep(self._seconds(least, most))

    # Processes

    async def _down(self, *harmed: SimulatedBroker | None, end: Callable[[SimulatedBroker], None]) -> None:
        brokers = [each for each in harmed if each is not None and each.process is not None]
        self.operator.held_down.update(each.id for each in brokers)
        for each in brokers:
            if each.process is not None:
                self._tell(each, "its process ends")
                end(each)
        await self._sleep(*DOWN_S)
        self.operator.held_down.difference_update(each.id for each in brokers)

    async def kill(self) -> None:
        """A broker is killed."""
        await self._down(self._any(), end=SimulatedBroker.kill)

    async def kill_controller(self) -> None:
        """The controller is killed."""
        await self._down(self._controller(), end=SimulatedBroker.kill)

    async def kill_two(self) -> None:
        """Two brokers are killed at once."""
        await self._down(*self._chance.sample(list(self._cluster.brokers.values()), 2), end=SimulatedBroker.kill)

    async def kill_all(self) -> None:
        """All brokers are killed at once."""
        await self._down(*self._cluster.brokers.values(), end=SimulatedBroker.kill)

    async def controlled_shutdown(self) -> None:
        """A broker shuts down, its leaders being moved first."""
        broker = self._any()
        if broker is None:
            return
        self._tell(broker, "is stopped")
        self.operator.held_down.add(broker.id)
        await broker.stop()
        await self._sleep(*DOWN_S)
        self.operator.held_down.discard(broker.id)

    async def _paused(self, broker: SimulatedBroker | None, least: float, most: float) -> None:
        if broker is None:
            return
        self._tell(broker, "is paused")
        broker.pause()
        await self._sleep(least, most)
        self._tell(broker, "goes on")
        broker.resume()

    async def pause(self) -> None:
        """A broker is paused for less than its session lasts."""
        await self._paused(self._any(), 0.1, SESSION_S * 0.6)

    async def long_pause(self) -> None:
        """A broker is paused until its session has expired."""
        await self._paused(self._any(), SESSION_S, SESSION_S * 2.5)

    async def controller_pause(self) -> None:
        """The controller is paused until its session has expired, and then still believes to be it."""
        await self._paused(self._controller(), SESSION_S, SESSION_S * 2.5)

    # Disks

    async def power_loss(self) -> None:
        """A machine loses its power: what was not forced to its disk is lost."""
        await self._down(self._any(), end=lambda broker: broker.lose_power(self._chance.randrange))

    async def empty_disk(self) -> None:
        """A broker is killed, and starts again with an empty disk."""

        def end(broker: SimulatedBroker) -> None:
            broker.kill()
            broker.disk.replace_with_empty()

        await self._down(self._any(), end=end)

    async def full_disk(self) -> None:
        """A disk is full."""
        broker = self._any()
        if broker is None:
            return
        self._tell(broker, "its disk is full")
        broker.disk.disk.capacity = self._chance.choice((0, 200, 3_000))
        await self._sleep(0.5, 8.0)
        self._tell(broker, "its disk has room")
        broker.disk.disk.heal()

    async def slow_disk(self) -> None:
        """Forcing to a disk, reading and removing files are slow."""
        broker = self._any()
        if broker is None:
            return
        broker.executor.delay_s = self._seconds(0.1, 3.0)
        self._tell(broker, f"its disk needs {broker.executor.delay_s:.1f} s")
        await self._sleep(2.0, 12.0)
        broker.executor.delay_s = 0.0

    # The network

    def _block(self, pairs: list[tuple[str, str]]) -> None:
        for source, target in pairs:
            self._network.block(source, target)

    def _unblock(self, pairs: list[tuple[str, str]]) -> None:
        for source, target in pairs:
            self._network.unblock(source, target)

    async def _cut(self, broker: SimulatedBroker, pairs: list[tuple[str, str]], *, from_zookeeper: bool) -> None:
        self._tell(broker, f"blocked: {', '.join(f'{source} to {target}' for source, target in pairs)}")
        self._block(pairs)
        zk = broker.zk if from_zookeeper else None
        if zk is not None:
            self._tell(broker, "does not reach ZooKeeper")
            zk.cut()
        await self._sleep(0.5, 15.0)
        self._unblock(pairs)
        if zk is not None:
            await zk.reconnect()

    async def isolation(self) -> None:
        """A broker reaches nobody, and nobody reaches it; ZooKeeper neither."""
        broker = self._any()
        if broker is not None:
            others = [each.host for each in self._others(broker)] + self.clients
            pairs = [pair for host in others for pair in ((broker.host, host), (host, broker.host))]
            await self._cut(broker, pairs, from_zookeeper=True)

    async def separation(self) -> None:
        """A broker reaches neither the others nor ZooKeeper, but clients reach it: it leads, and is deposed."""
        broker = self._any()
        if broker is not None:
            others = [each.host for each in self._others(broker)]
            pairs = [pair for host in others for pair in ((broker.host, host), (host, broker.host))]
            await self._cut(broker, pairs, from_zookeeper=True)

    async def partition(self) -> None:
        """Brokers reach one of them no more, but clients and ZooKeeper do."""
        broker = self._any()
        if broker is not None:
            others = [each.host for each in self._others(broker)]
            pairs = [pair for host in others for pair in ((broker.host, host), (host, broker.host))]
            await self._cut(broker, pairs, from_zookeeper=False)

    async def one_way(self) -> None:
        """Nothing passes from a broker to the others, or from them to it."""
        broker = self._any()
        if broker is not None:
            others = [each.host for each in self._others(broker)]
            outwards = self._chance.random() < 0.5
            pairs = [(broker.host, host) if outwards else (host, broker.host) for host in others]
            await self._cut(broker, pairs, from_zookeeper=False)

    async def cut_pair(self) -> None:
        """Two brokers do not reach each other."""
        broker = self._any()
        if broker is not None:
            other = self._chance.choice(self._others(broker)).host
            await self._cut(broker, [(broker.host, other), (other, broker.host)], from_zookeeper=False)

    async def cut_controller(self) -> None:
        """The controller does not reach another broker."""
        broker = self._controller()
        if broker is not None:
            other = self._chance.choice(self._others(broker)).host
            await self._cut(broker, [(broker.host, other), (other, broker.host)], from_zookeeper=False)

    async def clients_cut(self) -> None:
        """No client reaches a broker."""
        broker = self._any()
        if broker is not None:
            pairs = [pair for host in self.clients for pair in ((broker.host, host), (host, broker.host))]
            await self._cut(broker, pairs, from_zookeeper=False)

    async def slow_network(self) -> None:
        """Messages from and to a broker are late, those of different connections out of order."""
        broker = self._any()
        if broker is None:
            return
        self._tell(broker, "its network is slow")
        self._network.delays[broker.host] = (1.0, self._seconds(50.0, 1500.0))
        await self._sleep(2.0, 12.0)
        self._network.delays.pop(broker.host, None)

    async def dropped_connections(self) -> None:
        """Connections of a broker are reset, again and again."""
        broker = self._any()
        if broker is None:
            return
        for _ in range(self._chance.randint(1, 8)):
            open_now = self._network.connections_of(broker.host)
            for each in open_now:
                if self._chance.random() < 0.5:
                    self._network.reset(each)
            self._tell(broker, f"connections are reset, there were {len(open_now)}")
            await self._sleep(0.05, 1.0)

    # ZooKeeper

    async def session_expiry(self) -> None:
        """The session of a broker expires while it runs."""
        broker = self._any()
        if broker is not None and broker.zk is not None:
            self._tell(broker, "its session expires")
            zk = broker.zk
            zk.expire()
            await self._sleep(0.0, 3.0)
            await zk.reconnect()

    async def controller_expiry(self) -> None:
        """The session of the controller expires, and it learns that late."""
        broker = self._controller()
        if broker is not None and broker.zk is not None:
            self._tell(broker, "its session expires")
            zk = broker.zk
            zk.expire()
            await self._sleep(0.0, 6.0)
            await zk.reconnect()

    async def lost_answers(self) -> None:
        """Changes are made in ZooKeeper whose answers are lost."""
        for broker in self._cluster.up():
            if broker.zk is not None:
                broker.zk.lose_answers(self._chance.randint(1, 3))
        await self._sleep(0.1, 1.0)
        await self._some_change()
        await self._sleep(1.0, 8.0)
        for broker in self._cluster.brokers.values():
            if broker.zk is not None:
                broker.zk.lose_answers(0)

    async def zookeeper_unreachable(self) -> None:
        """A broker does not reach ZooKeeper."""
        broker = self._any()
        if broker is not None:
            await self._cut(broker, [], from_zookeeper=True)

    async def zookeeper_outage(self) -> None:
        """Nobody reaches ZooKeeper."""
        cut = [each.zk for each in self._cluster.up() if each.zk is not None]
        self._cluster.story.tell(ZOOKEEPER, "is not reached by anybody")
        for zk in cut:
            zk.cut()
        await self._sleep(0.5, 12.0)
        for zk in cut:
            await zk.reconnect()

    # Others

    async def clock_step(self) -> None:
        """The wall clock of a broker is set, forwards or back."""
        broker = self._any()
        if broker is not None:
            step_ms = self._chance.choice((-1, 1)) * self._chance.randint(1_000, 3_600_000)
            self._tell(broker, f"its clock is set by {step_ms} ms")
            broker.clock.step(step_ms)
            await self._sleep(1.0, 6.0)

    async def preferred_election(self) -> None:
        """Leaders are moved to the preferred replicas."""
        await self._some_change()
        await self._sleep(0.5, 3.0)

    async def _some_change(self) -> None:
        """The controller is asked to move leaders."""
        controller = self._controller()
        if controller is None or controller.broker is None or controller.process is None:
            return
        control = controller.broker.control
        keys: list[PartitionKey] = [
            (name, index) for name, topic in control.image.topics.items() for index in range(len(topic.partitions))
        ]
        controller.process.start(_quietly(control.admin.elect_preferred(keys)))

    @property
    def clients(self) -> list[str]:
        """The hosts of clients."""
        return self._cluster.client_hosts


async def _quietly(work: Awaitable[object]) -> None:
    try:
        await work
    except Exception:
        return


#: After which a replica may lack what it acknowledged: never together with another fault.
LOSSES: Final[Mapping[str, Callable[[ClusterFaults], Awaitable[None]]]] = {
    "power loss": ClusterFaults.power_loss,
    "empty disk": ClusterFaults.empty_disk,
}
OTHERS: Final[Mapping[str, Callable[[ClusterFaults], Awaitable[None]]]] = {
    "kill": ClusterFaults.kill,
    "kill of the controller": ClusterFaults.kill_controller,
    "kill of two": ClusterFaults.kill_two,
    "kill of all": ClusterFaults.kill_all,
    "controlled shutdown": ClusterFaults.controlled_shutdown,
    "pause": ClusterFaults.pause,
    "long pause": ClusterFaults.long_pause,
    "pause of the controller": ClusterFaults.controller_pause,
    "full disk": ClusterFaults.full_disk,
    "slow disk": ClusterFaults.slow_disk,
    "isolation": ClusterFaults.isolation,
    "separation": ClusterFaults.separation,
    "partition": ClusterFaults.partition,
    "one-way partition": ClusterFaults.one_way,
    "cut between two": ClusterFaults.cut_pair,
    "cut at the controller": ClusterFaults.cut_controller,
    "clients cut off": ClusterFaults.clients_cut,
    "slow network": ClusterFaults.slow_network,
    "dropped connections": ClusterFaults.dropped_connections,
    "session expiry": ClusterFaults.session_expiry,
    "expiry of the controller": ClusterFaults.controller_expiry,
    "lost answers of ZooKeeper": ClusterFaults.lost_answers,
    "ZooKeeper unreachable": ClusterFaults.zookeeper_unreachable,
    "ZooKeeper outage": ClusterFaults.zookeeper_outage,
    "clock step": ClusterFaults.clock_step,
    "preferred election": ClusterFaults.preferred_election,
}
ALL: Final[Mapping[str, Callable[[ClusterFaults], Awaitable[None]]]] = {**LOSSES, **OTHERS}
