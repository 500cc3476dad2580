"""Checks of a segment's indexes against its log, while the log is read: only the next entry is kept in memory.

An index file has one finding at most: how many of its entries are wrong, and which is the first. Entries that point
into a damaged range of the log cannot be checked and are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.env.file_reader import ReadableFile
from ottla.inspection.findings import LogFinding, Remedy, RemedyKind, Severity
from ottla.inspection.small_files import AbortedEntry, entries, first_of_zero_tail
from ottla.records.control import ControlRecordType
from ottla.storage.index import OFFSET_ENTRY, TIME_ENTRY
from ottla.storage.transaction_index import TXN_ENTRY, TXN_INDEX_VERSION

#: An index is sparse if the distance from its last entry to the end is this many times the usual one.
_THIN: Final = 4
_LEAST_DISTANCE: Final = 64 * 1024
#: This many inexact entries are reported if at least as many are exact.
_ODD_ENTRIES: Final = 1
_EXACT_ENTRIES: Final = 3


class IndexedBatch(NamedTuple):
    """The fields of a batch for index checks. `loose`: a compacted part of the log, where entries are less exact."""

    position: int
    length: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    loose: bool


class TransactionEnd(NamedTuple):
    """An abort marker, and the values for its index entry: -1 if unknown."""

    producer_id: int
    offset: int
    first_offset: int
    last_stable_offset: int
    #: Whether compaction may have removed the first batches of this transaction, or of others that were open.
    compacted: bool

    def began_at(self, offset: int) -> bool:
        """Whether the transaction may have begun at this offset."""
        return self.first_offset in (-1, offset) or (self.compacted and offset < self.first_offset)

    def was_stable_to(self, offset: int) -> bool:
        """Whether this may have been the last stable offset when the transaction ended."""
        return self.last_stable_offset in (-1, offset) or (self.compacted and offset < self.last_stable_offset)


class _Faults:
    """Counts the wrong entries of one index file.

    Inexact entries are harmless, and brokers that append several batches at once create many of them; a single one
    among exact ones is reported.
    """

    def __init__(self, file: ReadableFile, entry_size: int) -> None:
        self.path = file.path
        self._size = file.size
        self._entry_size = entry_size
        self._first: tuple[int, str] | None = None
        self._count = 0
        self._odd: list[tuple[int, str]] = []
        self._exact = 0
        left = file.size % entry_size
        if left:
            self.add(file.size - left, f"{left} bytes at the end are not an entry of {entry_size} bytes")

    def add(self, position: int, reason: str) -> None:
        """Count a wrong entry."""
        self._count += 1
        if self._first is None or position < self._first[0]:
            self._first = (position, reason)

    def exact(self) -> None:
        """Count an exact entry."""
        self._exact += 1

    def odd(self, position: int, reason: str) -> None:
        """Count an entry that is inexact, but not wrong."""
        if len(self._odd) <= _ODD_ENTRIES:
            self._odd.append((position, reason))

    def finding(self, meaning: str) -> LogFinding | None:
        """The finding for the file."""
        if self._first is None:
            return self._odd_one() if len(self._odd) == _ODD_ENTRIES and self._exact >= _EXACT_ENTRIES else None
        position, reason = self._first
        more = f" ({self._count} of {self._size // self._entry_size} entries are wrong)" if self._count > 1 else ""
        remedy = Remedy(RemedyKind.INDEXES, self.path)
        length = min(self._entry_size, self._size - position)
        return LogFinding(Severity.DAMAGE, "index", self.path, reason + more, meaning, position, length, remedy=remedy)

    def _odd_one(self) -> LogFinding:
        position, reason = self._odd[0]
        remedy = Remedy(RemedyKind.INDEXES, self.path)
        meaning = "it does no harm, but all other entries are exact"
        return LogFinding(
            Severity.WARNING, "odd-entry", self.path, reason, meaning, position, self._entry_size, remedy=remedy
        )


class OffsetIndexCheck:
    """Each entry must point to the start of a batch, and name the last offset of that batch or one soon after.

    (A broker that appends several batches at once adds one entry for them: the position of the first, the last offset
    of the last.)
    """

    def __init__(self, file: ReadableFile, base_offset: int) -> None:
        self._faults = _Faults(file, OFFSET_ENTRY.size)
        self._entries = self._growing(file, base_offset)
        self._next = next(self._entries, None)
        self._open: tuple[int, int] | None = None
        self._last_offset = -1
        self._last_position = 0
        self._distance = 0

    def _growing(self, file: ReadableFile, base_offset: int) -> Iterator[tuple[int, int, int]]:
        """(position in the index, offset, log position) of the entries that are in order."""
        end = first_of_zero_tail(file, OFFSET_ENTRY.size) * OFFSET_ENTRY.size
        last = (-1, -1)
        for place, (relative, position) in entries(file, OFFSET_ENTRY):
            if place >= end:
                return
            if relative <= last[0] or position <= last[1]:
                before = f"{base_offset + last[0]} at {last[1]}"
                reason = f"entry {base_offset + relative} at {position} comes behind {before}"
                self._faults.add(place, reason)
                continue
            last = (relative, position)
            yield place, base_offset + relative, position

    def batch(self, batch: IndexedBatch) -> None:
        """Process the next intact batch of the log."""
        self._close(batch)
        while self._next is not None and self._next[2] <= batch.position:
            place, offset, position = self._next
            self._next = next(self._entries, None)
            self._distance = max(self._distance, position - self._last_position)
            self._last_position = position
            if position < batch.position:
                self._faults.add(place, f"the entry of offset {offset} points to {position}, where no batch begins")
            elif offset <= self._last_offset:
                self._faults.add(place, f"the entry of offset {offset} points to {position}, behind that offset")
            elif offset != batch.last_offset and not (batch.loose and offset <= batch.last_offset):
                self._open = (place, offset)
            else:
                self._faults.exact()
        self._last_offset = batch.last_offset

    def _close(self, batch: IndexedBatch) -> None:
        """Check whether an entry covers several batches of which this may be the last."""
        if self._open is None:
            return
        place, offset = self._open
        if batch.last_offset < offset and (self._next is None or self._next[2] > batch.position):
            return
        self._open = None
        if batch.last_offset != offset and not (batch.loose and batch.base_offset <= offset):
            self._faults.add(place, f"the entry of offset {offset}: no batch there ends with that offset")
        elif not batch.loose:
            self._faults.odd(place, f"the entry of offset {offset} does not point to the batch that ends with it")

    def skip(self, position: int, length: int) -> None:
        """Skip a damaged range of the log."""
        self._open = None
        while self._next is not None and self._next[2] < position + length:
            if self._next[2] < position:
                self._faults.add(self._next[0], f"the entry of offset {self._next[1]} points to where no batch begins")
            self._next = next(self._entries, None)

    def finish(self, end: int, growing: bool) -> LogFinding | None:
        """Finish at the end of the log; `growing` says that a broker may have appended since."""
        if self._open is not None and not growing:
            self._faults.add(self._open[0], f"the entry of offset {self._open[1]}: no batch ends with that offset")
        while self._next is not None:
            place, offset, position = self._next
            if not growing:
                self._faults.add(place, f"the entry of offset {offset} points to {position}, the log ends at {end}")
            self._next = next(self._entries, None)
        found = self._faults.finding("records may not be found by their offset until the index is rebuilt")
        if found is None and not growing and end - self._last_position > max(_LEAST_DISTANCE, _THIN * self._distance):
            message = f"the last entry points to {self._last_position}, the log continues to {end}"
            meaning = "records behind it are found slowly"
            remedy = Remedy(RemedyKind.INDEXES, self._faults.path)
            return LogFinding(Severity.WARNING, "thin-index", self._faults.path, message, meaning, remedy=remedy)
        return found


class TimeIndexCheck:
    """Each entry must name the largest timestamp so far and an offset in the batch that has it."""

    def __init__(self, file: ReadableFile, base_offset: int) -> None:
        self._faults = _Faults(file, TIME_ENTRY.size)
        self._entries = self._growing(file, base_offset)
        self._next = next(self._entries, None)
        self._largest = -1

    def _growing(self, file: ReadableFile, base_offset: int) -> Iterator[tuple[int, int, int]]:
        """(position in the index, timestamp, offset) of the entries that are in order."""
        end = first_of_zero_tail(file, TIME_ENTRY.size) * TIME_ENTRY.size
        last: tuple[int, int] | None = None
        for place, (timestamp, relative) in entries(file, TIME_ENTRY):
            if place >= end:
                return
            if last is not None and (timestamp <= last[0] or relative < last[1]):
                reason = f"entry {timestamp} of offset {base_offset + relative} does not follow the one before"
                self._faults.add(place, reason)
                continue
            last = (timestamp, relative)
            yield place, timestamp, base_offset + relative

    def batch(self, batch: IndexedBatch) -> None:
        """Process the next intact batch of the log."""
        self._largest = max(self._largest, batch.max_timestamp)
        while self._next is not None and self._next[2] <= batch.last_offset:
            place, timestamp, offset = self._next
            self._next = next(self._entries, None)
            exact = batch.base_offset <= offset and batch.max_timestamp == timestamp
            if timestamp < self._largest or not (exact or batch.loose):
                reason = f"entry {timestamp} of offset {offset}: the largest timestamp up to there is {self._largest}"
                self._faults.add(place, reason)
            elif exact and offset == batch.last_offset:
                self._faults.exact()
            elif not batch.loose:
                self._faults.odd(place, f"entry {timestamp} of offset {offset}: its batch ends at {batch.last_offset}")

    def skip(self, last_offset: int) -> None:
        """Skip damaged records up to `last_offset`."""
        while self._next is not None and self._next[2] <= last_offset:
            self._largest = max(self._largest, self._next[1])
            self._next = next(self._entries, None)

    def finish(self, growing: bool) -> LogFinding | None:
        """Finish at the end of the log."""
        while self._next is not None:
            place, timestamp, offset = self._next
            if not growing:
                self._faults.add(place, f"entry {timestamp} of offset {offset}, which is not in the log")
            self._next = next(self._entries, None)
        return self._faults.finding("searches by time and retention by time may go wrong until it is rebuilt")


class TxnIndexCheck:
    """Each entry must match an abort marker in the segment, and each marker that ends a transaction needs an entry."""

    def __init__(self, file: ReadableFile | None, path: str) -> None:
        self.path = path
        self._faults = None if file is None else _Faults(file, TXN_ENTRY.size)
        self._entries = iter(()) if file is None else self._growing(file)
        self._next = next(self._entries, None)
        self._missing: TransactionEnd | None = None

    def _growing(self, file: ReadableFile) -> Iterator[tuple[int, AbortedEntry]]:
        last_offset = -1
        for place, fields in entries(file, TXN_ENTRY):
            entry = AbortedEntry(*fields)
            is_valid = entry.producer_id >= 0 and 0 <= entry.first_offset <= entry.last_offset
            if entry.version != TXN_INDEX_VERSION or not is_valid or entry.last_offset <= last_offset:
                self._fault(place, f"no entry of an aborted transaction can be {tuple(entry)}")
                continue
            last_offset = entry.last_offset
            yield place, entry

    def _fault(self, place: int, reason: str) -> None:
        if self._faults is not None:
            self._faults.add(place, reason)

    def marker(self, kind: ControlRecordType, end: TransactionEnd | None, offset: int, loose: bool) -> None:
        """Process a marker at `offset`; `end` describes the transaction that it aborts, None for other kinds."""
        while self._next is not None and self._next[1].last_offset < offset:
            if not loose:
                self._fault(self._next[0], f"no transaction was aborted at offset {self._next[1].last_offset}")
            self._next = next(self._entries, None)
        mine = self._next is not None and self._next[1].last_offset == offset
        if self._next is None or not mine:
            if end is not None and end.first_offset >= 0 and not loose and self._missing is None:
                self._missing = end
            return
        place, entry = self._next
        self._next = next(self._entries, None)
        if kind is not ControlRecordType.ABORT or end is None or end.producer_id != entry.producer_id:
            self._fault(place, f"at offset {offset} no transaction of producer {entry.producer_id} was aborted")
        elif not end.began_at(entry.first_offset):
            reason = f"the transaction aborted at {offset} began at {end.first_offset}, not {entry.first_offset}"
            self._fault(place, reason)
        elif not end.was_stable_to(entry.last_stable_offset):
            reason = f"the last stable offset at {offset} was {end.last_stable_offset}, not {entry.last_stable_offset}"
            self._fault(place, reason)

    def finish(self, growing: bool, loose: bool) -> LogFinding | None:
        """Finish at the end of the segment."""
        while self._next is not None:
            place, entry = self._next
            if not growing and not loose:
                self._fault(place, f"no transaction was aborted at offset {entry.last_offset}")
            self._next = next(self._entries, None)
        meaning = "consumers of committed records only may get aborted ones, or miss some"
        found = None if self._faults is None else self._faults.finding(meaning)
        if found is None and self._missing is not None and not growing:
            missing = self._missing
            message = f"no entry for the transaction of producer {missing.producer_id} aborted at {missing.offset}"
            remedy = Remedy(RemedyKind.INDEXES, self.path)
            offsets = (missing.first_offset, missing.offset)
            return LogFinding(Severity.DAMAGE, "index", self.path, message, meaning, -1, -1, *offsets, remedy)
        return found
