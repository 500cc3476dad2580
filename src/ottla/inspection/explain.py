"""Rows of `ottla log explain`: segments, how indexes find an offset and a time, and what is rolled and deleted next.

It knows the files alone: what it says about deletion holds once all records are committed and flushed.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ottla.config.topic import LogConfig
from ottla.env.disk import Disk
from ottla.env.file_reader import ReadableFile
from ottla.inspection.batch_rows import Row, records_of
from ottla.inspection.directories import NothingThere, PartitionDirectory, UnlessMissing, directory_of, look
from ottla.inspection.file_names import CLEANER_CHECKPOINT_FILE
from ottla.inspection.small_files import TooLarge, entries, first_of_zero_tail, read_whole
from ottla.inspection.walk import DamagedRange, LogBatch, LogWalker
from ottla.records.batch import NO_TIMESTAMP, BatchHeader
from ottla.records.errors import BatchError
from ottla.records.record import Record
from ottla.storage.checkpoints import LOG_START_FILE, CheckpointError, decode_offsets
from ottla.storage.files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, offset_file_name
from ottla.storage.index import OFFSET_ENTRY, TIME_ENTRY

#: Keys that are compared with each other, as a cleaner's map of keys is limited by its memory.
MOST_KEYS: Final = 1_000_000
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


@dataclass(frozen=True, slots=True)
class ExplainWish:
    """Options: the log's settings, the time that counts as now, and an offset and a time to find."""

    config: LogConfig
    now_ms: int
    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(slots=True)
class SegmentFacts:
    """A segment, as its files have it. Timestamps are -1 where no record has one."""

    base_offset: int
    size: int
    is_active: bool
    batches: int = 0
    records: int = 0
    last_offset: int = -1
    oldest: int = NO_TIMESTAMP
    newest: int = NO_TIMESTAMP
    #: The largest timestamp of the first batch, from which the segment's age counts.
    first: int = NO_TIMESTAMP
    #: From when `retention.ms` counts: the newest timestamp, else the time of the file.
    retained_since: int = 0
    damaged_bytes: int = 0
    index_entries: int = 0
    time_index_entries: int = 0

    @property
    def name(self) -> str:
        """Its log file."""
        return offset_file_name(self.base_offset, LOG_SUFFIX)


def explain(disk: Disk, path: str, wish: ExplainWish) -> Iterator[Row]:
    """The rows of a partition directory. Raises DiskError, NothingThere."""
    if not disk.is_dir(path):
        raise NothingThere(f"{path} is not a directory; name one of a partition (TOPIC-NUMBER)")
    found = look(disk, path)
    if not isinstance(found, PartitionDirectory):
        raise NothingThere(f"{path}: a log directory of many partitions; name one of them (TOPIC-NUMBER)")
    if not found.segments:
        raise NothingThere(f"{path}: no segment (….log) is in it")
    start = _checkpoint(found, LOG_START_FILE)
    segments = [_facts(disk, found, each) for each in found.segments]
    yield {
        "type": "log",
        "topic": found.topic,
        "partition": found.partition,
        "segments": len(segments),
        "bytes": sum(each.size for each in segments),
        "log_start_offset": max(segments[0].base_offset, start or 0),
        "log_end_offset": _end(segments[-1]),
    }
    yield from map(_segment_row, segments)
    if wish.offset is not None:
        yield _offset_lookup(found, segments, wish.offset)
    if wish.timestamp_ms is not None:
        yield _time_lookup(found, segments, wish.timestamp_ms)
    yield _rolling(segments[-1], wish)
    yield from _retention(segments, wish, start or 0)
    yield _compaction(found, segments, wish)


def duration(ms: int) -> str:
    """A length of time in its largest unit that fits."""
    unit, size = next(((unit, size) for unit, size in _UNITS if ms >= size), ("ms", 1))
    return f"{ms / size:.1f}".removesuffix(".0") + f" {unit}"


def _end(segment: SegmentFacts) -> int:
    return max(segment.last_offset + 1, segment.base_offset)


