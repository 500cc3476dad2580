"""Rebuilding a segment's transaction index from the log, after an unclean stop."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.records.batch import ATTRIBUTES_AT, CONTROL_FLAG, MAGIC, parse_batch_header
from ottla.storage.producer_snapshots import ProducerSnapshots, intact_batches
from ottla.storage.producer_state import ProducerState
from ottla.storage.scan import ScannedBatch
from ottla.storage.segment import Segment
from ottla.storage.transaction_index import AbortedTransaction


def is_marker(batch: ScannedBatch) -> bool:
    """Whether a batch can be a transaction marker."""
    return batch.magic == MAGIC and batch.data[ATTRIBUTES_AT + 1] & CONTROL_FLAG != 0


def rebuild_transaction_index(
    snapshots: ProducerSnapshots, segments: Sequence[Segment], number: int, now_ms: int
) -> None:
    """Rebuild the transaction index of the segment of this number from its markers and the log before them.

    The log is read from the newest producer snapshot at or before the segment's base offset. Raises DiskError.
    """
    wanted = segments[number]
    state = ProducerState()
    snapshots.peek(state, wanted.base_offset, now_ms)
    aborted: list[AbortedTransaction] = []
    for segment, batch in intact_batches(segments, state.end_offset, number + 1):
        if batch.magic != MAGIC or batch.last_offset < state.end_offset:
            continue
        ended = state.replay(parse_batch_header(batch.data), batch.data)
        if ended is not None and ended.aborted and segment is wanted:
            aborted.append(ended.entry(state))
    wanted.txn_index.replace(aborted)
