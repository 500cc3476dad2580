"""The part of a batch that compaction keeps: all of it, some of its records, its header alone, or nothing.

The rules are those of Kafka 3.9 (`LogCleaner.scala`, `MemoryRecords.filterTo`): the newest record of each key is kept;
a tombstone is kept until the delete horizon of its batch (KIP-534), which is set when it is first cleaned; records of
aborted transactions are removed; a marker has a horizon of its own, set when no record of its transaction is left. The
header of a batch is kept where a producer still relies on it, or where it defines how far the segment reaches.

Kept records are copied unchanged: their offsets and timestamps are relative to header fields that are kept, too (Kafka
recomputes the timestamps relative to the first kept record; readers see the same).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_FLAG,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    frame_batch,
    parse_batch_header,
)
from ottla.records.compression import Compression, compress
from ottla.records.control import ControlRecordType, control_record_type
from ottla.records.errors import BatchError
from ottla.records.message_set import encode_messages, parse_message_header
from ottla.records.record import Record, batch_payload, decode_batch, encode_records
from ottla.storage.bounded import decode_bounded, decode_message_bounded, most_bytes, most_records
from ottla.storage.offset_map import OffsetMap
from ottla.storage.scan import ScannedBatch
from ottla.storage.transaction_index import AbortedTransaction

#: Attributes that an empty batch keeps: all but compression and delete horizon.
_EMPTY_MASK: Final = ~(COMPRESSION_MASK | DELETE_HORIZON_FLAG)


class LastRecord(NamedTuple):
    """The last write of a producer: the offset of its last data (None if that was a marker), and its epoch."""

    data_offset: int | None
    epoch: int


class RetainedBatch(NamedTuple):
    """A batch of the cleaned segment; `data` is the whole batch."""

    base_offset: int
    last_offset_delta: int
    max_timestamp: int
    length: int
    data: bytes | memoryview


@dataclass(slots=True)
class FilterRules:
    """The rules of one round of cleaning; times are wall-clock milliseconds."""

    offsets: OffsetMap
    transactions: CleanedTransactions
    last_records: Mapping[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    #: Whether tombstones of the old formats are kept; they have no horizon, so the age of their segment decides.
    keep_legacy_tombstones: bool = True


def filter_batch(batch: ScannedBatch, rules: FilterRules, must_stay: bool) -> RetainedBatch | None:
    """Filter a batch: what is kept of it, None for nothing; with `must_stay` at least its header. Raises BatchError."""
    if batch.magic != MAGIC:
        return _filter_message(batch, rules, must_stay)
    header = parse_batch_header(batch.data)
    must_stay = must_stay or (header.producer_id >= 0 and _is_last_of_producer(header, rules))
    if header.is_control:
        return _filter_control(batch.data, header, rules, must_stay)
    if rules.transactions.batch_is_aborted(header) or not header.records_count:
        return _emptied(header) if must_stay else None
    return _filter_records(batch.data, header, rules, must_stay)


def _is_last_of_producer(header: BatchHeader, rules: FilterRules) -> bool:
    last = rules.last_records.get(header.producer_id)
    if last is None:
        return False
    if last.data_offset is not None:
        return header.last_offset == last.data_offset
    return header.is_control and header.producer_epoch == last.epoch


def _filter_control(data: memoryview, header: BatchHeader, rules: FilterRules, must_stay: bool) -> RetainedBatch | None:
    spent = rules.transactions.marker_is_spent(header, data)
    horizon = header.delete_horizon
    if not header.records_count or (spent and horizon is not None and horizon <= rules.now_ms):
        return _emptied(header) if must_stay else None
    if spent and horizon is None:
        return _with_horizon(header, decode_bounded(data, header), rules)
    return _whole(data, header)


def _filter_records(data: memoryview, header: BatchHeader, rules: FilterRules, must_stay: bool) -> RetainedBatch | None:
    """Filter a batch of format 2 with data."""
    payload = records_of(data, header)
    horizon = header.delete_horizon
    expired = horizon is not None and rules.now_ms >= horizon
    sieved = rules.offsets.sieve(payload, header.records_count, header.base_offset, expired)
    if not sieved.retained:
        return _emptied(header) if must_stay else None
    if horizon is None and sieved.tombstones:
        return _with_horizon(header, list(itertools.compress(decode_bounded(data, header), sieved.stays)), rules)
    if sieved.retained == header.records_count:
        return _whole(data, header)
    bounds = iter(sieved.stretches)
    payload = b"".join([payload[start:end] for start, end in zip(bounds, bounds, strict=True)])
    if header.timestamp_type == TimestampType.LOG_APPEND_TIME:
        largest = header.max_timestamp
    else:
        largest = header.base_timestamp + sieved.largest_delta
    return _rewritten(payload, replace(header, records_count=sieved.retained, max_timestamp=largest))


def records_of(data: memoryview, header: BatchHeader) -> bytes:
    """The uncompressed records of a batch, within the limit on their expanded size. Raises BatchError."""
    if header.records_count > most_records(header.length):
        raise BatchError(f"{header.records_count} records in a batch of {header.length} bytes")
    return batch_payload(data, header, most_bytes(header.length))


def _whole(data: memoryview, header: BatchHeader) -> RetainedBatch:
    return RetainedBatch(header.base_offset, header.last_offset_delta, header.max_timestamp, len(data), data)


def _rewritten(payload: bytes, header: BatchHeader) -> RetainedBatch:
    """The batch with its records replaced; `payload` is not compressed yet."""
    if header.compression != Compression.NONE:
        payload = compress(header.compression, payload)
    data = frame_batch(payload, header)
    return RetainedBatch(header.base_offset, header.last_offset_delta, header.max_timestamp, len(data), data)


def _emptied(header: BatchHeader) -> RetainedBatch:
    """The header of a batch, without records. It keeps its timestamp, though no record has that timestamp any more."""
    empty = replace(header, attributes=header.attributes & _EMPTY_MASK, base_timestamp=NO_TIMESTAMP, records_count=0)
    data = frame_batch(b"", empty)
    return RetainedBatch(header.base_offset, header.last_offset_delta, NO_TIMESTAMP, len(data), data)


def _with_horizon(header: BatchHeader, records: Sequence[Record], rules: FilterRules) -> RetainedBatch:
    """The batch with these records and a delete horizon, which is stored in the base timestamp field."""
    horizon = rules.now_ms + rules.delete_retention_ms
    payload = encode_records(records, [record.offset - header.base_offset for record in records], horizon)
    largest = header.max_timestamp
    if header.timestamp_type != TimestampType.LOG_APPEND_TIME:
        largest = max(record.timestamp for record in records)
    attributes = header.attributes | DELETE_HORIZON_FLAG
    return _rewritten(
        payload,
        replace(
            header,
            attributes=attributes,
            base_timestamp=horizon,
            max_timestamp=largest,
            records_count=len(records),
        ),
    )


# -- the old formats


def message_records(data: memoryview) -> tuple[list[Record], bytes]:
    """The records of a message of format 0 or 1 (several for a wrapper message), and the same records in format 2.

    In format 2 offsets are relative to that of the first record. Raises BatchError.
    """
    records = decode_message_bounded(data, parse_message_header(data))
    first = records[0]
    return records, encode_records(records, [record.offset - first.offset for record in records], first.timestamp)


def _filter_message(batch: ScannedBatch, rules: FilterRules, must_stay: bool) -> RetainedBatch | None:
    header = parse_message_header(batch.data)
    records, encoded = message_records(batch.data)
    first = records[0].offset
    sieved = rules.offsets.sieve(encoded, len(records), first, not rules.keep_legacy_tombstones)
    if sieved.retained == len(records):
        return RetainedBatch(first, batch.last_offset - first, batch.max_timestamp, len(batch.data), batch.data)
    if not sieved.retained:
        return _empty_batch(first, batch.last_offset) if must_stay else None
    stay = list(itertools.compress(records, sieved.stays))
    data = encode_messages(
        stay,
        batch.magic,
        compression=header.compression,
        timestamp_type=header.timestamp_type,
        log_append_time_ms=header.timestamp,
    )
    last = stay[-1].offset
    largest = max(record.timestamp for record in stay)
    return RetainedBatch(stay[0].offset, last - stay[0].offset, largest, len(data), data)


def _empty_batch(first_offset: int, last_offset: int) -> RetainedBatch:
    """A batch without records; it only says that the log reaches to `last_offset`."""
    delta = last_offset - first_offset
    header = BatchHeader(
        base_offset=first_offset,
        length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=0,
        position=0,
    )
    data = frame_batch(b"", header)
    return RetainedBatch(first_offset, delta, NO_TIMESTAMP, len(data), data)


class CleanedTransactions:
    """Which batches belong to aborted transactions, and which markers have no records of their transaction left.

    The cleaner passes in every batch of a range of the log, in order. Rules as in Kafka's `CleanedTransactionMetadata`.
    """

    __slots__ = ("_aborted", "_committed", "_waiting", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._waiting)
        #: Aborted transactions that are open here, and whether a batch of each was seen, by producer id.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        #: Producers of other transactions of which a batch was seen.
        self._committed: set[int] = set()
        #: Aborted transactions whose markers are kept, for the new index; the cleaner takes and clears them.
        self.retained: list[AbortedTransaction] = []

    def batch_is_aborted(self, header: BatchHeader) -> bool:
        """Register a data batch; returns whether its transaction was aborted, so that its records may be removed."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def marker_is_spent(self, header: BatchHeader, data: memoryview) -> bool:
        """Register a control batch (`data` is the whole batch); returns whether no batch of its transaction is left."""
        self._begin_up_to(header.last_offset)
        if not header.records_count:
            return True
        kind = control_record_type(decode_batch(data, header)[0].key)
        if kind == ControlRecordType.ABORT:
            found = self._aborted.pop(header.producer_id, None)
            if found is not None and found[1]:
                self.retained.append(found[0])
                return False
            return True
        if kind == ControlRecordType.COMMIT:
            if header.producer_id in self._committed:
                self._committed.remove(header.producer_id)
                return False
            return True
        return False

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            transaction = heapq.heappop(waiting)[1]
            self._aborted.setdefault(transaction.producer_id, (transaction, False))

    def take_retained(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were kept since the last call."""
        retained, self.retained = self.retained, []
        return retained
