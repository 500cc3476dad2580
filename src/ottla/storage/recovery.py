"""Opening a partition directory: immediate after a clean stop; otherwise what was not synced is checked.

Everything below the recovery point is known to be synced and is trusted. From there on (or from the newest producer
snapshot, if that is older) batches are read in order. Bytes that are not a whole batch, and batches with a wrong
checksum or offset, are taken out and kept aside; intact batches behind them stay. In the same pass the indexes of that
part, the producers' state and the leader epochs are rebuilt. Directories written by Apache Kafka are opened alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ottla.config.topic import LogConfig
from ottla.env.disk import TEMPORARY_SUFFIX
from ottla.records.batch import ATTRIBUTES_AT, CONTROL_FLAG, MAGIC, parse_batch_header
from ottla.records.errors import BatchError
from ottla.storage.checkpoints import (
    MOVED_FILE,
    PARTITION_METADATA_FILE,
    CheckpointError,
    NewerVersionError,
    decode_partition_metadata,
)
from ottla.storage.damage import Damage, batches_and_damage, keep_aside, rewrite_without
from ottla.storage.files import (
    CLEANED_SUFFIX,
    DAMAGED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_DIGITS,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_file_name,
    offsets_of,
)
from ottla.storage.index import OFFSET_ENTRY, TIME_ENTRY
from ottla.storage.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs, decode_leader_epochs
from ottla.storage.log import PartitionLog
from ottla.storage.producer_snapshots import ProducerSnapshots, intact_batches, replay_batch, replay_log
from ottla.storage.producer_state import ProducerState
from ottla.storage.resources import LogResources
from ottla.storage.scan import ScannedBatch, scan_batches
from ottla.storage.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.storage.segments import create_segment
from ottla.storage.transaction_index import AbortedTransaction


@dataclass(slots=True)
class LogPlace:
    """Which log to open, where, and its checkpoints."""

    directory: str
    topic: str
    partition: int
    config: LogConfig
    #: Whether the broker that last used the log directory stopped cleanly.
    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    #: Whether a marker says that the log was moved here from another log directory (`ottla.storage.checkpoints`).
    was_moved: bool = False
    #: What was found and repaired, for the operator.
    notes: list[str] = field(default_factory=list)
    #: The index files that were missing or damaged, and are rebuilt from the log.
    rebuilt: list[str] = field(default_factory=list)


def create_log(resources: LogResources, place: LogPlace, topic_id: UUID | None, now_ms: int) -> PartitionLog:
    """Create the directory of a new partition, with an empty log file. Raises DiskError."""
    disk = resources.disk
    disk.mkdirs(place.directory)
    segment = Segment(resources.files, resources.index_memory, place.directory, place.log_start_offset, 0, now_ms)
    segment.max_timestamp = -1
    segment.create_files()
    log = PartitionLog(resources, place.directory, place.topic, place.partition, topic_id, place.config, [segment])
    log.producers.end_offset = place.log_start_offset
    # The small files are written later, as in Kafka (`maybeFlushMetadataFile`).
    log.is_new = True
    return log


def load_log(
    resources: LogResources, place: LogPlace, now_ms: int, scratch: LogResources | None = None
) -> PartitionLog:
    """Open a partition directory. Raises DiskError.

    With `scratch`, the files are opened there, and all of them are closed at the end: a thread that passes its own uses
    nothing else of `resources`.
    """
    if scratch is None:
        return _Loader(resources, place, now_ms).load(resources)
    try:
        return _Loader(scratch, place, now_ms).load(resources)
    finally:
        scratch.files.close_all()


class _Loader:
    """The steps of opening one partition directory."""

    def __init__(self, resources: LogResources, place: LogPlace, now_ms: int) -> None:
        self._resources = resources
        self._disk = resources.disk
        self._place = place
        self._now_ms = now_ms
        self._names: list[str] = []
        self._snapshots = ProducerSnapshots(resources.disk, place.directory, ())
        self._producers = ProducerState()
        self._epochs = LeaderEpochs()
        #: Whether the segment being recovered holds markers that end transactions.
        self._has_markers = False
        #: Rebuilt transaction indexes.
        self._rebuilt: list[str] = []
        #: The first offset above the recovery point from which records are missing; None without a gap.
        self._gap: int | None = None
        #: The offset that the next batch should begin at; None where that is unknown.
        self._expected: int | None = None
        #: A newer leader epoch that was just found in the log, and the offset of its batch.
        self._next_epoch: tuple[int, int] | None = None

    def load(self, resources: LogResources) -> PartitionLog:
        """Load the log; from then on its files are opened by `resources`."""
        place = self._place
        self._names = self._disk.listdir(place.directory)
        place.was_moved = MOVED_FILE in self._names
        if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)) for name in self._names):
            self._finish_interrupted_work()
        self._snapshots = ProducerSnapshots(self._disk, place.directory, self._names)
        self._load_epochs()
        topic_id = self._topic_id()
        segments, is_intact = self._open_segments()
        start = max(place.log_start_offset, segments[0].base_offset)
        end = self._end_of_intact_log(segments) if place.clean and is_intact else None
        if end is not None and end < start:
            # The log is intact, so the checkpoint is wrong.
            place.notes.append(
                f"{place.directory}: the log ends at {end}, so that it cannot start at {start}, as the checkpoint of "
                f"log starts says: it starts at {segments[0].base_offset}"
            )
            start = segments[0].base_offset
        if end is None:
            end = self._recover(segments)
        if end < start:
            segments, end = self._restart_at_start(segments, start, end), start
        if resources is not self._resources:
            for segment in segments:
                segment.move_to(resources.files, resources.index_memory)
        log = PartitionLog(resources, place.directory, place.topic, place.partition, topic_id, place.config, segments)
        log.log_start_offset = start
        log.log_end_offset = end
        if self._gap is not None and self._gap < end:
            log.gap_offset = max(self._gap, start)
        log.update_high_watermark(place.high_watermark)
        unflushed = log.unflushed
        unflushed.recovery_point = (
            end if place.clean and is_intact else max(segments[0].base_offset, min(place.recovery_point, end))
        )
        unflushed.bytes = _bytes_from(segments, unflushed.recovery_point, end)
        unflushed.last_flush_ms = self._now_ms
        if place.clean and is_intact:
            log.indexed_end_offset = end
        if unflushed.recovery_point < end:
            # The process that created the newer segments may have ended before it synced the directory.
            unflushed.note_directory()
        self._epochs.truncate_end(end)
        self._epochs.truncate_start(start)
        log.epochs = self._epochs
        self._producers.end_offset = end
        log.producers = self._producers
        log.snapshot_offset = self._snapshots.newest
        for path in self._rebuilt:
            unflushed.note_file(path)
        return log

    # -- small files

    def _finish_interrupted_work(self) -> None:
        """Remove files of interrupted deletions and cleanings; complete an interrupted swap of cleaned segments."""
        directory, disk = self._place.directory, self._disk
        unfinished = min((name[:OFFSET_DIGITS] for name in self._names if name.endswith(CLEANED_SUFFIX)), default="~")
        for name in self._names:
            # As in Kafka: a swap from the first `.cleaned` file on was incomplete when the broker stopped.
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)) or (
                name.endswith(SWAP_SUFFIX) and name[:OFFSET_DIGITS] >= unfinished
            ):
                disk.remove(f"{directory}/{name}")
        self._names = disk.listdir(directory)
        for base_offset in offsets_of(self._names, LOG_SUFFIX + SWAP_SUFFIX):
            self._complete_swap(base_offset)
        swapped = [name for name in self._names if name.endswith(SWAP_SUFFIX)]
        # The log file first: as long as it ends in `.swap`, other files without that suffix are old ones.
        for name in sorted(swapped, key=lambda name: not name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
        self._names = disk.listdir(directory)

    def _complete_swap(self, base_offset: int) -> None:
        """A `.log.swap` is a complete cleaned segment: it replaces the segments it was made from."""
        directory, disk = self._place.directory, self._disk
        file = disk.open(f"{directory}/{offset_file_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX)}")
        last = max((batch.last_offset for batch in scan_batches(file, 0, file.size)), default=base_offset)
        file.close()
        for other in {base_offset, *offsets_of(self._names, LOG_SUFFIX)}:
            if base_offset <= other <= last:
                for suffix in SEGMENT_SUFFIXES:
                    disk.remove(f"{directory}/{offset_file_name(other, suffix)}")

    def _load_epochs(self) -> None:
        path = f"{self._place.directory}/{LEADER_EPOCH_FILE}"
        if LEADER_EPOCH_FILE not in self._names:
            return
        try:
            data = self._disk.read_bytes(path)
            if not data:
                raise CheckpointError(f"{path}: empty")
            self._epochs = decode_leader_epochs(data, path)
        except NewerVersionError:
            raise
        except CheckpointError as error:
            self._place.notes.append(f"{error}; its epochs are read from the log instead")
            self._epochs.dirty = True
            self._place.clean = False
            self._place.recovery_point = 0

    def _topic_id(self) -> UUID | None:
        if PARTITION_METADATA_FILE not in self._names:
            return None
        path = f"{self._place.directory}/{PARTITION_METADATA_FILE}"
        try:
            return decode_partition_metadata(self._disk.read_bytes(path), path)
        except NewerVersionError:
            raise
        except CheckpointError as error:
            self._place.notes.append(f"{error}; the partition is taken to have no topic id yet")
            return None

    # -- segments

    def _open_segments(self) -> tuple[list[Segment], bool]:
        """All segments (at least one), and whether their indexes are intact."""
        place, resources, disk = self._place, self._resources, self._disk
        names = set(self._names)
        segments: list[Segment] = []
        is_intact = True
        for base_offset in sorted(offsets_of(self._names, LOG_SUFFIX)):
            path = f"{place.directory}/{offset_file_name(base_offset, LOG_SUFFIX)}"
            size = disk.file_size(path)
            created = self._now_ms if size == 0 else 0
            segment = Segment(resources.files, resources.index_memory, place.directory, base_offset, size, created)
            is_intact &= self._open_indexes(segment, names)
            segments.append(segment)
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            for base_offset in offsets_of(self._names, suffix):
                if offset_file_name(base_offset, LOG_SUFFIX) not in names:
                    disk.remove(f"{place.directory}/{offset_file_name(base_offset, suffix)}")
        if not segments:
            segments = self._restart_at(place.log_start_offset)
        return segments, is_intact

    def _open_indexes(self, segment: Segment, names: set[str]) -> bool:
        """Set the sizes of the index files; False if they cannot be right: then they count as empty."""
        is_intact = True
        for index, entry in ((segment.offset_index, OFFSET_ENTRY.size), (segment.time_index, TIME_ENTRY.size)):
            name = offset_file_name(segment.base_offset, index.file.suffix)
            size = self._disk.file_size(f"{self._place.directory}/{name}") if name in names else -1
            if size < 0 or size % entry:
                is_intact = False
                if self._place.clean or segment.base_offset < self._place.recovery_point:
                    self._place.rebuilt.append(f"{self._place.directory}/{name}")
            else:
                index.entries = size // entry
        name = offset_file_name(segment.base_offset, TXN_INDEX_SUFFIX)
        if name in names and not segment.txn_index.is_intact():
            is_intact = False
            self._place.rebuilt.append(f"{self._place.directory}/{name}")
        if not is_intact:
            for index in (segment.offset_index, segment.time_index):
                index.entries = 0
                if offset_file_name(segment.base_offset, index.file.suffix) in names:
                    # Entries are added at the end of the file.
                    index.file.get().truncate(0)
        return is_intact

    def _restart_at_start(self, segments: list[Segment], start: int, end: int) -> list[Segment]:
        """The log ends before its start: delete what is left, unless the checkpoint is wrong."""
        aside = []
        for segment in segments:
            path = segment.log.path
            for renamed in segment.mark_deleted():
                if renamed == path + DELETED_SUFFIX and segment.size:
                    aside.append(path + DAMAGED_SUFFIX)
                    self._disk.rename(renamed, aside[-1])
                else:
                    self._disk.remove(renamed)
        self._place.notes.append(
            f"{self._place.directory}: the log ends at {end}, before its start {start}: begun again there"
            + (f"; what it held is kept in {', '.join(aside)}" if aside else "")
        )
        for offset in self._snapshots.offsets:
            self._disk.remove(f"{self._place.directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}")
        self._snapshots.offsets.clear()
        return self._restart_at(start)

    def _restart_at(self, offset: int) -> list[Segment]:
        self._producers.clear()
        return [create_segment(self._resources, self._place.directory, offset, self._now_ms)]

    # -- after a clean stop

    def _end_of_intact_log(self, segments: list[Segment]) -> int | None:
        """The log's end after a clean stop; None if the files contradict that, so that it must be recovered."""
        active = segments[-1]
        end = _end_of_segment(active)
        if end is None:
            return None
        if not self._snapshots.offsets:
            # As in Kafka: a cleanly closed log without any snapshot has no producers.
            return end
        self._load_snapshot(end)
        if self._producers.end_offset < end:
            replay_log(self._producers, segments, self._producers.end_offset)
        return end

    def _load_snapshot(self, at_most: int) -> None:
        expiration_ms = self._resources.producer_expiration_ms
        self._snapshots.load_newest(self._producers, at_most, self._now_ms, expiration_ms)

    # -- after any other stop

    def _recover(self, segments: list[Segment]) -> int:
        """Check the log from the recovery point on, take out damage; returns the log's end."""
        place = self._place
        self._load_snapshot(max(segments[-1].base_offset, place.recovery_point))
        from_offset = min(place.recovery_point, self._producers.end_offset) if self._snapshots.offsets else 0
        end = segments[0].base_offset
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            indexed = segment.offset_index.entries > 0 or not segment.size
            if following is not None and following <= from_offset and indexed:
                self._expected = end = following
                continue
            self._has_markers = False
            self._note_gap(segment.base_offset)
            end = self._recover_segment(
                segment, max(end, segment.base_offset), from_offset if indexed else 0, following
            )
            if self._has_markers:
                _rebuild_transaction_index(self._snapshots, segments, number, self._now_ms)
                self._rebuilt.append(segment.txn_index.file.path)
        self._settle_epoch(None)
        if self._producers.end_offset > end:
            # A snapshot of records that no longer exist.
            self._load_snapshot(end)
            replay_log(self._producers, segments, self._producers.end_offset)
        return end

    def _recover_segment(self, segment: Segment, start: int, trusted: int, following: int | None) -> int:
        """Check a segment, keeping index entries below `trusted`, and take out damage; returns its end.

        `start` is the end of the log before it, `following` the start of the segment behind it.
        """
        position = _keep_trusted_entries(segment, trusted)
        end, damages = self._scan(segment, position, start if not position else segment.base_offset, following)
        if damages:
            if position and damages[0].position == position:
                # The last indexed batch is damaged, so the position behind it is unknown.
                return self._recover_segment(segment, start, 0, following)
            self._take_out(segment, damages)
            if any(damage.end < segment.size for damage in damages):
                # The batches behind have moved: index their new positions.
                segment.size = segment.log.get().size
                return max(end, self._recover_segment(segment, start, 0, following))
            segment.size = segment.log.get().size
        segment.finish_time_index()
        segment.spill_indexes()
        segment.txn_index.keep_below(end)
        return max(end, start)

    def _scan(
        self, segment: Segment, position: int, next_offset: int, following: int | None
    ) -> tuple[int, list[Damage]]:
        """Process the intact batches from `position` on; returns the offset after the last, and the damaged ranges."""
        interval = self._place.config.index_interval_bytes
        self._expected = None if position else next_offset
        damages: list[Damage] = []
        end = next_offset
        is_behind_damage = False
        file = segment.log.pin()
        try:
            for found in batches_and_damage(file, position, segment.size, segment.base_offset, next_offset, following):
                if isinstance(found, Damage):
                    damages.append(found)
                    is_behind_damage = True
                else:
                    self._take(segment, found, interval)
                    if found.magic == MAGIC:  # older ones do not say where they begin
                        self._note_gap(found.first_offset, is_behind_damage=is_behind_damage)
                    is_behind_damage = False
                    self._expected = end = found.last_offset + 1
        finally:
            segment.log.unpin()
        return end, sorted(damages)

    def _take(self, segment: Segment, batch: ScannedBatch, interval: int) -> None:
        """Register an intact batch: indexes, timestamps, leader epoch, producers."""
        if batch.max_timestamp > segment.largest_timestamp_so_far():
            segment.max_timestamp = batch.max_timestamp
            segment.max_timestamp_offset = batch.last_offset
        if segment.bytes_since_index > interval:
            segment.index_batch(batch.last_offset, batch.position)
        segment.bytes_since_index += batch.length
        if batch.magic == MAGIC:
            if self._next_epoch is not None or batch.leader_epoch > self._epochs.latest:
                self._settle_epoch(batch)
            self._has_markers = self._has_markers or _is_marker(batch)
            replay_batch(self._producers, batch)

    def _note_gap(self, next_offset: int, *, is_behind_damage: bool = False) -> None:
        """Note whether offsets are missing before `next_offset`, at which the next batch or segment begins.

        Not below the recovery point or the log's start. A compacted log has gaps everywhere, also one that was copied
        from its leader and is not on the disk yet: there only damage shows that something is missing.
        """
        expected, place = self._expected, self._place
        if place.config.compact and not is_behind_damage:
            return
        if expected is not None and place.recovery_point <= expected < next_offset > place.log_start_offset:
            self._gap = expected if self._gap is None else min(self._gap, expected)

    def _settle_epoch(self, batch: ScannedBatch | None) -> None:
        """Accept a new leader epoch once the next batch (None: there is none) is not of an older one.

        The epoch is not covered by the checksum, and a damaged one must not raise the log's epoch to a huge number.
        """
        if self._next_epoch is not None:
            epoch, offset = self._next_epoch
            if batch is None or batch.leader_epoch >= epoch:
                self._epochs.assign(epoch, offset)
            else:
                self._place.notes.append(
                    f"{self._place.directory}: the batch at offset {offset} says leader epoch {epoch}, the one behind "
                    f"it {batch.leader_epoch}: the former is damaged and not believed"
                )
            self._next_epoch = None
        if batch is not None and batch.leader_epoch > self._epochs.latest:
            self._next_epoch = batch.leader_epoch, batch.first_offset

    def _take_out(self, segment: Segment, damages: list[Damage]) -> None:
        """Take damaged bytes out of a log file and keep them aside; the batches behind them stay. Raises DiskError."""
        disk, path, size = self._disk, segment.log.path, segment.size
        file = segment.log.pin()
        try:
            for damage in damages:
                aside = keep_aside(disk, path, file, damage)
                self._place.notes.append(
                    f"{path}: cut {damage.length} bytes at position {damage.position} that are not a whole batch "
                    f"({'kept in ' + aside if aside else 'zeros'}); records may be missing from offset "
                    f"{damage.first_offset} on{', those behind are kept' if damage.end < size else ''}"
                )
            disk.fsync_dir(self._place.directory)
            if len(damages) == 1 and damages[0].end == size:
                file.truncate(damages[0].position)
                return
            # Their positions refer to the old file; they must be removed on disk before the new file is there.
            segment.offset_index.keep(0)
            segment.time_index.keep(0)
            segment.offset_index.file.get(create=True).flush()
            segment.time_index.file.get(create=True).flush()
            rewrite_without(disk, path, file, size, damages)
        finally:
            segment.log.unpin()
        segment.close()


