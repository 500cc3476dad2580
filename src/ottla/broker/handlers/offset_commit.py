"""OffsetCommit (key 8), versions 0-9: commit a group's offsets.

0: offsets in ZooKeeper, without a group; 1: generation and member, a timestamp for each partition; 2: a retention time
instead, until 4; 3: throttle time; 6: leader epoch; 7: static members (KIP-345); 8: flexible; 9: the same bytes, for
the newer group protocol.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.authorization import Accesses, on_group, on_topics
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.groups.events import CommitResult, OffsetCommit
from ottla.groups.offsets import metadata_size
from ottla.groups.records import NO_EXPIRY, StoredOffset
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.sliced import mapped

ZOOKEEPER_VERSION = 0
NO_TIMESTAMP = -1
NO_RETENTION = -1
LATEST_TIMESTAMP = 2**63 - 1
#: Offsets passed to a group at a time.
OFFSETS_PER_COMMIT = 1_000
#: Partitions processed between two slices.
PARTITIONS_PER_SLICE = 64


def accesses(context: RequestContext, request: OffsetCommitRequest) -> Accesses:
    yield on_group(Operation.READ, request.group_id)
    yield from on_topics(Operation.READ, (topic.name for topic in request.topics))


def handle(context: RequestContext, request: OffsetCommitRequest) -> None:
    """Commit the offsets of known partitions; the others get an error each."""
    if not context.permits(Operation.READ, ResourceType.GROUP, request.group_id):
        _reply(context, request, {}, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif context.api_version == ZOOKEEPER_VERSION:
        context.spawn(_commit_to_zookeeper(context, request))
    else:
        context.run(_commit(context, request))


async def _commit(context: RequestContext, request: OffsetCommitRequest) -> None:
    """Pass the offsets to the group, many of them in parts; of a repeated partition the last one counts."""
    broker = context.broker
    slices = broker.slices
    known = broker.image.topics
    now_ms = broker.groups.now_ms()
    retention_ms = request.retention_time_ms
    expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION else min(now_ms + retention_ms, LATEST_TIMESTAMP)
    offsets: dict[tuple[str, int], StoredOffset] = {}
    refused = False
    left = PARTITIONS_PER_SLICE
    for topic in request.topics:
        await slices.point()
        name = topic.name
        found = known.get(name)
        size = (
            0
            if found is None or not context.permits(Operation.READ, ResourceType.TOPIC, name)
            else len(found.partitions)
        )
        for partition in topic.partitions:
            left -= 1
            if left < 0:
                left = PARTITIONS_PER_SLICE
                await slices.point()
            index = partition.partition_index
            if not 0 <= index < size:
                refused = True
                continue
            timestamp = partition.commit_timestamp
            offsets[name, index] = StoredOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms if timestamp == NO_TIMESTAMP else timestamp,
                expire_ms,
            )
    if refused and not offsets:
        _reply(context, request, {})
        return
    await _Commits(context, request, [(name, index, value) for (name, index), value in offsets.items()]).submit()


class _Commits:
    """Commits offsets to a group in parts; the last part's result sends the response."""

    __slots__ = ("_context", "_errors", "_offsets", "_parts_left", "_request")

    def __init__(
        self, context: RequestContext, request: OffsetCommitRequest, offsets: list[tuple[str, int, StoredOffset]]
    ) -> None:
        self._context = context
        self._request = request
        self._offsets = offsets
        self._errors: dict[tuple[str, int], ErrorCode] = {}
        self._parts_left = max(1, -(-len(offsets) // OFFSETS_PER_COMMIT))

    async def submit(self) -> None:
        """Submit part by part."""
        request, groups = self._request, self._context.broker.groups
        offsets = self._offsets
        for start in range(0, len(offsets) or 1, OFFSETS_PER_COMMIT):
            part = (
                offsets[start : start + OFFSETS_PER_COMMIT] if start or len(offsets) > OFFSETS_PER_COMMIT else offsets
            )
            groups.submit(
                OffsetCommit(
                    partial(self._take, part),
                    request.group_id,
                    request.generation_id_or_member_epoch,
                    request.member_id,
                    request.group_instance_id,
                    part,
                ),
                allow_empty_group_id=True,
            )
            await self._context.broker.slices.point()

    def _take(self, part: list[tuple[str, int, StoredOffset]], result: CommitResult) -> None:
        self._errors.update({(name, index): error for (name, index, _), error in zip(part, result.errors, strict=True)})
        self._parts_left -= 1
        if not self._parts_left:
            _reply(self._context, self._request, self._errors)


async def _commit_to_zookeeper(context: RequestContext, request: OffsetCommitRequest) -> None:
    """Version 0: write the offsets of known partitions below `/consumers`; their metadata is dropped."""
    broker = context.broker
    longest = broker.config.get_int("offset.metadata.max.bytes")
    too_large: set[tuple[str, int]] = set()
    positions: list[tuple[str, int, int]] = []
    for topic in request.topics:
        await broker.slices.point()
        found = broker.image.topics.get(topic.name)
        if not context.permits(Operation.READ, ResourceType.TOPIC, topic.name):
            found = None
        for partition in topic.partitions:
            await broker.slices.point()
            index = partition.partition_index
            if found is None or not 0 <= index < len(found.partitions):
                continue
            if metadata_size(partition.committed_metadata or "") > longest:
                too_large.add((topic.name, index))
            else:
                positions.append((topic.name, index, partition.committed_offset))
    written = await broker.zookeeper_offsets.commit(request.group_id, positions)
    errors: dict[tuple[str, int], ErrorCode] = {}
    # The last of a repeated partition counts, so both are read from their ends, and freed as they are read.
    while positions:
        await broker.slices.point()
        name, index, _ = positions.pop()
        errors.setdefault((name, index), written.pop())
    while too_large:
        await broker.slices.point()
        errors.setdefault(too_large.pop(), ErrorCode.OFFSET_METADATA_TOO_LARGE)
    _reply(context, request, errors)


def _reply(
    context: RequestContext,
    request: OffsetCommitRequest,
    errors: dict[tuple[str, int], ErrorCode],
    others: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> None:
    """Send the errors in the order of the request; partitions that were not submitted get the error `others`."""

    def topic_result(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        name = topic.name
        error = others
        of_all = others is ErrorCode.GROUP_AUTHORIZATION_FAILED
        if not of_all and not context.permits(Operation.READ, ResourceType.TOPIC, name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif others is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in context.broker.control.unheard_topics.names:
            # The broker has just started. Clients try again, and do not tell the application.
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return OffsetCommitResponseTopic(
            name=name,
            partitions=mapped(
                topic.partitions,
                lambda partition: OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=errors.get((name, partition.partition_index), error),
                ),
            ),
        )

    context.reply_in_slices(OffsetCommitResponse(topics=mapped(request.topics, topic_result)))
