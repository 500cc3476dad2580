"""Flushing a log outside the event loop: the job is prepared on the loop, run in a thread, and its result is handled on
the loop.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.env.disk import Disk, DiskError, DiskFile
from ottla.env.executor import NoThread
from ottla.storage.files import SegmentFile
from ottla.storage.segments import SegmentList

if TYPE_CHECKING:
    from ottla.storage.log import PartitionLog

#: The process has too many open files: a file could not be synced because it could not be opened.
_TOO_MANY_FILES = frozenset((errno.EMFILE, errno.ENFILE))


class FlushJob:
    """One flush of one log, up to `end_offset`. Its segment files are pinned until `release`."""

    __slots__ = ("_disk", "_handles", "_pinned", "directory", "end_offset", "paths", "unflushed_bytes")

    def __init__(self, disk: Disk, directory: str | None, end_offset: int, unflushed_bytes: int) -> None:
        self._disk = disk
        #: The directory to sync, with its entry in its parent, if files were created or removed.
        self.directory = directory
        self.end_offset = end_offset
        #: Bytes of batches that this flush covers.
        self.unflushed_bytes = unflushed_bytes
        self._pinned: list[SegmentFile] = []
        self._handles: list[DiskFile] = []
        #: Small files to sync as well.
        self.paths: list[str] = []

    def add(self, file: SegmentFile) -> None:
        """Sync this file too. Raises DiskError if it cannot be opened."""
        self._handles.append(file.pin())
        self._pinned.append(file)

    def add_paths(self, paths: list[str]) -> None:
        """Sync these small files too; one that no longer exists is skipped."""
        self.paths.extend(paths)

    def run(self) -> None:
        """Sync everything; in a disk thread. Raises DiskError."""
        for handle in self._handles:
            handle.flush()
        for path in self.paths:
            sync_file(self._disk, path)
        if self.directory is not None:
            self._disk.fsync_dir(self.directory)
            self._disk.fsync_dir(self.directory.rpartition("/")[0] or "/")

    def release(self) -> None:
        """Release the files."""
        for file in self._pinned:
            file.unpin()
        self._pinned.clear()
        self._handles.clear()


def begin_flush(log: PartitionLog) -> FlushJob | None:
    """The job for a flush; None if there is nothing to flush. Run it in a thread, then call `end_flush`.

    Raises DiskError if a file cannot be opened.
    """
    if not log.flush_needed():
        return None
    log.save_epochs()
    return log.unflushed.begin(log.resources.disk, log.segment_list, log.log_end_offset)


def end_flush(log: PartitionLog, job: FlushJob, error: BaseException | None, now_ms: int) -> None:
    """Handle the result of a flush. After a failure it is unknown what is on disk: refuse appends."""
    job.release()
    if error is None:
        log.unflushed.complete(job, log.log_end_offset, now_ms)
    elif _may_be_repeated(error):
        log.unflushed.repeat(job)
    else:
        log.unflushed.has_failed = True
        log.failure = log.failure or (
            f"{error}; records acknowledged since the last flush may be lost if the machine stops. The partition "
            f"takes no more records until the disk works again and the broker was restarted"
        )


def _may_be_repeated(error: BaseException) -> bool:
    """Whether a flush failed before any fsync was called, whose failure the system may forget."""
    return isinstance(error, NoThread) or (isinstance(error, DiskError) and error.errno in _TOO_MANY_FILES)


def sync_file(disk: Disk, path: str) -> None:
    """Force a file to the disk; one that no longer exists is skipped. Raises DiskError."""
    try:
        file = disk.open(path)
    except DiskError as error:
        if error.missing:
            return
        raise
    try:
        file.flush()
    finally:
        file.close()


def run_jobs(jobs: Sequence[FlushJob]) -> list[Exception | None]:
    """Run the jobs one after the other, in a disk thread; returns the exception of each that failed."""
    outcomes: list[Exception | None] = []
    for job in jobs:
        try:
            job.run()
        except Exception as error:
            outcomes.append(error)
        else:
            outcomes.append(None)
    return outcomes


class Unflushed:
    """The unflushed records, small files and directory entries of one log; the log updates it, the flush clears it."""

    __slots__ = (
        "_directory",
        "_directory_changed",
        "_limit",
        "_paths",
        "bytes",
        "has_failed",
        "last_flush_ms",
        "records",
        "recovery_point",
    )

    def __init__(self, directory: str, recovery_point: int, log_end_offset: int) -> None:
        self._directory = directory
        #: Everything below is known to be synced.
        self.recovery_point = recovery_point
        #: Size of the batches appended since the last flush.
        self.bytes = 0
        #: Records appended since the last flush.
        self.records = 0
        self.last_flush_ms = 0
        #: A flush has failed: the system may drop dirty pages, and the next fsync succeeds nevertheless.
        self.has_failed = False
        #: Small files written since the last flush.
        self._paths: list[str] | None = None
        self._directory_changed = False
        #: Upper limit of the offset that the flush under way can cover: the log may be truncated meanwhile, and grow
        #: again.
        self._limit = log_end_offset

    def note_file(self, path: str) -> None:
        """The next flush has to sync this small file, which was just written, and its directory entry."""
        self._directory_changed = True
        if self._paths is None:
            self._paths = []
        self._paths.append(path)

    def relocate(self, directory: str) -> None:
        """The partition directory was renamed: its name has to be synced, too."""
        before, self._directory = self._directory, directory
        self._directory_changed = True
        if self._paths is not None:
            self._paths = [directory + path.removeprefix(before) for path in self._paths]

    def note_directory(self) -> None:
        """The next flush has to sync the partition directory: entries were added or removed, or may not be synced."""
        self._directory_changed = True

    def note_truncated(self, offset: int) -> None:
        """The records from `offset` on were removed."""
        self.recovery_point = min(self.recovery_point, offset)
        self._limit = min(self._limit, offset)

    def is_any(self, log_end_offset: int) -> bool:
        """Whether there is anything to flush; never after a flush has failed."""
        if self.has_failed:
            return False
        return self.recovery_point < log_end_offset or self._directory_changed or self._paths is not None

    def begin(self, disk: Disk, segments: SegmentList, log_end_offset: int) -> FlushJob:
        """The job that flushes all of it. Raises DiskError if a file cannot be opened."""
        directory = self._directory if self._directory_changed else None
        job = FlushJob(disk, directory, log_end_offset, self.bytes)
        try:
            if self.recovery_point < log_end_offset:
                for segment in segments.starting_with(self.recovery_point):
                    segment.spill_indexes()
                    job.add(segment.log)
        except DiskError:
            job.release()
            raise
        job.add_paths(self._paths or [])
        self._paths = None
        self._directory_changed = False
        self._limit = log_end_offset
        return job

    def complete(self, job: FlushJob, log_end_offset: int, now_ms: int) -> None:
        """A job has succeeded."""
        self.recovery_point = max(self.recovery_point, min(job.end_offset, self._limit))
        self.bytes = max(0, self.bytes - job.unflushed_bytes)
        self.records = log_end_offset - self.recovery_point
        self.last_flush_ms = now_ms

    def repeat(self, job: FlushJob) -> None:
        """A job has not been run: the next flush covers it, too."""
        self._paths = [*job.paths, *(self._paths or ())] or None
        self._directory_changed = self._directory_changed or job.directory is not None
