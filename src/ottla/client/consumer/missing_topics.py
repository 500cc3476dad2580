"""Topics that are missing temporarily. A broker that was just started does not know all topics of its cluster yet."""

from __future__ import annotations

from collections.abc import Container, Iterable

from ottla.env.clock import Clock

GONE_AFTER_MS = 5_000.0
"""How long a topic has to be missing before it counts as deleted. Metadata is refreshed all the while."""


class MissingTopics:
    """Which of the missing topics are still treated as existing.

    Java's group leader rebalances as soon as one response leaves a topic out, and again when the topic is back: each
    restart of a broker that serves metadata revokes every member's partitions twice.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[str, float] = {}

    def passing(self, expected: Iterable[str], present: Container[str]) -> set[str]:
        """Return the expected topics that are missing, but not yet for long."""
        now_ms = self._clock.monotonic_ms()
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in expected if each not in present}
        return {each for each, since_ms in self._since_ms.items() if now_ms - since_ms < GONE_AFTER_MS}
