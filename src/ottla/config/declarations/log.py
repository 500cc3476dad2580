"""Settings of the log: segments, retention, flushing, compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.settings import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    (
        "compression.gzip.level", "int", "-1", "1 to 9 or -1", "medium", "cluster-wide", "honoured",
        "Level for batches that the broker itself compresses with gzip; -1 for the library's choice.",
    ),
    (
        "compression.lz4.level", "int", "9", "[1,...,17]", "medium", "cluster-wide", "honoured",
        "Level for batches that the broker itself compresses with lz4.",
    ),
    (
        "compression.type",
        "string",
        "producer",
        "[uncompressed, zstd, lz4, snappy, gzip, producer]",
        "high",
        "cluster-wide",
        "honoured",
        "How batches are stored: `producer` keeps what the producer chose; otherwise gzip, snappy, lz4, zstd or "
        "`uncompressed`.",
    ),
    (
        "compression.zstd.level", "int", "3", "[-131072,...,22]", "medium", "cluster-wide", "honoured",
        "Level for batches that the broker itself compresses with zstd.",
    ),
    (
        "default.replication.factor", "int", "1", "", "medium", "read-only", "honoured",
        "Replicas of topics that are created without saying how many.",
    ),
    (
        "delete.records.purgatory.purge.interval.requests", "int", "1", "", "medium", "read-only", "no_effect",
        "How often finished DeleteRecords requests are swept out of Apache Kafka's purgatory.",
    ),
    (
        "fetch.purgatory.purge.interval.requests", "int", "1000", "", "medium", "read-only", "no_effect",
        "How often finished fetches are swept out of Apache Kafka's purgatory.",
    ),
    (
        "log.cleaner.backoff.ms", "long", "15000", "[0,...]", "medium", "cluster-wide", "honoured",
        "The pause of the log cleaner when there is nothing to clean, in milliseconds.",
    ),
    (
        "log.cleaner.dedupe.buffer.size", "long", "134217728", "", "medium", "cluster-wide", "honoured",
        "Memory for the log cleaner's table of keys, over all its threads, in bytes.",
    ),
    (
        "log.cleaner.delete.retention.ms", "long", "86400000", "[0,...]", "medium", "cluster-wide", "honoured",
        "How long a tombstone stays in a compacted topic, in milliseconds.",
    ),
    (
        "log.cleaner.enable", "boolean", "true", "", "medium", "read-only", "honoured",
        "Whether compacted topics are compacted.",
    ),
    (
        "log.cleaner.io.buffer.load.factor", "double", "0.9", "", "medium", "cluster-wide", "honoured",
        "How full the log cleaner's table of keys may get.",
    ),
    (
        "log.cleaner.io.buffer.size", "int", "524288", "[0,...]", "medium", "cluster-wide", "honoured",
        "Memory for the log cleaner's reads and writes, over all its threads, in bytes.",
    ),
    (
        "log.cleaner.io.max.bytes.per.second",
        "double",
        "1.7976931348623157E308",
        "",
        "medium",
        "cluster-wide",
        "honoured",
        "The most bytes per second that the log cleaner reads and writes.",
    ),
    (
        "log.cleaner.max.compaction.lag.ms",
        "long",
        "9223372036854775807",
        "[1,...]",
        "medium",
        "cluster-wide",
        "honoured",
        "After this time a record of a compacted topic must become open to compaction, in milliseconds.",
    ),
    (
        "log.cleaner.min.cleanable.ratio", "double", "0.5", "[0,...,1]", "medium", "cluster-wide", "honoured",
        "The share of a compacted log that must be dirty before it is worth compacting.",
    ),
    (
        "log.cleaner.min.compaction.lag.ms", "long", "0", "[0,...]", "medium", "cluster-wide", "honoured",
        "A record stays uncompacted at least this long, in milliseconds.",
    ),
    (
        "log.cleaner.threads", "int", "1", "[0,...]", "medium", "cluster-wide", "honoured",
        "Threads that compact.",
    ),
    (
        "log.cleanup.policy", "list", "delete", "[compact, delete]", "medium", "cluster-wide", "honoured",
        "What happens to old segments: `delete`, `compact`, or both.",
    ),
    (
        "log.dir.failure.timeout.ms", "long", "30000", "[1,...]", "low", "read-only", "no_effect",
        "KRaft mode only: a broker that cannot report a failed log directory for this long stops, in milliseconds.",
    ),
    (
        "log.dirs", "string", None, "", "high", "read-only", "honoured",
        "The log directories, separated by commas; `log.dir` where unset.",
    ),
    (
        "log.dir", "string", "/tmp/kafka-logs", "", "high", "read-only", "honoured",
        "The log directory where `log.dirs` is not set.",
    ),
    (
        "log.flush.interval.messages", "long", "9223372036854775807", "[1,...]", "high", "cluster-wide", "honoured",
        "After this many records a partition is forced to disk.",
    ),
    (
        "log.flush.interval.ms", "long", None, "", "high", "cluster-wide", "honoured",
        "After this time a record is forced to disk, in milliseconds; `log.flush.scheduler.interval.ms` where "
        "unset. See also `ottla.flush.interval.ms`.",
    ),
    (
        "log.flush.offset.checkpoint.interval.ms", "int", "60000", "[0,...]", "high", "read-only", "honoured",
        "How often recovery points are written, in milliseconds.",
    ),
    (
        "log.flush.scheduler.interval.ms", "long", "9223372036854775807", "", "high", "read-only", "honoured",
        "How often logs are looked at for a due flush, in milliseconds.",
    ),
    (
        "log.flush.start.offset.checkpoint.interval.ms", "int", "60000", "[0,...]", "high", "read-only", "honoured",
        "How often log start offsets are written, in milliseconds.",
    ),
    (
        "log.index.interval.bytes", "int", "4096", "[0,...]", "medium", "cluster-wide", "honoured",
        "An index entry is made about every so many bytes.",
    ),
    (
        "log.index.size.max.bytes", "int", "10485760", "[4,...]", "medium", "cluster-wide", "honoured",
        "The largest offset or time index of a segment, in bytes; a full index rolls the segment.",
    ),
    (
        "log.initial.task.delay.ms", "long", "30000", "[0,...]", "low", "read-only", "no_effect",
        "The delay before background work on logs first runs, in milliseconds.",
    ),
    (
        "log.local.retention.bytes", "long", "-2", "[-2,...]", "medium", "cluster-wide", "no_effect",
        "Tiered storage: the most bytes of a partition kept on local disk; -2 for `log.retention.bytes`.",
    ),
    (
        "log.local.retention.ms", "long", "-2", "[-2,...]", "medium", "cluster-wide", "no_effect",
        "Tiered storage: how long segments are kept on local disk, in milliseconds; -2 for `log.retention.ms`.",
    ),
    (
        "log.message.downconversion.enable", "boolean", "true", "", "low", "cluster-wide", "honoured",
        "Whether records are converted for clients that know only older formats.",
    ),
    (
        "log.message.format.version", "string", "3.0-IV1", "version", "medium", "read-only", "no_effect",
        "The record format of old; batches are always stored in the present format (magic 2).",
    ),
    (
        "log.message.timestamp.after.max.ms",
        "long",
        "9223372036854775807",
        "[0,...]",
        "medium",
        "cluster-wide",
        "honoured",
        "How far a record's time may lie after the broker's, in milliseconds; a record beyond it is refused.",
    ),
    (
        "log.message.timestamp.before.max.ms",
        "long",
        "9223372036854775807",
        "[0,...]",
        "medium",
        "cluster-wide",
        "honoured",
        "How far a record's time may lie before the broker's, in milliseconds; a record beyond it is refused.",
    ),
    (
        "log.message.timestamp.difference.max.ms",
        "long",
        "9223372036854775807",
        "[0,...]",
        "medium",
        "cluster-wide",
        "honoured",
        "Older setting for both directions: how far a record's time may lie from the broker's, in milliseconds.",
    ),
    (
        "log.message.timestamp.type",
        "string",
        "CreateTime",
        "[CreateTime, LogAppendTime]",
        "medium",
        "cluster-wide",
        "honoured",
        "Whether a record's time is the producer's (CreateTime) or the broker's (LogAppendTime).",
    ),
    (
        "log.preallocate", "boolean", "false", "", "medium", "cluster-wide", "no_effect",
        "Whether a new segment's file gets its full size at once.",
    ),
    (
        "log.retention.bytes", "long", "-1", "", "high", "cluster-wide", "honoured",
        "The most bytes of a partition before its oldest segments are deleted; -1 for no limit.",
    ),
    (
        "log.retention.check.interval.ms", "long", "300000", "[1,...]", "medium", "read-only", "honoured",
        "How often segments are looked at for deletion, in milliseconds.",
    ),
    (
        "log.retention.hours", "int", "168", "", "high", "read-only", "honoured",
        "How long segments are kept, in hours; the weakest of the three settings of retention time.",
    ),
    (
        "log.retention.minutes", "int", None, "", "high", "read-only", "honoured",
        "How long segments are kept, in minutes; `log.retention.hours` where unset.",
    ),
    (
        "log.retention.ms", "long", None, "", "high", "cluster-wide", "honoured",
        "How long segments are kept, in milliseconds, -1 for ever; `log.retention.minutes` where unset.",
    ),
    (
        "log.roll.hours", "int", "168", "[1,...]", "high", "read-only", "honoured",
        "After this time a new segment is begun, in hours; used where `log.roll.ms` is unset.",
    ),
    (
        "log.roll.jitter.hours", "int", "0", "[0,...]", "high", "read-only", "honoured",
        "A random time taken off the roll time, at most so many hours; used where `log.roll.jitter.ms` is unset.",
    ),
    (
        "log.roll.jitter.ms", "long", None, "", "high", "cluster-wide", "honoured",
        "A random time taken off the roll time, at most so many milliseconds; `log.roll.jitter.hours` where "
        "unset.",
    ),
    (
        "log.roll.ms", "long", None, "", "high", "cluster-wide", "honoured",
        "After this time a new segment is begun, in milliseconds; `log.roll.hours` where unset.",
    ),
    (
        "log.segment.bytes", "int", "1073741824", "[14,...]", "high", "cluster-wide", "honoured",
        "The largest size of a segment's file, in bytes.",
    ),
    (
        "log.segment.delete.delay.ms", "long", "60000", "[0,...]", "high", "cluster-wide", "honoured",
        "How long the files of a deleted segment stay on disk, in milliseconds.",
    ),
    (
        "min.insync.replicas", "int", "1", "[1,...]", "high", "cluster-wide", "honoured",
        "How many replicas must be in sync for a write with acks=all to be taken.",
    ),
    (
        "num.partitions", "int", "1", "[1,...]", "medium", "read-only", "honoured",
        "Partitions of topics that are created without saying how many.",
    ),
    (
        "num.recovery.threads.per.data.dir", "int", "1", "[1,...]", "high", "cluster-wide", "honoured",
        "Threads per log directory that load and recover logs at start.",
    ),
    (
        "producer.id.expiration.check.interval.ms", "int", "600000", "[1,...]", "low", "read-only", "honoured",
        "How often idle producers are looked for, in milliseconds.",
    ),
    (
        "producer.id.expiration.ms", "int", "86400000", "[1,...]", "low", "cluster-wide", "honoured",
        "How long the broker remembers the state of an idle idempotent producer, in milliseconds.",
    ),
    (
        "producer.purgatory.purge.interval.requests", "int", "1000", "", "medium", "read-only", "no_effect",
        "How often finished produce requests are swept out of Apache Kafka's purgatory.",
    ),
)
