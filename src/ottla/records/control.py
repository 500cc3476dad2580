"""Control records: what brokers write into the log for each other and for clients, never for applications."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from ottla.records.errors import BatchError
from ottla.records.record import Record, encode_batch

_KEY = struct.Struct(">hh")
_END_TRANSACTION_VALUE = struct.Struct(">hi")
_KEY_VERSION = 0
_VALUE_VERSION = 0


class ControlRecordType(IntEnum):
    """Kinds of control record; the first two end a transaction (KIP-98), the others belong to KRaft."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition, as its control record says."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


def control_record_type(key: bytes | None) -> ControlRecordType:
    """The kind of the control record with this key, UNKNOWN for kinds not known here; BatchError if malformed."""
    if key is None or len(key) < _KEY.size:
        raise BatchError("the key of a control record is too short")
    version, number = _KEY.unpack_from(key)
    if version < _KEY_VERSION:
        raise BatchError(f"invalid version {version} of the key of a control record")
    try:
        return ControlRecordType(number)
    except ValueError:
        return ControlRecordType.UNKNOWN


def end_transaction_record(kind: ControlRecordType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Key and value of the record that ends a transaction, COMMIT or ABORT."""
    return _KEY.pack(_KEY_VERSION, kind), _END_TRANSACTION_VALUE.pack(_VALUE_VERSION, coordinator_epoch)


def end_transaction_batch(marker: TransactionMarker, timestamp_ms: int) -> bytes:
    """The control batch with this marker, as Apache Kafka writes it: transactional, without sequence numbers."""
    kind = ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT
    return encode_batch(
        [Record(0, timestamp_ms, *end_transaction_record(kind, marker.coordinator_epoch))],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def coordinator_epoch(value: bytes | None) -> int:
    """The epoch of the transaction coordinator that wrote an end-of-transaction record; BatchError if malformed."""
    if value is None or len(value) < _END_TRANSACTION_VALUE.size:
        raise BatchError("the value of an end-of-transaction record is too short")
    version, epoch = _END_TRANSACTION_VALUE.unpack_from(value)
    if version < _VALUE_VERSION:
        raise BatchError(f"invalid version {version} of an end-of-transaction record")
    return int(epoch)


def transaction_marker(
    producer_id: int, producer_epoch: int, key: bytes | None, value: bytes | None
) -> TransactionMarker | None:
    """The marker in a control record of that producer's batch; None for other kinds. BatchError if malformed."""
    kind = control_record_type(key)
    if kind not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        return None
    return TransactionMarker(producer_id, producer_epoch, coordinator_epoch(value), kind is ControlRecordType.COMMIT)
