"""Batches built record by record, encoded at once, or from columns; compiled where that was built.

`RecordsBuilder` gathers the records of one batch, `finish_batch` and `finish_in_place` frame them. `SourceColumns` are
columns that it takes as they are, `Strings` one of them (`ottla.records.from_arrow` makes both); `partitions_for_keys`
and `partition_for_key` give keys their partitions, `rows_by_partition` each partition its rows, and `murmur2` is the
hash behind that.
"""

from __future__ import annotations

from typing import Final

from ottla.records.batch import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    frame_batch,
    frame_in_place,
)
from ottla.records.compression import Compression, compress

try:
    from ottla.records._building_native import (
        RecordsBuilder,
        SourceColumns,
        Strings,
        append_pairs,
        murmur2,
        partitions_for_keys,
        rows_by_partition,
    )

    compiled = True
except ImportError:
    from ottla.records._building import (
        RecordsBuilder,
        SourceColumns,
        Strings,
        append_pairs,
        murmur2,
        partitions_for_keys,
        rows_by_partition,
    )

    compiled = False

__all__ = [
    "COMPILED",
    "MAX_INT32",
    "RecordsBuilder",
    "SourceColumns",
    "Strings",
    "append_pairs",
    "finish_batch",
    "finish_in_place",
    "murmur2",
    "partition_for_key",
    "partitions_for_keys",
    "rows_by_partition",
]

#: Whether the compiled builder is there.
COMPILED: Final = compiled

MAX_INT32: Final = 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key, the same as the Java producer's default."""
    return (murmur2(key) & MAX_INT32) % partition_count


def finish_batch(
    builder: RecordsBuilder,
    *,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytes:
    """The whole batch of what was built, checksum included, offsets from 0; the builder stays as it is.

    ValueError without records.
    """
    if not builder.count:
        raise ValueError("a batch needs at least one record")
    payload: bytes | memoryview = builder.view()
    if compression != Compression.NONE:
        payload = compress(compression, payload, compression_level)
    header = BatchHeader(
        base_offset=0,
        length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=int(compression) | (TRANSACTIONAL_FLAG if is_transactional else 0),
        last_offset_delta=builder.count - 1,
        base_timestamp=builder.base_timestamp,
        max_timestamp=builder.max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=builder.count,
        position=0,
    )
    return frame_batch(payload, header)


def finish_in_place(
    builder: RecordsBuilder,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    is_transactional: bool = False,
) -> memoryview[int]:
    """As `finish_batch` without compression, not copied: a view of the builder's memory, in front of which it writes.

    As long as the view is there nothing can be added, and finishing in place again changes it. It has a record.
    """
    whole, count = builder.framed(), builder.count
    times = builder.base_timestamp, builder.max_timestamp
    attributes = TRANSACTIONAL_FLAG if is_transactional else 0
    frame_in_place(whole, attributes, count - 1, *times, producer_id, producer_epoch, base_sequence, count)
    return whole
