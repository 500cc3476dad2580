"""Assignments proposed for topics on some brokers, as `kafka-reassign-partitions --generate` does it.

Source: `ReassignPartitionsCommand.generateAssignment` of Apache Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ottla.client.errors import InvalidArgumentError
from ottla.client.model import Node, TopicMetadata, TopicPartition
from ottla.cluster.placement import BrokerRack, assign_replicas
from ottla.cluster.refusal import TopicRefusal

Draw = Callable[[int], int]
"""A number below this one, by chance: where a topic begins."""


def proposed(
    topics: Iterable[TopicMetadata], brokers: Sequence[Node], draw: Draw, *, rack_aware: bool = True
) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas on these brokers, as many as each topic has, spread evenly over brokers and racks.

    Raises InvalidArgumentError: too few brokers, or some without a rack.
    """
    places = [BrokerRack(node.node_id, node.rack if rack_aware else None) for node in brokers]
    if any(each.rack is None for each in places) and any(each.rack is not None for each in places):
        raise InvalidArgumentError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in topics:
        factor = len(topic.partitions[0].replicas)
        count = len(topic.partitions)
        assigned = assign_replicas(places, count, factor, start=draw(len(places)), shift=draw(len(places)))
        if isinstance(assigned, TopicRefusal):
            raise InvalidArgumentError(f"topic {topic.name}: {assigned.message}")
        found.update({TopicPartition(topic.name, index): replicas for index, replicas in assigned.items()})
    return found
