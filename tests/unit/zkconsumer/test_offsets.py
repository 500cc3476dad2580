"""Where offsets are kept, and how often it is tried."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.errors import ClientError
from ottla.client.group_offsets import GroupOffsets
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.env.environment import Environment
from ottla.peer.cluster import Cluster
from ottla.peer.settings import ConnectionSettings
from ottla.sim.virtual_loop import LoopClock, run_in_virtual_time
from ottla.wire.messages.offset_commit import OffsetCommitResponse
from ottla.zk.layout import ConsumerOffsetZnode, ZnodeDataError
from ottla.zkconsumer.commits import OffsetCommits, OffsetsNotCommittedError
from ottla.zkconsumer.offset_stores import DualOffsets, KafkaOffsets, ZooKeeperOffsets
from support.zk_groups import GROUP, World

pytestmark = pytest.mark.spec("Z5")

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


class MemoryOffsets:
    """A store that fails as often as it is told."""

    def __init__(self, failures=0, offsets=None):
        self.failures = failures
        self.offsets = offsets or {}
        self.calls = 0

    async def fetch(self, partitions):
        self._count()
        return {each: self.offsets.get(each, -1) for each in partitions}

    async def commit(self, offsets, *, changed_only=False):
        self._count()
        self.offsets.update({each: committed.offset for each, committed in offsets.items()})

    def _count(self):
        self.calls += 1
        if self.calls <= self.failures:
            raise ClientError("for a test")


def committed(**offsets):
    return {TopicPartition("t", int(name[1:])): OffsetAndMetadata(offset) for name, offset in offsets.items()}


def test_offsets_in_zookeeper():
    async def scenario():
        world = World()
        zk = world.session()
        store = ZooKeeperOffsets(zk, GROUP)
        assert await store.fetch([P, Q]) == {P: -1, Q: -1}
        await store.commit(committed(p0=5))
        path = ConsumerOffsetZnode.path(GROUP, "t", 0)
        assert (await zk.get(path))[0] == b"5"
        await store.commit(committed(p0=5, p1=1), changed_only=True)
        assert (await zk.get(path))[1].version == 0  # what has not changed is not written
        await store.commit(committed(p0=6))
        assert await ZooKeeperOffsets(zk, GROUP).fetch([P, Q]) == {P: 6, Q: 1}
        await zk.set(path, b"six")
        with pytest.raises(ZnodeDataError, match=f"{path} holds no offset"):
            await store.fetch([P])

    run_in_virtual_time(scenario())


def test_what_another_consumer_wrote_meanwhile_is_written_over():
    async def scenario():
        world = World()
        zk = world.session()
        store = ZooKeeperOffsets(zk, GROUP)
        await store.commit(committed(p0=5))
        await zk.set(ConsumerOffsetZnode.path(GROUP, "t", 0), b"9")
        assert await store.fetch([P]) == {P: 9}  # as at the next rebalance
        await store.commit(committed(p0=5))
        assert await store.fetch([P]) == {P: 5}

    run_in_virtual_time(scenario())


def test_of_two_stores_the_later_offset_counts_and_both_are_written():
    async def scenario():
        kafka, zookeeper = MemoryOffsets(offsets={P: 7}), MemoryOffsets(offsets={P: 3, Q: 4})
        store = DualOffsets(kafka, zookeeper)
        assert await store.fetch([P, Q]) == {P: 7, Q: 4}
        await store.commit(committed(p0=8))
        assert kafka.offsets[P] == zookeeper.offsets[P] == 8

    run_in_virtual_time(scenario())


def test_what_kafka_refuses_does_not_go_to_zookeeper():
    async def scenario():
        kafka, zookeeper = MemoryOffsets(failures=1), MemoryOffsets()
        with pytest.raises(ClientError):
            await DualOffsets(kafka, zookeeper).commit(committed(p0=8))
        assert zookeeper.offsets == {}

    run_in_virtual_time(scenario())


@pytest.mark.parametrize(("failures", "retry", "succeeds"), [(5, True, True), (6, True, False), (1, False, False)])
def test_commits_are_tried_again_as_the_settings_say(failures, retry, succeeds):
    async def scenario():
        store = MemoryOffsets(failures)
        commits = OffsetCommits(store, 5, 1000, asyncio.sleep)
        if succeeds:
            await commits.commit(lambda: {P: 1}, retry_on_failure=retry)
            assert store.offsets == {P: 1}
            assert asyncio.get_running_loop().time() == pytest.approx(failures)
        else:
            with pytest.raises(OffsetsNotCommittedError, match="for a test"):
                await commits.commit(lambda: {P: 1}, retry_on_failure=retry)
            assert store.calls == (6 if retry else 1)

    run_in_virtual_time(scenario())


class SilentCoordinator:
    """A coordinator whose first responses never come."""

    def __init__(self, silences):
        self.silences = silences
        self.asked_at_s = []
        self.offsets = {}

    async def ask(self, request):
        self.asked_at_s.append(asyncio.get_running_loop().time())
        if len(self.asked_at_s) <= self.silences:
            await asyncio.Event().wait()
        (topic,) = request.topics
        for each in topic.partitions:
            self.offsets[topic.name, each.partition_index] = each.committed_offset
        return OffsetCommitResponse()


@pytest.mark.parametrize(("silences", "retry", "succeeds"), [(5, True, True), (6, True, False), (1, False, False)])
def test_a_broker_that_does_not_answer_in_time_is_asked_again(silences, retry, succeeds):
    """`offsets.channel.socket.timeout.ms` is 30 ms here, of virtual time, and the pause between two attempts 1 s."""

    async def scenario():
        loop = asyncio.get_running_loop()
        begun = loop.time()
        coordinator = SilentCoordinator(silences)
        cluster = Cluster(ConnectionSettings("127.0.0.1:1"), Environment(clock=LoopClock(loop, 0)))
        offsets = GroupOffsets(cluster, GROUP, coordinator)

        async def group_offsets():
            return offsets

        commits = OffsetCommits(KafkaOffsets(group_offsets, 30), 5, 1000, asyncio.sleep)
        if succeeds:
            await commits.commit_all(committed(p0=1), retry_on_failure=retry)
            assert coordinator.offsets == {P: 1}
        else:
            with pytest.raises(OffsetsNotCommittedError, match="30 ms"):
                await commits.commit_all(committed(p0=1), retry_on_failure=retry)
            assert coordinator.offsets == {}
        attempts = [round(at - begun, 3) for at in coordinator.asked_at_s]
        assert attempts == [round(number * 1.03, 3) for number in range(silences + succeeds)]

    run_in_virtual_time(scenario())


def test_nothing_to_commit_asks_nobody():
    async def scenario():
        store = MemoryOffsets()
        await OffsetCommits(store, 5, 1000, asyncio.sleep).commit(dict)
        assert store.calls == 0

    run_in_virtual_time(scenario())


def test_offsets_are_asked_for_until_they_come():
    async def scenario():
        store = MemoryOffsets(failures=20, offsets={P: 3})
        assert await OffsetCommits(store, 5, 1000, asyncio.sleep).fetch([P]) == {P: 3}

    run_in_virtual_time(scenario())
