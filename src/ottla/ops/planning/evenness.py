"""Evens bytes and replicas out, with as few bytes moved as it can.

Brokers that have too much give, brokers that lack something get, in pairs. The size of what is moved is chosen so that
bytes and numbers come right together: a broker that lacks a gigabyte and ten replicas gets replicas of a tenth of it.
A move counts only if the two brokers are less far out of the bounds after it, so that it ends; see `Bounds.violation`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.ops.planning.bounds import Bounds
from ottla.ops.planning.layout import Layout

MOST_LOOKED_AT = 200
"""Replicas of a broker that are looked at for one move to another broker."""
MOST_SWAPPED = 40
"""Replicas of an overloaded broker that are looked at for an exchange with another broker."""
LEAST_USE = 0.1
"""What a move has to take off the bounds' violation, as a part of the bytes that it copies."""
VIOLATION_DIGITS = 2
"""Plans whose violations agree in these digits of mean shares are compared by the bytes that they copy."""
_LEAST_GAIN = 1e-9


class MoveOrder(NamedTuple):
    """In which order brokers are evened out, which leads to different plans; the best one is taken.

    `is_proportionate`: what is moved has the size that brings bytes and numbers right together, else the largest that
    fits. `fills_first`: brokers that lack something come before those that have too much.
    """

    is_proportionate: bool
    fills_first: bool


MOVE_ORDERS = tuple(MoveOrder(first, second) for first in (True, False) for second in (False, True))