def _facts(disk: Disk, partition: PartitionDirectory, base_offset: int) -> SegmentFacts:
    facts = SegmentFacts(base_offset, 0, base_offset == partition.segments[-1])
    with ReadableFile(partition.segment_file(base_offset, LOG_SUFFIX)) as file:
        facts.size = file.size
        walker = LogWalker(file)
        for found in walker:
            if isinstance(found, DamagedRange):
                facts.damaged_bytes += found.length
            else:
                _count(facts, walker, found)
    if facts.newest < 0:
        facts.retained_since = disk.modified_ms(file.path)
    else:
        facts.retained_since = facts.newest
    facts.index_entries = _entries(partition, base_offset, OFFSET_INDEX_SUFFIX, OFFSET_ENTRY)
    facts.time_index_entries = _entries(partition, base_offset, TIME_INDEX_SUFFIX, TIME_ENTRY)
    return facts


def _count(facts: SegmentFacts, walker: LogWalker, batch: LogBatch) -> None:
    header, newest = batch.header, batch.max_timestamp
    oldest = header.base_timestamp if isinstance(header, BatchHeader) else newest
    if not facts.batches:
        facts.first = newest
    facts.batches += 1
    facts.records += header.records_count if isinstance(header, BatchHeader) else len(_records(walker, batch))
    facts.last_offset = max(facts.last_offset, batch.last_offset)
    facts.newest = max(facts.newest, newest)
    if oldest >= 0:
        facts.oldest = oldest if facts.oldest < 0 else min(facts.oldest, oldest)


def _records(walker: LogWalker, batch: LogBatch) -> list[Record]:
    try:
        return records_of(walker, batch)
    except BatchError:
        return []


def _index(
    partition: PartitionDirectory, base_offset: int, suffix: str, entry: struct.Struct
) -> Iterator[tuple[int, ...]]:
    """The entries of an index in use; none where the file is missing: a broker writes the first ones late."""
    with UnlessMissing(), ReadableFile(partition.segment_file(base_offset, suffix)) as file:
        written = first_of_zero_tail(file, entry.size) * entry.size
        for position, fields in entries(file, entry):
            if position >= written:
                break
            yield fields


def _entries(partition: PartitionDirectory, base_offset: int, suffix: str, entry: struct.Struct) -> int:
    return sum(1 for _ in _index(partition, base_offset, suffix, entry))


def _checkpoint(partition: PartitionDirectory, name: str) -> int | None:
    """The partition's offset in a checkpoint of its log directory; None where there is none that can be read."""
    path = f"{directory_of(partition.path)}/{name}"
    try:
        with UnlessMissing(), ReadableFile(path) as file:
            return decode_offsets(read_whole(file), path).get(partition.key)
    except (CheckpointError, TooLarge):
        return None
    return None


def _segment_row(facts: SegmentFacts) -> Row:
    return {
        "type": "segment",
        "base_offset": facts.base_offset,
        "last_offset": facts.last_offset if facts.batches else None,
        "bytes": facts.size,
        "batches": facts.batches,
        "records": facts.records,
        "oldest_timestamp": facts.oldest,
        "newest_timestamp": facts.newest,
        "index_entries": facts.index_entries,
        "time_index_entries": facts.time_index_entries,
        "damaged_bytes": facts.damaged_bytes,
        "is_active": facts.is_active,
    }


# -- finding


def _offset_lookup(partition: PartitionDirectory, segments: Sequence[SegmentFacts], offset: int) -> Row:
    row: Row = {"type": "offset-lookup", "offset": offset}
    number = bisect_right(segments, offset, key=lambda each: each.base_offset) - 1
    if number < 0 or offset >= _end(segments[-1]):
        return row | {"segment": None, "base_offset": None}
    facts = segments[number]
    entry = _floor_entry(partition, facts.base_offset, offset)
    position = 0 if entry is None else entry[1]
    row |= {"segment": facts.name, "index_entries": facts.index_entries, "index_entry": entry, "from": position}
    with ReadableFile(partition.segment_file(facts.base_offset, LOG_SUFFIX)) as file:
        for passed, batch in enumerate(_batches(file, position)):
            if batch.last_offset >= offset:
                return row | {
                    "batches_passed": passed,
                    "position": batch.position,
                    "base_offset": batch.base_offset,
                    "last_offset": batch.last_offset,
                }
    # The records after it in this segment were compacted away, or are damaged: the next segment has the first one.
    following = segments[number + 1].base_offset if number + 1 < len(segments) else None
    return row | {"base_offset": None, "next_segment": following}


