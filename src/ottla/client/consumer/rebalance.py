"""The user's side of a rebalance: revocation before a join, partitions lost or assigned after it, the leader's work.

Source: Apache Kafka 3.9, `ConsumerCoordinator` (onJoinPrepare, onJoinComplete, onLeaderElected); KIP-429.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.assign.assignor import (
    ClusterMetadata,
    GroupMetadata,
    MemberSubscription,
    PartitionAssignor,
    RebalanceProtocol,
    SubscribedTopic,
)
from ottla.assign.consumer_protocol import (
    HIGHEST_VERSION,
    Assignment,
    Malformed,
    decode_assignment,
    decode_subscription,
    encode_assignments,
    encode_subscription,
)
from ottla.assign.registry import common_protocol
from ottla.client.consumer.listener import UserCall
from ottla.client.consumer.membership import NO_GENERATION, Membership
from ottla.client.consumer.missing_topics import MissingTopics
from ottla.client.consumer.subscription_state import SubscriptionState, SubscriptionType
from ottla.client.errors import ClientError, ProtocolError, RebalanceListenerError
from ottla.client.model import TopicPartition
from ottla.peer.cluster import Cluster
from ottla.wire.messages.join_group import JoinGroupResponse

log = logging.getLogger(__name__)

BUILT_IN_COOPERATIVE = "cooperative-sticky"
"""This assignor checks the members' owned partitions and their generations itself."""

MAX_LOGGED = 20
"""Limit of partitions listed in one log line."""

Snapshot = dict[str, SubscribedTopic]
"""What an assignment was based on: the topics with their partitions."""


