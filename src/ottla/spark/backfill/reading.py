"""Reading a range of offsets from segment files as Arrow batches; runs in tasks and worker processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.errors import RecordTimestampError
from ottla.client.model import TopicPartition
from ottla.env.disk import DiskError
from ottla.records.arrow import ArrowRows
from ottla.records.batch import (
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    check_crc,
    parse_batch_header,
    split_batches,
)
from ottla.records.errors import BatchError, MissingLibraryError, TimestampRangeError
from ottla.records.message_set import check_message_crc, parse_message_header
from ottla.records.upgrade import upgrade
from ottla.spark.backfill.errors import DamagedBatchError, SegmentError
from ottla.spark.backfill.heads import SMALLEST, is_zero
from ottla.spark.backfill.missing import sign_of_loss
from ottla.spark.backfill.segments import OpenSegment, OpenSegments
from ottla.spark.backfill.transactions import aborted_transactions
from ottla.spark.errors import TIMESTAMP_CURE, DataLossError, SparkRefusal

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger(__name__)

#: Bytes of a segment that are read at a time; more for a larger batch.
WINDOW_BYTES: Final = 4 * 1024 * 1024
#: Attempts to read a range whose segments are replaced while transactions are looked up.
MOST_REPLACED: Final = 100
_OFFSET_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The input of one task: the committed records of one partition from `start` (inclusive) to `end` (exclusive).

    `directory` is the partition's directory; `size_bytes` estimates the bytes to read there.
    """

    directory: str
    topic: str
    partition: int
    start: int
    end: int
    size_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class BatchRun:
    """Intact batches that lie one behind the other in a file: the bytes, and the headers that locate them in these.

    `position` is that of the bytes in the file; batches that were made of messages of old formats all have that one.
    """

    path: str
    position: int
    buffer: memoryview
    headers: list[BatchHeader]
    is_upgraded: bool = False

    def damage(self, header: BatchHeader, reason: str) -> DamagedBatchError:
        """The error for records of a batch that cannot be decoded."""
        position = self.position if self.is_upgraded else self.position + header.position
        return DamagedBatchError(self.path, position, header.base_offset, reason)


