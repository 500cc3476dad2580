"""The background work on logs: flushes, retention, checkpoints, compaction, removals, expiry of producers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Generator, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.env.clock import Clock
from ottla.env.disk import Disk, DiskError
from ottla.env.executor import Executor
from ottla.env.warmth import bring, without_waiting
from ottla.storage.checkpointing import LOGS_PER_SLICE, LogCheckpoints
from ottla.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    TopicPartitionKey,
)
from ottla.storage.cleaning import LogCleaner
from ottla.storage.files import DEFAULT_OPEN_FILES
from ottla.storage.flush_queue import Flushed, FlushQueue, FlushTurns, flush_due
from ottla.storage.log import PartitionLog
from ottla.storage.placement import LogPlacement
from ottla.storage.removals import Removals
from ottla.storage.resources import DEFAULT_PRODUCER_EXPIRATION_MS
from ottla.storage.retention import confirm_expired, delete_old_segments, oldest_by_age

#: Delay of the first retention check after the start, as in Kafka.
RETENTION_DELAY_MS: Final = 30_000
#: Times that retention of a log lets a disk thread read cold segments first, before it reads them on the loop.
MOST_COLD_ROUNDS: Final = 8
#: Topic ids that are written to new directories in a second, and in one slice.
IDENTITIES_AT_ONCE: Final = 200
IDENTITIES_PER_SLICE: Final = 10
#: Clocks differ by less: the default of `message.timestamp.after.max.ms` since Kafka 4.0 (KIP-937).
CLOCKS_DIFFER_MS: Final = 3_600_000


class LogUpkeep:
    """Works on `logs`, and passes slow work to `executor`. Retention and compaction leave `unclaimed` alone.

    `note` receives messages to the operator, `suspect` a log whose disk has failed. Use it from the event loop only.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        settings: StorageSettings,
        logs: Mapping[TopicPartitionKey, PartitionLog],
        unclaimed: Set[TopicPartitionKey],
        placement: LogPlacement,
        checkpoints: LogCheckpoints,
        removals: Removals,
        cleaner: LogCleaner,
        note: Callable[[str], None],
        suspect: Callable[[PartitionLog], None],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self.settings = settings
        self._logs = logs
        self._unclaimed = unclaimed
        self._placement = placement
        self._checkpoints = checkpoints
        self._removals = removals
        self._cleaner = cleaner
        self._note = note
        self._suspect = suspect
        #: Logs whose directories may lack the topic's id.
        self.new_logs: deque[TopicPartitionKey] = deque()
        self.flushes = FlushQueue(executor, clock.now_ms, self._flushed)
        self.on_flushed: Flushed = lambda log, size, error: None
        #: Whether there is anything to do: from `begin` on, until the manager closes.
        self.is_open = False
        self._flush_turns = FlushTurns(settings.flush_interval_ms, 0)
        self._due: dict[str, int] = {}
        self._future_timestamps = FutureTimestamps(note)

    def begin(self, now_ms: int) -> None:
        """All logs are open."""
        settings = self.settings
        self._flush_turns = FlushTurns(settings.flush_interval_ms, now_ms)
        self._due = {
            "retention": now_ms + min(RETENTION_DELAY_MS, settings.retention_check_interval_ms),
            RECOVERY_POINT_FILE: now_ms + settings.recovery_point_checkpoint_interval_ms,
            LOG_START_FILE: now_ms + settings.log_start_checkpoint_interval_ms,
            HIGH_WATERMARK_FILE: now_ms + settings.high_watermark_checkpoint_interval_ms,
            "producers": now_ms + settings.producer_expiration_check_interval_ms,
        }
        self.is_open = True

    def maintain(self, now_ms: int) -> Generator[None, None, None]:
        """Do what is due: flushes, retention, checkpoints, removals, expiry of producers. Run it every second.

        In slices, between which logs may come and go. Raises DiskError.
        """
        if not self.is_open:
            return
        settings = self.settings
        yield from self._write_identities()
        is_turn = self._flush_turns.begin(now_ms)
        for logs in self._some_at_a_time(self._logs):
            self.flushes.add(log for _, log in logs if log.flush_needed() and (is_turn(log) or flush_due(log, now_ms)))
            yield
        if self._is_due("retention", now_ms, settings.retention_check_interval_ms):
            yield from self.apply_retention(now_ms)
        if self._is_due("producers", now_ms, settings.producer_expiration_check_interval_ms):
            for logs in self._some_at_a_time(self._logs):
                for _, log in logs:
                    log.producers.expire(now_ms, settings.producer_expiration_ms)
                yield
        self._cleaner.maintain(self._placement.without_moving(self._claimed()), now_ms)
        self._removals.remove_due(now_ms)
        for name, interval_ms in (
            (RECOVERY_POINT_FILE, settings.recovery_point_checkpoint_interval_ms),
            (LOG_START_FILE, settings.log_start_checkpoint_interval_ms),
            (HIGH_WATERMARK_FILE, settings.high_watermark_checkpoint_interval_ms),
        ):
            if self._is_due(name, now_ms, interval_ms):
                yield
                yield from self._checkpoints.write_in_slices(name)

    def _write_identities(self) -> Generator[None, None, None]:
        """Write the topic ids of new logs, some in each second: very many would hold up the loop and the disk.

        Each costs two thirds of what it took to create the log. An append or the end of the broker writes its own.
        """
        for number in range(min(len(self.new_logs), IDENTITIES_AT_ONCE)):
            if number % IDENTITIES_PER_SLICE == 0:
                yield
            if not self.new_logs:
                return
            key = self.new_logs.popleft()
            log = self._logs.get(key)
            if log is None or not log.is_new:
                continue
            try:
                log.write_identity()
            except DiskError:
                self.new_logs.append(key)
                self._suspect(log)

    def _some_at_a_time(
        self, logs: Mapping[TopicPartitionKey, PartitionLog]
    ) -> Iterator[list[tuple[TopicPartitionKey, PartitionLog]]]:
        """These logs in parts, without those that go meanwhile; none once the manager is closed."""
        # The keys alone: a hundred thousand new pairs would have the collector look at all of them, several times.
        found = iter(list(logs))
        while self.is_open and (part := list(islice(found, LOGS_PER_SLICE))):
            yield [(key, log) for key in part if (log := self._logs.get(key)) is not None]

    def _is_due(self, name: str, now_ms: int, interval_ms: int) -> bool:
        # A wall clock that was set back must not delay work by more than its interval.
        if now_ms < self._due[name] <= now_ms + interval_ms:
            return False
        self._due[name] = now_ms + interval_ms
        return True

    def apply_retention(self, now_ms: int) -> Generator[None, None, None]:
        """Delete the segments that are past retention, in all logs, some logs in a slice."""
        self._future_timestamps.retain(self._logs)
        for logs in self._some_at_a_time(self._claimed()):
            for key, log in logs:
                # Segments being compacted must stay until the round is over; retention comes after it.
                if not self._cleaner.is_cleaning(key):
                    self._delete_old_segments(log, now_ms)
            yield

    def _claimed(self) -> Mapping[TopicPartitionKey, PartitionLog]:
        if not self._unclaimed:
            return self._logs
        return {key: log for key, log in self._logs.items() if key not in self._unclaimed}

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
            self._removals.discard(log, delete_old_segments(log, now_ms))
            self._future_timestamps.check(log, now_ms)
        except DiskError as error:
            self._note(f"retention of {log.name}: {error}")

    def _again(self, log: PartitionLog, now_ms: int, rounds_left: int) -> None:
        key = (log.topic, log.partition)
        if self.is_open and self._logs.get(key) is log and not log.closed and not self._cleaner.is_cleaning(key):
            self._delete_old_segments(log, now_ms, rounds_left)

    def cleaned(self, key: TopicPartitionKey) -> None:
        """A log was compacted: store how far, and apply retention if its policy also says delete."""
        log = self._logs.get(key)
        if log is not None and not log.closed:
            self._checkpoints.write_soon(CLEANER_FILE)
            self._delete_old_segments(log, self._clock.now_ms())

    def _flushed(self, log: PartitionLog, size: int, error: BaseException | None) -> None:
        if error is not None and not log.closed:
            self._note(f"flush of {log.name}: {error}")
        self.on_flushed(log, size, error)
        if error is not None:
            self._suspect(log)


