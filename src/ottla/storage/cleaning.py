"""Compaction, as scheduled by the event loop: which log is next, and how far each has been cleaned.

The loop chooses the next log and passes the steps of its round (`ottla.storage.cleaning_round`) to disk threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.env.clock import Clock
from ottla.env.disk import Disk, DiskError
from ottla.env.executor import Executor, NoThread, pause_ms
from ottla.env.randomness import Randomness
from ottla.records.errors import BatchError
from ottla.storage.checkpoints import TopicPartitionKey
from ottla.storage.cleanable import CleanableLog, examine
from ottla.storage.cleaner import CleaningAborted, CleaningControl
from ottla.storage.cleaning_round import CleaningRound
from ottla.storage.log import PartitionLog
from ottla.storage.offset_map import new_map

#: Upper limit of threads that clean at the same time, whatever `log.cleaner.threads` is.
MOST_THREADS: Final = 16
#: Delay before cleaning is retried after the disk was full or the disk threads were overloaded.
POSTPONED_MS: Final = 60_000
#: Lower limit of the bytes read at a time.
_LEAST_READ_BYTES: Final = 4096


@dataclass(slots=True)
class CleanerSettings:
    """Settings of compaction, by Kafka's names; they can be changed while the broker runs."""

    enabled: bool = True
    threads: int = 1
    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    buffer_load_factor: float = 0.9
    io_buffer_bytes: int = 512 * 1024
    bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        """The settings of a broker."""
        return cls(
            enabled=config.get_boolean("log.cleaner.enable"),
            threads=min(config.get_int("log.cleaner.threads"), MOST_THREADS),
            dedupe_buffer_bytes=config.get_long("log.cleaner.dedupe.buffer.size"),
            buffer_load_factor=config.get_double("log.cleaner.io.buffer.load.factor"),
            io_buffer_bytes=config.get_int("log.cleaner.io.buffer.size"),
            bytes_per_second=config.get_double("log.cleaner.io.max.bytes.per.second"),
            backoff_ms=config.get_long("log.cleaner.backoff.ms"),
        )


