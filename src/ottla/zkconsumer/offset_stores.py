"""The stores of a group's offsets: in ZooKeeper, with the group's coordinator in Kafka, or in both.

Source: Apache Kafka 0.8.2.2, `ZookeeperConsumerConnector.commitOffsets` and `fetchOffsets`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from ottla.client.group_offsets import GroupOffsets
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.zk.client import ZkClient
from ottla.zk.layout import ConsumerOffsetZnode
from ottla.zk.tree import NodeExistsError, NoNodeError
from ottla.zkconsumer.partition_info import INVALID_OFFSET
from ottla.zkconsumer.znodes import make_node


class OffsetStore(Protocol):
    """One attempt each; who calls it tries again. Errors are ClientErrors and `ZkError`s."""

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of each partition, -1 where none is kept."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, changed_only: bool = False) -> None:
        """Keep these; metadata is kept by Kafka alone.

        With `changed_only` those of owned partitions may be left out that are as they were fetched, or committed last.
        """
        ...


class ZooKeeperOffsets:
    """A node per partition."""

    def __init__(self, zk: ZkClient, group: str) -> None:
        self._zk = zk
        self._group = group
        #: What the nodes of this consumer's partitions hold, as far as it knows.
        self._checkpointed: dict[TopicPartition, int] = {}

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See `OffsetStore.fetch`. `ZnodeDataError` for a node that holds no number."""
        found: dict[TopicPartition, int] = {}
        for partition in sorted(partitions):
            path = ConsumerOffsetZnode.path(self._group, *partition)
            try:
                found[partition] = ConsumerOffsetZnode.decode(path, (await self._zk.get(path))[0])
            except NoNodeError:
                found[partition] = INVALID_OFFSET
        self._checkpointed.update(found)
        return found

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, changed_only: bool = False) -> None:
        """See `OffsetStore.commit`."""
        for partition, committed in offsets.items():
            if not changed_only or self._checkpointed.get(partition) != committed.offset:
                await self._write(partition, committed.offset)
                self._checkpointed[partition] = committed.offset

    async def _write(self, partition: TopicPartition, offset: int) -> None:
        path, data = ConsumerOffsetZnode.path(self._group, *partition), ConsumerOffsetZnode.encode(offset)
        try:
            await self._zk.set(path, data)
        except NoNodeError:
            try:
                await make_node(self._zk, path, data)
            except NodeExistsError:  # another consumer's first commit came in between
                await self._zk.set(path, data)


class KafkaOffsets:
    """The coordinator of the group, in its topic `__consumer_offsets`, as for newer consumers without members."""

    def __init__(self, group_offsets: Callable[[], Awaitable[GroupOffsets]], timeout_ms: int) -> None:
        self._group_offsets = group_offsets
        self._timeout_ms = timeout_ms

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See `OffsetStore.fetch`."""
        found = await (await self._group_offsets()).committed(sorted(partitions), self._timeout_ms)
        return {each: found[each].offset if each in found else INVALID_OFFSET for each in partitions}

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, changed_only: bool = False) -> None:
        """See `OffsetStore.commit`."""
        await (await self._group_offsets()).commit_all(offsets, self._timeout_ms)


class DualOffsets:
    """Both, for a group that moves from ZooKeeper to Kafka: the later offset counts, and both are written."""

    def __init__(self, kafka: OffsetStore, zookeeper: OffsetStore) -> None:
        self._kafka = kafka
        self._zookeeper = zookeeper

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See `OffsetStore.fetch`."""
        in_kafka = await self._kafka.fetch(partitions)
        in_zookeeper = await self._zookeeper.fetch(partitions)
        return {each: max(in_kafka[each], in_zookeeper[each]) for each in partitions}

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, changed_only: bool = False) -> None:
        """See `OffsetStore.commit`. What Kafka refuses does not go to ZooKeeper either."""
        await self._kafka.commit(offsets, changed_only=changed_only)
        await self._zookeeper.commit(offsets, changed_only=changed_only)
