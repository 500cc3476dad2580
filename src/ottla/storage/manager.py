"""All logs of a broker: opening and closing, creating and deleting, and their background work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.cluster.ids import format_uuid
from ottla.env.clock import Clock
from ottla.env.collector import collect_new
from ottla.env.disk import Disk, DiskError
from ottla.env.executor import Executor
from ottla.env.randomness import Randomness
from ottla.env.warmth import bring, without_waiting
from ottla.storage.checkpointing import LOGS_PER_STEP, LogCheckpoints
from ottla.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    MetaProperties,
    TopicPartitionKey,
)
from ottla.storage.cleaning import CleanerSettings, LogCleaner
from ottla.storage.flush_queue import Flushed, FlushQueue, FlushTurns, flush_due, flush_now
from ottla.storage.future_logs import FutureLog, FutureLogs, take_over
from ottla.storage.future_timestamps import FutureTimestamps
from ottla.storage.log import PartitionLog
from ottla.storage.log_directories import LogDirectories
from ottla.storage.log_directory import DELETE_SUFFIX, LogDirectory
from ottla.storage.opening import LogOpening
from ottla.storage.recovery import LogPlace, create_log
from ottla.storage.removals import Removals
from ottla.storage.resources import LogResources
from ottla.storage.results import StorageRefusal
from ottla.storage.retention import confirm_expired, delete_old_segments
from ottla.storage.settings import StorageSettings
from ottla.storage.topic_settings import TopicSettingsKeeper
from ottla.storage.truncation import truncate_fully_and_start_at, truncate_to

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig

#: Callback for a failed log directory: the keys of its partitions, and whether it was the last working one.
LogDirectoryFailed = Callable[[list[TopicPartitionKey], bool], None]
#: Delay of the first retention check after the start, as in Kafka.
RETENTION_DELAY_MS: Final = 30_000
#: Times that retention of a log lets a disk thread read cold segments first, before it reads them on the loop.
MOST_COLD_ROUNDS: Final = 8
#: Messages of recovery and background work that are kept until they are taken.
MOST_NOTES: Final = 1_000
#: Lower limit of open segment files; the upper one is half of what the process may have open.
LEAST_OPEN_FILES: Final = 64
#: Topic ids that are written to new directories in a second, and in one step.
IDENTITIES_AT_ONCE: Final = 200
IDENTITIES_PER_STEP: Final = 10
#: Logs that are deleted between two looks of the collector at what that leaves behind, some thirty objects each.
DELETED_BEFORE_COLLECTION: Final = 32


@dataclass(slots=True, frozen=True)
class FoundPartition:
    """A partition whose directory existed at the start."""

    topic: str
    topic_id: UUID | None
    partition: int
    #: The newest leader epoch in its log, -1 if there is none: a broker that adopts it leads with a later one.
    leader_epoch: int = -1


class LogDirectoryState(NamedTuple):
    """The present state of a log directory: its path, why it is out of service (None: in service), its logs."""

    path: str
    absolute_path: str
    failure: str | None
    #: What helps against that; the beginning of a sentence.
    cure: str
    logs: list[PartitionLog]
    #: Logs that are being moved here.
    futures: list[PartitionLog]


class FormerLog(NamedTuple):
    """A log whose place another one has taken, and its log directory."""

    log: PartitionLog
    log_dir: LogDirectory


class LogManager:
    """The logs of one broker, in one or several log directories.

    `config_of` returns a topic's settings. Use it from the event loop only; `maintain` passes slow work to `executor`.
    `open` must be called first, `close` last.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        log_dirs: Sequence[str],
        config_of: Callable[[str], LogConfig],
        settings: StorageSettings | None = None,
        cleaner_settings: CleanerSettings | None = None,
        cleaner_executor: Executor | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._config_of = config_of
        self._settings = settings or StorageSettings()
        self._directories = LogDirectories(disk, clock, executor, log_dirs, self._note, self._on_failed)
        self._logs: dict[TopicPartitionKey, PartitionLog] = {}
        self._new_logs: deque[TopicPartitionKey] = deque()  # their directories may lack the topic's id
        open_files = max(LEAST_OPEN_FILES, min(self._settings.open_files, disk.open_files() // 2))
        expiration_ms = self._settings.producer_expiration_ms
        self._resources = LogResources(disk, open_files, producer_expiration_ms=expiration_ms, executor=executor)
        self._removals = Removals(disk, executor, self._note)
        self._future_timestamps = FutureTimestamps(self._note)
        self._deleted = 0
        self.flushes = FlushQueue(executor, clock.now_ms, self._flushed)
        self._checkpoints = LogCheckpoints(disk, self._directories, self._logs)
        #: Copies of logs on their way to other log directories.
        self.futures = FutureLogs(
            disk, clock, self._directories, self._resources, self._removals, self._note, self._checkpoints.note_cut
        )
        self.on_flushed: Flushed = lambda log, size, error: None
        #: Called with the partitions of a failed log directory, and whether that was the last working one.
        self.on_log_dir_failed: LogDirectoryFailed = lambda gone, is_last: None
        self._due: dict[str, int] = {}
        self._flush_turns = FlushTurns(self._settings.flush_interval_ms, 0)
        self._opened = False
        self._cleaner_executor = cleaner_executor
        #: Compaction; it has threads of its own if `cleaner_executor` is given.
        self.cleaner = LogCleaner(
            disk,
            clock,
            cleaner_executor or executor,
            cleaner_settings or CleanerSettings(),
            self._discard,
            self._on_cleaned,
            self._note,
            randomness=randomness,
        )
        self._checkpoints.include(self.futures.in_directory, self.cleaner.checkpoints)
        #: Stores the topics' settings beside their records.
        self.topic_settings = TopicSettingsKeeper(disk, executor, self._logs, self._note)
        #: Messages to the operator (what recovery removed, what failed in the background); take and clear them.
        self.notes: list[str] = []
        #: Partitions whose directories exist but cannot be opened because of their contents.
        self.unreadable: set[TopicPartitionKey] = set()
        #: Logs of which the cluster has not said that they belong here. What they hold, and their high watermarks, is
        #: kept: nobody has told their settings, and retention by the broker's own could delete what is to be kept.
        self.unclaimed: set[TopicPartitionKey] = set()

    # -- start

    def lock(self) -> StorageRefusal | None:
        """Lock all log directories; `open` does it too. After a refusal none is locked.

        One with a disk error is left out, as long as another works; one that is in use leads to a refusal.
        """
        return self._directories.lock()

    def open(self) -> StorageRefusal | None:
        """Lock the log directories and open every log in them, recovering those that were not closed cleanly."""
        refusal = self.lock() or self._open_log_dirs()
        if refusal is not None:
            self._directories.release()
            return refusal
        if self._settings.flush_on_ack:
            # Data that a killed process left in the page cache may be served, and must not be lost any more.
            flush_now(self._logs.values(), self._executor, self._clock.now_ms(), self._note)
        now_ms = self._clock.now_ms()
        settings = self._settings
        self._flush_turns = FlushTurns(settings.flush_interval_ms, now_ms)
        self._due = {
            "retention": now_ms + min(RETENTION_DELAY_MS, settings.retention_check_interval_ms),
            RECOVERY_POINT_FILE: now_ms + settings.recovery_point_checkpoint_interval_ms,
            LOG_START_FILE: now_ms + settings.log_start_checkpoint_interval_ms,
            HIGH_WATERMARK_FILE: now_ms + settings.high_watermark_checkpoint_interval_ms,
            "producers": now_ms + settings.producer_expiration_check_interval_ms,
        }
        self._opened = self._directories.is_probing = True
        return None

    def _open_log_dirs(self) -> StorageRefusal | None:
        opening = LogOpening(
            self._disk, self._clock, self._directories, self._resources, self._removals, self._config_of, self._note
        )
        refusal = opening.find()
        if refusal is not None:
            return refusal
        for log_dir, key, log in opening.load(self._executor, self._settings.recovery_threads):
            self._logs[key] = log
            self._directories.set_log_dir(key, log_dir)
            if key in log_dir.cleaner_offsets:
                self.cleaner.checkpoints[key] = log_dir.cleaner_offsets[key]
        for log_dir, key, log in opening.futures:
            self.futures.found(key, log, log_dir)
        self.unreadable |= opening.unreadable
        for log_dir in self._directories.all:
            if log_dir.failure is not None:
                self._drop_logs(log_dir)
        refusal = self._directories.refuse_if_all_failed()
        if refusal is None:
            for log_dir in self._directories.all:
                if log_dir.failure is not None:
                    self._note(_stopped_serving(log_dir))
        return refusal

    def _drop_logs(self, log_dir: LogDirectory) -> list[TopicPartitionKey]:
        """Take the logs of a log directory out of service; ranges that are being sent stay readable."""
        gone = self._directories.keys_in(log_dir)
        self.futures.drop(log_dir)
        for key in gone:
            self._directories.remove_log_dir(key)
            self.cleaner.forget(key)
            self._checkpoints.note(key)
            self._logs.pop(key).release_files()
        return gone

    def _note(self, text: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(text)

    # -- ownership of log directories

    @property
    def stored_identity(self) -> MetaProperties:
        """Cluster and broker id in the log directories' `meta.properties`; None if they name none. After `open`."""
        return self._directories.stored_identity

    @property
    def was_clean(self) -> bool:
        """Whether all log directories were closed cleanly the last time (or are new)."""
        return self._directories.was_clean

    def claim(self, cluster_id: str, broker_id: int) -> StorageRefusal | None:
        """Write the ids into log directories that name none; refuse if one belongs to another cluster or broker."""
        return self._directories.claim(cluster_id, broker_id)

    # -- failing log directories

    @property
    def failed_log_dirs(self) -> list[str]:
        """The log directories that are out of service."""
        return [log_dir.path for log_dir in self._directories.all if log_dir.failure is not None]

    def contents(self) -> list[LogDirectoryState]:
        """Each log directory with its logs."""
        keys = self._directories.keys_by_path()
        return [
            LogDirectoryState(
                log_dir.path,
                self._disk.absolute(log_dir.path),
                log_dir.failure,
                log_dir.cure,
                [self._logs[key] for key in keys[log_dir.path]],
                [*self.futures.in_directory(log_dir).values()],
            )
            for log_dir in self._directories.all
        ]

    def suspect(self, log: PartitionLog) -> None:
        """Handle a disk error of this log: probe its log directory in a disk thread."""
        key = (log.topic, log.partition)
        future = self.futures.get(*key)
        log_dir = self._directories.log_dir_of(key) if self._logs.get(key) is log else None
        if future is not None and future.log is log:
            log_dir = future.log_dir
        if log_dir is not None:
            self.suspect_log_dir(log_dir)

    def suspect_log_dir(self, log_dir: LogDirectory) -> None:
        """As `suspect`, of anything in a log directory."""
        self._directories.probe_soon(log_dir)

    def _on_failed(self, log_dir: LogDirectory) -> None:
        gone = self._drop_logs(log_dir)
        self._note(_stopped_serving(log_dir))
        self.on_log_dir_failed(gone, not self._directories.live())

    # -- logs

    @property
    def found(self) -> list[FoundPartition]:
        """Every partition, with the topic id that its directory names: for adoption into the cluster."""
        return [FoundPartition(log.topic, log.topic_id, log.partition, log.leader_epoch) for log in self._logs.values()]

    @property
    def highest_producer_id(self) -> int:
        """The highest producer id in any log, -1 if there is none."""
        return max((entry.producer_id for log in self._logs.values() for entry in log.producers), default=-1)

    def logs(self) -> Iterable[PartitionLog]:
        """All logs."""
        return self._logs.values()

    def unclaim_all(self) -> None:
        """Leave all logs alone until `create` names them: the cluster has yet to say which belong here."""
        self.unclaimed.update(self._logs)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """A partition's log; None if this broker has none."""
        return self._logs.get((topic, partition))

    @property
    def unflushed_bytes(self) -> int:
        """Size of the batches that are not known to be synced, in bytes."""
        return sum(log.unflushed.bytes for log in self._logs.values())

    def create(
        self, topic: str, topic_id: UUID | None, partition: int, log_config: LogConfig | None = None
    ) -> PartitionLog:
        """Create a partition's log in the log directory that holds the fewest, or return the existing one.
        DiskError.
        """
        key = (topic, partition)
        log = self._logs.get(key)
        self.unclaimed.discard(key)
        if log is not None:
            if log.topic_id is None and topic_id is not None:
                log.assign_topic_id(topic_id)
            return log
        self.unreadable.discard(key)
        self._forget_checkpoints(key, *self._directories.live())
        config = log_config if log_config is not None else self._config_of(topic)
        self._directories.make_room(key)
        while True:
            log_dir = self.futures.take_preferred(key) or self._directories.emptiest()
            place = LogPlace(f"{log_dir.path}/{topic}-{partition}", topic, partition, config)
            try:
                log = create_log(self._resources, place, topic_id, self._clock.now_ms())
                break
            except DiskError as error:
                self._undo_create(log_dir, place.directory, error)
        self._logs[key] = log
        self._new_logs.append(key)
        self._directories.set_log_dir(key, log_dir)
        self._checkpoints.note(key)
        return log

    def _forget_checkpoints(self, key: TopicPartitionKey, *log_dirs: LogDirectory) -> None:
        """Remove the entries of a former log of this partition; after a kill they would be applied to the new one.

        Raises DiskError.
        """
        if any(log_dir.names(key) for log_dir in log_dirs):
            self._checkpoints.forget(key, log_dirs)

    # -- moves between log directories

    def log_dir_at(self, path: str) -> LogDirectory | None:
        """The log directory of this absolute path, in service or not; None if `log.dirs` does not name it."""
        return self._directories.at(path)

    def begin_move(self, log: PartitionLog, log_dir: LogDirectory) -> FutureLog | None:
        """Make a future log in this log directory, or give one in another up; None if the log is there.

        Raises DiskError.
        """
        key = (log.topic, log.partition)
        future = self.futures.get(*key)
        if future is not None and future.log_dir is log_dir:
            return future
        self.futures.remove(key)
        if self._directories.log_dir_of(key) is log_dir:
            return None
        self.cleaner.abort(key)
        self._forget_checkpoints(key, log_dir)
        return self.futures.create(log, log_dir)

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
        self.futures.taken(key)
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
        self._removals.add(self._clock.now_ms() + log.config.file_delete_delay_ms, path)

    def set_aside(self, topic: str, topic_id: UUID, partition: int) -> bool:
        """Close a log whose directory names another topic's id, and leave its contents alone.

        Raises DiskError.
        """
        log = self._logs.get((topic, partition))
        if log is None or log.topic_id in (None, topic_id):
            return False
        self._note(
            f"{log.directory} is not served: it holds records of another topic of this name (topic id "
            f"{format_uuid(log.topic_id)}, and not {format_uuid(topic_id)}). Move the directory away; or remove its "
            f"{PARTITION_METADATA_FILE}, if its records are to become this topic's"
        )
        self._close_aside(log)
        return True

    def set_stray_aside(self, topic: str, partition: int) -> None:
        """Close a stray log (the cluster does not place its partition here) and leave it alone. Raises DiskError."""
        log = self._logs.get((topic, partition))
        if log is None:
            return
        self._note(
            f"{log.directory} is stray, and kept but not served: the coordination metadata of this cluster places no "
            "such partition on this broker. To read its records, stop the broker, move the directory to a log "
            "directory of its own and start a broker there, which adopts the topic; to delete the records, remove the "
            "directory. If Apache Kafka used this log directory meanwhile, and this broker is alone in its cluster, "
            "move the files ottla-tree.* away: the next start adopts every topic in the log directory"
        )
        self._close_aside(log)

    def _close_aside(self, log: PartitionLog) -> None:
        key = (log.topic, log.partition)
        del self._logs[key]
        self._directories.remove_log_dir(key)
        self._checkpoints.note(key)
        self.cleaner.forget(key)
        log.close(self._clock.now_ms())

    def _undo_create(self, log_dir: LogDirectory, path: str, error: DiskError) -> None:
        """Raise the error, unless the whole log directory has failed and another one can be tried."""
        try:
            self._disk.remove_tree(path)
        except DiskError as also:
            self._note(str(also))
        self._directories.raise_unless_failed(log_dir, error)

    def delete(self, topic: str, partition: int) -> bool:
        """Take a partition's log out of service and rename its directory, which is removed later; False: no such log.

        Raises DiskError if the directory cannot be renamed; the log is out of service then, too.
        """
        key = (topic, partition)
        self.unclaimed.discard(key)
        self.futures.remove(key)
        log = self._logs.pop(key, None)
        if log is None:
            return False
        self.cleaner.forget(key)
        self._checkpoints.note(key)
        log_dir = self._directories.remove_log_dir(key)
        log.release_files()
        path = self._directories.rename_partition(log_dir, log.directory, key, DELETE_SUFFIX)
        self._removals.add(self._clock.now_ms() + log.config.file_delete_delay_ms, path)
        self._directories.sync_soon(log_dir)
        self._deleted += 1
        if self._deleted % DELETED_BEFORE_COLLECTION == 0:
            collect_new()
        return True

    def apply_settings(self, settings: StorageSettings) -> None:
        """Apply new settings, except for the number of open files, which is fixed at the start."""
        self._settings = settings
        self._resources.producer_expiration_ms = settings.producer_expiration_ms

    # -- background work

    def maintain(self, now_ms: int) -> None:
        """Do what is due: flushes, retention, checkpoints, removals, expiry of producers. Call it every second."""
        for _ in self.maintain_in_steps(now_ms):
            pass

    def maintain_in_steps(self, now_ms: int) -> Generator[None, None, None]:
        """As `maintain`, in steps of a few milliseconds, between which logs may come and go. Raises DiskError."""
        if not self._opened:
            return
        settings = self._settings
        yield from self._write_identities()
        is_turn = self._flush_turns.begin(now_ms)
        for logs in self._some_at_a_time(self._logs):
            self.flushes.add(log for _, log in logs if log.flush_needed() and (is_turn(log) or flush_due(log, now_ms)))
            yield
        if self._is_due("retention", now_ms, settings.retention_check_interval_ms):
            yield from self._apply_retention(now_ms)
        if self._is_due("producers", now_ms, settings.producer_expiration_check_interval_ms):
            for logs in self._some_at_a_time(self._logs):
                for _, log in logs:
                    log.producers.expire(now_ms, settings.producer_expiration_ms)
                yield
        self.cleaner.maintain(self.futures.without_moving(self._claimed()), now_ms)
        self._removals.remove_due(now_ms)
        for name, interval_ms in (
            (RECOVERY_POINT_FILE, settings.recovery_point_checkpoint_interval_ms),
            (LOG_START_FILE, settings.log_start_checkpoint_interval_ms),
            (HIGH_WATERMARK_FILE, settings.high_watermark_checkpoint_interval_ms),
        ):
            if self._is_due(name, now_ms, interval_ms):
                yield
                yield from self._checkpoints.write_in_steps(name)

    def _write_identities(self) -> Generator[None, None, None]:
        """Write the topic ids of new logs, some in each second: very many would hold up the loop and the disk.

        Each costs two thirds of what it took to create the log. An append or the end of the broker writes its own.
        """
        for number in range(min(len(self._new_logs), IDENTITIES_AT_ONCE)):
            if number % IDENTITIES_PER_STEP == 0:
                yield
            if not self._new_logs:
                return
            key = self._new_logs.popleft()
            log = self._logs.get(key)
            if log is None or not log.is_new:
                continue
            try:
                log.write_identity()
            except DiskError:
                self._new_logs.append(key)
                self.suspect(log)

    def _some_at_a_time(
        self, logs: Mapping[TopicPartitionKey, PartitionLog]
    ) -> Iterator[list[tuple[TopicPartitionKey, PartitionLog]]]:
        """These logs in parts, without those that go meanwhile; none once the manager is closed."""
        # The keys alone: a hundred thousand new pairs would have the collector look at all of them, several times.
        found = iter(list(logs))
        while self._opened and (part := list(islice(found, LOGS_PER_STEP))):
            yield [(key, log) for key in part if (log := self._logs.get(key)) is not None]

    def _is_due(self, name: str, now_ms: int, interval_ms: int) -> bool:
        # A wall clock that was set back must not delay work by more than its interval.
        if now_ms < self._due[name] <= now_ms + interval_ms:
            return False
        self._due[name] = now_ms + interval_ms
        return True

    def apply_retention(self, now_ms: int) -> None:
        """Delete the segments that are past retention, in all logs."""
        for _ in self._apply_retention(now_ms):
            pass

    def _apply_retention(self, now_ms: int) -> Generator[None, None, None]:
        self._future_timestamps.retain(self._logs)
        for logs in self._some_at_a_time(self._claimed()):
            for key, log in logs:
                # Segments being compacted must stay until the round is over; retention comes after it.
                if not self.cleaner.is_cleaning(key):
                    self._delete_old_segments(log, now_ms)
            yield

    def _claimed(self) -> dict[TopicPartitionKey, PartitionLog]:
        if not self.unclaimed:
            return self._logs
        return {key: log for key, log in self._logs.items() if key not in self.unclaimed}

    def _delete_old_segments(self, log: PartitionLog, now_ms: int, rounds_left: int = MOST_COLD_ROUNDS) -> None:
        """Delete them now, or once a disk thread has read the timestamps that determine their age."""
        try:
            cold = without_waiting(lambda: confirm_expired(log, now_ms)) if rounds_left else ()
            if cold:
                self._executor.call(
                    partial(bring, self._disk, cold),
                    # If no thread can read them, they wait for the next check.
                    lambda _, error: None if error else self._again(log, now_ms, rounds_left - 1),
                )
                return
            self._discard(log, delete_old_segments(log, now_ms))
            self._future_timestamps.check(log, now_ms)
        except DiskError as error:
            self._note(f"retention of {log.name}: {error}")

    def _again(self, log: PartitionLog, now_ms: int, rounds_left: int) -> None:
        key = (log.topic, log.partition)
        if self._opened and self._logs.get(key) is log and not log.closed and not self.cleaner.is_cleaning(key):
            self._delete_old_segments(log, now_ms, rounds_left)

    def _discard(self, log: PartitionLog, renamed: list[str]) -> None:
        """Remove these files of the log after `file.delete.delay.ms`."""
        due_ms = self._clock.now_ms() + log.config.file_delete_delay_ms
        for path in renamed:
            self._removals.add(due_ms, path)

    def truncate(self, log: PartitionLog, offset: int) -> None:
        """Remove a follower's records from `offset` on; before more is appended, `store_recovery_points` must be done.

        Raises DiskError and BatchError; the log takes no appends then until it is opened again.
        """
        log_dir = self._directories.log_dir_of((log.topic, log.partition))
        try:
            self._discard(log, truncate_to(log, offset, self._clock.now_ms()))
        finally:
            if log_dir is not None:
                self._checkpoints.note_cut(log, log_dir)
            self.futures.cut(log)

    def begin_anew(self, log: PartitionLog, offset: int) -> None:
        """Remove all records of a follower's log, which begins at `offset` then; otherwise as `truncate`."""
        try:
            self._discard(log, truncate_fully_and_start_at(log, offset, self._clock.now_ms()))
        finally:
            self._checkpoints.note((log.topic, log.partition))
            self.futures.cut(log)

    def _on_cleaned(self, key: TopicPartitionKey) -> None:
        """A log was compacted: store how far, and apply retention if its policy also says delete."""
        log = self._logs.get(key)
        if log is not None and not log.closed:
            self._checkpoints.write_soon(CLEANER_FILE)
            self._delete_old_segments(log, self._clock.now_ms())

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush a log in a disk thread, and call `on_flushed`."""
        self.flushes.add([log])

    def _flushed(self, log: PartitionLog, size: int, error: BaseException | None) -> None:
        if error is not None and not log.closed:
            self._note(f"flush of {log.name}: {error}")
        self.on_flushed(log, size, error)
        if error is not None:
            self.suspect(log)

    # -- checkpoints

    def checkpoint(self) -> None:
        """Write all checkpoints synchronously. Raises DiskError."""
        self._checkpoints.write((RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE))

    def store_recovery_points(self, done: Callable[[], None]) -> None:
        """Write the recovery points in disk threads, and sync what was truncated, then call `done`.

        After a failure the log directory is probed.
        """
        self._checkpoints.store_recovery_points(done)

    def store_checkpoint(self, log_dir: LogDirectory, name: str, done: Callable[[], None]) -> None:
        """As `store_recovery_points`, one of the checkpoints of one log directory."""
        self._checkpoints.store(log_dir, name, done)

    # -- stop

    def close(self) -> int:
        """Complete, flush and close all logs, and mark the stop as clean; returns the bytes flushed.

        Blocks on the disk. Failures are reported in `notes`; their log directory is then recovered at the next start.
        """
        if not self._opened:
            self._directories.release()
            return 0
        self._opened = self._directories.is_probing = False
        self._checkpoints.close()
        self._removals.close()
        self.topic_settings.close()
        self.cleaner.close()
        if self._cleaner_executor is not None:
            self._cleaner_executor.close()
        now_ms = self._clock.now_ms()
        logs = {log: self._directories.log_dir_of(key) for key, log in self._logs.items()}
        logs.update((future.log, future.log_dir) for future in self.futures)
        forced, unflushed = flush_now(logs, self._executor, now_ms, self._note, closing=True)
        failed = {logs[log] for log in unflushed}
        for log in logs:
            log.release_files()
        try:
            self.checkpoint()
            for log_dir in self._directories.live():
                if log_dir not in failed:
                    log_dir.mark_clean()
        except DiskError as error:
            self._note(str(error))
        self._directories.release()
        return forced


def _stopped_serving(log_dir: LogDirectory) -> str:
    return (
        f"Stopping serving logs in dir {log_dir.path}: {log_dir.failure}. {log_dir.cure}, and restart the broker: "
        f"until then its partitions are offline"
    )
