"""Which replica of each partition comes first, and so leads: leaders are evened out without a byte being moved.

The number of leaders is evened out along paths: a broker with too many hands a partition over to one that hands
another one over, until it reaches a broker with too few (as augmenting paths do in a flow). The load of leaders is
evened out by exchanges that leave the numbers within their bounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ottla.ops.planning.bounds import Bounds
from ottla.ops.planning.layout import Layout

MOST_EXCHANGED = 64
"""Partitions of a pair of brokers that are looked at for one exchange."""
_LEAST_GAIN = 1e-9
_Pair = tuple[int, int]


class LeaderEvening:
    """Orders the replicas of a layout. `free` are the partitions whose order may change."""

    def __init__(self, layout: Layout, counts: Bounds, loads: Bounds, free: Iterable[int]) -> None:
        self._layout = layout
        self._counts = counts
        self._loads = loads
        self._brokers = sorted(counts.share)
        self._led = dict.fromkeys(self._brokers, 0)
        self._load = dict.fromkeys(self._brokers, 0.0)
        for at, replicas in enumerate(layout.replicas):
            if replicas and replicas[0] in self._led:
                self._led[replicas[0]] += 1
                self._load[replicas[0]] += layout.leader_load(at)
        #: Partitions that the first broker of a pair leads and the second one could; dicts for their order.
        self._shared: dict[_Pair, dict[int, None]] = {}
        for at in free:
            self._share(at)

    def run(self) -> None:
        """Even the numbers out, then the loads."""
        for broker in self._brokers:
            while self._led[broker] > self._counts.high[broker] and self._shift(broker, gives=True):
                pass
        for broker in self._brokers:
            while self._led[broker] < self._counts.low[broker] and self._shift(broker, gives=False):
                pass
        self._even_loads()

    # Who could lead what

    def _share(self, at: int) -> None:
        first, *others = self._layout.replicas[at]
        for other in others:
            if first in self._led and other in self._led:
                self._shared.setdefault((first, other), {})[at] = None

    def _hand_over(self, at: int, former: int, new: int) -> None:
        """Exchange the places of two replicas."""
        replicas = self._layout.replicas[at]
        for other in replicas[1:]:
            self._shared.get((former, other), {}).pop(at, None)
        place = replicas.index(new)
        replicas[0], replicas[place] = new, former
        self._share(at)
        load = self._layout.leader_load(at)
        self._led[former] -= 1
        self._led[new] += 1
        self._load[former] -= load
        self._load[new] += load

    # Numbers

    def _shift(self, broker: int, *, gives: bool) -> bool:
        """Bring one partition from the broker to another (`gives`) or the other way, along the shortest path."""
        counts, led = self._counts, self._led

        def can_take(each: int) -> bool:
            return led[each] + 1 <= counts.high[each] if gives else led[each] - 1 >= counts.low[each]

        def needs(each: int) -> bool:
            return led[each] < counts.low[each] if gives else led[each] > counts.high[each]

        path = self._path(broker, needs, gives) or self._path(broker, can_take, gives)
        if path is None:
            return False
        for former, new in path:
            self._hand_over(self._choice(former, new), former, new)
        return True

    def _path(self, start: int, is_end: Callable[[int], bool], gives: bool) -> list[_Pair] | None:
        """The pairs of brokers on the shortest way to one that takes (or gives) a partition; None if there is none."""
        came: dict[int, int] = {start: start}
        waiting = deque([start])
        while waiting:
            now = waiting.popleft()
            for other in self._brokers:
                if other in came or not self._shared.get((now, other) if gives else (other, now)):
                    continue
                came[other] = now
                if is_end(other):
                    return self._steps(came, start, other, gives)
                waiting.append(other)
        return None

    @staticmethod
    def _steps(came: dict[int, int], start: int, end: int, gives: bool) -> list[_Pair]:
        """The hand-overs, the last one first where partitions are given, so that each pair still has its partition."""
        steps = []
        while end != start:
            steps.append((came[end], end) if gives else (end, came[end]))
            end = came[end]
        return steps

    def _choice(self, former: int, new: int) -> int:
        """The partition to hand over: a large one if the former leader has the larger load, else a small one."""
        candidates = list(self._shared[former, new])[:MOST_EXCHANGED]
        has_more = self._load[former] - self._loads.share[former] > self._load[new] - self._loads.share[new]
        return (max if has_more else min)(candidates, key=self._layout.leader_load)

    # Loads

    def _even_loads(self) -> None:
        fullest_first = sorted(self._brokers, key=lambda each: (self._loads.share[each] - self._load[each], each))
        for source in fullest_first:
            for target in reversed(fullest_first):
                while source != target and self._is_uneven(source, target) and self._exchange(source, target):
                    pass

    def _is_uneven(self, source: int, target: int) -> bool:
        loads = self._loads
        return loads.excess(source, self._load[source]) > 0 or loads.deficit(target, self._load[target]) > 0

    def _exchange(self, source: int, target: int) -> bool:
        """Hand a partition over, or two in both directions; whether one was found that helps."""
        loads = self._loads
        wanted = max(loads.excess(source, self._load[source]), loads.deficit(target, self._load[target]))
        heaviest = self._by_load(source, target)
        counts = self._counts
        if self._led[source] - 1 >= counts.low[source] and self._led[target] + 1 <= counts.high[target]:
            for load, at in heaviest:
                if load <= 2 * wanted and self._helps(source, target, load):
                    self._hand_over(at, source, target)
                    return True
        returned = self._by_load(target, source)[::-1]
        for load, at in heaviest:
            for other_load, other in returned:
                if load - other_load <= 2 * wanted and self._helps(source, target, load - other_load):
                    self._hand_over(at, source, target)
                    self._hand_over(other, target, source)
                    return True
        return False

    def _by_load(self, former: int, new: int) -> list[tuple[float, int]]:
        """The partitions with the largest load, the largest first."""
        load = self._layout.leader_load
        found = sorted(
            ((load(at), at) for at in self._shared.get((former, new), ())), key=lambda each: (-each[0], each[1])
        )
        return found[:MOST_EXCHANGED]

    def _helps(self, source: int, target: int, load: float) -> bool:
        if load <= 0:
            return False
        loads, has, gets = self._loads, self._load[source], self._load[target]
        before = loads.violation(source, has) + loads.violation(target, gets)
        return before - loads.violation(source, has - load) - loads.violation(target, gets + load) > _LEAST_GAIN


def reordered(layout: Layout, movable: Sequence[int]) -> list[int]:
    """The partitions of these that have a choice of leaders."""
    return [at for at in movable if len(layout.replicas[at]) > 1]
