"""Worked examples, run on the shipped assignors and the coordinator's own group state machine.

They are those of the requirements A1 to A5, A7, C6, G4 to G7 and R4 (docs/requirements.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.assign.assignor import PartitionAssignor, SubscribedTopic
from ottla.assign.consumer_protocol import Partitions
from ottla.assign.registry import BUILT_IN
from ottla.assign.simulation import (
    GroupChange,
    Outcome,
    SimulatedGroup,
    SimulatedMember,
    count,
    is_cooperative,
    settle,
    simulate,
)
from ottla.rebalance.notation import partitions_text
from ottla.rebalance.placement import Placement, introduction, place
from ottla.rebalance.scripted_group import ScriptedGroup

ExampleRow = Mapping[str, object]
"""A row of a table by its headings: texts, numbers, lists, None where a cell is empty."""


class Example(NamedTuple):
    """One example: its title, the function that yields its lines, and the one that yields its table, if it has one."""

    title: str
    play: Callable[[], Iterator[str]]
    rows: Callable[[], Iterable[ExampleRow]] = tuple


def play(name: str, example: Example | None = None) -> Iterator[str]:
    """The lines of one example, by default that of this name."""
    example = example or EXAMPLES[name]
    yield f"{name}: {example.title}"
    yield ""
    yield from example.play()


# Assignors


def _range() -> Iterator[str]:
    yield "Range goes topic by topic: members sorted, partitions sorted, neighbours stay together; 4 partitions over"
    yield "3 members make 1 each, and the first member one more."
    yield from _settled("range", _group({"t": 4}, {"c0": "t", "c1": "t", "c2": "t"}))


def _roundrobin() -> Iterator[str]:
    yield "Round robin deals all partitions of all topics in a ring and passes over who is not subscribed. C0"
    yield "subscribes to A and B, C1 to B and C: the unevenness is the point."
    yield from _settled("roundrobin", _group({"A": 3, "B": 3, "C": 3}, {"C0": "A B", "C1": "B C"}))


def _sticky() -> Iterator[str]:
    group = _group({f"T{number}": 2 for number in range(4)}, dict.fromkeys(("C0", "C1", "C2"), "T0 T1 T2 T3"))
    yield "Sticky is balanced first, and then as close as possible to what was. Three members share 4 topics of 2:"
    yield from _settled("sticky", group)
    yield ""
    yield "C1 leaves. Its partitions are shared out, the others keep theirs; round robin starts from scratch."
    yield from _compared(group, GroupChange(leaving=("C1",)), ("sticky", "roundrobin"))


def _sticky_unequal() -> Iterator[str]:
    group = _group({"T0": 1, "T1": 2, "T2": 3}, {"C0": "T0", "C1": "T0 T1", "C2": "T0 T1 T2"})
    yield "The same where members subscribe to different topics: C0 to T0, C1 to T0 and T1, C2 to all three."
    yield from _settled("sticky", group)
    yield ""
    yield "C0 leaves:"
    yield from _compared(group, GroupChange(leaving=("C0",)), ("sticky", "roundrobin"))


def _cooperative() -> Iterator[str]:
    members = {"consumer1": SimulatedMember(("p",), {"p": (0, 2)}), "consumer2": SimulatedMember(("p",), {"p": (1,)})}
    group = SimulatedGroup({"p": SubscribedTopic(3)}, members)
    yield "Cooperative members keep consuming while they join. What has to move is first only revoked, and given to"
    yield "its new owner in a second rebalance; everything else is consumed all the time. consumer3 joins:"
    outcome = _simulated("cooperative-sticky", group, GroupChange(joining={"consumer3": SimulatedMember(("p",))}))
    yield "  before"
    yield from _owned(outcome.before, "    ")
    for number, assigned in enumerate(outcome.rounds, 1):
        yield f"  after rebalance {number}"
        yield from _owned(assigned, "    ")
    yield f"  {outcome.kept} partitions were consumed throughout, {outcome.paused} stopped for a while. Eager:"
    eager = _simulated("sticky", group, GroupChange(joining={"consumer3": SimulatedMember(("p",))}))
    yield f"  {eager.kept} partitions stay where they are, but {eager.paused} stopped for a while."


def _threads() -> Iterator[str]:
    from ottla.assign.threads import THREAD_ASSIGNORS, ConsumerThread

    threads = {"t": [ConsumerThread(consumer, number) for consumer in ("C1", "C2") for number in range(2)]}
    yield "The ZooKeeper consumer shares partitions among threads. C1 and C2 with 2 threads each, 5 partitions:"
    for name in ("range", "ceil"):
        assigned = THREAD_ASSIGNORS[name]({"t": range(5)}, threads)
        by_thread = {str(thread): dict(partitions) for thread, partitions in assigned.items()}
        yield f"  {name}"
        yield from _owned(by_thread, "    ")
    yield "Range gives the first threads one more; the older rule, ceil, gives each as many as the largest share, until"
    yield "nothing is left."


# The coordinator


def _votes() -> Iterator[str]:
    group = ScriptedGroup()
    group.say("a and b support range only. The group takes the assignor that all support and most vote for.")
    group.join("a", "range")
    group.sync("a")
    group.join("b", "range")
    group.heartbeat("a")
    group.join("a")
    group.sync("a", "b")
    group.say(
        "First bounce: each comes back with cooperative-sticky before range. While one has range only, it is range."
    )
    group.leave("a")
    group.join("a2", "cooperative-sticky", "range")
    group.heartbeat("b")
    group.join("b")
    group.sync("b", "a2")
    group.say("Once all support it and vote for it, it is cooperative-sticky; the second bounce takes range away.")
    group.leave("b")
    group.join("b2", "cooperative-sticky", "range")
    group.heartbeat("a2")
    group.join("a2")
    group.say("Who has nothing in common with the group is refused.")
    group.join("stranger", "roundrobin")
    yield from group.lines


def _one_rebalance() -> Iterator[str]:
    group = ScriptedGroup()
    group.say("Three consumers join at once. The first to arrive leads.")
    group.join("consumer1")
    group.join("consumer2")
    group.join("consumer3")
    group.say("consumer1 had its answer, but others came since: its SyncGroup is refused, and it joins again.")
    group.sync("consumer1")
    group.join("consumer1")
    group.sync("consumer2", "consumer3", "consumer1")
    group.sum_up()
    yield from group.lines


def _two_rebalances() -> Iterator[str]:
    group = ScriptedGroup()
    group.say("consumer1 comes alone, gets everything and consumes.")
    group.join("consumer1")
    group.sync("consumer1")
    group.wait(1_000)
    group.say("A second later two more join. They wait until consumer1 has joined again.")
    group.join("consumer2")
    group.join("consumer3")
    group.say("The response to its heartbeat notifies consumer1, which stops consuming, gives everything up and joins.")
    group.heartbeat("consumer1")
    group.join("consumer1")
    group.sync("consumer1", "consumer2", "consumer3")
    group.sum_up()
    yield from group.lines


def _three_rebalances() -> Iterator[str]:
    group = ScriptedGroup()
    present: list[str] = []
    for name in ("consumer1", "consumer2", "consumer3"):
        group.say(f"{name} joins.")
        group.join(name)
        for other in present:
            group.heartbeat(other)
            group.join(other)
        present.append(name)
        group.sync(*present)
    group.say("All close. The last one leaves the group empty.")
    for name in present:
        group.leave(name)
    group.sum_up()
    yield from group.lines


def _lost_answers() -> Iterator[str]:
    group = ScriptedGroup(partitions=2)
    group.say("a and b form a group; a leads.")
    group.join("a")
    group.join("b")
    group.join("a")
    group.say("The leader's answer is lost. It joins again, and gets the list of members once more: no new rebalance.")
    group.lose_answer("a")
    group.join("a")
    group.sync("b", "a")
    group.say("In Stable a follower whose answer was lost joins and syncs again, and is answered at once.")
    group.lose_answer("b")
    group.join("b")
    group.sync("b")
    group.say("A leader that joins again in Stable asks for a rebalance: it may have seen new partitions.")
    group.join("a")
    yield from group.lines


def _walk() -> Iterator[str]:
    yield "topic1 has partitions 0 to 2. Four consumers of one group, with range, start one by one, and three close."
    yield "The table shows what each owns after each step, and how often each one's listener was called by then (close"
    yield "is a last call of revoked). A second group would get all records once more."


def _walk_rows() -> Iterator[ExampleRow]:
    group = ScriptedGroup()
    names = [f"consumer{number}" for number in range(1, 5)]
    present: list[str] = []

    def row(step: str) -> ExampleRow:
        consumers = [group.consumers[name] for name in names if name in group.consumers]
        owned = {name: list(group.consumers[name].owned) if name in present else None for name in names}
        # Consumers since Kafka 2.4 have no call before their first join, and one in close.
        revoked = [one.revokes - (one.name in present) for one in consumers]
        generation_id = group.consumers[present[0]].generation_id
        assigned = [one.assigns for one in consumers]
        return {"step": step, "generation": generation_id, **owned, "revoked": revoked, "assigned": assigned}

    for name in names:
        group.join(name)
        for other in present:
            group.heartbeat(other)
            group.join(other)
        present.append(name)
        group.sync(*present)
        yield row(f"{name} starts")
    for name in names[:-1]:
        present.remove(name)
        group.leave(name)
        group.rejoin(*present)
        yield row(f"{name} closes")


EXAMPLES: dict[str, Example] = {
    "A1": Example("the range assignor", _range),
    "A2": Example("the round robin assignor", _roundrobin),
    "A3": Example("the sticky assignor, a member leaves", _sticky),
    "A3-unequal": Example("the sticky assignor, members with different subscriptions", _sticky_unequal),
    "A4": Example("cooperative rebalances: only what moves stops", _cooperative),
    "A5": Example("votes for an assignor, and the change to a cooperative one by two bounces", _votes),
    "A7": Example("the older assignors over threads", _threads),
    "G4": Example("one rebalance: three consumers join at once", _one_rebalance),
    "G5": Example("two rebalances: two consumers join a running one", _two_rebalances),
    "G6": Example("three rebalances: consumers join one by one, then all leave", _three_rebalances),
    "G7": Example("answers that got lost", _lost_answers),
    "walk": Example("four consumers of a group come and go (C6)", _walk, _walk_rows),
    "placement": Example(
        "the replicas of a new topic (R4)", lambda: introduction(Placement()), lambda: place(Placement())
    ),
}
"""By the ids of the requirements that they illustrate, or by name."""


def _group(topics: Mapping[str, int], members: Mapping[str, str]) -> SimulatedGroup:
    return SimulatedGroup(
        {name: SubscribedTopic(partitions) for name, partitions in topics.items()},
        {name: SimulatedMember(tuple(subscribed.split())) for name, subscribed in members.items()},
    )


def _settled(assignor: str, group: SimulatedGroup) -> Iterator[str]:
    after = settle(group, BUILT_IN[assignor])
    yield from _owned({name: member.owned for name, member in after.members.items()}, "  ")


def _simulated(assignor: str, group: SimulatedGroup, change: GroupChange) -> Outcome:
    make: Callable[[], PartitionAssignor] = BUILT_IN[assignor]
    outcome = simulate(group, change, make)
    assert isinstance(outcome, Outcome), outcome
    assert outcome.cooperative == is_cooperative(make())
    return outcome


def _compared(group: SimulatedGroup, change: GroupChange, assignors: Sequence[str]) -> Iterator[str]:
    for assignor in assignors:
        outcome = _simulated(assignor, group, change)
        total = sum(map(count, outcome.after.values()))
        yield f"  {assignor}: {outcome.kept} of {total} stay where they were"
        yield from _owned(outcome.after, "    ")


def _owned(assigned: Mapping[str, Partitions], indent: str) -> Iterator[str]:
    for name, partitions in assigned.items():
        yield f"{indent}{name}  {partitions_text(partitions) or 'nothing'}"
