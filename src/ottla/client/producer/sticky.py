"""The default partitioner for records without a key: sticks to a partition for `batch.size` bytes (KIP-794).

The next partition is chosen at random among those with a leader; with adaptive partitioning, long
queues of batches make a partition less likely. Java's class is `BuiltInPartitioner`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from ottla.client.model import TopicMetadata
from ottla.client.producer.partitioners import RandomInt, available_partitions


class StickyState:
    """The sticky partition of one topic. The accumulator's lock guards it."""

    __slots__ = (
        "_available",
        "_count",
        "_cumulative",
        "_loaded",
        "_measure",
        "_random",
        "partition",
        "produced_bytes",
        "size",
    )

    def __init__(
        self,
        topic: TopicMetadata,
        sticky_batch_bytes: int,
        random: RandomInt,
        measure: Callable[[StickyState], None] | None = None,
    ) -> None:
        #: Called before each choice to update the load (`update_load`).
        self._measure = measure
        #: Bytes after which the partition is switched: `batch.size`; if that is 0, after each batch.
        self.size = max(sticky_batch_bytes, 1)
        self._random = random
        #: Partitions and their cumulative weights; None if all are equal.
        self._cumulative: list[int] | None = None
        self._loaded: list[int] = []
        self.produced_bytes = 0
        self.partition = 0
        self.learn(topic)
        self.partition = self._next()

    def learn(self, topic: TopicMetadata) -> None:
        """Apply new metadata of the topic; the sticky partition stays until it is full, or gone."""
        self._available = available_partitions(topic)
        self._count = len(topic.partitions)
        if self.partition >= self._count:  # the topic was deleted and created again with fewer
            self.switch()

    def add(self, size: int, *, may_switch: bool) -> None:
        """Count `size` bytes for the partition; `may_switch` if its queue has no open batch.

        With an open batch the switch waits, up to twice the size, so that batches are not cut short.
        """
        self.produced_bytes += size
        if (self.produced_bytes >= self.size and may_switch) or self.produced_bytes >= 2 * self.size:
            self.switch()

    def switch(self) -> None:
        """Choose another partition, possibly the same one again."""
        self.partition, self.produced_bytes = self._next(), 0

    def _next(self) -> int:
        if self._measure is not None:
            self._measure(self)
        number = self._random()
        if self._cumulative is not None:
            return self._loaded[bisect_right(self._cumulative, number % self._cumulative[-1])]
        if self._available:
            return self._available[number % len(self._available)]
        return number % self._count

    def update_load(self, queue_lengths: Sequence[int] | None, partitions: Sequence[int] = (), total: int = 0) -> None:
        """Set the number of waiting batches per partition; those left out are avoided. None, or all equal: no weights.

        `total` is the number of partitions of the topic; with one it has no choice.
        """
        if not queue_lengths or total < 2 or (len(queue_lengths) == total and len(set(queue_lengths)) == 1):
            self._cumulative = None
            return
        above = max(queue_lengths) + 1
        self._loaded = list(partitions)
        self._cumulative = list(accumulate(above - length for length in queue_lengths))
