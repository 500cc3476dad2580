"""The effect of a change of a group under an assignor, computed without changing anything.

Members take part as real ones do: each has an assignor of its own, which receives its assignment and adds its user data
to the next subscription; a cooperative one names the partitions that it owns, keeps them, and joins once more when it
had to give some up. A change takes one rebalance with eager members, and up to `MOST_ROUNDS` with cooperative ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ottla.assign.assignor import (
    ClusterMetadata,
    GroupMetadata,
    MemberSubscription,
    PartitionAssignor,
    RebalanceProtocol,
    SubscribedTopic,
)
from ottla.assign.consumer_protocol import HIGHEST_VERSION, Assignment, Partitions, Subscription

MOST_ROUNDS = 4
"""Cooperative groups settle in two rebalances; one that has not settled after this many never will."""

NEWCOMER = "new-"
FIRST_GENERATION = 1

TopicPartition = tuple[str, int]
Owners = dict[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class SimulatedMember:
    """A member: what it subscribes to, and what it owns."""

    topics: tuple[str, ...]
    owned: Partitions = field(default_factory=dict)
    group_instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class SimulatedGroup:
    """A stable group: topics by name, members by member id."""

    topics: Mapping[str, SubscribedTopic]
    members: Mapping[str, SimulatedMember]

    @property
    def has_owners(self) -> bool:
        """Whether any partition has an owner."""
        return any(member.owned for member in self.members.values())


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A change: members that leave, new members by member id, topics with another number of partitions."""

    leaving: tuple[str, ...] = ()
    joining: Mapping[str, SimulatedMember] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Impossible:
    """The change is impossible; `message` says why."""

    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The group after the change under one assignor.

    `rounds` holds what every member owns after each rebalance. `kept`, `moved`, `taken_over` (of those who left),
    `first_owned` (without an owner before) and `unowned` count partitions; `paused` counts those that stop being
    consumed for a while although their owner lives on.
    """

    assignor: str
    cooperative: bool
    settled: bool
    before: dict[str, Partitions]
    rounds: tuple[dict[str, Partitions], ...]
    kept: int
    moved: int
    taken_over: int
    first_owned: int
    unowned: int
    paused: int

    @property
    def after(self) -> dict[str, Partitions]:
        """The final assignment of every member."""
        return self.rounds[-1]

    @property
    def spread(self) -> tuple[int, int]:
        """The smallest and the largest number of partitions that a member has in the end."""
        counts = [count(partitions) for partitions in self.after.values()]
        return min(counts, default=0), max(counts, default=0)


def count(partitions: Partitions) -> int:
    """How many partitions these are."""
    return sum(map(len, partitions.values()))


def owners(assignments: Mapping[str, Partitions]) -> Owners:
    """The owner of each partition."""
    return {
        (topic, index): member_id
        for member_id, partitions in assignments.items()
        for topic, indexes in partitions.items()
        for index in indexes
    }


def newcomers(group: SimulatedGroup, number: int) -> dict[str, SimulatedMember]:
    """`number` new members with unused ids, subscribed to every topic that any member subscribes to."""
    topics = tuple(dict.fromkeys(topic for member in group.members.values() for topic in member.topics))
    found: dict[str, SimulatedMember] = {}
    candidate = 1
    while len(found) < number:
        member_id = f"{NEWCOMER}{candidate}"
        if member_id not in group.members:
            found[member_id] = SimulatedMember(topics)
        candidate += 1
    return found


def changed(group: SimulatedGroup, change: GroupChange) -> SimulatedGroup | Impossible:
    """The group after a change and before the next assignment; members that left own nothing."""
    for member_id in change.leaving:
        if member_id not in group.members:
            return Impossible(f"{member_id} cannot leave: it is not a member; members are {', '.join(group.members)}")
    for member_id in change.joining:
        if member_id in group.members:
            return Impossible(f"{member_id} cannot join: it is a member already")
    topics = dict(group.topics)
    for name, partitions in change.partitions.items():
        before = topics.get(name)
        if before is not None and partitions < before.partitions:
            return Impossible(f"topic {name} has {before.partitions} partitions and cannot have fewer ({partitions})")
        racks = None
        if before is not None and before.racks is not None:
            racks = before.racks + (frozenset[str](),) * (partitions - before.partitions)
        topics[name] = SubscribedTopic(partitions, racks)
    members = {name: member for name, member in group.members.items() if name not in change.leaving}
    members.update({name: replace(member, owned={}) for name, member in change.joining.items()})
    if not members:
        return Impossible("no member would be left in the group")
    return SimulatedGroup(topics, members)


def settle(group: SimulatedGroup, make: Callable[[], PartitionAssignor]) -> SimulatedGroup:
    """The group once it is stable under this assignor, after as many rebalances as that takes."""
    *_, last = _rounds(group, make)
    return _owning(group, last)


def simulate(group: SimulatedGroup, change: GroupChange, make: Callable[[], PartitionAssignor]) -> Outcome | Impossible:
    """Apply the change under the assignor that `make` creates. A group without owners is first made stable."""
    if not group.has_owners:
        group = settle(group, make)
    begun = changed(group, change)
    if isinstance(begun, Impossible):
        return begun
    assignor = make()
    rounds = list(_rounds(begun, make))
    before = {member_id: member.owned for member_id, member in group.members.items()}
    old, new = owners(before), owners(rounds[-1])
    cooperative = is_cooperative(assignor)
    staying = {partition for partition, member_id in old.items() if member_id in begun.members}
    kept = {partition for partition in staying if new.get(partition) == old[partition]}
    everything = {
        (topic, index)
        for topic in dict.fromkeys(topic for member in begun.members.values() for topic in member.topics)
        if topic in begun.topics
        for index in range(begun.topics[topic].partitions)
    }
    return Outcome(
        assignor=assignor.name,
        cooperative=cooperative,
        settled=not cooperative or len(rounds) < MOST_ROUNDS or not _gave_up(rounds[-2], rounds[-1]),
        before=before,
        rounds=tuple(rounds),
        kept=len(kept),
        moved=sum(partition in new for partition in staying - kept),
        taken_over=len((old.keys() - staying) & new.keys()),
        first_owned=len(new.keys() - old.keys()),
        unowned=len(everything - new.keys()),
        paused=len(staying - kept) if cooperative else len(staying),
    )


def is_cooperative(assignor: PartitionAssignor) -> bool:
    """Whether members keep what they own while they join."""
    return RebalanceProtocol.COOPERATIVE in assignor.supported_protocols


def _rounds(group: SimulatedGroup, make: Callable[[], PartitionAssignor]) -> Iterator[dict[str, Partitions]]:
    """The assignment after each rebalance, until no member has a reason to join again."""
    assignors = {member_id: make() for member_id in group.members}
    leader = next(iter(assignors.values()))
    cluster = ClusterMetadata(group.topics)
    owned = {member_id: member.owned for member_id, member in group.members.items()}
    for generation_id in range(FIRST_GENERATION, FIRST_GENERATION + MOST_ROUNDS):
        for member_id, assignor in assignors.items():
            if owned[member_id]:
                metadata = GroupMetadata("", generation_id, member_id, group.members[member_id].group_instance_id)
                assignor.on_assignment(Assignment(HIGHEST_VERSION, owned[member_id], None), metadata)
        subscriptions = {
            member_id: _subscription(member, assignors[member_id], owned[member_id], generation_id)
            for member_id, member in group.members.items()
        }
        assigned = {one: found.partitions for one, found in leader.assign(cluster, subscriptions).items()}
        result = {member_id: assigned.get(member_id, {}) for member_id in group.members}
        yield result
        if not is_cooperative(leader) or not _gave_up(owned, result):
            return
        owned = result


def _subscription(
    member: SimulatedMember, assignor: PartitionAssignor, owned: Partitions, generation_id: int
) -> MemberSubscription:
    subscription = Subscription(
        HIGHEST_VERSION,
        member.topics,
        assignor.subscription_user_data(member.topics),
        owned if is_cooperative(assignor) else {},
        generation_id if owned else -1,
        member.rack_id,
    )
    return MemberSubscription(subscription, member.group_instance_id)


def _gave_up(before: Mapping[str, Partitions], after: Mapping[str, Partitions]) -> bool:
    return any(_pairs(partitions) - _pairs(after.get(member_id, {})) for member_id, partitions in before.items())


def _pairs(partitions: Partitions) -> set[TopicPartition]:
    return {(topic, index) for topic, indexes in partitions.items() for index in indexes}


def _owning(group: SimulatedGroup, assigned: Mapping[str, Partitions]) -> SimulatedGroup:
    members: Iterable[tuple[str, SimulatedMember]] = group.members.items()
    return SimulatedGroup(group.topics, {name: replace(member, owned=assigned[name]) for name, member in members})