def read_rows(
    wanted: SegmentRange,
    *,
    rows_per_batch: int,
    include_headers: bool,
    fail_on_data_loss: bool,
    timestamp_unit: str | None = "us",
) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a range, as `Client.read_range_arrow` gives them; those before an error come first.

    Raises DataLossError, SegmentError, RecordTimestampError.
    """
    rows = ArrowRows(
        wanted.topic,
        wanted.partition,
        wanted.start,
        wanted.end,
        rows_per_batch=rows_per_batch,
        include_headers=include_headers,
        timestamp_unit=timestamp_unit,
    )
    failed: SparkRefusal | None = None
    try:
        try:
            yield from _full(rows, wanted, fail_on_data_loss=fail_on_data_loss)
        except SparkRefusal as error:
            failed = error
        yield from rows.take()
    except TimestampRangeError as error:
        source = TopicPartition(wanted.topic, wanted.partition)
        raise RecordTimestampError(source, error.offset, error.timestamp, TIMESTAMP_CURE) from error
    if failed is not None:
        raise failed


def _full(rows: ArrowRows, wanted: SegmentRange, *, fail_on_data_loss: bool) -> Iterator[pyarrow.RecordBatch]:
    """Add the range to `rows`, and yield them whenever they are full."""
    try:
        for run in committed_runs(wanted, fail_on_data_loss=fail_on_data_loss):
            for header in run.headers:
                _add(rows, run, header)
                if rows.full:
                    yield from rows.take()
    except DiskError as error:
        raise SegmentError(f"{wanted} cannot be read: {error}") from error


def _add(rows: ArrowRows, run: BatchRun, header: BatchHeader) -> None:
    try:
        rows.add(run.buffer, header)
    except MissingLibraryError as error:
        raise SegmentError(f"{run.path} cannot be read: {error}") from error
    except BatchError as error:
        raise run.damage(header, str(error)) from error


def committed_runs(wanted: SegmentRange, *, fail_on_data_loss: bool) -> Iterator[BatchRun]:
    """The batches of a range that hold records of applications, without those of aborted transactions.

    Transactions are looked up when the first transactional batch is found. If the segments were compacted since they
    were opened, they are opened again, and read on where they were left. Raises as `read_rows`, and DiskError.
    """
    position = wanted.start
    for _ in range(MOST_REPLACED):
        with OpenSegments(
            wanted.directory, str(wanted), position, wanted.end, fail_on_data_loss=fail_on_data_loss
        ) as view:
            aborted = None
            for run in _runs(view, wanted, position, fail_on_data_loss=fail_on_data_loss):
                if aborted is None and any(header.is_transactional for header in run.headers):
                    aborted = aborted_transactions(view, position, wanted.end)
                    if aborted is None:
                        break
                position = run.headers[-1].next_offset
                run.headers = [
                    header
                    for header in run.headers
                    if header.records_count and not header.is_control and not (aborted and aborted.holds(header))
                ]
                if run.headers:
                    yield run
            else:
                return
    raise SegmentError(f"the segments in {wanted.directory} are replaced faster than they can be read; try again later")


def _runs(view: OpenSegments, wanted: SegmentRange, position: int, *, fail_on_data_loss: bool) -> Iterator[BatchRun]:
    """All batches from `position` to the end of the range, whatever they hold."""
    reached_end = bool(view.following) or not view.segments
    for segment in view.segments:
        reader = _SegmentReader(segment, position, wanted.end)
        yield from reader
        position = reader.position
        reached_end |= reader.reached_end
        if not reader.reached_end and segment.next_base is not None and position < segment.next_base:
            _check_gap(segment, segment.next_base, wanted, position, fail=fail_on_data_loss)
    if not reached_end:
        raise SegmentError(
            f"{view.directory}: the log ends at offset {position}, and was to be read to {wanted.end}: it was "
            "truncated meanwhile; plan the read again"
        )


def _check_gap(segment: OpenSegment, next_base: int, wanted: SegmentRange, position: int, *, fail: bool) -> None:
    """Check that no segment is missing between this one, which ends at `position`, and the next. DataLossError."""
    sign = sign_of_loss(segment, next_base, (wanted.topic, wanted.partition), position)
    if sign is None:
        return
    what = f"{wanted}: offsets {position} to {next_base - 1} are missing in {segment.directory}: {sign}"
    if fail:
        raise DataLossError(
            f"{what}; name another replica's log directory, or set failOnDataLoss to false to continue without them"
        )
    log.warning("%s; continuing without them", what)


class _SegmentReader:
    """Iterates over the batches of one segment that end at `position` or later and begin before `end`.

    Afterwards `position` is the offset behind the last one, and `reached_end` says whether there was one up to or
    behind `end`.
    """

    def __init__(self, segment: OpenSegment, position: int, end: int) -> None:
        self.position = position
        self.reached_end = False
        self._segment = segment
        self._path = segment.file.path
        self._end = end
        #: The offset behind the batch before, in this file.
        self._next_offset = segment.name.base_offset

    def __iter__(self) -> Iterator[BatchRun]:
        """Runs of batches. Raises DiskError, DamagedBatchError."""
        file = self._segment.file
        at = self._segment.position_of(self.position)
        size = file.measure()
        while at < size and not self.reached_end:
            window = memoryview(file.pread(min(WINDOW_BYTES, size - at), at))
            length = self._first_length(window, at, size)
            if not length:
                return
            if length > len(window):
                window = memoryview(file.pread(length, at))
            entries = list(_whole_entries(window))
            if not entries:
                return  # the file was cut meanwhile
            yield from self._split(window, at, entries)
            at += sum(entries[-1])

    def _first_length(self, window: memoryview, at: int, size: int) -> int:
        """The length of the batch that the window begins with; 0 where the log ends. Raises DamagedBatchError."""
        left = size - at
        if len(window) <= MAGIC_AT:
            reason = f"{left} bytes at the end are too few for a batch"
        else:
            length, magic = _entry(window, 0)
            offset = int.from_bytes(window[:_OFFSET_BYTES], "big", signed=True)
            if not 0 <= magic <= MAGIC or length < SMALLEST[magic]:
                reason = f"there is no batch: its format would be {magic}, its length {length}"
            elif length <= left:
                return length
            else:
                reason = f"the file ends within a batch of {length} bytes, after {left} of them"
                if offset >= self._end:  # it is still being written, and not wanted
                    self.reached_end = True
                    return 0
        if self._segment.next_base is None and is_zero(self._segment.file, at):
            return 0
        raise DamagedBatchError(self._path, at, self._next_offset, reason)

    def _split(self, window: memoryview, at: int, entries: list[tuple[int, int]]) -> Iterator[BatchRun]:
        """The runs of the batches at these places in the window, which lies at `at` in the file.

        Those before a damaged one come before its error.
        """
        headers: list[BatchHeader] = []
        messages: list[tuple[int, int]] = []
        damaged: DamagedBatchError | None = None
        for start, length in entries:
            is_batch = window[start + MAGIC_AT] == MAGIC
            if is_batch and messages:
                yield from self._upgraded(window, at, messages)
                messages = []
            if not is_batch and headers:
                yield BatchRun(self._path, at, window, headers)
                headers = []
            if is_batch:
                header = parse_batch_header(window, start)
                try:
                    if self._is_wanted(window, header, at + start):
                        headers.append(header)
                except DamagedBatchError as error:
                    damaged = error
            else:
                messages.append((start, length))
            if self.reached_end or damaged is not None:
                break
        if headers:
            yield BatchRun(self._path, at, window, headers)
        if messages:
            yield from self._upgraded(window, at, messages)
        if damaged is not None:
            raise damaged

    def _is_wanted(self, window: memoryview, header: BatchHeader, at: int) -> bool:
        """Check a batch, and go behind it if it is wanted. Raises DamagedBatchError."""
        if header.base_offset >= self._end:
            self._check_is_behind(window, header, at)
            self.reached_end = True
            return False
        if header.last_offset < self.position:
            return False
        self._check(window, header, at)
        return True

    def _check(self, window: memoryview, header: BatchHeader, at: int) -> None:
        """Check a batch that is wanted, and go behind it. Raises DamagedBatchError."""
        if not check_crc(window, header):
            raise DamagedBatchError(self._path, at, header.base_offset, "the batch has a wrong checksum")
        if header.last_offset_delta < 0 or header.records_count < 0:
            raise DamagedBatchError(self._path, at, header.base_offset, "the number of offsets or records is negative")
        if header.base_offset < self._next_offset:
            reason = f"the batch begins before offset {self._next_offset}, where the one before ends"
            raise DamagedBatchError(self._path, at, header.base_offset, reason)
        self._go_to(header.next_offset)

    def _check_is_behind(self, window: memoryview, header: BatchHeader, at: int) -> None:
        """Check that the range ends before a batch: its offset is outside its checksum. Raises DamagedBatchError."""
        following = self._segment.next_base
        if following is None or header.base_offset < following:
            if header.end_position + _OFFSET_BYTES > len(window) or self.position >= self._end:
                return
            following = int.from_bytes(window[header.end_position : header.end_position + _OFFSET_BYTES], "big")
        if 0 < following <= header.base_offset:
            reason = f"the batch lies before offset {following} and says that it begins behind it"
            raise DamagedBatchError(self._path, at, header.base_offset, reason)

    def _upgraded(self, window: memoryview, at: int, messages: list[tuple[int, int]]) -> Iterator[BatchRun]:
        """Messages of old formats that lie one behind the other, as batches; those before a damaged one come first."""
        wanted = []
        damaged: DamagedBatchError | None = None
        for start, length in messages:
            entry = window[start : start + length]
            message = parse_message_header(entry)
            if message.offset < self.position:
                continue
            if not check_message_crc(entry, message):
                reason = "the message has a wrong checksum"
                damaged = DamagedBatchError(self._path, at + start, message.offset, reason)
                break
            wanted.append((start, length))
            self._go_to(message.offset + 1)
            if self.reached_end:
                break
        if wanted:
            yield from self._as_batches(window, at, wanted)
        if damaged is not None:
            raise damaged

    def _as_batches(self, window: memoryview, at: int, messages: list[tuple[int, int]]) -> Iterator[BatchRun]:
        first = messages[0][0]
        stop = sum(messages[-1])
        try:
            buffer = upgrade(window[first:stop])
            headers = split_batches(buffer)
        except MissingLibraryError as error:
            raise SegmentError(f"{self._path} cannot be read: {error}") from error
        except BatchError as error:
            if len(messages) == 1:
                offset = parse_message_header(window[first:stop]).offset
                raise DamagedBatchError(self._path, at + first, offset, str(error)) from error
            for each in messages:  # up to the one that is damaged
                yield from self._as_batches(window, at, [each])
        else:
            yield BatchRun(self._path, at + first, buffer, headers, is_upgraded=True)

    def _go_to(self, offset: int) -> None:
        self.position = self._next_offset = offset
        self.reached_end |= offset >= self._end


def _entry(window: memoryview, start: int) -> tuple[int, int]:
    """Length and magic of what begins there, as they are written."""
    at = start + _OFFSET_BYTES
    magic = window[start + MAGIC_AT]
    return int.from_bytes(window[at : at + 4], "big", signed=True) + LOG_OVERHEAD, magic


def _whole_entries(window: memoryview) -> Iterator[tuple[int, int]]:
    """Places and lengths of the batches and messages that are whole in the window, up to anything that is none."""
    start, end = 0, len(window)
    while end - start > MAGIC_AT:
        length, magic = _entry(window, start)
        if magic > MAGIC or length < SMALLEST[magic] or length > end - start:
            return
        yield start, length
        start += length
