"""Sequence numbers of an idempotent producer (KIP-98), and recovery when they are lost (KIP-360).

Pure: per partition it keeps the next sequence number and the batches in flight in order; its decisions are those of
Apache Kafka's `TransactionManager` for a producer without a transactional id:

- A retried batch is sent only while it is the first of its partition that is not acknowledged.
- A batch that cannot follow (its predecessor is lost) bumps the epoch; the partition's batches in flight
  are renumbered from 0. Other partitions take the new epoch when none of their batches is in flight.
- The first batch of a partition is sent alone: a broker accepts any number from an unknown producer, so a
  second batch in flight could be written before the first. (Java sends five at once, and has this race.)
- A failed batch leaves the partition *unresolved*: no new batch is numbered until all its batches are back; then either
  the numbers match, or the epoch is bumped. (Java bumps the epoch at once if the broker refused the batch; waiting
  costs a round trip and cannot cause duplicates.)

With a transactional id only the coordinator gives epochs: a batch that cannot follow fails, and with it its
transaction, after which `restart` has the new epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.model import TopicPartition
from ottla.records.batch import MAX_INT32, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.producer.batch import ProducerBatch

MAX_EPOCH = 0x7FFF
NO_SEQUENCE = -1


class ProducerIdentity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class PartitionSequence:
    """The sequence numbers of one partition: the next, the last acknowledged, and the batches in flight by number."""

    __slots__ = ("identity", "in_flight", "last_acked", "next")

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.next = 0
        self.last_acked = NO_SEQUENCE
        self.in_flight: list[ProducerBatch] = []

    def begin(self, identity: ProducerIdentity) -> None:
        """Restart at 0 under this identity; batches in flight are renumbered, in order."""
        self.identity = identity
        self.last_acked = NO_SEQUENCE
        self.next = 0
        for batch in self.in_flight:
            batch.renumber(identity.producer_id, identity.epoch, self.next)
            self.next = _after(self.next, batch.record_count)


class Sequences:
    """Sequence numbers of all partitions under one identity; `identity` is NO_IDENTITY until a broker assigns one."""

    def __init__(self, *, is_transactional: bool = False) -> None:
        self.identity = NO_IDENTITY
        self._is_transactional = is_transactional
        self._partitions: dict[TopicPartition, PartitionSequence] = {}
        #: Partitions with a batch that failed, and the number after it.
        self._unresolved: dict[TopicPartition, int] = {}
        self._to_renumber: set[TopicPartition] = set()

    @property
    def has_identity(self) -> bool:
        """Whether batches can be numbered."""
        return self.identity.producer_id != NO_PRODUCER_ID

    def _of(self, partition: TopicPartition) -> PartitionSequence:
        found = self._partitions.get(partition)
        if found is None:
            found = self._partitions[partition] = PartitionSequence()
        return found

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the first waiting batch of its partition may be sent now."""
        if not self.has_identity:
            return False
        known = self._of(batch.partition)
        if batch.base_sequence == NO_SEQUENCE:
            if batch.partition in self._unresolved:
                return False
            return not known.in_flight or (known.identity == self.identity and known.last_acked != NO_SEQUENCE)
        return not known.in_flight or known.in_flight[0] is batch

    def number(self, batch: ProducerBatch) -> None:
        """Number a batch that is sent for the first time."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        known = self._of(batch.partition)
        if known.identity != self.identity:
            known.begin(self.identity)
        batch.renumber(known.identity.producer_id, known.identity.epoch, known.next, is_new=True)
        known.next = _after(known.next, batch.record_count)
        known.in_flight.append(batch)

    def acknowledged(self, batch: ProducerBatch) -> None:
        """Handle the acknowledgement of a batch."""
        known = self._of(batch.partition)
        last = _after(batch.base_sequence, batch.record_count - 1)
        is_current = known.identity == (batch.producer_id, batch.producer_epoch)
        if is_current and (known.last_acked == NO_SEQUENCE or _is_later(last, known.last_acked)):
            known.last_acked = last
        self._remove(known, batch)

    def split(self, batch: ProducerBatch, splits: Iterable[ProducerBatch]) -> None:
        """Replace a batch by `splits`, which share its numbers."""
        known = self._of(batch.partition)
        place = known.in_flight.index(batch)
        sequence = batch.base_sequence
        following = []
        for split in splits:
            split.renumber(batch.producer_id, batch.producer_epoch, sequence, is_new=True)
            sequence = _after(sequence, split.record_count)
            following.append(split)
        known.in_flight[place : place + 1] = following

    def can_retry(self, batch: ProducerBatch, code: int | None) -> bool | None:
        """Whether a batch refused with `code` is retried; None if that does not depend on its sequence number."""
        known = self._of(batch.partition)
        if self._is_transactional and code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH):
            return False
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            if not batch.was_renumbered:  # the producer's earlier records are gone from the log
                self._request_bump(batch)
            return True
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            unresolved = self._unresolved.get(batch.partition)
            is_next = known.last_acked == NO_SEQUENCE and batch.base_sequence == 0
            is_next = is_next or batch.base_sequence == _after(known.last_acked, 1)
            if unresolved is None and (batch.was_renumbered or not is_next):
                return True  # an earlier batch failed; this one is retried after it
            if self._is_transactional:
                return False
            if unresolved is None or unresolved == batch.base_sequence:
                self._request_bump(batch)
            return True
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            self._request_bump(batch)
            return True
        return None

    def _request_bump(self, batch: ProducerBatch) -> None:
        """Request an epoch bump, unless it was bumped since this batch was numbered."""
        if (batch.producer_id, batch.producer_epoch) == self.identity:
            self._to_renumber.add(batch.partition)

    def failed(self, batch: ProducerBatch) -> None:
        """A numbered batch failed; as the broker may have written it or not, its partition is unresolved."""
        if batch.base_sequence == NO_SEQUENCE:
            return
        known = self._of(batch.partition)
        after = _after(batch.base_sequence, batch.record_count)
        before = self._unresolved.get(batch.partition)
        if before is None or _is_later(after, before):
            self._unresolved[batch.partition] = after
        self._remove(known, batch)

    def settle(self) -> bool:
        """Resolve partitions if possible, and bump the epoch if requested; returns whether anything changed.

        If the identity has run out of epochs, it is unset, and a new producer id has to be requested.
        """
        if (not self._unresolved and not self._to_renumber) or self._is_transactional:
            return False
        for partition in [each for each in self._unresolved if not self._of(each).in_flight]:
            known = self._of(partition)
            del self._unresolved[partition]
            if known.next != _after(known.last_acked, 1):  # a batch was lost, or its result is unknown
                self._to_renumber.add(partition)
        if not self._to_renumber:
            return False
        if self.identity.epoch >= MAX_EPOCH:
            self.identity = NO_IDENTITY
            return True
        if self.has_identity:
            self.take(ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1))
        return True

    def take(self, identity: ProducerIdentity) -> None:
        """Continue under this identity; partitions with lost numbers restart at once."""
        self.identity = identity
        for partition in self._to_renumber:
            self._unresolved.pop(partition, None)
            self._of(partition).begin(identity)
        self._to_renumber.clear()

    def restart(self, identity: ProducerIdentity) -> None:
        """Restart all partitions at 0 under this identity; no batch is in flight."""
        self.identity = identity
        self._partitions.clear()
        self._unresolved.clear()

    def in_flight(self, partition: TopicPartition) -> int:
        """Return how many numbered batches of the partition are not acknowledged."""
        return len(self._of(partition).in_flight)

    @staticmethod
    def _remove(known: PartitionSequence, batch: ProducerBatch) -> None:
        if batch in known.in_flight:
            known.in_flight.remove(batch)


def _after(sequence: int, count: int) -> int:
    """Return the number `count` after `sequence`; 2^31 - 1 wraps to 0."""
    return (sequence + count) & MAX_INT32


def _is_later(sequence: int, other: int) -> bool:
    """Whether a number comes after another, with wraparound."""
    return 0 < (sequence - other) & MAX_INT32 < MAX_INT32 // 2