class FutureTimestamps:
    """Passes a message to `note` about each partition, once, that keeps records with timestamps far in the future.

    Their segments are not past `retention.ms`, nor is what follows.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._noted: set[TopicPartitionKey] = set()

    def retain(self, keys: Container[TopicPartitionKey]) -> None:
        """Forget the partitions that are not here any more."""
        self._noted = {key for key in self._noted if key in keys}

    def check(self, log: PartitionLog, now_ms: int) -> None:
        """Look at a log from which the expired segments were deleted. Raises DiskError."""
        key = (log.topic, log.partition)
        segment = None if key in self._noted else oldest_by_age(log)
        if segment is None or (timestamp := segment.largest_timestamp_so_far()) <= now_ms + CLOCKS_DIFFER_MS:
            return
        self._noted.add(key)
        self._note(
            f"{log.name} keeps records for longer than retention.ms={log.config.retention_ms}: segment "
            f"{segment.base_offset} has a record with the timestamp {timestamp}, in the batch that ends at offset "
            f"{segment.max_timestamp_offset}, and the time is {now_ms} (ms). retention.ms deletes neither this segment "
            "nor those after it until that time has passed. Let the producer send milliseconds since 1970; "
            f"message.timestamp.after.max.ms={CLOCKS_DIFFER_MS} of topic {log.topic} refuses such records. Those that "
            "are here are deleted by kafka-delete-records.sh, Admin.delete_records or retention.bytes"
        )


@dataclass(slots=True)
class StorageSettings:
    """Settings of the background work, by Kafka's names; milliseconds and numbers of files."""

    flush_interval_ms: int = 5_000
    retention_check_interval_ms: int = 300_000
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    producer_expiration_check_interval_ms: int = 600_000
    open_files: int = DEFAULT_OPEN_FILES
    #: Threads that open the logs of one log directory.
    recovery_threads: int = 1
    #: Whether an acknowledgement means that the data is synced.
    flush_on_ack: bool = False

    @classmethod
    def of(cls, config: BrokerConfig) -> StorageSettings:
        """The settings of a broker."""
        return cls(
            flush_interval_ms=config.get_long("ottla.flush.interval.ms"),
            retention_check_interval_ms=config.get_long("log.retention.check.interval.ms"),
            recovery_point_checkpoint_interval_ms=config.get_int("log.flush.offset.checkpoint.interval.ms"),
            log_start_checkpoint_interval_ms=config.get_int("log.flush.start.offset.checkpoint.interval.ms"),
            high_watermark_checkpoint_interval_ms=config.get_long("replica.high.watermark.checkpoint.interval.ms"),
            producer_expiration_ms=config.get_int("producer.id.expiration.ms"),
            recovery_threads=config.get_int("num.recovery.threads.per.data.dir"),
            producer_expiration_check_interval_ms=config.get_int("producer.id.expiration.check.interval.ms"),
            flush_on_ack=config.get_boolean("ottla.log.flush.on.ack"),
        )
