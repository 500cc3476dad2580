"""Buffers records until they are sent: a queue of batches per partition, encoded on append.

Any thread appends, the sender drains; one lock guards all of it and is held only briefly. Appending to an open batch
needs no lock (`ProducerDelegate.append`). Memory is bounded by `buffer.memory`; a batch reserves its limit from its
creation until it is delivered or fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ottla.client.errors import ClientClosedError
from ottla.client.model import TopicMetadata, TopicPartition
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.futures import Callback, RecordFuture, SenderHome
from ottla.client.producer.partitioners import RandomInt, random_int
from ottla.client.producer.sticky import StickyState
from ottla.env.clock import Clock
from ottla.env.threads import Lock
from ottla.peer.arguments import function
from ottla.peer.metadata import NO_NODE
from ottla.records.batch import BATCH_OVERHEAD

CLOSED = "the producer is closed"
RECORD_OVERHEAD = 21
"""Upper bound of the lengths, deltas and header count of a record, as Kafka estimates it."""
FIRST_RATIO = 1.0
RATIO_BETTER_STEP = 0.005
RATIO_WORSE_STEP = 0.05
RATIO_MARGIN = 1.05
"""Safety factor: batches are filled as if their records compressed slightly worse than estimated."""
SMALLEST_RATIO = 0.05
"""Lower bound of the estimated ratio; limits the uncompressed records of a batch to 20 times its size."""
SMALLEST_LIMIT = 1
"""Minimal limit of a batch in bytes of records, if `batch.size` leaves no room: each record is sent alone."""


@dataclass(slots=True, frozen=True)
class AccumulatorSettings:
    """The producer settings that the accumulator uses."""

    batch_size: int
    linger_ms: int
    buffer_memory: int
    delivery_timeout_ms: int
    is_adaptive: bool = True


class PartitionQueue:
    """The batches of one partition that wait to be sent, oldest first; the last one may be `open` to records."""

    __slots__ = ("_sticky", "batches", "in_flight", "open", "partition")

    def __init__(self, partition: TopicPartition, sticky: StickyState) -> None:
        self.partition = partition
        self._sticky = sticky
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        #: Batches that the sender has taken and not put back.
        self.in_flight = 0

    def close_open(self) -> None:
        """Close the last batch to further records; its bytes are now counted for the topic's sticky partition."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.close()
            if self._sticky.partition == self.partition.partition:
                # Threads that send concurrently may count each other's bytes in `other_bytes`.
                self._sticky.add(max(0, batch.builder.size - batch.other_bytes), may_switch=True)

    def close_first(self) -> None:
        """Close the first batch to further records."""
        if self.batches[0] is self.open:
            self.close_open()


class TopicQueues:
    """The queues of a topic's partitions, and its sticky partition."""

    __slots__ = ("_slow_brokers", "count", "metadata", "queues", "ratio", "sticky", "used_at_ms")

    def __init__(
        self, metadata: TopicMetadata, sticky_batch_bytes: int, random: RandomInt, slow_brokers: Collection[int] | None
    ) -> None:
        self.queues: list[PartitionQueue] = []
        #: Estimated compression ratio of the topic's records.
        self.ratio = FIRST_RATIO
        self.used_at_ms = 0.0
        #: Brokers to avoid; None without adaptive partitioning.
        self._slow_brokers = slow_brokers
        measure = None if slow_brokers is None else self._measure
        self.metadata = metadata
        self.sticky = StickyState(metadata, sticky_batch_bytes, random, measure)
        self.learn(metadata)

    def _measure(self, sticky: StickyState) -> None:
        """Report the number of waiting batches per partition, except partitions without leader or with a slow one."""
        slow = self._slow_brokers or ()
        lengths, partitions = [], []
        for queue, partition in zip(self.queues, self.metadata.partitions, strict=False):
            if partition.leader != NO_NODE and partition.leader not in slow:
                lengths.append(len(queue.batches))
                partitions.append(partition.partition)
        sticky.update_load(lengths, partitions, self.count if self.queues else 0)

    def compressed(self, before: int, after: int) -> None:
        """Update the compression ratio: fast if it gets worse, slowly if it gets better, as in Java."""
        ratio = after / before
        if ratio > self.ratio:
            self.ratio = min(max(self.ratio + RATIO_WORSE_STEP, ratio), 1.0)
        else:
            self.ratio = max(self.ratio - RATIO_BETTER_STEP, ratio, SMALLEST_RATIO)

    def learn(self, metadata: TopicMetadata) -> None:
        """Apply new metadata of the topic; it may have more partitions."""
        self.metadata = metadata
        count = len(metadata.partitions)
        for partition in range(len(self.queues), count):
            self.queues.append(PartitionQueue(TopicPartition(metadata.name, partition), self.sticky))
        self.count = count  # set after the queues: readers of it need not hold the lock
        self.sticky.learn(metadata)


