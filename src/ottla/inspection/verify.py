"""Implementation of `ottla log verify`: checks any file or directory to its end, and reports findings."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from ottla.env.disk import Disk, DiskError
from ottla.env.file_reader import ReadableFile, is_locked_elsewhere
from ottla.inspection.directories import (
    LogDirectoryListing,
    NothingThere,
    PartitionChoice,
    PartitionDirectory,
    UnlessMissing,
    base_name,
    directory_of,
    look,
)
from ottla.inspection.file_checks import (
    check_ends,
    check_epochs,
    check_meta,
    check_offsets,
    check_partition_metadata,
    check_snapshot,
    with_topic_id,
)
from ottla.inspection.file_names import CLEANER_CHECKPOINT_FILE, FileKind, read_name
from ottla.inspection.findings import LogFinding, Remedy, RemedyKind, Severity, Tally
from ottla.inspection.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.inspection.log_checks import LogCheck, LogFacts, SegmentFiles
from ottla.storage.checkpoints import LOCK_FILE, META_FILE, PARTITION_METADATA_FILE, TopicPartitionKey
from ottla.storage.files import DAMAGED_SUFFIX, LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from ottla.storage.leader_epochs import LEADER_EPOCH_FILE
from ottla.storage.log_directory import parse_partition_directory

#: Limit of checks of one partition while its broker changes it.
ATTEMPTS: Final = 3
_EVERYTHING: Final = 1 << 63
#: Errors of a failing disk, or of a path that is not a regular file; all others (permissions, file handles) are the
#: caller's.
_DISK_FAILS: Final = frozenset((errno.EIO, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.EBADMSG, errno.ENXIO))
_COMPACTED_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))


@dataclass(frozen=True, slots=True)
class VerifyWish(PartitionChoice):
    """A check's options. `records` False: only checksums, not the records.

    `compacted` says that gaps between offsets are valid anywhere.
    """

    records: bool = True
    compacted: bool = False


def verify(disk: Disk, path: str, wish: VerifyWish, tally: Tally) -> Iterator[LogFinding]:
    """Check a path, reporting findings as they are found and counting them in `tally`. DiskError, NothingThere."""
    for finding in _Verifier(disk, wish, tally).path(path):
        tally.count(finding)
        yield finding


@dataclass(slots=True)
class _Known:
    """The contents of a log directory's partitions: the ends of their logs, and the ids of their topics."""

    ends: dict[TopicPartitionKey, int] = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    without_id: list[tuple[str, LogFinding]] = field(default_factory=list)


