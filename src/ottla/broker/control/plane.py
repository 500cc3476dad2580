"""The control plane of a broker: its view of the cluster, and the changes of the cluster that it requests.

The broker's image changes by deltas. If this broker is the controller they come from the controller's state machine,
otherwise from the requests of the broker that is (`control_requests`). Each delta is applied to the hosted partitions,
then to the image, then passed to the subscribers; only then is the request for the change answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from ottla.broker.control.controller_requests import AskedOfController, ServedByController
from ottla.broker.control.controller_shell import ControllerShell
from ottla.broker.control.first_metadata import FirstBrokers, UnheardTopics
from ottla.broker.control.interbroker import BrokerConnector, ControllerLink
from ottla.broker.control.membership import ClusterMembership
from ottla.broker.control.metadata_writes import MetadataWriter, announcement
from ottla.broker.control.producer_ids import ProducerIds
from ottla.broker.control.refusals import METADATA_ERRORS, is_passing, metadata_refusal
from ottla.broker.control.topic_reads import read_topics
from ottla.broker.control.znodes import (
    CHANGED_MEANWHILE,
    MOST_ATTEMPTS,
    find_topic_config,
    reconfiguration,
)
from ottla.broker.slices import LoopSlices
from ottla.cluster.configs import oversized, topic_refusal, unknown_topic
from ottla.cluster.controller import Controller
from ottla.cluster.controller_events import (
    BrokersChanged,
    ConfigsChanged,
    DeletionAsked,
    DeletionsMarked,
    Elected,
    ElectionAsked,
    ElectionResult,
    FoundTopic,
    LeaderAndIsrAnswered,
    PartitionKey,
    PartitionsAsked,
    ReassignmentAsked,
    ReassignmentResult,
    ReplicasOffline,
    Resigned,
    TopicAsked,
    TopicCreated,
    TopicsFound,
)
from ottla.cluster.ids import format_uuid
from ottla.cluster.image import (
    BrokerImage,
    ClusterImage,
    ImageDelta,
    PartitionImage,
    TopicDelta,
    TopicImage,
)
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import Chance, TopicSpec, internal_topic_spec, plan_topic
from ottla.config.broker import ConfigRefusal
from ottla.config.topic import LogConfig
from ottla.env.environment import Environment
from ottla.wire.errors import ErrorCode
from ottla.zk.client import LARGEST_TRANSACTION
from ottla.zk.layout import (
    BrokerRegistration,
    DeleteTopicZnode,
    LogDirEventNotificationZnode,
    ProducerIdBlock,
    TopicConfigZnode,
    TopicZnode,
    ZnodeDataError,
)

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.config.listeners import Endpoint
    from ottla.env.clock import Clock
    from ottla.env.randomness import Randomness
    from ottla.zk.client import Watcher, ZkClient

log = logging.getLogger("ottla.topics")

#: Topics whose settings changed before this broker heard of them; of more the oldest are forgotten.
MOST_CONFIGURED_EARLY = 10_000
#: Pause before the controller is asked for the roles again where a disk was full when a replica was to be made.
HOST_AGAIN_S = 15.0
#: Pause before a failed log directory is reported to the controller again.
NOTIFY_AGAIN_S = 1.0
#: Pause before a controller that is elected reads the metadata again, where ZooKeeper could not be read.
TAKE_OFFICE_AGAIN_S = 0.2

WITHOUT_LEADER_YET = TopicRefusal(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE.message)


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


@dataclass(frozen=True, slots=True)
class ClusterSession:
    """The broker's session with the coordination metadata, and which others may use it."""

    zk: ZkClient
    #: Whether others may change the metadata.
    is_shared: bool = False
    #: Whether other brokers may be members beside this one.
    accepts_others: bool = False
    #: How long the registration of a killed process may last, in milliseconds.
    longest_session_ms: int = 0
    #: Most bytes of one transaction, as `operation_bytes` counts them.
    transaction_bytes: int = LARGEST_TRANSACTION


