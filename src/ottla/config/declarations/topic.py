"""Settings of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.settings import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    (
        "cleanup.policy", "list", "delete", "[compact, delete]", "medium", "topic", "honoured",
        "What happens to old segments: `delete`, `compact`, or both.",
    ),
    (
        "compression.gzip.level", "int", "-1", "1 to 9 or -1", "medium", "topic", "honoured",
        "Level for batches that the broker itself compresses with gzip; -1 for the library's choice.",
    ),
    (
        "compression.lz4.level", "int", "9", "[1,...,17]", "medium", "topic", "honoured",
        "Level for batches that the broker itself compresses with lz4.",
    ),
    (
        "compression.type",
        "string",
        "producer",
        "[uncompressed, zstd, lz4, snappy, gzip, producer]",
        "medium",
        "topic",
        "honoured",
        "How batches are stored: `producer` keeps what the producer chose; otherwise gzip, snappy, lz4, zstd or "
        "`uncompressed`.",
    ),
    (
        "compression.zstd.level", "int", "3", "[-131072,...,22]", "medium", "topic", "honoured",
        "Level for batches that the broker itself compresses with zstd.",
    ),
    (
        "delete.retention.ms", "long", "86400000", "[0,...]", "medium", "topic", "honoured",
        "How long a tombstone stays in a compacted topic, in milliseconds.",
    ),
    (
        "file.delete.delay.ms", "long", "60000", "[0,...]", "medium", "topic", "honoured",
        "How long the files of a deleted segment stay on disk, in milliseconds.",
    ),
    (
        "flush.messages", "long", "9223372036854775807", "[1,...]", "medium", "topic", "honoured",
        "After this many records a partition is forced to disk.",
    ),
    (
        "flush.ms", "long", "9223372036854775807", "[0,...]", "medium", "topic", "honoured",
        "After this time a record is forced to disk, in milliseconds.",
    ),
    (
        "follower.replication.throttled.replicas", "list", "", "throttled replicas", "medium", "topic", "honoured",
        "Replicas whose copying is limited on the follower's side, as `partition:broker,...` or `*`.",
    ),
    (
        "index.interval.bytes", "int", "4096", "[0,...]", "medium", "topic", "honoured",
        "An index entry is made about every so many bytes.",
    ),
    (
        "leader.replication.throttled.replicas", "list", "", "throttled replicas", "medium", "topic", "honoured",
        "Replicas whose copying is limited on the leader's side, as `partition:broker,...` or `*`.",
    ),
    (
        "local.retention.bytes", "long", "-2", "[-2,...]", "medium", "topic", "no_effect",
        "Tiered storage: the most bytes of a partition kept on local disk; -2 for `retention.bytes`.",
    ),
    (
        "local.retention.ms", "long", "-2", "[-2,...]", "medium", "topic", "no_effect",
        "Tiered storage: how long segments are kept on local disk, in milliseconds; -2 for `retention.ms`.",
    ),
    (
        "max.compaction.lag.ms", "long", "9223372036854775807", "[1,...]", "medium", "topic", "honoured",
        "After this time a record of a compacted topic must become open to compaction, in milliseconds.",
    ),
    (
        "max.message.bytes", "int", "1048588", "[0,...]", "medium", "topic", "honoured",
        "The largest record batch taken, in bytes, after compression.",
    ),
    (
        "message.downconversion.enable", "boolean", "true", "", "low", "topic", "honoured",
        "Whether records are converted for clients that know only older formats.",
    ),
    (
        "message.format.version", "string", "3.0-IV1", "version", "medium", "topic", "no_effect",
        "The record format of old; batches are always stored in the present format (magic 2).",
    ),
    (
        "message.timestamp.after.max.ms", "long", "9223372036854775807", "[0,...]", "medium", "topic", "honoured",
        "How far a record's time may lie after the broker's, in milliseconds; a record beyond it is refused.",
    ),
    (
        "message.timestamp.before.max.ms", "long", "9223372036854775807", "[0,...]", "medium", "topic", "honoured",
        "How far a record's time may lie before the broker's, in milliseconds; a record beyond it is refused.",
    ),
    (
        "message.timestamp.difference.max.ms",
        "long",
        "9223372036854775807",
        "[0,...]",
        "medium",
        "topic",
        "honoured",
        "Older setting for both directions: how far a record's time may lie from the broker's, in milliseconds.",
    ),
    (
        "message.timestamp.type",
        "string",
        "CreateTime",
        "[CreateTime, LogAppendTime]",
        "medium",
        "topic",
        "honoured",
        "Whether a record's time is the producer's (CreateTime) or the broker's (LogAppendTime).",
    ),
    (
        "min.cleanable.dirty.ratio", "double", "0.5", "[0,...,1]", "medium", "topic", "honoured",
        "The share of a compacted log that must be dirty before it is worth compacting.",
    ),
    (
        "min.compaction.lag.ms", "long", "0", "[0,...]", "medium", "topic", "honoured",
        "A record stays uncompacted at least this long, in milliseconds.",
    ),
    (
        "min.insync.replicas", "int", "1", "[1,...]", "medium", "topic", "honoured",
        "How many replicas must be in sync for a write with acks=all to be taken.",
    ),
    (
        "preallocate", "boolean", "false", "", "medium", "topic", "no_effect",
        "Whether a new segment's file gets its full size at once.",
    ),
    (
        "remote.log.copy.disable", "boolean", "false", "", "medium", "topic", "refused",
        "Tiered storage: whether no more segments are copied away.",
    ),
    (
        "remote.log.delete.on.disable", "boolean", "false", "", "medium", "topic", "refused",
        "Tiered storage: whether remote data goes when tiered storage is switched off for the topic.",
    ),
    (
        "remote.storage.enable", "boolean", "false", "", "medium", "topic", "refused",
        "Tiered storage: whether the topic uses it.",
    ),
    (
        "retention.bytes", "long", "-1", "", "medium", "topic", "honoured",
        "The most bytes of a partition before its oldest segments are deleted; -1 for no limit.",
    ),
    (
        "retention.ms", "long", "604800000", "[-1,...]", "medium", "topic", "honoured",
        "How long segments are kept, in milliseconds; -1 for ever.",
    ),
    (
        "segment.bytes", "int", "1073741824", "[14,...]", "medium", "topic", "honoured",
        "The largest size of a segment's file, in bytes.",
    ),
    (
        "segment.index.bytes", "int", "10485760", "[4,...]", "medium", "topic", "honoured",
        "The largest offset or time index of a segment, in bytes; a full index rolls the segment.",
    ),
    (
        "segment.jitter.ms", "long", "0", "[0,...]", "medium", "topic", "honoured",
        "A random time taken off the roll time, at most so many milliseconds.",
    ),
    (
        "segment.ms", "long", "604800000", "[1,...]", "medium", "topic", "honoured",
        "After this time a new segment is begun, in milliseconds.",
    ),
    (
        "unclean.leader.election.enable", "boolean", "false", "", "medium", "topic", "honoured",
        "Whether a replica that was not in sync may become leader when no other is left, at the price of lost "
        "records.",
    ),
)
