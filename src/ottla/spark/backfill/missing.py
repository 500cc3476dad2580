"""Missing segments of a log, distinguished from the gaps that compaction and retention leave.

A log that was never compacted has no gaps between offsets, and a segment begins where the one before ends. Compaction
removes records, so it leaves gaps, also between segments. The signs:

- `cleaner-offset-checkpoint` in the log directory says up to where the broker has compacted the log. It is written at
  the end of a round; files being replaced (`.cleaned`, `.swap`, `.deleted`) show one that is under way.
- A follower that copied a compacted log from its leader has gaps too, and need not have compacted anything itself. Then
  the segments beside the gap have gaps of their own.
- The first leader epoch begins where the log does.
- An index without its segment shows that there was one. A producer snapshot does not: brokers write one when they end.

So a missing segment of a compacted topic goes unnoticed where nothing of it is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.env.disk import DiskError, RealDisk
from ottla.env.file_reader import ReadableFile
from ottla.spark.backfill.errors import DamagedBatchError
from ottla.spark.backfill.heads import walk_heads
from ottla.spark.backfill.segments import OpenSegment, segment_names
from ottla.storage.checkpoints import CLEANER_FILE, CheckpointError, decode_offsets
from ottla.storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_file_name,
    offsets_of,
)
from ottla.storage.leader_epochs import LEADER_EPOCH_FILE, decode_leader_epochs

_INDEXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


def sign_of_loss(segment: OpenSegment, next_base: int, partition: tuple[str, int], start: int) -> str | None:
    """Find a sign that records from `start` to `next_base`, between two segments, are lost; None if there is none.

    Raises DiskError.
    """
    names = RealDisk().listdir(segment.directory)
    if _is_being_replaced(names):
        return None
    for suffix in _INDEXES:
        for base in sorted(offsets_of(names, suffix)):
            if start <= base < next_base and offset_file_name(base, LOG_SUFFIX) not in names:
                return f"{offset_file_name(base, suffix)} is there, and the segment that it belongs to is not"
    cleaned_to = _cleaned_to(segment.directory.rpartition("/")[0], partition)
    if next_base <= cleaned_to or _has_gaps(segment.file) or _next_has_gaps(segment.directory, names, next_base):
        return None
    return "the log was not compacted there, and the segments before and behind are without gaps"


def first_missing(directory: str, first: int) -> int | None:
    """Return the log's beginning, if segments before its `first` base offset are missing that retention did not delete.

    The first leader epoch begins where the log does: a broker moves it when it deletes segments. Raises DiskError.
    """
    path = f"{directory}/{LEADER_EPOCH_FILE}"
    try:
        entries = decode_leader_epochs(RealDisk().read_bytes(path), path).entries
    except (DiskError, CheckpointError):
        return None
    deleted = offsets_of(RealDisk().listdir(directory), LOG_SUFFIX + DELETED_SUFFIX)
    if not entries or entries[0][1] >= first or any(each < first for each in deleted):
        return None
    return entries[0][1]


def _is_being_replaced(names: Sequence[str]) -> bool:
    """Whether a cleaner is at work, or was killed; what retention deletes lies before the first segment."""
    first = min((each.base_offset for each in segment_names(names)), default=0)
    deleted = offsets_of(names, LOG_SUFFIX + DELETED_SUFFIX)
    return any(each.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for each in names) or any(each >= first for each in deleted)


def _cleaned_to(log_dir: str, partition: tuple[str, int]) -> int:
    """Up to where the log directory's broker has compacted the log; 0 where that is not known."""
    path = f"{log_dir}/{CLEANER_FILE}"
    try:
        return decode_offsets(RealDisk().read_bytes(path), path).get(partition, 0)
    except (DiskError, CheckpointError):
        return 0


def _next_has_gaps(directory: str, names: Sequence[str], base_offset: int) -> bool:
    for name in segment_names(names):
        if name.base_offset == base_offset:
            with ReadableFile(f"{directory}/{name.file(LOG_SUFFIX)}") as file:
                return _has_gaps(file)
    return True  # it was replaced meanwhile


def _has_gaps(file: ReadableFile) -> bool:
    """Whether offsets are missing within a segment: between batches, or in one of them."""
    expected = None
    try:
        for head in walk_heads(file, 0):
            if head.base_offset != (head.base_offset if expected is None else expected) or head.has_gaps:
                return True
            expected = head.last_offset + 1
    except DamagedBatchError:
        pass  # the reader of those batches reports it
    return False
