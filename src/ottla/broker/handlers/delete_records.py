"""DeleteRecords (key 21), versions 0-2: advance a partition's log start offset (KIP-107).

1 is the same as 0, 2 is flexible. Offset -1 stands for the high watermark. Records below the new start can no longer be
read at once; whole segments are deleted in the background. The response waits until the live followers have taken over
the new start, which they learn with their next fetches, and says the least start of all (the low watermark).
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_topics
from ottla.broker.context import RequestContext
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.purgatory import DelayedDeleteRecords
from ottla.cluster.acls import Operation, ResourceType
from ottla.storage.results import DeleteRefusal
from ottla.storage.truncation import delete_records
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.wire.sliced import mapped

#: Partitions processed between two slices.
PARTITIONS_PER_SLICE = 64
#: In place of an offset.
HIGH_WATERMARK = -1
#: The low watermark in the results of partitions that failed.
NO_LOW_WATERMARK = -1

PartitionKey = tuple[str, int]


def accesses(context: RequestContext, request: DeleteRecordsRequest) -> Accesses:
    return on_topics(Operation.DELETE, (topic.name for topic in request.topics))


def handle(context: RequestContext, request: DeleteRecordsRequest) -> None:
    """Reply with the low watermark of each partition, which is the new log start offset; each partition once."""
    context.run(_delete_all(context, request))


async def _delete_all(context: RequestContext, request: DeleteRecordsRequest) -> None:
    requested: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        for number, partition in enumerate(topic.partitions):
            # As in Apache Kafka, a topic without partitions is not in the answer.
            offsets = requested.setdefault(topic.name, {})
            offsets[partition.partition_index] = partition.offset
            if number % PARTITIONS_PER_SLICE == 0:
                await context.broker.slices.point()
        await context.broker.slices.point()
    done: dict[PartitionKey, _Deletion] = {}
    for name, offsets in requested.items():
        for number, (index, offset) in enumerate(offsets.items()):
            if number % PARTITIONS_PER_SLICE == 0:
                await context.broker.slices.point()
            found = _led(context, name, index)
            if not isinstance(found, ErrorCode):
                done[name, index] = _Deletion(found, index, offset)
    waiting = [each for each in done.values() if each.must_wait()]
    if waiting:
        DelayedDeleteRecords(
            context.client_state,
            [(each.partition.deleted, each.required - 1, each.result) for each in waiting],
            request.timeout_ms,
            lambda: context.reply_in_slices(_response(context, requested, done)),
        )
    else:
        await context.replied(_response(context, requested, done))


def _led(context: RequestContext, topic: str, index: int) -> Partition | ErrorCode:
    """The partition, or why its records are not deleted."""
    if not context.permits(Operation.DELETE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = context.broker.partitions
    partition = partitions.get(topic, index)
    if partition is None:
        return partitions.missing(topic, index)
    if partition.is_internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return partitions.missing(topic, index) if partition.leader is None else partition


class _Deletion:
    """The deletion in one partition: done on this broker, and waited for on those of its followers that are alive."""

    __slots__ = ("_term", "partition", "required", "result")

    def __init__(self, partition: Partition, index: int, offset: int) -> None:
        self.partition = partition
        self._term = partition.term
        deleted = delete_records(partition.log, offset)
        partition.changed()
        is_refused = isinstance(deleted, DeleteRefusal)
        #: The start that all their logs have to reach.
        self.required = partition.log.log_start_offset if offset == HIGH_WATERMARK or is_refused else offset
        self.result = DeleteRecordsPartitionResult(
            partition_index=index,
            low_watermark=NO_LOW_WATERMARK if is_refused else partition.low_watermark,
            error_code=int(deleted.error if isinstance(deleted, DeleteRefusal) else ErrorCode.NONE),
        )

    def must_wait(self) -> bool:
        """Whether the followers have not got so far; an error if the role or leader epoch has changed meanwhile."""
        result = self.result
        if result.error_code == ErrorCode.NONE and self.partition.term != self._term:
            result.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return result.error_code == ErrorCode.NONE and result.low_watermark < self.required

    def answer(self) -> DeleteRecordsPartitionResult:
        """The result, with the low watermark of now."""
        if self.result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.result.low_watermark = NO_LOW_WATERMARK
        elif self.result.error_code == ErrorCode.NONE and self.partition.leader is not None:
            self.result.low_watermark = max(self.result.low_watermark, self.partition.low_watermark)
        return self.result


def _response(
    context: RequestContext, requested: dict[str, dict[int, int]], done: dict[PartitionKey, _Deletion]
) -> DeleteRecordsResponse:
    def partition_result(name: str, index: int) -> DeleteRecordsPartitionResult:
        deletion = done.get((name, index))
        if deletion is not None:
            return deletion.answer()
        refusal = _led(context, name, index)
        error = refusal if isinstance(refusal, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=int(error)
        )

    def topic_result(item: tuple[str, dict[int, int]]) -> DeleteRecordsTopicResult:
        name, offsets = item
        return DeleteRecordsTopicResult(
            name=name, partitions=mapped(offsets, lambda index: partition_result(name, index))
        )

    return DeleteRecordsResponse(topics=mapped(requested.items(), topic_result))
