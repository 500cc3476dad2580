"""Members of a group in memory, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.model import TopicPartition
from ottla.sim.virtual_loop import run_in_virtual_time
from ottla.zk.client import ConnectionLossError
from ottla.zk.layout import ConsumerIdZnode, ConsumerOffsetZnode, ConsumerRegistration, PartitionOwnerZnode
from ottla.zkconsumer.counters import RebalanceStep
from ottla.zkconsumer.rebalancer import ConsumerRebalanceFailedError
from ottla.zkconsumer.registration import ConsumerIdInUseError
from support.zk_groups import GROUP, World, static

pytestmark = pytest.mark.spec("Z6")

ONE = static(t=1)
STEPS = list(RebalanceStep)


def virtually(scenario):
    """Run it in a world, and check at the end that every partition has one owner."""

    async def whole():
        world = World()
        try:
            await scenario(world)
        finally:
            await world.end()

    run_in_virtual_time(whole())


def shares(world):
    return [world.shares()[name] for name in sorted(world.members)]


@pytest.mark.spec("C6")
def test_the_walk():
    async def scenario(world):
        await world.begin(t=3)
        walk = []
        for name in ("consumer1", "consumer2", "consumer3", "consumer4"):
            await world.start(name, ONE)
            await world.settle()
            world.check()
            walk.append(shares(world))
        for name in ("consumer1", "consumer2", "consumer3"):
            await world.leave(name)
            await world.settle()
            world.check()
            walk.append(shares(world))
        assert walk == [
            [{0, 1, 2}],
            [{0, 1}, {2}],
            [{0}, {1}, {2}],
            [{0}, {1}, {2}, set()],
            [{0}, {1}, {2}],
            [{0, 1}, {2}],
            [{0, 1, 2}],
        ]

    virtually(scenario)


@pytest.mark.spec("A7")
@pytest.mark.parametrize(
    ("strategy", "owners"),
    [
        ("range", ["c1-0", "c1-0", "c1-1", "c2-0", "c2-1"]),
        ("ceil", ["c1-0", "c1-0", "c1-1", "c1-1", "c2-0"]),
    ],
)
def test_partitions_go_to_threads(strategy, owners):
    async def scenario(world):
        await world.begin(t=5)
        for name in ("c1", "c2"):
            await world.start(name, static(t=2), strategy=strategy)
        await world.settle()
        world.check()
        assert [owner for _, owner in sorted(world.owners().items())] == owners

    virtually(scenario)


@pytest.mark.spec("A7")
def test_round_robin_needs_equal_subscriptions():
    async def scenario(world):
        await world.begin(t=2, u=2)
        await world.start("c1", static(t=1, u=1), strategy="roundrobin")
        with pytest.raises(ConsumerRebalanceFailedError, match=r"4 tries.*same topics"):
            await world.start("c2", static(t=1), strategy="roundrobin")
        await world.settle()
        assert world.members["c1"].owned == {}  # it gave up, too
        await world.leave("c2")
        await world.settle()
        assert world.members["c1"].owned == {"t": {0, 1}, "u": {0, 1}}
        await world.start("c3", static(t=1, u=1), strategy="roundrobin")
        await world.settle()
        world.check()
        assert len(world.owners()) == 4
        assert {owner.partition("-")[0] for owner in world.owners().values()} == {"c1", "c3"}

    virtually(scenario)


def test_the_steps_in_their_order():
    async def scenario(world):
        await world.begin(t=1)
        member = await world.start("c1", ONE)
        assert member.counters.steps == STEPS
        assert (member.counters.rebalances, member.counters.tries, member.counters.owned) == (1, 1, [1])
        member.counters.steps.clear()
        no_commit = await world.start("c2", ONE, auto_commit=False)
        assert no_commit.counters.steps == [step for step in STEPS if step is not RebalanceStep.COMMIT]

    virtually(scenario)


def test_offsets_are_committed_before_partitions_change_hands():
    async def scenario(world):
        await world.begin(t=2)
        first = await world.start("c1", ONE)
        for partition, info in first.fetching.fetched.items():
            assert info.consumed_offset == info.fetched_offset == -1
            info.consumed_offset = 10 + partition.partition
        second = await world.start("c2", ONE)
        await world.settle()
        assert second.fetching.fetched[TopicPartition("t", 1)].consumed_offset == 11
        assert world.store.tree.get(ConsumerOffsetZnode.path(GROUP, "t", 0)).data == b"10"

    virtually(scenario)


def test_many_events_make_few_rebalances():
    async def scenario(world):
        await world.begin(t=1)
        member = await world.start("c1", ONE)
        for count in range(2, 52):
            await world.grow("t", count)
        await world.settle()
        world.check()
        assert len(world.owners()) == 51
        assert member.counters.rebalances <= 3

    virtually(scenario)


@pytest.mark.spec("C7")
def test_partitions_are_added_and_a_topic_appears_and_goes():
    async def scenario(world):
        await world.begin(t=1)
        member = await world.start("c1", static(t=1, later=1))
        assert member.owned == {"t": {0}}
        await world.grow("t", 3)
        await world.settle()
        assert member.owned == {"t": {0, 1, 2}}
        await world.grow("later", 2)
        await world.settle()
        assert member.owned == {"t": {0, 1, 2}, "later": {0, 1}}
        await world.admin.delete("/brokers/topics/t")
        await world.settle()
        assert member.owned == {"later": {0, 1}}
        world.check()

    virtually(scenario)


@pytest.mark.spec("C7")
@pytest.mark.parametrize(
    ("pattern", "regex", "owned"),
    [("white_list", "a.*", {"a1", "a2"}), ("black_list", "a.*", {"b1", "b2"})],
)
def test_filters_take_topics_as_they_appear(pattern, regex, owned):
    async def scenario(world):
        await world.begin(a1=1, b1=1, __consumer_offsets=1)
        member = await world.start("c1", ConsumerRegistration({regex: 2}, pattern))
        assert member.owned.keys() == owned & {"a1", "b1"}
        await world.grow("a2", 1)
        await world.grow("b2", 1)
        await world.settle()
        assert member.owned.keys() == owned
        topic = min(owned)
        await world.grow(topic, 3)
        await world.settle()
        assert member.owned[topic] == {0, 1, 2}
        world.check()

    virtually(scenario)


def test_internal_topics_are_taken_where_that_is_wanted():
    async def scenario(world):
        await world.begin(t=1, __consumer_offsets=2)
        member = await world.start("c1", ConsumerRegistration({".*": 1}, "white_list"), exclude_internal_topics=False)
        assert member.owned == {"t": {0}, "__consumer_offsets": {0, 1}}

    virtually(scenario)


def test_a_filter_and_names_in_one_group():
    async def scenario(world):
        await world.begin(t=2, u=1)
        await world.start("c1", ConsumerRegistration({"t|u": 1}, "white_list"))
        await world.start("c2", ONE)
        await world.settle()
        world.check()
        assert world.members["c1"].owned == {"t": {0}, "u": {0}}
        assert world.members["c2"].owned == {"t": {1}}

    virtually(scenario)


def test_without_a_broker_a_consumer_waits_for_one():
    async def scenario(world):
        await world.begin(t=1)
        await world.broker_goes()
        member = await world.start("c1", ONE)
        assert member.owned == {}
        assert world.owners() == {}
        await world.broker_comes()
        await world.settle()
        assert member.owned == {"t": {0}}
        rebalances = member.counters.rebalances
        await world.broker_goes()
        await world.broker_comes()
        await world.settle()
        assert member.counters.rebalances == rebalances  # brokers are watched while there is none

    virtually(scenario)


@pytest.mark.spec("Z5")
def test_brokers_are_watched_always_where_that_is_wanted():
    async def scenario(world):
        await world.begin(t=1)
        member = await world.start("c1", ONE, always_watch_brokers=True)
        rebalances = member.counters.rebalances
        await world.broker_goes()
        await world.settle()
        await world.broker_comes()
        await world.settle()
        assert member.counters.rebalances == rebalances + 2
        world.check()

    virtually(scenario)


def test_a_partition_that_another_holds_rolls_all_claims_back():
    async def scenario(world):
        await world.begin(t=3)
        rival = world.session()
        path = PartitionOwnerZnode.path(GROUP, "t", 1)
        await rival.create(path, b"rival-0", ephemeral=True, make_parents=True)
        member = world.join("c1", ONE)
        task = asyncio.create_task(member.group_member.rebalance_now())
        await world.settle(1)
        assert world.owners() == {TopicPartition("t", 1): "rival-0"}
        assert member.owned == {}
        assert member.counters.conflicts == 1
        await rival.close()
        await task
        world.check()
        assert len(world.owners()) == 3

    virtually(scenario)


def test_a_partition_that_is_never_released_makes_the_rebalance_fail():
    async def scenario(world):
        await world.begin(t=2)
        rival = world.session()
        await rival.create(PartitionOwnerZnode.path(GROUP, "t", 0), b"rival-0", ephemeral=True, make_parents=True)
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConsumerRebalanceFailedError, match=r"4 tries .*, as other consumers"):
            await world.start("c1", ONE, backoff_ms=500)
        assert 2.0 <= asyncio.get_running_loop().time() - began < 2.5
        member = world.members["c1"]
        assert (member.counters.tries, member.counters.conflicts, member.counters.failed) == (4, 4, 1)
        await rival.close()
        await world.grow("t", 3)  # the next event
        await world.settle()
        world.check()
        assert member.owned == {"t": {0, 1, 2}}

    virtually(scenario)


def test_two_members_fight_for_one_partition():
    async def scenario(world):
        await world.begin(t=1)
        for name in ("c1", "c2"):
            world.join(name, ONE)
        await asyncio.gather(*(member.group_member.rebalance_now() for member in world.members.values()))
        await world.settle()
        world.check()
        assert shares(world) == [{0}, set()]

    virtually(scenario)


def test_ten_members_come_at_once_and_go_one_by_one():
    async def scenario(world):
        await world.begin(t=7)
        for number in range(10):
            world.join(f"c{number}", ONE, max_retries=10)
        await asyncio.gather(*(member.group_member.rebalance_now() for member in world.members.values()))
        while world.members:
            await world.settle()
            world.check()
            assert len(world.owners()) == 7
            await world.leave(min(world.members))
        assert world.owners() == {}

    virtually(scenario)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name.lower())
def test_the_session_expires_at_each_step(step):
    async def scenario(world):
        await world.begin(t=3)
        await world.start("c1", ONE)
        member = world.join("c2", ONE)
        expired = []

        def expire(now):
            if now is step and not expired:
                world.sessions += 1
                expired.append(member.zk.session_id)
                member.zk.expire(world.sessions)

        member.counters.at_step = expire
        await member.group_member.rebalance_now()
        await world.settle()
        assert expired
        world.check()
        assert shares(world) == [{0, 1}, {2}]

    virtually(scenario)


async def joined(world, troubled, trouble, number):
    """A second member joins, and trouble meets one call of one of the two; tells how many calls that one made."""
    await world.begin(t=4)
    await world.start("c1", ONE, max_retries=10)
    world.join("c2", ONE, max_retries=10)
    zk = world.members[troubled].zk
    calls = 0

    async def disturb(done):
        if calls != number or done != trouble.endswith("after"):
            return
        if trouble.startswith("expired"):
            world.sessions += 1
            zk.expire(world.sessions)
        else:
            raise ConnectionLossError("/", "for a test")

    async def before(operation, path):
        nonlocal calls
        calls += 1
        await disturb(False)

    async def after(operation, path):
        await disturb(True)

    zk.before, zk.after = before, after
    await asyncio.wait_for(world.members["c2"].group_member.rebalance_now(), 600)
    await world.settle()
    world.check()
    assert shares(world) == [{0, 1}, {2, 3}]
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["expired before", "expired after", "lost before", "lost after"])
@pytest.mark.parametrize("troubled", ["c1", "c2"])
def test_trouble_at_each_call_of_zookeeper(troubled, trouble):
    """Whichever call of a member's the trouble meets, it ends with one owner for each partition."""

    async def whole(number):
        world = World()
        try:
            return await joined(world, troubled, trouble, number)
        finally:
            await world.end()

    number = 1
    while run_in_virtual_time(whole(number)) >= number:
        number += 1
    assert number > 10


