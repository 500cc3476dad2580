"""The control plane of a broker: its membership of the cluster, its controller, and the parts that change the cluster.

The broker's image changes by deltas (`metadata_publisher`). If this broker is the controller they come from the
controller's state machine, otherwise from the requests of the broker that is (`control_requests`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.control.cluster_admin import ClusterAdmin
from ottla.broker.control.controller_requests import RequestsToController, ServedByController
from ottla.broker.control.controller_shell import ControllerShell
from ottla.broker.control.first_metadata import FirstBrokers, UnheardTopics
from ottla.broker.control.interbroker import BrokerConnector, ControllerLink
from ottla.broker.control.membership import ClusterMembership
from ottla.broker.control.metadata_publisher import MetadataPublisher
from ottla.broker.control.metadata_writes import MetadataWriter
from ottla.broker.control.offline_notices import OfflineNotices
from ottla.broker.control.producer_ids import ProducerIds
from ottla.broker.control.refusals import METADATA_ERRORS, is_passing
from ottla.broker.control.topic_configs import TopicConfigs
from ottla.broker.control.topic_reads import read_topics
from ottla.broker.slices import LoopSlices
from ottla.cluster.controller import Controller
from ottla.cluster.controller_events import (
    BrokersChanged,
    DeletionsMarked,
    Elected,
    FoundTopic,
    Resigned,
    TopicsFound,
)
from ottla.cluster.ids import format_uuid
from ottla.cluster.image import BrokerImage, ClusterImage, ImageDelta
from ottla.env.environment import Environment
from ottla.zk.layout import BrokerRegistration, DeleteTopicZnode, ProducerIdBlock, TopicZnode, ZnodeDataError

if TYPE_CHECKING:
    from ottla.broker.control.coordination import ClusterSession
    from ottla.broker.control.quota_store import QuotaStore
    from ottla.broker.control.scram_users import ScramUsers
    from ottla.config.broker import BrokerConfig
    from ottla.config.listeners import Endpoint
    from ottla.env.clock import Clock
    from ottla.env.randomness import Randomness
    from ottla.zk.client import Watcher

log = logging.getLogger("ottla.topics")

#: Pause before a controller that is elected reads the metadata again, where ZooKeeper could not be read.
TAKE_OFFICE_AGAIN_S = 0.2


class ControlPlane:
    """The parts of a broker that know the cluster and change it."""

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
        self.config = config
        self.endpoints = tuple(endpoints)
        self.session = session
        self.unheard_topics, self.first_brokers = UnheardTopics(clock.monotonic_ms), FirstBrokers()
        self.publisher = MetadataPublisher(self.unheard_topics, self.first_brokers)
        self.image = self.publisher.image
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
            self.publisher.apply,
            lambda name: self.on_unknown_outcome(name),
            self._elected_again,
            self.connector,
        )
        self.served, self.to_controller = self._between_brokers(highest_producer_id)
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        #: Called with a topic when the outcome of a change of it is unknown.
        self.on_unknown_outcome: Callable[[str], None] = lambda name: None
        #: Called when this broker has become the controller after its start.
        self.on_took_office: Callable[[], None] = lambda: None
        shared = (self.publisher, self.membership, self.controller)
        self.topic_configs = TopicConfigs(session, config, *shared, self._spawn)
        self.admin = ClusterAdmin(session, config, *shared, randomness, self.new_uuid)
        self.offline_notices = OfflineNotices(session.zk, *shared, self._spawn)
        #: The users whom listeners with SASL know; None without such listeners.
        self.known_users: ScramUsers | None = None
        #: The quotas of clients, once they were read.
        self.known_quotas: QuotaStore | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def quotas(self) -> QuotaStore:
        """The quotas of clients; available while the broker serves."""
        assert self.known_quotas is not None, "the broker has not been started"
        return self.known_quotas

    def _between_brokers(self, highest_producer_id: int) -> tuple[ServedByController, RequestsToController]:
        """The parts that answer the requests of brokers to the controller, and that make those of this broker."""
        served = ServedByController(self._zk, self.membership, self.controller, highest_producer_id)
        return served, RequestsToController(served, self.controller_link, self.membership)

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        if self.session.accepts_others:
            return await self.to_controller.allocate_producer_ids()
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

    async def shut_down_controlled(self) -> None:
        """Have this broker's leaders moved to other brokers, if there are any, before it stops."""
        if not self.session.accepts_others or len(self.membership.brokers) <= 1:
            return
        attempts = 1 + self.config.get_int("controlled.shutdown.max.retries")
        await self.to_controller.shut_down(attempts, self.config.get_long("controlled.shutdown.retry.backoff.ms"))
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
        self.to_controller.others_changed()
        if membership.is_controller:
            self.controller.post(BrokersChanged(membership.brokers))
            return
        if self.controller.controller.epoch:
            self.controller.post(Resigned())
        # Which brokers are alive is for the controller to say.
        self._spawn(self.publisher.apply(ImageDelta(controller_id=membership.controller_id)))

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
            if self.publisher.host.has_roles(topic):
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
        gone = [topic for topic in gone if not self.publisher.host.has_log_of(topic)]
        return Elected(self.membership.term.epoch, self.membership.brokers, topics, image, marked, gone)

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
            # When the controller comes to it: a mark read earlier may belong to a deletion that has ended since.
            return DeletionsMarked(tuple(await self._zk.children(DeleteTopicZnode.ROOT, watch)))

        await self.controller.handle_read(read)

    def new_uuid(self) -> UUID:
        """A random id that, as in Kafka, does not begin with a dash, which tools would take for an option."""
        while True:
            value = self._randomness.uuid()
            if not format_uuid(value).startswith("-"):
                return value
