"""Produce (key 0), versions 0-11: appends record batches.

1 adds the throttle time, 2 the log append time; 3 adds record batches v2 and the transactional id; 5 the log start
offset; 7 allows zstd; 8 adds error messages per record; 9 is flexible; 10 returns the current leader with an error
(KIP-951); 11 adds TRANSACTION_ABORTABLE (KIP-890). Versions 0-2 carry the older message sets, which are stored
as batches.

Nothing here works per record: batches are slices of the receive buffer, and the log appends them as they are. Three
cases need more work, which runs in threads unless it is small (`ottla.storage.rewriting`): message sets, batches whose
compression type is not the topic's, and topics whose settings require a check of each record. Records that must be on
the disk before they are acknowledged are answered when they are committed. Before the first batch of a transaction the
coordinator is asked whether the partition belongs to it (`transaction.partition.verification.enable`). The connection
takes up its next request only when this one is answered, so a producer's batches stay in order.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.authorization import ADMIN_CLIENT_ID, Access, Accesses, on_topics
from ottla.broker.context import RequestContext
from ottla.broker.current_leaders import CurrentLeaders
from ottla.broker.replicas.partition import AwaitedOffsets, Partition
from ottla.broker.replicas.purgatory import DelayedProduce
from ottla.cluster.acls import Operation, ResourceType
from ottla.records.batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PRODUCER_ID_AT,
    RECORDS_COUNT_AT,
    TRANSACTIONAL_FLAG,
)
from ottla.records.compression import Compression
from ottla.storage.log import CLIENT, AppendInfo, AppendRefusal
from ottla.storage.producer_state import NOT_VERIFIED, Verification
from ottla.storage.rewriting import is_small, needs_rewriting, rewrite
from ottla.wire.errors import ErrorCode
from ottla.wire.hot import encode_produced
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.sliced import mapped

log = logging.getLogger("ottla.broker")

TopicPartition = tuple[str, int]
_PRODUCER = struct.Struct(">qhi")
#: Errors of the coordinator after which the same write may succeed.
RETRIED = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)

#: The first version with record batches v2.
BATCHES_SINCE = 3
#: The first version in which a batch may be compressed with zstd (KIP-110).
ZSTD_SINCE = 7
#: The first version whose response has the fields that `encode_produced` writes.
FIXED_ANSWER_SINCE = 5
#: The first version whose errors name the leader (KIP-951).
LEADERS_SINCE = 10
#: The first version whose clients understand TRANSACTION_ABORTABLE (KIP-890).
ABORTABLE_SINCE = 11
#: Errors for which Kafka does not return the log start offset.
LOG_START_UNKNOWN = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
#: A message set without a complete message is not an error: nothing is appended, and no offset returned.
NOTHING_APPENDED = AppendInfo(-1, -1, -1, -1)


class UnreadyBatch:
    """A batch that cannot be appended as it came; its bytes are in the request's frame meanwhile.

    It has to be rewritten. Whatever else a batch may have to wait for before its append belongs here, too.
    """

    __slots__ = ("_config", "_name", "_now_ms", "_records", "is_ready", "outcome", "partition", "term", "verification")

    def __init__(
        self, partition: Partition, records: memoryview, now_ms: int, verification: Verification | None = None
    ) -> None:
        self.partition = partition
        #: That of a transactional batch.
        self.verification = verification
        #: The partition's role and leader epoch when the request began.
        self.term = partition.term
        self._config = partition.log.config
        self._name = partition.log.name
        self._records = records
        self._now_ms = now_ms
        #: The batch to append, or the refusal; None if there is nothing to append.
        self.outcome: bytearray | AppendRefusal | None = None
        self.is_ready = False

    @property
    def size(self) -> int:
        """Bytes held while it is queued."""
        return len(self._records)

    def rewrite(self) -> None:
        """Rewrite the batch, possibly in a thread; touches only this object."""
        self.outcome = rewrite(self._records, self._config, self._now_ms, self._name)
        self.is_ready = True


#: No term of a partition.
NO_TERM = -1


class _Verified(NamedTuple):
    """Outcome of a transactional batch's verification; `term` is the partition's when it began."""

    term: int
    verification: Verification | None
    error: ErrorCode = ErrorCode.NONE


#: The outcome of an append; an error that needs no more than its code is only that, since a request may have very many.
AppendOutcome = AppendInfo | PartitionProduceResponse | ErrorCode


class PendingAppend:
    """One partition's batch of a request until the request is answered.

    An `unready` batch waits before its append, and has no result. After it the result may wait, as the response
    that it will be, until the batch is committed.
    """

    __slots__ = ("index", "result", "unready")

    def __init__(self, index: int, result: AppendOutcome | None, unready: UnreadyBatch | None = None) -> None:
        self.index = index
        self.result = result
        self.unready = unready


#: By topic, in the order of the request.
Appends = list[tuple[str, list[PendingAppend]]]


def accesses(context: RequestContext, request: ProduceRequest) -> Accesses:
    if request.transactional_id is not None:
        yield Access(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    yield from on_topics(Operation.WRITE, (topic.name for topic in request.topic_data))


def handle(context: RequestContext, request: ProduceRequest) -> None:
    """Append each partition's batch and reply with its offset or its error."""
    topics, acks = request.topic_data, request.acks
    if (
        acks not in (1, -1)
        or len(topics) != 1
        or len(topics[0].partition_data) != 1
        or _is_transactional(topics[0].partition_data[0].records)
    ):
        # Batches that are appended later are still in the frame.
        context.connection.keep_frame()
        context.run(_append_all(context, request))
        return
    # The common case: one batch, answered without building a response object.
    (topic,) = topics
    (data,) = topic.partition_data
    appended = _append(context, topic.name, data, acks)
    version = context.api_version
    partitions = context.broker.partitions
    is_committed = not partitions.held and not partitions.shared
    if type(appended) is AppendInfo and version >= FIXED_ANSWER_SINCE and is_committed:
        if context.charge is not None:
            context.charge.produced(context)
        context.reply_body(
            encode_produced(
                topic.name,
                data.index,
                0,
                appended.first_offset,
                appended.log_append_time_ms,
                appended.log_start_offset,
                version,
                context.throttle_ms,
            )
        )
    else:
        _finish(context, [(topic.name, [_pending(data.index, appended)])], request)


