"""The assignor interface: from the group's subscriptions and the topics to an assignment for each member.

An assignor sees the cluster as `ClusterMetadata` and the group as subscriptions by member id, and answers with what is
encoded for each member (`ottla.assign.consumer_protocol.Assignment`: partitions by topic, in order). The built-in
ones, whose results equal those of Kafka's Java clients, are in the modules beside this one.

Source: Apache Kafka 3.9, `org.apache.kafka.clients.consumer.ConsumerPartitionAssignor`; KIP-429 (rebalance protocols),
KIP-881 (racks).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from ottla.assign.consumer_protocol import Assignment, Partitions, Subscription
from ottla.assign.java_order import hash_map_order, text_order


class RebalanceProtocol(Enum):
    """The handling of owned partitions when a rebalance begins; the value is the byte of Kafka's own enumeration."""

    EAGER = 0
    """They give up everything before they join."""
    COOPERATIVE = 1
    """They keep everything, and give up afterwards what the assignment takes from them."""


@dataclass(frozen=True, slots=True)
class SubscribedTopic:
    """A topic: how many partitions it has and, where brokers have racks, the racks of each partition's replicas."""

    partitions: int
    racks: tuple[frozenset[str], ...] | None = None
    """By partition index; None where no broker has a rack."""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The topics that the assigning member knows, by name; one that is subscribed but not here has no partitions."""

    topics: Mapping[str, SubscribedTopic]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member's subscription, as it sent it in its JoinGroup."""

    subscription: Subscription
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The group as a member knows it when it gets its assignment."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class PartitionAssignor(ABC):
    """An assignor; custom ones derive from this class, or from `AbstractPartitionAssignor`, and need no arguments.

    `name` is what members agree on (`protocol_name` on the wire); `version` is the subscription's version of what
    `subscription_user_data` gives; `supported_protocols` lists what its members can do, where a member takes the
    highest that all its assignors share.
    """

    name: str
    version: int = 0
    supported_protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """The user data that this member adds to its subscription of `topics`, None for none."""
        return None

    @abstractmethod
    def assign(
        self, cluster: ClusterMetadata, subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, Assignment]:
        """The assignment of every member, by member id; called on the leader."""

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Called on every member with what it got; this one takes no notice."""
        return


class AbstractPartitionAssignor(PartitionAssignor):
    """An assignor that needs no more than the number of partitions of each topic."""

    def assign(
        self, cluster: ClusterMetadata, subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, Assignment]:
        """Assign the topics that exist and have subscribers."""
        partition_counts = subscribed_partition_counts(cluster, subscriptions)
        assigned = self.assign_partitions(partition_counts, subscriptions)
        return {member_id: Assignment(0, partitions, None) for member_id, partitions in assigned.items()}

    @abstractmethod
    def assign_partitions(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, Partitions]:
        """The partitions of every member, by member id; `partition_counts` holds topics with at least one partition."""


def subscribed_partition_counts(
    cluster: ClusterMetadata, subscriptions: Mapping[str, MemberSubscription]
) -> dict[str, int]:
    """How many partitions each subscribed topic has; topics without are left out.

    They come in the order in which a Java leader, which keeps members and topics in hash maps, meets them.
    """
    subscribed = (
        topic for member_id in hash_map_order(subscriptions) for topic in subscriptions[member_id].subscription.topics
    )
    there = (
        name for name in hash_map_order(subscribed) if name in cluster.topics and cluster.topics[name].partitions > 0
    )
    return {name: cluster.topics[name].partitions for name in hash_map_order(there)}


def sorted_members(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """The member ids in the order in which range and round robin serve them.

    Static members come first, by their instance id, so that one which comes back under a new member id gets what it
    had; the others follow by member id.
    """

    def order(member_id: str) -> tuple[bool, bytes]:
        instance = subscriptions[member_id].group_instance_id
        return instance is None, text_order(member_id if instance is None else instance)

    return sorted(subscriptions, key=order)


def subscribers_by_topic(subscriptions: Mapping[str, MemberSubscription]) -> dict[str, list[str]]:
    """The members that subscribe to each topic, in the order of `sorted_members`.

    Topics to which the same members subscribe may share a list.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    members = sorted_members(subscriptions)
    for member_id in members:
        alike.setdefault(subscriptions[member_id].subscription.topics, []).append(member_id)
    if len(alike) == 1:
        return dict.fromkeys(subscriptions[members[0]].subscription.topics, members)
    by_topic: dict[str, list[str]] = {}
    for member_id in members:
        for topic in dict.fromkeys(subscriptions[member_id].subscription.topics):
            by_topic.setdefault(topic, []).append(member_id)
    return by_topic
