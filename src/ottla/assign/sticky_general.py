"""The sticky assignment where members subscribe to different topics.

Members keep what they had. What is left goes, beginning with the topics that the fewest subscribe to, to the member
with the least that may have it. Then partitions move to members that have at least two less, until none can. Where a
partition of the same topic had moved the other way, that one goes back instead. If all this did not make the
assignment more even, it is undone.

Source: Apache Kafka 3.9, `AbstractStickyAssignor`; its results, in its order. It asks before each partition whether
all is balanced, at the cost of going through all partitions; here that follows from the order of members by size.
Partitions are the numbers of `NumberedPartitions`, whose topics are in the order of `by_fewest_subscribers`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import chain, groupby, islice
from operator import itemgetter

from ottla.assign.java_order import partition_hash, slot, sorted_texts, string_hash, table_size
from ottla.assign.sticky_partitions import NO_GENERATION, MemberData, NumberedPartitions, Racks

EXCHANGING_ROUNDS = 20
"""How often partitions are gone through with moves as Java makes them, where one that went the other way goes back
whoever has it. That may go round in circles, and in Java then does so for ever; a few rounds do where it does not.
After these rounds only moves are made that make the assignment more even, of which there is an end."""


def by_fewest_subscribers(names: Iterable[str], wanted: Mapping[str, Sequence[str]]) -> list[str]:
    """The topics, those with the fewest subscribers first, equals by name; `wanted` holds topics by member."""
    subscribers = Counter(chain.from_iterable(wanted.values()))
    return sorted(sorted_texts(names), key=subscribers.__getitem__)


def earlier_owners(
    numbered: NumberedPartitions, data: Mapping[str, MemberData], newest_generation: int
) -> dict[int, str]:
    """Owners in an older generation; of several claims the one of the newest generation.

    A member that states no generation counts as the oldest. `data` is in the order in which Java goes
    through the members.
    """
    earlier: dict[int, tuple[str, int]] = {}
    for member_id, of in data.items():
        generation = NO_GENERATION if of.generation is None else of.generation
        if generation >= newest_generation:
            continue
        for number in numbered.numbers(of.partitions):
            known = earlier.get(number)
            if known is None or generation > known[1]:
                earlier[number] = (member_id, generation)
    return {number: member_id for number, (member_id, _) in earlier.items()}


class GeneralAssignment:
    """Builds one assignment; call `assign` once.

    Members are their places in `names`, which is sorted. A member's key is `size * members + member`: the least comes
    first, equals by name. `_order` holds the keys of all that take part in moves, sorted.
    """

    def __init__(
        self,
        numbered: NumberedPartitions,
        racks: Racks | None,
        owned: Mapping[str, list[int]],
        wanted: Mapping[str, Sequence[str]],
        earlier: Mapping[int, str],
    ) -> None:
        self._numbered = numbered
        self._racks = racks
        self.names = sorted_texts(wanted)
        self._members = len(self.names)
        places = {name: member for member, name in enumerate(self.names)}
        self._wanted = [
            [place for topic in wanted[name] if (place := numbered.places.get(topic)) is not None]
            for name in self.names
        ]
        """The topics of each member, as places."""
        self._wants = [self._wish(places) for places in self._wanted]
        """For each member and topic whether it wants that."""
        self._subscribers: list[list[int]] = [[] for _ in range(numbered.topics)]
        """The members by topic."""
        for member, wished in enumerate(self._wanted):
            for place in wished:
                self._subscribers[place].append(member)
        self._taken_away = False
        """Whether a member lost a partition that it may not own any more."""
        self.assigned: list[dict[int, None]] = [
            self._may_keep(member, owned[name]) for member, name in enumerate(self.names)
        ]
        """Partitions of each member, in order."""
        self._owner = {number: member for member, numbers in enumerate(self.assigned) for number in numbers}
        self._earlier = {number: places[name] for number, name in earlier.items()}
        self._order: list[int] = []
        self._movements = _Movements(numbered)

    def assign(self) -> None:
        """Fill `assigned`."""
        all_numbers = self._numbered.all()
        unassigned = [number for number in all_numbers if number not in self._owner]
        had_nothing = len(unassigned) == len(all_numbers)
        self._give(unassigned if self._racks is None else self._give(unassigned, self._racks), None)
        movable = {place for place, members in enumerate(self._subscribers) if len(members) > 1}
        self._order = sorted(
            len(numbers) * self._members + member
            for member, numbers in enumerate(self.assigned)
            if self._takes_part(member, movable)
        )
        before = [(key % self._members, list(self.assigned[key % self._members])) for key in self._order]
        if not self._taken_away:
            self._even_out(self._only(unassigned, movable))
        moved = self._even_out(self._only(all_numbers, movable))
        if moved and not had_nothing:
            sizes = [len(numbers) for _, numbers in before]
            if _unevenness(key // self._members for key in self._order) >= _unevenness(sizes):
                for member, numbers in before:
                    self.assigned[member] = dict.fromkeys(numbers)

    def _wish(self, places: list[int]) -> bytes:
        wish = bytearray(self._numbered.topics)
        for place in places:
            wish[place] = 1
        return bytes(wish)

    def _most_possible(self, member: int) -> int:
        places = self._wanted[member]
        if len(places) == self._numbered.topics:
            return self._numbered.total
        return sum(self._numbered.counts[place] for place in places)

    def _may_keep(self, member: int, numbers: list[int]) -> dict[int, None]:
        wish, topics, racks, name = self._wants[member], self._numbered.topics, self._racks, self.names[member]
        kept = dict.fromkeys(number for number in numbers if wish[number % topics])
        if racks is not None and name in racks.members:
            kept = dict.fromkeys(number for number in kept if not racks.mismatch(name, number))
        self._taken_away = self._taken_away or len(kept) < len(numbers)
        return kept

    def _give(self, numbers: list[int], racks: Racks | None) -> list[int]:
        """Give unassigned partitions to the members with the least that may have them; those left over are answered.

        Topic by topic, as only sizes of its subscribers change meanwhile: they wait in a heap for each rack, those
        without a rack, and where racks do not matter all, in one of their own.
        """
        topics, members, assigned, owner = self._numbered.topics, self._members, self.assigned, self._owner
        left: list[int] = []
        for place, of_topic in groupby(numbers, key=lambda number: number % topics):
            heaps = self._heaps(place, racks)
            everywhere = heaps.get(None)
            for number in of_topic:
                heap = everywhere if racks is None else _least_of(heaps, racks.by_partition[number])
                if heap is None:
                    left.append(number)
                    continue
                key = heap[0]
                heapreplace(heap, key + members)
                assigned[key % members][number] = None
                owner[number] = key % members
        return left

    def _heaps(self, place: int, racks: Racks | None) -> dict[str | None, list[int]]:
        """The keys of a topic's subscribers by rack, each list a heap."""
        heaps: dict[str | None, list[int]] = {}
        for member in dict.fromkeys(self._subscribers[place]):
            rack = None if racks is None else racks.members.get(self.names[member])
            heaps.setdefault(rack, []).append(len(self.assigned[member]) * self._members + member)
        for heap in heaps.values():
            heapify(heap)
        return heaps

    def _least(self, place: int) -> int:
        """The key of the member with the least of those that want a topic; there is at least one.

        It mostly comes soon in the order. Where it does not, its subscribers are looked through instead.
        """
        wants, members, subscribers = self._wants, self._members, self._subscribers[place]
        for key in islice(self._order, len(subscribers)):
            if wants[key % members][place]:
                return key
        return min(len(self.assigned[member]) * members + member for member in subscribers)

    def _takes_part(self, member: int, movable: set[int]) -> bool:
        """Whether a partition of the member could go to another one, or the member could get more."""
        numbers, topics = self.assigned[member], self._numbered.topics
        return any(number % topics in movable for number in numbers) or len(numbers) < self._most_possible(member)

    def _only(self, numbers: list[int], movable: set[int]) -> list[int]:
        topics = self._numbered.topics
        if len(movable) == topics:
            return numbers
        return [number for number in numbers if number % topics in movable]

    def _even_out(self, numbers: list[int]) -> bool:
        """Move partitions until none can; whether any did."""
        rounds = 0
        while self._move_each(numbers, only_better=rounds >= EXCHANGING_ROUNDS):
            rounds += 1
        return rounds > 0

    def _move_each(self, numbers: list[int], *, only_better: bool) -> bool:
        """Go through the partitions once; move each that can to its earlier owner or the member with the least."""
        topics, members, wants = self._numbered.topics, self._members, self._wants
        assigned, owner, earlier = self.assigned, self._owner, self._earlier
        least: dict[int, int] = {}
        moved = False
        for number in numbers:
            size = len(assigned[owner[number]])
            place = number % topics
            # Java gives a partition back to its earlier owner even where that member no longer subscribes to the topic.
            target = earlier.get(number)
            if target is None or not wants[target][place] or size <= len(assigned[target]) + 1:
                if place not in least:
                    least[place] = self._least(place)
                target = least[place] % members
                if size <= least[place] // members + 1:
                    continue
            self._move(number, target, only_better)
            least.clear()
            moved = True
        return moved

    def _move(self, number: int, target: int, only_better: bool) -> None:
        source = self._owner[number]
        other = self._movements.instead(number, source, target)
        others_owner = self._owner[other]
        if not only_better or len(self.assigned[others_owner]) > len(self.assigned[target]) + 1:
            number, source = other, others_owner
        self._movements.note(number, source, target)
        self._resize(source, -1)
        del self.assigned[source][number]
        self._resize(target, 1)
        self.assigned[target][number] = None
        self._owner[number] = target

    def _resize(self, member: int, step: int) -> None:
        key = len(self.assigned[member]) * self._members + member
        del self._order[bisect_left(self._order, key)]
        insort(self._order, key + step * self._members)


