"""Groups of the ZooKeeper generation in memory: a tree, members with sessions of their own, fetchers that only note."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.assign.threads import ConsumerThread
from ottla.client.model import TopicPartition
from ottla.env.clock import VirtualClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import LocalClient
from ottla.zk.layout import ConsumerRegistration, PartitionOwnerZnode, TopicAssignment, TopicZnode
from ottla.zk.store import TreeStore
from ottla.zk.tree import ANY_VERSION, NoNodeError, Stat, WatchTable
from ottla.zkconsumer.commits import OffsetCommits
from ottla.zkconsumer.counters import RebalanceCounters, RebalanceStep
from ottla.zkconsumer.group_member import HighLevelMember
from ottla.zkconsumer.offset_stores import ZooKeeperOffsets
from ottla.zkconsumer.partition_info import PartitionTopicInfo
from ottla.zkconsumer.rebalancer import RebalanceSettings

GROUP = "g"
SETTLED_S = 60.0
"""Virtual seconds within which a group comes to rest."""


class Sink:
    """A stream's queue that takes nothing."""

    is_full = False


class NotedFetching:
    """Fetchers that note what they are told to fetch."""

    def __init__(self) -> None:
        self.fetched: Mapping[TopicPartition, PartitionTopicInfo] = {}
        self.stops = 0

    async def stop(self) -> None:
        self.fetched = {}
        self.stops += 1

    def start(self, assignments: Mapping[TopicPartition, PartitionTopicInfo]) -> None:
        self.fetched = assignments


