"""The cluster as a broker knows it: brokers, topics, leaders. An image never changes; a change makes a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.config.listeners import Endpoint

NO_LEADER = -1


class BrokerImage(NamedTuple):
    """A living broker and where its listeners are."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Its address on the listener of that name; None where it has no such listener."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener_name == listener_name), None)


class PartitionImage(NamedTuple):
    """A partition's leader (-1 for none), the leader's epoch, all replicas, those in sync, and those out of service."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


class TopicImage(NamedTuple):
    """A topic: its id, its partitions in order, what it sets itself."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]
    is_internal: bool

    @property
    def replication_factor(self) -> int:
        """Replicas of its first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class ClusterImage:
    """Brokers by id, topics by name (in the order of their names when it was read), names by topic id.

    `version` grows with each change, so that what was made from an image can be kept until then.
    """

    __slots__ = ("brokers", "cluster_id", "controller_id", "topic_names", "topics", "version")

    def __init__(
        self,
        cluster_id: str = "",
        controller_id: int = -1,
        brokers: Mapping[int, BrokerImage] | None = None,
        topics: Mapping[str, TopicImage] | None = None,
        version: int = 0,
    ) -> None:
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.brokers: Mapping[int, BrokerImage] = brokers if brokers is not None else {}
        self.topics: Mapping[str, TopicImage] = topics if topics is not None else {}
        self.topic_names: Mapping[UUID, str] = {topic.topic_id: topic.name for topic in self.topics.values()}
        self.version = version

    def with_topic(self, topic: TopicImage) -> ClusterImage:
        """The image with a topic added or replaced."""
        return self.with_topics({**self.topics, topic.name: topic})

    def without_topic(self, name: str) -> ClusterImage:
        """The image without a topic."""
        return self.with_topics({known: topic for known, topic in self.topics.items() if known != name})

    def with_topics(self, topics: Mapping[str, TopicImage]) -> ClusterImage:
        """The image with these topics and no others."""
        return ClusterImage(self.cluster_id, self.controller_id, self.brokers, topics, self.version + 1)