class Rebalance:
    """See the module. Changes the subscription state; the coordinator drives the membership state machine."""

    def __init__(
        self,
        cluster: Cluster,
        membership: Membership,
        subscriptions: SubscriptionState,
        assignors: Mapping[str, PartitionAssignor],
        call: UserCall,
        client_rack: str = "",
    ) -> None:
        self._cluster = cluster
        self._membership = membership
        self._subscriptions = subscriptions
        self._assignors = assignors
        self._call = call
        self._rack = client_rack or None
        self.protocol = common_protocol(assignors.values())
        self._joined_subscription: frozenset[str] | None = None
        self._assigned_in = NO_GENERATION
        """The generation whose assignment was taken last."""
        self._assigned_from: Snapshot | None = None
        self._compared_version = -1
        self._missing = MissingTopics(cluster.clock)
        self._assigned_to_report: list[TopicPartition] | None = None
        """Partitions to pass to on_partitions_assigned; kept if the call is interrupted."""

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept during rebalances (cooperative protocol)."""
        return self.protocol is RebalanceProtocol.COOPERATIVE

    # Before a join

    def mark_pending(self) -> None:
        """An eager member is about to have everything revoked: return no more records."""
        if not self.is_cooperative:
            self._subscriptions.mark_pending_revocation(self._subscriptions.assigned_partitions)

    async def prepare(self) -> None:
        """Revoke what has to be revoked before joining. Raises RebalanceListenerError if the listener failed."""
        membership, subscriptions = self._membership, self._subscriptions
        owned = sorted(subscriptions.assigned_partitions)
        self._assigned_to_report = None
        error = None
        if membership.has_lost_membership:
            if owned:
                error = await self._call_listener("on_partitions_lost", owned)
                subscriptions.assign_from_subscribed([])
        elif not self.is_cooperative:
            error = await self._call_listener("on_partitions_revoked", owned)
            subscriptions.assign_from_subscribed([])
        elif gone := [each for each in owned if each.topic not in subscriptions.subscription]:
            error = await self._call_listener("on_partitions_revoked", gone)
            subscriptions.assign_from_subscribed(set(subscriptions.assigned_partitions).difference(gone))
        membership.gave_up_all = not subscriptions.assigned_partitions
        membership.is_leader = False
        self._assigned_from = None
        subscriptions.reset_group_subscription()
        if error is not None:
            raise error

    def protocols(self) -> list[tuple[str, bytes]]:
        """Return the subscription for each assignor, in order of preference."""
        subscriptions = self._subscriptions
        self._joined_subscription = subscriptions.subscription
        owned = _by_topic(subscriptions.assigned_partitions)
        return [
            (
                name,
                encode_subscription(
                    subscriptions.subscription,
                    self._user_data(name),
                    HIGHEST_VERSION,
                    owned_partitions=owned,
                    generation_id=self._membership.generation.generation_id,
                    rack_id=self._rack,
                ),
            )
            for name in self._assignors
        ]

    def _user_data(self, name: str) -> bytes | None:
        try:
            return self._assignors[name].subscription_user_data(sorted(self._subscriptions.subscription))
        except Exception as error:  # a custom assignor may raise anything
            raise _assignor_error(name, error) from error

    # After a join

    def to_revoke(self) -> list[TopicPartition]:
        """Return the partitions that the waiting assignment revokes from a cooperative member."""
        if not self.is_cooperative:
            return []
        assigned = set(self._waiting_assignment()[1])
        if not self._matches(assigned):
            return []  # the assignment is not taken
        return sorted(each for each in self._subscriptions.assigned_partitions if each not in assigned)

    async def complete(self) -> None:
        """Apply the waiting assignment. Raises RebalanceListenerError afterwards if the listener failed."""
        membership, subscriptions = self._membership, self._subscriptions
        read, assigned = self._waiting_assignment()
        self._assigned_in = membership.generation
        name = membership.generation.protocol_name or ""
        owned = set(subscriptions.assigned_partitions)
        if not self._matches(assigned):
            membership.assignment_taken()
            membership.request_rejoin("received assignment does not match the current subscription")
            return
        added = [each for each in assigned if each not in owned]
        revoked = self.to_revoke()
        error = None
        if revoked:
            error = await self._call_listener("on_partitions_revoked", revoked)
            membership.request_rejoin("need to revoke partitions and re-join")
        self._join_also(assigned)
        error = error or self._notify_assignor(read, name)
        if membership.assignment is not None:  # else it was lost during the listener call
            membership.assignment_taken()
            subscriptions.assign_from_subscribed(assigned)
            self._assigned_to_report = added
            failed = await self._call_on_assigned()
            error = error or failed
        if error is not None:
            raise error

    @property
    def has_pending_assignment_call(self) -> bool:
        """Whether the call of on_partitions_assigned was interrupted: no records are returned before it is complete."""
        return self._assigned_to_report is not None

    async def repeat_assignment_call(self) -> None:
        """Repeat that call from its beginning. Raises RebalanceListenerError if it fails."""
        if (error := await self._call_on_assigned()) is not None:
            raise error

    async def _call_on_assigned(self) -> ClientError | None:
        error = await self._call_listener("on_partitions_assigned", self._assigned_to_report or [])
        self._assigned_to_report = None
        return error

    def _waiting_assignment(self) -> tuple[Assignment, list[TopicPartition]]:
        read = decode_assignment(self._membership.assignment or b"")
        if isinstance(read, Malformed):
            raise ProtocolError(f"the assignment of the group's leader cannot be read: {read.message}")
        return read, sorted(TopicPartition(topic, index) for topic, some in read.partitions.items() for index in some)

    def _matches(self, assigned: Iterable[TopicPartition]) -> bool:
        subscriptions = self._subscriptions
        if subscriptions.type is SubscriptionType.PATTERN:
            return all(subscriptions.matches_pattern(each.topic) for each in assigned)
        return all(each.topic in subscriptions.subscription for each in assigned)

    def _join_also(self, assigned: Iterable[TopicPartition]) -> None:
        """Add topics that match the pattern and that the leader knew before this member did."""
        subscriptions = self._subscriptions
        added = {each.topic for each in assigned} - subscriptions.subscription
        if added and subscriptions.type is SubscriptionType.PATTERN:
            subscriptions.subscribe_from_pattern(subscriptions.subscription | added)
            self._joined_subscription = subscriptions.subscription

    def _notify_assignor(self, assignment: Assignment, name: str) -> ClientError | None:
        assignor = self._assignors.get(name)
        if assignor is None:
            return ProtocolError(f"the coordinator chose the assignor {name!r}, which this consumer did not offer")
        try:
            assignor.on_assignment(assignment, self.group_metadata())
        except Exception as error:  # a custom assignor may raise anything
            return _assignor_error(name, error)
        return None

    def group_metadata(self) -> GroupMetadata:
        """Return the group and this member, in the generation of its assignment.

        Heartbeats may have found meanwhile that it has fallen out of the group. Without member and generation a group
        coordinator would check nothing, and take offsets of partitions that others own by now.
        """
        settings, who = self._membership.settings, self._assigned_in
        if self._subscriptions.type is SubscriptionType.USER_ASSIGNED:
            who = NO_GENERATION
        return GroupMetadata(settings.group_id, who.generation_id, who.member_id, settings.group_instance_id)

    # Leaving

    async def give_up(self) -> None:
        """Before the member leaves: revoke all partitions; they are lost if it fell out of the group."""
        membership, subscriptions = self._membership, self._subscriptions
        owned = sorted(subscriptions.assigned_partitions)
        self._joined_subscription = self._assigned_from = self._assigned_to_report = None
        if not owned or not subscriptions.has_auto_assigned_partitions:
            return
        lost = membership.has_lost_membership or membership.is_rebalancing
        error = await self._call_listener("on_partitions_lost" if lost else "on_partitions_revoked", owned)
        subscriptions.assign_from_subscribed([])
        if error is not None:
            raise error

    # Changes that need a rebalance

    def reason_to_rejoin(self, metadata_version: int) -> str | None:
        """Return what has changed since the last join so that another one is needed; None for nothing.

        Cheap while `metadata_version` is the same as in the last call.
        """
        if self._assigned_from is not None and self._compared_version != metadata_version:
            self._compared_version = metadata_version
            if self._membership.is_leader and self._assigned_from != self._snapshot_with_missing(self._assigned_from):
                return "cached metadata has changed"
        joined, wanted = self._joined_subscription, self._subscriptions.subscription
        if joined is not None and joined is not wanted and joined != wanted:
            return "the subscription has changed since the last join"
        return None

    def snapshot(self) -> Snapshot:
        """Return the topics that the group reads, as far as they exist."""
        return {
            topic: self._topic(topic)
            for topic in self._subscriptions.metadata_topics()
            if topic in self._cluster.metadata.topics
        }

    def _snapshot_with_missing(self, before: Snapshot) -> Snapshot:
        """Same as `snapshot`, with temporarily missing topics as they were."""
        found, wanted = self.snapshot(), self._subscriptions.metadata_topics()
        passing = self._missing.passing([topic for topic in before if topic in wanted], found)
        return {**found, **{topic: before[topic] for topic in passing}}

    def _topic(self, name: str) -> SubscribedTopic:
        metadata = self._cluster.metadata
        partitions = metadata.topics[name].partitions
        racks = {node_id: node.rack for node_id, node in metadata.nodes.items() if node.rack}
        if not racks:
            return SubscribedTopic(len(partitions))
        return SubscribedTopic(
            len(partitions),
            tuple(frozenset(racks[node] for node in each.replicas if node in racks) for each in partitions),
        )

    # Leading

    async def assign(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """Compute the assignment of all members, by member id; empty if the last one stays valid (KIP-814)."""
        subscriptions = self._subscriptions
        name = answer.protocol_name or ""
        members: dict[str, MemberSubscription] = {}
        for member in answer.members:
            read = decode_subscription(member.metadata)
            if isinstance(read, Malformed):
                raise ProtocolError(f"the subscription of member {member.member_id} cannot be read: {read.message}")
            members[member.member_id] = MemberSubscription(read, member.group_instance_id)
        topics = {topic for member in members.values() for topic in member.subscription.topics}
        subscriptions.group_subscribe(topics)
        await self._know(topics)
        self._membership.is_leader = True
        if answer.skip_assignment:
            self._assigned_from = self.snapshot()
            return {}
        try:
            assigned = self._assignors[name].assign(ClusterMetadata(self.snapshot()), members)
        except Exception as error:  # a custom assignor may raise anything
            raise _assignor_error(name, error) from error
        if self.is_cooperative and name != BUILT_IN_COOPERATIVE:
            _check_nothing_changes_hands(name, members, assigned)
        subscriptions.group_subscribe(topics.union(*(one.partitions for one in assigned.values())))
        self._assigned_from = self.snapshot()
        return encode_assignments(assigned)

    async def _know(self, topics: Iterable[str]) -> None:
        """Request metadata of topics that only other members read."""
        metadata = self._cluster.metadata
        if any(each not in metadata.topics and each not in metadata.errors for each in topics):
            await self._cluster.refresh(sorted({*topics, *self._subscriptions.metadata_topics()}))

    # The user's listener

    async def _call_listener(self, method: str, partitions: Sequence[TopicPartition]) -> ClientError | None:
        """Call a method of the listener; returns its error."""
        listener: Any = self._subscriptions.listener
        group = self._membership.settings.group_id
        names = ", ".join(map(str, partitions[:MAX_LOGGED])) or "nothing"
        more = len(partitions) - MAX_LOGGED
        log.info("group %s: %s %s%s", group, method, names, f" and {more} more" if more > 0 else "")
        if listener is None:
            return None
        called = getattr(listener, method, None)
        if called is None and method == "on_partitions_lost":
            called = getattr(listener, "on_partitions_revoked", None)
        if called is None:
            return None
        try:
            await self._call(called, partitions)
        except ClientError as error:
            return error
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the user's code may raise anything
            failed = RebalanceListenerError(
                f"{method} of the listener failed with {type(error).__name__}: {error}; the rebalance continued"
            )
            failed.__cause__ = error
            return failed
        return None


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(index)
    return grouped


def _assignor_error(name: str, error: Exception) -> ClientError:
    failed = ClientError(f"the assignor {name} failed with {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


def _check_nothing_changes_hands(
    name: str, members: Mapping[str, MemberSubscription], assigned: Mapping[str, Assignment]
) -> None:
    """Check that a cooperative assignor gives no member a partition that another still owns."""
    owners = {
        (topic, index): member_id
        for member_id, member in members.items()
        for topic, some in member.subscription.owned_partitions.items()
        for index in some
    }
    for member_id, one in assigned.items():
        for topic, some in one.partitions.items():
            for index in some:
                if owners.get((topic, index), member_id) != member_id:
                    raise ClientError(
                        f"the cooperative assignor {name} gives {topic}-{index} to {member_id} while "
                        f"{owners[topic, index]} still owns it; take it away first, and give it in the next rebalance"
                    )