async def _append_all(context: RequestContext, request: ProduceRequest) -> None:
    point = context.broker.slices.point
    transactional: list[tuple[str, PartitionProduceData]] = []
    for topic in request.topic_data:
        transactional += [(topic.name, data) for data in topic.partition_data if _is_transactional(data.records)]
        await point()
    refusal = _refusal_of(context, request, transactional)
    verified = {} if refusal is not None else await _verified(context, request, transactional)
    found: Appends = []
    for topic in request.topic_data:
        appends: list[PendingAppend] = []
        for data in topic.partition_data:
            if refusal is None:
                outcome = verified.get((topic.name, data.index))
                appends.append(_pending(data.index, _append(context, topic.name, data, request.acks, outcome)))
            else:
                error, message = refusal
                result = error if message is None else _refused(data.index, error, message)
                appends.append(PendingAppend(data.index, result))
            await point()
        await point()
        found.append((topic.name, appends))
    _finish(context, found, request)


def _pending(index: int, appended: AppendInfo | PendingAppend) -> PendingAppend:
    return PendingAppend(index, appended) if isinstance(appended, AppendInfo) else appended


def _finish(context: RequestContext, found: Appends, request: ProduceRequest) -> None:
    """Reply, at once or when the unready batches are rewritten and appended."""
    waiting = [(each, each.unready) for _, appends in found for each in appends if each.unready is not None]
    acks, timeout_ms = request.acks, request.timeout_ms
    if not waiting:
        _answer_all(context, found, acks, timeout_ms)
        return
    if context.charge is not None:
        context.charge.received()

    def work() -> None:
        for _, unready in waiting:
            unready.rewrite()

    def rewritten(_result: None, error: BaseException | None) -> None:
        try:
            if error is not None:
                raise error
            for pending, unready in waiting:
                pending.result, pending.unready = _append_readied(context, unready), None
            if not context.connection.closed:
                _answer_all(context, found, acks, timeout_ms)
        except Exception:
            log.exception("a produce request of %s could not be rewritten", context.client_host)
            context.disconnect()

    if not context.broker.conversions.run(work, rewritten, sum(unready.size for _, unready in waiting)):
        # Producers retry after this error.
        for _, unready in waiting:
            unready.outcome = AppendRefusal(ErrorCode.REQUEST_TIMED_OUT, "too many batches wait to be converted")
        rewritten(None, None)


