"""The small files of log directories, in Kafka's formats: encoding, decoding, which deleted logs they may name. Pure.

In a log directory (`log.dirs`): `meta.properties`, `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
`replication-offset-checkpoint` (high watermarks), `cleaner-offset-checkpoint` (how far each log was compacted),
`.kafka_cleanshutdown`. In a partition directory: `leader-epoch-checkpoint`, `partition.metadata`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.cluster.ids import format_uuid, parse_uuid

if TYPE_CHECKING:
    from ottla.env.disk import Disk


RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
#: The checkpoints of offsets.
OFFSET_FILES: Final = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE)
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
META_FILE: Final = "meta.properties"
PARTITION_METADATA_FILE: Final = "partition.metadata"
LOCK_FILE: Final = ".lock"

#: Deleted logs that are remembered, so that all leave the checkpoints with the first that is made again.
MOST_DELETED_LOGS: Final = 100_000

_VERSION: Final = 0
#: Of the `meta.properties` that a node in KRaft mode writes.
_KRAFT_VERSION: Final = 1
#: Versions are short numbers.
_LONGEST_VERSION: Final = 16
TopicPartitionKey = tuple[str, int]


class CheckpointError(ValueError):
    """A file has invalid contents; the message names the file and the problem."""


class NewerVersionError(CheckpointError):
    """A file of a version that a later release writes: it must be neither ignored nor overwritten."""


def _newer(path: str, version: int) -> NewerVersionError:
    return NewerVersionError(
        f"{path}: version {version} is of a newer release, and this one knows {_VERSION}; start the release that wrote "
        f"it, or a later one, with this directory"
    )


def refuse_newer_checkpoint(data: bytes, path: str) -> None:
    """Raise NewerVersionError for a checkpoint file of a newer version; whatever else is wrong is not looked at."""
    first, end, _ = data[:_LONGEST_VERSION].partition(b"\n")
    if end and first.isdigit() and int(first) > _VERSION:
        raise NewerVersionError(
            f"{_newer(path, int(first))}; if no newer release ran here, the file is damaged: stop the broker and "
            f"remove it, what it says is then found from the logs"
        )


def encode_entries(lines: Sequence[str]) -> bytes:
    """A checkpoint file: version, number of entries, one entry a line."""
    return ("\n".join([str(_VERSION), str(len(lines)), *lines]) + "\n").encode()


def partition_name(key: TopicPartitionKey) -> bytes:
    """A partition as checkpoints of offsets name it."""
    return f"{key[0]} {key[1]}".encode()


def partition_names(data: bytes) -> list[bytes]:
    """The partitions in a checkpoint file of offsets, as this broker made it (`partition_name`)."""
    return [line[: line.rindex(b" ")] for line in data.splitlines()[2:]]


def without_entries(data: bytes, gone: Collection[bytes]) -> bytes:
    """A checkpoint file of offsets, as this broker made it, without these partitions' entries (`partition_name`)."""
    version, _, *lines = data.splitlines()
    left = [line for line in lines if line[: line.rindex(b" ")] not in gone]
    return b"\n".join([version, b"%d" % len(left), *left, b""])


class DeletedLogs:
    """Which partitions' logs were deleted and may still be named in checkpoints, by `partition_name`.

    The regular checkpoints name no deleted log: what went before they were begun is forgotten at their end.
    """

    def __init__(self) -> None:
        self._names: set[bytes] = set()
        #: Those that went before the regular checkpoints were begun.
        self._before: set[bytes] = set()
        self._are_all_known = True

    def add(self, name: bytes) -> None:
        """The log was deleted."""
        if len(self._names) < MOST_DELETED_LOGS:
            self._names.add(name)
        else:
            self._are_all_known = False

    def discard(self, name: bytes) -> None:
        """There is a log again."""
        self._names.discard(name)

    def known(self) -> Set[bytes] | None:
        """All of them; None if there were more than are remembered."""
        return self._names if self._are_all_known else None

    def clear(self) -> None:
        """No checkpoint names any."""
        self._names.clear()
        self._are_all_known = True

    def regular_begun(self) -> None:
        """The regular checkpoints are begun."""
        self._before = self._names.copy()

    def regular_ended(self, still_named: Iterable[Iterable[bytes]]) -> None:
        """They are made, but for those that name `still_named`."""
        self._names -= self._before.difference(*still_named)
        self._before.clear()


def decode_entries(data: bytes, path: str) -> list[str]:
    """The entries of a checkpoint file; an empty file has none. Raises CheckpointError."""
    if not data:
        return []
    refuse_newer_checkpoint(data, path)
    try:
        lines = data.decode().splitlines()
        version, count = int(lines[0]), int(lines[1])
    except (UnicodeDecodeError, ValueError, IndexError):
        raise CheckpointError(f"{path}: not a checkpoint file (version and number of entries are missing)") from None
    if version != _VERSION:
        raise CheckpointError(f"{path}: unknown version {version} of a checkpoint file, only {_VERSION} is known")
    entries = [line for line in lines[2:] if line]
    if len(entries) != count:
        raise CheckpointError(f"{path}: expected {count} entries, found {len(entries)}")
    if not data.endswith(b"\n"):
        # A truncated number would still parse as a number.
        raise CheckpointError(f"{path}: cut off in the middle of its last line")
    return entries


def offset_entry(key: TopicPartitionKey, offset: int) -> str:
    """The entry of a partition in a checkpoint of offsets."""
    return f"{key[0]} {key[1]} {offset}"


