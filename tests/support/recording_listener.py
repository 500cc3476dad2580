"""A rebalance listener that remembers what it was told, and polling of several consumers until something holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.client.consumer.listener import ConsumerRebalanceListener
from ottla.client.model import TopicPartition

SETTLED_TIMEOUT_S = 120.0
POLL_MS = 20


class RecordingListener(ConsumerRebalanceListener):
    """Its calls in order: the word of the method, and the numbers of the partitions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.partitions: list[tuple[str, list[TopicPartition]]] = []

    def _remember(self, word: str, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append((word, [each.partition for each in partitions]))
        self.partitions.append((word, list(partitions)))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Remember it."""
        self._remember("revoked", partitions)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Remember it."""
        self._remember("assigned", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Remember it."""
        self._remember("lost", partitions)

    @property
    def counts(self) -> tuple[int, int, int]:
        """How often each method was called: revoked, assigned, lost."""
        words = [word for word, _ in self.calls]
        return words.count("revoked"), words.count("assigned"), words.count("lost")


class Polled:
    """A consumer with its listener; `records` are all that its polls gave."""

    def __init__(self, consumer: Any, listener: RecordingListener | None = None) -> None:
        self.consumer = consumer
        self.listener = listener or RecordingListener()
        self.records: list[Any] = []
        self.is_closed = False

    def poll(self) -> list[Any]:
        """Poll once."""
        found = list(self.consumer.poll(POLL_MS))
        self.records += found
        return found

    def close(self) -> None:
        """Leave the group."""
        if not self.is_closed:
            self.is_closed = True
            self.consumer.close()

    @property
    def owned(self) -> list[int]:
        """The numbers of its partitions."""
        return sorted(each.partition for each in self.consumer.assignment())


def poll_until(consumers: Iterable[Polled], condition: Callable[[], bool], what: str = "") -> None:
    """Poll them in turn until the condition holds."""
    consumers = list(consumers)
    deadline = time.monotonic() + SETTLED_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what or [(one.owned, one.listener.calls) for one in consumers]
        for one in consumers:
            one.poll()
