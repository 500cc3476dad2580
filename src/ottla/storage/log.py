"""The log of one partition: appends, reads, and its state.

A log is used from the event loop only. Disk threads sync its files (`begin_flush`) and read ranges that are pinned for
them (`FileSlice`), nothing else. What is not done for each batch of a leader is in modules of its own: `following`,
`truncation`, `retention`, `lookups`, `flushing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from ottla.config.topic import LogConfig
from ottla.env.disk import DiskError
from ottla.records.batch import BatchHeader, patch_batch
from ottla.records.errors import BatchError
from ottla.storage.checkpoints import write_partition_metadata
from ottla.storage.files import SNAPSHOT_SUFFIX, offset_file_name
from ottla.storage.flushing import Unflushed, begin_flush, end_flush
from ottla.storage.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
from ottla.storage.producer_state import ProducerState, Verification
from ottla.storage.resources import LogResources
from ottla.storage.results import (
    AppendInfo,
    AppendRefusal,
    LogRead,
    ReadRefusal,
    UnreadableRange,
)
from ottla.storage.segment import Segment, roll_due
from ottla.storage.segments import EMPTY_READ, SegmentList
from ottla.storage.transaction_index import AbortedTransaction
from ottla.storage.validation import (
    CLIENT,
    COORDINATOR,
    LOG_APPEND_TIME,
    check_append,
    split,
    stamp,
)
from ottla.wire.errors import ErrorCode

__all__ = [
    "CLIENT",
    "COORDINATOR",
    "AppendInfo",
    "AppendRefusal",
    "LogRead",
    "PartitionLog",
    "ReadRefusal",
]


class PartitionLog:
    """One partition's log. Made by `ottla.storage.recovery.load_log`."""

    __slots__ = (
        "closed",
        "config",
        "directory",
        "epochs",
        "failure",
        "gap_offset",
        "high_watermark",
        "indexed_end_offset",
        "is_new",
        "log_end_offset",
        "log_start_offset",
        "name",
        "partition",
        "producers",
        "renamed",
        "resources",
        "segment_list",
        "snapshot_offset",
        "topic",
        "topic_id",
        "unflushed",
        "unwritten",
    )

    def __init__(
        self,
        resources: LogResources,
        directory: str,
        topic: str,
        partition: int,
        topic_id: UUID | None,
        config: LogConfig,
        segments: list[Segment],
    ) -> None:
        self.resources = resources
        self.segment_list = SegmentList(resources, directory, segments)
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        #: Created by this process, and without its small files: they come with the first append, or when it is closed.
        #: Until then nothing has to be on disk, since an empty directory can be made again.
        self.is_new = False
        #: Topic and partition, as Kafka prints them.
        self.name = f"{topic}-{partition}"
        self.config = config
        self.log_start_offset = segments[0].base_offset
        self.log_end_offset = segments[-1].base_offset
        #: Records below it are on all in-sync replicas. Needed for reads, retention and checkpoints. The replica's
        #: owner moves it; the log only keeps it between its start and its end.
        self.high_watermark = self.log_start_offset
        #: Where records may be missing that lay before others of this log, since it was last opened; None: nowhere.
        self.gap_offset: int | None = None
        self.epochs = LeaderEpochs()
        self.producers = ProducerState()
        #: What is not known to be on disk yet.
        self.unflushed = Unflushed(directory, self.log_start_offset, self.log_end_offset)
        #: Offset of the newest producer snapshot, 0 if there is none.
        self.snapshot_offset = 0
        #: The log's end offset when all its indexes were last complete in their files, -1 if they never were.
        self.indexed_end_offset = -1
        #: Renamed files of dropped segments that have not been returned to a caller yet.
        self.renamed: list[str] = []
        #: Why appends are refused, until the log is reopened.
        self.failure: str | None = None
        #: Why the last append could not be written; empty since one was.
        self.unwritten = ""
        self.closed = False

    def relocate(self, directory: str) -> None:
        """The partition directory was renamed; no flush may be under way."""
        self.directory = directory
        self.segment_list.relocate(directory)
        self.unflushed.relocate(directory)

    # -- state

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch in the log, -1 if there is none."""
        return self.epochs.latest

    @property
    def last_stable_offset(self) -> int:
        """The limit for `read_committed` consumers: start of the oldest open transaction, at most the high
        watermark.
        """
        high_watermark, producers = self.high_watermark, self.producers
        if not producers.open_transactions and not producers.unreplicated:
            return high_watermark
        unstable = producers.first_unstable_offset(high_watermark)
        if unstable is None:
            return high_watermark
        return min(max(unstable, self.log_start_offset), high_watermark)

    @property
    def recovery_point(self) -> int:
        """Everything below is known to be synced."""
        return self.unflushed.recovery_point

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last one is active."""
        return self.segment_list.all()

    @property
    def size_bytes(self) -> int:
        """Size of all batches, in bytes."""
        return self.segment_list.size_bytes

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark to `offset`, limited to the log's range; returns the new high watermark."""
        self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))
        return self.high_watermark

    # -- appending

    def append(
        self,
        buf: memoryview,
        headers: list[BatchHeader] | None = None,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: int = CLIENT,
        records_checked: bool = False,
        verification: Verification | None = None,
    ) -> AppendInfo | AppendRefusal:
        """Check the batches in `buf`, assign offsets and `leader_epoch` in place, and write them.

        `buf` must be writable; it and `headers` (its batches in order, parsed here if None) are changed.
        `records_checked` says that the records inside have been validated already (`ottla.storage.rewriting`);
        `verification` is that of a client's transactional batch (`ProducerState.may_write`). After a refusal nothing
        has been appended.
        """
        if self.failure is not None:
            return AppendRefusal(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        if buf.readonly:
            buf = memoryview(bytearray(buf))
        if headers is None:
            found = split(buf)
            if isinstance(found, AppendRefusal):
                return found
            headers = found
        refusal = check_append(buf, headers, self.config, self.name, now_ms, origin, records_checked)
        if refusal is not None:
            return refusal
        config = self.config
        offset = first_offset = self.log_end_offset
        append_time = config.message_timestamp_type == LOG_APPEND_TIME
        for header in headers:
            if header.producer_id >= 0:
                answer = self._check_producer(buf, header, offset, origin, verification)
                if isinstance(answer, AppendInfo):
                    answer.leader_epoch = leader_epoch
                if answer is not None:
                    return answer
            elif origin == CLIENT and header.is_transactional:
                return AppendRefusal(ErrorCode.INVALID_TXN_STATE, "A transactional record needs a producer id")
            header.base_offset = offset
            header.partition_leader_epoch = leader_epoch
            patch_batch(buf, header.position, offset, leader_epoch)
            if append_time or header.attributes & 0x08:
                stamp(buf, header, append_time, now_ms)
            offset += header.last_offset_delta + 1
        last = headers[-1]
        length = last.position + last.length
        refusal = self.write(buf if length == len(buf) else buf[:length], buf, headers, now_ms)
        if refusal is not None:
            return refusal
        if leader_epoch >= 0:
            self.epochs.assign(leader_epoch, first_offset)
        if self.epochs.dirty:
            self.save_epochs()
        return AppendInfo(
            first_offset, offset - 1, now_ms if append_time else -1, self.log_start_offset, False, leader_epoch
        )

    def _check_producer(
        self, buf: memoryview, header: BatchHeader, offset: int, origin: int, verification: Verification | None
    ) -> AppendInfo | AppendRefusal | None:
        producers = self.producers
        from_client = origin == CLIENT
        if from_client:
            duplicate = producers.find_duplicate(header)
            if duplicate is not None:
                return AppendInfo(
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, self.log_start_offset, True
                )
            if header.is_transactional and not producers.may_write(header.producer_id, verification):
                return AppendRefusal(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")
        if header.is_control:
            return producers.check_marker(header, buf, offset, self.name)
        refusal = producers.check(header, offset, self.name, from_client)
        if self.unwritten and refusal is not None and refusal.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # What is missing may be the batch that the disk refused. Producers repeat both in their order; at
            # OUT_OF_ORDER_SEQUENCE_NUMBER those of librdkafka begin a new epoch, in which what waits for other
            # partitions arrives twice.
            return AppendRefusal(ErrorCode.KAFKA_STORAGE_ERROR, self.unwritten)
        return refusal

    def write(
        self, data: memoryview, buf: memoryview, headers: list[BatchHeader], now_ms: int, *, fits: bool = False
    ) -> AppendRefusal | None:
        """Write `data`, batches that have their offsets, and update the log's state; `headers` are positions in `buf`.

        `fits` says that the active segment is known to take them. The caller registers their leader epochs.
        """
        length = len(data)
        end_offset = headers[-1].last_offset + 1
        segment = self.segment_list.active
        try:
            may_roll = segment.size > 0 and not fits
            if may_roll and roll_due(segment, self.config, self.name, headers, length, end_offset - 1, now_ms):
                segment = self.begin_segment(now_ms)
            elif self.is_new:
                self.write_identity()
            segment.append([data], headers, length, self.config.index_interval_bytes)
        except DiskError as error:
            return self.refuse_after(error)
        self.unwritten = ""
        producers = self.producers
        if producers.unreplicated:
            producers.settle(self.high_watermark)
        for header in headers:
            if header.producer_id >= 0:
                if header.is_control:
                    self._end_transaction(segment, header, buf)
                else:
                    producers.update(header)
        producers.end_offset = end_offset
        unflushed = self.unflushed
        if not unflushed.bytes:
            unflushed.last_flush_ms = now_ms
        unflushed.bytes += length
        unflushed.records += end_offset - self.log_end_offset
        self.log_end_offset = end_offset
        return None

    def _end_transaction(self, segment: Segment, header: BatchHeader, buf: memoryview) -> None:
        """Update the state for a marker written to `segment`; an aborted transaction goes into the segment's index."""
        ended = self.producers.end_transaction(header, buf)
        if ended is None:
            return
        self.producers.unreplicated.append(ended)
        if not ended.aborted:
            return
        try:
            segment.txn_index.append(ended.entry(self.producers))
        except DiskError as error:
            self.failure = (
                f"{error}; an aborted transaction could not be noted. The partition takes no more records until the "
                f"disk works again and the broker was restarted"
            )
            # The recovery point must stay below the marker, from which the index entry is rebuilt.
            self.unflushed.has_failed = True
            return
        self.unflushed.note_file(segment.txn_index.file.path)

    def refuse_after(self, error: DiskError) -> AppendRefusal:
        """Refuse an append that failed on disk. If a partial write could not be truncated, refuse all later ones."""
        try:
            damaged = self.segment_list.active.log.get().damaged
        except DiskError:
            damaged = False
        if damaged:
            self.failure = (
                f"{error}; what was written of the batch could not be removed. The partition takes no more records "
                f"until the disk works again and the broker was restarted"
            )
        self.unwritten = self.failure or f"{error}. {error.cure}"
        return AppendRefusal(ErrorCode.KAFKA_STORAGE_ERROR, self.unwritten)

    # -- rolling

    def begin_segment(self, now_ms: int) -> Segment:
        """Start a new segment at the log's end. Raises DiskError; the old one then stays active."""
        old = self.segment_list.active
        old.finish()
        self.unflushed.note_file(old.offset_index.file.path)
        self.unflushed.note_file(old.time_index.file.path)
        self.producers.end_offset = self.log_end_offset
        self.take_snapshot()
        segment = self.segment_list.begin(self.log_end_offset, now_ms)
        self.unflushed.note_directory()
        return segment

    def roll(self, now_ms: int) -> bool:
        """Start a new segment, unless the active one is empty; returns whether it did. Raises DiskError."""
        if not self.segment_list.active.size:
            return False
        self.begin_segment(now_ms)
        return True

    def take_snapshot(self) -> None:
        """Write a producer snapshot as of the log's end, unless there is one. Raises DiskError."""
        offset = self.producers.end_offset
        if offset > self.snapshot_offset:
            path = f"{self.directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"
            self.resources.disk.write_atomic(path, self.producers.encode(), sync=False)
            self.snapshot_offset = offset
            self.unflushed.note_file(path)

    # -- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        up_to_offset: int | None = None,
        min_one_batch: bool = True,
    ) -> LogRead | ReadRefusal:
        """A range of one segment that begins with the batch holding `offset`; the caller that sends it releases it.

        It has at most `max_bytes`; a first batch that is larger is returned whole with `min_one_batch`, and not at all
        without. The last batch may be truncated. Nothing from `up_to_offset` on is returned.
        """
        end = self.log_end_offset
        if offset < self.log_start_offset or offset > end:
            return _out_of_range(self, offset)
        if self.closed:
            return ReadRefusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.name} is closed")
        limit = end if up_to_offset is None or up_to_offset > end else up_to_offset
        if offset >= limit:
            return EMPTY_READ
        try:
            return self.segment_list.read(offset, max_bytes, limit, end, min_one_batch)
        except DiskError as error:
            return ReadRefusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        except BatchError as error:
            return ReadRefusal(ErrorCode.CORRUPT_MESSAGE, str(error))

    def read_batches(
        self, from_offset: int, unreadable: Callable[[UnreadableRange], None] | None = None
    ) -> Iterator[memoryview]:
        """Each intact batch from the one that holds `from_offset` on, up to the log's current end.

        For loading internal topics. `unreadable` is called for each damaged range that is skipped; without it damage
        raises BatchError. Raises DiskError.
        """
        on_unreadable = _refuse if unreadable is None else unreadable
        start = max(from_offset, self.log_start_offset)
        return self.segment_list.read_batches(start, self.log_end_offset, on_unreadable)

    # -- leader epochs, log start

    def assign_leader_epoch(self, epoch: int) -> None:
        """Register that this broker became leader with `epoch`: the epoch begins at the log's end."""
        if self.epochs.assign(epoch, self.log_end_offset):
            self.save_epochs()

    def save_epochs(self) -> None:
        """Write the leader epoch checkpoint; if that fails the next append or flush tries again."""
        if not self.epochs.dirty or self.is_new:
            return
        path = f"{self.directory}/{LEADER_EPOCH_FILE}"
        try:
            self.resources.replaced.replace(path, self.epochs.encode())
        except DiskError:
            return
        self.epochs.dirty = False
        self.unflushed.note_file(path)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [`from_offset`, `to_offset`). Raises DiskError."""
        return self.segment_list.aborted(from_offset, to_offset)

    def raise_log_start(self, offset: int) -> None:
        """Stop serving records below `offset`."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.epochs.truncate_start(offset)
            self.save_epochs()

    # -- flushing

    def write_identity(self) -> None:
        """Write the topic's id to a new directory; the first flush syncs it. Raises DiskError.

        It is not read before it is synced, so it need not be written atomically.
        """
        self.unflushed.note_directory()
        if self.topic_id is not None:
            self.unflushed.note_file(write_partition_metadata(self.resources.disk, self.directory, self.topic_id))
        self.is_new = False

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Set the topic's id, and write it to the directory, which had none. Raises DiskError."""
        self.unflushed.note_file(write_partition_metadata(self.resources.disk, self.directory, topic_id))
        self.topic_id = topic_id

    def flush_needed(self) -> bool:
        """Whether there is anything to flush; never after a flush has failed."""
        return self.unflushed.is_any(self.log_end_offset)

    def flush(self, now_ms: int = 0) -> int:
        """Flush everything synchronously; returns the bytes flushed. Raises DiskError."""
        job = begin_flush(self)
        if job is None:
            return 0
        try:
            job.run()
        except DiskError as error:
            end_flush(self, job, error, now_ms)
            raise
        end_flush(self, job, None, now_ms)
        return job.unflushed_bytes

    def prepare_close(self) -> None:
        """Complete the indexes and write a producer snapshot, so that no recovery is needed. Raises DiskError."""
        if self.is_new:
            self.write_identity()
        is_indexed = self.indexed_end_offset == self.log_end_offset
        if self.flush_needed() or self.producers.end_offset > self.snapshot_offset or not is_indexed:
            active = self.segment_list.active
            active.finish()
            self.indexed_end_offset = self.log_end_offset
            self.unflushed.note_file(active.offset_index.file.path)
            self.unflushed.note_file(active.time_index.file.path)
            self.producers.end_offset = self.log_end_offset
            self.take_snapshot()

    def release_files(self) -> None:
        """Close the files; ranges that are being sent stay readable until released."""
        self.closed = True
        self.failure = self.failure or f"the log of {self.name} is closed"
        self.segment_list.close()

    def close(self, now_ms: int = 0) -> int:
        """Complete and flush everything, and close the files; returns the bytes flushed. Raises DiskError."""
        if self.closed:
            return 0
        try:
            self.prepare_close()
            return self.flush(now_ms)
        finally:
            self.release_files()

    def __repr__(self) -> str:
        return f"PartitionLog({self.name}, {self.log_start_offset}..{self.log_end_offset})"


def _refuse(found: UnreadableRange) -> None:
    raise BatchError(f"{found.path}: damaged batch at position {found.position}")


def _out_of_range(log: PartitionLog, offset: int) -> ReadRefusal:
    if offset < log.log_start_offset:
        detail = f"starting from offset: {log.log_start_offset}."
    else:
        detail = f"upto {log.log_end_offset}."
    return ReadRefusal(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"Received request for offset {offset} for partition {log.name}, but we only have log segments {detail}",
    )
