"""Damaged places in a log file: where the next sound batch begins behind one, and keeping the damaged bytes aside.

A batch may be damaged without those behind it being so. Its length, if that is sound, says where the next one begins;
else the next one is looked for. Bytes within a batch that look like one (a record may hold a copy of a log) are not
taken for one: batches found there must follow each other without a gap up to where the outer one ends, which the
contents of a record never do, as something of the record always comes behind its value.
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

#: Read at a time when the next batch is looked for, and when sound batches are copied.
SEARCH_BYTES: Final = 1024 * 1024
#: The search behind one damaged place reads so many times the bytes that it searches, and so many more, for the
#: checksums of what looks like a batch: bytes made for it could ask for the square of them.
SEARCH_RATIO: Final = 8
SEARCH_ALLOWANCE_BYTES: Final = 64 * 1024 * 1024
#: Bytes of the high half of an offset.
_HIGH_BYTES: Final = 4


class Damage(NamedTuple):
    """Bytes of a log file that are no sound batch, and the first of the offsets that may be missing for it."""

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
    """What the bytes from `position` (where a batch begins) to `end` are: sound batches in order, and damage between.

    Offsets grow, are at least `next_offset` and below `limit_offset` (where the following segment begins; None: the
    file is the last), and lie within what a segment that begins at `base_offset` can hold. Raises DiskError.
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
    """The batches of a segment from the one that holds `from_offset` on, and the damaged places between.

    `following` is where the next segment begins, None for the last one. Raises DiskError.
    """
    try:
        position = segment.locate(from_offset)
    except BatchError:
        # Damage lies between the last batch that the index names and the offset.
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
    """Which of two batches whose offsets overlap is the wrong one (offsets lie outside the checksum).

    True: the first, whose offset is too large; `next_offset` is the end of what lies before it.
    """
    if batch.first_offset == next_offset:
        return False
    length = batch.last_offset - batch.first_offset + 1
    return behind.first_offset == next_offset + length or behind.last_offset < batch.last_offset


def find_next_batch(file: DiskFile, position: int, end: int, next_offset: int, limit: int, old_format: bool) -> int:
    """Where the next sound batch begins behind the damaged one at `position`; `end` where there is none. DiskError."""
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
    """Where the damaged batch ends by its own length, if a sound batch or the end of the file is there."""
    length = int.from_bytes(file.pread(4, position + 8), "big", signed=True) + LOG_OVERHEAD
    after = position + length
    if length < SMALLEST_MESSAGE or after > end:
        return None
    return after if after == end or _is_batch(file, after, end, next_offset, limit) else None


def _is_batch(file: DiskFile, position: int, end: int, next_offset: int, limit: int) -> bool:
    batch = next(scan_batches(file, position, end, LOOKUP_BYTES), None)
    return batch is not None and next_offset <= batch.first_offset <= batch.last_offset < limit


def _chain_reaches(file: DiskFile, position: int, target: int, broken: set[int]) -> bool:
    """Whether sound batches follow each other from `position` to exactly `target`."""
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
    bits of its attributes are what they must be.
    """
    # Two where the offsets pass a multiple of 2^32.
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
    """Copy damaged bytes of the log file at `path` into a file of their own, forced to the disk; returns its path.

    Its name is that of the log file, their position, and `.damaged`. None where they are all zeros, as the system
    leaves what it had no time to write. Raises DiskError.
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
    """Replace the log file at `path`, at once, by one without the damaged places; returns its new size. DiskError.

    Its indexes must be empty on the disk by then: their positions are not those of the new file.
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
        kept = copy.size
    finally:
        copy.close()
    disk.rename(temporary, path)
    disk.fsync_dir(path.rpartition("/")[0])
    return kept


def _pieces(file: DiskFile, position: int, end: int) -> Iterator[bytes]:
    while position < end:
        piece = file.pread(min(SEARCH_BYTES, end - position), position)
        if not piece:
            return
        yield piece
        position += len(piece)
