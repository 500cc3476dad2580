"""Records inside a batch v2: encode from objects, decode to them.

A record is: length (varint), attributes (1 byte, unused), timestamp delta (varlong), offset delta (varint), key and
value (length as varint, -1 for null), headers (count, then key and value each). Varints are zig-zag encoded, as in
Protocol Buffers. For many records, `ottla.records.building` encodes, and `ottla.records.consumed` and
`ottla.records.arrow` decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ottla.records.batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORDS_AT,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    TimestampType,
    frame_batch,
)
from ottla.records.compression import Compression, compress, decompress
from ottla.records.headers import Headers as Headers
from ottla.records.headers import encode_headers
from ottla.records.varint import ENCODED, ENCODED_COUNT, encode_varint
from ottla.records.walk import read_columns

MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024
"""Default limit of the decompressed size of one batch, in bytes."""


@dataclass(slots=True)
class Record:
    """One record; `timestamp` is in milliseconds since the Unix epoch, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Columns(NamedTuple):
    """The records of one batch column by column; all lists have the same length."""

    offset_deltas: list[int]
    timestamp_deltas: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    compression_level: int | None = None,
    keep_offsets: bool = False,
) -> bytes:
    """One whole batch, checksum included, of at least one record.

    Offsets count up from `base_offset`, whatever the records' own say; with `keep_offsets` the records' own are kept,
    gaps and all, and must rise. ValueError without records, or if offsets cannot be kept.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0].timestamp
    if keep_offsets:
        deltas: Sequence[int] = [record.offset - base_offset for record in records]
        if deltas[0] < 0 or any(after <= before for before, after in pairwise(deltas)):
            raise ValueError(f"offsets must rise from the base offset {base_offset}")
    else:
        deltas = range(len(records))
    payload = encode_records(records, deltas, base_timestamp)
    attributes = int(compression)
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_FLAG
    if is_transactional:
        attributes |= TRANSACTIONAL_FLAG
    if is_control:
        attributes |= CONTROL_FLAG
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=deltas[-1],
        base_timestamp=base_timestamp,
        max_timestamp=max([record.timestamp for record in records]),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
        position=0,
    )
    if compression != Compression.NONE:
        payload = compress(compression, payload, compression_level)
    return frame_batch(payload, header)


def encode_records(records: Sequence[Record], offset_deltas: Sequence[int], base_timestamp: int) -> bytes:
    """The records one after the other, as they lie in an uncompressed batch."""
    output: list[bytes] = []
    append = output.append
    small, small_count = ENCODED, ENCODED_COUNT
    for record, offset_delta in zip(records, offset_deltas, strict=True):
        key, value, headers = record.key, record.value, record.headers
        timestamp_delta = record.timestamp - base_timestamp
        body = [
            b"\x00",
            small[timestamp_delta] if 0 <= timestamp_delta < small_count else encode_varint(timestamp_delta),
            small[offset_delta] if offset_delta < small_count else encode_varint(offset_delta),
        ]
        if key is None:
            body.append(b"\x01")
        else:
            size = len(key)
            body.append(small[size] if size < small_count else encode_varint(size))
            body.append(key)
        if value is None:
            body.append(b"\x01")
        else:
            size = len(value)
            body.append(small[size] if size < small_count else encode_varint(size))
            body.append(value)
        if headers:
            body.append(encode_headers(headers))
        else:
            body.append(b"\x00")
        encoded = b"".join(body)
        size = len(encoded)
        append(small[size] if size < small_count else encode_varint(size))
        append(encoded)
    return b"".join(output)


def decode_batch(
    buf: bytes | bytearray | memoryview, header: BatchHeader, limit: int = MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """The records of the batch that `header` describes in `buf`.

    Raises BatchError for malformed records or compression, or where they expand beyond `limit` bytes. The caller checks
    the checksum (`check_crc`).
    """
    columns = decode_columns(batch_payload(buf, header, limit), header.records_count)
    base_offset = header.base_offset
    offsets = [base_offset + delta for delta in columns.offset_deltas]
    return list(map(Record, offsets, record_timestamps(header, columns), columns.keys, columns.values, columns.headers))


def record_timestamps(header: BatchHeader, columns: Columns) -> list[int]:
    """Each record's timestamp: its own, or the batch's where the broker set it."""
    if header.timestamp_type == TimestampType.LOG_APPEND_TIME:
        return [header.max_timestamp] * len(columns.timestamp_deltas)
    base_timestamp = header.base_timestamp
    return [base_timestamp + delta for delta in columns.timestamp_deltas]


def batch_payload(
    buf: bytes | bytearray | memoryview, header: BatchHeader, limit: int = MAX_DECOMPRESSED_BYTES
) -> bytes:
    """The uncompressed records of the batch that `header` describes in `buf`."""
    return bytes(batch_records(buf, header, limit))


def batch_records(
    buf: bytes | bytearray | memoryview, header: BatchHeader, limit: int = MAX_DECOMPRESSED_BYTES
) -> bytes | memoryview:
    """As `batch_payload`; where nothing is compressed it is a view of `buf`."""
    payload = memoryview(buf)[header.position + RECORDS_AT : header.position + header.length]
    return decompress(header.compression, payload, limit)


def decode_columns(data: bytes, count: int) -> Columns:
    """Decode `count` uncompressed records; they must fill `data` to the last byte, else BatchError.

    What is no UTF-8 in the names of headers is shown with replacements.
    """
    return Columns(*read_columns(data, count))
