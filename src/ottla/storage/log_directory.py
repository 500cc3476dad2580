"""One log directory of `log.dirs`: its lock, its owner, the clean-shutdown marker, its checkpoints."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.env.disk import TEMPORARY_SUFFIX, Disk, DiskError, Lock
from ottla.env.executor import one_at_a_time
from ottla.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    META_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    MetaProperties,
    NewerVersionError,
    TopicPartitionKey,
    decode_meta_properties,
    decode_offsets,
    encode_clean_shutdown,
    encode_meta_properties,
    refuse_newer_checkpoint,
)
from ottla.storage.results import StorageRefusal

#: Suffixes of directories that are not partitions in service: being deleted, moving between log directories, stray.
DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
#: A small file that is written and removed to probe a log directory that may have failed.
PROBE_FILE: Final = "ottla-probe"
PROBE: Final = b"ottla\n"
_CHECKPOINTS: Final = (META_FILE, RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE)
#: Longest directory name that file systems accept.
LONGEST_NAME: Final = 255


def parse_partition_directory(name: str) -> TopicPartitionKey | None:
    """Topic and partition of a directory `<topic>-<partition>`; None for any other name."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        return None
    return topic, int(number)


def renamed_directory_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    """The name of a partition directory that is out of service, to be removed or kept; long topic names are cut."""
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: LONGEST_NAME - len(tail)] + tail


def remove_all(disk: Disk, paths: Sequence[str]) -> list[str]:
    """Remove files and (deleted) directories, in a disk thread; returns what could not be removed, and why."""
    problems = []
    for path in paths:
        try:
            (disk.remove_tree if path.endswith(DELETE_SUFFIX) else disk.remove)(path)
        except DiskError as error:
            problems.append(str(error))
    return problems


class Checkpoint(NamedTuple):
    """Contents of a checkpoint file to write; the higher number is the newer one."""

    name: str
    data: bytes
    number: int