def _batches(file: ReadableFile, position: int) -> Iterator[LogBatch]:
    return (each for each in LogWalker(file, position) if not isinstance(each, DamagedRange))


def _floor_entry(partition: PartitionDirectory, base_offset: int, offset: int) -> tuple[int, int] | None:
    """The last entry of the offset index that is not above `offset`: an offset and a position."""
    found = None
    for relative, position in _index(partition, base_offset, OFFSET_INDEX_SUFFIX, OFFSET_ENTRY):
        if base_offset + relative > offset:
            break
        found = base_offset + relative, position
    return found


def _time_lookup(partition: PartitionDirectory, segments: Sequence[SegmentFacts], timestamp: int) -> Row:
    row: Row = {"type": "time-lookup", "timestamp": timestamp}
    facts = next((each for each in segments if each.newest >= timestamp), None)
    if facts is None:
        return row | {"segment": None, "found_offset": None}
    base, entry = facts.base_offset, None
    for time, relative in _index(partition, base, TIME_INDEX_SUFFIX, TIME_ENTRY):
        if time > timestamp:
            break
        entry = time, base + relative
    start = _floor_entry(partition, base, base if entry is None else entry[1])
    position = 0 if start is None else start[1]
    row |= {"segment": facts.name, "time_index_entries": facts.time_index_entries, "time_index_entry": entry}
    row |= {"index_entry": start, "from": position}
    with ReadableFile(partition.segment_file(base, LOG_SUFFIX)) as file:
        walker = LogWalker(file, position)
        for batch in _batches(file, position):
            if batch.max_timestamp < timestamp:
                continue
            for record in _records(walker, batch):
                if record.timestamp >= timestamp:
                    return row | {"found_offset": record.offset, "found_timestamp": record.timestamp}
    return row | {"found_offset": None}


# -- what comes next


def _next(what: str, setting: str, takes: Sequence[SegmentFacts], reason: str) -> Row:
    return {
        "type": "next",
        "what": what,
        "setting": setting,
        "takes": [each.name for each in takes],
        "bytes": sum(each.size for each in takes),
        "reason": reason,
    }


def _rolling(active: SegmentFacts, wish: ExplainWish) -> Row:
    config = wish.config
    left_bytes, age = config.segment_bytes - active.size, wish.now_ms - active.first
    when = f"{active.name} has {active.size:,} of {config.segment_bytes:,} bytes"
    when += " and is rolled" if left_bytes <= 0 else f": a batch of more than {left_bytes:,} bytes rolls it"
    if not active.size:
        when = f"{active.name} has no records"
    elif active.first >= 0:
        when += f"; so does a record {duration(config.segment_ms)} newer than its first, which is {_old(age)}"
    return _next("roll", f"segment.bytes={config.segment_bytes} segment.ms={config.segment_ms}", [], when)


def _retention(segments: Sequence[SegmentFacts], wish: ExplainWish, start: int) -> Iterator[Row]:
    config, left = wish.config, [each for each in segments if each.size or not each.is_active]
    for name, limit, chosen in (
        ("retention.ms", config.retention_ms, _expired),
        ("retention.bytes", config.retention_bytes, _beyond_size),
    ):
        setting = f"{name}={limit}"
        if not config.delete:
            yield _next(
                "retention",
                setting,
                [],
                f"cleanup.policy={','.join(config.cleanup_policy)} deletes nothing by age or size",
            )
        elif limit < 0:
            yield _next("retention", setting, [], "no limit")
        else:
            takes, reason = chosen(left, wish)
            if takes and takes[-1].is_active:
                reason += "; the active segment is rolled first, so that an empty one stays"
            left = left[len(takes) :]
            yield _next("retention", setting, takes, reason)
    below = [each for each, after in pairwise(segments) if after.base_offset <= start]
    if takes := [each for each in below if each in left]:
        yield _next("retention", f"log start={start}", takes, "wholly below the log's start (DeleteRecords)")


def _expired(segments: Sequence[SegmentFacts], wish: ExplainWish) -> tuple[list[SegmentFacts], str]:
    if not segments:
        return [], "no records"
    limit = duration(wish.config.retention_ms)
    for number, each in enumerate(segments):
        age = wish.now_ms - each.retained_since
        if age <= wish.config.retention_ms:
            return list(segments[:number]), f"the newest record of {each.name} is {_old(age)}, the limit is {limit}"
    return list(segments), f"the newest record of each is older than {limit}"


