"""The broker's image of the cluster, and the one way in which it changes: delta by delta.

A delta of this broker's own controller is applied to the hosted partitions first; in another controller's requests
(`control_requests`) the roles come apart from the metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.cluster.image import ClusterImage, ImageDelta, TopicDelta

if TYPE_CHECKING:
    from ottla.broker.control.first_metadata import FirstBrokers, UnheardTopics
    from ottla.cluster.image import TopicImage


class Host(Protocol):
    """Applies changes of the image to the partitions that the broker hosts."""

    async def begin(self, delta: ImageDelta) -> None:
        """Create new replicas. Raises `DiskError`."""
        ...

    async def end(self, delta: ImageDelta) -> None:
        """Remove replicas that are not hosted any more. Raises `DiskError`."""
        ...

    async def take_again(self, image: ClusterImage) -> None:
        """Take roles of the image that a full disk kept from being taken."""
        ...

    def has_roles(self, topic: TopicImage) -> bool:
        """Whether the broker's replicas of the topic have the roles that the image says."""
        ...

    def has_log_of(self, topic: TopicImage) -> bool:
        """Whether the broker has a log of any partition of the topic."""
        ...


class NoHost:
    """Hosts no partitions: for tools and tests of the control plane alone."""

    async def begin(self, delta: ImageDelta) -> None:
        """See `Host.begin`."""

    async def end(self, delta: ImageDelta) -> None:
        """See `Host.end`."""

    async def take_again(self, image: ClusterImage) -> None:
        """See `Host.take_again`."""

    def has_roles(self, topic: TopicImage) -> bool:
        """See `Host.has_roles`."""
        return True

    def has_log_of(self, topic: TopicImage) -> bool:
        """See `Host.has_log_of`."""
        return False


class MetadataPublisher:
    """Changes the image and notifies the subscribers, as Kafka's `BrokerMetadataPublisher` does."""

    def __init__(self, unheard_topics: UnheardTopics, first_brokers: FirstBrokers) -> None:
        self.image = ClusterImage()
        self.host: Host = NoHost()
        #: Held while a change of the cluster is applied to this broker.
        self.applying = asyncio.Lock()
        self.unheard_topics = unheard_topics
        self._first_brokers = first_brokers
        self._subscribers: list[Callable[[ImageDelta], None]] = []

    def subscribe(self, callback: Callable[[ImageDelta], None]) -> None:
        """Have `callback(delta)` called inside every change of the image, after the hosted partitions have changed."""
        self._subscribers.append(callback)

    async def apply(self, delta: ImageDelta) -> None:
        """Apply a change: host new replicas, change the image, notify the subscribers, remove old replicas.

        Raises `DiskError`; the image then does not contain the replicas that could not be hosted.
        """
        async with self.applying:
            delta = self._with_own_configs(delta)
            await self.host.begin(delta)
            self._publish(delta)
            await self.host.end(delta)

    def publish(self, delta: ImageDelta) -> None:
        """Change the image and notify the subscribers; the hosted partitions are changed by others."""
        self._publish(self._with_own_configs(delta))

    def _publish(self, delta: ImageDelta) -> None:
        self.image.apply(delta)
        self.unheard_topics.heard(topic.name for topic in delta.topics)
        if self.image.brokers:
            self._first_brokers.heard()
        self.notify(delta)

    def notify(self, delta: ImageDelta) -> None:
        """Notify the subscribers of a delta that the image has already."""
        for subscriber in self._subscribers:
            subscriber(delta)

    def _with_own_configs(self, delta: ImageDelta) -> ImageDelta:
        """Keep the image's settings: they do not come from the controller, and may be newer than the delta."""
        topics = []
        for before, after in delta.topics:
            known = self.image.topics.get(after.name) if after is not None else None
            if after is not None and known is not None and known.topic_id == after.topic_id:
                after = after._replace(configs=known.configs)
            topics.append(TopicDelta(before, after))
        return delta._replace(topics=tuple(topics))
