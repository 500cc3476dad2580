"""Checks of a partition's log: each batch, its records, and the sequence of batches over all segments.

Base offset and leader epoch of a batch are not covered by its checksum. They are checked against the neighbours: in a
log that was never compacted offsets have no gaps, and the epochs are those of the checkpoint. So each batch is held
back until some batches behind it have been read.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.env.file_reader import ReadableFile
from ottla.inspection.batch_rows import records_of
from ottla.inspection.findings import LogFinding, Remedy, RemedyKind, Severity, Tally
from ottla.inspection.index_checks import IndexedBatch, OffsetIndexCheck, TimeIndexCheck, TransactionEnd, TxnIndexCheck
from ottla.inspection.walk import DamagedRange, LogBatch, LogWalker, Patch
from ottla.records.batch import BASE_OFFSET_AT, LEADER_EPOCH_AT, BatchHeader
from ottla.records.control import ControlRecordType, control_record_type
from ottla.records.errors import BatchError, ExpansionError
from ottla.records.message_set import MessageHeader
from ottla.records.record import Record
from ottla.storage.segment import MAX_RELATIVE_OFFSET

#: Number of following batches that are compared when the offsets of batches contradict each other.
WITNESSES: Final = 8
_OFFSET: Final = struct.Struct(">q")
_WRONG_OFFSET: Final = "offset"
_NO_OFFSET: Final = "order"
_EPOCH: Final = struct.Struct(">i")


@dataclass(slots=True)
class LogFacts:
    """Facts of a log, known before it is read. `compacted_below`: gaps between offsets below it are valid.

    `epochs` are (epoch, first offset) of the checkpoint. `in_use` says that a broker may be writing.
    """

    epochs: list[tuple[int, int]] = field(default_factory=list)
    compacted_below: int = 0
    in_use: bool = False
    with_records: bool = True

    def epoch_at(self, offset: int) -> int:
        """The leader epoch at an offset, by the checkpoint; -1 if it has none."""
        for epoch, start in reversed(self.epochs):
            if start <= offset:
                return epoch
        return -1


@dataclass(slots=True)
class _Met:
    """A batch or a damaged range, in its segment. `first` is the first offset, None if unknown."""

    path: str
    segment: int
    item: LogBatch | DamagedRange
    first: int | None = None
    last: int = -1
    records: list[Record] | None = None
    problem: str = ""
    unread: str = ""


@dataclass(slots=True)
class SegmentFiles:
    """The open files of a segment; None for a missing one."""

    base_offset: int
    log: ReadableFile
    offset_index: ReadableFile | None
    time_index: ReadableFile | None
    txn_index: ReadableFile | None
    txn_path: str
    #: The base offset of the next segment, None for the last.
    following: int | None
    #: Whether a repair has taken damaged bytes out of the log file.
    repaired: bool = False


class LogCheck:
    """The check of one log, segment by segment in order. It keeps little state: a batch, and the open transactions."""

    def __init__(self, facts: LogFacts, tally: Tally) -> None:
        self._facts = facts
        self._tally = tally
        #: The expected first offset of the next batch; None if unknown.
        self._expected: int | None = None
        self._end = -1
        self._compacted = False
        self._epoch = -1
        #: Where the log first contradicts the leader epoch checkpoint: offset, and the epoch there.
        self.epochs_contradicted: tuple[int, int] | None = None
        self._transactions: dict[int, int] = {}
        self._knows_all_transactions = False

    @property
    def end_offset(self) -> int:
        """The offset after the last record read, -1 if there is none."""
        return self._end

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last batch, -1 if none had one."""
        return self._epoch

    def segment(self, files: SegmentFiles) -> Iterator[LogFinding]:
        """Check a segment. Raises DiskError."""
        if self._expected is None and self._end < 0:
            self._expected = files.base_offset
            self._knows_all_transactions = files.base_offset == 0
        checks = _IndexChecks(files)
        held: deque[_Met] = deque()
        for met in self._meet(files):
            held.append(met)
            if len(held) > WITNESSES:
                yield from self._judge(held.popleft(), held, files, checks)
        while held:
            yield from self._judge(held.popleft(), held, files, checks)
        growing = self._facts.in_use and files.following is None
        yield from checks.finish(files.log.size, growing, self._loose(files.base_offset))
        if files.following is not None and self._expected is not None and self._expected > files.following:
            message = f"the segment continues to offset {self._expected - 1}, beyond the next one's start"
            yield LogFinding(Severity.DAMAGE, "order", files.log.path, message, first_offset=files.following)

    def _meet(self, files: SegmentFiles) -> Iterator[_Met]:
        walker = LogWalker(files.log)
        self._tally.bytes += files.log.size
        for item in walker:
            met = _Met(files.log.path, files.base_offset, item)
            if isinstance(item, LogBatch):
                self._tally.batches += 1
                self._read_records(walker, item, met)
                item.data = None  # several are held back, and their bytes are not needed any more
            yield met

    def _read_records(self, walker: LogWalker, batch: LogBatch, met: _Met) -> None:
        header = batch.header
        met.last = batch.last_offset
        wrapper = isinstance(header, MessageHeader) and header.is_wrapper
        met.first = None if wrapper else batch.base_offset
        control = isinstance(header, BatchHeader) and header.is_control
        if not self._facts.with_records and not control:
            return
        try:
            records = records_of(walker, batch)
        except ExpansionError as error:
            met.unread = str(error)
            return
        except BatchError as error:
            met.problem = str(error)
            return
        self._tally.records += len(records)
        met.records = records if control else None
        if wrapper:
            met.first = records[0].offset
        elif isinstance(header, BatchHeader):
            met.problem = _misplaced(header, records)

    # -- a batch and those behind it

    def _judge(self, met: _Met, ahead: deque[_Met], files: SegmentFiles, checks: _IndexChecks) -> Iterator[LogFinding]:
        following = ahead[0] if ahead else None
        if isinstance(met.item, DamagedRange):
            yield self._damage(met, met.item, following, files)
            lost_until = self._lost_until(met.item, following, files)
            checks.skip(met.item.position, met.item.length, lost_until)
            if not met.item.zeros:
                self._expected = None
                self._transactions.clear()
                self._knows_all_transactions = False
            return
        batch = met.item
        if met.problem:
            yield self._unreadable(met, batch)
        elif met.unread:
            message = f"records were not checked: {met.unread}"
            yield LogFinding(Severity.NOTICE, "unread", met.path, message, "", batch.position, batch.length)
        fault = self._offset_fault(met, batch, ahead, files)
        if fault is not None:
            yield fault
            if fault.kind == _NO_OFFSET:
                checks.skip(batch.position, batch.length, None)
                self._expected = None
                return
            if fault.kind == _WRONG_OFFSET and fault.first_offset is not None and met.first is not None:
                met.last += fault.first_offset - met.first
                met.first = fault.first_offset
        epoch_fault = self._epoch_fault(met, batch, following)
        if epoch_fault is not None:
            yield epoch_fault
        if isinstance(batch.header, BatchHeader) and batch.header.records_count <= batch.header.last_offset_delta:
            self._compacted = True
        loose = self._loose(met.last)
        first = batch.base_offset if met.first is None else met.first
        checks.batch(IndexedBatch(batch.position, batch.length, first, met.last, batch.max_timestamp, loose))
        self._transaction(met, batch, checks, loose)
        self._expected = met.last + 1
        self._end = max(self._end, met.last + 1)

    def _damage(self, met: _Met, item: DamagedRange, following: _Met | None, files: SegmentFiles) -> LogFinding:
        tail = following is None and files.following is None
        position, length = item.position, item.length
        if tail and self._facts.in_use and (item.zeros or item.cut_off):
            message = f"{item.reason}; a broker is using the directory and may be writing here"
            return LogFinding(Severity.NOTICE, "tail", met.path, message, "", position, length)
        if item.zeros and tail:
            meaning = "space allocated in advance, or records lost with the power; brokers cut it off when they start"
            remedy = Remedy(RemedyKind.CUT, met.path, position, length, keep=False)
            return LogFinding(
                Severity.WARNING, "zeros", met.path, item.reason, meaning, position, length, remedy=remedy
            )
        first, last = self._lost(item, following, files)
        if item.patches:
            remedy = Remedy(RemedyKind.PATCH, met.path, position, length, tuple(item.patches))
            meaning = "the records are whole, but cannot be read until the header of their batch is repaired"
            return LogFinding(
                Severity.DAMAGE, "header", met.path, item.reason, meaning, position, length, first, last, remedy
            )
        kind = "cut-off" if item.cut_off and tail else "batch"
        meaning = _lost_records(first, last)
        if item.cut_off and tail:
            meaning += "; a write that was interrupted looks like this, brokers cut it off when they start"
        remedy = Remedy(RemedyKind.CUT, met.path, position, length)
        return LogFinding(Severity.DAMAGE, kind, met.path, item.reason, meaning, position, length, first, last, remedy)

    def _lost(self, item: DamagedRange, following: _Met | None, files: SegmentFiles) -> tuple[int | None, int | None]:
        """First and last offset lost with a damaged range."""
        first = self._expected if self._expected is not None else (self._end if self._end >= 0 else None)
        last = self._lost_until(item, following, files)
        if last is not None and first is not None and last < first:
            return None, None
        return first, last

    def _lost_until(self, item: DamagedRange, following: _Met | None, files: SegmentFiles) -> int | None:
        if following is not None and following.first is not None:
            return following.first - 1
        if following is None and files.following is not None:
            return files.following - 1
        header = item.header
        start = max(self._end, 0)
        if isinstance(header, BatchHeader) and header.base_offset == self._expected:
            return max(header.last_offset, start)
        return None

    def _unreadable(self, met: _Met, batch: LogBatch) -> LogFinding:
        meaning = "the checksum is right, so it was written like this: clients cannot read these records"
        remedy = Remedy(RemedyKind.CUT, met.path, batch.position, batch.length)
        offsets = (batch.base_offset if met.first is None else met.first, met.last)
        message = f"records: {met.problem}"
        return LogFinding(
            Severity.DAMAGE, "records", met.path, message, meaning, batch.position, batch.length, *offsets, remedy
        )

    def _offset_fault(self, met: _Met, batch: LogBatch, ahead: deque[_Met], files: SegmentFiles) -> LogFinding | None:
        """Check the first offset of a batch.

        If the neighbours allow only one value, the finding names it. If offsets contradict each other, that batch is
        wrong which does not continue the ones before it, or which more of the following ones contradict than confirm.
        """
        first, expected = met.first, self._expected
        if first is None or first == expected:
            return None
        impossible = first < files.base_offset or met.last - files.base_offset > MAX_RELATIVE_OFFSET
        contradicted = impossible or first < self._end or _spoken_against(met, ahead, self._end, files.following)
        right = self._right_offset(met, batch, ahead, files, contradicted)
        position = batch.position
        if right is not None:
            last = right + met.last - first
            patch = Patch(position + BASE_OFFSET_AT, _OFFSET.pack(right))
            remedy = Remedy(RemedyKind.PATCH, met.path, position, 8, (patch,))
            message = f"the batch begins with offset {first}, by its neighbours it should be {right}"
            meaning = f"the records {right} to {last} are whole, but found under wrong offsets or not at all"
            return LogFinding(
                Severity.DAMAGE, _WRONG_OFFSET, met.path, message, meaning, position, 8, right, last, remedy
            )
        if contradicted:
            message = f"the batch has the offsets {first} to {met.last}, which do not fit between its neighbours"
            meaning = "their true offsets are not known; clients find these records under wrong ones or not at all"
            remedy = Remedy(RemedyKind.CUT, met.path, position, batch.length)
            span = (position, batch.length)
            return LogFinding(Severity.DAMAGE, _NO_OFFSET, met.path, message, meaning, *span, remedy=remedy)
        if expected is None or self._loose(first - 1):
            return None
        message = f"offsets {expected} to {first - 1} are missing"
        meaning = "in a log that is not compacted that is a loss, or the batch's first offset is damaged"
        if files.repaired:
            meaning = "a repair took damaged bytes out of this segment and kept them beside it"
        severity = Severity.WARNING if files.repaired else Severity.DAMAGE
        return LogFinding(severity, "gap", met.path, message, meaning, position, 8, expected, first - 1)

    def _right_offset(
        self, met: _Met, batch: LogBatch, ahead: deque[_Met], files: SegmentFiles, contradicted: bool
    ) -> int | None:
        """The correct first offset of a batch, None if the neighbours do not determine it, or it is correct."""
        behind = ahead[0].first if ahead else files.following
        if not isinstance(batch.header, BatchHeader) or met.first is None:
            return None
        if behind is None:
            # The last batch of a log: no batch behind it could contradict the expected offset.
            last_one = contradicted and not ahead and self._expected is not None and not self._loose(self._expected)
            return self._expected if last_one else None
        right = behind - (met.last - met.first + 1)
        if right == self._expected:
            return right
        # The batch before does not determine it, or there is a gap: the next one does, if it is not contradicted
        # itself.
        sure = not ahead or (len(ahead) > 1 and ahead[1].first == ahead[0].last + 1)
        known = self._expected if self._expected is not None else max(self._end, 0)
        return right if contradicted and sure and right >= known and not self._loose(behind) else None

    def _epoch_fault(self, met: _Met, batch: LogBatch, following: _Met | None) -> LogFinding | None:
        """Check the leader epoch of a batch.

        One that differs from both neighbours is damaged; if a neighbour has it too, the checkpoint is wrong.
        """
        epoch, before = batch.leader_epoch, self._epoch
        if batch.magic < 2 or epoch < 0 or met.first is None:
            return None
        known = self._facts.epoch_at(met.first)
        right = known if known >= 0 else before
        beside = following.item.leader_epoch if following is not None and isinstance(following.item, LogBatch) else -1
        alone = epoch not in (before, beside) and (before >= 0 or beside >= 0)
        self._epoch = epoch
        if epoch == right or right < 0:
            return None
        if known < 0 and beside != before:
            return None  # without a checkpoint it is only known that epochs increase
        if not alone:
            self.epochs_contradicted = self.epochs_contradicted or (met.first, epoch)
            return None
        self._epoch = right
        patch = Patch(batch.position + LEADER_EPOCH_AT, _EPOCH.pack(right))
        remedy = Remedy(RemedyKind.PATCH, met.path, batch.position + LEADER_EPOCH_AT, 4, (patch,))
        message = f"the batch of offset {met.first} has leader epoch {epoch}, by its neighbours it should be {right}"
        meaning = "nothing is lost; replicas and clients that compare epochs may be misled"
        span = (batch.position + LEADER_EPOCH_AT, 4)
        return LogFinding(Severity.DAMAGE, "epoch", met.path, message, meaning, *span, met.first, met.last, remedy)

    def _loose(self, offset: int) -> bool:
        """Whether gaps up to `offset` are valid, as the log was compacted there."""
        return self._compacted or offset < self._facts.compacted_below

    def _transaction(self, met: _Met, batch: LogBatch, checks: _IndexChecks, loose: bool) -> None:
        """Track open transactions, and pass markers to the check of the transaction index."""
        header = batch.header
        if not isinstance(header, BatchHeader) or not header.is_transactional:
            return
        producer, first = header.producer_id, met.first if met.first is not None else batch.base_offset
        if not header.is_control:
            # An empty batch left by compaction keeps a producer's sequence; its transaction's marker may have been
            # removed.
            if header.records_count:
                self._transactions.setdefault(producer, first)
            return
        try:
            kind = control_record_type(met.records[0].key if met.records else None)
        except BatchError:
            return
        began = self._transactions.pop(producer, -1)
        end = None
        if kind is ControlRecordType.ABORT:
            stable = min(self._transactions.values(), default=met.last + 1) if self._knows_all_transactions else -1
            compacted = self._compacted or self._facts.compacted_below > 0
            end = TransactionEnd(producer, met.last, began, stable, compacted)
        checks.transactions.marker(kind, end, met.last, loose)


