"""Fetch (key 1), versions 0-17: reads record batches, and sends them from the page cache to the socket.

1 adds the throttle time; 3 a limit for the whole response (KIP-74); 4 adds record batches v2, the isolation level and
last stable offsets; 5 log start offsets; 7 incremental sessions (KIP-227); 9 leader epochs; 10 zstd; 11 racks
(KIP-392); 12 is flexible; 13 topic ids; 15 replica state; 16 node endpoints (KIP-951); 17 directory ids.

A response has, for each partition, a head in memory and a range of a segment file that is sent with `sendfile`. For
versions 0-3 the ranges are converted to the message sets of that time instead (0 and 1: format 0; 2 and 3: format 1),
in threads and while they are sent (`ottla.storage.down_conversion`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.authorization import CLUSTER_ACTION, CONSUMER_REPLICA_ID, Operation, ResourceType, on_topic
from ottla.broker.cold_reads import MOST_ROUNDS, bring_in, when_warm
from ottla.broker.current_leaders import ASKED_WRONGLY, CurrentLeaders
from ottla.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    UNKNOWN_PARTITIONS_LIMIT,
    FetchSession,
    PartitionKey,
    SessionPartition,
    TopicKey,
)
from ottla.broker.replicas.partition import NO_EPOCH
from ottla.broker.replicas.purgatory import DelayedFetch
from ottla.env.disk import DiskError
from ottla.env.warmth import ColdRange, Range, without_waiting
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
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.wire.stepwise import Steps, encode_steps, joined, mapped

if TYPE_CHECKING:
    from ottla.broker.authorization import Access
    from ottla.broker.context import RequestContext
    from ottla.broker.replicas.partition import Partition
    from ottla.env.disk import FileSlice
    from ottla.storage.log import PartitionLog
    from ottla.storage.results import LogRead

log = logging.getLogger("ottla.broker")

MIN_VERSION = 0
MAX_VERSION = 17

#: The first version with a limit for the whole response, and whose first batch is complete however large (KIP-74).
WHOLE_BATCH_SINCE = 3
#: The first version with record batches v2; the first whose clients know messages of format 1.
BATCHES_SINCE = 4
FORMAT_1_SINCE = 2
#: Most converted bytes of one response kept in memory to be sent; more is converted a second time.
CONVERTED_BYTES = 1024 * 1024
#: Older clients take a storage error for a bug of the broker, and do not retry.
STORAGE_ERROR_SINCE = 6
#: The first version whose consumers may read from followers (KIP-392).
FOLLOWERS_SINCE = 11
#: The first version whose errors name the leader (KIP-951).
LEADERS_SINCE = 16
#: The first version that names topics by their ids.
TOPIC_IDS_SINCE = 13
#: The first version whose clients understand zstd.
ZSTD_SINCE = 10
READ_COMMITTED = 1
#: A fetch of up to this many partitions is handled without slices.
PARTITIONS_AT_ONCE = 64
#: Partitions processed between two slices.
PARTITIONS_PER_STEP = 16
#: Errors for an unknown partition.
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def accesses(context: RequestContext, request: FetchRequest) -> Iterable[Access]:
    """CLUSTER_ACTION for a broker, READ of each topic for a client."""
    if _replica_id(request) > CONSUMER_REPLICA_ID:
        yield CLUSTER_ACTION
        return
    names = context.broker.image.topic_names
    session = context.broker.fetch_sessions.get(request.session_id)
    topics: list[TopicKey] = [] if session is None else [topic for topic, _ in session.partitions]
    topics += [topic.topic_id if context.api_version >= TOPIC_IDS_SINCE else topic.topic for topic in request.topics]
    for topic in dict.fromkeys(topics):
        name = topic if isinstance(topic, str) else names.get(topic)
        if name is not None:
            yield on_topic(Operation.READ, name)


def handle(context: RequestContext, request: FetchRequest) -> None:
    """Read the available records; reply at once, or when enough have been appended."""
    if not _is_small(request):
        context.run(_take_up(context, request))
        return
    asked = _Asked()
    for topic in request.topics:
        asked.wanted.update(_wanted(topic, context.api_version))
    _begin_and_read(context, request, asked)


async def _take_up(context: RequestContext, request: FetchRequest) -> None:
    asked = await context.broker.slices.through(_collect(context, request))
    _begin_and_read(context, request, asked)


def _begin_and_read(context: RequestContext, request: FetchRequest, asked: _Asked) -> None:
    begun = _begin(context, request, asked)
    if isinstance(begun, ErrorCode):
        response = FetchResponse(
            error_code=int(begun), session_id=NO_SESSION, responses=[], throttle_time_ms=context.throttle_ms
        )
        parts, length = encode_fetch_response(response, context.api_version)
        context.reply_parts(parts, length)
        return
    Fetch(context, request, *begun, asked.beyond).begin()


class _Asked:
    """The partitions of a request, each once."""

    __slots__ = ("beyond", "forgotten", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[PartitionKey, SessionPartition] = {}
        #: Partitions beyond `UNKNOWN_PARTITIONS_LIMIT` that are not hosted here; only their numbers are kept.
        self.beyond: dict[TopicKey, set[int]] = {}
        #: Those of the session that it is to forget, in their order.
        self.forgotten: dict[PartitionKey, None] = {}


class _Reading:
    """The data read so far for one response."""

    __slots__ = ("at_once", "budget", "cold", "found", "total")

    def __init__(self, budget: int) -> None:
        #: Bytes of records that may still be added.
        self.budget = budget
        self.found: list[tuple[SessionPartition, PartitionData]] = []
        #: Ranges that must be in the page cache before the response can be made.
        self.cold: list[Range] = []
        #: Bytes of records.
        self.total = 0
        #: Whether to reply at once: there is an error or, as in Kafka, data at the end of an older segment, which will
        #: not grow.
        self.at_once = False


class Fetch:
    """One fetch in work: its partitions, its session, and the limits of its response."""

    __slots__ = (
        "_beyond",
        "_context",
        "_followed_session",
        "_incremental",
        "_is_follower",
        "_is_late",
        "_replica_id",
        "_request",
        "_session",
        "_terms",
        "_wanted",
    )

    def __init__(
        self,
        context: RequestContext,
        request: FetchRequest,
        wanted: list[SessionPartition],
        session: FetchSession | None,
        incremental: bool,
        beyond: dict[TopicKey, set[int]],
    ) -> None:
        self._beyond = beyond
        self._context = context
        self._request = request
        self._replica_id = _replica_id(request)
        self._is_follower = self._replica_id > CONSUMER_REPLICA_ID
        if self._is_follower:
            context.connection.gathers_ranges = True
        self._wanted = wanted
        self._session = session
        #: The session of a follower, which says what there is to read.
        self._followed_session = session if session is not None and session.due is not None else None
        self._incremental = incremental
        #: Whether it has waited: what a follower has was noted when its fetch came.
        self._is_late = False
        #: The role and leader epoch (`term`) of each partition at the start of the wait.
        self._terms: dict[SessionPartition, int] | None = None

    def begin(self) -> None:
        """Reply now with enough data, an error or the end of a segment; otherwise wait for the partitions to grow."""
        if len(self._wanted) <= PARTITIONS_AT_ONCE:
            when_warm(self._context, lambda: self._answer_or_wait(self._read_all()))
        else:
            self._terms = {}
            self._context.run(self._read_and_answer_or_wait())

    async def _read_and_answer_or_wait(self) -> None:
        self._answer_or_wait(await self._read_in_slices())

    def _answer_or_wait(self, reading: _Reading) -> None:
        request = self._request
        size = reading.total
        nothing_asked = not self._wanted and self._followed_session is None
        at_once = reading.at_once or bool(self._beyond) or nothing_asked
        if at_once or size >= request.min_bytes or request.max_wait_ms <= 0:
            self._answer(reading.found)
            return
        _release(reading.found)
        self._bind()
        DelayedFetch(
            self._context.client_state,
            self._queues(),
            request.min_bytes - size,
            request.max_wait_ms,
            self._answer_late,
            self._has_visible if request.isolation_level == READ_COMMITTED and not self._is_follower else None,
            gathers=self._is_follower,
        )

    def _queues(self) -> list[dict[DelayedFetch, None]]:
        """Where this fetch waits: at its session, which is told of all changes, or at each partition."""
        followed = self._followed_session
        if followed is not None:
            return [followed.waiting]
        partitions = [partition for wanted in self._wanted if (partition := self._find(wanted)) is not None]
        return [each.waiting_followers if self._is_follower else each.waiting for each in partitions]

    def _answer_late(self) -> None:
        """Reply after the wait. Called by a timer or an append, so exceptions must not leave this method."""
        self._is_late = True
        if self._followed_session is not None:
            self._wanted = self._followed_session.to_read(self._context.broker.clock.monotonic_ms())
        try:
            if len(self._wanted) <= PARTITIONS_AT_ONCE:
                when_warm(self._context, lambda: self._answer(self._read_all().found))
            else:
                self._context.run(self._read_and_answer())
        except Exception:
            log.exception("a fetch of %s failed", self._context.client_host)
            self._context.disconnect()

    async def _read_and_answer(self) -> None:
        self._answer((await self._read_in_slices()).found)

    def _new_reading(self) -> _Reading:
        return _Reading(min(self._request.max_bytes, self._context.broker.fetch_max_bytes))

    def _bind(self) -> None:
        """Remember roles and leader epochs: a partition whose role or epoch changes is answered with an error."""
        if self._terms is None:
            found = ((wanted, self._find(wanted)) for wanted in self._wanted)
            self._terms = {wanted: partition.term for wanted, partition in found if partition is not None}

    def _read_all(self) -> _Reading:
        """Read all partitions. Raises ColdRange if the loop would have to wait for the disk."""
        reading = self._new_reading()
        for wanted in self._wanted:
            self._read(wanted, reading)
        if reading.cold:
            _release(reading.found)
            self._bind()
            raise ColdRange(reading.cold)
        return reading

    async def _read_in_slices(self) -> _Reading:
        """As `_read_all` for many partitions; waits until cold ranges are in the page cache."""
        reading = self._new_reading()
        is_complete = False
        try:
            for rounds_left in range(MOST_ROUNDS - 1, -1, -1):
                for start in range(0, len(self._wanted), PARTITIONS_PER_STEP):
                    await self._context.broker.slices.point()
                    some = self._wanted[start : start + PARTITIONS_PER_STEP]
                    if rounds_left:
                        without_waiting(partial(self._read_some, some, reading))
                    else:
                        self._read_some(some, reading)
                if not reading.cold:
                    is_complete = True
                    return reading
                cold = reading.cold
                _release(reading.found)
                reading = self._new_reading()
                await bring_in(self._context, cold)
        finally:
            if not is_complete:
                _release(reading.found)
        raise AssertionError("the last round waits for the disk and leaves nothing cold")

    def _read_some(self, some: list[SessionPartition], reading: _Reading) -> None:
        for wanted in some:
            self._read(wanted, reading)

    def _find(self, wanted: SessionPartition) -> Partition | None:
        replica = wanted.replica
        if replica is not None and replica.watched_by.get(self._replica_id) is wanted:
            return replica
        partitions = self._context.broker.partitions
        topic = wanted.topic
        if isinstance(topic, str):
            return partitions.get(topic, wanted.index)
        return partitions.get_by_id(topic, wanted.index)

    def _read(self, wanted: SessionPartition, reading: _Reading) -> None:
        """Add a partition's data or error."""
        request = self._request
        isolation_level = request.isolation_level
        version = self._context.api_version
        found = reading.found
        partition = self._find(wanted)
        refusal = self._refuse(wanted, partition)
        if partition is None or refusal is not None:
            assert refusal is not None
            found.append((wanted, refusal))
            reading.at_once = True
            return
        log = partition.log
        is_follower = self._is_follower
        up_to = log.log_end_offset if is_follower else partition.visible_end(isolation_level)
        read: LogRead | None = None
        if wanted.fetch_offset != up_to:
            try:
                done = log.read(
                    wanted.fetch_offset,
                    min(wanted.max_bytes, reading.budget),
                    up_to_offset=up_to,
                    min_one_batch=version >= WHOLE_BATCH_SINCE and not reading.total,
                )
            except ColdRange as missing:
                reading.cold += missing.ranges
                return
            if isinstance(done, ReadRefusal):
                self._context.broker.partitions.read_refused(partition, done)
                found.append((wanted, _failed(wanted.index, _code_for_version(done.error, version))))
                reading.at_once = True
                return
            read = done
            reading.total += read.size
            if read.slice is not None and not read.slice.active:
                reading.at_once = True
            reading.budget = max(reading.budget - read.size, 0)
        if is_follower and not self._is_late:
            now_ms = self._context.broker.clock.monotonic_ms()
            partition.fetched(
                self._replica_id,
                wanted.fetch_offset,
                wanted.follower_log_start,
                now_ms,
                request.replica_state.replica_epoch,
            )
        followed = self._followed_session
        if followed is not None:
            partition.watch(self._replica_id, wanted)
        if read is None and self._incremental and wanted.knows(log.high_watermark, log.log_start_offset):
            if followed is not None and followed.due and partition.is_settled(self._replica_id):
                followed.due.pop(wanted, None)
            return
        try:
            found.append((wanted, _success(wanted, partition, read, isolation_level)))
        except ColdRange as missing:
            if read is not None and read.slice is not None and read.slice.release is not None:
                read.slice.release()
            reading.cold += missing.ranges

    def _refuse(self, wanted: SessionPartition, partition: Partition | None) -> PartitionData | None:
        """Check whether this request may read a partition; None if it may."""
        version = self._context.api_version
        if self._context.permitted is not None and not self._is_permitted(wanted.topic):
            return _failed(wanted.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if partition is None:
            error = self._unknown(wanted.topic, wanted.index)
            return _failed(wanted.index, error, unknown=error in UNKNOWN)
        if self._is_late and self._is_follower and self._terms and self._terms.get(wanted) == partition.term:
            return None  # nothing has changed since it began to wait
        error = partition.check_epoch(wanted.current_leader_epoch)
        if error is ErrorCode.NONE and (
            partition.leader_id is None
            or (partition.leader is None and version < FOLLOWERS_SINCE)
            or (self._terms is not None and self._terms.setdefault(wanted, partition.term) != partition.term)
        ):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is ErrorCode.NONE and self._is_follower:
            error = partition.check_follower(
                self._replica_id, wanted.current_leader_epoch, self._request.replica_state.replica_epoch
            )
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
        """Whether any partition has visible data: for consumers of committed records, which not every append makes
        visible.
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
        """Reply with message sets, once a thread has computed their sizes."""
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
        leaders = CurrentLeaders(self._context, NodeEndpoint)
        by_topic: dict[TopicKey, list[PartitionData]] = {}
        for wanted, data in found:
            if data.error_code in ASKED_WRONGLY:
                self._name_leader(wanted.topic, data, leaders)
            size = data.records.length if data.records else 0
            if session is not None:
                is_included = wanted.must_include(data.error_code, size, data.high_watermark, data.log_start_offset)
                if self._incremental and not is_included and data.diverging_epoch.epoch < 0:
                    continue
                if size:
                    session.served(wanted)
            by_topic.setdefault(wanted.topic, []).append(data)
        topics = [_topic_response(topic, data) for topic, data in by_topic.items()]
        if self._beyond:
            topics = joined(topics, mapped(self._beyond.items(), lambda each: self._answer_beyond(*each, leaders)))
        response = FetchResponse(
            error_code=0,
            session_id=session.session_id if session is not None else NO_SESSION,
            responses=topics,
            throttle_time_ms=self._context.throttle_ms,
            node_endpoints=leaders.endpoints,
        )
        if len(found) > PARTITIONS_AT_ONCE or self._beyond:
            self._context.run(self._reply_in_slices(response, found))
            return
        parts, length = encode_fetch_response(response, self._context.api_version)
        self._context.reply_parts(parts, length)

    async def _reply_in_slices(
        self, response: FetchResponse, found: list[tuple[SessionPartition, PartitionData]]
    ) -> None:
        is_encoded = False
        try:
            parts, length = await self._context.broker.slices.through(encode_steps(response, self._context.api_version))
            is_encoded = True
        finally:
            if not is_encoded:
                _release(found)
        self._context.reply_parts(parts, length)
        await self._context.broker.slices.empty(self._beyond)

    def _answer_beyond(
        self, topic: TopicKey, indexes: set[int], leaders: CurrentLeaders[NodeEndpoint]
    ) -> FetchableTopicResponse:
        """The errors of the partitions of one topic in `beyond`."""

        def refused(index: int) -> PartitionData:
            error = self._unknown(topic, index)
            data = _failed(index, error, unknown=error in UNKNOWN)
            if error in ASKED_WRONGLY:
                self._name_leader(topic, data, leaders)
            return data

        return _topic_response(topic, mapped(indexes, refused))

    def _name_leader(self, topic: TopicKey, data: PartitionData, leaders: CurrentLeaders[NodeEndpoint]) -> None:
        name = topic if isinstance(topic, str) else self._context.broker.image.topic_names.get(topic)
        if name is not None and self._context.api_version >= LEADERS_SINCE:
            leader_id, leader_epoch = leaders.find(name, data.partition_index)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)

    def _is_permitted(self, topic: TopicKey) -> bool:
        context = self._context
        if _replica_id(self._request) > CONSUMER_REPLICA_ID:
            return context.permits(*CLUSTER_ACTION)
        name = topic if isinstance(topic, str) else context.broker.image.topic_names.get(topic)
        return name is None or context.permits(Operation.READ, ResourceType.TOPIC, name)

    def _unknown(self, topic: TopicKey, index: int) -> ErrorCode:
        broker = self._context.broker
        name = topic if isinstance(topic, str) else broker.image.topic_names.get(topic)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return _code_for_version(broker.partitions.missing(name, index), self._context.api_version)


class _Conversion:
    """The conversion of one partition's range to a message set."""

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
        """Compute the size of the message set, in a thread; return the number of its bytes kept in memory."""
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
        """Release the range: there will be no response."""
        if self.slice.release is not None:
            self.slice.release()

    def answer(self, version: int) -> PartitionData:
        """The partition's part of the response."""
        release = self.slice.release
        assert release is not None
        length = self._conversion.left_bytes
        if self._error is not ErrorCode.NONE:
            release()
            return _not_converted(self.wanted.index, _code_for_version(self._error, version))
        if not length:
            release()
        self._data.records = MadePart(length, self._conversion.next_chunk, release) if length else b""
        return self._data


def _code_for_version(error: ErrorCode, version: int) -> ErrorCode:
    """Map an error to one that clients of this version handle correctly."""
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


def _failed(index: int, error: ErrorCode, *, unknown: bool = False) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=int(error),
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        # Kafka distinguishes an unknown partition from one that could not be read.
        aborted_transactions=[] if unknown else None,
        records=b"",
    )


