"""Partitions as numbers, and who owned them before: what both algorithms of the sticky assignors begin with.

A partition's number is `index * topics + topic`, where the topic counts by its place in the list: numbers sorted are
partitions sorted by index, then topic. A million of them cost no more than a million integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from ottla.assign.assignor import ClusterMetadata
from ottla.assign.consumer_protocol import Partitions

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class MemberData:
    """The partitions that a member claims to have owned, and their generation, None where it states none."""

    partitions: Partitions
    generation: int | None


class NumberedPartitions:
    """The partitions of some topics as numbers; `names` gives the topics their places."""

    def __init__(self, names: Sequence[str], counts: Mapping[str, int]) -> None:
        self.names = tuple(names)
        self.topics = len(self.names)
        self.counts = tuple(counts[name] for name in names)
        self.total = sum(self.counts)
        self.places = {name: place for place, name in enumerate(self.names)}

    def of_topic(self, place: int) -> range:
        """All partitions of the topic at that place, by index."""
        return range(place, self.counts[place] * self.topics + place, self.topics)

    def all(self) -> list[int]:
        """All partitions, topic by topic."""
        return list(chain.from_iterable(map(self.of_topic, range(self.topics))))

    def numbers(self, partitions: Partitions) -> list[int]:
        """The numbers of those that exist, in the order given."""
        places, counts, topics = self.places, self.counts, self.topics
        numbers: list[int] = []
        for topic, indexes in partitions.items():
            place = places.get(topic)
            if place is None:
                continue
            count = counts[place]
            for index in indexes:
                if 0 <= index < count:
                    numbers.append(index * topics + place)  # noqa: PERF401 - mostly one, where a list costs more
        return numbers

    def partitions(self, numbers: Sequence[int]) -> Partitions:
        """By topic, in the order in which topics and indexes come up."""
        topics, names = self.topics, self.names
        if topics == 1:
            return {names[0]: tuple(numbers)} if numbers else {}
        places = [number % topics for number in numbers]
        indexes = [number // topics for number in numbers]
        if len(set(places)) == len(places):
            return dict(zip(map(names.__getitem__, places), zip(indexes, strict=True), strict=True))
        by_place: dict[int, list[int]] = {place: [] for place in places}
        for place, index in zip(places, indexes, strict=True):
            by_place[place].append(index)
        return {names[place]: tuple(of_topic) for place, of_topic in by_place.items()}


@dataclass(slots=True)
class PreviousOwners:
    """Earlier owners, as the members claim."""

    owned: dict[str, list[int]]
    """The partitions of each member, in its order; no partition is in two lists."""
    contested: set[int]
    """Partitions that two members claim in the same generation."""


def previous_owners(
    numbered: NumberedPartitions, data: Mapping[str, MemberData], stated_generations: Mapping[str, int]
) -> PreviousOwners:
    """Settle the earlier owners. Of two members that claim a partition the one of the newer generation owned it, of
    equals neither.

    `data` is in the order in which Java goes through the members. `stated_generations` holds what the subscriptions
    themselves say, which is what Java compares an earlier claim by; -1 where a subscription says nothing.
    """
    owned = {member_id: numbered.numbers(of.partitions) for member_id, of in data.items()}
    claims = sum(map(len, owned.values()))
    if claims == len(set(chain.from_iterable(owned.values()))):
        return PreviousOwners(owned, set())
    return _settled(owned, data, stated_generations)


def _settled(
    claimed: Mapping[str, list[int]], data: Mapping[str, MemberData], stated_generations: Mapping[str, int]
) -> PreviousOwners:
    owned: dict[str, dict[int, None]] = {member_id: {} for member_id in claimed}
    contested: set[int] = set()
    owners: dict[int, str] = {}
    for member_id, numbers in claimed.items():
        known = data[member_id].generation
        generation = NO_GENERATION if known is None else known
        for number in numbers:
            other = owners.get(number)
            if other is None:
                owned[member_id][number] = None
                owners[number] = member_id
                continue
            others = stated_generations[other]
            if generation < others:
                continue
            owned[other].pop(number, None)
            owners[number] = member_id
            if generation == others:
                contested.add(number)
            else:
                owned[member_id][number] = None
    return PreviousOwners({member_id: list(numbers) for member_id, numbers in owned.items()}, contested)


class Racks:
    """Which members share a rack with a partition's replicas."""

    def __init__(
        self, members: Mapping[str, str], by_partition: Mapping[int, frozenset[str]], consumers: Mapping[str, int]
    ) -> None:
        self.members = members
        """The rack of each member that has one."""
        self.by_partition = by_partition
        self._consumers = consumers
        self._near: dict[frozenset[str], int] = {}

    def mismatch(self, member_id: str, number: int) -> bool:
        """Whether the member has a rack and none of the partition's replicas is there."""
        rack = self.members.get(member_id)
        return rack is not None and rack not in self.by_partition[number]

    def consumers_near(self, number: int) -> int:
        """How many members are in the racks of that partition's replicas."""
        racks = self.by_partition[number]
        if racks not in self._near:
            self._near[racks] = sum(self._consumers.get(rack, 0) for rack in racks)
        return self._near[racks]


def racks_in_use(
    numbered: NumberedPartitions, cluster: ClusterMetadata, member_racks: Mapping[str, str | None]
) -> Racks | None:
    """The racks; None where they decide nothing.

    That is where no member is in the rack of a replica, and where every partition is in all racks that there are.
    """
    members = {member_id: rack for member_id, rack in member_racks.items() if rack}
    if not members:
        return None
    nowhere: frozenset[str] = frozenset()
    by_partition: dict[int, frozenset[str]] = {}
    for place, name in enumerate(numbered.names):
        racks = cluster.topics[name].racks
        for index, number in enumerate(numbered.of_topic(place)):
            by_partition[number] = racks[index] if racks else nowhere
    everywhere = nowhere.union(*set(by_partition.values()))
    consumers: dict[str, int] = {}
    for rack in members.values():
        consumers[rack] = consumers.get(rack, 0) + 1
    if everywhere.isdisjoint(consumers) or all(racks == everywhere for racks in set(by_partition.values())):
        return None
    return Racks(members, by_partition, consumers)
