"""Fetch (key 1), versions 4-17: reads record batches, from the page cache to the socket.

4 brings record batches v2, the isolation level and last stable offsets; 5 log start offsets; 7 incremental sessions
(KIP-227); 9 leader epochs; 10 zstd; 11 racks (KIP-392); 12 is flexible; 13 topic ids; 15 replica state; 16 node
endpoints (KIP-951); 17 directory ids. Versions 0-3 would need the older message sets and come with them.

An answer is a head in memory per partition and, behind it, a range of a segment file that goes out by `sendfile`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    PartitionKey,
    SessionPartition,
    TopicKey,
)
from ottla.broker.partitions import NO_EPOCH
from ottla.broker.purgatory import DelayedFetch
from ottla.storage.log import ReadRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.hot import encode_fetch_response
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.partitions import Partition
    from ottla.env.disk import FileSlice
    from ottla.storage.log import PartitionLog

log = logging.getLogger("ottla.broker")

MIN_VERSION = 4
MAX_VERSION = 17

#: The first version that names topics by their ids.
TOPIC_IDS_SINCE = 13
#: The first version whose clients understand zstd.
ZSTD_SINCE = 10
READ_COMMITTED = 1


def handle(context: RequestContext, request: FetchRequest) -> None:
    """Read what there is; answer at once or when enough has come."""
    begun = _begin(context, request)
    if isinstance(begun, ErrorCode):
        response = FetchResponse(error_code=int(begun), session_id=NO_SESSION, responses=[])
        parts, length = encode_fetch_response(response, context.api_version)
        context.reply_parts(parts, length)
        return
    Fetch(context, request, *begun).run()


class Fetch:
    """One fetch in work: its partitions, its session, and the rules that bound its answer."""

    __slots__ = ("_context", "_incremental", "_request", "_session", "_wanted")

    def __init__(
        self,
        context: RequestContext,
        request: FetchRequest,
        wanted: list[SessionPartition],
        session: FetchSession | None,
        incremental: bool,
    ) -> None:
        self._context = context
        self._request = request
        self._wanted = wanted
        self._session = session
        self._incremental = incremental

    def run(self) -> None:
        """Answer now if there is enough, or an error or the end of a segment; else wait for the partitions to grow."""
        request = self._request
        found, size, at_once = self._read_all()
        if at_once or size >= request.min_bytes or request.max_wait_ms <= 0 or not self._wanted:
            self._answer(found)
            return
        for _, data in found:
            if data.records:
                data.records.release()
        find = self._find
        partitions = [partition for wanted in self._wanted if (partition := find(wanted)) is not None]
        DelayedFetch(
            self._context.client_state, partitions, request.min_bytes - size, request.max_wait_ms, self._answer_late
        )

    def _answer_late(self) -> None:
        """Called by a timer, or by whoever appended: an error here must stay here."""
        try:
            self._answer(self._read_all()[0])
        except Exception:
            log.exception("a fetch of %s failed", self._context.client_host)
            self._context.disconnect()

    def _find(self, wanted: SessionPartition) -> Partition | None:
        partitions = self._context.broker.partitions
        topic = wanted.topic
        if isinstance(topic, str):
            return partitions.get(topic, wanted.index)
        return partitions.get_by_id(topic, wanted.index)

    def _read_all(self) -> tuple[list[tuple[SessionPartition, PartitionData]], int, bool]:
        """What each partition has to tell, the bytes of records in it, and whether it must be told at once.

        That is so with an error, and, as in Kafka, where an older segment ends: it will not grow.
        """
        request = self._request
        isolation_level = request.isolation_level
        budget = min(request.max_bytes, self._context.broker.fetch_max_bytes)
        found: list[tuple[SessionPartition, PartitionData]] = []
        total = 0
        at_once = False
        zstd_unknown = self._context.api_version < ZSTD_SINCE
        for wanted in self._wanted:
            partition = self._find(wanted)
            error = self._unknown(wanted) if partition is None else partition.check_epoch(wanted.current_leader_epoch)
            if partition is None or error is not ErrorCode.NONE:
                found.append((wanted, _failed(wanted.index, error, unknown=partition is None)))
                at_once = True
                continue
            log = partition.log
            up_to = partition.visible_end(isolation_level)
            records: FileSlice | None = None
            diverged = wanted.last_fetched_epoch >= 0 and _diverged(wanted, log)
            if diverged:
                found.append((wanted, diverged))
                at_once = True
                continue
            if zstd_unknown and log.config.compression_type == "zstd":
                found.append((wanted, _failed(wanted.index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)))
                at_once = True
                continue
            if wanted.fetch_offset != up_to:
                read = log.read(
                    wanted.fetch_offset, min(wanted.max_bytes, budget), up_to_offset=up_to, min_one_batch=not total
                )
                if isinstance(read, ReadRefusal):
                    found.append((wanted, _failed(wanted.index, read.error)))
                    at_once = True
                    continue
                records = read.slice
                total += read.size
                at_once = at_once or (records is not None and not records.active)
                budget = max(budget - read.size, 0)
            elif self._incremental and wanted.knows(log.high_watermark, log.log_start_offset):
                continue
            found.append((wanted, _success(wanted.index, partition, records, isolation_level)))
        return found, total, at_once

    def _answer(self, found: list[tuple[SessionPartition, PartitionData]]) -> None:
        session = self._session
        by_topic: dict[TopicKey, list[PartitionData]] = {}
        for wanted, data in found:
            size = data.records.length if data.records else 0
            if session is not None:
                told = wanted.must_tell(data.error_code, size, data.high_watermark, data.log_start_offset)
                if self._incremental and not told:
                    continue
                if size:
                    session.served(wanted)
            by_topic.setdefault(wanted.topic, []).append(data)
        response = FetchResponse(
            error_code=0,
            session_id=session.session_id if session is not None else NO_SESSION,
            responses=[
                FetchableTopicResponse(topic=topic, partitions=data)
                if isinstance(topic, str)
                else FetchableTopicResponse(topic_id=topic, partitions=data)
                for topic, data in by_topic.items()
            ],
        )
        parts, length = encode_fetch_response(response, self._context.api_version)
        self._context.reply_parts(parts, length)

    def _unknown(self, wanted: SessionPartition) -> ErrorCode:
        broker = self._context.broker
        topic = wanted.topic
        if isinstance(topic, str):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic in broker.image.topic_names else ErrorCode.UNKNOWN_TOPIC_ID


def _success(index: int, partition: Partition, records: FileSlice | None, isolation_level: int) -> PartitionData:
    log = partition.log
    return PartitionData(
        partition_index=index,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=[] if isolation_level == READ_COMMITTED else None,
        records=records if records is not None else b"",
    )


def _failed(index: int, error: ErrorCode, *, unknown: bool = False) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=int(error),
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        # Kafka's own difference: a partition that it does not know, and one that it could not read.
        aborted_transactions=[] if unknown else None,
        records=b"",
    )


def _diverged(wanted: SessionPartition, log: PartitionLog) -> PartitionData | None:
    """What a client is told whose last records come from a leader epoch that the log has not, or not so far
    (KIP-595): where the two part, or that its offset is out of range.
    """
    end = log.epoch_end_offset(wanted.last_fetched_epoch)
    if end.leader_epoch < 0 or end.end_offset < 0:
        return _failed(wanted.index, ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.leader_epoch == wanted.last_fetched_epoch and end.end_offset >= wanted.fetch_offset:
        return None
    return PartitionData(
        partition_index=wanted.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=end.leader_epoch, end_offset=end.end_offset),
        aborted_transactions=None,
        records=b"",
    )


def _begin(
    context: RequestContext, request: FetchRequest
) -> tuple[list[SessionPartition], FetchSession | None, bool] | ErrorCode:
    """The partitions to read with their session, or the error that ends the fetch (KIP-227)."""
    sessions = context.broker.fetch_sessions
    by_id = context.api_version >= TOPIC_IDS_SINCE
    now_ms = context.broker.clock.monotonic_ms()
    epoch = request.session_epoch
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        sessions.remove(request.session_id)
        wanted = list({(p.topic, p.index): p for p in _wanted(request, by_id)}.values())
        if epoch == FINAL_EPOCH:
            return wanted, None, False
        return wanted, sessions.create(by_id, wanted, now_ms), False
    session = sessions.resume(request.session_id, epoch, by_id, now_ms)
    if isinstance(session, ErrorCode):
        return session
    if request.topics or request.forgotten_topics_data:
        session.change(_wanted(request, by_id), _forgotten(request, by_id))
    wanted = list(session.partitions.values())
    if not wanted:
        sessions.remove(session.session_id)
        return wanted, None, False
    return wanted, session, True


def _wanted(request: FetchRequest, by_id: bool) -> Iterable[SessionPartition]:
    for topic in request.topics:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for asked in topic.partitions:
            yield SessionPartition(
                key,
                asked.partition,
                asked.fetch_offset,
                asked.partition_max_bytes,
                max(asked.current_leader_epoch, NO_EPOCH),
                asked.last_fetched_epoch,
            )


def _forgotten(request: FetchRequest, by_id: bool) -> Iterable[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for index in topic.partitions:
            yield key, index
