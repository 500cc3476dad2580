"""Implementation of `ottla log dump`: any file or directory as rows of named fields, in order, a few at a time.

The first field of a row is `type`. Unreadable parts are shown as rows of type `damage`, in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.cluster.ids import format_uuid
from ottla.env.disk import Disk
from ottla.env.file_reader import ReadableFile
from ottla.inspection.batch_rows import RecordWish, Row, log_rows
from ottla.inspection.directories import (
    LogDirectoryListing,
    PartitionChoice,
    PartitionDirectory,
    UnlessMissing,
    base_name,
    look,
    topic_of,
)
from ottla.inspection.file_names import FileKind, read_name
from ottla.inspection.internal_topics import decoder_for
from ottla.inspection.small_files import AbortedEntry, TooLarge, entries, first_of_zero_tail, read_whole
from ottla.inspection.texts import Decoder
from ottla.inspection.walk import LogWalker
from ottla.storage.checkpoints import CheckpointError, decode_offsets, decode_partition_metadata
from ottla.storage.files import LOG_SUFFIX
from ottla.storage.index import OFFSET_ENTRY, TIME_ENTRY
from ottla.storage.leader_epochs import decode_leader_epochs
from ottla.storage.snapshot_format import SnapshotProblem, decode_snapshot
from ottla.storage.transaction_index import TXN_ENTRY


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpWish(PartitionChoice):
    """A dump's options. `everything`: all files of directories, not just the logs."""

    records: RecordWish = field(default_factory=RecordWish)
    decoder: Decoder = Decoder.AUTO
    everything: bool = False


def dump(disk: Disk, path: str, wish: DumpWish) -> Iterator[Row]:
    """The rows of a file or directory. Raises DiskError, NothingThere."""
    if not disk.is_dir(path):
        yield from file_rows(path, wish)
        return
    found = look(disk, path)
    if isinstance(found, PartitionDirectory):
        if wish.wants(found):
            yield from _partition_rows(found, wish)
    elif wish.narrowed:
        for each in found.partitions:
            if wish.wants(each):
                yield from _partition_rows(each, wish)
    else:
        yield from _directory_rows(disk, found, wish)


def file_rows(path: str, wish: DumpWish) -> Iterator[Row]:
    """The rows of one file, after one with its name. Raises DiskError."""
    name = read_name(base_name(path))
    with ReadableFile(path) as file:
        row: Row = {"type": "file", "path": path, "kind": str(name.kind), "size": file.size}
        if name.offset is not None:
            row["offset"] = name.offset
        yield row
        if name.kind is FileKind.LOG:
            decoder = decoder_for(topic_of(path)) if wish.decoder is Decoder.AUTO else wish.decoder
            yield from log_rows(LogWalker(file), replace(wish.records, decoder=decoder))
        elif name.kind in _READERS:
            yield from _guarded(file, name.offset or 0, _READERS[name.kind])


def _guarded(file: ReadableFile, offset: int, reader: Callable[[ReadableFile, int], Iterator[Row]]) -> Iterator[Row]:
    try:
        yield from reader(file, offset)
    except (CheckpointError, SnapshotProblem, TooLarge) as problem:
        reason = str(problem).removeprefix(f"{file.path}: ")
        yield {"type": "damage", "position": 0, "size": file.size, "reason": reason}


def _partition_rows(partition_dir: PartitionDirectory, wish: DumpWish) -> Iterator[Row]:
    first = wish.records.from_offset
    segments = partition_dir.segments
    for number, base_offset in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1] <= first:
            continue
        if wish.records.until_offset is not None and base_offset >= wish.records.until_offset:
            break
        yield from _unless_gone(partition_dir.segment_file(base_offset, LOG_SUFFIX), wish)
    if wish.everything:
        for name, what in partition_dir.names.items():
            if what.kind is not FileKind.LOG:
                yield from _unless_gone(partition_dir.file(name), wish)


def _unless_gone(path: str, wish: DumpWish) -> Iterator[Row]:
    """The rows of a file of a log directory in use; none if the broker has removed it since it was listed."""
    with UnlessMissing():
        yield from file_rows(path, wish)


