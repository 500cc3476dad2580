"""The design on ZooKeeper (Kafka up to 0.8.2), played through a script of churn.

The members are the high-level consumer's own (`zkconsumer.group_member`); only their records, their time and the
way to ZooKeeper are simulated. Offsets are committed in rebalances; the timer of the auto-commit is left out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.client.model import TopicPartition
from ottla.rebalance.designs.churn_script import Action, ChurnScript, Turn
from ottla.rebalance.designs.consumption import Consumption
from ottla.rebalance.designs.results import Decisions, DesignResult, Recorder
from ottla.sim.group_consumer import GROUP_ID, MOST_RECORDS_AT_ONCE, TOPIC
from ottla.sim.group_stage import Weather
from ottla.sim.virtual_loop import VirtualTimeLoop, run_in_virtual_time
from ottla.sim.zookeeper_service import SimulatedZk, SimulatedZooKeeper
from ottla.zk.client import ensure_path
from ottla.zk.layout import (
    BrokerIdZnode,
    ConsumerOffsetZnode,
    ConsumerRegistration,
    PartitionOwnerZnode,
    TopicAssignment,
    TopicZnode,
)
from ottla.zk.tree import Create, Operation, Set
from ottla.zkconsumer.commits import OffsetCommits
from ottla.zkconsumer.counters import RebalanceCounters
from ottla.zkconsumer.group_member import HighLevelMember
from ottla.zkconsumer.offset_stores import ZooKeeperOffsets
from ottla.zkconsumer.partition_info import PartitionTopicInfo
from ottla.zkconsumer.rebalancer import RebalanceSettings

ADMIN_SESSION = 0
#: The broker that leads the partitions, and the one that fails and returns.
LEADER_ID, OTHER_ID = 0, 1
OFFSET_RETRIES = 5
OFFSET_BACKOFF_MS = 1_000
_OFFSETS = f"{ConsumerOffsetZnode.topic_path(GROUP_ID, TOPIC)}/"
_OWNERS = f"{PartitionOwnerZnode.topic_path(GROUP_ID, TOPIC)}/"


@dataclass(frozen=True, slots=True)
class ZooKeeperTimes:
    """Intervals and limits by the names of the high-level consumer's settings, milliseconds; its defaults."""

    zookeeper_session_timeout_ms: int = 6_000
    rebalance_max_retries: int = 4
    rebalance_backoff_ms: int = 2_000
    #: Whether every change of brokers makes the group rebalance (`ottla.watch.brokers=always`).
    always_watch_brokers: bool = False


class _Queue:
    """A stream's queue, always empty."""

    is_full = False


@dataclass(eq=False, slots=True)
class _Fetching:
    """`FetchControl` of a member that simulates reading, and reports which partitions it reads."""

    member: str
    consumption: Consumption
    decisions: Decisions
    loop: VirtualTimeLoop
    chance: random.Random
    read: Mapping[TopicPartition, PartitionTopicInfo] = field(default_factory=dict)

    async def stop(self, topics: Collection[str] | None = None) -> None:
        """See `FetchControl.stop`; there is only one topic. Each try begins with this, and ends so where it fails."""
        self.decisions.ended(self.member)
        for info in self.read.values():
            info.consumed_offset = max(0, info.consumed_offset) + self.chance.randint(0, MOST_RECORDS_AT_ONCE)
        self.consumption.released(self.member, [partition for _, partition in self.read], self.loop.now_ms)
        self.read = {}

    def start(self, assignments: Mapping[TopicPartition, PartitionTopicInfo]) -> None:
        """See `FetchControl.start`."""
        self.read = dict(assignments)
        self.consumption.claimed(self.member, [partition for _, partition in self.read], self.loop.now_ms)


