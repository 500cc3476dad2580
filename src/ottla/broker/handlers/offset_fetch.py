"""OffsetFetch (key 9), versions 0-9: a group's committed offsets.

0: offsets in ZooKeeper, where a partition without one is answered with UNKNOWN_TOPIC_OR_PARTITION; 1: those of the
group, no error if nothing is committed; 2: all partitions by null topics, a top-level error; 3: throttle time; 5:
leader epoch; 6: flexible; 7: stable offsets only (KIP-447); 8: many groups (KIP-709); 9: member id and epoch of the
newer group protocol, which classic groups ignore.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ottla.broker.authorization import Accesses, on_group, on_topics
from ottla.broker.context import RequestContext
from ottla.broker.coordinators.groups import CommittedOffset
from ottla.cluster.acls import Operation, ResourceType
from ottla.groups.records import StoredOffset
from ottla.records.batch import NO_LEADER_EPOCH
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.sliced import mapped

ZOOKEEPER_VERSION = 0
FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_MANY_GROUPS = 8
INVALID_OFFSET = -1


def accesses(context: RequestContext, request: OffsetFetchRequest) -> Accesses:
    groups = (
        [(group.group_id, group.topics) for group in request.groups]
        if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS
        else [(request.group_id, request.topics)]
    )
    for group_id, topics in groups:
        yield on_group(Operation.DESCRIBE, group_id)
        if topics is None:
            found = context.broker.groups.committed(group_id, None, False)
            names = [] if isinstance(found, ErrorCode) else [name for name, _, _, _ in found]
        else:
            names = [topic.name for topic in topics]
        yield from on_topics(Operation.DESCRIBE, dict.fromkeys(names))


def handle(context: RequestContext, request: OffsetFetchRequest) -> None:
    if context.api_version == ZOOKEEPER_VERSION:
        context.spawn(_fetch_from_zookeeper(context, request))
    elif context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        described: set[str] = set()
        groups = mapped(request.groups, lambda group: _group(context, group, request.require_stable, described))
        context.reply_in_slices(OffsetFetchResponse(groups=groups))
    else:
        context.reply_in_slices(_single(context, request))


async def _fetch_from_zookeeper(context: RequestContext, request: OffsetFetchRequest) -> None:
    """Version 0: offsets below `/consumers`, committed with version 0 or written there by other programs."""
    broker = context.broker
    topics = []
    readable = context.permits(Operation.DESCRIBE, ResourceType.GROUP, request.group_id)
    for topic in request.topics or ():
        await broker.slices.point()
        partitions = []
        for index in topic.partition_indexes:
            await broker.slices.point()
            if context.is_gone:
                return
            found: int | ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not readable:
                found = ErrorCode.GROUP_AUTHORIZATION_FAILED
            elif not context.permits(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                found = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic.name in broker.image.topics:
                found = await broker.zookeeper_offsets.fetch(request.group_id, topic.name, index)
            is_error = isinstance(found, ErrorCode)
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=INVALID_OFFSET if is_error else found,
                    metadata="",
                    error_code=found if is_error else ErrorCode.NONE,
                )
            )
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    await context.replied(OffsetFetchResponse(topics=topics))


def _group(
    context: RequestContext, requested: OffsetFetchRequestGroup, require_stable: bool, described: set[str]
) -> OffsetFetchResponseGroup:
    """The committed offsets of one of many groups. All partitions of a group are returned once per response, even if
    the request asks for them repeatedly.
    """
    group_id = requested.group_id
    if requested.topics is None:
        if group_id in described:
            return OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.INVALID_REQUEST)
        described.add(group_id)
    topics = _topics(
        context, group_id, requested.topics, require_stable, OffsetFetchResponseTopics, OffsetFetchResponsePartitions
    )
    if isinstance(topics, ErrorCode):
        return OffsetFetchResponseGroup(group_id=group_id, error_code=topics)
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _single(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """The committed offsets of the only group in the request."""
    topics = _topics(
        context,
        request.group_id,
        request.topics,
        request.require_stable,
        OffsetFetchResponseTopic,
        OffsetFetchResponsePartition,
    )
    if not isinstance(topics, ErrorCode):
        return OffsetFetchResponse(topics=topics)
    if context.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponse(error_code=topics)
    error = topics
    return OffsetFetchResponse(
        topics=mapped(
            request.topics or (),
            lambda topic: OffsetFetchResponseTopic(
                name=topic.name,
                partitions=mapped(
                    topic.partition_indexes, lambda index: _partition(OffsetFetchResponsePartition, index, None, error)
                ),
            ),
        )
    )


def _topics(
    context: RequestContext,
    group_id: str,
    requested: Collection[Any] | None,
    require_stable: bool,
    topic_class: type[Any],
    partition_class: type[Any],
) -> Any | ErrorCode:
    """The topics of a response, computed while it is encoded, or the group's error."""
    if not context.permits(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = context.broker.groups
    found = groups.committed(group_id, None if requested is None else (), require_stable)
    if isinstance(found, ErrorCode):
        return found

    def partition(one: CommittedOffset) -> Any:
        _, index, committed, error = one
        return _partition(partition_class, index, committed, error)

    if requested is None:
        seen = [
            (name, offsets)
            for name, offsets in _by_topic(found).items()
            if context.permits(Operation.DESCRIBE, ResourceType.TOPIC, name)
        ]
        return mapped(seen, lambda item: topic_class(name=item[0], partitions=mapped(item[1], partition)))

    def topic(topic: Any) -> Any:
        name = topic.name
        if not context.permits(Operation.DESCRIBE, ResourceType.TOPIC, name):
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            partitions = mapped(
                topic.partition_indexes, lambda index: _partition(partition_class, index, None, refused)
            )
            return topic_class(name=name, partitions=partitions)

        def committed(index: int) -> Any:
            found = groups.committed(group_id, ((name, index),), require_stable)
            if isinstance(found, ErrorCode):
                return _partition(partition_class, index, None, found)
            return partition(found[0])

        return topic_class(name=name, partitions=mapped(topic.partition_indexes, committed))

    return mapped(requested, topic)


def _partition(cls: type[Any], index: int, committed: StoredOffset | None, error: ErrorCode) -> Any:
    if committed is None:
        return cls(
            partition_index=index,
            committed_offset=INVALID_OFFSET,
            committed_leader_epoch=NO_LEADER_EPOCH,
            metadata="",
            error_code=error,
        )
    return cls(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )


def _by_topic(offsets: Sequence[CommittedOffset]) -> dict[str, list[CommittedOffset]]:
    """Group offsets by topic, in order of first appearance."""
    topics: dict[str, list[CommittedOffset]] = {}
    for offset in offsets:
        topics.setdefault(offset[0], []).append(offset)
    return topics
