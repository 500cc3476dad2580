"""Reading a partition of the offsets topic into its shard, without holding up the loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.groups.records import MalformedRecord, UnknownRecord, decode_record
from ottla.records.batch import BatchHeader, split_batches
from ottla.records.control import ControlRecordType, control_record_type
from ottla.records.errors import BatchError
from ottla.records.record import Record, decode_batch
from ottla.records.upgrade import upgrade

if TYPE_CHECKING:
    from ottla.broker.group_log import CoordinatorLog
    from ottla.groups.shard import GroupShard

log = logging.getLogger("ottla.groups")

SLICE_S = 0.005
"""How long the loop is held at a time."""
RECORDS_PER_LOOK = 64
"""Records between two looks at the clock."""


async def load_shard(shard: GroupShard, coordinator_log: CoordinatorLog, topic: str) -> int:
    """Replay the whole partition; returns the number of records. What makes no sense is reported and skipped.

    Raises DiskError; the shard then knows a part of its groups, and must not answer for them.
    """
    loop = asyncio.get_running_loop()
    slice_end = loop.time() + SLICE_S
    count = 0
    try:
        for data in coordinator_log.read_batches(topic, shard.partition):
            for header in split_batches(data := upgrade(data)):
                for record in _records(data, header, shard):
                    _replay(shard, record, header.producer_id if header.is_transactional else -1)
                    count += 1
                    if count % RECORDS_PER_LOOK == 0 and loop.time() >= slice_end:
                        await asyncio.sleep(0)
                        slice_end = loop.time() + SLICE_S
            shard.advance(coordinator_log.high_watermark(topic, shard.partition))
            if loop.time() >= slice_end:
                await asyncio.sleep(0)
                slice_end = loop.time() + SLICE_S
    except BatchError as error:
        log.error("%s-%d cannot be read beyond %d records: %s", topic, shard.partition, count, error)
    return count


def _records(data: memoryview, header: BatchHeader, shard: GroupShard) -> list[Record]:
    """The records of a batch; none of a control batch, which takes effect here."""
    try:
        records = decode_batch(data, header)
        if not header.is_control:
            return records
        for record in records:
            is_commit = control_record_type(record.key) is ControlRecordType.COMMIT
            shard.complete_transaction(header.producer_id, is_commit)
    except BatchError as error:
        at = header.base_offset
        log.error("batch at offset %d of the offsets topic's partition %d: %s", at, shard.partition, error)
    return []


def _replay(shard: GroupShard, record: Record, producer_id: int) -> None:
    try:
        decoded = decode_record(record.key, record.value)
    except MalformedRecord as error:
        log.error("record %d of the offsets topic's partition %d: %s", record.offset, shard.partition, error)
        return
    if isinstance(decoded, UnknownRecord):
        log.warning(
            "record %d of the offsets topic's partition %d has a key of version %d, which is not known here; skipped",
            record.offset,
            shard.partition,
            decoded.key_version,
        )
        return
    shard.replay(decoded, record.offset, producer_id)
