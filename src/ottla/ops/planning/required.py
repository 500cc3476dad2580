"""A goal's demands on single partitions: brokers that they leave, another number of replicas, racks."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence

from ottla.ops.planning.layout import Layout
from ottla.ops.planning.model import Left, PlanGoal


class LeastLoaded:
    """Chooses the least loaded broker of those that may take a replica, racks first.

    A heap for each rack, whose entries are corrected when they are looked at: a choice takes a few steps, however many
    brokers there are.
    """

    def __init__(self, layout: Layout, brokers: Sequence[int]) -> None:
        self._layout = layout
        total_bytes, total_count = sum(layout.sizes), sum(map(len, layout.replicas))
        share = max(1, len(layout.targets))
        self._bytes_share = max(1.0, total_bytes / share)
        self._count_share = max(1.0, total_count / share)
        self._heaps: dict[str, list[tuple[float, int]]] = {}
        for broker in brokers:
            rack = layout.racks[broker] if layout.is_racked else ""
            self._heaps.setdefault(rack, []).append((self._score(broker), broker))
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def _score(self, broker: int) -> float:
        layout = self._layout
        return layout.bytes_on[broker] / self._bytes_share + layout.count_on[broker] / self._count_share

    def choose(self, at: int, most_crowding: int | None = None) -> int | None:
        """The broker for one more replica of the partition: in the rack with the fewest of its replicas.

        None if no broker can take it, or only in racks with more than `most_crowding` of them.
        """
        levels: dict[int, list[str]] = {}
        for rack, heap in self._heaps.items():
            levels.setdefault(self._layout.crowding(at, heap[0][1]) + self._own(at, heap[0][1]), []).append(rack)
        for level in sorted(levels):
            if most_crowding is not None and level > most_crowding:
                return None
            found = [each for rack in levels[level] if (each := self._best_of(rack, at)) is not None]
            if found:
                return min(found)[1]
        return None

    def _own(self, at: int, broker: int) -> int:
        """`crowding` leaves the broker itself out."""
        return int(self._layout.is_racked and broker in self._layout.replicas[at])

    def _best_of(self, rack: str, at: int) -> tuple[float, int] | None:
        heap, passed, found = self._heaps[rack], [], None
        while heap:
            score, broker = heap[0]
            now = self._score(broker)
            if now > score:
                heapq.heapreplace(heap, (now, broker))
                continue
            if self._can_take(at, broker):
                found = heap[0]
                break
            passed.append(heapq.heappop(heap))
        for each in passed:
            heapq.heappush(heap, each)
        return found

    def _can_take(self, at: int, broker: int) -> bool:
        layout = self._layout
        if broker in layout.replicas[at] or broker in layout.partitions[at].offline:
            return False
        return layout.has_room(broker, layout.sizes[at])


class RequiredChanges:
    """Carries them out on a layout; `left` says which partitions could not be changed, and why."""

    def __init__(self, layout: Layout, goal: PlanGoal) -> None:
        self._layout = layout
        self._goal = goal
        self._leaving = frozenset(goal.empty)
        self._anyone = LeastLoaded(layout, layout.targets)
        self._added = LeastLoaded(layout, goal.add) if goal.add else None
        self.left: dict[int, Left] = {}

    def carry_out(self) -> None:
        """Large partitions first, so that small ones even out what they leave."""
        layout = self._layout
        changed = []
        for at in sorted(range(len(layout.partitions)), key=lambda at: (-layout.sizes[at], at)):
            if self._wants_change(at) and self._is_allowed(at):
                self._change(at)
                changed.append(at)
        for at in changed:
            self._spread(at, max(layout.pairs(at, layout.origins[at]), layout.fewest_pairs(len(layout.replicas[at]))))
        if self._goal.fix_racks:
            for at in range(len(layout.partitions)):
                self._fix_racks(at)
        for at, replicas in enumerate(layout.replicas):
            if tuple(replicas) != layout.origins[at] and layout.has_dead(at):
                layout.restore(at)
                self.left[at] = Left.DEAD

    def _wants_change(self, at: int) -> bool:
        replicas, factor = self._layout.replicas[at], self._factor(at)
        if not self._layout.partitions[at].may_move:
            return False
        return factor != len(replicas) or not self._leaving.isdisjoint(replicas)

    def _factor(self, at: int) -> int:
        wanted = self._goal.replication_factor
        return len(self._layout.origins[at]) if wanted is None else wanted

    def _is_allowed(self, at: int) -> bool:
        if self._layout.is_movable(at):
            return True
        self.left[at] = Left.MOVING if self._layout.partitions[at].is_moving else Left.OFFLINE
        return False

    def _change(self, at: int) -> None:
        layout, factor = self._layout, self._factor(at)
        # A replica on a dead broker goes, too: the reassignment would wait for it.
        going = [each for each in layout.replicas[at] if each in self._leaving or layout.is_offline(at, each)]
        while going and len(layout.replicas[at]) > factor:
            layout.drop(at, going.pop())
        while len(layout.replicas[at]) > factor:
            layout.drop(at, self._superfluous(at))
        for former in going:
            self._replace(at, former)
        while len(layout.replicas[at]) < factor:
            chosen = self._chosen(at, None)
            if chosen is None:
                self.left[at] = Left.NO_ROOM
                return
            layout.add(at, chosen)

    def _replace(self, at: int, former: int) -> None:
        layout = self._layout
        place = layout.replicas[at].index(former)
        before = layout.crowding(at, former)
        layout.drop(at, former)
        chosen = self._chosen(at, before)
        if chosen is None:
            self.left[at] = Left.NO_ROOM
        layout.add(at, former if chosen is None else chosen, place)

    def _chosen(self, at: int, crowding: int | None) -> int | None:
        """A broker that is added, if the racks are spread no worse with it, else any."""
        if self._added is not None:
            chosen = self._added.choose(at, crowding)
            if chosen is not None:
                return chosen
        return self._anyone.choose(at)

    def _superfluous(self, at: int) -> int:
        """The replica that is missed least: not the leader, not in sync, in a crowded rack, on a loaded broker."""
        layout, known = self._layout, self._layout.partitions[at]
        in_sync = known.replicas if known.isr is None else known.isr

        def keep(broker: int) -> tuple[bool, bool, int, int, int]:
            crowding = layout.crowding(at, broker)
            return (broker == known.leader, broker in in_sync, -crowding, -layout.bytes_on[broker], broker)

        return min(layout.replicas[at], key=keep)

    # Racks

    def _fix_racks(self, at: int) -> None:
        layout = self._layout
        fewest = layout.fewest_pairs(len(layout.replicas[at]))
        if layout.pairs(at) <= fewest or not layout.partitions[at].may_move or not self._is_allowed(at):
            return
        if layout.has_dead(at):
            self._change(at)
        self._spread(at, fewest)
        if layout.pairs(at) > fewest:
            self.left[at] = Left.NO_ROOM

    def _spread(self, at: int, wanted: int) -> None:
        """Exchange replicas until no more than `wanted` pairs share a rack. Each exchange makes them fewer."""
        layout = self._layout
        while layout.pairs(at) > wanted:
            if not any(self._exchange(at, former) for former in self._crowded_first(at)):
                return

    def _crowded_first(self, at: int) -> Iterator[int]:
        """Replicas in the most crowded racks first; of these, those that are copied anyway, and the leader last."""
        layout = self._layout
        order = sorted(
            enumerate(layout.replicas[at]),
            key=lambda each: (-layout.crowding(at, each[1]), each[1] in layout.origins[at], -each[0]),
        )
        return iter([broker for _, broker in order])

    def _exchange(self, at: int, former: int) -> bool:
        layout = self._layout
        crowding = layout.crowding(at, former)
        if not crowding:
            return False
        place = layout.replicas[at].index(former)
        layout.drop(at, former)
        chosen = self._anyone.choose(at, crowding - 1)
        layout.add(at, former if chosen is None else chosen, place)
        return chosen is not None


def movable(layout: Layout, leaving: Collection[int]) -> list[int]:
    """Partitions that may be moved for evenness: no dead broker, and nothing on one that was to be emptied."""
    stuck = frozenset(leaving)

    def is_free(at: int) -> bool:
        return layout.is_movable(at) and not layout.has_dead(at) and stuck.isdisjoint(layout.replicas[at])

    return [at for at in range(len(layout.partitions)) if is_free(at)]
