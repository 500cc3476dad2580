"""Follows changes that other processes make to the znodes: topics created, extended or marked for deletion, settings,
and requests of tools to the controller.

Older tools write the znodes themselves; newer ones ask a broker. Pending paths are kept in a set: a watch that fires
adds its path, and each read sets the watch again. This broker's own changes fire watches, too, and are recognized as
known.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.broker.control.metadata_writes import requests_left
from ottla.broker.control.quota_store import ENTITY_PREFIXES
from ottla.broker.control.refusals import is_passing
from ottla.broker.control.topic_reads import decoded_in_slices
from ottla.cluster.controller_events import LogDirsFailed
from ottla.cluster.refusal import TopicRefusal
from ottla.env.disk import DiskError
from ottla.zk.layout import (
    BrokerConfigZnode,
    ConfigChangeZnode,
    DeleteTopicZnode,
    IsrChangeNotificationZnode,
    LogDirEventNotificationZnode,
    PreferredReplicaElectionZnode,
    ReassignPartitionsZnode,
    TopicConfigZnode,
    TopicZnode,
    UserConfigZnode,
    ZnodeDataError,
)
from ottla.zk.tree import BadVersionError, Delete, EventType, NoNodeError, WatchEvent, ZkError

if TYPE_CHECKING:
    from ottla.broker.control.dynamic_settings import DynamicSettings
    from ottla.broker.control.plane import ControlPlane
    from ottla.env.clock import Clock
    from ottla.zk.client import ZkClient

log = logging.getLogger("ottla.topics")

#: Pause between two rounds of reads, so that a thousand changes do not cause a thousand reads of each topic.
PAUSE_S = 0.05
#: Pause after reads that failed though there was a connection again: one that comes and goes is not asked all the time.
AGAIN_S = 0.5
#: Znodes read together.
LOOKS_AT_ONCE = 50

#: Tools wait until these are deleted.
_REQUESTS = (ReassignPartitionsZnode.PATH, PreferredReplicaElectionZnode.PATH)
#: Brokers write below these to notify the controller, which deletes what it has read.
_NOTIFICATIONS = (LogDirEventNotificationZnode.ROOT, IsrChangeNotificationZnode.ROOT)
_ROOTS = (TopicZnode.ROOT, DeleteTopicZnode.ROOT, ConfigChangeZnode.ROOT, *_REQUESTS, *_NOTIFICATIONS)
_TOPIC_CONFIGS = TopicConfigZnode.ROOT.removeprefix("/config/") + "/"
_USER_CONFIGS = UserConfigZnode.ROOT.removeprefix("/config/") + "/"
_BROKER_CONFIGS = BrokerConfigZnode.path("").removeprefix("/config/")


class WatchedChanges:
    """Follows changes of the znodes from `start` to `stop`."""

    def __init__(
        self, zk: ZkClient, control: ControlPlane, settings: DynamicSettings, broker_id: int, clock: Clock
    ) -> None:
        self._zk = zk
        self._control = control
        self._settings = settings
        self._broker_names = (str(broker_id), BrokerConfigZnode.DEFAULT)
        self._clock = clock
        self._due: dict[str, None] = {}
        #: Topics whose znode is watched.
        self._watched: set[str] = set()
        #: Topics that are read even if they seem to be known.
        self._doubtful: set[str] = set()
        self._last_change = -1
        #: When the changes of settings were last read, and whether older ones than those still there may be missing:
        #: notifications are removed after a while.
        self._settings_read_ms = clock.now_ms()
        self._is_all_due = False
        self._running: asyncio.Task[None] | None = None
        self._stopped = False
        #: Whether there was a reconnection since the current round began.
        self._resumed = False
        #: Whether reads wait for ZooKeeper, as the log says, once for all of them.
        self._is_waiting = False

    def start(self) -> None:
        """Full scan first, then incremental."""
        self.resume(is_new_session=True)

    def resume(self, is_new_session: bool) -> None:
        """Continue after a reconnection; a new session has no watches."""
        if is_new_session:
            self._watched.clear()
            self._due.update(dict.fromkeys(_ROOTS))
            self._is_all_due = True
        self._resumed = True
        self._wake()

    async def stop(self) -> None:
        """Stop following changes."""
        self._stopped = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _changed(self, event: WatchEvent) -> None:
        self._due[event.path] = None
        if event.type is not EventType.CHILDREN_CHANGED:
            self._watched.discard(event.path.rpartition("/")[2])
        self._wake()

    def _wake(self) -> None:
        if not self._stopped and (self._running is None or self._running.done()):
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._due:
            self._resumed = False
            paths = list(self._due)[:LOOKS_AT_ONCE]
            for path in paths:
                del self._due[path]
            done = await asyncio.gather(*map(self._look, paths))
            if not all(done) and not self._resumed:
                return  # pending paths stay until there is a connection
            await asyncio.sleep(PAUSE_S if all(done) else AGAIN_S)

    async def _look(self, path: str) -> bool:
        """Read a changed znode; return False if it has to be read again later."""
        if not (self._control.is_controller or self._control.session.accepts_others):
            self._due[path] = None  # until this broker is elected again
            return False
        if not (self._control.is_controller or path == ConfigChangeZnode.ROOT):
            return True  # the controller tells what there is; `start` is called when this broker becomes it
        try:
            if path == TopicZnode.ROOT:
                await self._look_at_topics()
            elif path == DeleteTopicZnode.ROOT:
                await self._control.finish_deletions(self._changed)
            elif path == ConfigChangeZnode.ROOT:
                await self._look_at_config_changes()
            elif path in _REQUESTS:
                await self._look_at_request(path)
            elif path in _NOTIFICATIONS:
                await self._look_at_notifications(path)
            else:
                await self._look_at_topic(path)
        except (DiskError, ZkError, ZnodeDataError) as error:
            if is_passing(error):
                self._due[path] = None
                if not self._is_waiting:
                    self._is_waiting = True
                    log.warning("changes of znodes are read when ZooKeeper is there again: %s", error)
                return False
            log.error("a change of %s in the coordination metadata could not be followed: %s", path, error)
        self._is_waiting = False
        return True

    async def _look_at_topics(self) -> None:
        for name in await self._zk.children(TopicZnode.ROOT, self._changed):
            if name not in self._watched:
                self._due[TopicZnode.path(name)] = None

    def look_at_topic(self, name: str) -> None:
        """Read a topic's znodes after a change that failed, or whose response was lost."""
        self._doubtful.add(name)
        self._due[TopicZnode.path(name)] = None
        self._due[DeleteTopicZnode.ROOT] = None
        self._wake()

    async def _look_at_topic(self, path: str) -> None:
        name = path.removeprefix(f"{TopicZnode.ROOT}/").partition("/")[0]
        control = self._control
        try:
            data, _ = await self._zk.get(TopicZnode.path(name), self._changed)
            self._watched.add(name)
        except NoNodeError:
            if name in control.image.topics:
                log.error(
                    "the znode of topic %s was removed. Its records are kept, and it is served until this "
                    "broker ends; to delete a topic, mark it in %s",
                    name,
                    DeleteTopicZnode.ROOT,
                )
                await control.take_over(name)
            return
        is_doubtful = name in self._doubtful
        self._doubtful.discard(name)
        assignment = await decoded_in_slices(name, data)
        known = control.image.topics.get(name)
        if is_doubtful or known is None or len(assignment.partitions) > len(known.partitions):
            try:
                await control.take_over(name)
            except ZkError:
                self._doubtful.add(name)  # it is read when ZooKeeper is there again
                raise

    async def _look_at_request(self, path: str) -> None:
        """Carry out a tool's request in a znode, which is deleted when that is done, as Kafka's controller does."""
        if await self._zk.exists(path, self._changed) is None:
            return
        with suppress(NoNodeError):
            data, stat = await self._zk.get(path)
            if path == ReassignPartitionsZnode.PATH:
                wanted = ReassignPartitionsZnode.decode(data)
                result = await self._control.admin.reassign(wanted)
                if isinstance(result, TopicRefusal):
                    return  # the next controller reads it
                reasons = {key: refusal.message for key, refusal in result.refusals.items()}
                # The controller takes out what is done.
                ended = requests_left(wanted, reasons, stat.version)
            else:
                reasons = dict(await self._control.admin.elect_preferred(PreferredReplicaElectionZnode.decode(data)))
                ended = [Delete(path, stat.version)]
            for (topic, number), reason in reasons.items():
                log.error("partition %s-%d stays as it is: %s", topic, number, reason)
            # If it was changed meanwhile its watch has fired.
            with suppress(BadVersionError):
                await self._zk.multi(ended)

    async def _look_at_notifications(self, root: str) -> None:
        """Follow and delete the notifications of brokers: failed log directories, ISRs that they have written."""
        if not self._control.is_controller:
            return
        brokers: dict[int, None] = {}
        for name in await self._zk.children(root, self._changed):
            path = f"{root}/{name}"
            with suppress(NoNodeError):
                data, _ = await self._zk.get(path)
                try:
                    if root == LogDirEventNotificationZnode.ROOT:
                        brokers[LogDirEventNotificationZnode.decode(path, data)] = None
                    else:
                        # Brokers below Kafka 2.7 write ISRs themselves.
                        for topic, _ in IsrChangeNotificationZnode.decode(path, data):
                            self.look_at_topic(topic)
                except ZnodeDataError as error:
                    log.error("a notification could not be followed: %s", error)
                await self._zk.delete(path)
        if brokers:
            self._control.controller.post(LogDirsFailed(tuple(brokers)))

    async def _look_at_config_changes(self) -> None:
        entities: dict[str, None] = {}
        last = self._last_change
        read: dict[str, int] = {}
        for name in await self._zk.children(ConfigChangeZnode.ROOT, self._changed):
            path = f"{ConfigChangeZnode.ROOT}/{name}"
            number = path.removeprefix(ConfigChangeZnode.PREFIX)
            if not number.isdecimal() or int(number) <= self._last_change:
                continue
            with suppress(NoNodeError):
                data, stat = await self._zk.get(path)
                read[path] = stat.ctime_ms
                try:
                    entities[ConfigChangeZnode.decode(path, data)] = None
                except ZnodeDataError as error:
                    log.error("a change of settings could not be followed: %s", error)
            last = max(last, int(number))
        for entity in entities:
            if entity.startswith(_TOPIC_CONFIGS):
                await self._reload_topic(entity.removeprefix(_TOPIC_CONFIGS))
            elif entity.startswith(_BROKER_CONFIGS) and entity.removeprefix(_BROKER_CONFIGS) in self._broker_names:
                await self._reload_own()
            elif entity.startswith(ENTITY_PREFIXES):
                if self._control.known_quotas is not None:
                    await self._control.known_quotas.reload(entity)
                if self._control.known_users is not None and entity.startswith(_USER_CONFIGS):
                    await self._control.known_users.reload(entity)
        # By ZooKeeper's clock, as where changes are made.
        newest_ms = max(read.values(), default=0)
        for path, ctime_ms in read.items():
            if newest_ms - ctime_ms > ConfigChangeZnode.EXPIRATION_MS:
                with suppress(NoNodeError):
                    await self._zk.delete(path)
        if self._is_all_due:
            await self._read_all_settings()
        # Only now: if the connection is lost before all were applied, all are read again.
        self._last_change = last
        self._settings_read_ms = self._clock.now_ms()

    async def _reload_topic(self, name: str) -> None:
        """Reload a topic's settings; damaged ones do not keep from the changes of others. Raises `ZkError`."""
        try:
            await self._control.topic_configs.reload(name)
        except ZnodeDataError as error:
            log.error("the settings of topic %s stay as they were: %s", name, error)

    async def _reload_own(self) -> None:
        """Reload this broker's settings, likewise. Raises `ZkError`."""
        try:
            await self._settings.reload()
        except ZnodeDataError as error:
            log.error("the settings of this broker stay as they were: %s", error)

    async def _read_all_settings(self) -> None:
        """Read the settings of brokers, and after a long time those of all topics, whatever the notifications say."""
        await self._reload_own()
        if self._control.known_quotas is not None:
            await self._control.known_quotas.load()
        if self._control.known_users is not None:
            await self._control.known_users.load()
        if self._clock.now_ms() - self._settings_read_ms > ConfigChangeZnode.EXPIRATION_MS:
            names = list(self._control.image.topics)
            for start in range(0, len(names), LOOKS_AT_ONCE):
                await asyncio.gather(*map(self._reload_topic, names[start : start + LOOKS_AT_ONCE]))
        self._is_all_due = False