class _Verifier:
    def __init__(self, disk: Disk, wish: VerifyWish, tally: Tally) -> None:
        self._disk = disk
        self._wish = wish
        self._tally = tally

    def path(self, path: str) -> Iterator[LogFinding]:
        """Check a path of any kind."""
        if not self._disk.is_dir(path):
            yield from self._file(path)
            return
        found = look(self._disk, path)
        if isinstance(found, PartitionDirectory):
            if not self._wish.wants(found):
                raise NothingThere(f"{path}: no such topic or partition there")
            above = directory_of(path)
            cleaned = self._cleaned(above)
            known = _Known()
            yield from self._partition(found, cleaned, is_locked_elsewhere(f"{above}/{LOCK_FILE}"), known)
            yield from (finding for _, finding in known.without_id)
        else:
            yield from self._directory(found)

    # -- a log directory

    def _directory(self, directory: LogDirectoryListing) -> Iterator[LogFinding]:
        in_use = is_locked_elsewhere(f"{directory.path}/{LOCK_FILE}")
        cleaned = self._cleaned(directory.path)
        known = _Known()
        wanted = [each for each in directory.partitions if self._wish.wants(each)]
        if self._wish.narrowed and not wanted:
            raise NothingThere(f"{directory.path}: no such topic or partition there")
        for partition_dir in wanted:
            yield from self._partition(partition_dir, cleaned, in_use, known)
        for topic, finding in known.without_id:
            topic_id = known.topic_ids.get(topic)
            yield finding if topic_id is None else with_topic_id(finding, topic_id)
        if self._wish.narrowed:
            return
        for name in directory.names:
            path = f"{directory.path}/{name}"
            yield from _report_if_unreadable(path, self._directory_file(path, name, known, in_use))
        for name in directory.passing:
            message = "a directory that is being deleted or moved, or is stray; it was not checked"
            yield LogFinding(Severity.NOTICE, "passing", f"{directory.path}/{name}", message)

    def _directory_file(self, path: str, name: str, known: _Known, in_use: bool) -> Iterator[LogFinding]:
        kind = read_name(name).kind
        if kind is FileKind.OFFSETS and not read_name(name).passing:
            self._tally.files += 1
            offsets, finding = check_offsets(path, name)
            if finding is not None:
                yield finding
            elif not in_use:
                yield from check_ends(path, name, offsets, known.ends)
        elif name == META_FILE:
            self._tally.files += 1
            yield from check_meta(path)

    def _cleaned(self, path: str) -> dict[TopicPartitionKey, int]:
        """How far each log was compacted, by the cleaner checkpoint of a log directory."""
        try:
            return check_offsets(f"{path}/{CLEANER_CHECKPOINT_FILE}", CLEANER_CHECKPOINT_FILE)[0]
        except DiskError:
            return {}

    # -- a partition

    def _partition(
        self, partition_dir: PartitionDirectory, cleaned: dict[TopicPartitionKey, int], in_use: bool, known: _Known
    ) -> Iterator[LogFinding]:
        if not in_use:
            yield from self._check_partition(partition_dir, cleaned, in_use, known)
            return
        try:
            yield from self._check_busy_partition(partition_dir, cleaned, known)
        except DiskError as error:
            if not error.missing:
                raise
            yield LogFinding(
                Severity.NOTICE, "changing", partition_dir.path, "the broker removed the partition meanwhile"
            )

    def _check_busy_partition(
        self, partition_dir: PartitionDirectory, cleaned: dict[TopicPartitionKey, int], known: _Known
    ) -> list[LogFinding]:
        # The broker may compact, delete and roll segments meanwhile. Findings count only if nothing has changed.
        for attempt in range(1, ATTEMPTS + 1):
            counted = replace(self._tally)
            before = self._stamp(partition_dir)
            again = look(self._disk, partition_dir.path)
            partition_dir = again if isinstance(again, PartitionDirectory) else partition_dir
            found = list(self._check_partition(partition_dir, cleaned, True, known))
            changed = self._stamp(partition_dir) != before
            if not changed or all(each.severity is Severity.NOTICE for each in found):
                break
            if attempt == ATTEMPTS:
                message = (
                    "the broker keeps changing the directory; check it again later, or when the broker has stopped"
                )
                found = [LogFinding(Severity.NOTICE, "changing", partition_dir.path, message)]
                break
            self._restore(counted)
            cleaned = self._cleaned(directory_of(partition_dir.path))
        return found

    def _stamp(self, partition_dir: PartitionDirectory) -> list[tuple[str, int, int]]:
        """Changes whenever segments are replaced or removed: files with sizes and times, without the active ones."""
        active = partition_dir.segments[-1:]
        stamps = []
        for name in self._disk.listdir(partition_dir.path):
            what = read_name(name)
            if what.offset is not None and what.offset not in active and what.kind is not FileKind.SNAPSHOT:
                path = partition_dir.file(name)
                with UnlessMissing():
                    stamps.append((name, self._disk.file_size(path), self._disk.modified_ms(path)))
        return stamps

    def _restore(self, counted: Tally) -> None:
        """Undo the counts made since."""
        for name in ("partitions", "files", "bytes", "batches", "records"):
            setattr(self._tally, name, getattr(counted, name))

    def _check_partition(
        self, partition_dir: PartitionDirectory, cleaned: dict[TopicPartitionKey, int], in_use: bool, known: _Known
    ) -> Iterator[LogFinding]:
        self._tally.partitions += 1
        facts = self._facts(partition_dir.topic, partition_dir.key, cleaned, in_use)
        damaged_epochs = None
        if LEADER_EPOCH_FILE in partition_dir.names:
            self._tally.files += 1
            facts.epochs, damaged_epochs = check_epochs(partition_dir.file(LEADER_EPOCH_FILE))
        check = LogCheck(facts, self._tally)
        for number, base_offset in enumerate(partition_dir.segments):
            following = partition_dir.segments[number + 1] if number + 1 < len(partition_dir.segments) else None
            path = partition_dir.segment_file(base_offset, LOG_SUFFIX)
            yield from _report_if_unreadable(path, self._segment(partition_dir, base_offset, following, check, in_use))
        end = check.end_offset if check.end_offset >= 0 or not partition_dir.segments else partition_dir.segments[-1]
        known.ends[partition_dir.key] = end
        if damaged_epochs is not None:
            yield damaged_epochs
        else:
            yield from _contradicted(partition_dir, check, facts, end, in_use)
        yield from self._others(partition_dir, -1 if in_use else end, known)

    def _facts(
        self, topic: str, key: TopicPartitionKey, cleaned: dict[TopicPartitionKey, int], in_use: bool
    ) -> LogFacts:
        loose = self._wish.compacted or topic in _COMPACTED_TOPICS
        below = _EVERYTHING if loose else cleaned.get(key, 0)
        return LogFacts(compacted_below=below, in_use=in_use, with_records=self._wish.records)

    def _segment(
        self, partition_dir: PartitionDirectory, base_offset: int, following: int | None, check: LogCheck, in_use: bool
    ) -> Iterator[LogFinding]:
        with ExitStack() as stack:
            try:
                log = stack.enter_context(ReadableFile(partition_dir.segment_file(base_offset, LOG_SUFFIX)))
            except DiskError as error:
                if error.missing and in_use:
                    return  # removed by retention meanwhile
                raise
            files: dict[str, ReadableFile | None] = {}
            for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                files[suffix] = _index(stack, partition_dir.segment_file(base_offset, suffix))
            self._tally.files += 1 + sum(file is not None for file in files.values())
            txn_path = partition_dir.segment_file(base_offset, TXN_INDEX_SUFFIX)
            indexes = (files[OFFSET_INDEX_SUFFIX], files[TIME_INDEX_SUFFIX], files[TXN_INDEX_SUFFIX])
            start = base_name(log.path) + "."
            repaired = any(name.startswith(start) and name.endswith(DAMAGED_SUFFIX) for name in partition_dir.names)
            yield from check.segment(SegmentFiles(base_offset, log, *indexes, txn_path, following, repaired))
        active = following is None
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if files[suffix] is None and not (active and (in_use or not log.size)):
                path = partition_dir.segment_file(base_offset, suffix)
                remedy = Remedy(RemedyKind.INDEXES, path)
                meaning = "brokers rebuild it when they start"
                yield LogFinding(Severity.WARNING, "missing-index", path, "is missing", meaning, remedy=remedy)

    def _others(self, partition_dir: PartitionDirectory, end: int, known: _Known) -> Iterator[LogFinding]:
        """Check the files that belong to no segment."""
        segments = set(partition_dir.segments)
        for name, what in partition_dir.names.items():
            path = partition_dir.file(name)
            if what.passing:
                yield LogFinding(Severity.NOTICE, "passing", path, "a file on its way in or out; it was not checked")
            elif what.kind is FileKind.SNAPSHOT:
                self._tally.files += 1
                with UnlessMissing():
                    yield from _report_if_unreadable(path, check_snapshot(path, what.offset, end))
            elif name == PARTITION_METADATA_FILE:
                self._tally.files += 1
                topic_id, finding = check_partition_metadata(path)
                if topic_id is not None:
                    known.topic_ids.setdefault(partition_dir.topic, topic_id)
                if finding is not None:
                    known.without_id.append((partition_dir.topic, finding))
                elif topic_id != known.topic_ids[partition_dir.topic]:
                    message = "its topic id is not that of the topic's other partitions"
                    yield LogFinding(Severity.DAMAGE, "topic-id", path, message, "brokers refuse such a directory")
            elif what.kind in _INDEXES and what.offset not in segments:
                remedy = Remedy(RemedyKind.ASIDE, path)
                yield LogFinding(Severity.WARNING, "orphan", path, "an index without its log", remedy=remedy)

    # -- a single file

    def _file(self, path: str) -> Iterator[LogFinding]:
        name = read_name(base_name(path))
        self._tally.files += 1
        if name.kind is FileKind.LOG:
            yield from self._log_file(path, name.offset)
        elif name.kind is FileKind.SNAPSHOT:
            yield from check_snapshot(path, name.offset, -1)
        elif name.kind is FileKind.LEADER_EPOCHS:
            yield from (each for each in (check_epochs(path)[1],) if each is not None)
        elif name.kind is FileKind.PARTITION_METADATA:
            yield from (each for each in (check_partition_metadata(path)[1],) if each is not None)
        elif name.kind is FileKind.OFFSETS:
            yield from (each for each in (check_offsets(path, base_name(path))[1],) if each is not None)
        elif name.kind is FileKind.META:
            yield from check_meta(path)
        elif name.kind in _INDEXES and name.offset is not None:
            with ReadableFile(path):
                pass
            log = path[: -len(_INDEXES[name.kind])] + LOG_SUFFIX
            if not self._disk.exists(log):
                raise NothingThere(
                    f"{path}: an index is checked against its log, and {base_name(log)} is not beside it"
                )
            yield from (each for each in self._log_file(log, name.offset) if each.path == path)
        elif name.kind is FileKind.COORDINATION:
            with ReadableFile(path):
                raise NothingThere(
                    f"{path}: coordination metadata, no file of Kafka's; the broker checks it at the start"
                )
        else:
            with ReadableFile(path):
                raise NothingThere(f"{path}: its name is none of Kafka's, so there is nothing to check it by")

    def _log_file(self, path: str, base_offset: int | None) -> Iterator[LogFinding]:
        """Check a single log file, with the indexes beside it."""
        partition = _partition_of(path)
        facts = self._facts(partition[0], partition, self._cleaned(directory_of(directory_of(path))), in_use=False)
        facts.in_use = is_locked_elsewhere(f"{directory_of(directory_of(path))}/{LOCK_FILE}")
        stem = path[: -len(LOG_SUFFIX)] if path.endswith(LOG_SUFFIX) else path
        with ExitStack() as stack:
            log = stack.enter_context(ReadableFile(path))
            suffixes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX) if base_offset is not None else ()
            found = [_index(stack, stem + suffix) for suffix in suffixes] or [None, None, None]
            files = SegmentFiles(base_offset or 0, log, found[0], found[1], found[2], stem + TXN_INDEX_SUFFIX, None)
            yield from LogCheck(facts, self._tally).segment(files)