def _directory_rows(disk: Disk, directory: LogDirectoryListing, wish: DumpWish) -> Iterator[Row]:
    for partition_dir in directory.partitions:
        sizes = [_size(disk, partition_dir.segment_file(each, LOG_SUFFIX)) for each in partition_dir.segments]
        yield {
            "type": "partition",
            "topic": partition_dir.topic,
            "partition": partition_dir.partition,
            "segments": len(partition_dir.segments),
            "bytes": sum(sizes),
            "first_segment": partition_dir.segments[0] if partition_dir.segments else None,
            "last_segment": partition_dir.segments[-1] if partition_dir.segments else None,
        }
    for name in directory.passing:
        yield {"type": "folder", "path": f"{directory.path}/{name}", "kind": name.rpartition("-")[2]}
    for name in directory.names:
        if read_name(name).kind in _READERS:
            yield from _unless_gone(f"{directory.path}/{name}", wish)
    if wish.everything:
        for partition_dir in directory.partitions:
            yield from _partition_rows(partition_dir, wish)


def _size(disk: Disk, path: str) -> int:
    with UnlessMissing():
        return disk.file_size(path)
    return 0


def _offset_index(file: ReadableFile, base: int) -> Iterator[Row]:
    written = first_of_zero_tail(file, OFFSET_ENTRY.size)
    for position, (relative, at) in entries(file, OFFSET_ENTRY):
        if position >= written * OFFSET_ENTRY.size and position:
            break
        if written or file.size == OFFSET_ENTRY.size:
            yield {"type": "index-entry", "offset": base + relative, "position": at}
    yield from _tail(file, OFFSET_ENTRY.size, written)


def _time_index(file: ReadableFile, base: int) -> Iterator[Row]:
    written = first_of_zero_tail(file, TIME_ENTRY.size)
    for position, (timestamp, relative) in entries(file, TIME_ENTRY):
        if position >= written * TIME_ENTRY.size:
            break
        yield {"type": "time-index-entry", "timestamp": timestamp, "offset": base + relative}
    yield from _tail(file, TIME_ENTRY.size, written)


def _tail(file: ReadableFile, entry_size: int, written: int) -> Iterator[Row]:
    whole = file.size // entry_size
    if whole > written:
        yield {"type": "unused", "position": written * entry_size, "size": (whole - written) * entry_size}
    yield from _rest(file, entry_size)


def _rest(file: ReadableFile, entry_size: int) -> Iterator[Row]:
    left = file.size % entry_size
    if left:
        reason = f"{left} bytes at the end are not an entry of {entry_size} bytes"
        yield {"type": "damage", "position": file.size - left, "size": left, "reason": reason}


def _txn_index(file: ReadableFile, _: int) -> Iterator[Row]:
    for _, fields in entries(file, TXN_ENTRY):
        yield {"type": "aborted-transaction", **AbortedEntry(*fields)._asdict()}
    yield from _rest(file, TXN_ENTRY.size)


def _snapshot(file: ReadableFile, _: int) -> Iterator[Row]:
    for producer in decode_snapshot(read_whole(file)):
        yield {"type": "producer", **producer._asdict()}


def _leader_epochs(file: ReadableFile, _: int) -> Iterator[Row]:
    for epoch, start in decode_leader_epochs(read_whole(file), file.path).entries:
        yield {"type": "leader-epoch", "epoch": epoch, "start_offset": start}


def _offsets(file: ReadableFile, _: int) -> Iterator[Row]:
    for (topic, partition), offset in decode_offsets(read_whole(file), file.path).items():
        yield {"type": "checkpoint", "topic": topic, "partition": partition, "offset": offset}


def _properties(file: ReadableFile, _: int) -> Iterator[Row]:
    text = read_whole(file).decode("utf-8", "replace")
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "!")):
            yield {"type": "property", "name": name.strip(), "value": value.strip()}


def _partition_metadata(file: ReadableFile, _: int) -> Iterator[Row]:
    topic_id = decode_partition_metadata(read_whole(file), file.path)
    yield {"type": "property", "name": "topic_id", "value": format_uuid(topic_id)}


def _clean_shutdown(file: ReadableFile, _: int) -> Iterator[Row]:
    yield {"type": "property", "name": "content", "value": read_whole(file).decode("utf-8", "replace")}


_READERS: Final[dict[FileKind, Callable[[ReadableFile, int], Iterator[Row]]]] = {
    FileKind.OFFSET_INDEX: _offset_index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TXN_INDEX: _txn_index,
    FileKind.SNAPSHOT: _snapshot,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.OFFSETS: _offsets,
    FileKind.META: _properties,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
}
