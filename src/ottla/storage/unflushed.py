"""The part of a log that is not known to be on disk yet."""

from __future__ import annotations

from ottla.env.disk import Disk, DiskError
from ottla.storage.flushing import FlushJob
from ottla.storage.segments import SegmentList


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