class LogCleaner:
    """Compacts the logs with `cleanup.policy=compact`, the one with the largest share of dirty bytes first.

    Used from the event loop. `on_cleaned` is called for each log whose round is complete, `discard` receives renamed
    files to be removed after the log's `file.delete.delay.ms`, `note` receives messages to the operator.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        settings: CleanerSettings,
        discard: Callable[[PartitionLog, list[str]], None],
        on_cleaned: Callable[[TopicPartitionKey], None],
        note: Callable[[str], None],
        pause: Callable[[float], None] = pause_ms,
        randomness: Randomness | None = None,
    ) -> None:
        #: Source of the hash secrets of offset maps.
        self._randomness = randomness or Randomness()
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self.settings = settings
        self._discard = discard
        self._on_cleaned = on_cleaned
        self._note = note
        self._pause = pause
        #: How far each log has been cleaned: the content of `cleaner-offset-checkpoint`.
        self.checkpoints: dict[TopicPartitionKey, int] = {}
        #: Logs that cannot be cleaned until the broker is restarted, and why.
        self.uncleanable: dict[TopicPartitionKey, str] = {}
        self._rounds: dict[TopicPartitionKey, CleaningRound] = {}
        #: Logs that are skipped until a time, since the disk was full or its threads were overloaded.
        self._postponed: dict[TopicPartitionKey, int] = {}
        self._next_check_ms = 0
        self._closed = False

    def is_cleaning(self, key: TopicPartitionKey) -> bool:
        """Whether a round of this log is under way: its segments must not be removed then."""
        return key in self._rounds

    def apply_settings(self, settings: CleanerSettings) -> None:
        """Apply new settings; rounds under way take over the throttle only."""
        self.settings = settings
        for round_ in self._rounds.values():
            round_.control.bytes_per_second = self._rate()

    def _rate(self) -> float:
        return max(1.0, self.settings.bytes_per_second / max(1, self.settings.threads))

    def maintain(self, logs: Mapping[TopicPartitionKey, PartitionLog], now_ms: int) -> None:
        """Start rounds where they are due and threads are free; if none is due, check again after the backoff."""
        settings = self.settings
        if self._closed or not settings.enabled:
            return
        # A wall clock that was set back must not delay work by more than the backoff.
        if now_ms < self._next_check_ms <= now_ms + settings.backoff_ms:
            return
        while len(self._rounds) < settings.threads:
            cleanable = self._dirtiest(logs, now_ms)
            if cleanable is None:
                self._next_check_ms = now_ms + settings.backoff_ms
                return
            self._begin(cleanable, now_ms)

    def _dirtiest(self, logs: Mapping[TopicPartitionKey, PartitionLog], now_ms: int) -> CleanableLog | None:
        best: CleanableLog | None = None
        for key, log in logs.items():
            if not log.config.compact or log.failure is not None or key in self._rounds or key in self.uncleanable:
                continue
            if now_ms < self._postponed.get(key, 0):
                continue
            try:
                cleanable = examine(log, self.checkpoints.get(key), now_ms)
            except (DiskError, BatchError) as error:
                self._give_up(key, error)
                continue
            if cleanable.is_due and (best is None or cleanable.dirty_ratio > best.dirty_ratio):
                best = cleanable
        return best

    def _begin(self, cleanable: CleanableLog, now_ms: int) -> None:
        log = cleanable.log
        key = (log.topic, log.partition)
        control = CleaningControl(self._clock, self._pause, self._rate())
        settings = self.settings
        try:
            offsets = new_map(
                settings.dedupe_buffer_bytes // max(1, settings.threads),
                settings.buffer_load_factor,
                cleanable.end_offset - cleanable.first_dirty_offset,
                (self._randomness.below(1 << 64), self._randomness.below(1 << 64)),
            )
        except (OSError, MemoryError, OverflowError) as error:
            # Not enough memory: `log.cleaner.dedupe.buffer.size` may be set to any size.
            self._postpone(key, error)
            return
        round_ = self._rounds[key] = CleaningRound(self._disk, cleanable, control, offsets, self._discard)
        try:
            round_.prepare(now_ms, max(_LEAST_READ_BYTES, settings.io_buffer_bytes // max(1, settings.threads) // 2))
        except (DiskError, BatchError) as error:
            del self._rounds[key]
            self._give_up(key, error)
            return
        self._advance(key, round_)

    def _advance(self, key: TopicPartitionKey, round_: CleaningRound) -> None:
        """Pass the next step of the round to a thread."""
        # A synchronous executor has called `_worked` by the time `call` returns: avoids recursion, one level per step.
        round_.detached = False
        while (work := round_.next_work()) is not None:
            round_.answered = False
            self._executor.call(work, partial(self._worked, key, round_))
            if not round_.answered:
                round_.detached = True
                return
        self._end(key, round_)

    def _worked(
        self, key: TopicPartitionKey, round_: CleaningRound, result: object, error: BaseException | None
    ) -> None:
        round_.answered = True
        round_.take(result, error)
        if round_.detached:
            self._advance(key, round_)

    def _end(self, key: TopicPartitionKey, round_: CleaningRound) -> None:
        if self._rounds.get(key) is round_:
            del self._rounds[key]
        error = round_.error
        if error is None:
            self.checkpoints[key] = round_.cleaned_to
            self._on_cleaned(key)
            # More logs may be due now.
            self._next_check_ms = 0
        elif isinstance(error, NoThread) or (isinstance(error, DiskError) and error.disk_full):
            self._postpone(key, error)
        elif not isinstance(error, CleaningAborted):
            self._give_up(key, error)

    def _postpone(self, key: TopicPartitionKey, error: BaseException) -> None:
        self._postponed[key] = self._clock.now_ms() + POSTPONED_MS
        self._note(f"{key[0]}-{key[1]} is not compacted for now: {error}")

    def _give_up(self, key: TopicPartitionKey, error: BaseException) -> None:
        self.uncleanable[key] = str(error)
        self._note(
            f"{key[0]}-{key[1]} cannot be compacted: {error}. It grows until the cause is repaired and the broker was "
            f"started again"
        )

    def abort(self, key: TopicPartitionKey) -> None:
        """The log is being removed or truncated: end its round. Its files are renamed away before this returns."""
        round_ = self._rounds.get(key)
        if round_ is not None:
            round_.abort()

    def forget(self, key: TopicPartitionKey) -> None:
        """Forget a deleted partition."""
        self.abort(key)
        self.checkpoints.pop(key, None)
        self.uncleanable.pop(key, None)

    def close(self) -> None:
        """Abort all rounds; their threads notice soon."""
        self._closed = True
        for round_ in self._rounds.values():
            round_.abort()
