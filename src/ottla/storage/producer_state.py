"""Producer state of a partition: idempotent and transactional producers (KIP-98), and their snapshot files.

Per producer id: the epoch, the last five batches (a client may have five requests in flight, so each of them may be
retried), and the start of an open transaction. Rules and messages are those of Kafka 3.9 (`ProducerAppendInfo.java`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.records.batch import MAX_INT32, NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader
from ottla.records.control import ControlRecordType, control_record_type, coordinator_epoch
from ottla.records.errors import BatchError
from ottla.records.record import decode_batch
from ottla.storage.results import AppendRefusal
from ottla.storage.snapshot_format import SnapshotProblem, SnapshotProducer, decode_snapshot, encode_snapshot
from ottla.storage.transaction_index import AbortedTransaction
from ottla.wire.errors import ErrorCode

#: Batches kept per producer: as many as a client may have in flight.
BATCHES_REMEMBERED: Final = 5
NO_TRANSACTION: Final = -1


class AppendedBatch(NamedTuple):
    """The values kept of a batch."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer id."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_start")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        #: The last batches of this epoch, oldest first.
        self.batches: list[AppendedBatch] = []
        self.coordinator_epoch = -1
        #: First offset of the open transaction, -1 if none is open.
        self.transaction_start = NO_TRANSACTION
        self.last_timestamp = -1

    @property
    def last_sequence(self) -> int:
        """The last sequence number, -1 if no batch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def add(self, epoch: int, batch: AppendedBatch) -> None:
        """Register an appended batch."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
        elif len(self.batches) >= BATCHES_REMEMBERED:
            del self.batches[0]
        self.batches.append(batch)
        self.last_timestamp = batch.timestamp


