"""Committed offsets of a consumer group, for clients that are not members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.client.coordinator import GroupCoordinator
from ottla.client.errors import InvalidArgumentError
from ottla.client.model import OffsetAndMetadata, TopicPartition, by_topic
from ottla.peer import arguments
from ottla.peer.cluster import Cluster
from ottla.records.batch import NO_LEADER_EPOCH
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)

NO_GENERATION = -1
NO_MEMBER = ""
MEMBERS_IN_CHARGE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
)
ONLY_MEMBERS_MAY = "the group has active members and only they may commit; stop them, or use another group"


class CommittedOffset(NamedTuple):
    """A committed offset with its metadata."""

    offset: int
    metadata: str


class GroupOffsets:
    """The offsets of one group, kept by its coordinator."""

    def __init__(self, cluster: Cluster, group: str, coordinator: GroupCoordinator | None = None) -> None:
        self._cluster = cluster
        self._group = group
        self._coordinator = coordinator or GroupCoordinator(cluster, group)

    async def fetch(
        self, partitions: Sequence[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition, -1 if there is none."""
        found = await self.committed(partitions, timeout_ms)
        return dict.fromkeys(partitions, -1) | {partition: each.offset for partition, each in found.items()}

    async def fetch_all(self) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets of the group; empty for a group that does not exist."""
        return _without_epochs(await self.committed(None))

    async def committed(
        self, partitions: Sequence[TopicPartition] | None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of these partitions, None for all; without partitions that have none."""
        request = fetch_request(self._group, partitions)

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
            return self._committed_in(await self._coordinator.ask(request))

        return await self._cluster.retry(f"reading the offsets of group {self._group}", attempt, timeout_ms)

    def committed_in(self, answer: OffsetFetchResponse) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets in a response to `fetch_request`; partitions without are left out. Raises BrokerError."""
        return _without_epochs(self._committed_in(answer))

    def _committed_in(self, answer: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
        self._coordinator.check(answer.error_code, "offsets cannot be read")
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic, each in _partitions_of(answer):
            self._coordinator.check(each.error_code, f"the offset of {topic}-{each.partition_index} cannot be read")
            if each.committed_offset >= 0:
                committed = OffsetAndMetadata(each.committed_offset, each.metadata or "", each.committed_leader_epoch)
                found[TopicPartition(topic, each.partition_index)] = committed
        return found

    async def commit(
        self, offsets: Mapping[TopicPartition, int], metadata: str = "", timeout_ms: int | None = None
    ) -> None:
        """Commit for a group without members, or whose members do not commit (generation -1, no member id).

        Raises BrokerError if the group has members: only they may commit then.
        """
        wanted = {partition: OffsetAndMetadata(offset, metadata) for partition, offset in offsets.items()}
        await self.commit_all(wanted, timeout_ms)

    async def commit_all(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> None:
        """Same as `commit`, with metadata and leader epoch for each partition."""
        if not offsets:
            return
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id=NO_MEMBER,
            topics=topics_to_commit(offsets),
        )

        async def attempt() -> None:
            answer: OffsetCommitResponse = await self._coordinator.ask(request)
            for topic in answer.topics:
                for each in topic.partitions:
                    detail = ONLY_MEMBERS_MAY if each.error_code in MEMBERS_IN_CHARGE else None
                    what = f"the offset of {topic.name}-{each.partition_index} is not committed"
                    self._coordinator.check(each.error_code, what, detail)

        await self._cluster.retry(f"committing offsets of group {self._group}", attempt, timeout_ms)

    async def delete(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Delete the committed offsets of these partitions; returns an error code for each, NONE on success.

        Raises BrokerError if the group does not exist, or is not a consumer group.
        """
        wanted = {each: OffsetDeleteRequestPartition(partition_index=each.partition) for each in partitions}
        request = OffsetDeleteRequest(
            group_id=self._group,
            topics=[OffsetDeleteRequestTopic(name=name, partitions=each) for name, each in by_topic(wanted).items()],
        )

        async def attempt() -> dict[TopicPartition, int]:
            answer: OffsetDeleteResponse = await self._coordinator.ask(request)
            self._coordinator.check(answer.error_code, "its offsets are not deleted")
            return {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._cluster.retry(f"deleting offsets of group {self._group}", attempt)


def _without_epochs(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, CommittedOffset]:
    return {partition: CommittedOffset(each.offset, each.metadata) for partition, each in committed.items()}


def topics_to_commit(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[OffsetCommitRequestTopic]:
    """Return the offsets as topics of an OffsetCommit request."""
    wanted = {
        partition: OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=each.offset,
            committed_leader_epoch=each.leader_epoch,
            committed_metadata=each.metadata,
        )
        for partition, each in offsets.items()
    }
    return [OffsetCommitRequestTopic(name=name, partitions=each) for name, each in by_topic(wanted).items()]


def fetch_request(
    group: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool = False
) -> OffsetFetchRequest:
    """Return a request for the committed offsets of these partitions, None for all."""
    topics = None
    if partitions is not None:
        wanted = by_topic({partition: partition.partition for partition in partitions})
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
    return OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)


def _partitions_of(answer: OffsetFetchResponse) -> Iterable[tuple[str, OffsetFetchResponsePartition]]:
    return ((topic.name, each) for topic in answer.topics for each in topic.partitions)


def offset_and_metadata(partition: TopicPartition, value: Any) -> OffsetAndMetadata:
    """Return an offset given with its metadata, or as a number. Raises InvalidArgumentError."""
    if not isinstance(value, tuple | list):
        return OffsetAndMetadata(arguments.whole_number(f"the offset of {partition}", value))
    if not 1 <= len(value) <= len(OffsetAndMetadata._fields):
        raise InvalidArgumentError(f"the offset of {partition} is an OffsetAndMetadata or a number, not {value!r:.80}")
    offset, metadata, epoch = OffsetAndMetadata(*value)
    if not isinstance(metadata, str):
        raise InvalidArgumentError(f"the metadata with the offset of {partition} are a text, not {metadata!r:.80}")
    arguments.fitting(f"the text with the offset of {partition}", metadata)
    return OffsetAndMetadata(
        arguments.whole_number(f"the offset of {partition}", offset),
        metadata,
        arguments.whole_number(f"the leader epoch of {partition}", epoch, NO_LEADER_EPOCH, arguments.MAX_INT32),
    )