def encode_offsets(offsets: Mapping[TopicPartitionKey, int]) -> bytes:
    """A checkpoint file of offsets by (topic, partition)."""
    return encode_entries([offset_entry(key, offset) for key, offset in offsets.items()])


def decode_offsets(data: bytes, path: str) -> dict[TopicPartitionKey, int]:
    """The offsets by (topic, partition). Raises CheckpointError."""
    offsets: dict[TopicPartitionKey, int] = {}
    for line in decode_entries(data, path):
        try:
            topic, partition, offset = line.split()
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise CheckpointError(f"{path}: not a topic, partition and offset: {line!r}") from None
    return offsets


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    """Encode the marker file of a clean shutdown."""
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """The file that ties a partition directory to the id of its topic (KIP-516)."""
    return f"version: {_VERSION}\ntopic_id: {format_uuid(topic_id)}".encode()


def write_partition_metadata(disk: Disk, directory: str, topic_id: UUID) -> str:
    """Write the topic's id into a partition directory; returns the path of the file, which is not synced yet.
    DiskError.
    """
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append([encode_partition_metadata(topic_id)])
    finally:
        file.close()
    return path


def decode_partition_metadata(data: bytes, path: str) -> UUID:
    """The topic id. Raises CheckpointError."""
    fields = dict(_pairs(data.decode("utf-8", "replace").splitlines(), ":"))
    try:
        version = int(fields["version"])
        if version > _VERSION:
            raise _newer(path, version)
        if version != _VERSION:
            raise CheckpointError(f"{path}: unknown version {version}, only {_VERSION} is known")
        return parse_uuid(fields["topic_id"])
    except (KeyError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: no version and topic_id to be read in it") from None


@dataclass(slots=True, frozen=True)
class MetaProperties:
    """`meta.properties`, version 0 (brokers with ZooKeeper): the cluster and broker that a log directory belongs to."""

    cluster_id: str | None
    broker_id: int | None


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Encode the file, readable by Java's `Properties`."""
    lines = ["#", f"version={_VERSION}"]
    if meta.broker_id is not None:
        lines.append(f"broker.id={meta.broker_id}")
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    return ("\n".join(lines) + "\n").encode()


def decode_cluster_id(data: bytes, path: str) -> str | None:
    """The cluster of the file, of a broker with ZooKeeper or a node in KRaft mode. Raises CheckpointError."""
    fields = dict(_pairs(data.decode("utf-8", "replace").splitlines(), "="))
    if fields.get("version") not in (str(_VERSION), str(_KRAFT_VERSION)):
        raise CheckpointError(f"{path}: it names neither version {_VERSION} nor version {_KRAFT_VERSION}")
    return fields.get("cluster.id")


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Read the file. Raises CheckpointError if it is malformed, or written by another kind of node (version 1).

    NewerVersionError: it is a later release's.
    """
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if not line.startswith("#")]
    fields = dict(_pairs(lines, "="))
    version = fields.get("version")
    if version is None:
        raise CheckpointError(f"{path}: there is no version in it, so that it is damaged")
    if version.isdecimal() and int(version) > _KRAFT_VERSION:
        raise _newer(path, int(version))
    if version != str(_VERSION):
        whose = "belongs to a node in KRaft mode" if version == "1" else "is not known"
        raise CheckpointError(
            f"{path}: version {version} {whose}; a log directory of a broker with ZooKeeper "
            f"(version {_VERSION}) is needed, or an empty one"
        )
    broker = fields.get("broker.id")
    try:
        broker_id = int(broker) if broker is not None else None
    except ValueError:
        raise CheckpointError(f"{path}: broker.id is not a number: {broker}") from None
    return MetaProperties(fields.get("cluster.id"), broker_id)


def _pairs(lines: Iterable[str], separator: str) -> list[tuple[str, str]]:
    pairs = []
    for line in lines:
        name, found, value = line.partition(separator)
        if found:
            pairs.append((name.strip(), value.strip()))
    return pairs


#: Says which of two directories of one partition is the newer one. A log that moves to another log directory takes its
#: name there before the former one loses it. A broker that is killed in between leaves two directories of that name:
#: the one with the highest number in this file has everything. It stays as long as the former directory may come back,
#: since its log directory is out of service.
MOVED_FILE: Final = "ottla-moved"
#: The number of a directory that was never moved to.
NEVER_MOVED: Final = 0


def read_moves(disk: Disk, directory: str) -> int:
    """How often the log had been moved when it came to this directory; a damaged file counts as once.

    Raises DiskError.
    """
    path = f"{directory}/{MOVED_FILE}"
    if not disk.exists(path):
        return NEVER_MOVED
    try:
        entries = decode_entries(disk.read_bytes(path), path)
        return int(entries[0]) if entries else NEVER_MOVED + 1
    except (CheckpointError, ValueError):
        return NEVER_MOVED + 1


def write_moves(disk: Disk, directory: str, number: int) -> None:
    """Write it, synced. Raises DiskError."""
    disk.write_atomic(f"{directory}/{MOVED_FILE}", encode_entries([str(number)]))


def forget_moves(disk: Disk, directory: str) -> None:
    """Remove it, synced: no other directory of this partition can come back. Raises DiskError."""
    disk.remove(f"{directory}/{MOVED_FILE}")
    # Were it there again after a loss of power, the next move's number would not be higher.
    disk.fsync_dir(directory)
