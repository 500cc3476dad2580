"""The rack that a reader names to leaders, who then tell it of a follower there (KIP-392).

A leader that names a follower gives no records. After a follower has failed, leaders are asked without the rack for a
while: one that does not know yet that the follower is dead would name it again and again, and the reader would stand
still until it knows.
"""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_MS: Final = 5_000.0
"""Time without the rack after the first failure; each further one doubles it, until a follower has given something."""


class NamedRack:
    """The rack to name now; `most_ms` limits the time without it. Times are those of the monotonic clock."""

    __slots__ = ("_most_ms", "_named_from_ms", "_pause_ms", "_rack")

    def __init__(self, rack: str, most_ms: float) -> None:
        self._rack = rack
        self._most_ms = most_ms
        self._pause_ms = min(FIRST_PAUSE_MS, most_ms)
        self._named_from_ms = 0.0

    def at(self, now_ms: float) -> str:
        """The rack to name; empty for none."""
        return self._rack if now_ms >= self._named_from_ms else ""

    def failed(self, now_ms: float) -> None:
        """A follower did not answer, or with an error."""
        self._named_from_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, self._most_ms)

    def served(self) -> None:
        """A follower answered as it should."""
        self._pause_ms = min(FIRST_PAUSE_MS, self._most_ms)
