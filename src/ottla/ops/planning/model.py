"""The input of a plan, and its content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

DEFAULT_TOLERANCE = 0.1
"""How far from its even share a broker may be: a tenth, as Cruise Control's balance thresholds of 1.1."""
FULLEST = 0.9
"""The part of a broker's capacity that a plan fills at most."""


class PlannedBroker(NamedTuple):
    """A broker: its rack, and the bytes that its log directories can take in all, None where that is not known.

    `is_alive` is False for one that is in replica lists and not registered: nothing is moved there.
    """

    id: int
    rack: str | None = None
    capacity_bytes: int | None = None
    is_alive: bool = True


class PlannedPartition(NamedTuple):
    """A partition as it is: replicas with the preferred leader first, its leader (-1: none), bytes of one replica.

    `isr` None means that all replicas are in sync. `rate` is what its leader has to do (bytes per second, say), None
    where leaders are evened out by size. A partition that may not move (`may_move`), or that a reassignment moves
    already (`is_moving`), stays as it is and counts. `offline` are replicas whose log directory has failed, on brokers
    that live: like those on dead brokers they are replaced where the partition changes.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    size_bytes: int = 0
    leader: int = -1
    isr: tuple[int, ...] | None = None
    rate: float | None = None
    may_move: bool = True
    is_moving: bool = False
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanGoal:
    """The goal of a plan; several at once are possible.

    Args:
        even: even bytes, replicas and leaders out over all brokers.
        add: brokers that take their share from the others; nothing is moved to other brokers for evenness.
        empty: brokers that shall have no replicas, registered or not.
        replication_factor: the number of replicas of each partition.
        fix_racks: spread the replicas of each partition over as many racks as there are.
        tolerance: how far from its even share a broker may be; 0.1 is a tenth.
        by_capacity: shares in proportion to the capacities instead of equal ones.
    """

    even: bool = False
    add: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()
    replication_factor: int | None = None
    fix_racks: bool = False
    tolerance: float = DEFAULT_TOLERANCE
    by_capacity: bool = False


class PlanRefusal(NamedTuple):
    """Why there can be no plan: cause and cure in one sentence."""

    message: str


class Left(Enum):
    """Why a partition that ought to change was left as it is."""

    MOVING = "a reassignment moves it already"
    OFFLINE = "no replica that is in sync is alive to copy from"
    NO_ROOM = "no other broker can take a replica"
    DEAD = "a replica is on a broker that is not there"


class PartitionMove(NamedTuple):
    """The change of one partition. `source` is the broker that the new replicas copy from."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int
    source: int

    @property
    def added(self) -> tuple[int, ...]:
        """Brokers that get a replica."""
        return tuple(each for each in self.after if each not in self.before)

    @property
    def removed(self) -> tuple[int, ...]:
        """Brokers whose replica goes."""
        return tuple(each for each in self.before if each not in self.after)

    @property
    def moved_bytes(self) -> int:
        """Bytes that are copied between brokers; 0 where only the order changes or replicas go."""
        return self.size_bytes * len(self.added)


class BrokerLoad(NamedTuple):
    """A broker's load: bytes of its replicas, their number, partitions that prefer it as leader, and their load."""

    size_bytes: int = 0
    replicas: int = 0
    leaders: int = 0
    leader_load: float = 0.0


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """The moves, what each broker has before and after them, and what could not be done.

    `crowded_before` and `crowded_after` count partitions that could be spread over more racks. `left` are partitions
    that the goal asks to change and that stay as they are. `brokers` are those that replicas may be on in the end, and
    evenness is about.
    """

    moves: tuple[PartitionMove, ...]
    before: Mapping[int, BrokerLoad]
    after: Mapping[int, BrokerLoad]
    brokers: Sequence[int]
    crowded_before: int
    crowded_after: int
    left: Mapping[tuple[str, int], Left]

    @property
    def moved_bytes(self) -> int:
        """Bytes that are copied between brokers."""
        return sum(each.moved_bytes for each in self.moves)
