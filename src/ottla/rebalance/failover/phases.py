"""The five phases of a rebalance in which a coordinator can die, played: who joins again, and what holds (G11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.rebalance.failover.members import GROUP, PARTITIONS, TOPIC, WAIT_S, PlayedGroup, PlayedMember
from ottla.testing.cluster import EmbeddedCluster
from ottla.testing.groups import expire_member

BROKERS: Final = 3
MEMBERS: Final = "abc"
NEWCOMER: Final = "d"


@dataclass(frozen=True, slots=True)
class FailoverResult:
    """The group after the failover. `joined_again` are the members that sent a join to the new coordinator."""

    phase: int
    moment: str
    generation_before: int
    generation_after: int
    joined_again: tuple[str, ...]
    owned_twice: tuple[int, ...]
    unowned: tuple[int, ...]
    offsets_lost: tuple[int, ...]
    story: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        """Whether each partition has one owner, never had two, and each committed offset is there."""
        return not (self.owned_twice or self.unowned or self.offsets_lost)


class Phase(NamedTuple):
    """A moment at which the coordinator dies, and the play of it."""

    moment: str
    play: Callable[[PlayedGroup], Awaitable[None]]


def play(number: int, say: Callable[[str], None]) -> FailoverResult:
    """Play one phase on a cluster of its own; `say` gets each line as it happens."""
    story: list[str] = []

    def write(line: str) -> None:
        story.append(line)
        say(line)

    with EmbeddedCluster(BROKERS, {TOPIC: PARTITIONS}) as cluster:
        return asyncio.run(_play(number, PlayedGroup(cluster, write), story))


async def _play(number: int, group: PlayedGroup, story: list[str]) -> FailoverResult:
    phase = PHASES[number]
    group.say(f"phase {number}: {phase.moment}")
    try:
        await group.form(MEMBERS)
        before = group.leader.generation
        owners = "; ".join(f"{each.name} {', '.join(map(str, each.owned))}" for each in group.members)
        group.say(
            f"  generation {before}, led by {group.leader.name}, coordinator broker {group.coordinator}; {owners}"
        )
        await phase.play(group)
        for member in group.members:
            await member.heartbeat()
        result = FailoverResult(
            number,
            phase.moment,
            before,
            group.leader.generation,
            tuple(group.joined_again),
            tuple(sorted(group.owned_twice)),
            tuple(group.unowned()),
            tuple(await group.lost_offsets()),
            tuple(story),
        )
    finally:
        await group.close()
    return result


async def _before_it_reacts(group: PlayedGroup) -> None:
    newcomer = PlayedMember(group, NEWCOMER)
    rule = group.cluster.faults(group.coordinator).drop("JoinGroup", client_id=NEWCOMER)
    newcomer.begin_join()
    await asyncio.to_thread(rule.wait_until_fired, 1, WAIT_S)
    await group.take_over()
    await newcomer.disconnect()
    group.say("  The members find the new coordinator, and their generation is there. Only the newcomer joins again:")
    for member in group.members:
        await member.heartbeat()
    await group.add(newcomer)


async def _when_some_know(group: PlayedGroup) -> None:
    _, knows, silent = group.members
    group.say(f"  {silent.name} is silent for its session timeout: a rebalance begins")
    server = group.cluster.broker(group.coordinator)
    group.cluster.wait_for(lambda: bool(expire_member(server, GROUP, silent.member_id)))
    await knows.learn_of_rebalance()
    await group.take_over()
    group.say(
        f"  Only the old coordinator missed {silent.name}, and nothing of it was written. {silent.name} is heard again:"
    )
    await silent.heartbeat()
    group.say(f"  {knows.name} joins again, as it was notified. It is answered at once:")
    await knows.join_and_sync()


async def _when_some_had_joined(group: PlayedGroup) -> None:
    newcomer = PlayedMember(group, NEWCOMER)
    joined = group.members[1]
    newcomer.begin_join()
    await joined.learn_of_rebalance()
    joined.begin_join()
    await group.until_it_waits(joined)
    await group.take_over()
    await newcomer.disconnect()
    group.say("  The joins are gone, the generation is there. A follower is answered at once, the newcomer rebalances:")
    await joined.join_and_sync()
    await group.add(newcomer)


async def _when_it_was_written(group: PlayedGroup) -> None:
    before = group.leader.generation
    await _rebalance(group)
    group.cluster.faults(group.coordinator).cut("SyncGroup", 0)
    await group.sync()
    await group.take_over()
    group.say("  Generation, members and assignment are one record, and it was copied: the new generation holds.")
    for member in group.members:
        await member.heartbeat(before)
        member.begin_sync()
        await member.end_sync()


async def _when_some_were_answered(group: PlayedGroup) -> None:
    await _rebalance(group)
    late = group.members[1]
    group.cluster.faults(group.coordinator).cut("SyncGroup", 0, client_id=late.name)
    await group.sync()
    await group.take_over()
    group.say("  Those who have the new generation continue:")
    for member in group.members:
        if member is not late:
            await member.heartbeat()
            await member.commit(50)
    group.say(f"  {late.name} joins again, and is answered at once:")
    await late.join_and_sync()


PHASES: Final = {
    1: Phase("before the coordinator reacts to a join", _before_it_reacts),
    2: Phase("when some members know of the rebalance", _when_some_know),
    3: Phase("when some members have joined", _when_some_had_joined),
    4: Phase("when the generation is written, and no member has its answer", _when_it_was_written),
    5: Phase("when some members have their answers", _when_some_were_answered),
}


async def _rebalance(group: PlayedGroup) -> None:
    """The leader asks for a rebalance, and all join; none has synced yet."""
    leader = group.leader
    leader.begin_join()
    await group.rejoin(member for member in group.members if member is not leader)
    await leader.end_join()
