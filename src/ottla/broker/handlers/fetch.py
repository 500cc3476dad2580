"""Fetch (key 1), versions 0-17: reads record batches, from the page cache to the socket.

1 adds the throttle time; 3 a limit for the whole answer (KIP-74); 4 brings record batches v2, the isolation level and
last stable offsets; 5 log start offsets; 7 incremental sessions (KIP-227); 9 leader epochs; 10 zstd; 11 racks
(KIP-392); 12 is flexible; 13 topic ids; 15 replica state; 16 node endpoints (KIP-951); 17 directory ids.

An answer is a head in memory per partition and, behind it, a range of a segment file that goes out by `sendfile`. For
versions 0-3 the ranges are converted to the message sets of that time instead (0 and 1: format 0; 2 and 3: format 1),
in threads and while they are sent (`ottla.storage.down_conversion`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.cold_reads import when_warm
from ottla.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    PartitionKey,
    SessionPartition,
    TopicKey,
)
from ottla.broker.replicas.partition import NO_EPOCH
from ottla.broker.replicas.purgatory import DelayedFetch
from ottla.env.disk import DiskError
from ottla.env.warmth import ColdRange, Range
from ottla.net.parts import MadePart
from ottla.records.errors import BatchError, UnsupportedCompressionError
from ottla.records.message_set import MAGIC_0, MAGIC_1
from ottla.storage.down_conversion import DownConversion
from ottla.storage.log import ReadRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.hot import encode_fetch_response
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.replicas.partition import Partition
    from ottla.env.disk import FileSlice
    from ottla.storage.log import PartitionLog
    from ottla.storage.results import LogRead

log = logging.getLogger("ottla.broker")

MIN_VERSION = 0
MAX_VERSION = 17

#: The first version that is limited as a whole, and whose first batch comes whole however large it is (KIP-74).
WHOLE_BATCH_SINCE = 3
#: The first version with record batches v2; the first whose clients know messages of format 1.
BATCHES_SINCE = 4
FORMAT_1_SINCE = 2
#: Converted messages of one answer that may wait in memory to be sent; more is converted a second time.
CONVERTED_BYTES = 1024 * 1024
#: Clients before this version take a storage error for a bug of the broker, and do not try again.
STORAGE_ERROR_SINCE = 6
#: The first version that names topics by their ids.
TOPIC_IDS_SINCE = 13
#: The first version whose clients understand zstd.
ZSTD_SINCE = 10
READ_COMMITTED = 1
#: What is said of a partition that is not there.
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def handle(context: RequestContext, request: FetchRequest) -> None:
    """Read what there is; answer at once or when enough has come."""
    begun = _begin(context, request)
    if isinstance(begun, ErrorCode):
        response = FetchResponse(error_code=int(begun), session_id=NO_SESSION, responses=[])
        parts, length = encode_fetch_response(response, context.api_version)
        context.reply_parts(parts, length)
        return
    when_warm(context, Fetch(context, request, *begun).run)


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
        _release(found)
        find = self._find
        partitions = [partition for wanted in self._wanted if (partition := find(wanted)) is not None]
        DelayedFetch(
            self._context.client_state,
            partitions,
            request.min_bytes - size,
            request.max_wait_ms,
            self._answer_late,
            self._has_visible if request.isolation_level == READ_COMMITTED else None,
        )

    def _answer_late(self) -> None:
        """Called by a timer, or by whoever appended: an error here must stay here."""
        try:
            when_warm(self._context, lambda: self._answer(self._read_all()[0]))
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

        That is so with an error, and, as in Kafka, where an older segment ends: it will not grow. Raises ColdRange
        where the loop would have to wait for the disk.
        """
        request = self._request
        isolation_level = request.isolation_level
        budget = min(request.max_bytes, self._context.broker.fetch_max_bytes)
        found: list[tuple[SessionPartition, PartitionData]] = []
        cold: list[Range] = []
        total = 0
        at_once = False
        version = self._context.api_version
        whole_batch = version >= WHOLE_BATCH_SINCE
        for wanted in self._wanted:
            partition = self._find(wanted)
            refusal = self._refuse(wanted, partition)
            if partition is None or refusal is not None:
                assert refusal is not None
                found.append((wanted, refusal))
                at_once = True
                continue
            log = partition.log
            up_to = partition.visible_end(isolation_level)
            read: LogRead | None = None
            if wanted.fetch_offset != up_to:
                try:
                    done = log.read(
                        wanted.fetch_offset,
                        min(wanted.max_bytes, budget),
                        up_to_offset=up_to,
                        min_one_batch=whole_batch and not total,
                    )
                except ColdRange as missing:
                    cold += missing.ranges
                    continue
                if isinstance(done, ReadRefusal):
                    self._context.broker.partitions.read_refused(partition, done)
                    found.append((wanted, _failed(wanted.index, _told(done.error, version))))
                    at_once = True
                    continue
                read = done
                total += read.size
                at_once = at_once or (read.slice is not None and not read.slice.active)
                budget = max(budget - read.size, 0)
            elif self._incremental and wanted.knows(log.high_watermark, log.log_start_offset):
                continue
            try:
                found.append((wanted, _success(wanted, partition, read, isolation_level)))
            except ColdRange as missing:
                if read is not None and read.slice is not None and read.slice.release is not None:
                    read.slice.release()
                cold += missing.ranges
        if cold:
            _release(found)
            raise ColdRange(cold)
        return found, total, at_once

    def _refuse(self, wanted: SessionPartition, partition: Partition | None) -> PartitionData | None:
        """Why a partition cannot be read by this request, whatever is in it; None where it can."""
        version = self._context.api_version
        if partition is None:
            error = self._unknown(wanted)
            return _failed(wanted.index, error, unknown=error in UNKNOWN)
        error = partition.check_epoch(wanted.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return _failed(wanted.index, error)
        if wanted.last_fetched_epoch >= 0:
            diverged = _diverged(wanted, partition.log)
            if diverged is not None:
                return diverged
        config = partition.log.config
        if version < ZSTD_SINCE and config.compression_type == "zstd":
            return _not_converted(wanted.index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if version < BATCHES_SINCE and not config.message_downconversion_enable:
            return _not_converted(wanted.index, ErrorCode.UNSUPPORTED_VERSION)
        return None

    def _has_visible(self) -> bool:
        """Whether a partition has anything to tell: for those who wait for committed records, which do not come with
        every append.
        """
        isolation_level = self._request.isolation_level
        for wanted in self._wanted:
            partition = self._find(wanted)
            if partition is None or wanted.fetch_offset < partition.visible_end(isolation_level):
                return True
        return False

    def _answer(self, found: list[tuple[SessionPartition, PartitionData]]) -> None:
        if self._context.api_version < BATCHES_SINCE and any(data.records for _, data in found):
            self._answer_converted(found)
        else:
            self._answer_with(found)

    def _answer_converted(self, found: list[tuple[SessionPartition, PartitionData]]) -> None:
        """Answer with message sets, once a thread has found out how long they are."""
        context = self._context
        version = context.api_version
        magic = MAGIC_1 if version >= FORMAT_1_SINCE else MAGIC_0
        jobs = [_Conversion(wanted, data, magic) for wanted, data in found if data.records]

        def work() -> None:
            keep_bytes = CONVERTED_BYTES
            for job in jobs:
                keep_bytes -= job.prepare(keep_bytes)

        def prepared(_result: None, error: BaseException | None) -> None:
            if error is not None:
                log.error("a fetch of %s could not be converted", context.client_host, exc_info=error)
                for job in jobs:
                    job.drop()
                context.disconnect()
                return
            try:
                answers = {id(job.wanted): job.answer(version) for job in jobs}
                self._answer_with([(wanted, answers.get(id(wanted), data)) for wanted, data in found])
            except Exception:
                log.exception("a fetch of %s failed", context.client_host)
                context.disconnect()

        context.broker.conversions.run(work, prepared)

    def _answer_with(self, found: list[tuple[SessionPartition, PartitionData]]) -> None:
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
        name = topic if isinstance(topic, str) else broker.image.topic_names.get(topic)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return _told(broker.partitions.missing(name, wanted.index), self._context.api_version)


class _Conversion:
    """The range that one partition is answered with, on its way to a message set."""

    __slots__ = ("_conversion", "_data", "_error", "slice", "wanted")

    def __init__(self, wanted: SessionPartition, data: PartitionData, magic: int) -> None:
        self.wanted = wanted
        self.slice: FileSlice = data.records
        self._data = data
        self._error = ErrorCode.NONE
        self._conversion = DownConversion(
            self.slice.file, self.slice.position, self.slice.length, magic, wanted.fetch_offset
        )

    def prepare(self, keep_bytes: int) -> int:
        """Find out how long the set will be; returns the bytes of it that are kept. In a thread."""
        try:
            return self._conversion.prepare(keep_bytes)
        except UnsupportedCompressionError:
            self._error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        except BatchError:
            self._error = ErrorCode.CORRUPT_MESSAGE
        except DiskError:
            self._error = ErrorCode.KAFKA_STORAGE_ERROR
        return 0

    def drop(self) -> None:
        """There will be no answer."""
        if self.slice.release is not None:
            self.slice.release()

    def answer(self, version: int) -> PartitionData:
        """What the client is answered."""
        release = self.slice.release
        assert release is not None
        length = self._conversion.left_bytes
        if self._error is not ErrorCode.NONE:
            release()
            return _not_converted(self.wanted.index, _told(self._error, version))
        if not length:
            release()
        self._data.records = MadePart(length, self._conversion.next_chunk, release) if length else b""
        return self._data


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """The error that clients of this version make the right thing of."""
    if error is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error


def _release(found: list[tuple[SessionPartition, PartitionData]]) -> None:
    for _, data in found:
        if data.records:
            data.records.release()


def _success(
    wanted: SessionPartition, partition: Partition, read: LogRead | None, isolation_level: int
) -> PartitionData:
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
    """Name the aborted transactions that reach into what was read, so that the client leaves out their records."""
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


def _not_converted(index: int, error: ErrorCode) -> PartitionData:
    """A partition that this version of the client cannot be given; Kafka sends no records with it, not even none."""
    return PartitionData(
        partition_index=index,
        error_code=int(error),
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[],
        records=None,
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
        keeps = sessions.change(session, _wanted(request, by_id), _forgotten(request, by_id))
        if not keeps:
            return list(session.partitions.values()), None, False
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
