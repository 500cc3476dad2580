"""Batches and records of a log file as rows of named fields, for `ottla log dump`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ottla.inspection.internal_topics import decode_internal
from ottla.inspection.texts import Decoder, TextFormat, field_of, header_rows
from ottla.inspection.walk import DamagedRange, LogBatch, LogWalker
from ottla.records.batch import BatchHeader, TimestampType
from ottla.records.control import ControlRecordType, control_record_type, coordinator_epoch
from ottla.records.errors import BatchError
from ottla.records.message_set import MessageHeader, parse_message_header
from ottla.records.record import Record
from ottla.storage.bounded import decode_bounded, decode_message_bounded

Row = dict[str, Any]
_MAX_INT32: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class RecordWish:
    """Which batches and records to show, and how. Offsets: the first, and the one after the last."""

    records: bool = False
    from_offset: int = 0
    until_offset: int | None = None
    key: bytes | None = None
    key_format: TextFormat = TextFormat.AUTO
    value_format: TextFormat = TextFormat.AUTO
    decoder: Decoder = Decoder.NONE

    def wants(self, record: Record) -> bool:
        """Whether a record is selected."""
        if record.offset < self.from_offset or (self.until_offset is not None and record.offset >= self.until_offset):
            return False
        return self.key is None or record.key == self.key


def log_rows(walker: LogWalker, wish: RecordWish) -> Iterator[Row]:
    """The rows of one log file. Raises DiskError."""
    for found in walker:
        if isinstance(found, DamagedRange):
            yield damage_row(found)
            continue
        if found.last_offset < wish.from_offset:
            continue
        if wish.until_offset is not None and found.base_offset >= wish.until_offset and found.magic > 1:
            return
        yield from _batch_rows(walker, found, wish)


def damage_row(damaged: DamagedRange) -> Row:
    """The fields of a damaged range."""
    row: Row = {"type": "damage", "position": damaged.position, "size": damaged.length, "reason": damaged.reason}
    header = damaged.header
    if isinstance(header, BatchHeader):
        row |= {"claims_base_offset": header.base_offset, "claims_last_offset": header.last_offset}
    elif header is not None:
        row |= {"claims_base_offset": header.offset, "claims_last_offset": header.offset}
    return row


def records_of(walker: LogWalker, batch: LogBatch) -> list[Record]:
    """The records of a batch. Raises BatchError, DiskError."""
    data = walker.whole(batch)
    if isinstance(batch.header, MessageHeader):
        return decode_message_bounded(data, parse_message_header(data))
    batch.header.position = 0
    return decode_bounded(data, batch.header)


def _batch_rows(walker: LogWalker, batch: LogBatch, wish: RecordWish) -> Iterator[Row]:
    row = batch_row(batch)
    if not wish.records and wish.key is None:
        yield row
        return
    try:
        records = records_of(walker, batch)
    except BatchError as error:
        yield row
        yield {"type": "damage", "position": batch.position, "size": batch.length, "reason": f"records: {error}"}
        return
    if records and isinstance(batch.header, MessageHeader):
        row["base_offset"], row["count"] = records[0].offset, len(records)
    wanted = [(number, record) for number, record in enumerate(records) if wish.wants(record)]
    if not wanted and (wish.key is not None or wish.until_offset is not None):
        return
    yield row
    for _, record in wanted:
        yield record_row(batch, record, wish)


def batch_row(batch: LogBatch) -> Row:
    """The header of a batch. Fields that its format does not have are left out."""
    header = batch.header
    row: Row = {"type": "batch", "base_offset": batch.base_offset, "last_offset": batch.last_offset}
    if isinstance(header, BatchHeader):
        row |= {
            "count": header.records_count,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "partition_leader_epoch": header.partition_leader_epoch,
            "is_transactional": header.is_transactional,
            "is_control": header.is_control,
            "delete_horizon_ms": header.delete_horizon,
        }
    return row | {
        "position": batch.position,
        "timestamp_type": timestamp_type_name(header.timestamp_type),
        "max_timestamp": batch.max_timestamp,
        "size": batch.length,
        "magic": batch.magic,
        "compression": _compression(header),
        "crc": header.crc,
        "is_valid": True,
    }


def record_row(batch: LogBatch, record: Record, wish: RecordWish) -> Row:
    """One record."""
    header = batch.header
    row: Row = {
        "type": "record",
        "offset": record.offset,
        "timestamp_type": timestamp_type_name(header.timestamp_type),
        "timestamp": record.timestamp,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
    }
    if isinstance(header, BatchHeader):
        if header.base_sequence >= 0:
            row["sequence"] = (header.base_sequence + record.offset - header.base_offset) & _MAX_INT32
        row["headers"] = header_rows(record.headers)
        if header.is_control:
            return row | _control(record)
    if wish.decoder is not Decoder.NONE:
        return row | {"decoded": decode_internal(wish.decoder, record.key, record.value)}
    row.update((field_of("key", record.key, wish.key_format), field_of("value", record.value, wish.value_format)))
    return row


def _control(record: Record) -> Row:
    try:
        kind = control_record_type(record.key)
        fields: Row = {"control_type": kind.name}
        if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            fields["coordinator_epoch"] = coordinator_epoch(record.value)
        return fields
    except BatchError as error:
        return {"control_type": "MALFORMED", "problem": str(error)}


def timestamp_type_name(kind: TimestampType) -> str:
    """Kafka's name of a timestamp type."""
    return {
        TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
        TimestampType.CREATE_TIME: "CreateTime",
        TimestampType.LOG_APPEND_TIME: "LogAppendTime",
    }[kind]


def _compression(header: BatchHeader | MessageHeader) -> str:
    try:
        return header.compression.name.lower()
    except BatchError:
        return f"unknown ({header.attributes & 7})"
