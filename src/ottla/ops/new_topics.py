"""Placement of a topic that is only validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.client.admin.model import CreatedTopic, NewTopic
from ottla.cluster.placement import BrokerRack, assign_replicas
from ottla.cluster.refusal import TopicRefusal
from ottla.peer.model import Node


class PlacedPartition(NamedTuple):
    """Replicas that a partition would have, the preferred leader first, and their racks."""

    partition: int
    replicas: tuple[int, ...]
    racks: tuple[str | None, ...]

    @property
    def row(self) -> dict[str, object]:
        """As an object."""
        return {"partition": self.partition, "replicas": list(self.replicas), "racks": list(self.racks)}


def placement_of(nodes: Mapping[int, Node], topic: NewTopic, answer: CreatedTopic) -> list[PlacedPartition]:
    """The placement that the controller would choose on these brokers, with a start and a shift of 0.

    `answer` is the controller's, which has the numbers that its defaults give. Empty where it does not say them, as
    controllers before Kafka 2.4.
    """
    assigned: Mapping[int, Sequence[int]] | TopicRefusal = topic.replica_assignments or assign_replicas(
        [BrokerRack(each.node_id, each.rack) for each in nodes.values()],
        topic.num_partitions if topic.num_partitions > 0 else answer.num_partitions,
        topic.replication_factor if topic.replication_factor > 0 else answer.replication_factor,
        start=0,
        shift=0,
    )
    if isinstance(assigned, TopicRefusal):
        return []
    racks = {each.node_id: each.rack for each in nodes.values()}
    return [
        PlacedPartition(partition, tuple(replicas), tuple(racks.get(each) for each in replicas))
        for partition, replicas in assigned.items()
    ]