def _answer_all(context: RequestContext, found: Appends, acks: int, timeout_ms: int) -> None:
    if acks != 0:
        partitions = context.broker.partitions
        may_wait = partitions.held or partitions.shared
        uncommitted = _uncommitted(context, found, acks) if may_wait else ()
        if uncommitted:
            if context.charge is not None:
                context.charge.received()
            DelayedProduce(context.client_state, uncommitted, timeout_ms, lambda: _reply(context, found))
        else:
            _reply(context, found)
        return
    if context.charge is not None:
        context.charge.produced(context, expects_answer=False)
    if any(not isinstance(each.result, AppendInfo) for _, appends in found for each in appends):
        # The only way to report an error to a client that expects no response, as in Kafka.
        log.info("closing the connection of %s: its produce request with acks=0 failed", context.client_host)
        context.disconnect()
    else:
        context.no_reply()


def _uncommitted(
    context: RequestContext, found: Appends, acks: int
) -> list[tuple[AwaitedOffsets, int, PartitionProduceResponse]]:
    """Appended batches that have to wait: the waiters to join, the last offset, and the response (also their result).

    With acks=-1 they wait until they are committed, with acks=1 until they count on this replica.
    """
    partitions = context.broker.partitions
    uncommitted: list[tuple[AwaitedOffsets, int, PartitionProduceResponse]] = []
    for name, appends in found:
        for each in appends:
            info = each.result
            partition = partitions.get(name, each.index)
            if not isinstance(info, AppendInfo) or info is NOTHING_APPENDED or partition is None:
                continue
            if partition.leader is None or partition.leader.epoch != info.leader_epoch:
                each.result = ErrorCode.NOT_LEADER_OR_FOLLOWER
                continue
            reached, awaited = partition.log.high_watermark, partition.committed
            if acks != -1:
                reached, awaited = partition.own_end, partition.forced
            if info.last_offset >= reached:
                each.result = answer = _answer(each)
                uncommitted.append((awaited, info.last_offset, answer))
    return uncommitted


def _reply(context: RequestContext, found: Appends) -> None:
    version = context.api_version
    if context.charge is not None:
        context.charge.produced(context)
    if len(found) == 1 and len(found[0][1]) == 1 and version >= FIXED_ANSWER_SINCE:
        # The common case: one batch, which was appended.
        ((topic, (pending,)),) = found
        done = pending.result
        if isinstance(done, PartitionProduceResponse) and done.error_code == ErrorCode.NONE:
            appended = (done.base_offset, done.log_append_time_ms, done.log_start_offset)
            context.reply_body(encode_produced(topic, pending.index, 0, *appended, version, context.throttle_ms))
            return
    leaders = CurrentLeaders(context, NodeEndpoint)
    names_leaders = context.api_version >= LEADERS_SINCE

    def partition_response(topic: str, pending: PendingAppend) -> PartitionProduceResponse:
        answer = _answer(pending)
        if names_leaders and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader_id, leader_epoch = leaders.find(topic, pending.index)
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return answer

    def topic_response(topic: tuple[str, list[PendingAppend]]) -> TopicProduceResponse:
        name, appends = topic
        return TopicProduceResponse(
            name=name, partition_responses=mapped(appends, lambda each: partition_response(name, each))
        )

    context.reply_in_slices(ProduceResponse(responses=mapped(found, topic_response), node_endpoints=leaders.endpoints))


def _refusal_of(
    context: RequestContext, request: ProduceRequest, transactional: Sequence[tuple[str, PartitionProduceData]]
) -> tuple[ErrorCode, str | None] | None:
    """The error of the request as a whole, if any. As in Kafka, the records say whether it is transactional."""
    if transactional:
        writer = request.transactional_id
        if writer is None or not context.permits(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, writer):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None
    if request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS, None
    if len({_producer(data.records)[:2] for _, data in transactional}) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
    return None


