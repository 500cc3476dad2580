"""Damaged ranges in a log file: finding the next intact batch behind one, and saving the damaged bytes.

Batches behind a damaged one may be intact. Its length field, if intact, leads to the next one; otherwise the next one
is searched for. Bytes within a batch that look like a batch (a record may hold a copy of a log) are not mistaken for
one: batches found there must follow each other without a gap up to the end of the outer batch, which the contents of a
record never do, as part of the record always follows its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.env.disk import TEMPORARY_SUFFIX, Disk, DiskFile
from ottla.records.batch import LOG_OVERHEAD, MAGIC_AT
from ottla.records.errors import BatchError
from ottla.records.message_set import SMALLEST_MESSAGE
from ottla.storage.files import DAMAGED_SUFFIX
from ottla.storage.scan import LOOKUP_BYTES, ScannedBatch, scan_batches
from ottla.storage.segment import MAX_RELATIVE_OFFSET, Segment

#: Bytes read at a time when the next batch is searched for, and when intact batches are copied.
SEARCH_BYTES: Final = 1024 * 1024
#: Limit of the bytes that the search behind one damaged range reads for the checksums of candidates: this many times
#: the bytes searched, plus the allowance. Without it crafted data could make the search quadratic.
SEARCH_RATIO: Final = 8
SEARCH_ALLOWANCE_BYTES: Final = 64 * 1024 * 1024
#: Bytes of the high half of an offset.
_HIGH_BYTES: Final = 4


class Damage(NamedTuple):
    """Bytes of a log file that are not an intact batch, and the first of the offsets that may be missing for it."""

    position: int
    length: int
    first_offset: int

    @property
    def end(self) -> int:
        """The position behind it."""
        return self.position + self.length


def batches_and_damage(
    file: DiskFile, position: int, end: int, base_offset: int, next_offset: int, limit_offset: int | None
) -> Iterator[ScannedBatch | Damage]:
    """Split the bytes from `position` (where a batch begins) to `end` into intact batches and damaged ranges.

    Offsets increase, are at least `next_offset` and below `limit_offset` (base offset of the next segment; None: this
    is the last one), and within the range of a segment that begins at `base_offset`. Raises DiskError.
    """
    limit = base_offset + MAX_RELATIVE_OFFSET + 1 if limit_offset is None else limit_offset
    held: ScannedBatch | None = None
    old_format = False
    while position < end:
        for batch in scan_batches(file, position, end):
            position = batch.position + batch.length
            old_format = batch.magic < 2
            if not next_offset <= batch.first_offset <= batch.last_offset < limit:
                yield Damage(batch.position, batch.length, next_offset if held is None else held.last_offset + 1)
            elif held is None:
                held = batch
            elif batch.first_offset > held.last_offset:
                yield held
                next_offset = held.last_offset + 1
                held = batch
            elif _comes_too_late(held, batch, next_offset):
                yield Damage(held.position, held.length, next_offset)
                held = batch
            else:
                yield Damage(batch.position, batch.length, held.last_offset + 1)
        if position < end:
            after = next_offset if held is None else held.last_offset + 1
            found = find_next_batch(file, position, end, after, limit, old_format)
            if held is not None:
                yield held
                next_offset, held = after, None
            yield Damage(position, found - position, after)
            position = found
    if held is not None:
        yield held


def segment_batches(segment: Segment, from_offset: int, following: int | None) -> Iterator[ScannedBatch | Damage]:
    """The batches of a segment from the one that contains `from_offset` on, and the damaged ranges between them.

    `following` is the base offset of the next segment, None for the last one. Raises DiskError.
    """
    try:
        position = segment.locate(from_offset)
    except BatchError:
        # Damage lies between the last indexed batch and the offset.
        position = 0
    if position is None:
        return
    base_offset = segment.base_offset
    file = segment.pin()
    try:
        for found in batches_and_damage(file, position, segment.size, base_offset, base_offset, following):
            if isinstance(found, Damage) or found.last_offset >= from_offset:
                yield found
    finally:
        segment.log.unpin()


def _comes_too_late(batch: ScannedBatch, behind: ScannedBatch, next_offset: int) -> bool:
    """Which of two batches with overlapping offsets is wrong (offsets are not covered by the checksum).

    True: the first, whose offset is too large; `next_offset` is the end of what lies before it.
    """
    if batch.first_offset == next_offset:
        return False
    length = batch.last_offset - batch.first_offset + 1
    return behind.first_offset == next_offset + length or behind.last_offset < batch.last_offset


def find_next_batch(file: DiskFile, position: int, end: int, next_offset: int, limit: int, old_format: bool) -> int:
    """The position of the next intact batch behind the damaged one at `position`; `end` if none. Raises DiskError."""
    boundary = _end_by_length(file, position, end, next_offset, limit)
    stop = end if boundary is None else boundary
    broken: set[int] = set()
    allowed = SEARCH_RATIO * (stop - position) + SEARCH_ALLOWANCE_BYTES
    for candidate, length in _candidates(file, position + 1, stop, next_offset, old_format):
        allowed -= length
        if allowed < 0:
            break
        if not _is_batch(file, candidate, end, next_offset, limit):
            continue
        if boundary is None or _chain_reaches(file, candidate, boundary, broken):
            return candidate
    return stop


def _end_by_length(file: DiskFile, position: int, end: int, next_offset: int, limit: int) -> int | None:
    """The end of the damaged batch by its length field, if an intact batch or the end of the file is there."""
    length = int.from_bytes(file.pread(4, position + 8), "big", signed=True) + LOG_OVERHEAD
    after = position + length
    if length < SMALLEST_MESSAGE or after > end:
        return None
    return after if after == end or _is_batch(file, after, end, next_offset, limit) else None


def _is_batch(file: DiskFile, position: int, end: int, next_offset: int, limit: int) -> bool:
    batch = next(scan_batches(file, position, end, LOOKUP_BYTES), None)
    return batch is not None and next_offset <= batch.first_offset <= batch.last_offset < limit


def _chain_reaches(file: DiskFile, position: int, target: int, broken: set[int]) -> bool:
    """Whether intact batches follow each other from `position` to exactly `target`."""
    passed = []
    for batch in scan_batches(file, position, target):
        if batch.position in broken:
            break
        passed.append(batch.position)
        if batch.position + batch.length == target:
            return True
    broken.update(passed)
    return False


def _candidates(
    file: DiskFile, position: int, end: int, next_offset: int, old_format: bool
) -> Iterator[tuple[int, int]]:
    """Positions at which a batch might begin, and its length: the high half of its offset, its format and the unused
    bits of its attributes have valid values.
    """
    # Two if the offsets cross a multiple of 2^32.
    highs = {offset >> 32 for offset in (next_offset, next_offset + MAX_RELATIVE_OFFSET)}
    high = b"|".join(re.escape(number.to_bytes(_HIGH_BYTES, "big")) for number in sorted(highs))
    pattern = re.compile(
        b"(?s:(?:"
        + high
        + b").{%d}" % (MAGIC_AT - _HIGH_BYTES)
        + (rb"(?:[\x00\x01]|\x02.{4}\x00[\x00-\x7f])" if old_format else rb"\x02.{4}\x00[\x00-\x7f]")
        + b")"
    )
    while end - position >= SMALLEST_MESSAGE:
        window = file.pread(min(SEARCH_BYTES, end - position), position)
        if len(window) < SMALLEST_MESSAGE:
            return
        if window.count(0) != len(window):
            found = pattern.search(window)
            while found is not None:
                length = int.from_bytes(window[found.start() + 8 : found.start() + 12], "big", signed=True)
                start = position + found.start()
                if SMALLEST_MESSAGE <= length + LOG_OVERHEAD <= end - start:
                    yield start, length + LOG_OVERHEAD
                found = pattern.search(window, found.start() + 1)
        position += len(window) - SMALLEST_MESSAGE + 1


def keep_aside(disk: Disk, path: str, file: DiskFile, damage: Damage) -> str | None:
    """Copy damaged bytes of the log file at `path` into a separate, synced file; returns its path.

    Its name is that of the log file, the position, and `.damaged`. None if the bytes are all zeros, as file systems
    leave pages that were never written. Raises DiskError.
    """
    target = f"{path}.{damage.position}{DAMAGED_SUFFIX}"
    copy = disk.open(target, create=True)
    try:
        copy.truncate(0)
        zeros = True
        for piece in _pieces(file, damage.position, damage.end):
            zeros = zeros and piece.count(0) == len(piece)
            copy.append([piece])
        copy.flush()
    finally:
        copy.close()
    if zeros:
        disk.remove(target)
        return None
    return target


def rewrite_without(disk: Disk, path: str, file: DiskFile, size: int, damages: list[Damage]) -> int:
    """Atomically replace the log file at `path` by one without the damaged ranges; returns its new size. DiskError.

    Its indexes must be empty on disk by then: their positions do not fit the new file.
    """
    temporary = f"{path}.sound{TEMPORARY_SUFFIX}"
    copy = disk.open(temporary, create=True)
    try:
        copy.truncate(0)
        position = 0
        for damage in [*damages, Damage(size, 0, 0)]:
            for piece in _pieces(file, position, damage.position):
                copy.append([piece])
            position = damage.end
        copy.flush()
        remaining = copy.size
    finally:
        copy.close()
    disk.rename(temporary, path)
    disk.fsync_dir(path.rpartition("/")[0])
    return remaining


def _pieces(file: DiskFile, position: int, end: int) -> Iterator[bytes]:
    while position < end:
        piece = file.pread(min(SEARCH_BYTES, end - position), position)
        if not piece:
            return
        yield piece
        position += len(piece)