class _IndexChecks:
    """The checks of the three indexes of a segment."""

    def __init__(self, files: SegmentFiles) -> None:
        base = files.base_offset
        self._offsets = None if files.offset_index is None else OffsetIndexCheck(files.offset_index, base)
        self._times = None if files.time_index is None else TimeIndexCheck(files.time_index, base)
        self.transactions = TxnIndexCheck(files.txn_index, files.txn_path)

    def batch(self, batch: IndexedBatch) -> None:
        """Process the next intact batch."""
        if self._offsets is not None:
            self._offsets.batch(batch)
        if self._times is not None:
            self._times.batch(batch)

    def skip(self, position: int, length: int, last_offset: int | None) -> None:
        """Skip a damaged range of the log, which held offsets up to `last_offset`, if known."""
        if self._offsets is not None:
            self._offsets.skip(position, length)
        if self._times is not None and last_offset is not None:
            self._times.skip(last_offset)

    def finish(self, end: int, growing: bool, loose: bool) -> Iterator[LogFinding]:
        """Finish at the end of the segment."""
        found = [
            None if self._offsets is None else self._offsets.finish(end, growing),
            None if self._times is None else self._times.finish(growing),
            self.transactions.finish(growing, loose),
        ]
        yield from (each for each in found if each is not None)


