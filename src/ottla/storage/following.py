"""The appends of a follower: batches as their leader sent them. Checks, and where a range is divided between segments.

As in Kafka (`UnifiedLog.appendAsFollower`): checksums and the order of offsets are checked, not the sizes that a topic
allows, since the leader has accepted the records. As from Kafka 4.0 on, batches whose leader epoch is above the one
that is followed are refused: the checksum does not cover the epoch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ottla.config.topic import LogConfig
from ottla.env.disk import DiskError
from ottla.records.batch import (
    MAGIC,
    MAGIC_AT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    check_crc,
    is_cut_off,
    parse_batch_header,
    split_batches,
)
from ottla.records.errors import BatchError, UnsupportedMagicError
from ottla.records.message_set import check_message_crc, parse_message_header
from ottla.storage.leader_epochs import LeaderEpochs
from ottla.storage.log import PartitionLog
from ottla.storage.results import AppendRefusal, FollowerAppend
from ottla.storage.segment import Segment, roll_due
from ottla.storage.truncation import truncate_fully_and_start_at
from ottla.wire.errors import ErrorCode


def append_as_follower(
    log: PartitionLog, buf: memoryview, *, leader_epoch: int, now_ms: int
) -> FollowerAppend | AppendRefusal:
    """Append a range of batches as the leader of `leader_epoch` sent it: offsets and epochs are kept.

    Checksums, sizes and offsets are checked; a last batch that is cut off is left out. A range that goes over a
    segment's end is divided between batches. If a refusal comes from the disk, the first batches may have been
    appended: the log's end tells. The high watermark stays where it is.
    """
    if log.failure is not None:
        return AppendRefusal(ErrorCode.KAFKA_STORAGE_ERROR, log.failure)
    headers = _fetched_batches(buf, log.name, leader_epoch)
    if isinstance(headers, AppendRefusal):
        return headers
    if not headers:
        return FollowerAppend(0, log.log_end_offset)
    size = headers[-1].end_position
    try:
        if headers[0].base_offset < log.log_end_offset:
            refusal = _begin_within(log, headers[0], now_ms)
            if refusal is not None:
                return refusal
        while headers:
            count = _fitting(log.segment_list.active, log.config, log.name, headers, now_ms)
            if not count:
                log.begin_segment(now_ms)
                continue
            part, headers = headers[:count], headers[count:]
            refusal = log.write(buf[part[0].position : part[-1].end_position], buf, part, now_ms, fits=True)
            if refusal is not None:
                return refusal
            _adopt_epochs(log.epochs, part)
            log.save_epochs()
    except DiskError as error:
        return log.refuse_after(error)
    return FollowerAppend(size, log.log_end_offset)


def _begin_within(log: PartitionLog, first: BatchHeader, now_ms: int) -> AppendRefusal | None:
    """Let an empty log begin at the base offset of a batch that holds its start; refuse any other old batch.

    The leader's log may start in the middle of a batch, after DeleteRecords (`Partition.scala`,
    `appendRecordsToFollowerOrFutureReplica`). Raises DiskError.
    """
    end = log.log_end_offset
    if log.log_start_offset == end <= first.last_offset:
        log.renamed += truncate_fully_and_start_at(log, first.base_offset, now_ms)
        return None
    return AppendRefusal(
        ErrorCode.INVALID_RECORD,
        f"Unexpected offset in append to {log.name}. First offset {first.base_offset} is less than the next "
        f"offset {end}. Log start offset = {log.log_start_offset}",
    )


def _fetched_batches(buf: memoryview, partition: str, leader_epoch: int) -> list[BatchHeader] | AppendRefusal:
    """The whole batches in a fetched range; refused if one is damaged, out of order, or of a later leader epoch."""
    try:
        headers = split_batches(buf, partial_tail=True)
    except UnsupportedMagicError:
        try:
            headers = _of_any_format(buf)
        except BatchError as error:
            return _corrupt(partition, str(error))
    except BatchError as error:
        return _corrupt(partition, str(error))
    last = -1
    for header in headers:
        if header.magic == MAGIC and not check_crc(buf, header):
            return _corrupt(partition, f"stored crc = {header.crc}, at offset {header.base_offset}")
        if header.last_offset_delta < 0 or header.base_offset <= last:
            return AppendRefusal(
                ErrorCode.CORRUPT_MESSAGE,
                f"Out of order offsets found in append to {partition}: a batch from {header.base_offset} to "
                f"{header.last_offset} after offset {last}",
            )
        if header.partition_leader_epoch > leader_epoch:
            return AppendRefusal(
                ErrorCode.CORRUPT_MESSAGE,
                f"The batch at offset {header.base_offset} in append to {partition} says leader epoch "
                f"{header.partition_leader_epoch}, its leader is of epoch {leader_epoch}",
            )
        last = header.last_offset
    return headers


def _corrupt(partition: str, why: str) -> AppendRefusal:
    return AppendRefusal(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt ({why}) in topic partition {partition}.")


def _of_any_format(buf: memoryview) -> list[BatchHeader]:
    """The batches, and the messages of formats 0 and 1, in `buf`. Raises BatchError, also where a message's checksum is
    wrong.
    """
    headers: list[BatchHeader] = []
    position = 0
    while position < len(buf) and not is_cut_off(buf, position):
        if buf[position + MAGIC_AT] == MAGIC:
            header = parse_batch_header(buf, position)
        else:
            header = _message(buf, position)
        headers.append(header)
        position = header.end_position
    return headers


def _message(buf: memoryview, position: int) -> BatchHeader:
    found = parse_message_header(buf, position)
    if not check_message_crc(buf, found):
        raise BatchError(f"stored crc = {found.crc}, at offset {found.offset}")
    return BatchHeader(
        base_offset=found.offset,
        length=found.length,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=found.magic,
        crc=found.crc,
        attributes=found.attributes,
        last_offset_delta=0,
        base_timestamp=found.timestamp,
        max_timestamp=found.timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=1,
        position=position,
    )


def _fitting(segment: Segment, config: LogConfig, partition: str, headers: Sequence[BatchHeader], now_ms: int) -> int:
    """How many of the batches, from the first on, still go into the active segment; 0: it has to be rolled first."""
    if not segment.size:
        return 1
    if len(headers) == 1:
        (only,) = headers
        return int(not roll_due(segment, config, partition, headers, only.length, only.last_offset, now_ms))

    def fit(count: int) -> bool:
        part = headers[:count]
        length = part[-1].end_position - part[0].position
        return not roll_due(segment, config, partition, part, length, part[-1].last_offset, now_ms)

    if fit(len(headers)):
        return len(headers)
    return bisect_left(range(1, len(headers)), True, key=lambda count: not fit(count))


def _adopt_epochs(epochs: LeaderEpochs, headers: Sequence[BatchHeader]) -> None:
    """Register the leader epochs of appended batches.

    As in Kafka, messages of older formats clear them: the log is then truncated to the high watermark.
    """
    if headers[-1].partition_leader_epoch == epochs.latest and headers[0].magic == MAGIC:
        return
    for header in headers:
        if header.magic != MAGIC:
            epochs.truncate_end(0)
        elif header.partition_leader_epoch > epochs.latest:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
