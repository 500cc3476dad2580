"""Settings of the background work on logs."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.broker import BrokerConfig
from ottla.storage.files import DEFAULT_OPEN_FILES
from ottla.storage.resources import DEFAULT_PRODUCER_EXPIRATION_MS


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
