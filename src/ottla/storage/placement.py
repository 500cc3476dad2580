"""Which log directory a log is in: the choice for a new one, and moves from one to another (KIP-113).

A log that moves is copied. The copy, a future log, stands in `TOPIC-N.ID-future`, and its offsets in the checkpoints of
its log directory, as Apache Kafka has them. It takes the appends of a follower, and follows its source: where that one
is truncated, or its beginning is deleted, so is the copy. Once it has everything it takes the place of its source
(`LogPlacement.put_in_place`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from ottla.config.topic import LogConfig
from ottla.env.clock import Clock
from ottla.env.disk import DiskError
from ottla.records.errors import BatchError
from ottla.storage.checkpointing import LogCheckpoints
from ottla.storage.checkpoints import TopicPartitionKey
from ottla.storage.cleaning import LogCleaner
from ottla.storage.leader_epochs import LeaderEpochs
from ottla.storage.log import PartitionLog
from ottla.storage.log_directories import LogDirectories
from ottla.storage.log_directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    LONGEST_NAME,
    LogDirectory,
    parse_partition_directory,
)
from ottla.storage.recovery import LogPlace, create_log
from ottla.storage.removals import Removals
from ottla.storage.resources import LogResources
from ottla.storage.retention import drop_segments
from ottla.storage.truncation import truncate_fully_and_start_at, truncate_to

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


@dataclass(slots=True, eq=False)
class FutureLog:
    """A future log and its log directory."""

    log: PartitionLog
    log_dir: LogDirectory
    #: How often the source was truncated: what was read of it before is not appended after it.
    cuts: int = 0
    #: Whether the recovery point has to be stored before more is appended, since the log was truncated.
    is_cut: bool = False
    #: Whether everything that must be on disk before it takes its source's place is there, but for records.
    is_prepared: bool = False


class FormerLog(NamedTuple):
    """A log whose place another one has taken, and its log directory."""

    log: PartitionLog
    log_dir: LogDirectory


class LogPlacement:
    """Makes the logs of a broker, and moves them between its log directories; `logs` are the manager's, by partition.

    Used from the event loop, as the logs are.
    """

    def __init__(
        self,
        clock: Clock,
        directories: LogDirectories,
        resources: LogResources,
        removals: Removals,
        checkpoints: LogCheckpoints,
        cleaner: LogCleaner,
        logs: MutableMapping[TopicPartitionKey, PartitionLog],
        note: Callable[[str], None],
    ) -> None:
        self._disk = resources.disk
        self._clock = clock
        self._directories = directories
        self._resources = resources
        self._removals = removals
        self._checkpoints = checkpoints
        self._cleaner = cleaner
        self._logs = logs
        self._note = note
        #: The future logs.
        self.futures: dict[TopicPartitionKey, FutureLog] = {}
        #: Log directories that are preferred for partitions still to come.
        self._preferred: dict[TopicPartitionKey, LogDirectory] = {}

    def futures_in(self, log_dir: LogDirectory) -> dict[TopicPartitionKey, PartitionLog]:
        """The future logs in a log directory."""
        return {key: future.log for key, future in self.futures.items() if future.log_dir is log_dir}

    def without_moving(
        self, logs: Mapping[TopicPartitionKey, PartitionLog]
    ) -> Mapping[TopicPartitionKey, PartitionLog]:
        """These logs but for those that have a future log: as in Kafka they are not compacted meanwhile."""
        if not self.futures:
            return logs
        return {key: log for key, log in logs.items() if key not in self.futures}

    # -- new logs

    def prefer(self, key: TopicPartitionKey, log_dir: LogDirectory) -> None:
        """Remember where to create the log of a partition that is not hosted yet."""
        self._preferred.pop(key, None)
        self._preferred[key] = log_dir
        if len(self._preferred) > MOST_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def create(self, key: TopicPartitionKey, topic_id: UUID | None, config: LogConfig) -> PartitionLog:
        """Create a partition's log in the log directory that is preferred, or holds the fewest. Raises DiskError."""
        self._checkpoints.forget(key, self._directories.live())
        self._directories.make_room(key)
        topic, partition = key
        while True:
            log_dir = self._take_preferred(key) or self._directories.emptiest()
            place = LogPlace(f"{log_dir.path}/{topic}-{partition}", topic, partition, config)
            try:
                log = create_log(self._resources, place, topic_id, self._clock.now_ms())
                break
            except DiskError as error:
                self._undo_create(log_dir, place.directory, error)
        self._logs[key] = log
        self._directories.set_log_dir(key, log_dir)
        self._checkpoints.note(key)
        return log

    def _take_preferred(self, key: TopicPartitionKey) -> LogDirectory | None:
        """Take the log directory preferred for the partition's log, if there is one and it is in service."""
        log_dir = self._preferred.pop(key, None)
        return log_dir if log_dir is not None and log_dir.failure is None else None

    def _undo_create(self, log_dir: LogDirectory, path: str, error: DiskError) -> None:
        """Raise the error, unless the whole log directory has failed and another one can be tried."""
        try:
            self._disk.remove_tree(path)
        except DiskError as also:
            self._note(str(also))
        self._directories.raise_unless_failed(log_dir, error)

    # -- moves

    def begin_move(self, log: PartitionLog, log_dir: LogDirectory) -> FutureLog | None:
        """Make a future log in this log directory, and remove one in another; None if the log is there.

        Raises DiskError.
        """
        key = (log.topic, log.partition)
        future = self.futures.get(key)
        if future is not None and future.log_dir is log_dir:
            return future
        self.remove_future(key)
        if self._directories.log_dir_of(key) is log_dir:
            return None
        self._cleaner.abort(key)
        self._checkpoints.forget(key, (log_dir,))
        return self._create_future(log, log_dir)

    def put_in_place(self, future: FutureLog) -> FormerLog:
        """Let a future log, which has everything and is on disk, be the partition's log from now on.

        Until `retire` has renamed the former directory there are two of the partition's name: the marker tells which
        is the newer one. Raises DiskError; then nothing has changed.
        """
        log = future.log
        key = (log.topic, log.partition)
        former, former_dir = self._logs[key], self._directories.remove_log_dir(key)
        directory = f"{future.log_dir.path}/{log.name}"
        try:
            self._disk.rename(log.directory, directory)
        except DiskError:
            self._directories.set_log_dir(key, former_dir)
            raise
        log.relocate(directory)
        self._logs[key] = log
        self._directories.set_log_dir(key, future.log_dir)
        self._checkpoints.note(key)
        del self.futures[key]
        try:
            take_over(log, former)
        except DiskError as error:
            self._note(f"{log.name} is moved to {log.directory}, but: {error}")
        former.release_files()
        return FormerLog(former, former_dir)

    def retire(self, former: FormerLog) -> None:
        """Rename the directory of a log whose place was taken; it is removed later. Raises DiskError."""
        log, log_dir = former
        key = (log.topic, log.partition)
        present = self._logs.get(key)
        if present is not None and present.directory == log.directory:
            return  # the name was needed by a new log, and made free
        path = self._directories.rename_partition(log_dir, log.directory, key, DELETE_SUFFIX)
        log.relocate(path)
        self._removals.discard(log, [path])

    # -- future logs, coming and going

    def found_future(self, key: TopicPartitionKey, log: PartitionLog, log_dir: LogDirectory) -> None:
        """A future log was found at the start. Of two of one partition the longer one is kept."""
        other = self.futures.get(key)
        if other is not None and other.log.log_end_offset >= log.log_end_offset:
            self._remove_files(key, FutureLog(log, log_dir))
            return
        if other is not None:
            self._remove_files(key, other)
        self.futures[key] = FutureLog(log, log_dir)

    def _create_future(self, source: PartitionLog, log_dir: LogDirectory) -> FutureLog:
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
        future = self.futures[key] = FutureLog(log, log_dir)
        return future

    def remove_future(self, key: TopicPartitionKey) -> None:
        """Give a future log up, if there is one, and remove its files soon."""
        future = self.futures.pop(key, None)
        if future is not None:
            self._remove_files(key, future)

    def _remove_files(self, key: TopicPartitionKey, future: FutureLog) -> None:
        future.log.release_files()
        log_dir, path = future.log_dir, future.log.directory
        try:
            renamed = self._directories.rename_partition(log_dir, path, key, DELETE_SUFFIX)
        except DiskError as error:
            self._note(str(error))
            self._directories.probe_soon(log_dir)
            return
        self._removals.discard(future.log, [renamed])
        self._directories.sync_soon(log_dir)

    def drop_futures(self, log_dir: LogDirectory) -> None:
        """Take the future logs of a failed log directory out of service."""
        for key in self.futures_in(log_dir):
            self.futures.pop(key).log.release_files()

    # -- following the source

    def agree(self, source: PartitionLog) -> None:
        """Cut off what the source does not have, by the leader epochs of both: one of them may be from another time.

        A future log that cannot be made to agree is removed.
        """
        future = self.futures[source.topic, source.partition]
        log = future.log
        key = (source.topic, source.partition)
        if log.topic_id is not None and source.topic_id is not None and log.topic_id != source.topic_id:
            self._note(f"{log.directory} is of another topic of this name, and removed")
            self.remove_future(key)
            return
        if future.log_dir is self._directories.log_dir_of(key):
            # The disk of the former source was lost, and the log restarted here.
            self._note(f"{log.directory} is removed: the log is in this log directory now")
            self.remove_future(key)
            return
        end = _common_end(log, source)
        if log.log_start_offset > source.log_start_offset or end <= log.log_start_offset:
            # A loss of power may take the first segment and leave the second one.
            self._attempt(future, partial(self._truncate_fully, future, source.log_start_offset))
        elif end < log.log_end_offset:
            self._truncate(future, end)

    def follow(self, source: PartitionLog) -> None:
        """Bring settings, log start and high watermark of a future log to those of its source. Raises DiskError."""
        future = self.futures[source.topic, source.partition]
        log = future.log
        log.config = source.config
        start = source.log_start_offset
        if start > log.log_end_offset:
            self._truncate_fully(future, start)
        elif start > log.log_start_offset:
            log.raise_log_start(start)
            passed = sum(1 for segment in log.segments[1:] if segment.base_offset <= start)
            self._removals.discard(log, drop_segments(log, passed))
        log.update_high_watermark(source.high_watermark)

    def cut(self, source: PartitionLog) -> None:
        """Truncate the future log as its source was; one that cannot be is removed."""
        future = self.futures.get((source.topic, source.partition))
        if future is None:
            return
        future.cuts += 1
        if source.log_start_offset == source.log_end_offset:
            self._attempt(future, partial(self._truncate_fully, future, source.log_start_offset))
        elif future.log.log_end_offset > source.log_end_offset:
            self._truncate(future, source.log_end_offset)

    def _truncate(self, future: FutureLog, offset: int) -> None:
        log = future.log
        future.is_cut = True
        self._attempt(future, lambda: self._removals.discard(log, truncate_to(log, offset, self._clock.now_ms())))
        self._checkpoints.note_cut(log, future.log_dir)

    def _truncate_fully(self, future: FutureLog, offset: int) -> None:
        log = future.log
        future.is_cut = True
        self._removals.discard(log, truncate_fully_and_start_at(log, offset, self._clock.now_ms()))

    def _attempt(self, future: FutureLog, work: Callable[[], None]) -> None:
        try:
            work()
        except (DiskError, BatchError) as error:
            log = future.log
            self._note(f"the move of {log.name} to {future.log_dir.path} has ended: {error}")
            self.remove_future((log.topic, log.partition))
            self._directories.probe_soon(future.log_dir)


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
    """A future log has all records of its source: take over its log end offset, which may be larger."""
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
