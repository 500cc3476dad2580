"""The topics of the cluster: what the tree says, kept as an image, and every change of it.

This broker is the only one of its cluster, and so its controller: it writes what Apache Kafka's controller writes. A
change is one transaction of the tree, then a new image, then the subscribers, who make or delete logs; all of it
before the caller answers its client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.cluster_tree import (
    creation,
    deletion,
    growth,
    no_broker_was_registered,
    read_cluster_id,
    read_topic,
    read_topic_config,
    read_topics,
    reconfiguration,
    shrinking,
    take_producer_ids,
    write_persistent_paths,
)
from ottla.broker.control.adoption import LogFolders, told_of_adoption
from ottla.broker.membership import Membership, Term
from ottla.broker.tree_refusals import TREE_ERRORS, tree_refusal
from ottla.cluster.adoption import Adoption, FoundPartition, plan_adoption, stray_partitions
from ottla.cluster.configs import oversized, topic_refusal, unknown_topic
from ottla.cluster.ids import format_uuid
from ottla.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import (
    MOST_PARTITIONS,
    Chance,
    TopicSpec,
    already_exists,
    internal_topic_spec,
    is_internal_topic,
    plan_partitions,
    plan_topic,
    topic_name_problem,
)
from ottla.config.broker import BrokerConfig, ConfigRefusal
from ottla.config.listeners import Endpoint
from ottla.config.topic import LogConfig
from ottla.wire.errors import ErrorCode
from ottla.zk.client import LARGEST_TRANSACTION, in_transactions
from ottla.zk.layout import (
    BrokerRegistration,
    BrokerSequenceZnode,
    ClusterIdZnode,
    DeleteTopicZnode,
    TopicConfigZnode,
    ZnodeDataError,
)
from ottla.zk.tree import NodeExistsError, NoNodeError, Operation

if TYPE_CHECKING:
    from ottla.cluster.placement import Assignment
    from ottla.env.clock import Clock
    from ottla.zk.client import ZkClient

log = logging.getLogger("ottla.topics")


class CreatedTopic(NamedTuple):
    """A topic that was made, or with `validate_only` could be made."""

    topic: TopicImage
    log_config: LogConfig


class TopicManager:
    """Reads the tree, registers this broker, and creates, grows and deletes topics."""

    def __init__(
        self,
        zk: ZkClient,
        config: BrokerConfig,
        *,
        broker_id: int,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        random: Random | None = None,
        stored_cluster_id: str | None = None,
        folders: LogFolders | None = None,
        highest_producer_id: int = -1,
        is_shared: bool = False,
        longest_session_ms: int = 0,
        transaction_bytes: int = LARGEST_TRANSACTION,
    ) -> None:
        self.broker_id = broker_id
        self.image = ClusterImage()
        self._zk = zk
        self._config = config
        self._endpoints = tuple(endpoints)
        self._clock = clock
        self._random = random if random is not None else Random()
        self._stored_cluster_id = stored_cluster_id
        self._folders = folders if folders is not None else LogFolders()
        #: Whether no other broker can ever have been in the tree.
        self._is_private = not is_shared
        #: Log folders of partitions that are not this broker's; known from `start` on.
        self.strays: list[FoundPartition] = []
        self._highest_producer_id = highest_producer_id
        self._cluster_id = ""
        registration = BrokerRegistration(broker_id, self._endpoints, config.get_string_or_none("broker.rack"))
        self.membership = Membership(zk, registration, clock, longest_session_ms, is_shared)
        self._transaction_bytes = transaction_bytes
        self._changing = asyncio.Lock()
        self._subscribers: list[Callable[[ClusterImage], None]] = []
        self._config_subscribers: list[Callable[[str, LogConfig], None]] = []
        self._producer_ids: range = range(0)
        #: Topics whose deletion has begun and could not be finished, for want of a working disk.
        self._half_deleted: set[str] = set()
        #: Partitions whose folder has failed; whoever makes the logs says so.
        self._offline: set[tuple[str, int]] = set()

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty before `start`."""
        return self._cluster_id

    def subscribe(self, callback: Callable[[ClusterImage], None]) -> None:
        """Have `callback(image)` called inside `start` and inside every change, before those return.

        It makes the logs of this broker's partitions and removes those of topics that are gone. A `DiskError` that it
        raises fails the change with KAFKA_STORAGE_ERROR.
        """
        self._subscribers.append(callback)

    def subscribe_configs(self, callback: Callable[[str, LogConfig], None]) -> None:
        """Have `callback(topic, log_config)` called inside every change of a topic's settings, before it returns."""
        self._config_subscribers.append(callback)

    def log_config(self, topic: str) -> LogConfig:
        """The configuration of a topic's logs; the broker's value where the topic's own cannot be understood."""
        known = self.image.topics.get(topic)
        config, problems = LogConfig.in_force(self._config, known.configs if known is not None else {})
        if problems:
            log.error("some settings of topic %s are not used: %s", topic, "; ".join(problems))
        return config

    # Start and stop

    async def resolve_cluster_id(self) -> str | TopicRefusal:
        """The cluster's id: the tree's, else that of meta.properties, else a new one, which is then in the tree.

        Refuses, in Kafka's words, a folder that belongs to another cluster.
        """
        known = await read_cluster_id(self._zk)
        stored = self._stored_cluster_id
        if known is None:
            known = stored if stored is not None else format_uuid(self._new_uuid())
            await self._zk.create(ClusterIdZnode.PATH, ClusterIdZnode.encode(known), make_parents=True)
        elif stored is not None and stored != known:
            return TopicRefusal(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Invalid cluster.id in: {self._config.log_dirs[0]}/meta.properties. "
                f"Expected {known}, but read {stored}. The folder belongs to another cluster: give this broker another "
                "folder, or the coordination data that belongs to this one.",
            )
        self._cluster_id = known
        return known

    async def start(self) -> TopicRefusal | None:
        """Read the tree, register, become controller, adopt topics of folders, and call the subscribers.

        Raises `DiskError` where the tree or a log cannot be written.
        """
        try:
            cluster_id = await self.resolve_cluster_id()
            if isinstance(cluster_id, TopicRefusal):
                return cluster_id
            await write_persistent_paths(self._zk)
            is_first = self._is_private or await no_broker_was_registered(self._zk)
            refusal = await self.membership.join()
            if refusal is not None:
                return refusal
            term = self.membership.term
            topics, repairs = await read_topics(self._zk, self.broker_id, term.epoch, self._new_uuid)
            await self._write(repairs, term)
        except ZnodeDataError as error:
            return TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"The tree of coordination data is damaged: {error}")
        brokers = {self.broker_id: self._own_image()}
        self.image = ClusterImage(cluster_id, self.broker_id, brokers, topics, 1)
        await self._adopt(cluster_id, is_first=is_first)
        self._notify(self.image)
        # Deletions that were interrupted are done again from their beginning, so that no log stays behind.
        for name in await self._zk.children(DeleteTopicZnode.ROOT):
            kept = self._has_offline(name)
            if name in self.image.topics:
                self._publish(self.image.without_topic(name))
            if kept:
                self._half_deleted.add(name)
            else:
                await self._write(await deletion(self._zk, name))
        await self.membership.start()
        return None

    def take_offline(self, keys: Iterable[tuple[str, int]]) -> None:
        """The folder of these partitions has failed: they have no leader until the broker starts with it again.

        The tree is not changed: it may lie on that very disk, and at the next start this broker leads them as before.
        """
        self._offline.update(keys)
        topics = dict(self.image.topics)
        for name in {topic for topic, _ in self._offline} & topics.keys():
            partitions = [
                partition._replace(leader=NO_LEADER, offline=(self.broker_id,))
                if (name, index) in self._offline
                else partition
                for index, partition in enumerate(topics[name].partitions)
            ]
            topics[name] = topics[name]._replace(partitions=tuple(partitions))
        self._publish(self.image.with_topics(topics))

    def _has_offline(self, name: str) -> bool:
        return any(topic == name for topic, _ in self._offline)

    async def close(self) -> None:
        """Leave the cluster: the broker's ephemeral nodes go."""
        await self.membership.stop()
        await self._zk.close()

    def _own_image(self) -> BrokerImage:
        return BrokerImage(self.broker_id, self._endpoints, self._config.get_string_or_none("broker.rack"))

    async def _adopt(self, cluster_id: str, *, is_first: bool) -> None:
        """Register topics that have log folders but no znode: the folders came from elsewhere, or the tree was lost.

        Only where the tree has no topics and no other broker was ever registered, or where that was interrupted. Else
        such folders are stray.
        """
        marked = set(await self._zk.children(DeleteTopicZnode.ROOT))
        folders = self._folders
        known = self.image.topics
        unknown = [one for one in folders.found if one.topic not in known and one.topic not in marked]
        if unknown and ((is_first and not known) or folders.is_adopting(cluster_id)):
            folders.begin_adopting(cluster_id)
            adoption = self._plan_adoption(unknown)
            for topic in adoption.topics:
                term = self.membership.term
                await self._write(await creation(self._zk, topic, term.epoch), term)
                log.info("adopted topic %s with %d partitions from its folders", topic.name, len(topic.partitions))
            self.image = self.image.with_topics({**known, **{topic.name: topic for topic in adoption.topics}})
            folders.end_adopting()
            if adoption.kept_whole:
                log.warning("%s", told_of_adoption(adoption.kept_whole, self._endpoints))
        # Their deletion goes on: hosted, they are found and removed.
        ending = self._plan_adoption([one for one in folders.found if one.topic in marked - self.image.topics.keys()])
        self.image = self.image.with_topics({**self.image.topics, **{topic.name: topic for topic in ending.topics}})
        self.strays = stray_partitions(folders.found, self.image.topics, self.broker_id)

    def _plan_adoption(self, found: Sequence[FoundPartition]) -> Adoption:
        return plan_adoption(
            found,
            self.image.topics.keys(),
            broker_id=self.broker_id,
            config=self._config,
            settings_of=self._folders.settings_of,
            new_uuid=self._new_uuid,
        )

    # Changes

    async def create_topic(self, spec: TopicSpec, *, validate_only: bool = False) -> CreatedTopic | TopicRefusal:
        """Make a topic, or say why not. It has leaders and logs when this returns."""
        async with self._changing:
            if spec.name in self._half_deleted:
                return TopicRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{spec.name}' is marked for deletion.")
            plan = plan_topic(spec, self.image, self._config, self._chance())
            if isinstance(plan, TopicRefusal):
                return plan
            refusal = oversized(plan.configs, len(TopicConfigZnode.encode(plan.configs)))
            if refusal is not None:
                return refusal
            topic = self._topic(plan.name, self._new_uuid(), plan.assignment, plan.configs)
            if not validate_only:
                refusal = await self._create(topic)
                if refusal is not None:
                    return refusal
            return CreatedTopic(topic, plan.log_config)

    async def ensure_topic(self, name: str) -> TopicRefusal | None:
        """Make a topic with the broker's defaults (or, for an internal one, its own settings) where it is missing."""
        if name in self.image.topics:
            return None
        spec = internal_topic_spec(name, self._config, len(self.image.brokers))
        made = await self.create_topic(spec)
        if isinstance(made, TopicRefusal) and made != already_exists(name):
            return made
        return None

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicRefusal | None:
        """Bring a topic to `count` partitions, or say why not."""
        async with self._changing:
            planned = plan_partitions(name, count, assignments, self.image)
            if isinstance(planned, TopicRefusal):
                return planned
            if validate_only:
                return None
            before = self.image.topics[name]
            after = before._replace(partitions=before.partitions + tuple(self._partitions(planned)))
            try:
                term = self.membership.term
                await self._write(growth(after, len(before.partitions), term.epoch), term)
                self._publish(self.image.with_topic(after))
            except TREE_ERRORS as error:
                if self.image.topics[name] is after:
                    await self._take_back(shrinking(before, after), self.image.with_topic(before), name)
                return tree_refusal(error)
            return None

    async def change_configs(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str] | TopicRefusal], *, validate_only: bool
    ) -> TopicRefusal | None:
        """Give a topic the settings that `change` makes of its present ones, or say why not.

        They hold for its logs when this returns.
        """
        async with self._changing:
            topic = self.image.topics.get(name)
            if topic is None:
                return unknown_topic(name)
            configs = change(topic.configs)
            if isinstance(configs, TopicRefusal):
                return configs
            log_config = LogConfig.of(self._config, configs)
            if isinstance(log_config, ConfigRefusal):
                return topic_refusal(name, log_config)
            path, data = TopicConfigZnode.path(name), TopicConfigZnode.encode(configs)
            refusal = oversized(configs, len(data))
            if refusal is not None:
                return refusal
            if validate_only or configs == topic.configs:
                return None
            try:
                now_ms = self._clock.now_ms()
                await self._write(await reconfiguration(self._zk, path, f"topics/{name}", data, now_ms))
            except TREE_ERRORS as error:
                return tree_refusal(error)
            self._publish(self.image.with_topic(topic._replace(configs=configs)))
            for callback in self._config_subscribers:
                callback(name, log_config)
            return None

    async def delete_topic(self, name: str) -> TopicRefusal | None:
        """Delete a topic with its logs, or say why not."""
        async with self._changing:
            if name not in self.image.topics:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return TopicRefusal(error, error.message)
            if not self._config.get_boolean("delete.topic.enable"):
                error = ErrorCode.TOPIC_DELETION_DISABLED
                return TopicRefusal(error, error.message)
            try:
                is_done = await self._delete(name)
            except TREE_ERRORS as error:
                return tree_refusal(error)
            if not is_done:
                return TopicRefusal(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT.message)
            return None

    async def _delete(self, name: str) -> bool:
        """Delete a topic that is there; False where it has partitions in a folder that has failed."""
        # The mark comes first: a deletion that is interrupted is finished at the next start.
        with suppress(NodeExistsError):
            await self._zk.create(DeleteTopicZnode.path(name))
        self._half_deleted.add(name)
        self._publish(self.image.without_topic(name))
        if self._has_offline(name):
            # Its folder would bring it back: the mark stays until the broker starts with all of it.
            return False
        await self._write(await deletion(self._zk, name))
        self._half_deleted.discard(name)
        return True

    # What others have changed in the tree

    async def take_over(self, name: str) -> None:
        """Another has made this topic in the tree, or added partitions to it: make it usable.

        Other changes of its node are not followed. Raises `DiskError`, `ZkError`, `ZnodeDataError`.
        """
        async with self._changing:
            if name in self._half_deleted:
                return
            known = self.image.topics.get(name)
            # Tools of 0.8.2 that add partitions drop the topic's id.
            missing_id = self._new_uuid if known is None else (lambda: known.topic_id)
            term = self.membership.term
            found, repairs = await read_topic(self._zk, name, self.broker_id, term.epoch, missing_id)
            if known is not None:
                if found.topic_id != known.topic_id or len(found.partitions) <= len(known.partitions):
                    return
                found = known._replace(partitions=known.partitions + found.partitions[len(known.partitions) :])
            problem = topic_name_problem(name)
            if problem is not None or len(found.partitions) > MOST_PARTITIONS:
                log.error("topic %r in the tree is not served: %s", name, problem or "it has too many partitions")
                return
            await self._write(repairs, term)
            self._publish(self.image.with_topic(found))
            log.info("topic %s was made or grown in the tree: %d partitions", name, len(found.partitions))

    async def reload_config(self, name: str) -> None:
        """Another has changed the settings of this topic. Raises `ZkError`, `ZnodeDataError`."""
        async with self._changing:
            topic = self.image.topics.get(name)
            if topic is None:
                return
            configs = await read_topic_config(self._zk, name)
            if configs == topic.configs:
                return
            self._publish(self.image.with_topic(topic._replace(configs=configs)))
            log_config = self.log_config(name)
            for callback in self._config_subscribers:
                callback(name, log_config)

    async def finish_deletions(self, marked: Sequence[str]) -> None:
        """These topics are marked for deletion: delete them, or take the mark away where there is nothing to delete.

        Raises `DiskError`, `ZkError`.
        """
        for name in marked:
            async with self._changing:
                await self._finish_deletion(name)
        async with self._changing:
            # The end of a deletion whose answer was lost.
            self._half_deleted = {name for name in self._half_deleted if name in marked or self._has_offline(name)}

    async def _finish_deletion(self, name: str) -> None:
        if name not in self.image.topics:
            if not self._has_offline(name):
                await self._write(await deletion(self._zk, name))
                self._half_deleted.discard(name)
        elif self._config.get_boolean("delete.topic.enable"):
            if not await self._delete(name):
                log.warning("topic %s is deleted when the broker starts with all of its folders", name)
        else:
            log.warning("topic %s is marked for deletion, which delete.topic.enable forbids", name)
            with suppress(NoNodeError):
                await self._zk.delete(DeleteTopicZnode.path(name))

    async def next_producer_id(self) -> int:
        """A producer id that nobody has. Ids are taken from the tree in blocks of 1,000, as Kafka takes them."""
        async with self._changing:
            if not self._producer_ids:
                block = await take_producer_ids(self._zk, self.broker_id, self._highest_producer_id)
                self._producer_ids = range(block.first, block.last + 1)
            producer_id = self._producer_ids[0]
            self._producer_ids = self._producer_ids[1:]
            return producer_id

    async def _create(self, topic: TopicImage) -> TopicRefusal | None:
        try:
            term = self.membership.term
            await self._write(await creation(self._zk, topic, term.epoch), term)
            self._publish(self.image.with_topic(topic))
        except TREE_ERRORS as error:
            if topic.name in self.image.topics:
                undo = await deletion(self._zk, topic.name)
                await self._take_back(undo, self.image.without_topic(topic.name), topic.name)
            return tree_refusal(error)
        return None

    async def _take_back(self, operations: Sequence[Operation], image: ClusterImage, name: str) -> None:
        """Undo a change whose logs could not be made: the tree first, then those logs that were made."""
        try:
            await self._write(operations)
            self._publish(image)
        except TREE_ERRORS:
            self.image = image
            log.exception("the change of topic %s failed and could not be taken back in full", name)

    async def _write(self, operations: Sequence[Operation], term: Term | None = None) -> None:
        """Change the tree as its controller: not any more when another was elected (since the `term` in which they were
        made, else since now), and in as many transactions as it takes. What is left unfinished is mended when the tree
        is looked at again.
        """
        fence = (term or self.membership.term).fence()
        for part in in_transactions(operations, self._transaction_bytes):
            await self._zk.multi([fence, *part])

    def _publish(self, image: ClusterImage) -> None:
        """Make an image the present one, then tell the subscribers."""
        self.image = image
        self._notify(image)

    def _notify(self, image: ClusterImage) -> None:
        for subscriber in self._subscribers:
            subscriber(image)

    def _chance(self) -> Chance:
        brokers = len(self.image.brokers)
        return Chance(self._random.randrange(brokers), self._random.randrange(brokers))

    def _new_uuid(self) -> UUID:
        """A random id that, as in Kafka, does not begin with a dash, which tools would take for an option."""
        while True:
            value = UUID(int=self._random.getrandbits(128), version=4)
            if not format_uuid(value).startswith("-"):
                return value

    def _topic(self, name: str, topic_id: UUID, assignment: Assignment, configs: Mapping[str, str]) -> TopicImage:
        return TopicImage(name, topic_id, tuple(self._partitions(assignment)), configs, is_internal_topic(name))

    def _partitions(self, assignment: Assignment) -> list[PartitionImage]:
        return [PartitionImage(replicas[0], 0, replicas, replicas) for _, replicas in sorted(assignment.items())]


async def generate_broker_id(zk: ZkClient, config: BrokerConfig) -> int:
    """A broker id that was never given out: above `reserved.broker.max.id`, counted by a znode's version."""
    with suppress(NodeExistsError):
        await zk.create(BrokerSequenceZnode.PATH, make_parents=True)
    stat = await zk.set(BrokerSequenceZnode.PATH, b"")
    return config.get_int("reserved.broker.max.id") + stat.version
