"""Making the transaction index of a segment anew from the log, after a stop that was not clean."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.records.batch import parse_batch_header
from ottla.storage.producer_snapshots import ProducerSnapshots
from ottla.storage.producer_state import ProducerState
from ottla.storage.scan import ScannedBatch, scan_batches
from ottla.storage.segment import Segment
from ottla.storage.transaction_index import AbortedTransaction

#: Attribute bits of a batch that is transactional and of one that is a marker.
_CONTROL_FLAG = 0x20
_ATTRIBUTES_LOW_BYTE = 22


def is_marker(batch: ScannedBatch) -> bool:
    """Whether a batch may end a transaction."""
    return batch.magic == 2 and batch.data[_ATTRIBUTES_LOW_BYTE] & _CONTROL_FLAG != 0


def rebuild_transaction_index(
    snapshots: ProducerSnapshots, segments: Sequence[Segment], number: int, now_ms: int
) -> None:
    """Make the index of the segment of this number say what its markers, and the log before them, say.

    The log is read from the newest producer snapshot at or before the segment's begin. Raises DiskError.
    """
    wanted = segments[number]
    state = ProducerState()
    snapshots.peek(state, wanted.base_offset, now_ms)
    aborted: list[AbortedTransaction] = []
    for place, segment in enumerate(segments[: number + 1]):
        if place < number and segments[place + 1].base_offset <= state.end_offset:
            continue
        position = segment.locate(state.end_offset) if segment.size else None
        if position is None:
            continue
        for batch in scan_batches(segment.log.get(), position, segment.size):
            if batch.magic != 2 or batch.last_offset < state.end_offset:
                continue
            ended = state.replay(parse_batch_header(batch.data), batch.data)
            if ended is not None and ended.aborted and segment is wanted:
                aborted.append(ended.entry(state))
    wanted.txn_index.replace(aborted)
