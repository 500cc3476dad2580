"""OffsetCommit (key 8), versions 0 to 9: keep a group's positions.

0: positions in the tree (ZooKeeper's), without groups; 1: generation and member, a timestamp for each partition; 2: a
retention time instead, until 4; 3: throttle time; 6: leader epoch; 7: static members (KIP-345); 8: flexible; 9: the
same bytes, for the newer group protocol.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.groups.events import CommitResult, OffsetCommit
from ottla.groups.offsets import NO_EXPIRY, OffsetAndMetadata, metadata_size
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 9

VERSION_OF_THE_TREE = 0
NO_TIMESTAMP = -1
NO_RETENTION = -1
LATEST_TIMESTAMP = 2**63 - 1


def handle(context: RequestContext, request: OffsetCommitRequest) -> None:
    """Commit what belongs to known partitions; the others are refused one by one."""
    broker = context.broker
    if context.api_version == VERSION_OF_THE_TREE:
        context.spawn(_keep_in_tree(context, request))
        return
    known = broker.image.topics
    now_ms = broker.groups.now_ms()
    retention_ms = request.retention_time_ms
    expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION else min(now_ms + retention_ms, LATEST_TIMESTAMP)
    offsets: list[tuple[str, int, OffsetAndMetadata]] = []
    refused = False
    for topic in request.topics:
        name = topic.name
        found = known.get(name)
        size = 0 if found is None else len(found.partitions)
        for partition in topic.partitions:
            index = partition.partition_index
            if not 0 <= index < size:
                refused = True
                continue
            timestamp = partition.commit_timestamp
            value = OffsetAndMetadata(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms if timestamp == NO_TIMESTAMP else timestamp,
                expire_ms,
            )
            offsets.append((name, index, value))
    if refused and not offsets:
        _answer(context, request, offsets, CommitResult(()))
        return
    broker.groups.submit(
        OffsetCommit(
            partial(_answer, context, request, offsets),
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            offsets,
        ),
        allow_empty_group_id=True,
    )


def _answer(
    context: RequestContext,
    request: OffsetCommitRequest,
    offsets: list[tuple[str, int, OffsetAndMetadata]],
    result: CommitResult,
) -> None:
    _reply(context, request, {(name, index): e for (name, index, _), e in zip(offsets, result.errors, strict=True)})


async def _keep_in_tree(context: RequestContext, request: OffsetCommitRequest) -> None:
    """Version 0: positions of known partitions go below `/consumers`, their metadata nowhere."""
    broker = context.broker
    longest = broker.config.get_int("offset.metadata.max.bytes")
    errors: dict[tuple[str, int], ErrorCode] = {}
    positions: list[tuple[str, int, int]] = []
    for topic in request.topics:
        found = broker.image.topics.get(topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            if found is None or not 0 <= index < len(found.partitions):
                continue
            if metadata_size(partition.committed_metadata or "") > longest:
                errors[topic.name, index] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                positions.append((topic.name, index, partition.committed_offset))
    written = await broker.tree_offsets.commit(request.group_id, positions)
    errors |= {(name, index): error for (name, index, _), error in zip(positions, written, strict=True)}
    _reply(context, request, errors)


def _reply(context: RequestContext, request: OffsetCommitRequest, errors: dict[tuple[str, int], ErrorCode]) -> None:
    """Errors in the order of the request; a partition that was not handed on is unknown."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    context.reply(
        OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index,
                            error_code=errors.get((topic.name, partition.partition_index), unknown),
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    )
