"""All logs of a broker: opening, closing and deleting them, and finding one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from ottla.cluster.ids import format_uuid
from ottla.config.topic import LogConfig
from ottla.env.clock import Clock
from ottla.env.collector import collect_new
from ottla.env.disk import Disk, DiskError
from ottla.env.executor import Executor
from ottla.env.randomness import Randomness
from ottla.storage.checkpointing import LogCheckpoints
from ottla.storage.checkpoints import PARTITION_METADATA_FILE, TopicPartitionKey
from ottla.storage.cleaning import CleanerSettings, LogCleaner
from ottla.storage.flush_queue import flush_now
from ottla.storage.log import PartitionLog
from ottla.storage.log_directories import LogDirectories
from ottla.storage.log_directory import DELETE_SUFFIX, LogDirectory
from ottla.storage.opening import LogOpening
from ottla.storage.placement import LogPlacement
from ottla.storage.removals import Removals
from ottla.storage.resources import LogResources
from ottla.storage.results import StorageRefusal
from ottla.storage.topic_settings import TopicSettingsFiles
from ottla.storage.truncation import truncate_fully_and_start_at, truncate_to
from ottla.storage.upkeep import LogUpkeep, StorageSettings

#: Callback for a failed log directory: the keys of its partitions, and whether it was the last working one.
LogDirectoryFailed = Callable[[list[TopicPartitionKey], bool], None]
#: Messages of recovery and background work that are kept until they are taken.
MOST_NOTES: Final = 1_000
#: Lower limit of open segment files; the upper one is half of what the process may have open.
LEAST_OPEN_FILES: Final = 64
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


class LogManager:
    """The logs of one broker, in one or several log directories.

    `config_of` returns a topic's settings. Use it from the event loop only; slow work is passed to `executor`.
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
        settings = settings or StorageSettings()
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._cleaner_executor = cleaner_executor
        self._config_of = config_of
        self._deleted = 0
        #: Messages to the operator (what recovery removed, what failed in the background); take and clear them.
        self.notes: list[str] = []
        self._logs: dict[TopicPartitionKey, PartitionLog] = {}
        #: Logs that the cluster has not confirmed to belong here. Their records and high watermarks are kept: their
        #: settings are unknown, and retention by the broker's own could delete too much.
        self.unclaimed: set[TopicPartitionKey] = set()
        #: Partitions whose directories exist but cannot be opened because of their contents.
        self.unreadable: set[TopicPartitionKey] = set()
        logs, unclaimed = self._logs, self.unclaimed
        note, suspect = self._note, self.suspect
        #: Called with the partitions of a failed log directory, and whether that was the last working one.
        self.on_log_dir_failed: LogDirectoryFailed = lambda gone, is_last: None
        open_files = max(LEAST_OPEN_FILES, min(settings.open_files, disk.open_files() // 2))
        expiration_ms = settings.producer_expiration_ms
        self._resources = LogResources(disk, open_files, producer_expiration_ms=expiration_ms, executor=executor)
        self._removals = removals = Removals(disk, clock, executor, note)
        self.directories = LogDirectories(disk, clock, executor, log_dirs, note, self._on_failed)
        self.checkpoints = checkpoints = LogCheckpoints(disk, self.directories, logs)
        #: Compaction; it has threads of its own if `cleaner_executor` is given.
        self.cleaner = cleaner = LogCleaner(
            disk,
            clock,
            cleaner_executor or executor,
            cleaner_settings or CleanerSettings(),
            removals.discard,
            lambda key: self.upkeep.cleaned(key),
            note,
            randomness=randomness,
        )
        #: Which log directory a log is in.
        self.placement = placement = LogPlacement(
            clock, self.directories, self._resources, removals, checkpoints, cleaner, logs, note
        )
        checkpoints.include(placement.futures_in, cleaner.checkpoints)
        #: The background work.
        self.upkeep = LogUpkeep(
            disk, clock, executor, settings, logs, unclaimed, placement, checkpoints, removals, cleaner, note, suspect
        )
        #: Stores the topics' settings beside their records.
        self.topic_settings = TopicSettingsFiles(disk, executor, logs, note)

    # -- start

    def open(self) -> StorageRefusal | None:
        """Lock the log directories and open every log in them, recovering those that were not closed cleanly."""
        refusal = self.directories.lock() or self._open_log_dirs()
        if refusal is not None:
            self.directories.release()
            return refusal
        if self.upkeep.settings.flush_on_ack:
            # Data that a killed process left in the page cache may be served, and must not be lost any more.
            flush_now(self._logs.values(), self._executor, self._clock.now_ms(), self._note)
        self.upkeep.begin(self._clock.now_ms())
        self.directories.is_probing = True
        return None

    def _open_log_dirs(self) -> StorageRefusal | None:
        opening = LogOpening(
            self._disk, self._clock, self.directories, self._resources, self._removals, self._config_of, self._note
        )
        refusal = opening.find()
        if refusal is not None:
            return refusal
        for log_dir, key, log in opening.load(self._executor, self.upkeep.settings.recovery_threads):
            self._logs[key] = log
            self.directories.set_log_dir(key, log_dir)
            if key in log_dir.cleaner_offsets:
                self.cleaner.checkpoints[key] = log_dir.cleaner_offsets[key]
        for log_dir, key, log in opening.futures:
            self.placement.found_future(key, log, log_dir)
        self.unreadable |= opening.unreadable
        for log_dir in self.directories.all:
            if log_dir.failure is not None:
                self._drop_logs(log_dir)
        refusal = self.directories.refuse_if_all_failed()
        if refusal is None:
            for log_dir in self.directories.all:
                if log_dir.failure is not None:
                    self._note(_stopped_serving(log_dir))
        return refusal

    def _drop_logs(self, log_dir: LogDirectory) -> list[TopicPartitionKey]:
        """Take the logs of a log directory out of service; ranges that are being sent stay readable."""
        gone = self.directories.keys_in(log_dir)
        self.placement.drop_futures(log_dir)
        for key in gone:
            self.directories.remove_log_dir(key)
            self.cleaner.forget(key)
            self.checkpoints.note(key)
            self._logs.pop(key).release_files()
        return gone

    def _note(self, text: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(text)

    # -- failing log directories

    @property
    def failed_log_dirs(self) -> list[str]:
        """The log directories that are out of service."""
        return [log_dir.path for log_dir in self.directories.all if log_dir.failure is not None]

    def contents(self) -> list[LogDirectoryState]:
        """Each log directory with its logs."""
        keys = self.directories.keys_by_path()
        return [
            LogDirectoryState(
                log_dir.path,
                self._disk.absolute(log_dir.path),
                log_dir.failure,
                log_dir.cure,
                [self._logs[key] for key in keys[log_dir.path]],
                [*self.placement.futures_in(log_dir).values()],
            )
            for log_dir in self.directories.all
        ]

    def suspect(self, log: PartitionLog) -> None:
        """Handle a disk error of this log: probe its log directory in a disk thread."""
        key = (log.topic, log.partition)
        future = self.placement.futures.get(key)
        log_dir = self.directories.log_dir_of(key) if self._logs.get(key) is log else None
        if future is not None and future.log is log:
            log_dir = future.log_dir
        if log_dir is not None:
            self.directories.probe_soon(log_dir)

    def _on_failed(self, log_dir: LogDirectory) -> None:
        gone = self._drop_logs(log_dir)
        self._note(_stopped_serving(log_dir))
        self.on_log_dir_failed(gone, not self.directories.live())

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
        """Create a partition's log, or return the existing one. Raises DiskError."""
        key = (topic, partition)
        log = self._logs.get(key)
        self.unclaimed.discard(key)
        if log is not None:
            if log.topic_id is None and topic_id is not None:
                log.assign_topic_id(topic_id)
            return log
        self.unreadable.discard(key)
        config = log_config if log_config is not None else self._config_of(topic)
        log = self.placement.create(key, topic_id, config)
        self.upkeep.new_logs.append(key)
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
        self.directories.remove_log_dir(key)
        self.checkpoints.note(key)
        self.cleaner.forget(key)
        log.close(self._clock.now_ms())

    def delete(self, topic: str, partition: int) -> bool:
        """Take a partition's log out of service and rename its directory, which is removed later; False: no such log.

        Raises DiskError if the directory cannot be renamed; the log is out of service then, too.
        """
        key = (topic, partition)
        self.unclaimed.discard(key)
        self.placement.remove_future(key)
        log = self._logs.pop(key, None)
        if log is None:
            return False
        self.cleaner.forget(key)
        self.checkpoints.note(key)
        log_dir = self.directories.remove_log_dir(key)
        log.release_files()
        path = self.directories.rename_partition(log_dir, log.directory, key, DELETE_SUFFIX)
        self._removals.discard(log, [path])
        self.directories.sync_soon(log_dir)
        self._deleted += 1
        if self._deleted % DELETED_BEFORE_COLLECTION == 0:
            collect_new()
        return True

    def apply_settings(self, settings: StorageSettings) -> None:
        """Apply new settings, except for the number of open files, which is fixed at the start."""
        self.upkeep.settings = settings
        self._resources.producer_expiration_ms = settings.producer_expiration_ms

    # -- truncation, of followers

    def truncate(self, log: PartitionLog, offset: int) -> None:
        """Remove a follower's records from `offset` on; before more is appended, `checkpoints.store_recovery_points`
        must be done.

        Raises DiskError and BatchError; the log takes no appends then until it is opened again.
        """
        log_dir = self.directories.log_dir_of((log.topic, log.partition))
        try:
            self._removals.discard(log, truncate_to(log, offset, self._clock.now_ms()))
        finally:
            if log_dir is not None:
                self.checkpoints.note_cut(log, log_dir)
            self.placement.cut(log)

    def truncate_fully(self, log: PartitionLog, offset: int) -> None:
        """Remove all records of a follower's log, which begins at `offset` then; otherwise as `truncate`."""
        try:
            self._removals.discard(log, truncate_fully_and_start_at(log, offset, self._clock.now_ms()))
        finally:
            self.checkpoints.note((log.topic, log.partition))
            self.placement.cut(log)

    # -- stop

    def close(self) -> int:
        """Complete, flush and close all logs, and mark the stop as clean; returns the bytes flushed.

        Blocks on the disk. Failures are reported in `notes`; their log directory is then recovered at the next start.
        """
        if not self.upkeep.is_open:
            self.directories.release()
            return 0
        self.upkeep.is_open = self.directories.is_probing = False
        self.checkpoints.close()
        self._removals.close()
        self.topic_settings.close()
        self.cleaner.close()
        if self._cleaner_executor is not None:
            self._cleaner_executor.close()
        now_ms = self._clock.now_ms()
        logs = {log: self.directories.log_dir_of(key) for key, log in self._logs.items()}
        logs.update((future.log, future.log_dir) for future in self.placement.futures.values())
        forced, unflushed = flush_now(logs, self._executor, now_ms, self._note, closing=True)
        failed = {logs[log] for log in unflushed}
        for log in logs:
            log.release_files()
        try:
            self.checkpoints.write()
            for log_dir in self.directories.live():
                if log_dir not in failed:
                    log_dir.mark_clean()
        except DiskError as error:
            self._note(str(error))
        self.directories.release()
        return forced


def _stopped_serving(log_dir: LogDirectory) -> str:
    return (
        f"Stopping serving logs in dir {log_dir.path}: {log_dir.failure}. {log_dir.cure}, and restart the broker: "
        f"until then its partitions are offline"
    )
