"""Checks of the small files: snapshots, leader epochs, checkpoints, properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from ottla.env.file_reader import ReadableFile
from ottla.inspection.file_names import CLEANER_CHECKPOINT_FILE
from ottla.inspection.findings import LogFinding, Remedy, RemedyKind, Severity
from ottla.inspection.small_files import TooLarge, read_whole
from ottla.storage.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    TopicPartitionKey,
    decode_offsets,
    decode_partition_metadata,
    encode_partition_metadata,
)
from ottla.storage.leader_epochs import decode_leader_epochs
from ottla.storage.snapshot_format import SnapshotProblem, decode_snapshot

#: The consequence of an unreadable checkpoint.
_WITHOUT = {
    RECOVERY_POINT_FILE: "brokers take it for empty and check all logs from the beginning when they start",
    LOG_START_FILE: "brokers take it for empty: records that were deleted by DeleteRecords may appear again",
    HIGH_WATERMARK_FILE: "brokers take it for empty and find the high watermarks again",
    CLEANER_CHECKPOINT_FILE: "compaction restarts with the first segment",
}
_ZOOKEEPER_VERSION, _KRAFT_VERSION = "0", "1"


def check_snapshot(path: str, offset: int | None, end_offset: int) -> Iterator[LogFinding]:
    """Check a producer snapshot taken at `offset` of a log that ends at `end_offset` (-1 if unknown). DiskError."""
    aside = Remedy(RemedyKind.ASIDE, path)
    meaning = "brokers rebuild the producers' state from the log"
    try:
        with ReadableFile(path) as file:
            producers = decode_snapshot(read_whole(file))
    except (SnapshotProblem, TooLarge) as problem:
        yield LogFinding(Severity.DAMAGE, "snapshot", path, _reason(problem, path), meaning, remedy=aside)
        return
    if len({each.producer_id for each in producers}) != len(producers):
        yield LogFinding(Severity.DAMAGE, "snapshot", path, "a producer is in it twice", meaning, remedy=aside)
    elif offset is not None and any(each.last_offset >= offset for each in producers):
        message = f"a producer's last record in it is at {offset} or behind, where it was taken"
        yield LogFinding(Severity.DAMAGE, "snapshot", path, message, meaning, remedy=aside)
    elif offset is not None and 0 <= end_offset < offset:
        message = f"taken at offset {offset}, but the log ends at {end_offset}"
        lost = f"the records {end_offset} to {offset - 1} were in the log once"
        yield LogFinding(Severity.DAMAGE, "lost-end", path, message, lost, -1, -1, end_offset, offset - 1, aside)


def check_epochs(path: str) -> tuple[list[tuple[int, int]], LogFinding | None]:
    """The entries of `leader-epoch-checkpoint`, none if it is damaged. Raises DiskError."""
    try:
        with ReadableFile(path) as file:
            return decode_leader_epochs(read_whole(file), path).entries, None
    except (CheckpointError, TooLarge) as problem:
        remedy = Remedy(RemedyKind.EPOCHS, path)
        meaning = "the leader epochs can be rebuilt from the logs"
        return [], LogFinding(Severity.DAMAGE, "epochs", path, _reason(problem, path), meaning, remedy=remedy)


def check_partition_metadata(path: str) -> tuple[UUID | None, LogFinding | None]:
    """The topic id in `partition.metadata`, None if it is damaged. Raises DiskError."""
    try:
        with ReadableFile(path) as file:
            return decode_partition_metadata(read_whole(file), path), None
    except (CheckpointError, TooLarge) as problem:
        meaning = "the directory is not tied to its topic's id; brokers write it again from what the cluster knows"
        remedy = Remedy(RemedyKind.ASIDE, path)
        return None, LogFinding(Severity.DAMAGE, "topic-id", path, _reason(problem, path), meaning, remedy=remedy)


def with_topic_id(finding: LogFinding, topic_id: UUID) -> LogFinding:
    """The finding of a damaged `partition.metadata`, completed with the id from another partition of the topic."""
    remedy = Remedy(RemedyKind.REPLACE, finding.path, content=encode_partition_metadata(topic_id))
    meaning = "the topic's other partitions have the id"
    return LogFinding(Severity.DAMAGE, finding.kind, finding.path, finding.message, meaning, remedy=remedy)


def check_offsets(path: str, name: str) -> tuple[dict[TopicPartitionKey, int], LogFinding | None]:
    """The offsets of a checkpoint of a log directory, none if it is damaged. Raises DiskError."""
    try:
        with ReadableFile(path) as file:
            offsets = decode_offsets(read_whole(file), path)
        negative = next((key for key, offset in offsets.items() if offset < 0), None)
        if negative is not None:
            raise CheckpointError(f"the offset of {negative[0]}-{negative[1]} is negative")
        return offsets, None
    except (CheckpointError, TooLarge) as problem:
        remedy = Remedy(RemedyKind.SALVAGE, path)
        return {}, LogFinding(
            Severity.DAMAGE, "checkpoint", path, _reason(problem, path), _WITHOUT.get(name, ""), remedy=remedy
        )


def check_ends(
    path: str, name: str, offsets: Mapping[TopicPartitionKey, int], ends: Mapping[TopicPartitionKey, int]
) -> Iterator[LogFinding]:
    """Report offsets that lie beyond the ends of their logs: records are lost, or the checkpoint is damaged."""
    for key, offset in offsets.items():
        end = ends.get(key)
        if end is None:
            message = f"it has an offset of {key[0]}-{key[1]}, which is not in the directory"
            yield LogFinding(Severity.NOTICE, "checkpoint", path, message)
        elif 0 <= end < offset and name in (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE):
            message = f"{key[0]}-{key[1]} reached offset {offset}, but the log ends at {end}"
            meaning = f"the records {end} to {offset - 1} are lost, or the checkpoint is damaged"
            yield LogFinding(Severity.DAMAGE, "lost-end", path, message, meaning, -1, -1, end, offset - 1)


def check_meta(path: str) -> Iterator[LogFinding]:
    """Check `meta.properties`, of a broker with ZooKeeper or of a KRaft node. Raises DiskError."""
    meaning = "brokers refuse to start on the directory; to write it again, the cluster's id must be known"
    try:
        with ReadableFile(path) as file:
            text = read_whole(file).decode()
    except (UnicodeDecodeError, TooLarge):
        yield LogFinding(Severity.DAMAGE, "meta", path, "no text file", meaning)
        return
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("#", "!"))]
    fields = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    version = fields.get("version")
    broker = fields.get("broker.id" if version == _ZOOKEEPER_VERSION else "node.id")
    if version not in (_ZOOKEEPER_VERSION, _KRAFT_VERSION):
        yield LogFinding(Severity.DAMAGE, "meta", path, f"its version is {version}, not 0 or 1", meaning)
    elif broker is not None and not (broker.isascii() and broker.isdigit()):
        yield LogFinding(Severity.DAMAGE, "meta", path, f"the broker's id in it is not a number: {broker!r}", meaning)
    elif any("=" not in line for line in lines):
        yield LogFinding(Severity.DAMAGE, "meta", path, "it has lines that are no NAME=VALUE", meaning)


def _reason(problem: Exception, path: str) -> str:
    return str(problem).removeprefix(f"{path}: ")
