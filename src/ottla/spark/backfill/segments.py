"""The segment files of a partition directory, which a broker may roll, compact and delete while they are read.

The names are those that Kafka's cleaner gives: it writes `….cleaned`, renames it to `….swap`, renames the segments that
it replaces to `….deleted`, and takes the suffix `.swap` off. So a `….swap` counts where no segment has its base offset,
also where a broker was killed in between. An open file stays as it is, whatever happens to its name.
"""

from __future__ import annotations

import logging
import sys
import time
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from ottla.env.disk import DiskError, RealDisk
from ottla.env.file_reader import ReadableFile, identity_of
from ottla.records.batch import LOG_OVERHEAD, MAGIC, MAGIC_AT, check_crc, parse_batch_header
from ottla.records.errors import BatchError
from ottla.records.message_set import check_message_crc, parse_message_header
from ottla.spark.backfill.errors import SegmentError
from ottla.spark.backfill.heads import SMALLEST
from ottla.spark.errors import DataLossError
from ottla.storage.files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, SWAP_SUFFIX, offset_file_name, offsets_of
from ottla.storage.index import OFFSET_ENTRY

log = logging.getLogger(__name__)

#: How often a directory is listed until two listings agree, and how long is waited in between.
MOST_LISTINGS: Final = 200
PAUSE_S: Final = 0.01


class SegmentName(NamedTuple):
    """A segment of a directory: its base offset, and the suffix of its files behind `.log`, `.index` and so on."""

    base_offset: int
    suffix: str

    def file(self, kind: str) -> str:
        """The name of its file of a kind, `LOG_SUFFIX` and the like."""
        return offset_file_name(self.base_offset, kind + self.suffix)


def segment_names(names: Iterable[str]) -> tuple[SegmentName, ...]:
    """The segments among the names of a partition directory's files, by base offset."""
    names = list(names)
    suffixes = dict.fromkeys(offsets_of(names, LOG_SUFFIX + SWAP_SUFFIX), SWAP_SUFFIX)
    suffixes |= dict.fromkeys(offsets_of(names, LOG_SUFFIX), "")
    return tuple(SegmentName(base_offset, suffixes[base_offset]) for base_offset in sorted(suffixes))


def list_segments(directory: str) -> tuple[SegmentName, ...]:
    """The segments of a partition directory. Raises DiskError, SegmentError.

    A listing may miss a file that is renamed at that moment: two that agree are needed.
    """
    disk = RealDisk()
    previous = None
    for _ in range(MOST_LISTINGS):
        names = segment_names(disk.listdir(directory))
        if names == previous:
            return names
        if previous is not None:
            time.sleep(PAUSE_S)
        previous = names
    raise SegmentError(f"the segments in {directory} change faster than they can be listed; try again later")