def _not_converted(index: int, error: ErrorCode) -> PartitionData:
    """The error for records that cannot be converted for this version; as in Kafka, `records` is null, not empty."""
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
    """Detect a client that diverged from this log (KIP-595): its last fetched epoch is unknown here, or ended earlier.

    Returns the diverging epoch and its end offset, or OFFSET_OUT_OF_RANGE; None if the client did not diverge.
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


def _topic_response(topic: TopicKey, partitions: list[PartitionData]) -> FetchableTopicResponse:
    if isinstance(topic, str):
        return FetchableTopicResponse(topic=topic, partitions=partitions)
    return FetchableTopicResponse(topic_id=topic, partitions=partitions)


def _replica_id(request: FetchRequest) -> int:
    """The id of the fetching broker, -1 for a consumer."""
    return max(request.replica_id, request.replica_state.replica_id)


def _is_small(request: FetchRequest) -> bool:
    """Whether the request has few enough partitions to be handled without slices."""
    topics = request.topics
    return (
        len(topics) <= PARTITIONS_AT_ONCE
        and sum([len(topic.partitions) for topic in topics]) <= PARTITIONS_AT_ONCE
        and not request.forgotten_topics_data
    )


def _begin(
    context: RequestContext, request: FetchRequest, asked: _Asked
) -> tuple[list[SessionPartition], FetchSession | None, bool] | ErrorCode:
    """The partitions to read and the session, or the error for the whole fetch (KIP-227)."""
    sessions = context.broker.sessions_of(_replica_id(request))
    by_id = context.api_version >= TOPIC_IDS_SINCE
    now_ms = context.broker.clock.monotonic_ms()
    epoch = request.session_epoch
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        sessions.remove(request.session_id)
        wanted = list(asked.wanted.values())
        if epoch == FINAL_EPOCH or asked.beyond:
            return wanted, None, False
        is_follower = _replica_id(request) > CONSUMER_REPLICA_ID
        return wanted, sessions.create(by_id, wanted, now_ms, is_follower), False
    session = sessions.resume(request.session_id, epoch, by_id, now_ms)
    if isinstance(session, ErrorCode):
        return session
    keeps = True
    if asked.wanted or asked.forgotten:
        keeps = sessions.change(session, asked.wanted.values(), asked.forgotten)
    if not session.partitions or not keeps or asked.beyond:
        wanted = list(session.partitions.values())
        sessions.remove(session.session_id)
        return wanted, None, False
    return session.to_read(now_ms), session, True


def _wanted(topic: FetchTopic, version: int) -> Iterable[tuple[PartitionKey, SessionPartition]]:
    key: TopicKey = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic
    for asked in topic.partitions:
        yield (
            (key, asked.partition),
            SessionPartition(
                key,
                asked.partition,
                asked.fetch_offset,
                asked.partition_max_bytes,
                max(asked.current_leader_epoch, NO_EPOCH),
                asked.last_fetched_epoch,
                asked.log_start_offset,
            ),
        )


def _collect(context: RequestContext, request: FetchRequest) -> Steps[_Asked]:
    """Collect the partitions of a large request. Of those not hosted here only a limited number is kept in full."""
    asked = _Asked()
    hosts = context.broker.partitions.hosts
    version = context.api_version
    unknown = number = 0
    for topic in request.topics:
        yield
        for (key, index), partition in _wanted(topic, version):
            number += 1
            if number % PARTITIONS_PER_STEP == 0:
                yield
            if not hosts(key, index):
                unknown += 1
                if unknown > UNKNOWN_PARTITIONS_LIMIT:
                    asked.beyond.setdefault(key, set()).add(index)
                    continue
            asked.wanted[key, index] = partition
    session = context.broker.sessions_of(_replica_id(request)).get(request.session_id)
    if session is None:
        return asked
    known = session.partitions
    for forgotten in request.forgotten_topics_data:
        key = forgotten.topic_id if version >= TOPIC_IDS_SINCE else forgotten.topic
        yield
        indexes = forgotten.partitions
        for start in range(0, len(indexes), PARTITIONS_PER_STEP):
            asked.forgotten.update(
                {(key, index): None for index in indexes[start : start + PARTITIONS_PER_STEP] if (key, index) in known}
            )
            yield
    return asked