def _end_of_segment(segment: Segment) -> int | None:
    """The offset after the last batch, found from the last index entry on; None if index and log do not match."""
    if not segment.size:
        return segment.base_offset
    position = 0
    if segment.offset_index.entries:
        offset, position = segment.offset_index.entry(segment.offset_index.entries - 1)
        if offset < segment.base_offset or not 0 < position < segment.size:
            return None
    if segment.time_index.entries and segment.time_index.last()[1] < segment.base_offset:
        return None
    end = segment.base_offset
    largest = segment.base_offset + MAX_RELATIVE_OFFSET
    while position < segment.size:
        try:
            place = segment.batch_at(position)
        except BatchError:
            return None
        if place is None or not end <= place.base_offset <= place.last_offset <= largest:
            return None
        position += place.length
        end = place.last_offset + 1
    return end if position == segment.size else None


def _bytes_from(segments: list[Segment], offset: int, end: int) -> int:
    """Estimated bytes from `offset` on: whole segments, since that is what a flush syncs."""
    if offset >= end:
        return 0
    count = 0
    for number, segment in enumerate(segments):
        if number + 1 == len(segments) or segments[number + 1].base_offset > offset:
            count += segment.size
    return count


def _keep_trusted_entries(segment: Segment, trusted: int) -> int:
    """Drop the index entries at and above offset `trusted`, or all if they do not match the log.

    Returns the position of the last batch that is still indexed, from which the rest is rebuilt.
    """
    offsets, times = segment.offset_index, segment.time_index
    segment.max_timestamp = None
    segment.bytes_since_index = 0
    try:
        offsets.keep(offsets.valid_entries())
        times.keep(times.valid_entries())
        offsets.truncate(trusted)
        if offsets.entries and _last_entry_fits(segment):
            last, position = offsets.entry(offsets.entries - 1)
            times.truncate(last + 1)
            return position
    except BatchError:
        pass
    offsets.keep(0)
    times.keep(0)
    return 0