class Verification:
    """A producer's first write to a partition in a transaction, while its coordinator is asked about it (KIP-890).

    It is gone once a batch is in the log, or a marker has come between: then the coordinator's answer counts no more.
    """

    __slots__ = ("begun_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, begun_ms: int) -> None:
        self.epoch = epoch
        #: The lowest sequence number seen: the batch that has to come first, of those that the producer has in flight.
        self.lowest_sequence = sequence
        self.begun_ms = begun_ms


#: For appends that need none: `transaction.partition.verification.enable` is off.
NOT_VERIFIED: Final = Verification(NO_PRODUCER_EPOCH, NO_SEQUENCE, 0)


class CompletedTransaction(NamedTuple):
    """A completed transaction: its producer, its extent (`last_offset` is its marker's), whether it was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool

    def entry(self, state: ProducerState) -> AbortedTransaction:
        """Its entry in the transaction index, if `state` includes its end and nothing behind it."""
        unstable = next(iter(state.open_transactions.values()), None)
        stable = self.last_offset + 1 if unstable is None else unstable
        return AbortedTransaction(self.producer_id, self.first_offset, self.last_offset, stable)


class ProducerState:
    """The producers of one partition; all appends below `end_offset` are included."""

    __slots__ = ("_entries", "_verifications", "end_offset", "open_transactions", "unreplicated")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        #: By producer id; in memory only.
        self._verifications: dict[int, Verification] = {}
        #: First offsets of open transactions by producer id, in the order of the offsets.
        self.open_transactions: dict[int, int] = {}
        #: Transactions that ended with markers above the high watermark: not stable until it has passed them.
        self.unreplicated: list[CompletedTransaction] = []
        self.end_offset = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The state of a producer id."""
        return self._entries.get(producer_id)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Start of the oldest transaction that is open, or whose end is not below `high_watermark`; None if none is."""
        self.settle(high_watermark)
        first = next(iter(self.open_transactions.values()), None)
        for ended in self.unreplicated:
            if first is None or ended.first_offset < first:
                first = ended.first_offset
        return first

    def settle(self, high_watermark: int) -> None:
        """Forget the transactions whose end is below `high_watermark`."""
        if self.unreplicated:
            self.unreplicated = [ended for ended in self.unreplicated if ended.last_offset >= high_watermark]

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Verification | None:
        """The verification that a transactional batch needs before its append; None within an ongoing transaction."""
        if producer_id in self.open_transactions:
            return None
        found = self._verifications.get(producer_id)
        if found is None:
            found = self._verifications[producer_id] = Verification(epoch, sequence, now_ms)
        elif epoch > found.epoch:
            found.epoch, found.lowest_sequence = epoch, sequence
        elif epoch == found.epoch:
            found.lowest_sequence = min(found.lowest_sequence, sequence)
        return found

    def may_write(self, producer_id: int, verification: Verification | None) -> bool:
        """Whether a transactional batch may be appended: in an ongoing transaction, or with a verification that holds.

        `verification` is the one that `begin_verification` returned for it.
        """
        if producer_id in self.open_transactions or verification is NOT_VERIFIED:
            return True
        return verification is not None and self._verifications.get(producer_id) is verification

    def find_duplicate(self, header: BatchHeader) -> AppendedBatch | None:
        """The batch that this one repeats: same producer, epoch and sequence numbers."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def check(self, header: BatchHeader, offset: int, partition: str, from_client: bool) -> AppendRefusal | None:
        """Whether a batch that would get `offset` may be appended; `partition` is for messages."""
        if from_client and header.is_transactional and header.producer_id in self._verifications:
            lowest = self._verifications[header.producer_id].lowest_sequence
            if header.base_sequence > lowest:
                return _not_first(header, lowest, offset, partition)
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        epoch = header.producer_epoch
        if epoch < entry.epoch:
            return _old_epoch(entry, epoch, offset, partition)
        if from_client:
            refusal = _check_sequence(entry, epoch, header.base_sequence, offset, partition)
            if refusal is not None:
                return refusal
        if entry.transaction_start >= 0 and not header.is_transactional:
            return AppendRefusal(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {entry.producer_id} at offset {offset} "
                f"in partition {partition}",
            )
        return None

    def check_marker(self, header: BatchHeader, buf: memoryview, offset: int, partition: str) -> AppendRefusal | None:
        """Whether a control batch, which `header` describes in `buf`, may be appended at `offset`."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            return _old_epoch(entry, header.producer_epoch, offset, partition)
        try:
            epoch = coordinator_epoch(decode_batch(buf, header)[0].value)
        except (BatchError, IndexError):
            return None
        if epoch >= entry.coordinator_epoch:
            return None
        return AppendRefusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"Invalid coordinator epoch for producerId {entry.producer_id} at offset {offset} in partition "
            f"{partition}: {epoch} (zombie), {entry.coordinator_epoch} (current)",
        )

    def update(self, header: BatchHeader) -> None:
        """Register an appended data batch, with its final offsets and timestamps."""
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        last_sequence = header.last_sequence
        delta = header.last_offset_delta
        entry.add(
            header.producer_epoch,
            AppendedBatch(header.base_sequence, last_sequence, header.base_offset + delta, delta, header.max_timestamp),
        )
        if header.is_transactional and entry.transaction_start < 0:
            entry.transaction_start = header.base_offset
            self.open_transactions[producer_id] = header.base_offset
            self._verifications.pop(producer_id, None)

    def end_transaction(self, header: BatchHeader, buf: memoryview) -> CompletedTransaction | None:
        """Register an appended or replayed control batch, described by `header` in `buf`: it ends a transaction."""
        try:
            record = decode_batch(buf, header)[0]
            kind = control_record_type(record.key)
            if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
                return None
            epoch = coordinator_epoch(record.value)
        except (BatchError, IndexError):
            return None
        producer_id = header.producer_id
        self._verifications.pop(producer_id, None)
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = epoch
        entry.last_timestamp = record.timestamp
        first, entry.transaction_start = entry.transaction_start, NO_TRANSACTION
        self.open_transactions.pop(producer_id, None)
        if first < 0:
            return None
        return CompletedTransaction(producer_id, first, header.base_offset, kind == ControlRecordType.ABORT)

    def replay(self, header: BatchHeader, data: memoryview) -> CompletedTransaction | None:
        """Apply a batch that is in the log already; returns the transaction that it ended."""
        ended = None
        if header.producer_id >= 0:
            if header.is_control:
                ended = self.end_transaction(header, data)
            else:
                self.update(header)
        self.end_offset = header.base_offset + header.last_offset_delta + 1
        return ended

    def replay_plain(
        self, producer_id: int, epoch: int, first_sequence: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        """`replay` of a non-transactional data batch, from its header fields."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        delta = last_offset - first_offset
        last_sequence = NO_SEQUENCE if first_sequence == NO_SEQUENCE else (first_sequence + delta) & MAX_INT32
        entry.add(epoch, AppendedBatch(first_sequence, last_sequence, last_offset, delta, timestamp))
        self.end_offset = last_offset + 1

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers without an open transaction that wrote nothing for this long; returns how many."""
        gone = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_start < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self._entries[producer_id]
        old = [each for each, found in self._verifications.items() if now_ms - found.begun_ms >= expiration_ms]
        for producer_id in old:
            del self._verifications[producer_id]
        return len(gone)

    def clear(self) -> None:
        """Remove all producers."""
        self._entries.clear()
        self._verifications.clear()
        self.open_transactions.clear()
        self.unreplicated.clear()
        self.end_offset = 0

    def encode(self) -> bytes:
        """Encode the snapshot file: only the last batch of each producer, as in Kafka."""
        return encode_snapshot(map(_snapshot_of, self._entries.values()))

    def load(self, data: bytes, end_offset: int, now_ms: int, expiration_ms: int) -> bool:
        """Load the state from a snapshot file; False, and nothing changed, if it is damaged."""
        try:
            producers = decode_snapshot(data)
        except SnapshotProblem:
            return False
        self.clear()
        self.end_offset = end_offset
        for producer in producers:
            self._load_entry(producer, now_ms, expiration_ms)
        self.open_transactions = dict(sorted(self.open_transactions.items(), key=operator.itemgetter(1)))
        return True

    def _load_entry(self, producer: SnapshotProducer, now_ms: int, expiration_ms: int) -> None:
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, start = producer
        if start < 0 and now_ms - timestamp >= expiration_ms:
            return
        entry = self._entries[producer_id] = ProducerEntry(producer_id)
        entry.epoch = epoch
        entry.coordinator_epoch = coordinator
        entry.last_timestamp = timestamp
        if last_offset >= 0:
            first_sequence = NO_SEQUENCE if last_sequence == NO_SEQUENCE else (last_sequence - delta) & MAX_INT32
            entry.batches.append(AppendedBatch(first_sequence, last_sequence, last_offset, delta, timestamp))
        if start >= 0:
            entry.transaction_start = start
            self.open_transactions[producer_id] = start


def _snapshot_of(entry: ProducerEntry) -> SnapshotProducer:
    last = entry.batches[-1] if entry.batches else AppendedBatch(NO_SEQUENCE, NO_SEQUENCE, -1, 0, -1)
    return SnapshotProducer(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_start,
    )


def _old_epoch(entry: ProducerEntry, epoch: int, offset: int, partition: str) -> AppendRefusal:
    return AppendRefusal(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {entry.producer_id} at offset {offset} in {partition} is {epoch}, "
        f"which is smaller than the last seen epoch {entry.epoch}",
    )


def _not_first(header: BatchHeader, lowest: int, offset: int, partition: str) -> AppendRefusal:
    return AppendRefusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {header.producer_id} at offset {offset} in partition {partition}: "
        f"{header.base_sequence} (incoming seq. number), {lowest} (earliest seen sequence)",
    )


def _check_sequence(
    entry: ProducerEntry, epoch: int, first_sequence: int, offset: int, partition: str
) -> AppendRefusal | None:
    if epoch != entry.epoch:
        if first_sequence == 0 or entry.epoch == NO_PRODUCER_EPOCH:
            return None
        return AppendRefusal(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Invalid sequence number for new epoch of producer {entry.producer_id} at offset {offset} in partition "
            f"{partition}: {epoch} (request epoch), {first_sequence} (seq. number), "
            f"{entry.epoch} (current producer epoch)",
        )
    last = entry.last_sequence
    if entry.epoch == NO_PRODUCER_EPOCH or first_sequence == last + 1 or (first_sequence == 0 and last == MAX_INT32):
        return None
    return AppendRefusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {entry.producer_id} at offset {offset} in partition {partition}: "
        f"{first_sequence} (incoming seq. number), {last} (current end sequence number)",
    )
