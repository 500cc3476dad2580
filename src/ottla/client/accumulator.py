"""Where records wait until they are sent: a queue of batches per partition. Any thread appends, the sender takes out.

One batch of a partition is on its way at a time, so retries can neither reorder nor overtake.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.client.errors import ClientTimeoutError
from ottla.client.model import RecordMetadata, TopicPartition
from ottla.client.settings import ProducerSettings
from ottla.env.clock import Clock
from ottla.records.batch import BATCH_OVERHEAD, NO_SEQUENCE
from ottla.records.record import Headers, Record

RECORD_OVERHEAD = 21
"""The most that lengths, deltas and header count of a record take, as Kafka reckons."""
HEADER_OVERHEAD = 10


@dataclass(slots=True, eq=False)
class ProducerIdentity:
    """A producer id with its epoch, and the sequence number that each partition's next batch has to have."""

    producer_id: int
    producer_epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """Records of one partition that travel together; `size` is an upper estimate in bytes."""

    partition: TopicPartition
    created_ms: float
    records: list[Record] = field(default_factory=list)
    size: int = BATCH_OVERHEAD
    closed: bool = False
    not_before_ms: float = 0.0
    attempts: int = 0
    identity: ProducerIdentity | None = None
    base_sequence: int = NO_SEQUENCE
    encoded: bytes | None = None
    waiters: list[asyncio.Future[RecordMetadata]] = field(default_factory=list)
    is_awaited: bool = False
    """Whether somebody learns of a failure through a waiter, so that `flush` need not tell of it."""


def estimated_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The most bytes that a record can take in a batch, uncompressed."""
    size = RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += HEADER_OVERHEAD + len(name) * 4 + (len(content) if content is not None else 0)
    return size


class Accumulator:
    """The queues and their limit, `buffer_memory`; a caller that finds it used up waits `max_block_ms` at most."""

    def __init__(self, settings: ProducerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._space = threading.Condition(self._lock)
        self._queues: dict[TopicPartition, deque[ProducerBatch]] = {}
        self._in_flight: set[TopicPartition] = set()
        self._used_bytes = 0
        self._flushes = 0
        self._waiting_for_space = 0

    def append(self, partition: TopicPartition, record: Record, size: int) -> bool:
        """Add a record of `size` estimated bytes; True where the sender has to be woken, since a batch was begun.

        ClientTimeoutError where no space comes free in time. Never call this from the sender's event loop.
        """
        with self._lock:
            if self._used_bytes + size > self._settings.buffer_memory:
                self._wait_for_space(size)
            queue = self._queues.setdefault(partition, deque())
            batch = queue[-1] if queue else None
            begun = batch is None or batch.closed or batch.size + size > self._settings.batch_size
            if begun or batch is None:
                if batch is not None:
                    batch.closed = True
                batch = ProducerBatch(partition, self._clock.monotonic_ms())
                queue.append(batch)
            batch.records.append(record)
            batch.size += size
            self._used_bytes += size
            return begun

    def append_batch(self, partition: TopicPartition, records: Sequence[Record], size: int) -> ProducerBatch:
        """Add records that are to travel as a batch of their own, behind what waits already."""
        with self._lock:
            queue = self._queues.setdefault(partition, deque())
            if queue:
                queue[-1].closed = True
            batch = ProducerBatch(partition, self._clock.monotonic_ms(), list(records), BATCH_OVERHEAD + size, True)
            queue.append(batch)
            self._used_bytes += size
            return batch

    def _wait_for_space(self, size: int) -> None:
        timeout_s = self._settings.max_block_ms / 1000
        self._waiting_for_space += 1
        try:
            fits = self._space.wait_for(
                lambda: self._used_bytes == 0 or self._used_bytes + size <= self._settings.buffer_memory, timeout_s
            )
        finally:
            self._waiting_for_space -= 1
        if not fits:
            raise ClientTimeoutError(
                f"the producer's buffer_memory of {self._settings.buffer_memory} bytes was full for "
                f"{self._settings.max_block_ms} ms; the brokers do not take records as fast as they are sent"
            )

    def take(self) -> list[ProducerBatch]:
        """The batches that are to be sent now, one per partition at most; they count as on their way from here on."""
        now_ms = self._clock.monotonic_ms()
        taken: list[ProducerBatch] = []
        with self._lock:
            for partition, queue in self._queues.items():
                if partition not in self._in_flight and self._due_ms(queue) <= now_ms:
                    queue[0].closed = True
                    self._in_flight.add(partition)
                    taken.append(queue[0])
        return taken

    def next_due_in_ms(self) -> float | None:
        """How long until `take` has something, None where only an append or an answer can change that."""
        with self._lock:
            due = [self._due_ms(queue) for partition, queue in self._queues.items() if partition not in self._in_flight]
        return max(0.0, min(due) - self._clock.monotonic_ms()) if due else None

    def _due_ms(self, queue: deque[ProducerBatch]) -> float:
        head = queue[0]
        if head.closed or self._flushes or self._waiting_for_space:
            return head.not_before_ms
        return max(head.not_before_ms, head.created_ms + self._settings.linger_ms)

    def finish(self, batch: ProducerBatch) -> None:
        """The batch was acknowledged or given up: the partition's next one may go."""
        with self._lock:
            queue = self._queues[batch.partition]
            queue.popleft()
            if not queue:
                del self._queues[batch.partition]
            self._in_flight.discard(batch.partition)
            self._used_bytes -= batch.size - BATCH_OVERHEAD
            self._space.notify_all()

    def put_back(self, batch: ProducerBatch, not_before_ms: float) -> None:
        """The batch is to be sent again, after `not_before_ms` of the monotonic clock."""
        with self._lock:
            batch.not_before_ms = not_before_ms
            self._in_flight.discard(batch.partition)

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Put two halves in the place of a batch that was refused for its size; the halves."""
        middle = len(batch.records) // 2
        halves = []
        for records in (batch.records[:middle], batch.records[middle:]):
            size = sum(estimated_size(each.key, each.value, each.headers) for each in records)
            halves.append(ProducerBatch(batch.partition, batch.created_ms, records, BATCH_OVERHEAD + size, True))
        with self._lock:
            queue = self._queues[batch.partition]
            queue.popleft()
            queue.extendleft(reversed(halves))
            self._in_flight.discard(batch.partition)
            self._used_bytes += sum(half.size - BATCH_OVERHEAD for half in halves) - (batch.size - BATCH_OVERHEAD)
        return halves

    def begin_flush(self) -> list[ProducerBatch]:
        """Let nothing linger until `end_flush`; the batches there are, not yet acknowledged."""
        with self._lock:
            self._flushes += 1
            for queue in self._queues.values():
                queue[-1].closed = True
            return [batch for queue in self._queues.values() for batch in queue]

    def end_flush(self) -> None:
        """Batches may linger again."""
        with self._lock:
            self._flushes -= 1