def test_connections_lost_do_not_count_as_tries():
    async def scenario(world):
        await world.begin(t=1)
        member = world.join("c1", ONE)
        lost = 0

        async def before(operation, path):
            nonlocal lost
            if operation == "get" and lost < 20:
                lost += 1
                raise ConnectionLossError(path, "for a test")

        member.zk.before = before
        await member.group_member.rebalance_now()
        assert lost == 20
        assert member.owned == {"t": {0}}

    virtually(scenario)


def test_an_earlier_session_of_the_same_name_is_waited_for():
    async def scenario(world):
        await world.begin(t=1)
        earlier = world.session()
        path = ConsumerIdZnode.path(GROUP, "c1")
        await earlier.create(path, b"{}", ephemeral=True, make_parents=True)
        asyncio.get_running_loop().call_later(5, lambda: asyncio.ensure_future(earlier.close()))
        member = await world.start("c1", ONE)
        assert member.owned == {"t": {0}}

    virtually(scenario)


def test_two_consumers_of_one_name():
    async def scenario(world):
        await world.begin(t=1)
        await world.start("c1", ONE)
        first = world.members.pop("c1")
        with pytest.raises(ConsumerIdInUseError, match=r"give this one another consumer\.id"):
            await world.start("c1", ONE)
        await world.settle()
        assert first.owned == {"t": {0}}
        await first.leave()

    virtually(scenario)