def _index(stack: ExitStack, path: str) -> ReadableFile | None:
    with UnlessMissing():
        return stack.enter_context(ReadableFile(path))
    return None


def _report_if_unreadable(path: str, findings: Iterator[LogFinding]) -> Iterator[LogFinding]:
    """The findings of a file in a directory; a read error of the disk is one of them, and does not end the check.

    Raises DiskError for other errors: files that are missing or that we may not read.
    """
    try:
        yield from findings
    except DiskError as error:
        if error.errno not in _DISK_FAILS:
            raise
        meaning = "its contents are not known; brokers take its whole log directory out of service"
        yield LogFinding(Severity.DAMAGE, "unreadable", path, str(error), meaning)


_INDEXES: Final = {
    FileKind.OFFSET_INDEX: OFFSET_INDEX_SUFFIX,
    FileKind.TIME_INDEX: TIME_INDEX_SUFFIX,
    FileKind.TXN_INDEX: TXN_INDEX_SUFFIX,
}


def _partition_of(path: str) -> TopicPartitionKey:
    """Topic and partition of a file by its directory's name; an empty topic if it is not a partition directory."""
    return parse_partition_directory(base_name(directory_of(path))) or ("", -1)


def _contradicted(
    partition_dir: PartitionDirectory, check: LogCheck, facts: LogFacts, end: int, in_use: bool
) -> Iterator[LogFinding]:
    """Compare the leader epochs of the checkpoint with those of the log."""
    path = partition_dir.file(LEADER_EPOCH_FILE)
    remedy = Remedy(RemedyKind.EPOCHS, path)
    meaning = "nothing is lost; replicas that compare epochs may cut off too much or too little"
    if not facts.epochs and check.leader_epoch >= 0 and LEADER_EPOCH_FILE in partition_dir.names and not in_use:
        message = f"it is empty, the log goes up to epoch {check.leader_epoch}"
        yield LogFinding(Severity.WARNING, "epochs", path, message, meaning, remedy=remedy)
    elif check.epochs_contradicted is not None:
        offset, epoch = check.epochs_contradicted
        message = f"at offset {offset} it says epoch {facts.epoch_at(offset)}, the log says {epoch}"
        yield LogFinding(Severity.DAMAGE, "epochs", path, message, meaning, remedy=remedy)
    elif facts.epochs and facts.epochs[-1][1] > end and not in_use:
        message = f"epoch {facts.epochs[-1][0]} begins at {facts.epochs[-1][1]}, the log ends at {end}"
        yield LogFinding(Severity.DAMAGE, "epochs", path, message, meaning, remedy=remedy)