class LogDirectory:
    """A log directory. Its checkpoints are read once and written whole."""

    __slots__ = (
        "_begun",
        "_being_written",
        "_disk",
        "_due",
        "_lock",
        "_made",
        "_named",
        "_number",
        "_writing",
        "_written",
        "clean",
        "cleaner_offsets",
        "cure",
        "failure",
        "high_watermarks",
        "log_starts",
        "meta",
        "path",
        "recovery",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._lock: Lock | None = None
        #: Why it is out of service; None while it works.
        self.failure: str | None = None
        #: What helps against that; the beginning of a sentence.
        self.cure = ""
        #: Whether the broker that last used the log directory stopped cleanly.
        self.clean = False
        self.meta = MetaProperties(None, None)
        self.recovery: dict[TopicPartitionKey, int] = {}
        self.log_starts: dict[TopicPartitionKey, int] = {}
        self.high_watermarks: dict[TopicPartitionKey, int] = {}
        #: How far each log has been compacted.
        self.cleaner_offsets: dict[TopicPartitionKey, int] = {}
        #: The checkpoints as they are on disk, and the newest requested version of each; threads write them.
        self._written: dict[str, bytes] = {}
        self._due: dict[str, Checkpoint] = {}
        #: What was written last, or is being written, which may be older than what was requested.
        self._being_written: dict[str, bytes] = {}
        #: The names of those that were requested since the start.
        self._made: set[str] = set()
        #: The partitions named in these, by which of the two and the file's name.
        self._named: dict[tuple[str, str], tuple[bytes, dict[bytes, frozenset[bytes]]]] = {}
        self._number = 0
        #: The newest version of each that a thread began to write; one thread writes at a time.
        self._begun: dict[str, int] = {}
        self._writing = one_at_a_time()

    def note_failure(self, error: DiskError) -> None:
        """Out of service from now on, because of this error."""
        self.failure, self.cure = str(error), error.cure

    def lock(self) -> StorageRefusal | None:
        """Create the log directory and lock it, as Apache Kafka does; locking twice does nothing.

        On a disk error it is out of service; if it is in use, the result is a refusal.
        """
        if self._lock is not None or self.failure is not None:
            return None
        try:
            self._make()
            self._lock = self._disk.lock(f"{self.path}/{LOCK_FILE}")
        except DiskError as error:
            self.note_failure(error)
            return None
        if self._lock is None:
            return StorageRefusal(
                f"Failed to acquire lock on file {LOCK_FILE} in {self.path}. A Kafka or ottla broker in another "
                f"process or thread is using this directory. Stop that broker, or give this one a directory of its own "
                f"(log.dirs)"
            )
        return None

    def _make(self) -> None:
        """Create the log directory if it is missing, and sync it and its new parents."""
        above: list[str] = []
        path = self.path
        while path and not self._disk.is_dir(path):
            path = path.rpartition("/")[0]
            above.append(path or ("/" if self.path.startswith("/") else "."))
        self._disk.mkdirs(self.path)
        for path in above:
            self._disk.fsync_dir(path)

    def open(self) -> StorageRefusal | None:
        """Read the log directory's own files. From here on a stop is an unclean one until `mark_clean`.

        If they cannot be read it is out of service; if they cannot be understood, the result is a refusal.
        """
        if self.failure is not None:
            return None
        refusal = self.check()
        if refusal is not None or self.failure is not None:
            return refusal
        try:
            marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
            self.clean = self._disk.exists(marker)
            if self.clean:
                self._disk.remove(marker)
                # If a power failure restored the marker, incomplete logs would be taken for complete ones.
                self._disk.fsync_dir(self.path)
            for name in self._disk.listdir(self.path):
                if name.endswith(TEMPORARY_SUFFIX) and name.startswith(_CHECKPOINTS):
                    self._disk.remove(f"{self.path}/{name}")
        except DiskError as error:
            self.note_failure(error)
        return None

    def check(self) -> StorageRefusal | None:
        """As `open`, but nothing is changed."""
        if self.failure is not None:
            return None
        try:
            self.meta = self._read_meta()
            self._refuse_newer_checkpoints()
        except DiskError as error:
            self.note_failure(error)
        except NewerVersionError as error:
            return StorageRefusal(f"{error}, or choose another directory (log.dirs)")
        except CheckpointError as error:
            return StorageRefusal(f"{error}. Repair or remove the file, or choose another directory (log.dirs)")
        return None

    def probe(self) -> None:
        """Check, from any thread, whether the log directory can still be written and read. Raises DiskError."""
        path = f"{self.path}/{PROBE_FILE}"
        self._disk.write_atomic(path, PROBE)
        if self._disk.read_bytes(path) != PROBE:
            raise DiskError("read", path, errno.EIO, "what was written did not come back")
        self._disk.remove(path)

    def _read_meta(self) -> MetaProperties:
        path = f"{self.path}/{META_FILE}"
        if not self._disk.exists(path):
            return MetaProperties(None, None)
        return decode_meta_properties(self._disk.read_bytes(path), path)

    def _refuse_newer_checkpoints(self) -> None:
        """Raise NewerVersionError for what a later release wrote; nothing is changed by then."""
        for name in _CHECKPOINTS[1:]:
            path = f"{self.path}/{name}"
            # One that cannot be read counts as none (`read_checkpoints`).
            with suppress(DiskError):
                if self._disk.exists(path):
                    refuse_newer_checkpoint(self._disk.read_bytes(path), path)

    def write_meta(self, meta: MetaProperties) -> None:
        """Write `meta.properties`, if its contents differ. Raises DiskError."""
        if meta != self.meta:
            self._disk.write_atomic(f"{self.path}/{META_FILE}", encode_meta_properties(meta))
            self.meta = meta

    def read_checkpoints(self) -> list[str]:
        """Read the offset checkpoints; a damaged one counts as empty, and is reported in the result."""
        notes: list[str] = []
        self.recovery = self._read_offsets(RECOVERY_POINT_FILE, notes)
        self.log_starts = self._read_offsets(LOG_START_FILE, notes)
        self.high_watermarks = self._read_offsets(HIGH_WATERMARK_FILE, notes)
        self.cleaner_offsets = self._read_offsets(CLEANER_FILE, notes)
        return notes

    def _read_offsets(self, name: str, notes: list[str]) -> dict[TopicPartitionKey, int]:
        path = f"{self.path}/{name}"
        if not self._disk.exists(path):
            return {}
        try:
            data = self._disk.read_bytes(path)
            self._written[name] = data
            return decode_offsets(data, path)
        except (CheckpointError, DiskError) as error:
            notes.append(f"{error}; the offsets in it are found from the logs instead")
            return {}

    def names(self, key: TopicPartitionKey) -> bool:
        """Whether a checkpoint that the next start may trust names the partition."""
        topic, partition = key[0].encode(), str(key[1]).encode()
        for name in (RECOVERY_POINT_FILE, LOG_START_FILE, CLEANER_FILE):
            due, written = self._due.get(name), self._written.get(name, b"")
            if partition in self._partitions_in(("written", name), written, topic):
                return True
            being_written = self._being_written.get(name, written)
            if being_written is not written and b"\n%b %b " % (topic, partition) in being_written:
                return True
            if due is None or due.data is written:
                continue
            if partition in self._partitions_in(("due", name), due.data, topic):
                return True
        return False

    def _partitions_in(self, which: tuple[str, str], data: bytes, topic: bytes) -> frozenset[bytes]:
        """The partitions of a topic that a checkpoint names, looked for again only when it has changed.

        To make an entry of each of a hundred thousand lines would take a tenth of a second after every checkpoint.
        """
        known = self._named.get(which)
        if known is None or known[0] is not data:
            known = self._named[which] = data, {}
        partitions = known[1].get(topic)
        if partitions is None:
            # The first line is the version. Most topics that are made are in no checkpoint.
            is_there = b"\n%b " % topic in data
            lines = re.findall(rb"\n%b (\d+) " % re.escape(topic), data) if is_there else []
            partitions = known[1][topic] = frozenset(lines)
        return partitions

    def made_checkpoint(self, name: str) -> bytes | None:
        """The checkpoint as it was requested last; None if none was since the start."""
        if name not in self._made:
            return None
        due = self._due.get(name)
        return due.data if due is not None else self._written.get(name)

    def changed_checkpoint(self, name: str, data: bytes, *, is_on_disk: bool = False) -> Checkpoint | None:
        """The checkpoint to write; None if these contents were requested before and, with `is_on_disk`, written."""
        self._made.add(name)
        due, written = self._due.get(name), self._written.get(name)
        newest = due.data if due is not None else written
        if newest == data and (written == data or not is_on_disk):
            return None
        self._number += 1
        self._due[name] = Checkpoint(name, data, self._number)
        return self._due[name]

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint file, from any thread, unless a newer version was written. Raises DiskError."""
        name, data, number = checkpoint
        with self._writing:
            begun = self._begun.get(name, 0)
            if number < begun:
                return
            self._begun[name], self._being_written[name] = number, data
            try:
                self._disk.write_atomic(f"{self.path}/{name}", data)
            except DiskError:
                self._begun[name] = begun
                # Let it be requested again.
                if self._due.get(name) is checkpoint:
                    del self._due[name]
                    self._made.discard(name)
                raise
            self._written[name] = data

    def mark_clean(self) -> None:
        """Write the clean-shutdown marker: everything is complete and synced. Raises DiskError."""
        self._disk.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown())

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