class Hooks:
    """A listener that notes its calls."""

    def __init__(self):
        self.calls = []

    async def before_releasing_partitions(self, owned):
        self.calls.append(("releasing", owned))

    async def before_starting_fetchers(self, consumer, assignment):
        self.calls.append(("starting", consumer, assignment))


def test_hooks_are_called_with_what_is_released_and_what_begins():
    async def scenario(world):
        await world.begin(t=2)
        member, hooks = world.join("c1", ONE), Hooks()
        member.group_member.rebalancer.hooks = hooks
        await member.group_member.rebalance_now()
        assert hooks.calls == [("releasing", {}), ("starting", "c1", {"t": {0: "c1-0", 1: "c1-0"}})]
        hooks.calls.clear()
        await world.start("c2", ONE)
        await world.settle()
        assert hooks.calls[0] == ("releasing", {"t": {0, 1}})
        assert hooks.calls[-1] == ("starting", "c1", {"t": {0: "c1-0", 1: "c2-0"}})

    virtually(scenario)


def test_a_hook_that_fails_makes_the_try_fail():
    async def scenario(world):
        await world.begin(t=1)

        class Failing(Hooks):
            async def before_starting_fetchers(self, consumer, assignment):
                await super().before_starting_fetchers(consumer, assignment)
                if len(self.calls) < 4:
                    raise ValueError("for a test")

        member, hooks = world.join("c1", ONE), Failing()
        member.group_member.rebalancer.hooks = hooks
        await member.group_member.rebalance_now()
        assert len(hooks.calls) == 4
        world.check()

    virtually(scenario)


