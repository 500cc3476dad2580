"""The range assignor: per topic, neighbouring partitions to each member, in the members' order.

Where members and replicas have racks, members get partitions with a replica in their own rack first, as far as that
leaves the numbers as they are; topics with the same members and the same number of partitions (co-partitioned ones,
which are joined by partition number) keep the same member for the same number.

Source: Apache Kafka 3.9, `org.apache.kafka.clients.consumer.RangeAssignor`; KIP-881.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ottla.assign.assignor import (
    ClusterMetadata,
    MemberSubscription,
    PartitionAssignor,
    SubscribedTopic,
    subscribed_partition_counts,
    subscribers_by_topic,
)
from ottla.assign.consumer_protocol import Assignment, Partitions


class RangeAssignor(PartitionAssignor):
    """Ranges of partitions, topic by topic; the first members get one more where it does not come out even."""

    name = "range"

    def assign(
        self, cluster: ClusterMetadata, subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, Assignment]:
        """Assign the topics that exist and have subscribers."""
        racks = member_racks(subscriptions)
        members = subscribers_by_topic(subscriptions)
        counts = subscribed_partition_counts(cluster, subscriptions)
        if any(_needs_racks(cluster.topics[name], members[name], racks) for name in counts):
            topics = [_TopicRanges(name, cluster.topics[name], members[name], racks) for name in counts]
            assigned = _assign_with_racks(topics, subscriptions)
        else:
            assigned = _assign_ranges(counts, members, subscriptions)
        return {member_id: Assignment(0, partitions, None) for member_id, partitions in assigned.items()}


def even_ranges(count: int, shares: int) -> Iterator[range]:
    """`count` numbers cut into `shares` ranges whose lengths differ by at most one, the longer ones first."""
    quota, longer = divmod(count, shares)
    start = 0
    for share in range(shares):
        end = start + quota + (share < longer)
        yield range(start, end)
        start = end


def member_racks(subscriptions: Mapping[str, MemberSubscription]) -> dict[str, str]:
    """The racks of the members that have one, by member id."""
    return {
        member_id: member.subscription.rack_id
        for member_id, member in subscriptions.items()
        if member.subscription.rack_id
    }


def racks_matter(wanted: set[str], partition_racks: Sequence[frozenset[str]]) -> bool:
    """Whether it makes a difference which member gets which partition: `wanted` are the racks of the members.

    It makes none where no replica is in any of them, or where every partition has replicas in the same racks.
    """
    there = frozenset().union(*partition_racks)
    return not wanted.isdisjoint(there) and any(racks != there for racks in partition_racks)


def _needs_racks(topic: SubscribedTopic, members: Iterable[str], racks: Mapping[str, str]) -> bool:
    if topic.racks is None or not racks:
        return False
    return racks_matter({racks[member_id] for member_id in members if member_id in racks}, topic.racks)


def _assign_ranges(
    counts: Mapping[str, int], members: Mapping[str, Sequence[str]], everybody: Iterable[str]
) -> dict[str, Partitions]:
    assigned: dict[str, Partitions] = {member_id: {} for member_id in everybody}
    shares: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for topic, count in counts.items():
        cut = (count, len(members[topic]))
        if cut not in shares:
            shares[cut] = [tuple(share) for share in even_ranges(*cut) if share]
        # Those behind the last share get nothing.
        for member_id, share in zip(members[topic], shares[cut], strict=False):
            assigned[member_id][topic] = share
    return assigned


def _assign_with_racks(topics: Iterable[_TopicRanges], everybody: Iterable[str]) -> dict[str, Partitions]:
    """First what is in the members' own racks, then the rest; everything sorted by topic and partition."""
    alike: dict[tuple[tuple[str, ...], int], list[_TopicRanges]] = {}
    by_name = sorted(topics, key=lambda topic: topic.name)
    for topic in by_name:
        alike.setdefault((topic.members, topic.count), []).append(topic)
    for together in alike.values():
        if len(together) > 1:
            _match_together(together)
        elif together[0].needs_racks:
            together[0].match_racks()
    assigned: dict[str, Partitions] = {member_id: {} for member_id in everybody}
    for topic in by_name:
        topic.share_the_rest()
        for member_id, partitions in topic.assigned.items():
            if partitions:
                assigned[member_id][topic.name] = tuple(sorted(partitions))
    return assigned


def _match_together(topics: Sequence[_TopicRanges]) -> None:
    """Give partition p of all the topics to the first member that can have more and has a replica of each in its rack.

    The topics have the same members and counts, so that what one of them may still give, the others may, too.
    """
    first = topics[0]
    if not first.has_racks:
        return
    waiting: dict[str | None, deque[int]] = {}
    for position, member_id in enumerate(first.members):
        waiting.setdefault(first.racks.get(member_id), deque()).append(position)
    for index in range(first.count):
        common = frozenset.intersection(*(topic.replica_racks(index) for topic in topics))
        heads = [queue for rack, queue in waiting.items() if queue and (rack is None or rack in common)]
        if not heads:
            continue
        queue = min(heads, key=lambda positions: positions[0])
        member_id = first.members[queue[0]]
        for topic in topics:
            topic.give(member_id, index)
        # Once the longer shares are given away, everybody who has a shorter one has enough.
        for each in waiting.values():
            while each and not first.may_have(first.members[each[0]]):
                each.popleft()


class _TopicRanges:
    """The state of one topic while its partitions are given away."""

    def __init__(self, name: str, topic: SubscribedTopic, members: Iterable[str], racks: Mapping[str, str]) -> None:
        self.name = name
        self.count = topic.partitions
        self.members = tuple(members)
        self.racks = racks
        self.assigned: dict[str, list[int]] = {member_id: [] for member_id in self.members}
        self._partition_racks = topic.racks or (frozenset(),) * topic.partitions
        self._quota, self._longer_shares = divmod(self.count, len(self.members))
        self._free = bytearray(b"\x01" * self.count)
        self.has_racks = any(member_id in racks for member_id in self.members)
        self.needs_racks = _needs_racks(topic, self.members, racks)

    def replica_racks(self, index: int) -> frozenset[str]:
        return self._partition_racks[index]

    def may_have(self, member_id: str) -> int:
        """How many more partitions the member may get."""
        return max(0, self._quota + (self._longer_shares > 0) - len(self.assigned[member_id]))

    def give(self, member_id: str, *indexes: int) -> None:
        for index in indexes:
            self._free[index] = 0
        self.assigned[member_id] += indexes
        if indexes and len(self.assigned[member_id]) > self._quota:
            self._longer_shares -= 1

    def match_racks(self) -> None:
        """Each member in turn takes what has a replica in its rack; members without a rack take anything."""
        everything = iter(range(self.count))
        by_rack: dict[str, Iterator[int]] = {}
        for member_id in self.members:
            rack = self.racks.get(member_id)
            if rack is None:
                self._take(member_id, everything)
            else:
                if rack not in by_rack:
                    by_rack[rack] = iter([p for p, racks in enumerate(self._partition_racks) if rack in racks])
                self._take(member_id, by_rack[rack])

    def share_the_rest(self) -> None:
        """Each member in turn takes what is left of its share."""
        everything = iter(range(self.count))
        for member_id in self.members:
            self._take(member_id, everything)

    def _take(self, member_id: str, candidates: Iterator[int]) -> None:
        """Give the member its share of free `candidates`. All that a shared iterator has passed is given away."""
        taken: list[int] = []
        most = self.may_have(member_id)
        while len(taken) < most:
            index = next(candidates, None)
            if index is None:
                break
            if self._free[index]:
                taken.append(index)
        self.give(member_id, *taken)
