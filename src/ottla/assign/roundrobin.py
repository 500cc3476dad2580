"""The round robin assignor: all partitions of all topics in order, dealt to the members in a ring.

A member that does not subscribe to a partition's topic is passed over. Where all subscribe to the same topics, the
members' numbers of partitions differ by at most one.

Source: Apache Kafka 3.9, `org.apache.kafka.clients.consumer.RoundRobinAssignor`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from ottla.assign.assignor import AbstractPartitionAssignor, MemberSubscription, sorted_members, subscribers_by_topic
from ottla.assign.consumer_protocol import Partitions


class RoundRobinAssignor(AbstractPartitionAssignor):
    """Partitions dealt one by one; the ring continues from one topic to the next."""

    name = "roundrobin"

    def assign_partitions(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, Partitions]:
        """Deal topic by topic: of s subscribers, the k-th from where the ring stands gets k, k+s, k+2s and so on."""
        members = sorted_members(subscriptions)
        positions = {member_id: position for position, member_id in enumerate(members)}
        subscribers = subscribers_by_topic(subscriptions)
        assigned: dict[str, Partitions] = {member_id: {} for member_id in subscriptions}
        ring = 0
        for topic in sorted(partition_counts):
            count, wanting = partition_counts[topic], subscribers[topic]
            first = bisect_left(wanting, ring, key=positions.__getitem__)
            turn = wanting[first:] + wanting[:first]
            for number, member_id in enumerate(turn[:count]):
                assigned[member_id][topic] = tuple(range(number, count, len(turn)))
            ring = positions[turn[(count - 1) % len(turn)]] + 1
        return assigned