class Evening:
    """Evens a layout out within bounds.

    Args:
        layout: what is changed.
        sizes: bounds of the bytes on each broker.
        counts: bounds of the number of replicas.
        movable: the partitions that may move.
        targets: brokers that may get replicas, and so may lack something.
        donors: brokers that may give some.
        order: the order in which it is done.
    """

    def __init__(
        self,
        layout: Layout,
        sizes: Bounds,
        counts: Bounds,
        movable: Sequence[int],
        *,
        targets: Sequence[int],
        donors: Sequence[int],
        order: MoveOrder = MOVE_ORDERS[0],
    ) -> None:
        self._layout = layout
        self._sizes = sizes
        self._counts = counts
        self._movable = movable
        self._targets = targets
        self._donors = donors
        self._order = order
        self._held: dict[int, list[tuple[int, int]]] = {}

    def run(self) -> None:
        """Redirect what is copied anyway, then move others, then take back what turned out not to be needed."""
        for moves_others in (False, True):
            self._hold(moves_others)
            for is_generous in (False, True):
                self._even(is_generous)
        self._swap()
        self._take_back()

    def _hold(self, moves_others: bool) -> None:
        """Note the replicas that may be moved, by size: those that the goal has copied already, or all."""
        layout = self._layout
        self._held = {broker: [] for broker in {*self._targets, *self._donors}}
        for at in self._movable:
            for broker in layout.replicas[at]:
                if broker in self._held and (moves_others or broker not in layout.origins[at]):
                    self._held[broker].append((layout.sizes[at], at))
        for held in self._held.values():
            held.sort()

    # Loads

    def result(self) -> tuple[float, int]:
        """How far all brokers are out of their bounds, and the bytes that are copied: the less, the better."""
        layout = self._layout
        moved = sum(
            layout.sizes[at] * sum(1 for broker in layout.replicas[at] if broker not in layout.origins[at])
            for at in self._movable
        )
        return round(sum(map(self._violation, self._sizes.share)), VIOLATION_DIGITS), moved

    def _violation(self, broker: int, size: float = 0, count: int = 0) -> float:
        """How far out of its bounds a broker would be with so much more."""
        layout = self._layout
        return self._sizes.violation(broker, layout.bytes_on[broker] + size) + self._counts.violation(
            broker, layout.count_on[broker] + count
        )

    def _fullness(self, broker: int) -> float:
        layout, sizes, counts = self._layout, self._sizes, self._counts
        return (layout.bytes_on[broker] - sizes.share[broker]) / sizes.unit + (
            layout.count_on[broker] - counts.share[broker]
        ) / counts.unit

    def _has_too_much(self, broker: int) -> bool:
        layout = self._layout
        return (
            self._sizes.excess(broker, layout.bytes_on[broker]) > 0
            or self._counts.excess(broker, layout.count_on[broker]) > 0
        )

    def _lacks(self, broker: int) -> bool:
        layout = self._layout
        return (
            self._sizes.deficit(broker, layout.bytes_on[broker]) > 0
            or self._counts.deficit(broker, layout.count_on[broker]) > 0
        )

    # Moves

    def _even(self, is_generous: bool) -> None:
        """First up or down to the share of those that are even already; `is_generous`: to the ends of their bounds."""
        for fills in (True, False) if self._order.fills_first else (False, True):
            for broker in self._emptiest_first(self._targets) if fills else self._fullest_first(self._donors):
                self._fill(broker, is_generous) if fills else self._relieve(broker, is_generous)

    def _relieve(self, source: int, is_generous: bool) -> None:
        for target in self._emptiest_first(self._targets):
            if not self._has_too_much(source):
                return
            self._transfer(source, target, is_generous)

    def _fill(self, target: int, is_generous: bool) -> None:
        for source in self._fullest_first(self._donors):
            if not self._lacks(target):
                return
            self._transfer(source, target, is_generous)

    def _emptiest_first(self, brokers: Sequence[int]) -> list[int]:
        return sorted(brokers, key=lambda each: (self._fullness(each), each))

    def _fullest_first(self, brokers: Sequence[int]) -> list[int]:
        return sorted(brokers, key=lambda each: (-self._fullness(each), each))

    def _transfer(self, source: int, target: int, is_generous: bool) -> None:
        """Move replicas between two brokers as long as that helps one of them."""
        if source == target:
            return
        while True:
            wanted = self._wanted(source, target, is_generous)
            if wanted is None:
                return
            at = self._choice(source, target, wanted)
            if at is None:
                return
            self._move(at, source, target)

    def _wanted(self, source: int, target: int, is_generous: bool) -> float | None:
        """The size of the next replica, None if nothing is wanted of this pair."""
        layout = self._layout
        size = _amount(self._sizes, source, layout.bytes_on[source], target, layout.bytes_on[target], is_generous)
        count = _amount(self._counts, source, layout.count_on[source], target, layout.count_on[target], is_generous)
        if size <= 0 and count <= 0:
            return None
        if size > 0 and count > 0:
            return size / max(1.0, count) if self._order.is_proportionate else size
        return max(0.0, size)

    def _choice(self, source: int, target: int, wanted: float) -> int | None:
        """The replica nearest in size that may go, and whose move is of use."""
        layout = self._layout
        before = self._violation(source) + self._violation(target)
        for size, at in _nearest(self._held[source], wanted):
            if not layout.may_replace(at, source, target) or not layout.has_room(target, size):
                continue
            gain = before - self._violation(source, -size, -1) - self._violation(target, size, 1)
            if gain > _LEAST_GAIN and self._is_worth(gain, size, source, target):
                return at
        return None

    def _is_worth(self, gain: float, size: int, source: int, target: int) -> bool:
        return gain * self._sizes.unit >= size * LEAST_USE or gain * self._counts.unit >= 1 - _LEAST_GAIN

    def _move(self, at: int, source: int, target: int) -> None:
        entry = (self._layout.sizes[at], at)
        self._held[source].remove(entry)
        insort(self._held[target], entry)
        self._layout.replace(at, source, target)

    # What is left

    def _swap(self) -> None:
        """Exchange a larger replica for a smaller one, where no single replica fits."""
        layout = self._layout
        for source in sorted(self._donors, key=lambda each: (-layout.bytes_on[each], each)):
            for target in sorted(self._targets, key=lambda each: (layout.bytes_on[each], each)):
                while source != target and self._swap_one(source, target):
                    pass

    def _swap_one(self, source: int, target: int) -> bool:
        """Make the exchange that helps; whether there was one."""
        layout, sizes = self._layout, self._sizes
        excess = max(sizes.excess(source, layout.bytes_on[source]), sizes.deficit(target, layout.bytes_on[target]))
        if target not in self._donors or source not in self._targets or excess <= 0:
            return False
        before = self._violation(source) + self._violation(target)
        for size, at in list(reversed(self._held[source]))[:MOST_SWAPPED]:
            if not layout.may_replace(at, source, target):
                continue
            for other_size, other in _nearest(self._held[target], size - excess):
                if other_size >= size or not layout.may_replace(other, target, source):
                    continue
                shift = size - other_size
                if not layout.has_room(target, shift):
                    continue
                gain = before - self._violation(source, -shift) - self._violation(target, shift)
                if gain * sizes.unit >= (size + other_size) * LEAST_USE and gain > _LEAST_GAIN:
                    self._move(at, source, target)
                    self._move(other, target, source)
                    return True
                break
        return False

    def _take_back(self) -> None:
        """Leave replicas where they were, the largest first, if this takes no broker further out of its bounds."""
        layout = self._layout
        donors = frozenset(self._donors)
        for at in sorted(self._movable, key=lambda each: (-layout.sizes[each], each)):
            origin = layout.origins[at]
            for new in [each for each in layout.replicas[at] if each not in origin]:
                for former in origin:
                    if former in donors and former not in layout.replicas[at] and self._is_no_worse(at, new, former):
                        layout.replace(at, new, former)
                        break

    def _is_no_worse(self, at: int, new: int, former: int) -> bool:
        layout = self._layout
        if new not in self._sizes.share or not layout.may_replace(at, new, former):
            return False
        size = layout.sizes[at]
        if not layout.has_room(former, size):
            return False
        before = self._violation(new) + self._violation(former)
        return self._violation(new, -size, -1) + self._violation(former, size, 1) <= before + _LEAST_GAIN


def _amount(bounds: Bounds, source: int, has: float, target: int, gets: float, is_generous: bool) -> float:
    """How much should go from one broker to another; 0 or less if nothing."""
    excess, deficit = bounds.excess(source, has), bounds.deficit(target, gets)
    if excess <= 0 and deficit <= 0:
        return 0.0
    wanted = min(excess, deficit) if excess > 0 and deficit > 0 else max(excess, deficit)
    if is_generous:
        return min(wanted, bounds.high[target] - gets, has - bounds.low[source])
    return min(wanted, max(bounds.share[target] - gets, deficit), max(has - bounds.share[source], excess))


def _nearest(held: Sequence[tuple[int, int]], wanted: float) -> Iterator[tuple[int, int]]:
    """Replicas by how near their size is to what is wanted, as many as are looked at."""
    above = bisect_left(held, (wanted, -1))
    below = above - 1
    for _ in range(min(MOST_LOOKED_AT, len(held))):
        if above >= len(held) or (below >= 0 and wanted - held[below][0] <= held[above][0] - wanted):
            yield held[below]
            below -= 1
        else:
            yield held[above]
            above += 1
