"""One round of compaction of one log, alternating between the event loop and disk threads.

A thread builds the offset map. Then, for each group of segments, a thread writes one new segment (`….cleaned`), the
loop renames it to `….swap`, a thread syncs the directory, and the loop replaces the old segments by it. A broker that
is killed in between finds at its next start either the old segments or the complete new one (`ottla.storage.recovery`).
Between two steps the log may have changed on the loop: then the round ends, and what it wrote and did not put in place
is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from ottla.env.disk import Disk, DiskError
from ottla.storage.batch_filter import FilterRules, LastRecord
from ottla.storage.cleanable import CleanableLog, group_segments
from ottla.storage.cleaner import (
    CleanedSegment,
    CleaningAborted,
    CleaningControl,
    CleaningTask,
    SourceSegment,
    build_offset_map,
    clean_group,
    filter_rules,
)
from ottla.storage.files import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, offset_file_name
from ottla.storage.log import PartitionLog
from ottla.storage.offset_map import OffsetMap
from ottla.storage.producer_snapshots import drop_snapshot
from ottla.storage.segment import Segment


class CleaningRound:
    """Call `next_work`, run the work in a thread, pass its result to `take`, until no work is left."""

    def __init__(
        self,
        disk: Disk,
        cleanable: CleanableLog,
        control: CleaningControl,
        offsets: OffsetMap,
        discard: Callable[[PartitionLog, list[str]], None],
    ) -> None:
        self._disk = disk
        self._log = cleanable.log
        self._directory = cleanable.log.directory
        self._cleanable = cleanable
        self._discard = discard
        self._offsets = offsets
        self.control = control
        #: For the caller that runs the work: whether its result has arrived, and whether it will arrive in a callback.
        self.answered = self.detached = False
        #: Why the round failed.
        self.error: BaseException | None = None
        #: The log is clean up to here when the round is over.
        self.cleaned_to = cleanable.first_dirty_offset
        self._task: CleaningTask
        self._rules: FilterRules
        #: The groups that are not cleaned yet, the next one last.
        self._groups: list[list[Segment]] = []
        self._group: list[Segment] = []
        self._sources: list[SourceSegment] = []
        #: The segment written for the current group, until it is in place.
        self._swapping: CleanedSegment | None = None
        self._work: Callable[[], object] | None = None
        self._then: Callable[[object], None] = self._map_is_made

    def prepare(self, now_ms: int, read_bytes: int) -> None:
        """Collect the threads' input. Raises DiskError."""
        log, first_dirty, end = self._log, self._cleanable.first_dirty_offset, self._cleanable.end_offset
        config = log.config
        segments = log.segments
        legacy_horizon_ms = 0
        for segment in segments:
            if segment.base_offset < first_dirty:
                legacy_horizon_ms = segment.log.modified_ms() - config.delete_retention_ms
        self._task = CleaningTask(
            disk=self._disk,
            directory=log.directory,
            control=self.control,
            first_dirty_offset=first_dirty,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            legacy_horizon_ms=legacy_horizon_ms,
            index_interval_bytes=config.index_interval_bytes,
            read_bytes=read_bytes,
            aborted=log.aborted_transactions(segments[0].base_offset, end),
            last_records={
                entry.producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
                for entry in log.producers
            },
        )
        dirty = [
            _source(segment, following.base_offset, first_dirty)
            for segment, following in pairwise(segments)
            if following.base_offset > first_dirty and segment.base_offset < end
        ]
        self._work = partial(build_offset_map, self._task, dirty, self._offsets)

    def next_work(self) -> Callable[[], object] | None:
        """The next step for a thread; None if the round is over."""
        work, self._work = self._work, None
        return work if self.error is None else None

    def take(self, result: object, error: BaseException | None) -> None:
        """Handle the result of a step, on the loop."""
        if self.control.aborted:
            error = CleaningAborted()
        if error is None:
            try:
                self._then(result)
                return
            except (DiskError, CleaningAborted) as failed:
                error = failed
        self.error = error
        if self._group:
            self._remove_files(self._group[0].base_offset)

    def abort(self) -> None:
        """End the round; nothing more of it is put in place, not even at the next start."""
        self.control.aborted = True
        if self._swapping is not None:
            self._remove_files(self._swapping.base_offset)
            self._swapping = None

    def _map_is_made(self, _: object) -> None:
        self.cleaned_to = max(self.cleaned_to, self._offsets.latest_offset + 1)
        self._rules = filter_rules(self._task, self._offsets)
        self._groups = group_segments(self._log, self.cleaned_to)[::-1]
        self._next_group()

    def _next_group(self) -> None:
        self._group = []
        if not self._groups:
            return
        self._group = self._groups.pop()
        ends = [segment.base_offset for segment in self._group[1:]] + [-1]
        self._sources = [_source(segment, end) for segment, end in zip(self._group, ends, strict=True)]
        self._work = partial(clean_group, self._task, self._sources, self._rules)
        self._then = self._group_is_written

    def _group_is_written(self, result: object) -> None:
        assert isinstance(result, CleanedSegment)
        self._check_log()
        # The log file first: while other files still end in `.cleaned`, the next start uses none of them.
        for suffix in result.suffixes:
            path = f"{self._directory}/{offset_file_name(result.base_offset, suffix)}"
            self._disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        self._swapping = result
        self._work = partial(self._disk.fsync_dir, self._directory)
        self._then = self._names_are_on_disk

    def _names_are_on_disk(self, _: object) -> None:
        cleaned = self._swapping
        assert cleaned is not None
        self._check_log()
        files, memory = self._log.resources.files, self._log.resources.index_memory
        new = Segment(files, memory, self._log.directory, cleaned.base_offset, cleaned.size, 0, SWAP_SUFFIX)
        new.offset_index.entries, new.time_index.entries = cleaned.index_entries
        new.max_timestamp, new.max_timestamp_offset = cleaned.max_timestamp, cleaned.max_timestamp_offset
        group, self._group, self._swapping = self._group, [], None
        # If this fails half-way, only the new files are complete, and the next start puts them in place.
        self._discard(self._log, _replace_segments(self._log, group, new))
        self._next_group()

    def _check_log(self) -> None:
        """Raise CleaningAborted if the log has changed since it was read."""
        same = [segment.size for segment in self._group] == [source.size for source in self._sources]
        if not same or self._log.closed or not self._log.segment_list.holds(self._group):
            raise CleaningAborted

    def _remove_files(self, base_offset: int) -> None:
        """Remove files written for a group that are not in place. If that fails, the next start removes them."""
        for suffix in SEGMENT_SUFFIXES:
            path = f"{self._directory}/{offset_file_name(base_offset, suffix)}"
            for end in (SWAP_SUFFIX, CLEANED_SUFFIX):
                try:
                    self._disk.remove(path + end)
                except DiskError:
                    return


def _source(segment: Segment, end_offset: int, from_offset: int = 0) -> SourceSegment:
    position = segment.indexed_position(from_offset) if from_offset > segment.base_offset else 0
    return SourceSegment(segment.base_offset, end_offset, segment.size, position, segment.log.path)


def _replace_segments(log: PartitionLog, old: Sequence[Segment], new: Segment) -> list[str]:
    """Replace the segments `old`, which must be in the log, by `new`, whose files end in `.swap` and are synced.

    Returns the renamed files of the old segments, to be deleted later; ranges of them that are being sent stay
    readable. If the broker stops at any step, the next start completes the replacement. Raises DiskError; appends
    are then refused until the log is reopened.
    """
    renamed: list[str] = []
    try:
        for segment in old:
            renamed += segment.mark_deleted()
        for segment in old[1:]:
            renamed += drop_snapshot(log.resources.disk, log.directory, segment.base_offset)
        new.swap_in()
    except DiskError as error:
        log.failure = f"{error}; compacted segments could not be put in place. Restart the broker"
        raise
    log.segment_list.replace(old, new)
    log.unflushed.note_directory()
    return renamed
