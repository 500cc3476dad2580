"""Which member reads which partition when: time unread, time read by two at once, and time until settled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Reading(NamedTuple):
    """`member` read `partition` during this time, milliseconds."""

    partition: int
    member: str
    from_ms: int
    to_ms: int


class Consumption:
    """Accounting for one group and one topic. Members report what they begin and stop to read, as they believe.

    A frozen member reads nothing, though it believes that it does.
    """

    def __init__(self, partitions: int) -> None:
        self.readings: list[Reading] = []
        #: Sum over partitions of unread milliseconds, since `begin`.
        self.unread_ms = 0
        self.doubled_ms = 0
        #: Sum over partitions of milliseconds in which a member read one that it had lost, since `begin`.
        self.stale_ms = 0
        #: The longest time for which a partition had no reader, since `begin`.
        self.longest_unread_ms = 0
        #: Time of the last change of readers.
        self.changed_ms = 0
        self._begun_ms: int | None = None
        self._now_ms = 0
        self._believed: dict[str, set[int]] = {}
        self._halted: set[str] = set()
        #: What members read though their claim to it is over.
        self._lost: dict[str, set[int]] = {}
        self._readers: list[dict[str, int]] = [{} for _ in range(partitions)]
        self._unread_since: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._doubled = 0

    @property
    def is_whole(self) -> bool:
        """Whether every partition has exactly one reader."""
        return not self._unread_since and not self._doubled

    def begin(self, now_ms: int) -> None:
        """Start counting."""
        self._pass(now_ms)
        self._begun_ms = now_ms
        self.unread_ms = self.doubled_ms = self.stale_ms = self.longest_unread_ms = 0

    def end(self, now_ms: int) -> None:
        """Stop counting: times under way are counted up to now."""
        self._pass(now_ms)
        for partition in list(self._unread_since):
            self._read_again(partition)
        for partition, readers in enumerate(self._readers):
            self.readings += [Reading(partition, name, since, now_ms) for name, since in readers.items()]

    def claimed(self, member: str, partitions: Iterable[int], now_ms: int) -> None:
        """The member begins to read them."""
        self._pass(now_ms)
        believed = self._believed.setdefault(member, set())
        new = set(partitions) - believed
        believed |= new
        if member not in self._halted:
            self._begin_reading(member, new)

    def released(self, member: str, partitions: Iterable[int], now_ms: int) -> None:
        """The member stops reading them."""
        self._pass(now_ms)
        gone = set(partitions) & self._believed.get(member, set())
        self._believed.get(member, set()).difference_update(gone)
        self._lost.get(member, set()).difference_update(gone)
        if member not in self._halted:
            self._end_reading(member, gone)

    def lost(self, member: str, now_ms: int) -> None:
        """The group no longer counts on the member, which does not know it: what it believes to read is others'."""
        self._pass(now_ms)
        self._lost[member] = set(self._believed.get(member, ()))

    def gone(self, member: str, now_ms: int) -> None:
        """The process has ended."""
        self.released(member, list(self._believed.get(member, ())), now_ms)
        self._halted.discard(member)

    def halted(self, member: str, now_ms: int) -> None:
        """The process is paused."""
        self._pass(now_ms)
        if member not in self._halted:
            self._end_reading(member, self._believed.get(member, set()))
            self._halted.add(member)

    def resumed(self, member: str, now_ms: int) -> None:
        """The process continues, with its old assignment."""
        self._pass(now_ms)
        if member in self._halted:
            self._halted.discard(member)
            self._begin_reading(member, self._believed.get(member, set()))

    def grown(self, partitions: int, now_ms: int) -> None:
        """The topic now has `partitions`; the new ones have no reader yet."""
        self._pass(now_ms)
        for partition in range(len(self._readers), partitions):
            self._readers.append({})
            self._unread_since[partition] = now_ms

    def _pass(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._now_ms
        self.unread_ms += elapsed_ms * len(self._unread_since)
        self.doubled_ms += elapsed_ms * self._doubled
        self.stale_ms += elapsed_ms * sum(len(lost) for name, lost in self._lost.items() if name not in self._halted)
        self._now_ms = now_ms

    def _begin_reading(self, member: str, partitions: Iterable[int]) -> None:
        for partition in sorted(partitions):
            readers = self._readers[partition]
            readers[member] = self._now_ms
            self.changed_ms = self._now_ms
            if len(readers) == 1:
                self._read_again(partition)
            elif len(readers) == 2:
                self._doubled += 1

    def _end_reading(self, member: str, partitions: Iterable[int]) -> None:
        for partition in sorted(partitions):
            readers = self._readers[partition]
            self.readings.append(Reading(partition, member, readers.pop(member), self._now_ms))
            self.changed_ms = self._now_ms
            if not readers:
                self._unread_since[partition] = self._now_ms
            elif len(readers) == 1:
                self._doubled -= 1

    def _read_again(self, partition: int) -> None:
        since_ms = max(self._unread_since.pop(partition), self._begun_ms or 0)
        if self._begun_ms is not None:
            self.longest_unread_ms = max(self.longest_unread_ms, self._now_ms - since_ms)