class ControlPlane:
    """The cluster as this broker knows it, and the changes that this broker requests."""

    def __init__(
        self,
        session: ClusterSession,
        config: BrokerConfig,
        *,
        broker_id: int,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        randomness: Randomness,
        slices: LoopSlices | None = None,
        environment: Environment | None = None,
        highest_producer_id: int = -1,
    ) -> None:
        self.broker_id = broker_id
        self.image = ClusterImage()
        self.config = config
        self.endpoints = tuple(endpoints)
        self.session = session
        self.host: Host = NoHost()
        self._zk = session.zk
        self._randomness = randomness
        registration = BrokerRegistration(broker_id, self.endpoints, config.get_string_or_none("broker.rack"))
        self.membership = ClusterMembership(
            session.zk, registration, clock, session.longest_session_ms, session.is_shared, session.accepts_others
        )
        self.membership.on_changed = self._members_changed
        self.membership.on_elected = self._elected_again
        environment = environment or Environment(clock=clock, randomness=randomness)
        self.connector = BrokerConnector(broker_id, config, environment)
        #: This broker's connection to the controller, where another broker is it.
        self.controller_link = ControllerLink(self.connector, self._controller_image)
        self._slices = slices = slices if slices is not None else LoopSlices(clock.monotonic_ms)
        self.writer = MetadataWriter(session.zk, slices, session.transaction_bytes)
        self.controller = ControllerShell(
            Controller(broker_id, config),
            self.membership,
            self.writer,
            clock,
            slices,
            self.apply,
            lambda name: self.on_unknown_outcome(name),
            self._elected_again,
            self.connector,
        )
        self.served, self.asked = self._between_brokers(highest_producer_id)
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        #: Called with a topic when the outcome of a change of it is unknown.
        self.on_unknown_outcome: Callable[[str], None] = lambda name: None
        #: Called when this broker has become the controller after its start.
        self.on_took_office: Callable[[], None] = lambda: None
        #: Held while a change of the cluster is applied to this broker.
        self.applying = asyncio.Lock()
        #: Of topics that the image does not have yet: settings of those hosted here; names of those that changed them.
        self.unheard_configs: dict[str, Mapping[str, str]] = {}
        self._configured_early: dict[str, bool] = {}
        self.unheard_topics, self.first_brokers = UnheardTopics(clock.monotonic_ms), FirstBrokers()
        self._configuring, self._is_hosting_again = asyncio.Lock(), False
        self._subscribers: list[Callable[[ImageDelta], None]] = []
        self._config_subscribers: list[Callable[[str, LogConfig], None]] = []
        self._tasks: dict[asyncio.Task[None], None] = {}

    def _between_brokers(self, highest_producer_id: int) -> tuple[ServedByController, AskedOfController]:
        """The parts that answer the requests of brokers to the controller, and that make those of this broker."""
        served = ServedByController(self._zk, self.membership, self.controller, highest_producer_id)
        return served, AskedOfController(served, self.controller_link, self.membership)

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        if self.session.accepts_others:
            return await self.asked.allocate_producer_ids()
        return await self.served.take_producer_ids(self.broker_id)

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty before the start."""
        return self.image.cluster_id

    def _controller_image(self) -> BrokerImage | None:
        """The controller, None if there is none; a broker that has just been elected may not be in the image yet."""
        controller_id = self.membership.controller_id
        registered = self.membership.brokers.get(controller_id)
        return registered.image if registered is not None else self.image.brokers.get(controller_id)

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""
        return self.membership.is_controller

    def subscribe(self, callback: Callable[[ImageDelta], None]) -> None:
        """Have `callback(delta)` called inside every change of the image, after the hosted partitions have changed."""
        self._subscribers.append(callback)

    def subscribe_configs(self, callback: Callable[[str, LogConfig], None]) -> None:
        """Have `callback(topic, log_config)` called inside every change of a topic's settings."""
        self._config_subscribers.append(callback)

    def log_config(self, topic: str) -> LogConfig:
        """The log configuration of a topic; an invalid setting of the topic is replaced by the broker's."""
        known = self.image.topics.get(topic)
        return self.log_config_of(topic, known.configs if known is not None else {})

    def log_config_of(self, topic: str, configs: Mapping[str, str]) -> LogConfig:
        """The log configuration of a topic with these settings of its own."""
        config, problems = LogConfig.in_force(self.config, configs)
        if problems:
            log.error("some settings of topic %s are not used: %s", topic, "; ".join(problems))
        return config

    async def shut_down_controlled(self) -> None:
        """Have this broker's leaders moved to other brokers, if there are any, before it stops."""
        if not self.session.accepts_others or len(self.membership.brokers) <= 1:
            return
        attempts = 1 + self.config.get_int("controlled.shutdown.max.retries")
        await self.asked.shut_down(attempts, self.config.get_long("controlled.shutdown.retry.backoff.ms"))
        # The next controller repeats what the others have not taken by then.
        await self.controller.channels.drained()

    async def close(self) -> None:
        """Leave the cluster; the broker's ephemeral znodes are deleted."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.controller.stop()
        self.controller_link.close()
        await self.membership.stop()
        await self._zk.close()

    # The image

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
            self.first_brokers.heard()
        for subscriber in self._subscribers:
            subscriber(delta)

    def note_configs(self, name: str) -> None:
        """Pass the settings of a topic that is new in the image to its logs here."""
        self.unheard_configs.pop(name, None)
        if self._configured_early.pop(name, None) is not None:
            self._spawn(self._reload_early(name))
        log_config = self.log_config(name)
        for callback in self._config_subscribers:
            callback(name, log_config)

    def _with_own_configs(self, delta: ImageDelta) -> ImageDelta:
        """Keep the image's settings: they do not come from the controller, and may be newer than the delta."""
        topics = []
        for before, after in delta.topics:
            known = self.image.topics.get(after.name) if after is not None else None
            if after is not None and known is not None and known.topic_id == after.topic_id:
                after = after._replace(configs=known.configs)
            topics.append(TopicDelta(before, after))
        return delta._replace(topics=tuple(topics))

    def take_offline(self, keys: Iterable[PartitionKey]) -> None:
        """Take the replicas of a failed log directory offline; they have no leader until a restart with it."""
        partitions = list(keys)
        if self.is_controller:
            self.controller.post(ReplicasOffline(self.broker_id, partitions))
        else:
            self._spawn(self._notify_log_dir_failure())

    def note_roles(self, taken: Sequence[PartitionKey], refused: Sequence[PartitionKey]) -> None:
        """As controller, count replicas of this broker as offline whose logs are lost, and those that have a log now.

        It is what another broker answers to LeaderAndIsr.
        """
        for topic, partition in refused:
            log.error(
                "%s-%d is not served: this broker has no log of it, and should have one. Bring its log directory back, "
                "or have another replica elected",
                topic,
                partition,
            )
        self.controller.post(LeaderAndIsrAnswered(self.broker_id, self.membership.broker_epoch, taken, refused))

    def host_again(self) -> None:
        """Take roles again after a pause, those of another controller when it sends them: a disk had no room."""
        if not self._is_hosting_again:
            self._is_hosting_again = True
            self._spawn(self._host_again())

    async def _host_again(self) -> None:
        await asyncio.sleep(HOST_AGAIN_S)
        self._is_hosting_again = False
        if not self.is_controller:
            await self._notify_log_dir_failure()
            return
        async with self.applying:
            await self.host.take_again(self.image)

    async def _notify_log_dir_failure(self) -> None:
        """Have the controller ask which replicas are offline now; they are when LeaderAndIsr answers so."""
        znode = LogDirEventNotificationZnode
        while True:
            try:
                await self._zk.create(znode.PREFIX, znode.encode(self.broker_id), sequential=True)
                return
            except METADATA_ERRORS as error:
                log.warning("the controller is notified of the failed log directory later: %s", error)
                await asyncio.sleep(NOTIFY_AGAIN_S)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    # The cluster's members

    def _follow_controller(self) -> None:
        controller_id = self.membership.controller_id
        self.controller_link.follow(controller_id, self.membership.epoch_of(controller_id))

    def _members_changed(self) -> None:
        membership = self.membership
        self._follow_controller()
        self.asked.others_changed()
        if membership.is_controller:
            self.controller.post(BrokersChanged(membership.brokers))
            return
        if self.controller.controller.epoch:
            self.controller.post(Resigned())
        # Which brokers are alive is for the controller to say.
        self._spawn(self.apply(ImageDelta(controller_id=membership.controller_id)))

    def _elected_again(self) -> None:
        self._follow_controller()
        self._spawn(self._take_office())

    async def _take_office(self) -> None:
        """Become the controller after the start: read all metadata and bring it into order.

        As long as ZooKeeper cannot be read this is tried again: the other brokers wait for the one that is elected. It
        ends when this broker is not the controller any more, or was elected again.
        """
        membership = self.membership
        term = membership.term
        is_read = is_waiting = False

        async def read() -> Elected | None:
            nonlocal is_read
            names = await self._zk.children(TopicZnode.ROOT)
            marked = await self._zk.children(DeleteTopicZnode.ROOT)
            found = await read_topics(self._zk, names, self.new_uuid)
            if membership.term != term:
                return None
            is_read = True
            elected = await self.elected(found, marked)
            return elected if membership.term == term else None

        while membership.is_controller and membership.term == term:
            try:
                await self.controller.handle_read(read)
            except (*METADATA_ERRORS, ZnodeDataError) as error:
                if not is_read and is_passing(error):
                    if not is_waiting:
                        log.warning(
                            "elected as controller, and the metadata are read when ZooKeeper is there again: %s", error
                        )
                    is_waiting = True
                    await asyncio.sleep(TAKE_OFFICE_AGAIN_S)  # sleep: until there is a connection
                    continue
                log.error("elected as controller, and the metadata cannot be read or put in order: %s", error)
            if is_read:
                self.on_took_office()
            return

    async def elected(self, topics: Sequence[FoundTopic], marked: Sequence[str]) -> Elected:
        """The event of this broker's election with these topics, and the names of those marked for deletion."""
        # A topic whose roles this broker has not taken, since the former controller did not send them, or this broker
        # refused them, is decided again.
        with_roles = {}
        for name, topic in tuple(self.image.topics.items()):
            await self._slices.point()
            if self.host.has_roles(topic):
                with_roles[name] = topic
        image = self.image
        found = {topic.name: topic.topic_id for topic in topics}
        gone = [
            topic
            for name, topic in image.topics.items()
            if name not in found or found[name] not in (None, topic.topic_id)
        ]
        ended = {topic.name for topic in gone}
        applied = {
            name: topic for name, topic in image.topics.items() if name not in ended and with_roles.get(name) is topic
        }
        if len(applied) < len(image.topics):
            image = ClusterImage(image.cluster_id, image.controller_id, image.brokers, applied)
        # What it has logs of is served on: the znodes may have been removed by mistake.
        gone = [topic for topic in gone if not self.host.has_log_of(topic)]
        return Elected(self.membership.term.epoch, self.membership.brokers, topics, image, marked, gone)

    # Changes requested by clients

    async def create_topic(self, spec: TopicSpec, *, validate_only: bool = False) -> TopicCreated | TopicRefusal:
        """Create a topic. Its leaders are elected, and this broker has its logs, when this returns TopicCreated."""
        brokers = max(1, len(self.image.brokers))
        chance = Chance(self._randomness.below(brokers), self._randomness.below(brokers))
        topic_id = self.new_uuid()
        made = await self.controller.ask(lambda token: TopicAsked(token, spec, chance, topic_id, validate_only))
        assert isinstance(made, TopicCreated | TopicRefusal)
        return made

    async def ensure_topic(self, name: str) -> TopicRefusal | None:
        """Create a topic if it is missing, with the broker's defaults or, if it is internal, its own settings.

        LEADER_NOT_AVAILABLE: the topic is there, or another broker is creating it, and the controller, which may be
        another broker, elects its leaders. Or this broker has just started, and does not know yet what there is.
        """
        if name in self.image.topics:
            return None
        if not self.is_controller and (not self.image.brokers or name in self.unheard_topics.names):
            return WITHOUT_LEADER_YET
        spec = internal_topic_spec(name, self.config, is_alone=not self.session.accepts_others)
        is_announced = not self.is_controller and self.session.accepts_others
        made = await (self._announce(spec) if is_announced else self.create_topic(spec))
        if not isinstance(made, TopicRefusal):
            return None
        if made.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return made
        return None if name in self.image.topics else WITHOUT_LEADER_YET

    async def _announce(self, spec: TopicSpec) -> TopicRefusal:
        """Write a topic's znodes as a broker that is not the controller; the controller then elects leaders."""
        brokers = max(1, len(self.image.brokers))
        chance = Chance(self._randomness.below(brokers), self._randomness.below(brokers))
        plan = plan_topic(spec, self.image, self.config, chance)
        if isinstance(plan, TopicRefusal):
            return plan
        partitions = tuple(PartitionImage(-1, 0, replicas, ()) for _, replicas in sorted(plan.assignment.items()))
        topic = TopicImage(spec.name, self.new_uuid(), partitions, plan.configs, False)
        try:
            await self._zk.multi(await announcement(self._zk, topic))
        except METADATA_ERRORS as error:
            return metadata_refusal(error)
        return WITHOUT_LEADER_YET

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicRefusal | None:
        """Increase a topic's partitions to `count`; return the refusal if that fails."""
        asked = await self.controller.ask(lambda token: PartitionsAsked(token, name, count, assignments, validate_only))
        return _refusal(asked)

    async def delete_topic(self, name: str, topic_id: UUID | None = None) -> TopicRefusal | None:
        """Delete a topic with its logs, with `topic_id` only if that is its id; return the refusal if that fails."""
        return _refusal(await self.controller.ask(lambda token: DeletionAsked(token, name, topic_id)))

    async def change_configs(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str] | TopicRefusal], *, validate_only: bool
    ) -> TopicRefusal | None:
        """Apply `change` to a topic's settings; return the refusal if that fails.

        The settings are in force when this returns. Any broker does this, as in Apache Kafka, and notifies the others
        by a znode under `/config/changes`. Several may do so at once: each change is made to what the znode has.
        """
        async with self._configuring:
            for attempt in range(1, MOST_ATTEMPTS + 1):
                try:
                    return await self._change_configs(name, change, validate_only)
                except CHANGED_MEANWHILE as error:
                    if attempt == MOST_ATTEMPTS or is_passing(error):
                        return metadata_refusal(error)
                except METADATA_ERRORS as error:
                    return metadata_refusal(error)
                except ZnodeDataError as error:
                    return TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"The present settings are damaged: {error}")
        raise AssertionError("the last attempt returns")

    async def _change_configs(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str] | TopicRefusal], validate_only: bool
    ) -> TopicRefusal | None:
        """As `change_configs`, once. Raises `DiskError`, `ZkError`, `ZnodeDataError`."""
        topic = self.image.topics.get(name)
        if topic is None:
            return unknown_topic(name)
        present, version = await find_topic_config(self._zk, name)
        configs = change(present)
        if isinstance(configs, TopicRefusal):
            return configs
        log_config = LogConfig.of(self.config, configs)
        if isinstance(log_config, ConfigRefusal):
            return topic_refusal(name, log_config)
        path, data = TopicConfigZnode.path(name), TopicConfigZnode.encode(configs)
        refusal = oversized(configs, len(data))
        if refusal is not None or validate_only:
            return refusal
        if configs != present:
            operations = await reconfiguration(self._zk, path, f"topics/{name}", data, version)
            fence = () if self.session.accepts_others else (self.membership.term.fence(),)
            await self._zk.multi([*fence, *operations])
        if configs != topic.configs:
            self._configured(name, configs)
        return None

    async def reload_config(self, name: str) -> None:
        """Reload a topic's settings after another process changed them. Raises `ZkError`, `ZnodeDataError`."""
        async with self._configuring:
            topic = self.image.topics.get(name)
            if topic is None:
                # It may be in the image soon, with settings that were read before this change.
                self.unheard_configs.pop(name, None)
                self._configured_early[name] = True
                if len(self._configured_early) > MOST_CONFIGURED_EARLY:
                    del self._configured_early[next(iter(self._configured_early))]
                return
            configs = (await find_topic_config(self._zk, name)).configs
            if configs != topic.configs:
                self._configured(name, configs)

    async def _reload_early(self, name: str) -> None:
        try:
            await self.reload_config(name)
        except (*METADATA_ERRORS, ZnodeDataError) as error:
            log.error("the settings of topic %s, which have changed, cannot be read: %s", name, error)

    def _configured(self, name: str, configs: Mapping[str, str]) -> None:
        topic = self.image.topics.get(name)
        if topic is None:
            return  # deleted meanwhile
        delta = ImageDelta((TopicDelta(topic, topic._replace(configs=configs)),))
        self.image.apply(delta)
        self.controller.post(ConfigsChanged(name, configs))
        for subscriber in self._subscribers:
            subscriber(delta)
        log_config = self.log_config(name)
        for callback in self._config_subscribers:
            callback(name, log_config)

    async def reassign(
        self, wanted: Mapping[PartitionKey, tuple[int, ...] | None], *, needs_live: bool = False
    ) -> ReassignmentResult | TopicRefusal:
        """Begin to reassign partitions, or cancel (None); a refusal of the whole request if there is one."""
        result = await self.controller.ask(lambda token: ReassignmentAsked(token, wanted, needs_live))
        assert isinstance(result, ReassignmentResult | TopicRefusal)
        return result

    async def elect_preferred(self, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, str]:
        """Elect the preferred replicas; return the partitions that failed, with reasons."""
        result = await self.elect_leaders(partitions)
        return {
            key: refusal.message
            for key, refusal in result.refusals.items()
            if refusal.error is not ErrorCode.ELECTION_NOT_NEEDED
        }

    async def elect_leaders(
        self, partitions: Sequence[PartitionKey] | None, *, is_unclean: bool = False
    ) -> ElectionResult:
        """Have leaders elected for these partitions, None for all; return which have none, with Kafka's errors."""
        result = await self.controller.ask(lambda token: ElectionAsked(token, partitions, is_unclean))
        if isinstance(result, TopicRefusal):
            return ElectionResult(dict.fromkeys(partitions or (), result))
        assert isinstance(result, ElectionResult)
        return result

    # Changes that others make to the znodes

    async def take_over(self, name: str) -> None:
        """As controller, take over a topic created, or partitions added, by another process: make it usable.

        A topic without a znode is forgotten.

        Raises `ZkError`, `ZnodeDataError`.
        """

        async def read() -> TopicsFound:
            found = await read_topics(self._zk, [name], self.new_uuid)
            return TopicsFound(found, () if found else (name,))

        await self.controller.handle_read(read)

    async def finish_deletions(self, watch: Watcher) -> None:
        """Delete the topics marked for deletion, or remove the marks if deletion is disabled.

        `watch` is set on the marks. Raises `DiskError`, `ZkError`.
        """

        async def read() -> DeletionsMarked:
            # In the controller's turn: a mark read earlier may belong to a deletion that has ended since.
            return DeletionsMarked(tuple(await self._zk.children(DeleteTopicZnode.ROOT, watch)))

        await self.controller.handle_read(read)

    def new_uuid(self) -> UUID:
        """A random id that, as in Kafka, does not begin with a dash, which tools would take for an option."""
        while True:
            value = self._randomness.uuid()
            if not format_uuid(value).startswith("-"):
                return value


def _refusal(answer: object) -> TopicRefusal | None:
    assert answer is None or isinstance(answer, TopicRefusal)
    return answer
