"""Changes of topics and partitions that clients request, and topics that this broker needs itself.

As Kafka's `ZkAdminManager` and `AutoTopicCreationManager`. The controller answers, NOT_CONTROLLER where another broker
is it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.control.metadata_writes import announcement
from ottla.broker.control.refusals import METADATA_ERRORS, metadata_refusal
from ottla.cluster.controller_events import (
    DeletionRequested,
    ElectionRequested,
    ElectionResult,
    PartitionKey,
    PartitionsRequested,
    ReassignmentRequested,
    ReassignmentResult,
    TopicCreated,
    TopicRequested,
)
from ottla.cluster.image import PartitionImage, TopicImage
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import Chance, TopicSpec, internal_topic_spec, plan_topic
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.control.controller_shell import ControllerShell
    from ottla.broker.control.coordination import ClusterSession
    from ottla.broker.control.membership import ClusterMembership
    from ottla.broker.control.metadata_publisher import MetadataPublisher
    from ottla.config.broker import BrokerConfig
    from ottla.env.randomness import Randomness

WITHOUT_LEADER_YET = TopicRefusal(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE.message)


class ClusterAdmin:
    """Has topics and partitions changed."""

    def __init__(
        self,
        session: ClusterSession,
        config: BrokerConfig,
        publisher: MetadataPublisher,
        membership: ClusterMembership,
        controller: ControllerShell,
        randomness: Randomness,
        new_uuid: Callable[[], UUID],
    ) -> None:
        self.image = publisher.image
        self._session = session
        self._config = config
        self._membership = membership
        self._controller = controller
        self._unheard_topics = publisher.unheard_topics
        self._randomness = randomness
        self._new_uuid = new_uuid

    async def create_topic(self, spec: TopicSpec, *, validate_only: bool = False) -> TopicCreated | TopicRefusal:
        """Create a topic. Its leaders are elected, and this broker has its logs, when this returns TopicCreated."""
        brokers = max(1, len(self.image.brokers))
        chance = Chance(self._randomness.below(brokers), self._randomness.below(brokers))
        topic_id = self._new_uuid()
        made = await self._controller.ask(lambda token: TopicRequested(token, spec, chance, topic_id, validate_only))
        assert isinstance(made, TopicCreated | TopicRefusal)
        return made

    async def ensure_topic(self, name: str) -> TopicRefusal | None:
        """Create a topic if it is missing, with the broker's defaults or, if it is internal, its own settings.

        LEADER_NOT_AVAILABLE: the topic is there, or another broker is creating it, and the controller, which may be
        another broker, elects its leaders. Or this broker has just started, and does not know yet what there is.
        """
        if name in self.image.topics:
            return None
        if not self._membership.is_controller and (not self.image.brokers or name in self._unheard_topics.names):
            return WITHOUT_LEADER_YET
        spec = internal_topic_spec(name, self._config, is_alone=not self._session.accepts_others)
        is_announced = not self._membership.is_controller and self._session.accepts_others
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
        plan = plan_topic(spec, self.image, self._config, chance)
        if isinstance(plan, TopicRefusal):
            return plan
        partitions = tuple(PartitionImage(-1, 0, replicas, ()) for _, replicas in sorted(plan.assignment.items()))
        topic = TopicImage(spec.name, self._new_uuid(), partitions, plan.configs, False)
        try:
            await self._session.zk.multi(await announcement(self._session.zk, topic))
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
        answer = await self._controller.ask(
            lambda token: PartitionsRequested(token, name, count, assignments, validate_only)
        )
        return _refusal(answer)

    async def delete_topic(self, name: str, topic_id: UUID | None = None) -> TopicRefusal | None:
        """Delete a topic with its logs, with `topic_id` only if that is its id; return the refusal if that fails."""
        return _refusal(await self._controller.ask(lambda token: DeletionRequested(token, name, topic_id)))

    async def reassign(
        self, wanted: Mapping[PartitionKey, tuple[int, ...] | None], *, needs_live: bool = False
    ) -> ReassignmentResult | TopicRefusal:
        """Begin to reassign partitions, or cancel (None); a refusal of the whole request if there is one."""
        result = await self._controller.ask(lambda token: ReassignmentRequested(token, wanted, needs_live))
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
        result = await self._controller.ask(lambda token: ElectionRequested(token, partitions, is_unclean))
        if isinstance(result, TopicRefusal):
            return ElectionResult(dict.fromkeys(partitions or (), result))
        assert isinstance(result, ElectionResult)
        return result


def _refusal(answer: object) -> TopicRefusal | None:
    assert answer is None or isinstance(answer, TopicRefusal)
    return answer