@pytest.mark.spec("Z8")
def test_what_a_rebalance_costs():
    async def scenario(world):
        await world.begin(t=2)
        await world.start("c1", ONE)
        member = await world.start("c2", ONE)
        counters = member.counters
        # Watches: ids, the topic. A try: brokers, ids, two consumers, the topic, an offset.
        tries = counters.tries
        assert counters.reads >= 2 + 5 * tries
        assert counters.writes >= 2
        assert counters.conflicts == tries - 1
        await world.settle()
        reads, events = counters.reads, counters.events
        await world.start("c3", ONE)
        await world.settle()
        assert counters.events > events
        assert counters.reads > reads

    virtually(scenario)


def test_claims_are_rolled_back_at_once_when_one_of_them_fails():
    async def scenario(world):
        await world.begin(t=3)
        member = world.join("c1", ONE, backoff_ms=10_000)
        failing = PartitionOwnerZnode.path(GROUP, "t", 2)

        async def before(operation, path):
            if operation == "create" and path == failing:
                raise ConnectionLossError(path, "for a test")

        member.zk.before = before
        task = asyncio.create_task(member.group_member.rebalance_now())
        await world.settle(1)
        assert member.counters.tries == 1
        assert world.owners() == {}  # long before the next try
        member.zk.before = None
        await task
        world.check()
        assert len(world.owners()) == 3

    virtually(scenario)
