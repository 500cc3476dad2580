"""The options of reading with `format("ottla")`: names, defaults, meanings, and how Spark's Kafka source has them.

docs/spark-options.md is made of this table; the parser knows exactly its names. Source: Spark's Structured Streaming +
Kafka integration guide, and KafkaSourceProvider.
"""

from __future__ import annotations

from typing import NamedTuple

BATCH = "batch"
STREAM = "stream"
BOTH = "both"

SAME = "the same"
ONLY_HERE = "none"


class ReadOption(NamedTuple):
    """One option; `reads` is the kind of read that it is for, `spark` what Spark's Kafka source has."""

    name: str
    default: str
    reads: str
    meaning: str
    spark: str = SAME


ROWS = (
    ReadOption("kafka.bootstrap.servers", "", BOTH, "The cluster: `host:port[,host:port]`. Required."),
    ReadOption("subscribe", "", BOTH, "Topics, separated by commas. One of this and the next two is required."),
    ReadOption(
        "subscribePattern",
        "",
        BOTH,
        "A regular expression; topics in whose names it is found, never internal ones.",
        "the same, as a Java expression",
    ),
    ReadOption("assign", "", BOTH, 'Partitions as JSON: `{"orders": [0, 1]}`.'),
    ReadOption(
        "startingOffsets",
        "`latest`, batch: `earliest`",
        BOTH,
        "`earliest`, `latest` (streams), JSON that names all partitions, "
        '`{"orders": {"0": 23, "1": -2}}` (-2 earliest, -1 latest), '
        "or `committed`: where `kafka.group.id` committed. A stream with a checkpoint continues from it.",
        "the same, without `committed`",
    ),
    ReadOption(
        "kafka.auto.offset.reset",
        "`latest`, batch: `earliest`",
        BOTH,
        "Where a partition starts that has no committed offset: `earliest`, `latest` (streams) or `none`, an error. "
        "With `startingOffsets=committed` only.",
        "refused",
    ),
    ReadOption(
        "startingTimestamp",
        "",
        BOTH,
        "Milliseconds since 1970; start at the first record of that time or later. Goes before the next and "
        "`startingOffsets`.",
    ),
    ReadOption(
        "startingOffsetsByTimestamp",
        "",
        BOTH,
        "The same per partition, as JSON. Goes before `startingOffsets`.",
    ),
    ReadOption(
        "startingOffsetsByTimestampStrategy",
        "`error`",
        BOTH,
        "A partition without a record of that time or later: an `error`, or start at its end, `latest`.",
    ),
    ReadOption(
        "endingOffsets",
        "`latest`",
        BATCH,
        "`latest`, or JSON that names all partitions (-1 latest); the offset itself is not read.",
    ),
    ReadOption(
        "endingTimestamp",
        "",
        BATCH,
        "Milliseconds since 1970; end before the first record of that time or later, or at the partition's end. Goes "
        "before the next and `endingOffsets`.",
    ),
    ReadOption("endingOffsetsByTimestamp", "", BATCH, "The same per partition, as JSON. Goes before `endingOffsets`."),
    ReadOption(
        "maxOffsetsPerTrigger",
        "",
        STREAM,
        "Records of a micro-batch, shared by the partitions in proportion to what they hold. A batch read ignores it.",
    ),
    ReadOption(
        "minOffsetsPerTrigger",
        "",
        STREAM,
        "Wait until there are this many records; not with `availableNow`. A batch read ignores it.",
    ),
    ReadOption("maxTriggerDelay", "`15m`", STREAM, "The longest wait for `minOffsetsPerTrigger`."),
    ReadOption(
        "minPartitions",
        "",
        BOTH,
        "At least about this many tasks: large ranges are split. Without it a partition of a topic is one task.",
    ),
    ReadOption("maxRecordsPerPartition", "", BOTH, "Records of one task at most; larger ranges are split."),
    ReadOption(
        "maxBytesPerPartition",
        "",
        BOTH,
        "Bytes in the log for one task, about: ranges are split by the average size of a partition's records.",
        ONLY_HERE,
    ),
    ReadOption(
        "failOnBadTimestamp",
        "`true`",
        BOTH,
        "A record has a timestamp that is beyond the range of Spark's, as that of a producer that writes nanoseconds: "
        "an error, or NULL in the column `timestamp`. Where that is not read, any will do. Not for `segments`.",
        "none: an error",
    ),
    ReadOption(
        "failOnDataLoss",
        "`true`",
        BOTH,
        "Records were deleted before they were read, or a topic was: an error, or continue with what is left and log a "
        "warning; a stream then continues without topics and assigned partitions that do not exist, too. Gaps that "
        "compaction and transactions leave are not a loss.",
    ),
    ReadOption("includeHeaders", "`false`", BOTH, "A column `headers`."),
    ReadOption(
        "columns",
        "all",
        BOTH,
        "The columns wanted, separated by commas, in this order; others are not made and do not cross into the JVM.",
        ONLY_HERE,
    ),
    ReadOption(
        "kafka.group.id",
        "",
        STREAM,
        "The group that offsets are committed to, so that lag is visible. Partitions are not shared with its members.",
        "the group of its consumers; commits nothing",
    ),
    ReadOption("groupId", "", STREAM, "Another name of `kafka.group.id`.", ONLY_HERE),
    ReadOption(
        "groupIdPrefix",
        "",
        BOTH,
        "Begins the name under which brokers see the query, `prefix-` and a unique end: its `client.id`, since no "
        "group is joined. Passed over where `kafka.group.id` is given.",
        "begins the name of a group",
    ),
    ReadOption(
        "kafka.isolation.level",
        "`read_uncommitted`",
        BOTH,
        "`read_committed`: no records of aborted transactions, and none beyond the first open one.",
    ),
    ReadOption(
        "fetchOffset.numRetries",
        "3",
        BOTH,
        "Attempts to look up offsets on the driver, each with the client's retries.",
    ),
    ReadOption("fetchOffset.retryIntervalMs", "1000", BOTH, "Milliseconds between them."),
    ReadOption(
        "kafkaConsumer.pollTimeoutMs",
        "120000",
        BOTH,
        "Milliseconds that a task waits for records, retries included.",
    ),
    ReadOption("kafka.fetch.max.bytes", "2097152", BOTH, "Bytes of one answer; a task holds about two.", "50 MiB"),
    ReadOption(
        "kafka.client.rack",
        "",
        BOTH,
        "The rack of the executors: they read from a replica there, where the cluster offers one (KIP-392).",
    ),
    ReadOption("rowsPerBatch", "8192", BOTH, "Rows of an Arrow batch.", ONLY_HERE),
    ReadOption(
        "kafka.*",
        "",
        BOTH,
        "Every other setting of a consumer ([client settings](client-settings.md)). Those of connections, "
        "`max.partition.fetch.bytes`, `check.crcs` and `default.api.timeout.ms` are honoured; those of group members, "
        "and `fetch.min.bytes` and `fetch.max.wait.ms`, have nothing to act on.",
    ),
)

READ_OPTIONS = tuple(each.name for each in ROWS)
