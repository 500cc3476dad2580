"""Groups through random trouble, on virtual time: at rest each partition has one owner, and never two that know."""

from __future__ import annotations

import asyncio
import random

import pytest

from ottla.sim.virtual_loop import run_in_virtual_time
from ottla.zk.client import ConnectionLossError
from ottla.zk.layout import ConsumerRegistration
from support.zk_groups import Member, World, static

pytestmark = [pytest.mark.slow, pytest.mark.spec("Z6")]

SEEDS = 25
EVENTS = 25
MOST_MEMBERS = 5
LOST_CALLS = 0.02
REGISTRATIONS = (static(t=1), static(t=2, u=1), ConsumerRegistration({"t|u": 2}, "white_list"))


class Trouble:
    """Random events; connections are lost at random calls, before or after they were carried out, while it is `on`."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.on = True
        self.joined = 0
        self.expired: set[str] = set()
        self.partitions = {"t": 4, "u": 2}
        self.broker_is_there = True

    def lose(self) -> None:
        if self.on and self.chance.random() < LOST_CALLS:
            raise ConnectionLossError("/", "for a test")

    async def hook(self, operation: str, path: str) -> None:
        self.lose()

    def join(self) -> None:
        self.joined += 1
        member = self.world.join(
            f"c{self.joined}", self.chance.choice(REGISTRATIONS), max_retries=10_000, backoff_ms=300
        )
        member.zk.before = member.zk.after = self.hook
        member.group_member.trigger()

    def any_member(self) -> Member:
        return self.world.members[self.chance.choice(sorted(self.world.members))]

    async def event(self) -> None:
        """Something happens."""
        world, what = self.world, self.chance.randrange(6)
        if len(world.members) < 2 or (what == 0 and len(world.members) < MOST_MEMBERS):
            self.join()
        elif what == 1:
            await world.leave(self.any_member().name)
        elif what in (2, 3):
            world.sessions += 1
            member = self.any_member()
            self.expired.add(member.name)
            member.zk.expire(world.sessions)
        elif what == 4:
            topic = self.chance.choice("tu")
            self.partitions[topic] += 1
            await world.grow(topic, self.partitions[topic])
        else:
            await (world.broker_goes() if self.broker_is_there else world.broker_comes())
            self.broker_is_there = not self.broker_is_there

    def check(self) -> None:
        """Who kept its session fetches only what it owns, at any moment."""
        owners = self.world.owners()
        for name, member in self.world.members.items():
            if name not in self.expired:
                for partition, info in member.fetching.fetched.items():
                    assert owners.get(partition) == str(info.thread)


async def check_groups(seed: int) -> None:
    world = World()
    trouble = Trouble(world, seed)
    try:
        await world.begin(**trouble.partitions)
        for _ in range(EVENTS):
            await trouble.event()
            for _ in range(3):
                await asyncio.sleep(trouble.chance.choice((0.0, 0.001, 0.003, 0.01, 0.5, 2.0)))  # sleep: virtual
                trouble.check()
        trouble.on = False
        if not trouble.broker_is_there:
            await world.broker_comes()
        await world.settle()
        world.check()
        takers = {topic for member in world.members.values() for topic in member.owned}
        assert "t" in takers
        owned = {partition for partition in world.owners() if partition.topic == "t"}
        assert len(owned) == trouble.partitions["t"]
    finally:
        await world.end()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_owner_for_each_partition(seed: int) -> None:
    run_in_virtual_time(check_groups(seed))
