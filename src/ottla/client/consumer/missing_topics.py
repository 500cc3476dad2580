"""Topics that are missing for a moment. A broker that was just started does not know all topics of its cluster yet."""

from __future__ import annotations

from collections.abc import Container, Iterable

from ottla.env.clock import Clock

GONE_AFTER_MS = 5_000.0
"""How long a topic has to be missing before it is taken for deleted. Metadata are asked for again all the while."""


class MissingTopics:
    """Which topics, of those that were there, are still to be reckoned with.

    Java's leader rebalances its group as soon as one answer leaves a topic out, and again when the topic is back: each
    restart of a broker that is asked costs every member its partitions twice.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[str, float] = {}

    def passing(self, expected: Iterable[str], present: Container[str]) -> set[str]:
        """Of the topics that are expected, those that are missing, but not yet for long."""
        now_ms = self._clock.monotonic_ms()
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in expected if each not in present}
        return {each for each, since_ms in self._since_ms.items() if now_ms - since_ms < GONE_AFTER_MS}
