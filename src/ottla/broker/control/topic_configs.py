"""The settings of topics: those in force here, and their changes by clients and by other brokers.

Any broker changes them in the znodes; they are in no request of the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.control.refusals import METADATA_ERRORS
from ottla.broker.control.znodes import find_topic_config, reconfiguration, reconfigured
from ottla.cluster.configs import oversized, topic_refusal, unknown_topic
from ottla.cluster.controller_events import ConfigsChanged
from ottla.cluster.image import ImageDelta, TopicDelta
from ottla.cluster.refusal import TopicRefusal
from ottla.config.broker import ConfigRefusal
from ottla.config.topic import LogConfig
from ottla.zk.layout import TopicConfigZnode, ZnodeDataError

if TYPE_CHECKING:
    from ottla.broker.control.controller_shell import ControllerShell
    from ottla.broker.control.coordination import ClusterSession
    from ottla.broker.control.membership import ClusterMembership
    from ottla.broker.control.metadata_publisher import MetadataPublisher
    from ottla.config.broker import BrokerConfig

log = logging.getLogger("ottla.topics")

#: Topics whose settings changed before this broker knew them; of more the oldest are forgotten.
MOST_CONFIGURED_EARLY = 10_000


class TopicConfigs:
    """The settings of the topics in the image. `spawn` runs work that nothing waits for."""

    def __init__(
        self,
        session: ClusterSession,
        config: BrokerConfig,
        publisher: MetadataPublisher,
        membership: ClusterMembership,
        controller: ControllerShell,
        spawn: Callable[[Awaitable[None]], None],
    ) -> None:
        self._session = session
        self._config = config
        self._publisher = publisher
        self._image = publisher.image
        self._membership = membership
        self._controller = controller
        self._spawn = spawn
        #: Of topics that the image does not have yet: settings of those hosted here; names of those that changed them.
        self.unheard: dict[str, Mapping[str, str]] = {}
        self._configured_early: dict[str, bool] = {}
        self._configuring = asyncio.Lock()
        self._subscribers: list[Callable[[str, LogConfig], None]] = []

    def subscribe(self, callback: Callable[[str, LogConfig], None]) -> None:
        """Have `callback(topic, log_config)` called inside every change of a topic's settings."""
        self._subscribers.append(callback)

    def log_config(self, topic: str) -> LogConfig:
        """The log configuration of a topic; an invalid setting of the topic is replaced by the broker's."""
        known = self._image.topics.get(topic)
        return self.log_config_of(topic, known.configs if known is not None else {})

    def log_config_of(self, topic: str, configs: Mapping[str, str]) -> LogConfig:
        """The log configuration of a topic with these settings of its own."""
        config, problems = LogConfig.in_force(self._config, configs)
        if problems:
            log.error("some settings of topic %s are not used: %s", topic, "; ".join(problems))
        return config

    def note(self, name: str) -> None:
        """Pass the settings of a topic that is new in the image to its logs here."""
        self.unheard.pop(name, None)
        if self._configured_early.pop(name, None) is not None:
            self._spawn(self._reload_early(name))
        log_config = self.log_config(name)
        for callback in self._subscribers:
            callback(name, log_config)

    async def change(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str] | TopicRefusal], *, validate_only: bool
    ) -> TopicRefusal | None:
        """Apply `change` to a topic's settings; return the refusal if that fails.

        The settings are in force when this returns. Any broker does this, as in Apache Kafka, and notifies the others
        by a znode under `/config/changes`. Several may do so at once: each change is made to what the znode has.
        """
        async with self._configuring:
            return await reconfigured(lambda: self._change(name, change, validate_only))

    async def _change(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str] | TopicRefusal], validate_only: bool
    ) -> TopicRefusal | None:
        """As `change`, once. Raises `DiskError`, `ZkError`, `ZnodeDataError`."""
        topic = self._image.topics.get(name)
        if topic is None:
            return unknown_topic(name)
        present, version = await find_topic_config(self._session.zk, name)
        configs = change(present)
        if isinstance(configs, TopicRefusal):
            return configs
        log_config = LogConfig.of(self._config, configs)
        if isinstance(log_config, ConfigRefusal):
            return topic_refusal(name, log_config)
        path, data = TopicConfigZnode.path(name), TopicConfigZnode.encode(configs)
        refusal = oversized(configs, len(data))
        if refusal is not None or validate_only:
            return refusal
        if configs != present:
            operations = await reconfiguration(self._session.zk, path, f"topics/{name}", data, version)
            fence = () if self._session.accepts_others else (self._membership.term.fence(),)
            await self._session.zk.multi([*fence, *operations])
        if configs != topic.configs:
            self._configured(name, configs)
        return None

    async def reload(self, name: str) -> None:
        """Reload a topic's settings after another process changed them. Raises `ZkError`, `ZnodeDataError`."""
        async with self._configuring:
            topic = self._image.topics.get(name)
            if topic is None:
                # It may be in the image soon, with settings that were read before this change.
                self.unheard.pop(name, None)
                self._configured_early[name] = True
                if len(self._configured_early) > MOST_CONFIGURED_EARLY:
                    del self._configured_early[next(iter(self._configured_early))]
                return
            configs = (await find_topic_config(self._session.zk, name)).configs
            if configs != topic.configs:
                self._configured(name, configs)

    async def _reload_early(self, name: str) -> None:
        try:
            await self.reload(name)
        except (*METADATA_ERRORS, ZnodeDataError) as error:
            log.error("the settings of topic %s, which have changed, cannot be read: %s", name, error)

    def _configured(self, name: str, configs: Mapping[str, str]) -> None:
        topic = self._image.topics.get(name)
        if topic is None:
            return  # deleted meanwhile
        delta = ImageDelta((TopicDelta(topic, topic._replace(configs=configs)),))
        self._image.apply(delta)
        self._controller.post(ConfigsChanged(name, configs))
        self._publisher.notify(delta)
        log_config = self.log_config(name)
        for callback in self._subscribers:
            callback(name, log_config)
