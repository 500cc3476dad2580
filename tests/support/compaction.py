"""Logs that are compacted, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.config.topic import LogConfig
from ottla.env.clock import VirtualClock
from ottla.env.disk import Disk
from ottla.env.executor import InlineExecutor
from ottla.records.batch import split_batches
from ottla.records.compression import Compression
from ottla.records.record import Record, decode_batch
from ottla.storage.cleaning import CleanerSettings, LogCleaner
from ottla.storage.log import PartitionLog
from support.storage_logs import NOW_MS, append, log_config, new_log, of_records

KEY = ("orders", 0)
HOUR_MS = 3_600_000


def compact_config(**settings: object) -> LogConfig:
    return log_config(
        **{
            "cleanup_policy": "compact",
            "segment_bytes": 4096,
            "index_interval_bytes": 200,
            "min_cleanable_dirty_ratio": 0,
        }
        | settings
    )


class Cleaning:
    """A log that is compacted at once, in the caller's thread."""

    def __init__(self, disk: Disk, log: PartitionLog, **settings: object) -> None:
        self.log = log
        self.disk = disk
        self.clock = VirtualClock(NOW_MS)
        self.notes: list[str] = []
        self.discarded: list[str] = []
        self.cleaner = LogCleaner(
            disk,
            self.clock,
            InlineExecutor(),
            CleanerSettings(**settings),  # type: ignore[arg-type]
            lambda _, paths: self.discarded.extend(paths),
            lambda _: None,
            self.notes.append,
            lambda length_ms: self.clock.advance(max(1, round(length_ms))),
        )

    def clean(self) -> None:
        """Clean whatever is due now."""
        self.clock.advance(self.cleaner.settings.backoff_ms)
        self.cleaner.maintain({KEY: self.log}, self.clock.now_ms())
        assert self.notes == []


def cleaning(ground: tuple[Disk, str], config: LogConfig | None = None, **settings: object) -> Cleaning:
    return Cleaning(ground[0], new_log(ground[0], ground[1], config or compact_config()), **settings)


def put(log: PartitionLog, *pairs: tuple[str, str | None], compression: Compression = Compression.NONE) -> None:
    """Append one batch with these keys and values, and force it to the disk, without which it is not cleaned."""
    content = [
        Record(number, NOW_MS + number, key.encode(), None if value is None else value.encode())
        for number, (key, value) in enumerate(pairs)
    ]
    append(log, of_records(content, compression=compression))
    log.flush()


def newest(records: Sequence[Record]) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in records}


def contents(log: PartitionLog) -> list[Record]:
    """All records, batches that are empty skipped."""
    found = []
    for data in log.read_batches(log.log_start_offset):
        for header in split_batches(data):
            if not header.is_control:
                found += decode_batch(data, header)
    return found


def texts(log: PartitionLog) -> list[str]:
    return [
        f"{record.offset}:{(record.key or b'').decode()}={(record.value or b'-').decode()}" for record in contents(log)
    ]
