"""Traffic of the partitions here, appended and read: plain counters for the metrics."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode

#: The errors of batches that are larger than a setting allows.
TOO_LARGE = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))
#: Errors of appends that Kafka does not count as failed (`ReplicaManager.appendToLocalLog`, 3.9).
KNOWN = TOO_LARGE | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
#: Errors of reads that Kafka does not count as failed (`ReplicaManager.readFromLog`, 3.9).
KNOWN_OF_READS = frozenset((ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_OUT_OF_RANGE))


class TopicTraffic:
    """The counters of one topic's partitions that are or were led here, or read here; they never fall."""

    __slots__ = (
        "appends",
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_appends",
        "failed_reads",
        "reads",
        "records_in",
    )

    def __init__(self) -> None:
        self.appends = 0
        self.failed_appends = 0
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_rejected = 0
        self.reads = 0
        self.failed_reads = 0
        #: Bytes of records for consumers.
        self.bytes_out = 0

    def refused(self, error: ErrorCode, size: int) -> None:
        """Count the error of an append of `size` bytes that was refused."""
        self.failed_appends += error not in KNOWN
        if error in TOO_LARGE:
            self.bytes_rejected += size

    def refused_early(self, error: ErrorCode, size: int) -> None:
        """Count an append that was refused before the log was asked."""
        self.appends += 1
        self.refused(error, size)
