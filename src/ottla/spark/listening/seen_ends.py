"""When the ends of logs were first seen: from that, how long records have waited, without asking the cluster. Pure."""

from __future__ import annotations

from collections import deque

from ottla.client.model import TopicPartition
from ottla.spark.source.offsets import Offsets

MOST_SIGHTINGS = 100
"""Most remembered ends of a source. When there are more every other one is forgotten: the oldest stays."""


class SeenEnds:
    """The ends of a source's logs, as each progress brought them. Times are in seconds of one clock."""

    def __init__(self) -> None:
        self._sightings: deque[tuple[float, Offsets]] = deque()

    def add(self, seconds: float, latest: Offsets) -> None:
        """Note the ends that were seen at a time."""
        if latest and (not self._sightings or self._sightings[-1][1] != latest):
            self._sightings.append((seconds, dict(latest)))
        if len(self._sightings) > MOST_SIGHTINGS:
            self._sightings = deque(each for number, each in enumerate(self._sightings) if number % 2 == 0)

    def waited(self, seconds: float, end: Offsets) -> dict[TopicPartition, float]:
        """For each partition how long ago a record at or behind `end` was first seen; 0 where none was.

        That is at least how long the first unread record has waited: it may be older than what was seen first.
        """
        first_seen: dict[TopicPartition, float] = {}
        while len(self._sightings) > 1 and not _is_behind(end, self._sightings[0][1]):
            self._sightings.popleft()
        for moment, latest in self._sightings:
            for each, offset in latest.items():
                if each in end and offset > end[each]:
                    first_seen.setdefault(each, moment)
        return {each: max(0.0, seconds - first_seen.get(each, seconds)) for each in end}


def _is_behind(end: Offsets, latest: Offsets) -> bool:
    return any(latest.get(each, 0) > offset for each, offset in end.items())
