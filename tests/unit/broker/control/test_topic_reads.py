"""Topics are read from their znodes in few requests, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from uuid import UUID

import pytest

from ottla.broker.control.topic_reads import (
    PARTITIONS_IN_A_READ,
    READS_AT_ONCE,
    TOPICS_AT_ONCE,
    TOPICS_IN_A_READ,
    read_topic_configs,
    read_topics,
)
from ottla.cluster.controller_events import FoundPartitionState, FoundTopic, ReplicaMove
from ottla.env.clock import VirtualClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import LocalClient
from ottla.zk.layout import (
    LeaderAndIsr,
    PartitionStateZnode,
    TopicAssignment,
    TopicConfigZnode,
    TopicZnode,
    ZnodeDataError,
)
from ottla.zk.store import TreeStore
from ottla.zk.tree import Stat

pytestmark = pytest.mark.spec("R1")

ROLES = (1, 2)


class Counting(LocalClient):
    """A session whose requests are counted, and take a turn of the loop, unless it `waits` for nothing."""

    def __init__(self) -> None:
        super().__init__(TreeStore.open(MemoryDisk(), "/t", VirtualClock(1)))
        self.sizes: list[int] = []
        self.waits = True
        self.under_way = 0
        self.most_under_way = 0

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        self.sizes.append(len(paths))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        if self.waits:
            await asyncio.sleep(0)
        self.under_way -= 1
        return await super().get_many(paths)

    async def add(self, name: str, partitions: int, with_states: bool = True) -> None:
        assignment = TopicAssignment.of(UUID(int=partitions), dict.fromkeys(range(partitions), ROLES))
        await self.create(TopicZnode.path(name), TopicZnode.encode(assignment), make_parents=True)
        for index in range(partitions if with_states else 0):
            state = LeaderAndIsr(2, index, ROLES, 1)
            data = PartitionStateZnode.encode(state)
            await self.create(PartitionStateZnode.path(name, index), data, make_parents=True)


def read(zk: LocalClient, names: Sequence[str]) -> list[FoundTopic]:
    ids = count(1)
    return asyncio.run(read_topics(zk, names, lambda: UUID(int=next(ids))))


def test_topics_partitions_and_settings_are_read_together_and_in_order() -> None:
    zk = Counting()
    sizes = {f"t{number}": 1 + number % 7 for number in range(2 * TOPICS_AT_ONCE)}

    async def fill() -> None:
        for name, partitions in sizes.items():
            await zk.add(name, partitions)
        data = TopicConfigZnode.encode({"retention.ms": "5"})
        await zk.create(TopicConfigZnode.path("t3"), data, make_parents=True)

    asyncio.run(fill())
    found = read(zk, [*sizes, "deleted since"])
    assert [topic.name for topic in found] == list(sizes)
    assert {topic.name: topic.configs for topic in found if topic.configs} == {"t3": {"retention.ms": "5"}}
    for topic in found:
        assert len(topic.partitions) == sizes[topic.name]
        assert [state.leader_epoch for state in topic.partitions] == list(range(sizes[topic.name]))
    requests = -(-2 * TOPICS_AT_ONCE // TOPICS_IN_A_READ) + sum(sizes.values()) / PARTITIONS_IN_A_READ
    assert len(zk.sizes) < requests + 5
    assert max(zk.sizes) <= max(PARTITIONS_IN_A_READ, 2 * TOPICS_IN_A_READ)


def test_a_large_topic_is_read_in_several_requests_and_no_more_than_a_few_at_once() -> None:
    zk = Counting()
    asyncio.run(zk.add("large", 10 * PARTITIONS_IN_A_READ + 1))
    [topic] = read(zk, ["large"])
    assert [state.leader_epoch for state in topic.partitions] == list(range(10 * PARTITIONS_IN_A_READ + 1))
    assert sorted(zk.sizes) == [1, 2, *[PARTITIONS_IN_A_READ] * 10]
    assert zk.most_under_way == READS_AT_ONCE


def test_where_the_tree_is_in_the_process_each_answer_is_taken_up_in_a_turn_of_its_own() -> None:
    zk = Counting()
    zk.waits = False
    names = [f"t{number}" for number in range(20)]

    async def fill() -> None:
        for name in names:
            await zk.add(name, PARTITIONS_IN_A_READ)

    asyncio.run(fill())
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        reading = asyncio.ensure_future(read_topics(zk, names, lambda: UUID(int=1)))
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(await reading) == len(names)

    asyncio.run(count_turns())
    assert turns > len(names) / READS_AT_ONCE + len(names)


def test_partitions_without_a_state_never_had_a_leader() -> None:
    zk = Counting()
    asyncio.run(zk.add("new", 3, with_states=False))
    [topic] = read(zk, ["new"])
    assert topic.partitions == (FoundPartitionState(ROLES),) * 3


def test_moves_and_topics_without_an_id() -> None:
    zk = Counting()

    async def fill() -> None:
        assignment = TopicAssignment(None, {0: (1, 2, 3), 1: ROLES}, {0: (3,)}, {0: (1,)})
        await zk.create(TopicZnode.path("moving"), TopicZnode.encode(assignment), make_parents=True)

    asyncio.run(fill())
    [topic] = read(zk, ["moving"])
    assert (topic.topic_id, topic.new_id) == (None, UUID(int=1))
    assert [state.move for state in topic.partitions] == [ReplicaMove((3,), (1,)), ReplicaMove()]


@pytest.mark.parametrize("path", [TopicZnode.path("b"), PartitionStateZnode.path("b", 1), TopicConfigZnode.path("b")])
def test_an_unreadable_znode_is_named(path: str) -> None:
    zk = Counting()

    async def fill() -> None:
        for name in "abc":
            await zk.add(name, 2)
        if await zk.exists(path) is None:
            await zk.create(path, b"{", make_parents=True)
        else:
            await zk.set(path, b"{")

    asyncio.run(fill())
    with pytest.raises(ZnodeDataError, match=path):
        read(zk, ["a", "b", "c"])
    assert zk.under_way == 0, "the other reads ended, too"


def test_a_topic_that_leaves_out_a_partition_is_refused() -> None:
    zk = Counting()
    data = TopicZnode.encode(TopicAssignment.of(UUID(int=1), {0: ROLES, 2: ROLES}))
    asyncio.run(zk.create(TopicZnode.path("t"), data, make_parents=True))
    with pytest.raises(ZnodeDataError, match=r"leaves out numbers of partitions: \[0, 2\]"):
        read(zk, ["t"])


def test_settings_of_topics() -> None:
    zk = Counting()
    data = TopicConfigZnode.encode({"retention.ms": "5"})
    asyncio.run(zk.create(TopicConfigZnode.path("a"), data, make_parents=True))
    assert asyncio.run(read_topic_configs(zk, ["a", "b"])) == {"a": {"retention.ms": "5"}, "b": {}}
    assert zk.sizes == [2]