class _Counted(RebalanceCounters):
    """Also counts successful rebalances, and notes on which view the member decides."""

    def __init__(self, member: str, decisions: Decisions) -> None:
        super().__init__()
        self.ended = 0
        self._member = member
        self._decisions = decisions

    def decides(self, consumers: Sequence[str], partitions: Mapping[str, tuple[int, ...]]) -> None:
        """See `RebalanceCounters.decides`."""
        self._decisions.decided(self._member, (sorted(consumers), partitions))

    def rebalanced(self, owned: int) -> None:
        """See `RebalanceCounters.rebalanced`."""
        self._decisions.ended(self._member)
        self.ended += 1


@dataclass(eq=False, slots=True)
class _Member:
    zk: SimulatedZk
    fetching: _Fetching
    task: asyncio.Task[None]


class ZooKeeperDesign:
    """One group on a simulated ZooKeeper; `run` may be called once."""

    def __init__(self, name: str, strategy: str, times: ZooKeeperTimes, weather: Weather, seed: int) -> None:
        self._name = name
        self._strategy = strategy
        self._times = times
        self._weather = weather
        self._chance = random.Random(seed)
        self._loop = VirtualTimeLoop()
        self._members: dict[str, _Member] = {}
        self._counters: list[_Counted] = []
        self._server: SimulatedZooKeeper
        self._recorder: Recorder
        self._consumption: Consumption
        self._partitions = 0

    def run(self, script: ChurnScript) -> DesignResult:
        """Play the script to its end."""
        self._server = SimulatedZooKeeper(
            self._loop, self._chance, self._weather.delay_ms, self._times.zookeeper_session_timeout_ms
        )
        self._recorder = Recorder(self._name, script.partitions)
        self._consumption = self._recorder.consumption
        self._server.on_transaction, self._server.on_session_end = self._written, self._session_ended
        return run_in_virtual_time(self._play_all(script), self._loop)

    async def _play_all(self, script: ChurnScript) -> DesignResult:
        admin = self._server.connect()
        self._partitions = script.partitions
        await ensure_path(admin, BrokerIdZnode.ROOT)
        for broker_id in (LEADER_ID, OTHER_ID):
            await admin.create(BrokerIdZnode.path(broker_id), b"{}", ephemeral=True)
        await admin.create(TopicZnode.path(TOPIC), self._topic(), make_parents=True)
        for name in script.members:
            self._start(name)
        later: set[asyncio.Task[None]] = set()
        await self._wait_until(script.begin_ms)
        self._begin()
        for turn in script.turns:
            await self._wait_until(turn.at_ms)
            self._recorder.turn(turn)
            # Events with a duration run concurrently with later ones.
            task = asyncio.create_task(self._play(turn, admin))
            later.add(task)
            task.add_done_callback(later.discard)
        await self._wait_until(script.end_ms)
        for task in later:
            task.cancel()
        return await self._end(script.end_ms)

    async def _wait_until(self, at_ms: int) -> None:
        await asyncio.sleep(max(0.0, at_ms / 1000 - self._loop.time()))

    def _topic(self) -> bytes:
        return TopicZnode.encode(TopicAssignment.of(None, {each: [LEADER_ID] for each in range(self._partitions)}))

    def _begin(self) -> None:
        self._recorder.begin(self._loop.now_ms)
        self._server.reads = self._server.writes = self._server.events = 0
        self._server.uncertain.clear()
        self._recorder.result.stale_offsets_stored = 0
        self._counters = [_restarted(counters) for counters in self._counters]

    async def _end(self, now_ms: int) -> DesignResult:
        result = self._recorder.end(now_ms)
        for member in self._members.values():
            member.task.cancel()
        await asyncio.gather(*(member.task for member in self._members.values()), return_exceptions=True)
        result.znode_reads, result.znode_writes = self._server.reads, self._server.writes
        result.watch_events = self._server.events
        result.rebalances = sum(counters.ended for counters in self._counters)
        result.tries = sum(counters.tries for counters in self._counters)
        result.conflicts = sum(counters.conflicts for counters in self._counters)
        result.abandoned = sum(counters.failed for counters in self._counters)
        result.uncertain = sum(not path.startswith(_OFFSETS) for path in self._server.uncertain)
        return result

    # What the server sees

    def _session_ended(self, session_id: int) -> None:
        for name, member in self._members.items():
            if member.zk.session_id == session_id:
                self._consumption.lost(name, self._loop.now_ms)

    def _written(self, made: Sequence[Operation], session_id: int) -> None:
        for each in made:
            if isinstance(each, Set | Create) and each.path.startswith(_OFFSETS):
                owner = self._server.tree.nodes.get(f"{_OWNERS}{each.path.removeprefix(_OFFSETS)}")
                is_owners = owner is not None and owner.stat().ephemeral_owner == session_id
                self._recorder.result.stale_offsets_stored += not is_owners

    # Events

    async def _play(self, turn: Turn, admin: SimulatedZk) -> None:
        member = self._members.get(turn.member)
        if turn.action is Action.START:
            self._start(turn.member)
        elif turn.action is Action.GROW:
            self._partitions += turn.by
            self._consumption.grown(self._partitions, self._loop.now_ms)
            await admin.set(TopicZnode.path(TOPIC), self._topic())
        elif turn.action is Action.BROKER:
            await admin.delete(BrokerIdZnode.path(OTHER_ID))
            await asyncio.sleep(turn.for_ms / 1000)
            await admin.create(BrokerIdZnode.path(OTHER_ID), b"{}", ephemeral=True)
        elif member is not None:
            await self._simulate_fault(turn, member)

    async def _simulate_fault(self, turn: Turn, member: _Member) -> None:
        if turn.action is Action.LEAVE:
            await self._stop(turn.member, member)
            await member.zk.close()
        elif turn.action is Action.DIE:
            member.zk.die()
            await self._stop(turn.member, member)
        elif turn.action is Action.FREEZE:
            member.zk.freeze()
            self._consumption.halted(turn.member, self._loop.now_ms)
            await asyncio.sleep(turn.for_ms / 1000)
            self._consumption.resumed(turn.member, self._loop.now_ms)
            await member.zk.thaw()
        elif turn.action is Action.CUT:
            member.zk.cut()
            await asyncio.sleep(turn.for_ms / 1000)
            await member.zk.reconnect()

    def _start(self, name: str) -> None:
        zk = self._server.connect(self._weather.slowness(name), self._weather.loss)
        counters = _Counted(name, self._recorder.decisions)
        fetching = _Fetching(name, self._consumption, self._recorder.decisions, self._loop, self._chance)
        queue = _Queue()
        group_member = HighLevelMember(
            zk,
            RebalanceSettings(
                GROUP_ID,
                name,
                strategy=self._strategy,
                max_retries=self._times.rebalance_max_retries,
                backoff_ms=self._times.rebalance_backoff_ms,
            ),
            ConsumerRegistration({TOPIC: 1}),
            fetching,
            OffsetCommits(ZooKeeperOffsets(zk, GROUP_ID), OFFSET_RETRIES, OFFSET_BACKOFF_MS, zk.sleep),
            lambda _thread, _topic: queue,
            zk.sleep,
            counters,
            session_timeout_ms=self._times.zookeeper_session_timeout_ms,
            always_watch_brokers=self._times.always_watch_brokers,
        )
        group_member.trigger()
        self._counters.append(counters)
        self._members[name] = _Member(zk, fetching, asyncio.create_task(group_member.watch()))

    async def _stop(self, name: str, member: _Member) -> None:
        del self._members[name]
        member.task.cancel()
        self._consumption.gone(name, self._loop.now_ms)
        self._recorder.decisions.ended(name)
        await asyncio.gather(member.task, return_exceptions=True)


def _restarted(counters: _Counted) -> _Counted:
    counters.ended = counters.tries = counters.conflicts = counters.failed = 0
    return counters
