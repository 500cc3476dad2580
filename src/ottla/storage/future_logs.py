"""Future logs: copies of this broker's logs on their way to another of its log directories (KIP-113).

A future log stands in `TOPIC-N.ID-future`, and its offsets in the checkpoints of its log directory, as Apache Kafka
has them. It takes the appends of a follower, and follows its source: where that one is truncated, or its beginning is
deleted, so is the copy. Once it has everything it takes the place of its source (`LogManager.put_in_place`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.env.disk import DiskError
from ottla.records.errors import BatchError
from ottla.storage.checkpoints import TopicPartitionKey
from ottla.storage.leader_epochs import LeaderEpochs
from ottla.storage.log_directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    LONGEST_NAME,
    LogDirectory,
    parse_partition_directory,
)
from ottla.storage.recovery import LogPlace, create_log
from ottla.storage.retention import drop_segments
from ottla.storage.truncation import truncate_fully_and_start_at, truncate_to

if TYPE_CHECKING:
    from ottla.env.clock import Clock
    from ottla.env.disk import Disk
    from ottla.storage.log import PartitionLog
    from ottla.storage.log_directories import LogDirectories
    from ottla.storage.removals import Removals
    from ottla.storage.resources import LogResources

#: Partitions not hosted yet whose log directory is remembered; the oldest wish is forgotten then.
MOST_PREFERRED: Final = 100_000
#: Length of the id in the name of a future log's directory.
_ID_LENGTH: Final = 32


def parse_future_directory(name: str) -> TopicPartitionKey | None:
    """Topic and partition of a directory `TOPIC-N.ID-future`; None for any other name."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    head, dot, _ = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    return parse_partition_directory(head) if dot else None


def can_be_moved(topic: str, partition: int) -> bool:
    """Whether the name of the future log's directory is one that file systems accept."""
    return len(f"{topic}-{partition}.{FUTURE_SUFFIX}") + _ID_LENGTH <= LONGEST_NAME


class FutureLog:
    """A future log and its log directory."""

    __slots__ = ("cuts", "is_cut", "is_prepared", "log", "log_dir")

    def __init__(self, log: PartitionLog, log_dir: LogDirectory) -> None:
        self.log = log
        self.log_dir = log_dir
        #: How often the source was truncated: what was read of it before is not appended after it.
        self.cuts = 0
        #: Whether the recovery point has to be stored before more is appended, since the log was truncated.
        self.is_cut = False
        #: Whether everything that must be on disk before it takes its source's place is there, but for records.
        self.is_prepared = False


