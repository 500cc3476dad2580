"""Replay of a partition of a coordinator's topic into its shard, without blocking the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.broker.coordinators.shard import CoordinatorKind, CoordinatorShard, UnreadableRecord
from ottla.records.batch import BatchHeader, split_batches
from ottla.records.control import transaction_marker
from ottla.records.errors import BatchError
from ottla.records.record import Record, decode_batch
from ottla.records.upgrade import upgrade
from ottla.storage.results import UnreadableRange

SLICE_S = 0.005
"""Longest time on the loop at once."""
RECORDS_PER_LOOK = 64
"""Records between two checks of the time."""


async def load_shard(
    shard: CoordinatorShard[Any],
    kind: CoordinatorKind[Any, Any],
    coordinator_log: CoordinatorLog,
    is_wanted: Callable[[], bool],
) -> int:
    """Replay the whole partition; return the number of records. Unreadable parts are reported and skipped.

    Everything in the log counts as committed: an elected leader holds all committed records. Ends early when it is not
    wanted any more. Raises DiskError; the shard is then incomplete and must not serve requests.
    """
    loop = asyncio.get_running_loop()
    slice_end = loop.time() + SLICE_S
    count = 0
    for data in coordinator_log.read_batches(kind.topic, shard.partition, partial(_report, shard, kind)):
        for header, batch in _batches(data, shard, kind):
            for record in _records(batch, header, shard, kind):
                _replay(shard, kind, record, header.producer_id if header.is_transactional else -1)
                count += 1
                if count % RECORDS_PER_LOOK == 0 and loop.time() >= slice_end:
                    await asyncio.sleep(0)
                    if not is_wanted():
                        return count
                    slice_end = loop.time() + SLICE_S
            shard.committed(header.last_offset + 1)
        if loop.time() >= slice_end:
            await asyncio.sleep(0)
            if not is_wanted():
                return count
            slice_end = loop.time() + SLICE_S
    return count


def _report(shard: CoordinatorShard[Any], kind: CoordinatorKind[Any, Any], found: UnreadableRange) -> None:
    """Log which records may be lost. Later appends go behind the damage and are read again at each start."""
    first, last = found.first_offset, found.next_offset - 1
    lost = f"the records of offsets {first} to {last}" if first <= last else "no records that are known of"
    kind.log.error(
        "%s-%d is damaged: %d bytes at position %d of %s are not a whole batch, and %s cannot be read. What they held "
        "(commits, members, metadata) is lost where no later record repeats it; what lies behind them is read. "
        "'ottla log verify' on the directory, with the broker stopped, reports what can be repaired",
        kind.topic,
        shard.partition,
        found.length,
        found.position,
        found.path,
        lost,
    )


def _batches(
    data: memoryview, shard: CoordinatorShard[Any], kind: CoordinatorKind[Any, Any]
) -> list[tuple[BatchHeader, memoryview]]:
    """The batches made of one batch or message set of the log, upgraded from old formats; none if it is unreadable."""
    try:
        batches = upgrade(data)
        return [(header, batches) for header in split_batches(batches)]
    except BatchError as error:
        kind.log.error("a batch of %s-%d cannot be read and is skipped: %s", kind.topic, shard.partition, error)
        return []


def _records(
    data: memoryview, header: BatchHeader, shard: CoordinatorShard[Any], kind: CoordinatorKind[Any, Any]
) -> list[Record]:
    """The records of a batch; a control batch is replayed here and yields none."""
    try:
        records = decode_batch(data, header)
        if not header.is_control:
            return records
        for record in records:
            marker = transaction_marker(header.producer_id, header.producer_epoch, record.key, record.value)
            if marker is not None:
                shard.replay_marker(marker, record.offset)
    except BatchError as error:
        kind.log.error("batch at offset %d of %s-%d: %s", header.base_offset, kind.topic, shard.partition, error)
    return []


def _replay(shard: CoordinatorShard[Any], kind: CoordinatorKind[Any, Any], record: Record, producer_id: int) -> None:
    decoded = kind.decode(record.key, record.value)
    if isinstance(decoded, UnreadableRecord):
        say = kind.log.error if decoded.is_damage else kind.log.warning
        say("record %d of %s-%d: %s", record.offset, kind.topic, shard.partition, decoded.message)
    else:
        shard.replay(decoded, record.offset, producer_id)
