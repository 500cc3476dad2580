"""Batches that cannot be appended as received, and their replacement (`LogValidator.java`).

These are message sets of formats 0 and 1, which Produce 0-2 carries and which are stored in format 2, and batches whose
codec differs from the topic's `compression.type`. Batches of topics whose settings require a check of each record
(compaction, timestamp limits) are processed here too, and come out unchanged. All this takes time per record: callers
run it outside the event loop unless a batch is small. Nothing here touches a log; the result is appended like any other
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.config.topic import LogConfig
from ottla.records.batch import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    RECORDS_AT,
    BatchHeader,
    frame_batch,
    is_cut_off,
)
from ottla.records.compression import Compression, compress
from ottla.records.errors import BatchError, CorruptMessageError
from ottla.records.message_set import MessageHeader, check_message_crc, parse_message_header
from ottla.records.record import (
    Record,
    batch_payload,
    decode_columns,
    encode_batch,
    encode_records,
    record_timestamps,
)
from ottla.storage.bounded import decode_message_bounded, most_bytes, most_records
from ottla.storage.results import AppendRefusal
from ottla.storage.validation import CLIENT, check_batch, check_contents, check_records, looks_into, split
from ottla.wire.errors import ErrorCode

#: Up to this size uncompressed data is rewritten on the loop, in some hundred microseconds.
SMALL_BYTES: Final = 8 * 1024
_ATTRIBUTES_LOW: Final = 22
_LONGEST: Final = 0x7FFFFFFFFFFFFFFF
_MAGIC_BYTE: Final = bytes((MAGIC,))
#: The `compression.type` that leaves batches as received.
AS_PRODUCED: Final = "producer"
_COMPRESSIONS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
#: The level that Java uses for the fast mode of lz4, and gzip's default level; here the codec's own default is meant.
_DEFAULT_LEVELS: Final = {Compression.LZ4: 9, Compression.GZIP: -1}


def needs_rewriting(buf: memoryview, config: LogConfig) -> bool:
    """Whether this batch of format 2 has to be rewritten or checked; the log refuses anything else."""
    if len(buf) < RECORDS_AT or buf[MAGIC_AT] != MAGIC:
        return False
    attributes, wanted = buf[_ATTRIBUTES_LOW], config.compression_type
    if wanted != AS_PRODUCED and attributes & COMPRESSION_MASK != _COMPRESSIONS[wanted]:
        return True
    return looks_into(attributes, config)


def is_small(buf: memoryview, config: LogConfig) -> bool:
    """Whether rewriting takes no longer than handing it to a thread would."""
    if len(buf) > SMALL_BYTES or config.compression_type not in (AS_PRODUCED, "uncompressed"):
        return False
    at = _ATTRIBUTES_LOW if buf[MAGIC_AT : MAGIC_AT + 1] == _MAGIC_BYTE else MAGIC_AT + 1
    return not any(byte & COMPRESSION_MASK for byte in buf[at : at + 1])


def rewrite(buf: memoryview, config: LogConfig, now_ms: int, partition: str) -> bytearray | AppendRefusal | None:
    """The batch of format 2 to append in place of the received data; None if that holds no whole message.

    The records are checked as the topic's settings require. The log sets base offset and leader epoch.
    """
    try:
        if buf[MAGIC_AT : MAGIC_AT + 1] == _MAGIC_BYTE:
            return _check_or_recompress(buf, config, now_ms, partition)
        return _convert_up(buf, config, now_ms, partition)
    except CorruptMessageError as error:
        return AppendRefusal(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt ({error}) in topic partition {partition}.")
    except BatchError as error:
        return AppendRefusal(ErrorCode.INVALID_RECORD, f"Record batch for topic partition {partition}: {error}")


def _convert_up(buf: memoryview, config: LogConfig, now_ms: int, partition: str) -> bytearray | AppendRefusal | None:
    messages = _split(buf)
    if not messages:
        return None
    for message in messages:
        refusal = _check_message(buf, message, config, partition)
        if refusal is not None:
            return refusal
    first = messages[0]
    source = next((message.compression for message in reversed(messages) if message.is_wrapper), Compression.NONE)
    if source != Compression.NONE and len(messages) > 1:
        return AppendRefusal(ErrorCode.INVALID_RECORD, "Compressed outer record has more than one batch")
    for message in messages:
        if message.magic != first.magic:
            return AppendRefusal(
                ErrorCode.INVALID_RECORD,
                f"Batch magic {message.magic} is not the same as the first batch's magic byte {first.magic} "
                f"in topic partition {partition}",
            )
    records: list[Record] = []
    for message in messages:
        found = decode_message_bounded(buf, message)
        stamped = message.magic > 0 and bool(message.attributes & LOG_APPEND_TIME_FLAG)
        refusal = check_records(found, stamped, config, now_ms, partition)
        if refusal is not None:
            return refusal
        records += found
    refusal = _check_times([record.timestamp for record in records], partition)
    if refusal is not None:
        return refusal
    target = _target(config, source)
    batch = encode_batch(records, compression=target, compression_level=_level(config, target))
    return _sized(bytearray(batch), config, partition)


def _split(buf: memoryview) -> list[MessageHeader]:
    """The messages in the received data; a truncated last one is left out."""
    messages: list[MessageHeader] = []
    position, end = 0, len(buf)
    while position < end and not is_cut_off(buf, position):
        if end - position > MAGIC_AT and buf[position + MAGIC_AT] == MAGIC:
            raise BatchError("a record batch of format 2 among messages of older formats")
        message = parse_message_header(buf, position)
        messages.append(message)
        position = message.end_position
    return messages


def _check_message(buf: memoryview, message: MessageHeader, config: LogConfig, partition: str) -> AppendRefusal | None:
    if message.length > config.max_message_bytes:
        return AppendRefusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {partition} is {message.length} bytes which exceeds the maximum "
            f"configured value of {config.max_message_bytes}.",
        )
    if not check_message_crc(buf, message):
        return AppendRefusal(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {message.crc}) in topic partition {partition}.",
        )
    return None


def _check_or_recompress(buf: memoryview, config: LogConfig, now_ms: int, partition: str) -> bytearray | AppendRefusal:
    found = split(buf)
    if isinstance(found, AppendRefusal):
        return found
    if len(found) != 1:
        return AppendRefusal(
            ErrorCode.INVALID_RECORD,
            "Produce requests must have exactly one record batch per partition",
            bad_request=True,
        )
    (header,) = found
    buf = buf[: header.length]
    refusal = check_batch(buf, header, partition, config.max_message_bytes, CLIENT)
    if refusal is not None:
        return refusal
    target = _target(config, header.compression)
    if target == header.compression:
        # The largest timestamp is corrected in place.
        copy = bytearray(buf)
        return check_contents(memoryview(copy), header, config, now_ms, partition) or copy
    return _recompress(buf, header, target, config, now_ms, partition)


def _recompress(
    buf: memoryview, header: BatchHeader, target: Compression, config: LogConfig, now_ms: int, partition: str
) -> bytearray | AppendRefusal:
    count = header.records_count
    if count > most_records(header.length):
        raise BatchError(f"{count} records in a batch of {header.length} bytes")
    payload = batch_payload(buf, header, most_bytes(header.length))
    columns = decode_columns(payload, count)
    timestamps = record_timestamps(header, columns)
    records = list(map(Record, range(count), timestamps, columns.keys, columns.values, columns.headers))
    stamped = bool(header.attributes & LOG_APPEND_TIME_FLAG)
    refusal = check_records(records, stamped, config, now_ms, partition) or _check_times(timestamps, partition)
    if refusal is not None:
        return refusal
    if stamped or columns.offset_deltas != list(range(count)):
        header.base_timestamp = timestamps[0]
        payload = encode_records(records, range(count), timestamps[0])
    header.attributes = header.attributes & ~(COMPRESSION_MASK | LOG_APPEND_TIME_FLAG) | target
    header.max_timestamp = max(timestamps)
    if target != Compression.NONE:
        payload = compress(target, payload, _level(config, target))
    return _sized(bytearray(frame_batch(payload, header)), config, partition)


def _check_times(timestamps: Sequence[int], partition: str) -> AppendRefusal | None:
    """Refuse timestamps that a batch cannot hold; Java's builder refuses them too."""
    lowest = min(timestamps)
    if lowest >= NO_TIMESTAMP and max(timestamps) - lowest <= _LONGEST:
        return None
    return AppendRefusal(
        ErrorCode.INVALID_TIMESTAMP, f"Invalid negative timestamp {lowest} in topic partition {partition}"
    )


def _sized(batch: bytearray, config: LogConfig, partition: str) -> bytearray | AppendRefusal:
    if len(batch) <= config.max_message_bytes:
        return batch
    return AppendRefusal(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"Message batch size is {len(batch)} bytes in append to partition {partition} which exceeds the maximum "
        f"configured size of {config.max_message_bytes}.",
    )


def _target(config: LogConfig, source: Compression) -> Compression:
    wanted = config.compression_type
    return source if wanted == AS_PRODUCED else _COMPRESSIONS[wanted]


def _level(config: LogConfig, target: Compression) -> int | None:
    if target == Compression.GZIP:
        level = config.compression_gzip_level
    elif target == Compression.LZ4:
        level = config.compression_lz4_level
    elif target == Compression.ZSTD:
        level = config.compression_zstd_level
    else:
        return None
    return None if level == _DEFAULT_LEVELS.get(target) else level
