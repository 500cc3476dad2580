"""The places of replicas while a plan is made: brokers, their loads, and which changes are allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy

from ottla.ops.planning.model import FULLEST, BrokerLoad, PlannedBroker, PlannedPartition


class Layout:
    """The replicas of all partitions, by their position in `partitions`, and what each broker has.

    `targets` are the brokers that replicas may be moved to; `room` is how many bytes each of them may have in all.
    """

    def __init__(
        self, brokers: Mapping[int, PlannedBroker], partitions: Sequence[PlannedPartition], targets: Iterable[int]
    ) -> None:
        self.brokers = brokers
        self.partitions = partitions
        self.targets = sorted(targets)
        self.replicas = [list(each.replicas) for each in partitions]
        self.origins = [each.replicas for each in partitions]
        self.sizes = [each.size_bytes for each in partitions]
        self.racks = _racks(brokers)
        self.is_racked = any(each.rack is not None for each in brokers.values())
        self.bytes_on: Counter[int] = Counter()
        self.count_on: Counter[int] = Counter()
        for at, replicas in enumerate(self.replicas):
            for broker in replicas:
                self.bytes_on[broker] += self.sizes[at]
                self.count_on[broker] += 1
        self.room = {
            each.id: float("inf") if each.capacity_bytes is None else each.capacity_bytes * FULLEST
            for each in brokers.values()
        }
        self._least_crowding: dict[int, int] = {}
        self._rack_sizes = sorted(Counter(self.racks[each] for each in self.targets).values())

    def copy(self) -> Layout:
        """The same, to be changed apart."""
        other = copy(self)
        other.replicas = [each.copy() for each in self.replicas]
        other.bytes_on, other.count_on = self.bytes_on.copy(), self.count_on.copy()
        return other

    # Changes

    def add(self, at: int, broker: int, place: int | None = None) -> None:
        """Give the partition another replica, at a place in its list or at the end."""
        replicas = self.replicas[at]
        replicas.insert(len(replicas) if place is None else place, broker)
        self.bytes_on[broker] += self.sizes[at]
        self.count_on[broker] += 1

    def drop(self, at: int, broker: int) -> None:
        """Take a replica away."""
        self.replicas[at].remove(broker)
        self.bytes_on[broker] -= self.sizes[at]
        self.count_on[broker] -= 1

    def replace(self, at: int, former: int, new: int) -> None:
        """Move a replica; the new one takes its place in the list."""
        place = self.replicas[at].index(former)
        self.drop(at, former)
        self.add(at, new, place)

    def restore(self, at: int) -> None:
        """Take all changes of the partition back."""
        for broker in list(self.replicas[at]):
            self.drop(at, broker)
        for broker in self.origins[at]:
            self.add(at, broker)

    # Questions

    def is_movable(self, at: int) -> bool:
        """Whether a reassignment of the partition is allowed, and can end."""
        each = self.partitions[at]
        return each.may_move and not each.is_moving and self.source(at) is not None

    def source(self, at: int) -> int | None:
        """The live broker that new replicas copy from: the leader, else another in sync; None if there is none."""
        each = self.partitions[at]
        in_sync = each.replicas if each.isr is None else each.isr
        alive = [broker for broker in in_sync if not self.is_offline(at, broker)]
        if each.leader in alive:
            return each.leader
        return next((broker for broker in each.replicas if broker in alive), None)

    def is_alive(self, broker: int) -> bool:
        """Whether the broker is registered."""
        known = self.brokers.get(broker)
        return known is not None and known.is_alive

    def has_dead(self, at: int) -> bool:
        """Whether a replica cannot come in sync, so that a reassignment of the partition would not end."""
        return any(self.is_offline(at, broker) for broker in self.replicas[at])

    def is_offline(self, at: int, broker: int) -> bool:
        """Whether a replica is on a broker that is not there, or in a log directory that has failed."""
        return broker in self.partitions[at].offline or not self.is_alive(broker)

    def has_room(self, broker: int, size_bytes: int) -> bool:
        """Whether the broker's disks can take so much more."""
        return self.bytes_on[broker] + size_bytes <= self.room[broker]

    def crowding(self, at: int, broker: int, without: int | None = None) -> int:
        """Replicas that the partition has in the broker's rack, beside its own and that of the broker `without`."""
        if not self.is_racked:
            return 0
        racks, rack = self.racks, self.racks[broker]
        return sum(1 for each in self.replicas[at] if racks[each] == rack and each not in (broker, without))

    def may_replace(self, at: int, former: int, new: int) -> bool:
        """Whether a replica may go from one broker to another: not a second one there, racks spread no worse."""
        if new in self.replicas[at] or new in self.partitions[at].offline:
            return False
        if not self.is_racked or self.racks[former] == self.racks[new]:
            return True
        return self.crowding(at, new, former) <= self.crowding(at, former)

    def pairs(self, at: int, replicas: Sequence[int] | None = None) -> int:
        """Pairs of replicas of the partition that share a rack: the fewer, the better spread; 0 without racks."""
        if not self.is_racked:
            return 0
        counts = Counter(self.racks[each] for each in (self.replicas[at] if replicas is None else replicas))
        return sum(count * (count - 1) // 2 for count in counts.values())

    def fewest_pairs(self, factor: int) -> int:
        """The fewest such pairs that as many replicas on `targets` can have."""
        if not self.is_racked:
            return 0
        if factor not in self._least_crowding:
            self._least_crowding[factor] = _fewest_pairs(self._rack_sizes, factor)
        return self._least_crowding[factor]

    def loads(self, replicas: Sequence[Sequence[int]]) -> dict[int, BrokerLoad]:
        """The load of each broker with these replicas of all partitions."""
        found = {broker: [0, 0, 0, 0.0] for broker in sorted(self.brokers)}
        for at, brokers in enumerate(replicas):
            for broker in brokers:
                found[broker][0] += self.sizes[at]
                found[broker][1] += 1
            if brokers:
                found[brokers[0]][2] += 1
                found[brokers[0]][3] += self.leader_load(at)
        return {broker: BrokerLoad(int(a), int(b), int(c), d) for broker, (a, b, c, d) in found.items()}

    def leader_load(self, at: int) -> float:
        """The load of the partition's leader: its rate, else its bytes."""
        rate = self.partitions[at].rate
        return float(self.sizes[at]) if rate is None else rate


def _racks(brokers: Mapping[int, PlannedBroker]) -> dict[int, str]:
    """The rack of each broker. Those without one share a rack of their own: where they stand is not known."""
    return {each.id: "" if each.rack is None else f"={each.rack}" for each in brokers.values()}


def _fewest_pairs(rack_sizes: Sequence[int], factor: int) -> int:
    """Replicas are dealt to the racks in turn, as far as they have brokers."""
    pairs, dealt, turn = 0, 0, 0
    while dealt < factor:
        free = sum(1 for size in rack_sizes if size > turn)
        if not free:
            break
        pairs += turn * min(free, factor - dealt)
        dealt += free
        turn += 1
    return pairs