class FutureLogs:
    """The future logs of a broker, and the log directories that are preferred for partitions still to come.

    `on_cut` is called with each truncated log: its recovery point is to be stored before more is appended.

    Used from the event loop, as the logs are.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directories: LogDirectories,
        resources: LogResources,
        removals: Removals,
        note: Callable[[str], None],
        on_cut: Callable[[PartitionLog, LogDirectory], None],
    ) -> None:
        self._on_cut = on_cut
        self._disk = disk
        self._clock = clock
        self._directories = directories
        self._resources = resources
        self._removals = removals
        self._note = note
        self._futures: dict[TopicPartitionKey, FutureLog] = {}
        self._preferred: dict[TopicPartitionKey, LogDirectory] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def __iter__(self) -> Iterator[FutureLog]:
        return iter(self._futures.values())

    def get(self, topic: str, partition: int) -> FutureLog | None:
        """The future log of a partition; None if it has none."""
        return self._futures.get((topic, partition))

    def in_directory(self, log_dir: LogDirectory) -> dict[TopicPartitionKey, PartitionLog]:
        """The future logs in a log directory."""
        return {key: future.log for key, future in self._futures.items() if future.log_dir is log_dir}

    def without_moving(
        self, logs: Mapping[TopicPartitionKey, PartitionLog]
    ) -> Mapping[TopicPartitionKey, PartitionLog]:
        """These logs but for those that have a future log: as in Kafka they are not compacted meanwhile."""
        if not self._futures:
            return logs
        return {key: log for key, log in logs.items() if key not in self._futures}

    # -- log directories of partitions to come

    def prefer(self, key: TopicPartitionKey, log_dir: LogDirectory) -> None:
        """Remember where to create the log of a partition that is not hosted yet."""
        self._preferred.pop(key, None)
        self._preferred[key] = log_dir
        if len(self._preferred) > MOST_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def take_preferred(self, key: TopicPartitionKey) -> LogDirectory | None:
        """Take the log directory preferred for the partition's log, if there is one and it is in service."""
        log_dir = self._preferred.pop(key, None)
        return log_dir if log_dir is not None and log_dir.failure is None else None

    # -- coming and going

    def found(self, key: TopicPartitionKey, log: PartitionLog, log_dir: LogDirectory) -> None:
        """A future log was found at the start. Of two of one partition the longer one is kept."""
        other = self._futures.get(key)
        if other is not None and other.log.log_end_offset >= log.log_end_offset:
            self._remove_files(key, FutureLog(log, log_dir))
            return
        if other is not None:
            self._remove_files(key, other)
        self._futures[key] = FutureLog(log, log_dir)

    def create(self, source: PartitionLog, log_dir: LogDirectory) -> FutureLog:
        """Make an empty future log of `source` in another log directory. Raises DiskError."""
        key = (source.topic, source.partition)
        name = f"{source.topic}-{source.partition}.{self._directories.unique_id()}{FUTURE_SUFFIX}"
        start = source.log_start_offset
        place = LogPlace(f"{log_dir.path}/{name}", *key, source.config, log_start_offset=start)
        try:
            log = create_log(self._resources, place, source.topic_id, self._clock.now_ms())
            log.unflushed.recovery_point = start
            log.write_identity()
        except DiskError:
            with suppress(DiskError):
                self._disk.remove_tree(place.directory)
            raise
        future = self._futures[key] = FutureLog(log, log_dir)
        return future

    def remove(self, key: TopicPartitionKey) -> bool:
        """Give a future log up, and remove its files soon; False: there is none."""
        future = self._futures.pop(key, None)
        if future is not None:
            self._remove_files(key, future)
        return future is not None

    def _remove_files(self, key: TopicPartitionKey, future: FutureLog) -> None:
        future.log.release_files()
        log_dir, path = future.log_dir, future.log.directory
        try:
            renamed = self._directories.rename_partition(log_dir, path, key, DELETE_SUFFIX)
        except DiskError as error:
            self._note(str(error))
            self._directories.probe_soon(log_dir)
            return
        self._removals.add(self._clock.now_ms() + future.log.config.file_delete_delay_ms, renamed)
        self._directories.sync_soon(log_dir)

    def taken(self, key: TopicPartitionKey) -> None:
        """The future log has become the partition's log."""
        del self._futures[key]

    def drop(self, log_dir: LogDirectory) -> None:
        """Take the future logs of a failed log directory out of service."""
        for key in self.in_directory(log_dir):
            self._futures.pop(key).log.release_files()

    # -- following the source

    def agree(self, source: PartitionLog) -> None:
        """Cut off what the source does not have, by the leader epochs of both: one of them may be from another time.

        A future log that cannot be made to agree is given up.
        """
        future = self._futures[source.topic, source.partition]
        log = future.log
        key = (source.topic, source.partition)
        if log.topic_id is not None and source.topic_id is not None and log.topic_id != source.topic_id:
            self._note(f"{log.directory} is of another topic of this name, and removed")
            self.remove(key)
            return
        if future.log_dir is self._directories.log_dir_of(key):
            # The disk of the former source was lost, and the log begun anew.
            self._note(f"{log.directory} is removed: the log is in this log directory now")
            self.remove(key)
            return
        end = _common_end(log, source)
        if log.log_start_offset > source.log_start_offset or end <= log.log_start_offset:
            # A loss of power may take the first segment and leave the second one.
            self._attempt(future, partial(self._begin_anew, future, source.log_start_offset))
        elif end < log.log_end_offset:
            self._truncate(future, end)

    def follow(self, source: PartitionLog) -> None:
        """Bring settings, log start and high watermark of a future log to those of its source. Raises DiskError."""
        future = self._futures[source.topic, source.partition]
        log = future.log
        if log.config is not source.config:
            log.config = source.config
        start = source.log_start_offset
        if start > log.log_end_offset:
            self._begin_anew(future, start)
        elif start > log.log_start_offset:
            log.raise_log_start(start)
            passed = sum(1 for segment in log.segments[1:] if segment.base_offset <= start)
            self._discard(log, drop_segments(log, passed))
        log.update_high_watermark(source.high_watermark)

    def cut(self, source: PartitionLog) -> None:
        """The source was truncated: so is its future log. One that cannot be is given up."""
        future = self._futures.get((source.topic, source.partition))
        if future is None:
            return
        future.cuts += 1
        if source.log_start_offset == source.log_end_offset:
            self._attempt(future, partial(self._begin_anew, future, source.log_start_offset))
        elif future.log.log_end_offset > source.log_end_offset:
            self._truncate(future, source.log_end_offset)

    def _truncate(self, future: FutureLog, offset: int) -> None:
        log = future.log
        future.is_cut = True
        self._attempt(future, lambda: self._discard(log, truncate_to(log, offset, self._clock.now_ms())))
        self._on_cut(log, future.log_dir)

    def _begin_anew(self, future: FutureLog, offset: int) -> None:
        log = future.log
        future.is_cut = True
        self._discard(log, truncate_fully_and_start_at(log, offset, self._clock.now_ms()))

    def _attempt(self, future: FutureLog, work: Callable[[], None]) -> None:
        try:
            work()
        except (DiskError, BatchError) as error:
            log = future.log
            self._note(f"the move of {log.name} to {future.log_dir.path} has ended: {error}")
            self.remove((log.topic, log.partition))
            self._directories.probe_soon(future.log_dir)

    def _discard(self, log: PartitionLog, renamed: list[str]) -> None:
        due_ms = self._clock.now_ms() + log.config.file_delete_delay_ms
        for path in renamed:
            self._removals.add(due_ms, path)


