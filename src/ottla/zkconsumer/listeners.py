"""The watches of a consumer: members of its group, partitions of its topics, topics for its filter, brokers.

ZooKeeper's watches fire once. A consumer sets those that have fired again before it reads, so that nothing is missed.

Source: Apache Kafka 0.8.2.2, `ZookeeperConsumerConnector.reinitializeConsumer`, `ZookeeperTopicEventWatcher`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from ottla.zk.client import Watcher, ZkClient
from ottla.zk.layout import BrokerIdZnode, ConsumerIdZnode, ConsumerRegistration, TopicZnode
from ottla.zk.tree import NodeExistsError, NoNodeError, WatchEvent
from ottla.zkconsumer.context import streams_of
from ottla.zkconsumer.znodes import children_or_none, make_node

T = TypeVar("T")


class Listeners:
    """Sets a consumer's watches; `on_event` is called for each that fires."""

    def __init__(
        self,
        zk: ZkClient,
        group: str,
        registration: ConsumerRegistration,
        on_event: Callable[[], None],
        *,
        exclude_internal_topics: bool,
        always_watch_brokers: bool,
    ) -> None:
        self._zk = zk
        self._group = group
        self._registration = registration
        self._on_event = on_event
        self._exclude_internal_topics = exclude_internal_topics
        self._always_watch_brokers = always_watch_brokers
        #: The topics found for a filter; looked at again when their parent's watch has fired.
        self._topics: list[str] = []
        self._armed: set[str] = set()

    def forget(self) -> None:
        """The session is over, and its watches with it."""
        self._armed.clear()

    async def arm(self) -> None:
        """Set all watches that are not set. Raises `ZkError`s."""
        await self._watch_unless_set(ConsumerIdZnode.group_path(self._group))
        if self._registration.pattern != "static" and TopicZnode.ROOT not in self._armed:
            self._topics = await self._watch_children(TopicZnode.ROOT)
        for topic in self._streams():
            path = TopicZnode.path(topic)
            if path not in self._armed:
                await self._armed_by(path, self._zk.exists)
        if self._always_watch_brokers:
            await self._watch_unless_set(BrokerIdZnode.ROOT)

    async def _watch_unless_set(self, path: str) -> None:
        if path not in self._armed:
            await self._watch_children(path)

    async def broker_is_alive(self) -> bool:
        """Whether a broker is alive; while none is, the first one to register is an event."""
        if await children_or_none(self._zk, BrokerIdZnode.ROOT):
            return True
        return bool(await self._watch_children(BrokerIdZnode.ROOT))

    async def watch_releases(self, owner_paths: Collection[str]) -> None:
        """Watch owner nodes that were in the way: an event follows when one is deleted or already gone. `ZkError`s."""
        for path in owner_paths:
            if path not in self._armed and await self._armed_by(path, self._zk.exists) is None:
                self._on_event()

    def _streams(self) -> Mapping[str, int]:
        return streams_of(self._registration, self._topics, exclude_internal_topics=self._exclude_internal_topics)

    async def _watch_children(self, path: str) -> list[str]:
        """The node's children, with the watch set unless it is; the node is made where it is missing."""
        if path in self._armed:
            return await self._zk.children(path)
        try:
            return await self._armed_by(path, self._zk.children)
        except NoNodeError:
            await _make_durable(self._zk, path)
            return await self._armed_by(path, self._zk.children)

    async def _armed_by(self, path: str, read: Callable[[str, Watcher], Awaitable[T]]) -> T:
        def fired(_event: WatchEvent) -> None:
            self._armed.discard(path)
            self._on_event()

        self._armed.add(path)  # marked before the read: the watch may fire before the reader continues
        try:
            return await read(path, fired)
        except BaseException:
            self._armed.discard(path)
            raise


async def _make_durable(zk: ZkClient, path: str) -> None:
    try:
        await make_node(zk, path, None)
    except NodeExistsError:
        return
