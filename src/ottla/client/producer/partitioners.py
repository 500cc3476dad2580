"""Partitioners (`partitioner.class`), with the behaviour of Kafka's own.

The default is not one of these classes: it uses the accumulator's byte counts (`sticky`, KIP-794). The classes here,
and custom ones, are called once per record without a given partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ottla.client.configs.instances import configure, make_instance
from ottla.client.configs.settings import PRODUCER
from ottla.client.errors import InvalidConfigError
from ottla.client.model import TopicMetadata
from ottla.env.randomness import Randomness
from ottla.peer.metadata import NO_NODE
from ottla.records.building import MAX_INT32
from ottla.records.building import partition_for_key as partition_for_key

RandomInt = Callable[[], int]
"""Returns a random number from 0 to 2^31 - 1."""


class ClusterView:
    """The cluster as a partitioner sees it: the partitions of the topics that the producer knows."""

    def __init__(self, topics: Mapping[str, TopicMetadata]) -> None:
        self._topics = topics

    def partitions_for_topic(self, topic: str) -> list[int]:
        """Return the numbers of all partitions, from 0; empty for an unknown topic."""
        known = self._topics.get(topic)
        return [] if known is None else list(range(len(known.partitions)))

    def available_partitions_for_topic(self, topic: str) -> list[int]:
        """Return the numbers of the partitions that have a leader."""
        known = self._topics.get(topic)
        return [] if known is None else available_partitions(known)


class Partitioner(Protocol):
    """Interface of `partitioner.class`. `on_new_batch`, `close` and `configure` are optional."""

    def partition(
        self,
        topic: str,
        key: Any,
        key_bytes: bytes | None,
        value: Any,
        value_bytes: bytes | None,
        cluster: ClusterView,
    ) -> int:
        """Return the partition of a record; called in the sending thread."""
        ...


def available_partitions(topic: TopicMetadata) -> list[int]:
    """Return the numbers of the partitions that have a leader."""
    return [each.partition for each in topic.partitions if each.leader != NO_NODE]


def random_int(randomness: Randomness | None = None) -> RandomInt:
    """Return a source of random numbers of 31 bits."""
    bits = (randomness or Randomness()).bits
    return lambda: bits(31)


class RoundRobinPartitioner:
    """Round robin regardless of the key: over the available partitions, over all if none is available."""

    def __init__(self, random: RandomInt | None = None) -> None:
        self._random = random or random_int()
        self._counters: dict[str, int] = {}

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: ClusterView
    ) -> int:
        """Return the next partition of the topic; the first one is random."""
        counter = self._counters.get(topic)
        if counter is None:
            counter = self._random()
        self._counters[topic] = (counter + 1) & MAX_INT32
        available = cluster.available_partitions_for_topic(topic)
        if available:
            return available[counter % len(available)]
        return counter % len(cluster.partitions_for_topic(topic))


class KeyOrRoundRobinPartitioner(RoundRobinPartitioner):
    """Hashes keys; records without a key go round robin over the available partitions.

    Kafka's default before 2.4 (KIP-480), where it was called DefaultPartitioner, too.
    """

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: ClusterView
    ) -> int:
        """Return the partition of the key, else the next one of the topic."""
        if key_bytes is not None:
            return partition_for_key(key_bytes, len(cluster.partitions_for_topic(topic)))
        return super().partition(topic, key, key_bytes, value, value_bytes, cluster)


class UniformStickyPartitioner:
    """Keeps a partition until its batch is complete, then picks another available one; ignores keys (KIP-480)."""

    def __init__(self, random: RandomInt | None = None) -> None:
        self._random = random or random_int()
        self._current: dict[str, int] = {}

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: ClusterView
    ) -> int:
        """Return the topic's sticky partition."""
        current = self._current.get(topic)
        return self._next(topic, cluster, None) if current is None else current

    def on_new_batch(self, topic: str, cluster: ClusterView, previous_partition: int) -> None:
        """A batch of `previous_partition` is complete: switch, unless that was done already."""
        if self._current.get(topic) in (None, previous_partition):
            self._next(topic, cluster, self._current.get(topic))

    def _next(self, topic: str, cluster: ClusterView, previous: int | None) -> int:
        available: Sequence[int] = cluster.available_partitions_for_topic(topic)
        if not available:
            chosen = self._random() % len(cluster.partitions_for_topic(topic))
        elif len(available) == 1:
            chosen = available[0]
        else:
            chosen = available[self._random() % len(available)]
            while chosen == previous:
                chosen = available[self._random() % len(available)]
        self._current[topic] = chosen
        return chosen


class DefaultPartitioner(UniformStickyPartitioner):
    """Hashes keys; records without a key go to a sticky partition. Kafka's default before KIP-794."""

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: ClusterView
    ) -> int:
        """Return the partition of the key, else the sticky one."""
        if key_bytes is not None:
            return partition_for_key(key_bytes, len(cluster.partitions_for_topic(topic)))
        return super().partition(topic, key, key_bytes, value, value_bytes, cluster)


BUILT_IN: Mapping[str, type] = {
    each.__name__: each
    for each in (RoundRobinPartitioner, KeyOrRoundRobinPartitioner, UniformStickyPartitioner, DefaultPartitioner)
}
"""Kafka's partitioners by Java class name; `KeyOrRoundRobinPartitioner` is our name."""


class _Called:
    """A partitioner made of a plain function with the parameters of `Partitioner.partition`."""

    def __init__(self, function: Callable[..., int]) -> None:
        self.partition = function


def partitioner_of(value: Any, originals: Mapping[str, Any]) -> Any:
    """Resolve `partitioner.class`: object, class, function or dotted name. None is the default.

    Raises InvalidConfigError if it does not exist, or is not a partitioner.
    """
    if value is None:
        return None
    found, is_new = make_instance(PRODUCER, "partitioner.class", value, BUILT_IN, "partition")
    if not hasattr(found, "partition") or isinstance(found, str):  # str has a method of that name
        if not callable(found):
            raise InvalidConfigError(PRODUCER, [f"partitioner.class: {value!r} has no method partition."])
        found = _Called(found)
    if is_new:
        configure(PRODUCER, "partitioner.class", found, dict(originals))
    return found
