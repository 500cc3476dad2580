"""OffsetFetch (key 9), versions 0 to 9: a group's committed positions.

0: positions in the tree (ZooKeeper's), where a partition without one is answered UNKNOWN_TOPIC_OR_PARTITION; 1: those
of the group, no error where nothing is committed; 2: all partitions
by null topics, an error of the whole; 3: throttle time; 5: leader epoch; 6: flexible; 7: only stable positions
(KIP-447); 8: many groups at once (KIP-709); 9: member id and epoch of the newer group protocol, which a group of
this protocol does not look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.groups.offsets import NO_LEADER_EPOCH
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

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.coordinators.groups import CommittedOffset

MIN_VERSION = 0
MAX_VERSION = 9

VERSION_OF_THE_TREE = 0
FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_MANY_GROUPS = 8
INVALID_OFFSET = -1


def handle(context: RequestContext, request: OffsetFetchRequest) -> None:
    """Answer with what is committed."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        groups = [_group(context, group, request.require_stable) for group in request.groups]
        context.reply(OffsetFetchResponse(groups=groups))
    elif context.api_version == VERSION_OF_THE_TREE:
        context.spawn(_from_tree(context, request))
    else:
        context.reply(_single(context, request))


async def _from_tree(context: RequestContext, request: OffsetFetchRequest) -> None:
    """Version 0: positions that version 0 committed, or who else wrote them into the tree."""
    broker = context.broker
    topics = []
    for topic in request.topics or ():
        partitions = []
        for index in topic.partition_indexes:
            found: int | ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic.name in broker.image.topics:
                found = await broker.tree_offsets.fetch(request.group_id, topic.name, index)
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
    context.reply(OffsetFetchResponse(topics=topics))


def _group(context: RequestContext, asked: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    wanted = None
    if asked.topics is not None:
        wanted = [(topic.name, index) for topic in asked.topics for index in topic.partition_indexes]
    found = context.broker.groups.committed(asked.group_id, wanted, require_stable)
    if isinstance(found, ErrorCode):
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=found)
    topics = []
    for name, offsets in _by_topic(found):
        partitions = []
        for _, index, committed, error in offsets:
            partition = OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=INVALID_OFFSET, metadata="", error_code=error
            )
            if committed is not None:
                partition.committed_offset = committed.offset
                partition.committed_leader_epoch = committed.leader_epoch
                partition.metadata = committed.metadata
            partitions.append(partition)
        topics.append(OffsetFetchResponseTopics(name=name, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _single(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    wanted = None
    if request.topics is not None:
        wanted = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    found = context.broker.groups.committed(request.group_id, wanted, request.require_stable)
    if isinstance(found, ErrorCode):
        if context.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
            return OffsetFetchResponse(error_code=found)
        found = [(name, index, None, found) for name, index in wanted or ()]
    topics = []
    for name, offsets in _by_topic(found):
        partitions = []
        for _, index, committed, error in offsets:
            partition = OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=INVALID_OFFSET,
                committed_leader_epoch=NO_LEADER_EPOCH,
                metadata="",
                error_code=error,
            )
            if committed is not None:
                partition.committed_offset = committed.offset
                partition.committed_leader_epoch = committed.leader_epoch
                partition.metadata = committed.metadata
            partitions.append(partition)
        topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return OffsetFetchResponse(topics=topics)


def _by_topic(offsets: Sequence[CommittedOffset]) -> list[tuple[str, list[CommittedOffset]]]:
    """Offsets of one topic together, topics in the order of their first."""
    topics: dict[str, list[CommittedOffset]] = {}
    for offset in offsets:
        topics.setdefault(offset[0], []).append(offset)
    return list(topics.items())
