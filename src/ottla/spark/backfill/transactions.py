"""Which batches in a range of offsets belong to aborted transactions.

The control batches in and behind the range say how each of its transactions ended; the transaction index says where an
aborted one began. An index that is missing is none without aborted transactions, or was lost: then a transaction begins
behind its producer's marker before, so that nothing rests on the index alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ottla.env.disk import DiskError, RealDisk
from ottla.env.file_reader import ReadableFile
from ottla.records.batch import BatchHeader
from ottla.records.control import ControlRecordType
from ottla.spark.backfill.errors import SegmentError
from ottla.spark.backfill.heads import BatchHead, marker_type, walk_heads
from ottla.spark.backfill.segments import OpenSegments, SegmentName
from ottla.storage.files import LOG_SUFFIX, TXN_INDEX_SUFFIX
from ottla.storage.transaction_index import AbortedTransaction, decode_aborted


class AbortedTransactions:
    """Aborted transactions by producer id, as offsets from the first to the marker."""

    def __init__(self) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def add(self, producer_id: int, first: int, last: int) -> None:
        """Add one."""
        self._spans[producer_id].append((first, last))

    def holds(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to one of them."""
        if not header.is_transactional:
            return False
        return any(first <= header.base_offset <= last for first, last in self._spans.get(header.producer_id, ()))


class _Replaced(Exception):
    """A segment was replaced or removed while it was looked at."""


def aborted_transactions(view: OpenSegments, start: int, end: int) -> AbortedTransactions | None:
    """The aborted transactions with batches from `start` to `end`; None if the segments of `view` were replaced.

    The cleaner removes the data of an aborted transaction before it removes the marker, and segments in the order of
    their offsets: while those of `view` are in place, so are the markers behind them. Raises DiskError, SegmentError.
    """
    search = _Search(start, end)
    try:
        for name, file, position in _files(view, start):
            search.add_index(_index(view.directory, name))
            if search.add_heads(file, position):
                break
        else:
            search.check_all_ended(view)
    except _Replaced:
        return None
    except SegmentError:
        if view.are_current():
            raise
        return None
    return search.aborted if view.are_current() else None


def _files(view: OpenSegments, start: int) -> Iterator[tuple[SegmentName, ReadableFile, int]]:
    """The segments of the view, and those behind them, which are closed again; and from which position on."""
    for segment in view.segments:
        yield segment.name, segment.file, segment.position_of(start)
    for name in view.following:
        try:
            file = ReadableFile(f"{view.directory}/{name.file(LOG_SUFFIX)}")
        except DiskError as error:
            if error.missing:
                raise _Replaced from None
            raise
        with file:
            yield name, file, 0


def _index(directory: str, name: SegmentName) -> list[AbortedTransaction]:
    path = f"{directory}/{name.file(TXN_INDEX_SUFFIX)}"
    try:
        return decode_aborted(RealDisk().read_bytes(path))
    except DiskError as error:
        if error.missing:
            return []
        raise


class _Search:
    """Looks through the heads of batches from `start` on, until all transactions that began before `end` have ended."""

    def __init__(self, start: int, end: int) -> None:
        self.aborted = AbortedTransactions()
        self._start = start
        self._end = end
        #: Producers with transactional batches in the range and no marker behind them yet.
        self._open: set[int] = set()
        #: The newest marker of each producer.
        self._markers: dict[int, int] = {}
        #: First offsets of the transactions in the indexes, by producer id and marker.
        self._indexed: dict[tuple[int, int], int] = {}

    def add_index(self, entries: list[AbortedTransaction]) -> None:
        """Add the entries of a segment's transaction index."""
        for each in entries:
            if each.last_offset >= self._start and each.first_offset < self._end:
                self._indexed[each.producer_id, each.last_offset] = each.first_offset
                self.aborted.add(each.producer_id, each.first_offset, each.last_offset)

    def add_heads(self, file: ReadableFile, position: int) -> bool:
        """Look through one segment from a position on; whether nothing behind it is needed."""
        for head in walk_heads(file, position):
            if head.last_offset < self._start:
                continue
            if head.base_offset >= self._end and not self._open:
                return True
            if head.is_control:
                self._add_marker(file, head)
            elif head.is_transactional and head.base_offset < self._end:
                self._open.add(head.producer_id)
        return False

    def _add_marker(self, file: ReadableFile, head: BatchHead) -> None:
        kind = marker_type(file, head)
        if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return
        producer_id, offset = head.producer_id, head.base_offset
        if kind is ControlRecordType.ABORT and (producer_id, offset) not in self._indexed:
            self.aborted.add(producer_id, self._markers.get(producer_id, -1) + 1, offset)
        self._markers[producer_id] = offset
        self._open.discard(producer_id)

    def check_all_ended(self, view: OpenSegments) -> None:
        """At the end of the log. Raises SegmentError."""
        if self._open:
            producers = ", ".join(map(str, sorted(self._open)))
            raise SegmentError(
                f"{view.directory}: transactions of the producer ids {producers} before offset {self._end} have no end "
                "in the log; read to a lower ending offset, or another replica's log directory"
            )
