"""The sticky assignment where all members subscribe to the same topics.

Everybody gets the same number of partitions, or one more: the quotas. Members keep what they had, up to their quota;
what is left goes round, first to those below the lower quota. Where racks decide, a member keeps and gets, as far as
quotas allow, what has a replica in its own rack.

Source: Apache Kafka 3.9, `AbstractStickyAssignor`; its results, in its order. Partitions are the numbers of
`NumberedPartitions`, whose topics are sorted by name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from ottla.assign.java_order import sorted_texts
from ottla.assign.sticky_partitions import NumberedPartitions, PreviousOwners, Racks


class EqualAssignment:
    """Builds one assignment; call `assign` once."""

    def __init__(self, numbered: NumberedPartitions, racks: Racks | None, previous: PreviousOwners) -> None:
        self._numbered = numbered
        self._racks = racks
        self._previous = previous
        self._lower, self._with_more = divmod(numbered.total, len(previous.owned))
        self._upper = self._lower + (1 if self._with_more else 0)
        self._having_more = 0
        self._below: list[str] = []
        """Members below the lower quota."""
        self._at_lower: list[str] = []
        """Members that have the lower quota and may get one more, the next one first."""
        self._revoked: dict[int, str] = {}
        """Partitions taken from their owner, who may still get them back."""
        self.kept: dict[str, list[int]] = {}
        """Partitions that each member keeps."""
        self.added: dict[str, list[int]] = {member_id: [] for member_id in previous.owned}
        """Partitions that each member gets in addition."""

    def assign(self) -> None:
        """Fill `kept` and `given`."""
        for member_id, numbers in self._previous.owned.items():
            self._keep(member_id, self._may_keep(member_id, numbers))
        self._below = sorted_texts(self._below)
        self._at_lower = sorted_texts(self._at_lower)
        unassigned = self._unassigned()
        if self._racks is not None:
            unassigned.sort(key=self._racks.consumers_near)
            unassigned = self._give_by_rack(unassigned, self._racks)
        self._give_in_turn(unassigned)

    def changing_hands(self) -> dict[int, str]:
        """Partitions given to a member while another one may still own them, with that owner."""
        revoked, contested = self._revoked, self._previous.contested
        if not revoked and not contested:
            return {}
        return {
            number: member_id
            for member_id, numbers in self.added.items()
            for number in numbers
            if revoked.get(number, member_id) != member_id or number in contested
        }

    def _may_keep(self, member_id: str, numbers: list[int]) -> list[int]:
        racks, contested = self._racks, self._previous.contested
        if racks is not None and member_id in racks.members:
            far = [number for number in numbers if racks.mismatch(member_id, number)]
            if far:
                self._revoked.update(dict.fromkeys(far, member_id))
                gone = set(far)
                numbers = [number for number in numbers if number not in gone]
        if contested:
            numbers = [number for number in numbers if number not in contested]
        return sorted(numbers)

    def _keep(self, member_id: str, numbers: list[int]) -> None:
        if len(numbers) < self._lower:
            self.kept[member_id] = numbers
            self._below.append(member_id)
            return
        if len(numbers) >= self._upper and self._having_more < self._with_more:
            quota = self._upper
            self._have_one_more()
        else:
            quota = self._lower
            if self._having_more < self._with_more:
                self._at_lower.append(member_id)
        self.kept[member_id] = numbers[:quota]
        self._revoked.update(dict.fromkeys(numbers[quota:], member_id))

    def _have_one_more(self) -> None:
        self._having_more += 1
        if self._having_more == self._with_more:
            self._at_lower.clear()

    def _unassigned(self) -> list[int]:
        taken: set[int] = set()
        taken.update(*self.kept.values())
        if not taken:
            return self._numbered.all()
        return [
            number
            for place in range(self._numbered.topics)
            for number in self._numbered.of_topic(place)
            if number not in taken
        ]

    def _give_by_rack(self, unassigned: list[int], racks: Racks) -> list[int]:
        """Give each partition to a member near to it that still wants some; what is left is answered."""
        below = _RackRing(self._below, racks.members)
        at_lower = _RackRing(self._at_lower, racks.members)
        size = {member_id: len(numbers) for member_id, numbers in self.kept.items()}
        turn = 0
        left: list[int] = []
        for number in unassigned:
            near = racks.by_partition[number]
            found = below.find(near, turn)
            if found >= 0:
                member_id = below.name(found)
                if size[member_id] + 1 >= self._lower:
                    below.remove(found)
                    if size[member_id] + 1 < self._upper and self._having_more < self._with_more:
                        at_lower.add(member_id)
                turn = found + 1
            else:
                found = at_lower.find(near, 0)
                if found < 0:
                    left.append(number)
                    continue
                member_id = at_lower.name(found)
                at_lower.remove(found)
                self._having_more += 1
                if self._having_more == self._with_more:
                    at_lower.clear()
            size[member_id] += 1
            self.added[member_id].append(number)
        self._below, self._at_lower = below.names(), at_lower.names()
        return left

    def _give_in_turn(self, unassigned: list[int]) -> None:
        """One for each member below the lower quota, again and again, then one for each that has it.

        As long as no member reaches the quota, each gets every so-many-th partition: a slice.
        """
        ring = [
            (member_id, self._lower - len(self.kept[member_id]) - len(self.added[member_id]))
            for member_id in self._below
        ]
        at_lower = self._at_lower
        begin = 0
        while ring:
            step = len(ring)
            rounds = min(missing for _, missing in ring)
            end = begin + rounds * step
            for place, (member_id, _) in enumerate(ring):
                self.added[member_id] += unassigned[begin + place : end : step]
            at_lower += [member_id for member_id, missing in ring if missing == rounds]
            ring = [(member_id, missing - rounds) for member_id, missing in ring if missing > rounds]
            begin = end
        for member_id, number in zip(at_lower, unassigned[begin:], strict=False):
            self.added[member_id].append(number)


class _RackRing:
    """A queue of members with an index by rack; members are added and removed."""

    def __init__(self, names: list[str], racks: Mapping[str, str]) -> None:
        self._racks = racks
        self._names: list[str] = []
        self._gone: set[int] = set()
        self._places: dict[str, list[int]] = {}
        """Places of the present members by rack, sorted."""
        for name in names:
            self.add(name)

    def find(self, near: frozenset[str], begin: int) -> int:
        """The place of the first member in one of those racks, from `begin` on and round; -1 where there is none."""
        following, first = -1, -1
        for rack in near:
            places = self._places.get(rack)
            if not places:
                continue
            if first < 0 or places[0] < first:
                first = places[0]
            at = bisect_left(places, begin)
            if at < len(places) and (following < 0 or places[at] < following):
                following = places[at]
        return first if following < 0 else following

    def name(self, place: int) -> str:
        return self._names[place]

    def names(self) -> list[str]:
        return [name for place, name in enumerate(self._names) if place not in self._gone]

    def add(self, name: str) -> None:
        if rack := self._racks.get(name):
            self._places.setdefault(rack, []).append(len(self._names))
        self._names.append(name)

    def remove(self, place: int) -> None:
        places = self._places[self._racks[self._names[place]]]
        del places[bisect_left(places, place)]
        self._gone.add(place)

    def clear(self) -> None:
        self._gone.update(range(len(self._names)))
        self._places.clear()
