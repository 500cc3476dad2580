"""The result of a fetch for one partition: its data and offsets, an error, or that the client has diverged."""

from __future__ import annotations

from typing import TypeAlias

from ottla.broker.context import RequestContext
from ottla.broker.fetch_sessions import SessionPartition, TopicKey
from ottla.broker.fetches.requested import READ_COMMITTED, code_for_version
from ottla.broker.replicas.partition import Partition
from ottla.env.disk import DiskError
from ottla.storage.log import PartitionLog
from ottla.storage.results import LogRead
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import AbortedTransaction, EpochEndOffset, FetchableTopicResponse, PartitionData

#: Errors for an unknown partition.
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

Found: TypeAlias = list[tuple[SessionPartition, PartitionData]]
"""The results of one fetch, in the order of its partitions."""


def unknown(context: RequestContext, topic: TopicKey, index: int) -> ErrorCode:
    """The error for a partition that is not hosted here."""
    broker = context.broker
    name = topic if isinstance(topic, str) else broker.image.topic_names.get(topic)
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return code_for_version(broker.partitions.missing(name, index), context.api_version)


def release(found: Found) -> None:
    """Drop the data: there will be no response with it."""
    for _, data in found:
        if data.records:
            data.records.release()


def success(
    wanted: SessionPartition, partition: Partition, read: LogRead | None, isolation_level: int
) -> PartitionData:
    """The data that was read, none where `read` is None, and the partition's offsets."""
    log = partition.log
    data = PartitionData(
        partition_index=wanted.index,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=[] if isolation_level == READ_COMMITTED else None,
        records=read.slice if read is not None and read.slice is not None else b"",
    )
    if isolation_level == READ_COMMITTED and data.records:
        assert read is not None
        _add_aborted(data, log, wanted.fetch_offset, read)
    return data


def _add_aborted(data: PartitionData, log: PartitionLog, offset: int, read: LogRead) -> None:
    """Add the aborted transactions that overlap the data, so that the client skips their records."""
    up_to = read.next_offset if read.next_offset >= 0 else read.bound
    try:
        aborted = log.aborted_transactions(offset, up_to)
    except DiskError:
        data.records.release()
        data.error_code, data.records = int(ErrorCode.KAFKA_STORAGE_ERROR), b""
        return
    data.aborted_transactions = [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted
    ]


def failed(index: int, error: ErrorCode, *, is_unknown: bool = False) -> PartitionData:
    """An error, without data and offsets."""
    return PartitionData(
        partition_index=index,
        error_code=int(error),
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        # Kafka distinguishes an unknown partition from one that could not be read.
        aborted_transactions=[] if is_unknown else None,
        records=b"",
    )


def not_converted(index: int, error: ErrorCode) -> PartitionData:
    """The error for records that cannot be converted for this version; as in Kafka, `records` is null, not empty."""
    data = failed(index, error, is_unknown=True)
    data.records = None
    return data


def diverged(wanted: SessionPartition, log: PartitionLog) -> PartitionData | None:
    """Detect a client that diverged from this log (KIP-595): its last fetched epoch is unknown here, or ended earlier.

    Returns the diverging epoch and its end offset, or OFFSET_OUT_OF_RANGE; None if the client did not diverge.
    """
    end = log.epochs.end_of(wanted.last_fetched_epoch, log.log_end_offset)
    if end.leader_epoch < 0 or end.end_offset < 0:
        return failed(wanted.index, ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.leader_epoch == wanted.last_fetched_epoch and end.end_offset >= wanted.fetch_offset:
        return None
    data = offsets_only(wanted, log)
    data.diverging_epoch = EpochEndOffset(epoch=end.leader_epoch, end_offset=end.end_offset)
    return data


def offsets_only(wanted: SessionPartition, log: PartitionLog) -> PartitionData:
    """The partition's offsets, and no records."""
    return PartitionData(
        partition_index=wanted.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def topic_response(topic: TopicKey, partitions: list[PartitionData]) -> FetchableTopicResponse:
    """The results of one topic, under its name or its id."""
    if isinstance(topic, str):
        return FetchableTopicResponse(topic=topic, partitions=partitions)
    return FetchableTopicResponse(topic_id=topic, partitions=partitions)