class Accumulator:
    """All queues. `wake` is called in the appending thread, without the lock, if the sender may have work."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        clock: Clock,
        wake: Callable[[], None],
        *,
        compresses: bool = False,
        random: RandomInt | None = None,
    ) -> None:
        self.lock = Lock()
        self.settings = settings
        self.topics: dict[str, TopicQueues] = {}
        #: Queues that have batches.
        self.active: dict[PartitionQueue, None] = {}
        #: Batches neither delivered nor failed, in the order of their creation.
        self.incomplete: dict[ProducerBatch, None] = {}
        self.used_bytes = 0
        #: Brokers that do not accept requests (`partitioner.availability.timeout.ms`); set by the sender.
        self.slow_brokers: set[int] = set()
        self.home = SenderHome()
        self._clock = clock
        self._monotonic_ms = clock.monotonic_ms
        self._wake = wake
        self._compresses = compresses
        self._random = random or random_int()
        #: The size for which memory was last found insufficient.
        self._wanted_bytes = 0
        self._space_waiters: list[Callable[[], None]] = []
        self._flushes = 0
        self._closed = False

    def topic(self, metadata: TopicMetadata) -> TopicQueues:
        """Return the topic's queues, updated for new partitions."""
        with self.lock:
            known = self.topics.get(metadata.name)
            if known is None:
                slow = self.slow_brokers if self.settings.is_adaptive else None
                known = TopicQueues(metadata, self.settings.batch_size, self._random, slow)
                self.topics[metadata.name] = known
            elif known.metadata is not metadata:
                known.learn(metadata)
            return known

    def append(
        self,
        topic: TopicQueues,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        key_size: int,
        value_size: int,
        size: int,
        callback: Callback | None = None,
    ) -> RecordFuture | None:
        """Append a record to a partition (-1: the sticky one). Returns None if `buffer.memory` is full.

        `size` is the upper bound of the record's size. Raises ClientClosedError, and encoding errors
        for wrong types.
        """
        has_news = False
        if callback is not None:
            function("the callback", callback)
        try:
            with self.lock:
                while True:
                    queue = topic.queues[topic.sticky.partition if partition < 0 else partition]
                    batch = queue.open
                    if batch is not None:
                        before = batch.builder.size
                        index = batch.builder.append(timestamp, key, value, headers)
                        if index >= 0:
                            break
                        has_news = True
                        queue.close_open()
                        continue  # the next attempt may choose another partition
                    batch = self._begin(topic, queue, size)
                    if batch is None:
                        return None
                    has_news, before = True, 0
                    index = batch.builder.append(timestamp, key, value, headers)
                    self._enqueue(queue, batch)
                    break
                if partition >= 0:
                    batch.other_bytes += batch.builder.size - before
                if batch.builder.size >= batch.builder.limit:
                    queue.close_open()  # full: no need to linger
                    has_news = True
                future = RecordFuture(batch.result, index, timestamp, key_size, value_size)
                if callback is not None:
                    batch.result.add_callback(callback, future)
            if has_news:
                self._wake()
            return future
        except KeyboardInterrupt:
            self._wake()  # a batch may have been created that the sender does not know of
            raise

    def has_room(self, topic: TopicQueues, partition: int, size: int) -> bool:
        """Whether a record of about this size fits into the partition's open batch."""
        batch = topic.queues[partition].open
        return batch is not None and batch.builder.size + size <= batch.builder.limit

    def _begin(self, topic: TopicQueues, queue: PartitionQueue, record_size: int) -> ProducerBatch | None:
        limit = self.settings.batch_size - BATCH_OVERHEAD
        if self._compresses:
            limit = int(limit / min(topic.ratio * RATIO_MARGIN, 1.0))
        limit = max(limit, SMALLEST_LIMIT)
        reserved = max(limit, record_size) + BATCH_OVERHEAD
        self._check_open()
        if self.home.check is not None:
            self.home.check()
        if not self.room_for(reserved):
            return None
        topic.used_at_ms = now = self._monotonic_ms()
        return ProducerBatch(queue.partition, limit, reserved, now, self.lock, self.home)

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch, *, is_open: bool = True) -> None:
        # KeyboardInterrupt can be raised after a call: the only call comes last, when all is consistent.
        self.used_bytes += batch.reserved
        self.incomplete[batch] = None
        self.active[queue] = None
        queue.open = batch if is_open else None
        queue.batches.append(batch)

    def close(self) -> None:
        """Create no more batches: a thread about to append to a new one would wait forever."""
        with self.lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError(CLOSED)

    def add_batch(self, topic: TopicQueues, batch: ProducerBatch, *, is_sticky: bool) -> None:
        """Add a complete batch at the end of its queue; `is_sticky` if it was for the sticky partition.

        Raises ClientClosedError.
        """
        queue = topic.queues[batch.partition.partition]
        try:
            with self.lock:
                self._check_open()
                queue.close_open()
                batch.close()
                self._enqueue(queue, batch, is_open=False)
                if is_sticky and topic.sticky.partition == batch.partition.partition:
                    topic.sticky.add(batch.builder.size, may_switch=True)
        finally:
            self._wake()

    def room_for(self, size: int) -> bool:
        """Whether there is memory for a batch of this size."""
        fits = self._fits(size)
        if not fits:
            self._wanted_bytes = size
        return fits

    def _fits(self, size: int) -> bool:
        return not self.used_bytes or self.used_bytes + size <= self.settings.buffer_memory

    def when_space(self, waiter: Callable[[], None]) -> bool:
        """Call `waiter` when memory is released; False if that happened since it was last found full.

        Batches do not linger while there are waiters.
        """
        with self.lock:
            if self._fits(self._wanted_bytes):
                return False
            self._space_waiters.append(waiter)
        self._wake()
        return True

    def forget_waiter(self, waiter: Callable[[], None]) -> None:
        """Remove a waiter that no longer waits."""
        with self.lock:
            if waiter in self._space_waiters:
                self._space_waiters.remove(waiter)

    def due_ms(self, queue: PartitionQueue) -> float:
        """Return when the queue's first batch may be sent."""
        head = queue.batches[0]
        if head.is_closed or self._flushes or self._space_waiters:
            return head.not_before_ms
        return max(head.not_before_ms, head.created_ms + self.settings.linger_ms)

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """Take the first batch of the queue, and close it; the caller holds the lock."""
        queue.close_first()
        batch = queue.batches.popleft()
        batch.close()
        if not queue.batches:
            del self.active[queue]
        queue.in_flight += 1
        return batch

    def put_back(self, queue: PartitionQueue, batches: list[ProducerBatch]) -> None:
        """Put batches back for a retry: before all that were never sent, in the order of their sequence numbers."""
        with self.lock:
            queue.in_flight -= 1
            self.active[queue] = None
            waiting = queue.batches
            place = 0
            if batches[0].base_sequence >= 0:
                first = batches[0].base_sequence
                while place < len(waiting) and _is_before(waiting[place], first):
                    place += 1
            for offset, batch in enumerate(batches):
                waiting.insert(place + offset, batch)

    def replace(self, batch: ProducerBatch, splits: list[ProducerBatch]) -> None:
        """Replace a batch by those that it was split into; they take over its memory."""
        with self.lock:
            if self.incomplete.pop(batch, 0) is None:
                self.used_bytes -= batch.reserved
            for split in splits:
                self.used_bytes += split.reserved
                self.incomplete[split] = None

    def remove(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Close a batch and remove it from the queue."""
        with self.lock:
            if batch is queue.open:
                queue.close_open()
            batch.close()
            if batch in queue.batches:
                queue.batches.remove(batch)
                if not queue.batches:
                    del self.active[queue]

    def release(self, batch: ProducerBatch) -> None:
        """Release the memory of a batch that was delivered or failed."""
        with self.lock:
            if self.incomplete.pop(batch, 0) is None:
                self.used_bytes -= batch.reserved
            waiters, self._space_waiters = self._space_waiters, []
        for waiter in waiters:
            waiter()

    def oldest(self) -> ProducerBatch | None:
        """Return the oldest batch that is not delivered."""
        with self.lock:
            return next(iter(self.incomplete), None)

    def holds(self, topic: str) -> bool:
        """Whether records for the topic wait, or are in flight."""
        with self.lock:
            return any(queue.batches or queue.in_flight for queue in self.topics[topic].queues)

    def topics_in_use(self, since_ms: float) -> list[str]:
        """Return the topics with records sent since then (monotonic), or still to be sent."""
        with self.lock:
            return [
                name
                for name, topic in list(self.topics.items())
                if topic.used_at_ms >= since_ms or any(queue.batches or queue.in_flight for queue in topic.queues)
            ]

    def begin_flush(self) -> list[ProducerBatch]:
        """Stop lingering until `end_flush`; returns the batches that are not delivered yet."""
        with self.lock:
            self._flushes += 1
            return list(self.incomplete)

    def end_flush(self) -> None:
        """Allow batches to linger again."""
        with self.lock:
            self._flushes -= 1


def _is_before(batch: ProducerBatch, sequence: int) -> bool:
    if batch.base_sequence < 0:
        return False
    return (sequence - batch.base_sequence) & 0x7FFFFFFF < 0x3FFFFFFF