def _common_end(log: PartitionLog, source: PartitionLog) -> int:
    """Up to which offset two logs of one partition hold the same records: the end of the newest epoch of both.

    Where records of the first one are missing, which a loss of power may do, it ends there.

    Without leader epochs, in messages of old formats, it is the high watermark.
    """
    known = dict(source.epochs.entries)
    log_end = log.log_end_offset if log.gap_offset is None else log.gap_offset
    if not known and not log.epochs.entries:
        return min(log.high_watermark, log_end, source.log_end_offset)
    for epoch, _ in reversed(log.epochs.entries):
        if epoch in known:
            own, its = log.epochs.end_of(epoch, log.log_end_offset), source.epochs.end_of(epoch, source.log_end_offset)
            return min(own.end_offset, its.end_offset, log_end)
    return log.log_start_offset


def has_all(log: PartitionLog, source: PartitionLog) -> None:
    """A future log has all records of its source: take over its end, which may lie behind the last record."""
    log.log_end_offset = log.producers.end_offset = source.log_end_offset


def take_over(log: PartitionLog, source: PartitionLog) -> None:
    """Let a log with the same records have all else of its source, which is not used any more.

    Producers whose records have been deleted are known to the source alone, as are leader epochs without records.
    Raises DiskError: then a snapshot of the producers is missing.
    """
    log.raise_log_start(source.log_start_offset)
    log.epochs = LeaderEpochs(list(source.epochs.entries))
    log.epochs.dirty = True
    log.gap_offset = source.gap_offset
    log.producers = source.producers
    log.producers.end_offset = log.log_end_offset
    log.update_high_watermark(source.high_watermark)
    log.unflushed.note_directory()
    log.save_epochs()
    # One of this offset may have been made without the producers that the source alone knows.
    log.snapshot_offset = 0
    log.take_snapshot()