def _last_entry_fits(segment: Segment) -> bool:
    offset, position = segment.offset_index.entry(segment.offset_index.entries - 1)
    place = segment.batch_at(position)
    return (
        place is not None
        and segment.base_offset <= place.base_offset <= offset
        and place.position + place.length <= segment.size
    )


def _is_marker(batch: ScannedBatch) -> bool:
    """Whether a batch can be a transaction marker."""
    return batch.magic == MAGIC and batch.data[ATTRIBUTES_AT + 1] & CONTROL_FLAG != 0


def _rebuild_transaction_index(
    snapshots: ProducerSnapshots, segments: Sequence[Segment], number: int, now_ms: int
) -> None:
    """Rebuild the transaction index of the segment of this number from its markers and the log before them.

    The log is read from the newest producer snapshot at or before the segment's base offset. Raises DiskError.
    """
    wanted = segments[number]
    state = ProducerState()
    snapshots.peek(state, wanted.base_offset, now_ms)
    aborted: list[AbortedTransaction] = []
    for segment, batch in intact_batches(segments, state.end_offset, number + 1):
        if batch.magic != MAGIC or batch.last_offset < state.end_offset:
            continue
        ended = state.replay(parse_batch_header(batch.data), batch.data)
        if ended is not None and ended.aborted and segment is wanted:
            aborted.append(ended.entry(state))
    wanted.txn_index.replace(aborted)
