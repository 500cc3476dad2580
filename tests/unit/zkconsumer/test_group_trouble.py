"""Members of a group in memory, on virtual time: races, lost sessions, and rebalances that are given up."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.errors import BrokerError
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.sim.virtual_loop import run_in_virtual_time
from ottla.wire.errors import ErrorCode
from ottla.zk.layout import ConsumerIdZnode, ConsumerOffsetZnode, ConsumerRegistration, PartitionOwnerZnode
from ottla.zk.tree import NoAuthError
from ottla.zkconsumer.commits import OffsetCommits
from ottla.zkconsumer.offset_stores import ZooKeeperOffsets
from ottla.zkconsumer.rebalancer import ConsumerRebalanceFailedError
from support.zk_groups import GROUP, World, static

pytestmark = pytest.mark.spec("Z6")

ONE = static(t=1)
P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
OWNER = PartitionOwnerZnode.path(GROUP, *Q)


def virtually(scenario):
    async def whole():
        world = World()
        try:
            await scenario(world)
        finally:
            await world.end()

    run_in_virtual_time(whole())


def offset_of(world, partition):
    return int(world.store.tree.get(ConsumerOffsetZnode.path(GROUP, *partition)).data)


def test_an_owner_that_commits_between_the_look_at_the_offsets_and_the_claim():
    """Its successor begins where the last commit says, not where the first look said: nothing is handed out twice."""

    async def scenario(world):
        await world.begin(t=2)
        first = await world.start("c1", ONE)
        first.fetching.fetched[Q].consumed_offset = 10
        looked, released, claims = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slow_to_notice(operation, path):
            if operation == "children" and path == "/brokers/ids":  # the beginning of its rebalance
                await looked.wait()

        async def told(operation, path):
            if operation == "delete" and path == OWNER:
                released.set()

        async def between(operation, path):
            if operation == "get" and path == ConsumerOffsetZnode.path(GROUP, *Q):
                looked.set()
            elif operation == "create" and path == OWNER:
                claims.set()
                await released.wait()

        first.zk.before, first.zk.after = slow_to_notice, told
        second = world.join("c2", ONE)
        second.zk.before = between
        await second.group_member.rebalance_now()
        assert claims.is_set()
        assert second.counters.conflicts == 0
        await world.settle()
        world.check()
        assert offset_of(world, Q) == 10
        assert second.fetching.fetched[Q].consumed_offset == 10

    virtually(scenario)


def test_a_commit_that_takes_long_does_not_undo_that_of_a_rebalance():
    async def scenario(world):
        await world.begin(t=2)
        member = await world.start("c1", ONE)
        held = asyncio.Event()

        async def slow_to_write_once(operation, path):
            if path == ConsumerOffsetZnode.path(GROUP, *P):
                member.zk.before = None
                await held.wait()

        for info in member.fetching.fetched.values():
            info.consumed_offset = 10
        rebalancer = member.group_member.rebalancer
        await member.commits.commit(rebalancer.consumed_offsets)
        for info in member.fetching.fetched.values():
            info.consumed_offset = 15
        member.zk.before = slow_to_write_once
        slow = asyncio.create_task(member.commits.commit(rebalancer.consumed_offsets, retry_on_failure=False))
        await world.settle(0.01)
        for info in member.fetching.fetched.values():
            info.consumed_offset = 20
        second = world.join("c2", ONE)
        joining = asyncio.create_task(second.group_member.rebalance_now())
        await world.settle(5)
        held.set()
        await asyncio.gather(slow, joining)
        await world.settle()
        world.check()
        assert (offset_of(world, P), offset_of(world, Q)) == (20, 20)

    virtually(scenario)


def test_a_commit_that_is_tried_again_leaves_out_what_is_not_owned_any_more():
    async def scenario(world):
        await world.begin(t=2)
        member = await world.start("c1", ONE)
        for info in member.fetching.fetched.values():
            info.consumed_offset = 10
        failing = [True]

        class Store(ZooKeeperOffsets):
            async def commit(self, offsets, **options):
                if failing:
                    failing.clear()
                    raise NoAuthError("/", "for a test")
                await super().commit(offsets, **options)

        commits = OffsetCommits(Store(member.zk, GROUP), 5, 30_000, asyncio.sleep)
        slow = asyncio.create_task(commits.commit(member.group_member.rebalancer.consumed_offsets))
        second = await world.start("c2", ONE)
        await world.settle(10)
        second.fetching.fetched[Q].consumed_offset = 50
        await second.commits.commit(second.group_member.rebalancer.consumed_offsets)
        await slow
        assert offset_of(world, Q) == 50

    virtually(scenario)


def test_offsets_named_by_the_application_are_always_written():
    async def scenario(world):
        await world.begin(t=2)
        first = await world.start("c1", ONE)
        second = await world.start("c2", ONE)
        await world.settle()
        named = {Q: OffsetAndMetadata(0)}
        for _ in range(2):
            await first.commits.commit_all(named)
            assert offset_of(world, Q) == 0
            second.fetching.fetched[Q].consumed_offset += 7
            await second.commits.commit(second.group_member.rebalancer.consumed_offsets)
            assert offset_of(world, Q) > 0

    virtually(scenario)


@pytest.mark.parametrize("auto_commit", [True, False])
def test_what_was_read_in_a_session_that_expired_is_committed_in_the_next(auto_commit):
    """Else a single consumer whose session expires reads all since its last commit twice."""

    async def scenario(world):
        await world.begin(t=2)
        member = await world.start("c1", ONE, auto_commit=auto_commit)
        member.fetching.fetched[P].consumed_offset = 10
        member.fetching.fetched[Q].consumed_offset = 20
        await world.admin.create(ConsumerOffsetZnode.path(GROUP, "t", 1), b"30", make_parents=True)
        member.zk.expire(1000)
        await world.settle()
        world.check()
        found = {each: info.consumed_offset for each, info in member.fetching.fetched.items()}
        assert found == {P: 10 if auto_commit else -1, Q: 30}  # somebody else had come further with the second

    virtually(scenario)


def test_who_finds_its_name_taken_in_a_new_session_reads_nothing_until_it_is_free():
    async def scenario(world):
        await world.begin(t=1)
        member = await world.start("c1", ONE)
        rival = world.session()
        member.zk.expire(1000)
        await rival.create(ConsumerIdZnode.path(GROUP, "c1"), ConsumerIdZnode.encode(ONE), ephemeral=True)
        await world.settle()
        assert member.fetching.fetched == {}
        await rival.close()
        await world.settle()
        assert member.owned == {"t": {0}}

    virtually(scenario)


def test_a_consumer_that_was_slow_leaves_nobody_behind():
    """The others have given up when it lets go at last, and nothing else changes after that."""

    async def scenario(world):
        await world.begin(t=3)
        slow = await world.start("c1", ONE)

        class Slow:
            async def before_releasing_partitions(self, owned):
                await world.settle(100)

            async def before_starting_fetchers(self, consumer, assignment):
                pass

        slow.group_member.rebalancer.hooks = Slow()
        for name in ("c2", "c3"):
            member = world.join(name, ONE)
            with pytest.raises(ConsumerRebalanceFailedError, match="did not release"):
                await member.group_member.rebalance_now()
        await world.settle(400)
        world.check()
        assert world.shares() == {"c1": {0}, "c2": {1}, "c3": {2}}

    virtually(scenario)


def test_a_rebalance_that_is_given_up_leaves_no_owner_nodes():
    async def scenario(world):
        await world.begin(t=1)
        member = await world.start("c1", ONE)

        class Failing:
            async def before_releasing_partitions(self, owned):
                raise ValueError("for a test")

            async def before_starting_fetchers(self, consumer, assignment):
                pass

        member.group_member.rebalancer.hooks = Failing()
        await world.grow("t", 2)
        await world.settle()
        assert member.counters.failed == 1
        assert world.owners() == {}
        assert member.owned == {}

    virtually(scenario)


def test_what_zookeeper_refuses_for_good_is_reported():
    async def scenario(world):
        await world.begin(t=1)
        member = world.join("c1", ONE)

        async def refuse(operation, path):
            if operation == "create" and "/ids/" in path:
                raise NoAuthError(path, "no authentication for it")

        member.zk.before = refuse
        with pytest.raises(ConsumerRebalanceFailedError, match="/consumers/g/ids/c1"):
            await asyncio.wait_for(member.group_member.rebalance_now(), 600)
        member.zk.before = None
        await world.settle()
        assert member.owned == {"t": {0}}

    virtually(scenario)


def test_offsets_that_a_coordinator_refuses_for_good_are_reported():
    async def scenario(world):
        class Refusing(ZooKeeperOffsets):
            async def fetch(self, partitions):
                raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group g: offsets cannot be read")

        commits = OffsetCommits(Refusing(world.session(), GROUP), 5, 1000, asyncio.sleep)
        with pytest.raises(BrokerError, match="offsets cannot be read"):
            await asyncio.wait_for(commits.fetch([P]), 600)

    virtually(scenario)


def test_a_filter_of_another_consumer_that_only_java_knows():
    async def scenario(world):
        await world.begin(t=1)
        javas = ConsumerRegistration({r"\p{Alpha}+": 1}, "white_list")
        other = world.session()
        await other.create(
            ConsumerIdZnode.path(GROUP, "java"), ConsumerIdZnode.encode(javas), ephemeral=True, make_parents=True
        )
        with pytest.raises(ConsumerRebalanceFailedError, match="consumer java of this group filters"):
            await world.start("c1", ONE)
        await other.close()

    virtually(scenario)
