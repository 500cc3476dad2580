"""The replicas of any broker: the partition directories in its log directories (`log.dirs`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from ottla.client.model import TopicPartition
from ottla.env.disk import DiskError, RealDisk
from ottla.inspection.directories import LogDirectoryListing, NothingThere, look
from ottla.spark.backfill.errors import SegmentError
from ottla.storage.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    CheckpointError,
    decode_offsets,
    decode_partition_metadata,
)
from ottla.storage.leader_epochs import LEADER_EPOCH_FILE, decode_leader_epochs


@dataclass(frozen=True, slots=True)
class Replica:
    """A partition directory in a log directory, and what the checkpoints say of it.

    `high_watermark` and `log_start` are None where the checkpoint does not name the partition; `has_checkpoint` says
    whether there is a checkpoint of high watermarks at all. `epochs` are (leader epoch, start offset).
    """

    partition: TopicPartition
    log_dir: str
    directory: str
    high_watermark: int | None
    log_start: int | None
    has_checkpoint: bool
    topic_id: UUID | None = None
    epochs: tuple[tuple[int, int], ...] = ()


def find_replicas(log_dirs: Sequence[str]) -> dict[TopicPartition, list[Replica]]:
    """All replicas in the log directories, in the order in which these are given. Raises SegmentError."""
    disk = RealDisk()
    found: dict[TopicPartition, list[Replica]] = {}
    for log_dir in dict.fromkeys(disk.absolute(each) for each in log_dirs):
        try:
            listing = look(disk, log_dir)
        except (DiskError, NothingThere) as error:
            raise SegmentError(f"no log directory to read from: {error}") from error
        if not isinstance(listing, LogDirectoryListing):
            raise SegmentError(
                f"{log_dir} is the directory of one partition; name the log directory that it lies in, "
                f"{log_dir.rpartition('/')[0] or '/'}"
            )
        high_watermarks = _offsets(disk, f"{log_dir}/{HIGH_WATERMARK_FILE}")
        log_starts = _offsets(disk, f"{log_dir}/{LOG_START_FILE}") or {}
        for each in listing.partitions:
            partition = TopicPartition(each.topic, each.partition)
            replica = Replica(
                partition,
                log_dir,
                each.path,
                (high_watermarks or {}).get(partition),
                log_starts.get(partition),
                high_watermarks is not None,
                _topic_id(disk, each.path),
                _epochs(disk, each.path),
            )
            found.setdefault(partition, []).append(replica)
    return found


def check_complete(topics: Iterable[str], known: Iterable[TopicPartition], log_dirs: Sequence[str]) -> None:
    """Check that each topic has partitions, and that their numbers have no gaps. Raises SegmentError.

    Without a broker the number of partitions is unknown; a gap shows that some are elsewhere.
    """
    numbers: dict[str, set[int]] = {}
    for each in known:
        numbers.setdefault(each.topic, set()).add(each.partition)
    where = ", ".join(log_dirs)
    for topic in topics:
        found = numbers.get(topic)
        if not found:
            raise SegmentError(f"topic {topic} has no partition in {where}; name all log directories that hold it")
        missing = sorted(set(range(max(found))) - found)
        if missing:
            raise SegmentError(
                f"topic {topic}: partition {', '.join(map(str, missing))} is not in {where}; name the log directories "
                "of all brokers that hold the topic, or the partitions to read with assign"
            )


def _offsets(disk: RealDisk, path: str) -> dict[tuple[str, int], int] | None:
    """The offsets in a checkpoint; None if there is none. Raises SegmentError."""
    try:
        return decode_offsets(disk.read_bytes(path), path)
    except DiskError as error:
        if error.missing:
            return None
        raise SegmentError(str(error)) from error
    except CheckpointError as error:
        raise SegmentError(f"{error}; name kafka.bootstrap.servers, so that the broker says what to read") from error


def _topic_id(disk: RealDisk, directory: str) -> UUID | None:
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    try:
        return decode_partition_metadata(disk.read_bytes(path), path)
    except (DiskError, CheckpointError):
        return None  # brokers before 2.8 wrote none


def _epochs(disk: RealDisk, directory: str) -> tuple[tuple[int, int], ...]:
    path = f"{directory}/{LEADER_EPOCH_FILE}"
    try:
        return tuple(decode_leader_epochs(disk.read_bytes(path), path).entries)
    except (DiskError, CheckpointError):
        return ()