def _spoken_against(met: _Met, ahead: deque[_Met], end: int, ceiling: int | None) -> bool:
    """Whether later batches contradict the offsets of this one, which does not continue the ones before it.

    They do if a contradicting one is confirmed by a neighbour and this one is not; else if most of them contradict it;
    a single one, if it is nearer to `end`, the end of the part that is known. Batches that lie before `end` are wrong
    themselves and do not count. `ceiling` is the next segment's first offset.
    """
    first = met.first
    if first is None or (ceiling is not None and met.last >= ceiling):
        return first is not None
    group = [met, *ahead]
    counting = [n for n, each in enumerate(group) if n and each.first is not None and each.first >= end]
    against = [n for n in counting if _first(group[n]) <= met.last]
    if against and not _confirmed(group, 0) and any(_confirmed(group, number) for number in against):
        return True
    if len(against) == 1:
        return len(counting) == 1 and _first(group[against[0]]) < first
    return 2 * len(against) > len(counting)


def _first(met: _Met) -> int:
    return -1 if met.first is None else met.first


def _confirmed(group: list[_Met], number: int) -> bool:
    """Whether an adjacent batch continues it, or is continued by it, without a gap."""
    met = group[number]
    before = number > 0 and group[number - 1].first is not None and group[number - 1].last + 1 == met.first
    behind = number + 1 < len(group) and group[number + 1].first == met.last + 1
    return before or behind


def _misplaced(header: BatchHeader, records: list[Record]) -> str:
    """Find a wrong offset or control record among a batch's records; "" if there is none."""
    last = header.base_offset - 1
    for record in records:
        if not last < record.offset <= header.last_offset:
            return f"offset {record.offset} within a batch of {header.base_offset} to {header.last_offset}"
        last = record.offset
    if header.is_control and records:
        try:
            control_record_type(records[0].key)
        except BatchError as error:
            return str(error)
    return ""


def _lost_records(first: int | None, last: int | None) -> str:
    if first is None:
        return "no records that are known of are concerned"
    if last is None:
        return f"records from offset {first} on cannot be read"
    return f"the record {first} cannot be read" if first == last else f"the records {first} to {last} cannot be read"