async def _verified(
    context: RequestContext, request: ProduceRequest, transactional: Sequence[tuple[str, PartitionProduceData]]
) -> dict[TopicPartition, _Verified]:
    """Verify the transactional batches of partitions that are led here and may be written to (KIP-890)."""
    broker = context.broker
    found: dict[TopicPartition, _Verified] = {}
    asked: list[TopicPartition] = []
    is_enabled = bool(transactional) and broker.config.get_boolean("transaction.partition.verification.enable")
    for name, data in transactional:
        partition = broker.partitions.get(name, data.index)
        if (
            partition is None
            or partition.leader is None
            or not context.permits(Operation.WRITE, ResourceType.TOPIC, name)
        ):
            # Should it be led here when the batch is appended, this is a change of role like any other.
            found[name, data.index] = _Verified(NO_TERM, None)
            continue
        if not is_enabled:
            found[name, data.index] = _Verified(partition.term, NOT_VERIFIED)
            continue
        producers, producer = partition.log.producers, _producer(data.records)
        verification = producers.begin_verification(*producer, broker.clock.now_ms())
        found[name, data.index] = _Verified(partition.term, verification)
        if verification is not None:
            asked.append((name, data.index))
        await broker.slices.point()
    if asked:
        assert request.transactional_id is not None
        producer_id, epoch, _ = _producer(transactional[0][1].records)
        errors = await broker.transactions.verifier.verify(
            request.transactional_id,
            producer_id,
            epoch,
            asked,
            knows_abortable=context.api_version >= ABORTABLE_SINCE,
        )
        found.update({key: found[key]._replace(error=error) for key, error in errors.items()})
    return found


def _not_verified(index: int, error: ErrorCode) -> PartitionProduceResponse:
    """The response where the coordinator refused; as in Kafka, errors that pass get one that old clients retry."""
    if error in RETRIED:
        text = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
        return _refused(index, ErrorCode.NOT_ENOUGH_REPLICAS, text)
    is_missing = error is ErrorCode.INVALID_TXN_STATE
    return _refused(index, error, "Partition was not added to the transaction" if is_missing else None)


