"""Contents of log directories: partition directories, segments. Only names are read here, never file contents."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from ottla.env.disk import Disk, DiskError
from ottla.inspection.file_names import FileKind, FileName, read_name
from ottla.storage.checkpoints import META_FILE, RECOVERY_POINT_FILE, TopicPartitionKey
from ottla.storage.files import offset_file_name
from ottla.storage.log_directory import DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX, parse_partition_directory

_PASSING_DIRECTORIES: Final = (DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX)


class NothingThere(ValueError):
    """A path holds no Kafka data; the message says what was expected."""


@dataclass(slots=True)
class PartitionDirectory:
    """A partition directory. `names` are all of its files; `segments` the base offsets of its log files."""

    path: str
    topic: str
    partition: int
    names: dict[str, FileName] = field(default_factory=dict)
    segments: list[int] = field(default_factory=list)

    @property
    def key(self) -> TopicPartitionKey:
        """Topic and partition."""
        return self.topic, self.partition

    def file(self, name: str) -> str:
        """The path of one of its files."""
        return f"{self.path}/{name}"

    def segment_file(self, base_offset: int, suffix: str) -> str:
        """The path of a file of a segment."""
        return f"{self.path}/{offset_file_name(base_offset, suffix)}"

    def of_kind(self, kind: FileKind) -> list[int]:
        """The offsets in the names of the files of a kind, without files being created or deleted; sorted."""
        return sorted(
            each.offset
            for each in self.names.values()
            if each.kind is kind and each.offset is not None and not each.passing
        )


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """The partitions to look at: those of `topic` with the number `partition`, of which None matches any."""

    topic: str | None = None
    partition: int | None = None

    @property
    def narrowed(self) -> bool:
        """Whether certain partitions are selected."""
        return self.topic is not None or self.partition is not None

    def wants(self, partition_dir: PartitionDirectory) -> bool:
        """Whether a partition is selected."""
        return self.topic in (None, partition_dir.topic) and self.partition in (None, partition_dir.partition)


@dataclass(slots=True)
class LogDirectoryListing:
    """A log directory (`log.dirs`): its partitions, the names of its own files and of directories moved or deleted."""

    path: str
    partitions: list[PartitionDirectory] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    passing: list[str] = field(default_factory=list)


def base_name(path: str) -> str:
    """The last part of a path."""
    return path.rstrip("/").rpartition("/")[2]


def directory_of(path: str) -> str:
    """The directory of a file."""
    before, slash, _ = path.rstrip("/").rpartition("/")
    return (before or "/") if slash else "."


def topic_of(path: str) -> str | None:
    """The topic of a file in a partition directory, None in any other directory."""
    key = parse_partition_directory(base_name(directory_of(path)))
    return None if key is None else key[0]


def look(disk: Disk, path: str) -> LogDirectoryListing | PartitionDirectory:
    """Identify a directory. Raises DiskError, NothingThere."""
    names = disk.listdir(path)
    key = parse_partition_directory(base_name(path))
    parsed = {name: read_name(name) for name in names}
    holds_segments = any(
        each.kind in (FileKind.LOG, FileKind.OFFSET_INDEX) and each.offset is not None for each in parsed.values()
    )
    if holds_segments or (key is not None and not {META_FILE, RECOVERY_POINT_FILE} & parsed.keys()):
        topic, partition = key or (base_name(path), -1)
        return _partition(disk, path, topic, partition, names)
    directory = LogDirectoryListing(path)
    for name in names:
        below = f"{path}/{name}"
        if not disk.is_dir(below):
            directory.names.append(name)
        elif (found := parse_partition_directory(name)) is not None:
            directory.partitions.append(_partition(disk, below, *found, _listed(disk, below)))
        elif name.endswith(_PASSING_DIRECTORIES):
            directory.passing.append(name)
    known = any(parsed[name].kind is not FileKind.UNKNOWN for name in directory.names)
    if not directory.partitions and not known and not directory.passing:
        raise NothingThere(f"{path}: no log directory: neither partitions (TOPIC-NUMBER) nor files of a log are in it")
    directory.partitions.sort(key=lambda each: each.key)
    return directory


class UnlessMissing:
    """Passes over a file or directory that is not there, as after a broker has removed it."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        return isinstance(error, DiskError) and error.missing


def _listed(disk: Disk, path: str) -> list[str]:
    with UnlessMissing():
        return disk.listdir(path)
    return []


def _partition(disk: Disk, path: str, topic: str, partition: int, names: list[str]) -> PartitionDirectory:
    partition_dir = PartitionDirectory(path, topic, partition, {name: read_name(name) for name in names})
    partition_dir.segments = partition_dir.of_kind(FileKind.LOG)
    return partition_dir
