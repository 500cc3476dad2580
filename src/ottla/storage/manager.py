"""All logs of a broker: opening and closing, creating and deleting, and their background work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.cluster.ids import format_uuid
from ottla.cluster.topics import CLUSTER_METADATA_TOPIC
from ottla.env.clock import Clock
from ottla.env.disk import Disk, DiskError
from ottla.env.executor import Executor
from ottla.env.randomness import Randomness
from ottla.env.warmth import bring, without_waiting
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
from ottla.storage.loading import Unreadable, load_logs
from ottla.storage.log import PartitionLog
from ottla.storage.log_directories import LogDirectories
from ottla.storage.log_directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    parse_partition_directory,
)
from ottla.storage.recovery import LogPlace, create_log
from ottla.storage.removals import Removals
from ottla.storage.resources import LogResources
from ottla.storage.results import StorageRefusal
from ottla.storage.retention import confirm_expired, delete_old_segments
from ottla.storage.settings import StorageSettings
from ottla.storage.topic_settings import TopicSettingsKeeper

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
    logs: list[PartitionLog]


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
        self._resources = LogResources(
            disk,
            max(LEAST_OPEN_FILES, min(self._settings.open_files, disk.open_files() // 2)),
            producer_expiration_ms=self._settings.producer_expiration_ms,
        )
        self._removals = Removals(disk, executor, self._note)
        self._flushes = FlushQueue(executor, clock.now_ms, self._flushed)
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
        found: dict[TopicPartitionKey, LogDirectory] = {}
        places: list[list[LogPlace]] = []
        for log_dir in self._directories.all:
            refusal = log_dir.open()
            if refusal is not None:
                return refusal
            names = self._find_partitions(log_dir) if log_dir.failure is None else []
            for key, _ in names:
                if key in found:
                    return StorageRefusal(
                        f"Duplicate log directories for {key[0]}-{key[1]} are found in both {found[key].path} and "
                        f"{log_dir.path}. Keep the right one and move the other out of log.dirs"
                    )
                found[key] = log_dir
            places.append([place for _, place in names])
        self._load(places)
        refusal = self._directories.refuse_if_all_failed()
        if refusal is None:
            for log_dir in self._directories.all:
                if log_dir.failure is not None:
                    self._note(_stopped_serving(log_dir))
        return refusal

    def _find_partitions(self, log_dir: LogDirectory) -> list[tuple[TopicPartitionKey, LogPlace]]:
        """The logs in a log directory, with their checkpoints; interrupted deletions are completed soon."""
        now_ms = self._clock.now_ms()
        for note in log_dir.read_checkpoints():
            self._note(note)
        found = []
        try:
            for name in self._disk.listdir(log_dir.path):
                path = f"{log_dir.path}/{name}"
                if name.endswith(DELETE_SUFFIX) and self._disk.is_dir(path):
                    self._removals.add(now_ms, path)
                elif not name.endswith((FUTURE_SUFFIX, STRAY_SUFFIX)):
                    key = parse_partition_directory(name)
                    # The log of a KRaft quorum is not a topic's partition; Apache Kafka's LogManager skips it, too.
                    is_partition = key is not None and key[0] != CLUSTER_METADATA_TOPIC
                    if key is not None and is_partition and self._disk.is_dir(path):
                        found.append((key, self._place(log_dir, key, path)))
        except DiskError as error:
            log_dir.failure = str(error)
            return []
        return found

    def _place(self, log_dir: LogDirectory, key: TopicPartitionKey, path: str) -> LogPlace:
        return LogPlace(
            path,
            key[0],
            key[1],
            self._config_of(key[0]),
            log_dir.clean,
            log_dir.recovery.get(key, 0),
            log_dir.log_starts.get(key, 0),
            log_dir.high_watermarks.get(key, 0),
        )

    def _load(self, places: list[list[LogPlace]]) -> None:
        """Open the logs of all log directories; one with a read error is out of service."""
        loaded = load_logs(
            self._resources, self._executor, places, self._settings.recovery_threads, self._clock.now_ms()
        )
        for log_dir, its_places, its_logs in zip(self._directories.all, places, loaded, strict=True):
            for place, log in zip(its_places, its_logs, strict=True):
                for note in place.notes:
                    self._note(note)
                if isinstance(log, PartitionLog):
                    key = (place.topic, place.partition)
                    self._logs[key] = log
                    self._directories.set_log_dir(key, log_dir)
                    if key in log_dir.cleaner_offsets:
                        self.cleaner.checkpoints[key] = log_dir.cleaner_offsets[key]
                elif isinstance(log, Unreadable):
                    self.unreadable.add((place.topic, place.partition))
                    self._note(str(log))
                elif log is not None:
                    log_dir.failure = log_dir.failure or str(log)
            if log_dir.failure is not None:
                self._drop_logs(log_dir)

    def _drop_logs(self, log_dir: LogDirectory) -> list[TopicPartitionKey]:
        """Take the logs of a log directory out of service; ranges that are being sent stay readable."""
        gone = self._directories.keys_in(log_dir)
        for key in gone:
            self._directories.remove_log_dir(key)
            self.cleaner.forget(key)
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
                [self._logs[key] for key in keys[log_dir.path]],
            )
            for log_dir in self._directories.all
        ]

    def suspect(self, log: PartitionLog) -> None:
        """Handle a disk error of this log: probe its log directory in a disk thread."""
        log_dir = self._directories.log_dir_of((log.topic, log.partition))
        if log_dir is not None:
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
        if any(log_dir.names(key) for log_dir in self._directories.live()):
            # Entries of a deleted partition of this name; after a kill they would be applied to the new one.
            self._checkpoint(RECOVERY_POINT_FILE, wait=True)
            self._checkpoint(LOG_START_FILE, wait=True)
            self._checkpoint(CLEANER_FILE, wait=True)
        config = log_config if log_config is not None else self._config_of(topic)
        self._directories.make_room(key)
        while True:
            log_dir = self._directories.emptiest()
            place = LogPlace(f"{log_dir.path}/{topic}-{partition}", topic, partition, config)
            try:
                log = create_log(self._resources, place, topic_id, self._clock.now_ms())
                break
            except DiskError as error:
                self._undo_create(log_dir, place.directory, error)
        self._logs[key] = log
        self._directories.set_log_dir(key, log_dir)
        return log

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
        log = self._logs.pop(key, None)
        if log is None:
            return False
        self.cleaner.forget(key)
        log_dir = self._directories.remove_log_dir(key)
        log.release_files()
        path = self._directories.rename_partition(log_dir, log.directory, key, DELETE_SUFFIX)
        self._removals.add(self._clock.now_ms() + log.config.file_delete_delay_ms, path)
        self._directories.sync_soon(log_dir)
        return True

    def apply_settings(self, settings: StorageSettings) -> None:
        """Apply new settings, except for the number of open files, which is fixed at the start."""
        self._settings = settings
        self._resources.producer_expiration_ms = settings.producer_expiration_ms

    def apply_config(self, topic: str, log_config: LogConfig) -> None:
        """Apply new settings to the topic's logs."""
        for log in self._logs.values():
            if log.topic == topic:
                log.apply_config(log_config)

    # -- background work

    def maintain(self, now_ms: int) -> None:
        """Do what is due: flushes, retention, checkpoints, removals, expiry of producers. Call it every second."""
        if not self._opened:
            return
        settings = self._settings
        logs = self._logs.values()
        self._flushes.add(self._flush_turns.take((log for log in logs if log.flush_needed()), now_ms))
        self._flushes.add(log for log in logs if flush_due(log, now_ms))
        if self._is_due("retention", now_ms, settings.retention_check_interval_ms):
            self.apply_retention(now_ms)
        if self._is_due("producers", now_ms, settings.producer_expiration_check_interval_ms):
            for log in self._logs.values():
                log.producers.expire(now_ms, settings.producer_expiration_ms)
        self.cleaner.maintain(self._claimed(), now_ms)
        self._removals.remove_due(now_ms)
        for name, interval_ms in (
            (RECOVERY_POINT_FILE, settings.recovery_point_checkpoint_interval_ms),
            (LOG_START_FILE, settings.log_start_checkpoint_interval_ms),
            (HIGH_WATERMARK_FILE, settings.high_watermark_checkpoint_interval_ms),
        ):
            if self._is_due(name, now_ms, interval_ms):
                self._checkpoint(name, wait=False)

    def _is_due(self, name: str, now_ms: int, interval_ms: int) -> bool:
        # A wall clock that was set back must not delay work by more than its interval.
        if now_ms < self._due[name] <= now_ms + interval_ms:
            return False
        self._due[name] = now_ms + interval_ms
        return True

    def apply_retention(self, now_ms: int) -> None:
        """Delete the segments that are past retention, in all logs."""
        for key, log in self._claimed().items():
            # Segments being compacted must stay until the round is over; retention comes after it.
            if not self.cleaner.is_cleaning(key):
                self._delete_old_segments(log, now_ms)

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
        self._discard(log, log.truncate_to(offset, self._clock.now_ms()))

    def begin_anew(self, log: PartitionLog, offset: int) -> None:
        """Remove all records of a follower's log, which begins at `offset` then; otherwise as `truncate`."""
        self._discard(log, log.truncate_fully_and_start_at(offset, self._clock.now_ms()))

    def _on_cleaned(self, key: TopicPartitionKey) -> None:
        """A log was compacted: store how far, and apply retention if its policy also says delete."""
        log = self._logs.get(key)
        if log is not None and not log.closed:
            self._checkpoint(CLEANER_FILE, wait=False)
            self._delete_old_segments(log, self._clock.now_ms())

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush a log in a disk thread, and call `on_flushed`."""
        self._flushes.add([log])

    def _flushed(self, log: PartitionLog, size: int, error: BaseException | None) -> None:
        if error is not None and not log.closed:
            self._note(f"flush of {log.name}: {error}")
        self.on_flushed(log, size, error)
        if error is not None:
            self.suspect(log)

    # -- checkpoints

    def checkpoint(self) -> None:
        """Write all checkpoints synchronously. Raises DiskError."""
        for name in (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE):
            self._checkpoint(name, wait=True)

    def _checkpoint(self, name: str, wait: bool) -> None:
        for log_dir in self._directories.live():
            changed = log_dir.changed_checkpoint(name, self._offsets(name, log_dir), is_on_disk=wait)
            if changed is None:
                continue
            if wait:
                log_dir.write_checkpoint(changed)
            else:
                self._directories.in_background(partial(log_dir.write_checkpoint, changed), log_dir)

    def store_recovery_points(self, done: Callable[[], None]) -> None:
        """Write the recovery points in disk threads, then call `done`; after a failure the log directory is probed."""
        waiting = 1

        def written() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                done()

        for log_dir in self._directories.live():
            offsets = self._offsets(RECOVERY_POINT_FILE, log_dir)
            changed = log_dir.changed_checkpoint(RECOVERY_POINT_FILE, offsets, is_on_disk=True)
            if changed is not None:
                waiting += 1
                self._directories.in_background(partial(log_dir.write_checkpoint, changed), log_dir, written)
        written()

    def _offsets(self, name: str, log_dir: LogDirectory) -> dict[TopicPartitionKey, int]:
        logs = {key: self._logs[key] for key in self._directories.keys_in(log_dir)}
        if name == RECOVERY_POINT_FILE:
            return {key: log.recovery_point for key, log in logs.items()}
        if name == CLEANER_FILE:
            cleaned = self.cleaner.checkpoints
            return {key: cleaned[key] for key in logs if key in cleaned}
        if name == HIGH_WATERMARK_FILE:
            return {key: log.high_watermark for key, log in logs.items()}
        return {
            key: log.log_start_offset for key, log in logs.items() if log.log_start_offset > log.segments[0].base_offset
        }

    # -- stop

    def close(self) -> int:
        """Complete, flush and close all logs, and mark the stop as clean; returns the bytes flushed.

        Blocks on the disk. Failures are reported in `notes`; their log directory is then recovered at the next start.
        """
        if not self._opened:
            self._directories.release()
            return 0
        self._opened = self._directories.is_probing = False
        self._removals.close()
        self.topic_settings.close()
        self.cleaner.close()
        if self._cleaner_executor is not None:
            self._cleaner_executor.close()
        now_ms = self._clock.now_ms()
        forced, unflushed = flush_now(self._logs.values(), self._executor, now_ms, self._note, closing=True)
        failed = {self._directories.log_dir_of((log.topic, log.partition)) for log in unflushed}
        for log in self._logs.values():
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
        f"Stopping serving logs in dir {log_dir.path}: {log_dir.failure}. Its partitions are offline until the disk "
        f"works again and the broker was restarted"
    )
