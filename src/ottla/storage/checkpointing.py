"""The checkpoints that a broker writes in its log directories, and when they are on disk.

The regular checkpoints of very many logs are made in slices, between which logs come, go and are cut: those are noted,
and their offsets taken again at the end. The offsets of all others only grow, and an older one is as safe: at the next
start more is recovered, or a follower begins at an earlier high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final

from ottla.env.disk import Disk
from ottla.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    DeletedLogs,
    TopicPartitionKey,
    encode_entries,
    offset_entry,
    partition_name,
    partition_names,
    without_entries,
)
from ottla.storage.flushing import sync_file
from ottla.storage.log import PartitionLog
from ottla.storage.log_directories import LogDirectories
from ottla.storage.log_directory import LogDirectory

#: Logs that background work looks at in one slice.
LOGS_PER_SLICE: Final = 1_000


class LogCheckpoints:
    """The checkpoints of all log directories."""

    def __init__(self, disk: Disk, directories: LogDirectories, logs: Mapping[TopicPartitionKey, PartitionLog]) -> None:
        self._disk = disk
        self._directories = directories
        self._logs = logs
        self._futures_in: Callable[[LogDirectory], Mapping[TopicPartitionKey, PartitionLog]] = lambda _: {}
        self._cleaner_offsets: Mapping[TopicPartitionKey, int] = {}
        #: Files that were truncated and are not synced yet, with their log directories.
        self._cut_files: list[tuple[str, LogDirectory]] = []
        #: Partitions whose logs came, went or were cut since `write_in_slices` began.
        self._noted: set[TopicPartitionKey] = set()
        self._deleted = DeletedLogs()
        self._is_closed = False

    def include(
        self,
        futures_in: Callable[[LogDirectory], Mapping[TopicPartitionKey, PartitionLog]],
        cleaner_offsets: Mapping[TopicPartitionKey, int],
    ) -> None:
        """Write the offsets of the future logs in a directory, too, and how far logs are compacted at any time."""
        self._futures_in = futures_in
        self._cleaner_offsets = cleaner_offsets

    def close(self) -> None:
        """End what is done in slices; what is asked for afterwards is written as ever."""
        self._is_closed = True

    def note(self, key: TopicPartitionKey) -> None:
        """The partition has another log, none any more, or one that was cut: its former offsets count no longer."""
        self._noted.add(key)
        if key in self._logs:
            self._deleted.discard(partition_name(key))
        else:
            self._deleted.add(partition_name(key))

    def note_cut(self, log: PartitionLog, log_dir: LogDirectory) -> None:
        """Sync the truncated files with the recovery points.

        The log may continue in another segment, and a flush covers what lies above the recovery point: without the
        sync, a loss of power could bring back the truncated records before those appended since.
        """
        self.note((log.topic, log.partition))
        self._cut_files += [(segment.log.path, log_dir) for segment in log.segments[-2:]]

    def write(self) -> None:
        """Write the regular checkpoints of all log directories now. Raises DiskError."""
        for name, log_dir in product(
            (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE), self._directories.live()
        ):
            _write_now(log_dir, name, self._data(name, log_dir))

    def forget(self, key: TopicPartitionKey, log_dirs: Sequence[LogDirectory]) -> None:
        """Take a former log of this partition out of the checkpoints of these log directories. Raises DiskError.

        After a kill its entries would be applied to a new one.

        The logs that are deleted go with it: a topic that is made again has many. Collecting the offsets of all others
        would hold the loop for 0.3 s with a hundred thousand logs.
        """
        if not any(log_dir.names(key) for log_dir in log_dirs):
            return
        deleted = self._deleted.known()
        gone = None if deleted is None else deleted | {partition_name(key)}
        for name, log_dir in product((RECOVERY_POINT_FILE, LOG_START_FILE, CLEANER_FILE), log_dirs):
            made = log_dir.made_checkpoint(name)
            if made is None or gone is None:
                data = self._data(name, log_dir)
            else:
                data = without_entries(made, gone)
            _write_now(log_dir, name, data)
        if len(log_dirs) == len(self._directories.live()):
            self._deleted.clear()

    def write_soon(self, name: str) -> None:
        """Write a checkpoint of all log directories in disk threads, where it has changed."""
        for log_dir in self._directories.live():
            self._write_soon(name, log_dir, self._data(name, log_dir))

    def write_in_slices(self, name: str) -> Generator[None, None, None]:
        """As `write_soon`, the offsets being taken in slices."""
        if name == RECOVERY_POINT_FILE:
            self._deleted.regular_begun()
        for log_dir in self._directories.live():
            self._noted.clear()
            keys = self._directories.keys_in(log_dir)
            entries: dict[TopicPartitionKey, str] = {}
            for start in range(0, len(keys), LOGS_PER_SLICE):
                entries.update(self._entries(name, log_dir, keys[start : start + LOGS_PER_SLICE]))
                yield
                if self._is_closed:
                    return
            for key in self._noted:
                entries.pop(key, None)
            entries.update(self._entries(name, log_dir, self._noted))
            entries.update(_entries(name, self._futures_in(log_dir)))
            self._write_soon(name, log_dir, encode_entries(list(entries.values())))
        if name == LOG_START_FILE:
            # The one of recovery points came before it: what had gone by then can only be in that of the cleaner.
            self._deleted.regular_ended(map(_compacted, self._directories.live()))

    def store_recovery_points(self, done: Callable[[], None]) -> None:
        """Write the recovery points in disk threads, and sync what was truncated, then call `done`.

        After a failure the log directory is probed.
        """
        cut, self._cut_files = self._cut_files, []
        works: list[tuple[Callable[[], None], LogDirectory]] = []
        works += [(partial(sync_file, self._disk, path), log_dir) for path, log_dir in cut if log_dir.failure is None]
        self._run_all(works + self._works((RECOVERY_POINT_FILE,), self._directories.live()), done)

    def store(self, log_dir: LogDirectory, name: str, done: Callable[[], None]) -> None:
        """As `store_recovery_points`, one of the checkpoints of one log directory."""
        self._run_all(self._works((name,), (log_dir,)), done)

    def _write_soon(self, name: str, log_dir: LogDirectory, data: bytes) -> None:
        changed = log_dir.changed_checkpoint(name, data)
        if changed is not None:
            self._directories.in_background(partial(log_dir.write_checkpoint, changed), log_dir)

    def _works(
        self, names: Iterable[str], log_dirs: Iterable[LogDirectory]
    ) -> list[tuple[Callable[[], None], LogDirectory]]:
        works: list[tuple[Callable[[], None], LogDirectory]] = []
        for log_dir, name in product(log_dirs, names):
            changed = log_dir.changed_checkpoint(name, self._data(name, log_dir), is_on_disk=True)
            if changed is not None:
                works.append((partial(log_dir.write_checkpoint, changed), log_dir))
        return works

    def _run_all(self, works: Sequence[tuple[Callable[[], None], LogDirectory]], done: Callable[[], None]) -> None:
        waiting = len(works) + 1

        def written() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                done()

        for work, log_dir in works:
            self._directories.in_background(work, log_dir, written)
        written()

    def _data(self, name: str, log_dir: LogDirectory) -> bytes:
        if name == CLEANER_FILE:
            log_dir_of = self._directories.log_dir_of
            offsets = self._cleaner_offsets.items()
            return encode_entries([offset_entry(key, end) for key, end in offsets if log_dir_of(key) is log_dir])
        entries = self._entries(name, log_dir, self._directories.keys_in(log_dir))
        entries.update(_entries(name, self._futures_in(log_dir)))
        return encode_entries(list(entries.values()))

    def _entries(
        self, name: str, log_dir: LogDirectory, keys: Iterable[TopicPartitionKey]
    ) -> dict[TopicPartitionKey, str]:
        """The entries of those partitions whose logs are in this directory."""
        log_dir_of, get = self._directories.log_dir_of, self._logs.get
        logs = {key: log for key in keys if log_dir_of(key) is log_dir and (log := get(key)) is not None}
        return _entries(name, logs)


def _compacted(log_dir: LogDirectory) -> list[bytes]:
    """The partitions that the checkpoint of the cleaner names."""
    return partition_names(log_dir.made_checkpoint(CLEANER_FILE) or b"")


def _write_now(log_dir: LogDirectory, name: str, data: bytes) -> None:
    changed = log_dir.changed_checkpoint(name, data, is_on_disk=True)
    if changed is not None:
        log_dir.write_checkpoint(changed)


def _entries(name: str, logs: Mapping[TopicPartitionKey, PartitionLog]) -> dict[TopicPartitionKey, str]:
    if name == RECOVERY_POINT_FILE:
        return {key: offset_entry(key, log.recovery_point) for key, log in logs.items()}
    if name == HIGH_WATERMARK_FILE:
        return {key: offset_entry(key, log.high_watermark) for key, log in logs.items()}
    assert name == LOG_START_FILE, name
    return {
        key: offset_entry(key, log.log_start_offset)
        for key, log in logs.items()
        if log.log_start_offset > log.segments[0].base_offset
    }
