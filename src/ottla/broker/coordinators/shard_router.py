"""The way from a key, such as a group id, to the shard that serves it: one for every kind of coordinator.

The keys of a kind are spread over the partitions of its internal topic, which is created when it is first asked for.
Source: Apache Kafka 3.9, `KafkaApis.getCoordinator`, `GroupCoordinatorService.topicPartitionFor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger
from typing import Generic, NamedTuple

from ottla.assign.java_order import string_hash
from ottla.broker.coordinators.shard import Shard, Topics
from ottla.cluster.image import BrokerImage, ImageDelta
from ottla.cluster.refusal import TopicRefusal
from ottla.config.broker import BrokerConfig
from ottla.wire.errors import ErrorCode

PARTITION_CACHE_LIMIT = 100_000
"""Most keys whose partition is cached."""
CACHED_KEY_LENGTH = 255
"""Longer keys are not cached: a hundred thousand of 32,767 characters would take 3 GB."""
_SIGN_BIT = 1 << 31


class RoutedTopic(NamedTuple):
    """The internal topic of a kind of coordinator, and the settings of which it is made."""

    name: str
    partitions_setting: str
    replication_setting: str
    served: str
    """In the plural, as messages to the operator begin with it: `Groups`."""


class ShardRouter(Generic[Shard]):
    """Finds the partition, the broker and the shard that a key belongs to; shards only between `start` and `stop`.

    `shards` are those that this broker hosts, by partition.
    """

    def __init__(
        self, topic: RoutedTopic, config: BrokerConfig, topics: Topics, shards: Mapping[int, Shard], log: Logger
    ) -> None:
        self._topic = topic
        self._configured_partitions = config.get_int(topic.partitions_setting)
        self._topics = topics
        self._shards = shards
        self._log = log
        self.is_active = False
        #: Partitions of the topic, 0 as long as it does not exist.
        self.partition_count = 0
        self._partition_cache: dict[str, int] = {}
        #: Why the topic could not be created, as it was last logged.
        self._refusal: TopicRefusal | None = None

    def start(self) -> None:
        """Find shards from now on."""
        self.is_active = True
        self._count_partitions()

    def stop(self) -> None:
        """Find no shards any more."""
        self.is_active = False

    def image_changed(self, delta: ImageDelta) -> None:
        """Handle a change of topics."""
        if any(topic.name == self._topic.name for topic in delta.topics):
            self._count_partitions()

    def _count_partitions(self) -> None:
        topic = self._topics.image.topics.get(self._topic.name)
        count = 0 if topic is None else len(topic.partitions)
        if count != self.partition_count:
            self.partition_count = count
            self._partition_cache.clear()

    def find(self, key: str) -> Shard | ErrorCode:
        """The shard that serves a key, or the error if there is none.

        NOT_COORDINATOR: another broker serves it; COORDINATOR_LOAD_IN_PROGRESS: this one will do so shortly.
        """
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self._shards.get(self.partition_of(key))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if shard.loading else shard

    def partition_of(self, key: str) -> int:
        """The partition of the topic that holds a key; while the topic is absent, the one that will."""
        partition = self._partition_cache.get(key)
        if partition is None:
            if len(self._partition_cache) >= PARTITION_CACHE_LIMIT:
                self._partition_cache.clear()
            partition = partition_of(key, self.partition_count or self._configured_partitions)
            if len(key) <= CACHED_KEY_LENGTH:
                self._partition_cache[key] = partition
        return partition

    def leader_of(self, key: str) -> BrokerImage | None:
        """The broker that coordinates a key, as far as this one knows: the leader of its partition."""
        image = self._topics.image
        topic = image.topics.get(self._topic.name)
        partition = self.partition_of(key)
        if topic is None or partition >= len(topic.partitions):
            return None
        return image.brokers.get(topic.partitions[partition].leader)

    async def ensure_topic(self) -> ErrorCode:
        """Create the topic unless it exists; COORDINATOR_NOT_AVAILABLE if that fails."""
        name = self._topic.name
        if name in self._topics.image.topics:
            return ErrorCode.NONE
        refusal = await self._topics.ensure_topic(name)
        if refusal is None:
            return ErrorCode.NONE
        if refusal.error is not ErrorCode.LEADER_NOT_AVAILABLE and refusal != self._refusal:
            # Once, though clients ask again and again.
            self._refusal = refusal
            cure = ""
            if refusal.error is ErrorCode.INVALID_REPLICATION_FACTOR:
                cure = f": start more brokers, or set {self._topic.replication_setting} to what there is"
            self._log.warning(
                "the topic %s cannot be made: %s %s have no coordinator before%s",
                name,
                refusal.message,
                self._topic.served,
                cure,
            )
        return ErrorCode.COORDINATOR_NOT_AVAILABLE


def partition_of(key: str, partitions: int) -> int:
    """The partition that holds a key, as Apache Kafka computes it (`Utils.abs` of Java's hash)."""
    hashed = string_hash(key)
    magnitude = hashed if hashed < _SIGN_BIT else 2 * _SIGN_BIT - hashed
    return (0 if hashed == _SIGN_BIT else magnitude) % partitions
