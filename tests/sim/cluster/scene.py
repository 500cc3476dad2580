"""A scene: scripted faults of brokers that replicate one partition, under load, with the checks of a seed.

The times vary by seed. Where a broker did not get the role that the script needs, `missed` says so, and the scene
shows nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from ottla.broker.replicas.partition import Partition
from ottla.client import Admin, NewTopic
from ottla.sim.processes import SimulatedProcess
from ottla.zk.layout import LeaderAndIsr, PartitionStateZnode
from ottla.zk.tree import Delete
from support.cluster_history import EndSeen
from support.simulated_cluster.brokers import SESSION_TIMEOUT_MS, SimulatedBroker
from support.simulated_cluster.seed_run import TOPIC, WHOLE_WITHIN_S, SeedRun

PLACE = (TOPIC, 0)
SESSION_S = SESSION_TIMEOUT_MS / 1000
#: How often a script looks whether what it waits for has happened, seconds.
LOOK_S = 0.01
#: Producers that do not give up records for a long time, and those that wait as long for an answer.
PERSISTENT: Mapping[str, Any] = {"delivery_timeout_ms": 120_000, "max_block_ms": 120_000}
PATIENT: Mapping[str, Any] = {**PERSISTENT, "request_timeout_ms": 60_000}
#: A loss of power keeps all of so few changes: those of the names in a directory.
MOST_NAMES = 16
#: Settings of brokers that catch up in many steps.
SMALL_FETCHES: Mapping[str, str] = {"replica.fetch.max.bytes": "1000"}


class MissedScene(Exception):
    """The script waited for something in vain."""


class Scene(SeedRun):
    """The partition `events-0` has the replicas 1, 2, 3, and is led by broker 1; `script` has the faults."""

    topic = NewTopic(TOPIC, replica_assignments={0: (1, 2, 3)})
    places = (PLACE,)
    members = 0
    #: The order in which brokers start: the first of them is the controller.
    starting: ClassVar[tuple[int, ...]] = (3, 1, 2)
    #: See `ClusterLoad.producer_settings`; None for the usual ones.
    producer_settings: ClassVar[Mapping[str, Any] | None] = None

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        #: Why the scene did not come about; empty if it did.
        self.missed = ""
        self._blocked: list[tuple[str, str]] = []

    async def script(self) -> None:
        """What happens."""
        raise NotImplementedError

    async def start_brokers(self) -> None:
        """Start the brokers one after the other."""
        if self.producer_settings is not None:
            self.load.producer_settings = self.producer_settings
        held_down = self.faults.operator.held_down
        held_down.update(self.starting)
        for number in self.starting:
            held_down.discard(number)
            await self.broker(number).start()

    async def course(self) -> None:
        """Play the script, and undo what it leaves: brokers that are down or paused, ways that are blocked or slow."""
        await self.wait(0.0, 2.0)
        try:
            await self.script()
        except MissedScene as missed:
            self.missed = str(missed)
            self.tell(f"the scene is missed: {missed}")
        self.heal()
        for broker in self.cluster.brokers.values():
            broker.resume()
            if broker.zk is not None:
                await broker.zk.reconnect()
        self.swift()
        self.faults.operator.held_down.clear()

    # What is known

    def tell(self, what: str) -> None:
        """Add a line to the story."""
        self.cluster.story.tell("scene", what)

    def broker(self, number: int) -> SimulatedBroker:
        """The broker with this id."""
        return self.cluster.brokers[number]

    @property
    def state(self) -> LeaderAndIsr:
        """The partition's state in ZooKeeper."""
        data = self.cluster.zookeeper.tree.nodes[PartitionStateZnode.path(*PLACE)].data
        assert data is not None
        return PartitionStateZnode.decode(*PLACE, data)

    @property
    def leader_and_isr(self) -> tuple[int, set[int]]:
        """The leader and the ISR in ZooKeeper."""
        return self.state.leader, set(self.state.isr)

    @property
    def controller_id(self) -> int:
        """The broker that is the controller, as it believes itself; -1 for none."""
        controller = self.cluster.controller()
        return -1 if controller is None else controller.id

    def partition(self, number: int) -> Partition | None:
        """A broker's replica; None if there is none, or the broker does not run."""
        broker = self.broker(number).broker
        return None if broker is None else broker.partitions.get(*PLACE)

    def leads(self, number: int) -> bool:
        """Whether a broker believes that it leads the partition."""
        partition = self.partition(number)
        return partition is not None and partition.leader is not None

    def follows(self, number: int, leader: int) -> bool:
        """Whether a broker believes that another one leads the partition."""
        partition = self.partition(number)
        return partition is not None and partition.leader_id == leader != number

    def proposed(self, number: int) -> set[int]:
        """The ISR to which a leader waits for the controller's answer; empty for none."""
        partition = self.partition(number)
        pending = None if partition is None or partition.leader is None else partition.leader.replicas.pending
        return set() if pending is None else set(pending.isr)

    def end(self, number: int) -> int:
        """The log end of a broker's replica; -1 if there is none."""
        partition = self.partition(number)
        return -1 if partition is None else partition.log.log_end_offset

    def high_watermark(self, number: int) -> int:
        """The high watermark of a broker's replica; -1 if there is none."""
        partition = self.partition(number)
        return -1 if partition is None else partition.log.high_watermark

    @property
    def seen_end(self) -> int:
        """The largest end offset that the observer was told."""
        return max((each.offset for each in self.load.events if isinstance(each, EndSeen)), default=-1)

    # Time

    async def wait(self, least_s: float, most_s: float = 0.0) -> None:
        """Let some virtual time pass, by seed if it may be more than the least."""
        await asyncio.sleep(self._chance.uniform(least_s, max(least_s, most_s)))  # sleep: virtual time

    async def until(self, condition: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
        """Wait for a condition; the scene is missed if it does not come about."""
        end_s = self.cluster.loop.time() + within_s
        while not condition():
            if self.cluster.loop.time() >= end_s:
                raise MissedScene(f"not in {within_s:.0f} s: {what}")
            await self.wait(LOOK_S)

    async def until_whole(self) -> None:
        """Wait until all replicas are in sync."""
        if not await self.cluster.until_whole(WHOLE_WITHIN_S):
            raise MissedScene(f"the cluster does not get whole: {self.cluster.out_of_sync()}")

    async def acknowledged(self, records: int = 1) -> None:
        """Wait until some more records are acknowledged."""
        reached = self.load.acknowledged + records
        await self.until(lambda: self.load.acknowledged >= reached, f"{records} records are acknowledged")

    # Harm

    def cut(self, number: int, others: Iterable[int] = (), clients: Iterable[str] = (), *, back: bool = True) -> None:
        """Let nothing pass between a broker and other brokers or hosts of clients; without `back` only towards them."""
        hosts = [*(self.broker(other).host for other in others), *clients]
        own = self.broker(number).host
        self.tell(f"{own} is cut from {', '.join(hosts)}")
        for host in hosts:
            for source, target in ((own, host), (host, own))[: 1 + back]:
                self.cluster.network.block(source, target)
                self._blocked.append((source, target))

    def delete_topic(self) -> SimulatedProcess:
        """Begin to ask for the deletion of the topic; returns the process that does, again and again."""
        cluster = self.cluster
        admin = Admin(**cluster.client_settings("admin"))
        process = cluster.loop.process("admin")
        process.start(_quietly(admin.delete_topics([TOPIC])))
        return process

    def heal(self, *numbers: int) -> None:
        """Let everything pass again that was cut, or what these brokers send and receive."""
        hosts = {self.broker(number).host for number in numbers}
        healed = [pair for pair in self._blocked if not hosts or hosts.intersection(pair)]
        for pair in healed:
            self._blocked.remove(pair)
            if pair not in self._blocked:
                self.cluster.network.unblock(*pair)
        if healed:
            self.tell("ways are open again: " + ", ".join(f"{source} to {target}" for source, target in healed))

    def kill(self, *numbers: int) -> None:
        """Kill brokers; they stay down until `start`."""
        for number in numbers:
            self.tell(f"broker {number} is killed")
            self.faults.operator.held_down.add(number)
            self.broker(number).kill()

    def lose_power(self, number: int) -> None:
        """The broker's machine loses its power, and half of what it wrote to each file; it stays down until `start`."""
        self.tell(f"broker {number} loses its power")
        self.faults.operator.held_down.add(number)
        self.broker(number).lose_power(lambda ways: ways - 1 if ways <= MOST_NAMES else ways // 2)

    def start(self, *numbers: int) -> None:
        """Start brokers again."""
        for number in numbers:
            self.faults.operator.held_down.discard(number)
            self.cluster.network.power_on(self.broker(number).host)
            self.broker(number).start()

    def pause(self, number: int) -> None:
        """Pause a broker's process."""
        self.tell(f"broker {number} is paused")
        self.broker(number).pause()

    def resume(self, number: int) -> None:
        """Let it continue."""
        self.tell(f"broker {number} goes on")
        self.broker(number).resume()

    def cut_zookeeper(self, number: int) -> None:
        """A broker does not reach ZooKeeper until `reach_zookeeper`."""
        zk = self.broker(number).zk
        assert zk is not None
        self.tell(f"broker {number} does not reach ZooKeeper")
        zk.cut()

    async def reach_zookeeper(self, number: int) -> None:
        """It does again."""
        zk = self.broker(number).zk
        assert zk is not None
        await zk.reconnect()

    def delete_controller(self) -> None:
        """An operator deletes the controller's znode, so that another is elected."""
        self.tell("an operator deletes /controller")
        self.cluster.zookeeper.execute([Delete("/controller")], 0)

    def slow(self, who: int | str, least_ms: float, most_ms: float) -> None:
        """What a broker or the host of a client sends and receives is late, until `swift`."""
        host = who if isinstance(who, str) else self.broker(who).host
        self.cluster.network.delays[host] = (least_ms, most_ms)

    def swift(self) -> None:
        """No messages are late any more."""
        self.cluster.network.delays.clear()

    def ask_for_preferred_leader(self, number: int) -> None:
        """Ask a controller to have the preferred replica lead; one that is paused does it when it continues."""
        controller = self.broker(number)
        assert controller.process is not None
        assert controller.broker is not None
        self.tell(f"broker {number} is asked for the preferred leader")
        controller.process.start(_quietly(controller.broker.control.admin.elect_preferred([PLACE])))

    async def prefer(self, number: int) -> None:
        """Have the preferred leader elected, again and again until it leads."""
        end_s = self.cluster.loop.time() + WHOLE_WITHIN_S
        while self.cluster.loop.time() < end_s:
            if self.controller_id > 0:
                self.ask_for_preferred_leader(self.controller_id)
            await self.wait(0.5)
            if self.leads(number):
                return
        raise MissedScene(f"broker {number} is not elected")


async def _quietly(work: Any) -> None:
    try:
        await work
    except Exception:
        return