def _append(
    context: RequestContext, topic: str, data: PartitionProduceData, acks: int, verified: _Verified | None = None
) -> AppendInfo | PendingAppend:
    """Append one partition's batch; return what was appended, or why not, or not yet."""
    index = data.index
    if context.permitted is not None and not context.permits(Operation.WRITE, ResourceType.TOPIC, topic):
        return PendingAppend(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    partitions = context.broker.partitions
    partition = partitions.get(topic, index)
    if partition is None:
        return PendingAppend(index, partitions.missing(topic, index))
    leader = partition.leader
    if leader is None:
        partition.traffic.appends += 1
        return PendingAppend(index, partitions.missing(topic, index))
    if partition.is_internal and context.client_id != ADMIN_CLIENT_ID:
        return PendingAppend(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    records = data.records
    version = context.api_version
    if not records:
        return PendingAppend(index, ErrorCode.INVALID_RECORD) if version >= BATCHES_SINCE else NOTHING_APPENDED
    if version < ZSTD_SINCE and version >= BATCHES_SINCE and _is_zstd(records):
        return PendingAppend(index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    config = partition.log.config
    if acks == -1 and not (leader.is_alone or leader.has_enough(config.min_insync_replicas)):
        partition.traffic.refused_early(ErrorCode.NOT_ENOUGH_REPLICAS, len(records))
        answer = _refused(index, ErrorCode.NOT_ENOUGH_REPLICAS)
        answer.log_start_offset = partition.log.log_start_offset
        return PendingAppend(index, answer)
    verification = None
    if verified is not None:
        if verified.error is not ErrorCode.NONE:
            return PendingAppend(index, _not_verified(index, verified.error))
        if verified.term != partition.term:
            return PendingAppend(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        verification = verified.verification
    if version < BATCHES_SINCE or config.reads_records:
        unready = _unready(context, partition, records, verification)
        if unready is not None:
            if not unready.is_ready:
                return PendingAppend(index, None, unready)
            result = _append_readied(context, unready)
            return result if isinstance(result, AppendInfo) else PendingAppend(index, result)
    info = partitions.append(partition, records, CLIENT, verification=verification)
    if isinstance(info, AppendRefusal):
        return PendingAppend(index, _refused_by_log(index, info, partition.log.log_start_offset))
    return info


def _unready(
    context: RequestContext, partition: Partition, records: memoryview, verification: Verification | None
) -> UnreadyBatch | None:
    """A batch that has to be rewritten before it can be appended, a small one already rewritten; None for others."""
    is_set = len(records) <= MAGIC_AT or records[MAGIC_AT] < MAGIC
    if is_set and context.api_version >= BATCHES_SINCE:
        return None  # the log refuses it
    if not is_set and not needs_rewriting(records, partition.log.config):
        return None
    unready = UnreadyBatch(partition, records, context.broker.clock.now_ms(), verification)
    if is_small(records, partition.log.config):
        unready.rewrite()
    else:
        context.connection.keep_frame()
    return unready


def _append_readied(context: RequestContext, unready: UnreadyBatch) -> AppendOutcome:
    """Append a batch that has been rewritten, unless the partition's role or epoch has changed."""
    outcome, partition = unready.outcome, unready.partition
    index = partition.index
    partitions = context.broker.partitions
    if partitions.get(partition.topic, index) is not partition:
        return partitions.missing(partition.topic, index)
    if partition.term != unready.term:
        partition.traffic.appends += 1
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if outcome is None:
        return NOTHING_APPENDED
    if not isinstance(outcome, AppendRefusal):
        info = partitions.append(
            partition, memoryview(outcome), CLIENT, records_checked=True, verification=unready.verification
        )
        if not isinstance(info, AppendRefusal):
            return info
        outcome = info
    else:
        partition.traffic.refused_early(outcome.error, unready.size)
    return _refused_by_log(index, outcome, partition.log.log_start_offset)


def _answer(pending: PendingAppend) -> PartitionProduceResponse:
    result = pending.result
    if isinstance(result, PartitionProduceResponse):
        return result
    if isinstance(result, ErrorCode):
        return _refused(pending.index, result)
    assert result is not None, "an unready batch has no answer"
    return PartitionProduceResponse(
        index=pending.index,
        error_code=0,
        base_offset=result.first_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        record_errors=[],
    )


def _refused_by_log(index: int, refusal: AppendRefusal, log_start_offset: int) -> PartitionProduceResponse:
    """The error response; some have no log start offset.

    As in Kafka errors of single records have a message. So have those of the disk: the code alone does not tell a full
    disk from a failed one.
    """
    has_message = refusal.record_errors or refusal.error is ErrorCode.KAFKA_STORAGE_ERROR
    answer = _refused(index, refusal.error, refusal.message if has_message else None)
    if refusal.error not in LOG_START_UNKNOWN and not refusal.bad_request:
        answer.log_start_offset = log_start_offset
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=text)
        for batch_index, text in refusal.record_errors
    ]
    return answer


def _refused(index: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=int(error),
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[],
        error_message=message,
    )


def _is_transactional(batch: memoryview | None) -> bool:
    """Whether the first batch is one of a transaction."""
    return (
        batch is not None
        and len(batch) > ATTRIBUTES_AT + 1
        and batch[MAGIC_AT] == MAGIC
        and bool(batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG)
    )


def _producer(batch: memoryview | None) -> tuple[int, int, int]:
    """Producer id, epoch and first sequence number of a batch; one that is too short is refused by the log."""
    if batch is None or len(batch) < RECORDS_COUNT_AT:
        return NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
    producer_id, epoch, sequence = _PRODUCER.unpack_from(batch, PRODUCER_ID_AT)
    return producer_id, epoch, sequence


def _is_zstd(batch: memoryview) -> bool:
    """Whether a batch is compressed with zstd; one that is too short is refused by the log."""
    return len(batch) > ATTRIBUTES_AT + 1 and batch[ATTRIBUTES_AT + 1] & COMPRESSION_MASK == Compression.ZSTD