class RecordedCounters(RebalanceCounters):
    """Notes the steps, and calls `at_step` in the middle of each."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[RebalanceStep] = []
        self.owned: list[int] = []
        self.at_step: Callable[[RebalanceStep], None] = lambda _step: None

    def step(self, step: RebalanceStep) -> None:
        self.steps.append(step)
        self.at_step(step)

    def rebalanced(self, owned: int) -> None:
        self.owned.append(owned)


class FaultyClient(LocalClient):
    """A session whose operations fail, or wait, where `before` says so; `after` may lose the answer of a change."""

    def __init__(self, store: TreeStore, session_id: int, watches: WatchTable) -> None:
        super().__init__(store, session_id, watches)
        self.before: Callable[[str, str], Awaitable[None]] | None = None
        self.after: Callable[[str, str], Awaitable[None]] | None = None

    async def create(self, path: str, data: bytes | None = None, **options: Any) -> str:
        await self._call(self.before, "create", path)
        made = await super().create(path, data, **options)
        await self._call(self.after, "create", path)
        return made

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call(self.before, "delete", path)
        await super().delete(path, version)
        await self._call(self.after, "delete", path)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        await self._call(self.before, "set", path)
        return await super().set(path, data, version)

    async def get(self, path: str, watch: Any = None) -> tuple[bytes | None, Stat]:
        await self._call(self.before, "get", path)
        return await super().get(path, watch)

    async def children(self, path: str, watch: Any = None) -> list[str]:
        await self._call(self.before, "children", path)
        return await super().children(path, watch)

    async def _call(self, hook: Callable[[str, str], Awaitable[None]] | None, operation: str, path: str) -> None:
        await asyncio.sleep(0.001)  # a round trip: what others do may come in between
        if hook is not None:
            await hook(operation, path)


@dataclass
class Member:
    """A consumer with all that a test looks at."""

    name: str
    zk: FaultyClient
    fetching: NotedFetching
    counters: RecordedCounters
    commits: OffsetCommits
    group_member: HighLevelMember
    task: asyncio.Task[None]

    @property
    def owned(self) -> dict[str, set[int]]:
        """What its fetchers fetch."""
        by_topic: dict[str, set[int]] = {}
        for topic, partition in self.fetching.fetched:
            by_topic.setdefault(topic, set()).add(partition)
        return by_topic

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.zk.close()


@dataclass
class World:
    """A tree with a broker, topics and members."""

    store: TreeStore = field(default_factory=lambda: TreeStore.open(MemoryDisk(), "/t", VirtualClock(1)))
    watches: WatchTable = field(default_factory=WatchTable)
    members: dict[str, Member] = field(default_factory=dict)
    sessions: int = 100

    def session(self) -> FaultyClient:
        self.sessions += 1
        return FaultyClient(self.store, self.sessions, self.watches)

    async def begin(self, **topics: int) -> None:
        """A broker is alive, and topics have this many partitions."""
        self.admin = LocalClient(self.store, 1, self.watches)
        self.broker = LocalClient(self.store, 2, self.watches)
        await self.admin.create("/brokers/ids", make_parents=True)
        await self.broker_comes()
        for topic, count in topics.items():
            await self.grow(topic, count)

    async def broker_comes(self) -> None:
        await self.broker.create("/brokers/ids/0", b"{}", ephemeral=True)

    async def broker_goes(self) -> None:
        await self.broker.delete("/brokers/ids/0")

    async def grow(self, topic: str, count: int) -> None:
        """Make the topic, or give it more partitions."""
        data = TopicZnode.encode(TopicAssignment.of(None, {each: [0] for each in range(count)}))
        path = TopicZnode.path(topic)
        if await self.admin.exists(path) is None:
            await self.admin.create(path, data, make_parents=True)
        else:
            await self.admin.set(path, data)

    def join(self, name: str, registration: ConsumerRegistration, **settings: Any) -> Member:
        """A consumer begins; `start` makes it register and rebalance."""
        zk, fetching, counters = self.session(), NotedFetching(), RecordedCounters()
        always = settings.pop("always_watch_brokers", False)
        commits = OffsetCommits(ZooKeeperOffsets(zk, GROUP), 5, 1000, asyncio.sleep)
        queues: dict[tuple[ConsumerThread, str], Sink] = {}
        group_member = HighLevelMember(
            zk,
            RebalanceSettings(GROUP, name, **settings),
            registration,
            fetching,
            commits,
            lambda thread, topic: queues.setdefault((thread, topic), Sink()),
            asyncio.sleep,
            counters,
            always_watch_brokers=always,
        )
        task = asyncio.create_task(group_member.watch())
        member = self.members[name] = Member(name, zk, fetching, counters, commits, group_member, task)
        return member

    async def start(self, name: str, registration: ConsumerRegistration, **settings: Any) -> Member:
        member = self.join(name, registration, **settings)
        await member.group_member.rebalance_now()
        return member

    async def settle(self, for_s: float = SETTLED_S) -> None:
        """Let virtual time pass, by default until nobody has anything to do any more."""
        await asyncio.sleep(for_s)

    async def leave(self, name: str) -> None:
        await self.members.pop(name).leave()

    async def end(self) -> None:
        for name in list(self.members):
            await self.leave(name)

    def owners(self) -> dict[TopicPartition, str]:
        """The owner nodes: which thread has which partition."""
        root = PartitionOwnerZnode.group_path(GROUP)
        found: dict[TopicPartition, str] = {}
        for topic in _children(self.store, root):
            for partition in _children(self.store, f"{root}/{topic}"):
                data = self.store.tree.get(f"{root}/{topic}/{partition}").data or b""
                found[TopicPartition(topic, int(partition))] = data.decode()
        return found

    def check(self) -> None:
        """At rest every partition has one owner node, and its owner alone fetches it."""
        fetched: dict[TopicPartition, str] = {}
        for member in self.members.values():
            for partition, info in member.fetching.fetched.items():
                assert partition not in fetched, f"{partition} is fetched by {fetched[partition]} and {info.thread}"
                fetched[partition] = str(info.thread)
        owners = self.owners()
        assert fetched == owners

    def shares(self) -> dict[str, set[int]]:
        """Partitions of the only topic, by member."""
        return {name: set().union(*member.owned.values()) for name, member in self.members.items()}


def _children(store: TreeStore, path: str) -> list[str]:
    try:
        return store.tree.children(path)
    except NoNodeError:
        return []


def static(**streams: int) -> ConsumerRegistration:
    """So many threads for each topic."""
    return ConsumerRegistration(streams)
