"""Topics that have znodes, but that no UpdateMetadata has named yet to a broker that has just started."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet

#: How long after its start a broker takes topics with znodes for existing before UpdateMetadata names them.
UNHEARD_MS = 30_000.0


class UnheardTopics:
    """Their names, from the registration on until the controller's UpdateMetadata has come.

    Clients get LEADER_NOT_AVAILABLE, and retry. Source: none. Apache Kafka's brokers answer
    UNKNOWN_TOPIC_OR_PARTITION in that time, after which producers of librdkafka fail for good.
    """

    __slots__ = ("_monotonic_ms", "_names", "_until_ms")

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._names: set[str] = set()
        self._until_ms = 0.0

    def expect(self, names: Iterable[str], known: Collection[str]) -> None:
        """Note topics with znodes, but for those that are `known`."""
        self._names.update(name for name in names if name not in known)
        self._until_ms = self._monotonic_ms() + UNHEARD_MS

    def heard(self, names: Iterable[str]) -> None:
        """The controller's UpdateMetadata has named these."""
        if self._names:
            self._names.difference_update(names)

    @property
    def names(self) -> AbstractSet[str]:
        """The names that are left."""
        if self._names and self._monotonic_ms() >= self._until_ms:
            self._names.clear()
        return self._names
