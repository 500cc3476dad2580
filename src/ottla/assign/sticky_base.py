"""The common part of the sticky assignors: first balanced, then as close as possible to the former assignment.

Where all members subscribe to the same topics, `ottla.assign.sticky_equal` does the work, else
`ottla.assign.sticky_general`. Each assignor decides how a member states its former partitions: `member_data`.

Source: Apache Kafka 3.9, `AbstractStickyAssignor`; KIP-54 (sticky), KIP-341 (generations), KIP-881 (racks). Where
Java's result cannot be wanted, ours differs: `docs/decisions/0032-sticky-results.md`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.assign.assignor import ClusterMetadata, MemberSubscription, PartitionAssignor
from ottla.assign.consumer_protocol import Assignment, Subscription
from ottla.assign.java_order import hash_map_order, sorted_texts
from ottla.assign.sticky_equal import EqualAssignment
from ottla.assign.sticky_general import GeneralAssignment, by_fewest_subscribers, earlier_owners
from ottla.assign.sticky_partitions import NO_GENERATION, MemberData, NumberedPartitions, previous_owners, racks_in_use


@dataclass(slots=True)
class StickyAssignment:
    """The result of an algorithm, in numbers."""

    numbered: NumberedPartitions
    assigned: dict[str, list[int]]
    """The partitions of each member, in order."""
    changing_hands: dict[int, str] | None
    """Whom a partition is given to that another member may still own; None where that was not followed."""


class AbstractStickyAssignor(PartitionAssignor):
    """An assignor that keeps partitions where they are; one that derives from it says what members had."""

    _newest_generation = NO_GENERATION
    """That any member has spoken of in an assignment that this one made; what is older is an earlier owner's."""

    @abstractmethod
    def member_data(self, subscription: Subscription) -> MemberData:
        """The former partitions of a member, from its subscription."""

    def held_back(self, assignment: StickyAssignment, sent: Mapping[str, Subscription]) -> Mapping[int, str]:
        """Delivery of withheld partitions; this one gives everything at once."""
        return {}

    def assign(
        self, cluster: ClusterMetadata, subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, Assignment]:
        """Assign the topics that exist and have subscribers."""
        if not subscriptions:
            return {}
        sent = {member_id: subscriptions[member_id].subscription for member_id in hash_map_order(subscriptions)}
        data = {member_id: self.member_data(one) for member_id, one in sent.items()}
        stated = [of.generation for of in data.values() if of.generation is not None]
        self._newest_generation = max(self._newest_generation, *stated, NO_GENERATION)
        counts = _partition_counts(cluster, sent)
        if _all_equal(sent):
            made = _assign_equally(cluster, counts, sent, data)
        else:
            made = _assign_generally(cluster, counts, sent, data, self._newest_generation)
        for number, member_id in self.held_back(made, sent).items():
            made.assigned[member_id].remove(number)
        partitions = made.numbered.partitions
        return {member_id: Assignment(0, partitions(made.assigned[member_id]), None) for member_id in subscriptions}


def _partition_counts(cluster: ClusterMetadata, sent: Mapping[str, Subscription]) -> dict[str, int]:
    """How many partitions each subscribed topic has, in no order; topics without are left out."""
    names = set[str]().union(*(one.topics for one in sent.values()))
    there = ((name, cluster.topics[name].partitions) for name in names if name in cluster.topics)
    return {name: count for name, count in there if count > 0}


def _all_equal(sent: Mapping[str, Subscription]) -> bool:
    """Whether all subscribe to the same topics; who names one twice counts as another one, as in Java."""
    lists = iter(sent.values())
    first = next(lists).topics
    topics = set(first)
    return all(
        len(one.topics) == len(topics) and (one.topics == first or topics.issuperset(one.topics)) for one in lists
    )


def _generations(sent: Mapping[str, Subscription]) -> dict[str, int]:
    return {member_id: one.generation_id for member_id, one in sent.items()}


def _assign_equally(
    cluster: ClusterMetadata,
    counts: Mapping[str, int],
    sent: Mapping[str, Subscription],
    data: Mapping[str, MemberData],
) -> StickyAssignment:
    numbered = NumberedPartitions(sorted_texts(counts), counts)
    racks = racks_in_use(numbered, cluster, {member_id: one.rack_id for member_id, one in sent.items()})
    assignment = EqualAssignment(numbered, racks, previous_owners(numbered, data, _generations(sent)))
    assignment.assign()
    assigned = {member_id: kept + assignment.added[member_id] for member_id, kept in assignment.kept.items()}
    return StickyAssignment(numbered, assigned, assignment.changing_hands())


def _assign_generally(
    cluster: ClusterMetadata,
    counts: Mapping[str, int],
    sent: Mapping[str, Subscription],
    data: Mapping[str, MemberData],
    newest_generation: int,
) -> StickyAssignment:
    wanted = {member_id: one.topics for member_id, one in sent.items()}
    numbered = NumberedPartitions(by_fewest_subscribers(counts, wanted), counts)
    racks = racks_in_use(numbered, cluster, {member_id: one.rack_id for member_id, one in sent.items()})
    previous = previous_owners(numbered, data, _generations(sent))
    earlier = earlier_owners(numbered, data, newest_generation)
    assignment = GeneralAssignment(numbered, racks, previous.owned, wanted, earlier)
    assignment.assign()
    assigned = {
        member_id: list(numbers) for member_id, numbers in zip(assignment.names, assignment.assigned, strict=True)
    }
    return StickyAssignment(numbered, assigned, None)