class _Movements:
    """Moves by owner and new owner, so that no two partitions of a topic are exchanged."""

    def __init__(self, numbered: NumberedPartitions) -> None:
        self._numbered = numbered
        self._pairs: dict[int, tuple[int, int]] = {}
        """By partition: earlier and current owner."""
        self._between: dict[tuple[int, int, int], _HashSet] = {}
        """Partitions by topic, earlier and current owner."""
        self._topic_hashes: dict[int, int] = {}

    def instead(self, number: int, owner: int, target: int) -> int:
        """The partition to move in place of that one: one that went the other way, if there is."""
        first_owner = self._pairs[number][0] if number in self._pairs else owner
        others = self._between.get((number % self._numbered.topics, target, first_owner))
        return number if others is None else others.first()

    def note(self, number: int, source: int, target: int) -> None:
        place = number % self._numbered.topics
        known = self._pairs.pop(number, None)
        if known is not None:
            numbers = self._between[place, *known]
            numbers.remove(number)
            if not numbers:
                del self._between[place, *known]
            source = known[0]
            if source == target:
                return
        self._pairs[number] = (source, target)
        self._between.setdefault((place, source, target), _HashSet()).add(number, self._hash(number))

    def _hash(self, number: int) -> int:
        index, place = divmod(number, self._numbered.topics)
        topic_hash = self._topic_hashes.get(place)
        if topic_hash is None:
            topic_hash = self._topic_hashes[place] = string_hash(self._numbered.names[place])
        return partition_hash(topic_hash, index)


class _HashSet:
    """Iteration order of java.util.HashSet, first element only."""

    def __init__(self) -> None:
        self._hashes: dict[int, int] = {}
        self._largest = 0

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, number: int, hash_code: int) -> None:
        self._hashes[number] = hash_code
        self._largest = max(self._largest, len(self._hashes))

    def remove(self, number: int) -> None:
        """Remove an element; the table keeps its size."""
        del self._hashes[number]

    def first(self) -> int:
        """The element that Java's iterator gives first."""
        table = table_size(self._largest)
        return min(self._hashes, key=lambda number: slot(self._hashes[number], table))


def _least_of(heaps: Mapping[str | None, list[int]], near: frozenset[str]) -> list[int] | None:
    """The heap with the smallest key of those in the racks `near` and of no rack."""
    found = [heap for rack in (None, *near) if (heap := heaps.get(rack))]
    return min(found, key=itemgetter(0), default=None)


def _unevenness(sizes: Iterable[int]) -> int:
    """The sum of the differences between the sizes of all pairs of members."""
    total = seen = 0
    for before, size in enumerate(sorted(sizes)):
        total += size * before - seen
        seen += size
    return total
