"""ListOffsets (key 2), versions 0-9: offsets by timestamp.

1 returns one offset with its timestamp instead of a list; 2 adds the isolation level; 4 the leader epochs (KIP-320); 6
is flexible; 7 adds the offset of the largest timestamp (-3, KIP-734); 8 the earliest local offset (-4, KIP-405), which
is the log start without tiered storage; 9 the last tiered offset (-5), which does not exist here.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, Accesses, on_topics
from ottla.broker.cold_reads import MOST_ROUNDS, bring_in
from ottla.broker.context import RequestContext
from ottla.broker.replicas.partition import Partition
from ottla.cluster.acls import Operation, ResourceType
from ottla.env.disk import DiskError
from ottla.env.warmth import Range, without_waiting
from ottla.storage.log import PartitionLog
from ottla.storage.lookups import offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.results import OffsetTimestamp, ReadRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.wire.sliced import Sliced, mapped

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

EPOCHS_SINCE = 4
#: Partitions processed between two slices; a look-up by timestamp reads indexes.
PARTITIONS_PER_SLICE = 8
#: The first version whose clients know OFFSET_NOT_AVAILABLE (KIP-207).
NOT_AVAILABLE_SINCE = 5
#: The version of timestamps that none has.
NO_VERSION = 0x7FFF
#: The first version with each special timestamp.
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}


def accesses(context: RequestContext, request: ListOffsetsRequest) -> Accesses:
    """DESCRIBE of each topic, for brokers as for clients (`KafkaApis.handleListOffsetRequest`)."""
    return on_topics(Operation.DESCRIBE, (topic.name for topic in request.topics))


def handle(context: RequestContext, request: ListOffsetsRequest) -> None:
    """Reply per partition; each has its own error."""
    context.run(_answer_all(context, request))


async def _answer_all(context: RequestContext, request: ListOffsetsRequest) -> None:
    broker = context.broker
    repeated = await broker.slices.through(_repeated(request))
    answers: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
    terms: dict[tuple[str, int], int] = {}
    for rounds_left in range(MOST_ROUNDS - 1, -1, -1):
        cold: list[Range] = []
        await broker.slices.through(_look_up(context, request, repeated, answers, terms, cold, rounds_left))
        if not cold:
            break
        await bring_in(context, cold)

    def topic_result(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
        name = topic.name
        return ListOffsetsTopicResponse(
            name=name,
            partitions=mapped(
                topic.partitions,
                lambda wanted: (
                    _failed(wanted, ErrorCode.INVALID_REQUEST)
                    if (name, wanted.partition_index) in repeated
                    else answers.get((name, wanted.partition_index)) or _failed(wanted, _missing(context, name, wanted))
                ),
            ),
        )

    await context.replied(ListOffsetsResponse(topics=mapped(request.topics, topic_result)))


def _repeated(request: ListOffsetsRequest) -> Sliced[set[tuple[str, int]]]:
    repeated: set[tuple[str, int]] = set()
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        yield
        name = topic.name
        for number, wanted in enumerate(topic.partitions):
            key = (name, wanted.partition_index)
            (repeated if key in seen else seen).add(key)
            if number % PARTITIONS_PER_SLICE == 0:
                yield
    return repeated


def _look_up(
    context: RequestContext,
    request: ListOffsetsRequest,
    repeated: set[tuple[str, int]],
    answers: dict[tuple[str, int], ListOffsetsPartitionResponse],
    terms: dict[tuple[str, int], int],
    cold: list[Range],
    rounds_left: int,
) -> Sliced[None]:
    """Add the missing answers, or to `cold` the file ranges that have to be read first.

    In the last round the loop waits for the disk. `terms` are the roles and leader epochs of the partitions in the
    first round; a partition whose role or epoch changed since fails with NOT_LEADER_OR_FOLLOWER.
    """
    partitions = context.broker.partitions
    for topic in request.topics:
        yield
        if not context.permits(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            continue
        for number, wanted in enumerate(topic.partitions):
            if number % PARTITIONS_PER_SLICE == 0:
                yield
            key = (topic.name, wanted.partition_index)
            partition = partitions.get(*key)
            if partition is None or key in answers or key in repeated:
                continue
            if terms.setdefault(key, partition.term) != partition.term:
                answers[key] = _failed(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue

            def answer(key: tuple[str, int] = key, partition: Partition = partition, wanted: Any = wanted) -> None:
                answers[key] = _answer(context, partition, wanted, request)

            if rounds_left:
                cold += without_waiting(answer)
            else:
                answer()


def _missing(context: RequestContext, topic: str, wanted: ListOffsetsPartition) -> ErrorCode:
    """The error for a partition that is not here, or may not be described."""
    if not context.permits(Operation.DESCRIBE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return context.broker.partitions.missing(topic, wanted.partition_index)


def _answer(
    context: RequestContext, partition: Partition, wanted: ListOffsetsPartition, request: ListOffsetsRequest
) -> ListOffsetsPartitionResponse:
    """Answer for a partition of this broker: only brokers and debuggers see records that are not committed yet."""
    is_client = request.replica_id == CONSUMER_REPLICA_ID
    is_debugging = request.replica_id == DEBUGGING_REPLICA_ID
    if context.api_version == 0:
        if partition.leader is None and not is_debugging:
            return _failed(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return _answer_old_style(context, partition, wanted, is_client)
    check = partition.check_epoch if is_debugging else partition.check_leads
    error = check(wanted.current_leader_epoch)
    timestamp = wanted.timestamp
    if error is ErrorCode.NONE and timestamp < 0 and context.api_version < _SINCE.get(timestamp, NO_VERSION):
        error = ErrorCode.UNSUPPORTED_VERSION
    is_end_unknown = is_client and not partition.knows_its_end
    if error is ErrorCode.NONE and is_end_unknown and timestamp == LATEST:
        error = _not_available(context)
    if error is not ErrorCode.NONE:
        return _failed(wanted, error)
    visible_end = partition.visible_end(request.isolation_level) if is_client else partition.log.log_end_offset
    found = _find(partition, timestamp, visible_end)
    if isinstance(found, ReadRefusal):
        context.broker.partitions.read_refused(partition, found)
        return _failed(wanted, found.error)
    if found is None and is_end_unknown:
        return _failed(wanted, _not_available(context))  # it may be among the records that are not visible yet
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=0)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if context.api_version >= EPOCHS_SINCE else -1,
    )


def _not_available(context: RequestContext) -> ErrorCode:
    """The error while the high watermark has not reached the leader epoch (KIP-207)."""
    is_known = context.api_version >= NOT_AVAILABLE_SINCE
    return ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE


def _find(partition: Partition, timestamp: int, visible_end: int) -> OffsetTimestamp | ReadRefusal | None:
    """The requested offset; None without such a visible record."""
    log = partition.log
    if timestamp == LATEST:
        return OffsetTimestamp(-1, visible_end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return OffsetTimestamp(-1, log.log_start_offset, log.epochs.epoch_at(log.log_start_offset))
    if timestamp == LATEST_TIERED:
        return None
    found = offset_of_max_timestamp(log) if timestamp == MAX_TIMESTAMP else offset_for_timestamp(log, timestamp)
    if isinstance(found, OffsetTimestamp) and found.offset >= visible_end:
        return None
    return found


def _answer_old_style(
    context: RequestContext, partition: Partition, wanted: ListOffsetsPartition, is_client: bool
) -> ListOffsetsPartitionResponse:
    """Version 0: the base offsets of segments last modified before a time, newest first, and the log end offset."""
    try:
        offsets = _offsets_before(partition.log, wanted.timestamp, context.broker.clock.now_ms())
    except DiskError:
        return _failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    offsets = offsets[: max(wanted.max_num_offsets, 0)]
    visible = partition.log.high_watermark
    if is_client and any(offset > visible for offset in offsets):
        offsets = [visible, *(offset for offset in offsets if offset <= visible)]
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=0, old_style_offsets=offsets)


def _offsets_before(log: PartitionLog, timestamp: int, now_ms: int) -> list[int]:
    """As `UnifiedLog.legacyFetchOffsetsBefore`, by the files' modification times. Raises DiskError."""
    segments = log.segments
    if timestamp == EARLIEST:
        return [max(segments[0].base_offset, log.log_start_offset)]
    newest_first = segments[::-1]
    offsets = [max(segment.base_offset, log.log_start_offset) for segment in newest_first]
    end = [log.log_end_offset] if segments[-1].size else []
    if timestamp == LATEST or (end and timestamp >= now_ms):
        return end + offsets
    for number, segment in enumerate(newest_first):
        if segment.log.modified_ms() <= timestamp:
            return offsets[number:]
    return []


def _failed(wanted: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=int(error), old_style_offsets=[]
    )
