"""A broker that has just started, before its first UpdateMetadata: requests that wait, topics that it may name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet

#: How long a request waits for the first brokers: longer than a controller takes that is there.
FIRST_BROKERS_WAIT_S = 5.0
#: How long after its start a broker takes topics with znodes for existing, though no UpdateMetadata names them.
UNHEARD_MS = 30_000.0


class FirstBrokers:
    """Lets Metadata and DescribeCluster requests wait until the image has brokers.

    Source: none. Apache Kafka's brokers answer with an empty list of brokers in that time. Java's clients ignore such
    a response; librdkafka (2.16) closes all its connections and never connects again.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        #: In the order in which they came: that of a set would differ from run to run.
        self._waiting: dict[asyncio.Future[bool], None] = {}

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def heard(self) -> None:
        """There are brokers in the image now."""
        for waiting in self._waiting:
            _end(waiting, is_heard=True)

    async def wait(self) -> bool:
        """Wait until there are; False if that takes too long. Needs no task, and may be cancelled."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(FIRST_BROKERS_WAIT_S, lambda: _end(waiting, is_heard=False))
        self._waiting[waiting] = None
        try:
            return await waiting
        finally:
            timer.cancel()
            del self._waiting[waiting]


def _end(waiting: asyncio.Future[bool], *, is_heard: bool) -> None:
    if not waiting.done():
        waiting.set_result(is_heard)


class UnheardTopics:
    """Topics that have znodes, but that no UpdateMetadata has named yet.

    Their names, from the registration on until the controller's UpdateMetadata has come.

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