class OpenSegment:
    """One segment that is open; `next_base` is where the next one begins, None if it is the last."""

    def __init__(self, directory: str, name: SegmentName, next_base: int | None) -> None:
        """Open it. Raises DiskError."""
        self.directory = directory
        self.name = name
        self.next_base = next_base
        self.file = ReadableFile(f"{directory}/{name.file(LOG_SUFFIX)}")

    def is_current(self) -> bool:
        """Whether its name still belongs to this file. Raises DiskError."""
        return identity_of(self.file.path) == self.file.identity()

    def position_of(self, offset: int) -> int:
        """Return the position of a batch that is not behind the one of `offset`. Raises DiskError.

        The index gives it; one that is missing or does not fit the segment is ignored.
        """
        if offset > self.name.base_offset:
            index = read_index(self.directory, self.name)
            number = bisect_right(index.offsets, offset - self.name.base_offset) - 1
            if number >= 0 and self._begins_at(index.positions[number], offset):
                return index.positions[number]
        return 0

    def _begins_at(self, position: int, offset: int) -> bool:
        """Whether an intact batch begins there that is not behind the one of `offset`."""
        head = self.file.pread(LOG_OVERHEAD + MAGIC_AT, position)
        if len(head) <= MAGIC_AT or not 0 <= head[MAGIC_AT] <= MAGIC:
            return False
        length = int.from_bytes(head[8:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        if not SMALLEST[head[MAGIC_AT]] <= length <= self.file.size - position:
            return False
        data = self.file.pread(length, position)
        try:
            if head[MAGIC_AT] == MAGIC:
                batch = parse_batch_header(data)
                return batch.base_offset <= offset and check_crc(data, batch)
            message = parse_message_header(data)
            return message.offset <= offset and check_message_crc(data, message)
        except BatchError:
            return False


class OpenSegments:
    """The segments that hold the offsets from `start` to `end`, all as they were at one moment.

    `following` are the names of those behind them at that moment.
    """

    def __init__(self, directory: str, partition: str, start: int, end: int, *, fail_on_data_loss: bool) -> None:
        """Open them; if the first ones are gone, those that are left, or it raises DataLossError. SegmentError."""
        self.directory = directory
        self.segments: list[OpenSegment] = []
        self.following: tuple[SegmentName, ...] = ()
        for _ in range(MOST_LISTINGS):
            try:
                if self._open(partition, start, end, fail_on_data_loss):
                    return
            except DiskError as error:
                self.close()
                if not error.missing:
                    raise SegmentError(f"{partition} cannot be read: {error}") from error
                if not RealDisk().is_dir(directory):
                    raise _not_there(partition, directory) from error
            self.close()
            time.sleep(PAUSE_S)
        raise SegmentError(f"the segments in {directory} change faster than they can be opened; try again later")

    def _open(self, partition: str, start: int, end: int, fail_on_data_loss: bool) -> bool:
        """Open the files; False where names changed meanwhile."""
        names = list_segments(self.directory)
        first = bisect_right(names, start, key=lambda each: each.base_offset) - 1
        if first < 0:
            what = f"{partition} was to be read from offset {start}, but {self.directory} "
            what += f"begins at {names[0].base_offset}" if names else "holds no segment"
            if fail_on_data_loss:
                raise DataLossError(
                    f"{what}: retention deleted what was before; start again from what is left, or set failOnDataLoss "
                    "to false to continue without it"
                )
            log.warning("%s: retention deleted what was before, continuing without it", what)
            first = 0
        chosen = [each for each in names[first:] if each.base_offset < end]
        self.following = names[first + len(chosen) :]
        bases: list[int | None] = [each.base_offset for each in names[first + 1 :]]
        for name, next_base in zip(chosen, [*bases, None], strict=False):
            self.segments.append(OpenSegment(self.directory, name, next_base))
        return list_segments(self.directory) == names

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all files."""
        segments, self.segments = self.segments, []
        for each in segments:
            each.file.close()

    def are_current(self) -> bool:
        """Whether none of them has been replaced or removed since. Raises DiskError."""
        return all(each.is_current() for each in self.segments)


class IndexEntries(NamedTuple):
    """The entries of an offset index: offsets relative to the segment's base, and positions of batches."""

    offsets: Sequence[int]
    positions: Sequence[int]


def read_index(directory: str, name: SegmentName) -> IndexEntries:
    """The entries of a segment's offset index; none if the file does not exist."""
    try:
        data = RealDisk().read_bytes(f"{directory}/{name.file(OFFSET_INDEX_SUFFIX)}")
    except DiskError:
        return IndexEntries((), ())
    # Kafka allocates more than it has written: zeros follow.
    used = -(-len(data.rstrip(b"\0")) // OFFSET_ENTRY.size)
    numbers = array("I", data[: used * OFFSET_ENTRY.size].ljust(used * OFFSET_ENTRY.size, b"\0"))
    if sys.byteorder == "little":
        numbers.byteswap()
    return IndexEntries(numbers[::2], numbers[1::2])


def _not_there(partition: str, directory: str) -> SegmentError:
    return SegmentError(
        f"{partition}: there is no directory {directory} (any more); on a cluster the log directories must be mounted "
        "at the same path on every executor, and a topic that was deleted or moved has to be planned again"
    )
