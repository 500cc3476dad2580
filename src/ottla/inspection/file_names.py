"""The kinds of files in log directories, by their names, which are Kafka's."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from ottla.env.disk import TEMPORARY_SUFFIX
from ottla.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    META_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from ottla.storage.leader_epochs import LEADER_EPOCH_FILE

CLEANER_CHECKPOINT_FILE: Final = "cleaner-offset-checkpoint"
_DIGITS: Final = 20


class FileKind(StrEnum):
    """Kinds of file."""

    LOG = "log"
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TXN_INDEX = "transaction-index"
    SNAPSHOT = "producer-snapshot"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    OFFSETS = "offset-checkpoint"
    META = "meta-properties"
    PARTITION_METADATA = "partition-metadata"
    CLEAN_SHUTDOWN = "clean-shutdown"
    LOCK = "lock"
    #: Ottla's own: coordination metadata, in a format that the broker checks when it starts.
    COORDINATION = "coordination-data"
    UNKNOWN = "unknown"


_BY_SUFFIX: Final = {
    LOG_SUFFIX: FileKind.LOG,
    OFFSET_INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TXN_INDEX_SUFFIX: FileKind.TXN_INDEX,
    SNAPSHOT_SUFFIX: FileKind.SNAPSHOT,
}
_BY_NAME: Final = {
    LEADER_EPOCH_FILE: FileKind.LEADER_EPOCHS,
    RECOVERY_POINT_FILE: FileKind.OFFSETS,
    LOG_START_FILE: FileKind.OFFSETS,
    HIGH_WATERMARK_FILE: FileKind.OFFSETS,
    CLEANER_CHECKPOINT_FILE: FileKind.OFFSETS,
    META_FILE: FileKind.META,
    PARTITION_METADATA_FILE: FileKind.PARTITION_METADATA,
    CLEAN_SHUTDOWN_FILE: FileKind.CLEAN_SHUTDOWN,
    LOCK_FILE: FileKind.LOCK,
    "ottla-tree.log": FileKind.COORDINATION,
    "ottla-tree.snapshot": FileKind.COORDINATION,
    "ottla-tree.marker": FileKind.COORDINATION,
}
#: Suffixes of files being created or deleted; the kind is that of the name before the suffix.
_PASSING: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)


class FileName(NamedTuple):
    """A parsed file name: kind, offset (None if there is none), and the suffix of a file being created or deleted, or
    "".
    """

    kind: FileKind
    offset: int | None
    passing: str


def read_name(name: str) -> FileName:
    """Parse a file name."""
    passing = ""
    for suffix in _PASSING:
        if name.endswith(suffix):
            name, passing = name[: -len(suffix)], suffix
            break
    if name in _BY_NAME:
        return FileName(_BY_NAME[name], None, passing)
    stem, dot, end = name.rpartition(".")
    kind = _BY_SUFFIX.get(dot + end, FileKind.UNKNOWN)
    if kind is FileKind.UNKNOWN or not (stem.isascii() and stem.isdigit() and len(stem) == _DIGITS):
        # Other programs store segments under other names; they are identified by their suffix.
        return FileName(kind, None, passing)
    return FileName(kind, int(stem), passing)
