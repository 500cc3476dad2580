"""The response of one fetch: results put together by topic, converted for old clients, with leaders named."""

from __future__ import annotations

import logging

from ottla.broker.authorization import CLUSTER_ACTION
from ottla.broker.context import RequestContext
from ottla.broker.current_leaders import ERRORS_WITH_LEADER, CurrentLeaders
from ottla.broker.fetch_sessions import NO_SESSION, SessionPartition, TopicKey
from ottla.broker.fetches.requested import (
    BATCHES_SINCE,
    FORMAT_1_SINCE,
    LEADERS_SINCE,
    PARTITIONS_AT_ONCE,
    BegunFetch,
    code_for_version,
)
from ottla.broker.fetches.results import UNKNOWN, Found, failed, not_converted, release, topic_response, unknown
from ottla.cluster.acls import Operation, ResourceType
from ottla.env.disk import DiskError, FileSlice
from ottla.net.connection import MadePart
from ottla.records.errors import BatchError, UnsupportedCompressionError
from ottla.records.message_set import MAGIC_0, MAGIC_1
from ottla.storage.down_conversion import DownConversion
from ottla.wire.errors import ErrorCode
from ottla.wire.hot import encode_fetch_response
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.wire.sliced import encode_in_slices, joined, mapped

log = logging.getLogger("ottla.broker")


class FetchAnswer:
    """Sends the one response of a fetch. `beyond` are partitions not hosted here, of which only numbers were kept."""

    __slots__ = ("_beyond", "_context", "_incremental", "_session")

    def __init__(self, context: RequestContext, begun: BegunFetch, beyond: dict[TopicKey, set[int]]) -> None:
        self._context = context
        self._session = begun.session
        self._incremental = begun.is_incremental
        self._beyond = beyond

    def give(self, found: Found) -> None:
        """Reply with these results."""
        if self._context.api_version < BATCHES_SINCE and any(data.records for _, data in found):
            self._answer_converted(found)
        else:
            self._answer_with(found)

    def give_none(self) -> None:
        """Reply without records: the client is throttled. Its session is as before, and none is made."""
        context, session = self._context, self._session
        session_id = NO_SESSION
        if session is not None and self._incremental:
            session_id = session.session_id
        elif session is not None:
            context.broker.fetch_sessions.remove(session.session_id)
        response = FetchResponse(
            error_code=0, session_id=session_id, responses=[], throttle_time_ms=context.throttle_ms
        )
        context.reply_parts(*encode_fetch_response(response, context.api_version))

    def _answer_converted(self, found: Found) -> None:
        """Reply with message sets, once a thread has computed their sizes."""
        context = self._context
        version = context.api_version
        magic = MAGIC_1 if version >= FORMAT_1_SINCE else MAGIC_0
        jobs = [PartitionConversion(wanted, data, magic) for wanted, data in found if data.records]

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

    def _answer_with(self, found: Found) -> None:
        session = self._session
        leaders = CurrentLeaders(self._context, NodeEndpoint)
        by_topic: dict[TopicKey, list[PartitionData]] = {}
        for wanted, data in found:
            if data.error_code in ERRORS_WITH_LEADER:
                self._name_leader(wanted.topic, data, leaders)
            size = data.records.length if data.records else 0
            if session is not None:
                is_included = wanted.must_include(data.error_code, size, data.high_watermark, data.log_start_offset)
                if self._incremental and not (is_included or _has_hint(data)):
                    continue
                if size:
                    session.served(wanted)
            by_topic.setdefault(wanted.topic, []).append(data)
        topics = [topic_response(topic, data) for topic, data in by_topic.items()]
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

    async def _reply_in_slices(self, response: FetchResponse, found: Found) -> None:
        is_encoded = False
        try:
            parts, length = await self._context.broker.slices.through(
                encode_in_slices(response, self._context.api_version)
            )
            is_encoded = True
        finally:
            if not is_encoded:
                release(found)
        self._context.reply_parts(parts, length)
        await self._context.broker.slices.empty(self._beyond)

    def _answer_beyond(
        self, topic: TopicKey, indexes: set[int], leaders: CurrentLeaders[NodeEndpoint]
    ) -> FetchableTopicResponse:
        """The errors of the partitions of one topic in `beyond`."""
        context = self._context
        name = topic if isinstance(topic, str) else context.broker.image.topic_names.get(topic)
        is_hidden = name is not None and not (
            context.permits(*CLUSTER_ACTION) or context.permits(Operation.READ, ResourceType.TOPIC, name)
        )

        def refused(index: int) -> PartitionData:
            if is_hidden:
                return failed(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, is_unknown=True)
            error = unknown(context, topic, index)
            data = failed(index, error, is_unknown=error in UNKNOWN)
            if error in ERRORS_WITH_LEADER:
                self._name_leader(topic, data, leaders)
            return data

        return topic_response(topic, mapped(indexes, refused))

    def _name_leader(self, topic: TopicKey, data: PartitionData, leaders: CurrentLeaders[NodeEndpoint]) -> None:
        name = topic if isinstance(topic, str) else self._context.broker.image.topic_names.get(topic)
        if name is not None and self._context.api_version >= LEADERS_SINCE:
            leader_id, leader_epoch = leaders.find(name, data.partition_index)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)


def _has_hint(data: PartitionData) -> bool:
    """Whether a client must learn what no offset shows: that its log diverged, or where to read instead."""
    return data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0


#: Most converted bytes of one response kept in memory to be sent; more is converted a second time.
CONVERTED_BYTES = 1024 * 1024


class PartitionConversion:
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
            return not_converted(self.wanted.index, code_for_version(self._error, version))
        if not length:
            release()
        self._data.records = MadePart(length, self._conversion.next_chunk, release) if length else b""
        return self._data