def _old(age_ms: int) -> str:
    return f"{duration(age_ms)} old" if age_ms >= 0 else f"{duration(-age_ms)} in the future"


def _beyond_size(segments: Sequence[SegmentFacts], wish: ExplainWish) -> tuple[list[SegmentFacts], str]:
    total, limit, takes = sum(each.size for each in segments), wish.config.retention_bytes, []
    surplus = total - limit
    for each in segments:
        if surplus - each.size < 0:
            break
        surplus -= each.size
        takes.append(each)
    return takes, f"{total:,} bytes, limit {limit:,}: a segment goes when the rest still has the limit's bytes"


def _compaction(partition: PartitionDirectory, segments: Sequence[SegmentFacts], wish: ExplainWish) -> Row:
    config, closed = wish.config, segments[:-1]
    setting = f"cleanup.policy={','.join(config.cleanup_policy)}"
    if not config.compact:
        return _next("compaction", setting, [], "the policy is not compact")
    checkpoint = _checkpoint(partition, CLEANER_CHECKPOINT_FILE) or 0
    dirty = [each for each in closed if _end(each) > checkpoint]
    clean = [each for each in closed if _end(each) <= checkpoint]
    fresh = next((each for each in dirty if each.newest > wish.now_ms - config.min_compaction_lag_ms), None)
    if config.min_compaction_lag_ms > 0 and fresh is not None:
        dirty = dirty[: dirty.index(fresh)]
    if not dirty:
        return _next("compaction", setting, [], "no closed segment is dirty; the active one is never touched")
    dirty_bytes = sum(each.size for each in dirty)
    ratio = dirty_bytes / (dirty_bytes + sum(each.size for each in clean) or 1)
    oldest = wish.now_ms - config.max_compaction_lag_ms
    is_overdue = any(0 < each.first < oldest for each in dirty)
    least = config.min_cleanable_dirty_ratio
    reason = f"{ratio:.0%} of the closed bytes are dirty, "
    if not (is_overdue or ratio > least):
        return _next("compaction", setting, [], f"{reason}min.cleanable.dirty.ratio={least} wants more")
    reason += "max.compaction.lag.ms is over" if is_overdue else f"more than min.cleanable.dirty.ratio={least}"
    taken = _superseded(partition, clean + dirty, checkpoint)
    kept = {each: count for each, count in taken.items() if count}
    return _next("compaction", setting, clean + dirty, f"{reason}: {_in_words(kept)}") | {"records": kept}


def _superseded(partition: PartitionDirectory, segments: Sequence[SegmentFacts], first_dirty: int) -> Mapping[str, int]:
    """Counts of records: all, those with a newer one of their key, without a key, and tombstones."""
    newest: dict[bytes, int] = {}
    for record in _data_records(partition, segments):
        if (
            record.key is not None
            and record.offset >= first_dirty
            and (len(newest) < MOST_KEYS or record.key in newest)
        ):
            newest[bytes(record.key)] = record.offset
    counts = {"records": 0, "superseded": 0, "without a key": 0, "tombstones": 0}
    for record in _data_records(partition, segments):
        counts["records"] += 1
        if record.key is None:
            counts["without a key"] += 1
        elif newest.get(bytes(record.key), -1) > record.offset:
            counts["superseded"] += 1
        elif record.value is None:
            counts["tombstones"] += 1
    return counts


def _data_records(partition: PartitionDirectory, segments: Sequence[SegmentFacts]) -> Iterator[Record]:
    for each in segments:
        with ReadableFile(partition.segment_file(each.base_offset, LOG_SUFFIX)) as file:
            walker = LogWalker(file)
            for batch in _batches(file, 0):
                if not (isinstance(batch.header, BatchHeader) and batch.header.is_control):
                    yield from _records(walker, batch)


def _in_words(counts: Mapping[str, int]) -> str:
    goes = [f"{count:,} {what}" for what, count in counts.items() if what in ("superseded", "without a key")]
    text = f"of {counts.get('records', 0):,} records {' and '.join(goes) or 'none'} would go"
    if counts.get("tombstones"):
        text += f"; {counts['tombstones']:,} tombstones stay for delete.retention.ms after their first cleaning"
    return text
