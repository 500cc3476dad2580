"""Committed offsets and times of unread batches, which the metrics of lags share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

BatchTimes = dict[tuple[str, str, int], tuple[int, int]]
"""By group, topic and partition with lag: an offset, and the time of the batch that holds it."""


class Committed(NamedTuple):
    """A committed offset."""

    group: str
    topic: str
    partition: int
    offset: int
    #: Records up to the high watermark; None if it is not known here.
    lag: int | None

    @property
    def labels(self) -> tuple[str, str, str]:
        """Values of the labels."""
        return self.group, self.topic, str(self.partition)


class LagFigures:
    """The offsets that a scrape has found, for all its metrics, and the times that the next scrape need not read."""

    def __init__(self) -> None:
        #: None while no scrape is under way.
        self.committed: Sequence[Committed] | None = None
        self.written_ms: BatchTimes = {}
