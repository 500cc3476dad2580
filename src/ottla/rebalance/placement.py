"""The example of placement: the replicas of a topic's partitions, by brokers, factor, racks, start and shift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ottla.cluster.placement import BrokerRack, assign_replicas, rack_alternated
from ottla.cluster.refusal import TopicRefusal


class PlacementRefused(Exception):
    """The replicas cannot be placed, in Kafka's words."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Brokers 0, 1, …, their racks in this order (one without has ""), and where the first replicas go."""

    brokers: int = 6
    partitions: int = 10
    factor: int = 3
    racks: tuple[str, ...] = ()
    start: int = 4
    shift: int = 0


def introduction(placement: Placement) -> Iterator[str]:
    """The rule."""
    brokers, racks = placement.brokers, _racks(placement)
    size = f"{brokers} brokers, {placement.partitions} partitions, replication factor {placement.factor}"
    yield f"{size}, start {placement.start}, shift {placement.shift}."
    yield f"The first replica of partition p is at place (start + p) mod {brokers}, the second 1 + shift places behind"
    yield "it, the next ones behind that, past the first. With each round of the brokers the shift grows by 1. Kafka"
    yield "draws start and shift at random."
    if racks and len(racks) == brokers:
        order = ", ".join(map(str, rack_alternated(racks)))
        yield f"The places are the brokers with racks alternated: {order}. The shift counts"
        yield f"{len(set(racks.values()))} places, and no rack gets a second replica while another has none."
    else:
        yield "The places are the brokers by id."


def place(placement: Placement) -> Iterator[Mapping[str, object]]:
    """A row for each partition. Raises `PlacementRefused`."""
    racks = _racks(placement)
    brokers = [BrokerRack(broker, racks.get(broker)) for broker in range(placement.brokers)]
    assigned = assign_replicas(
        brokers, placement.partitions, placement.factor, start=placement.start, shift=placement.shift
    )
    if isinstance(assigned, TopicRefusal):
        raise PlacementRefused(assigned.message)
    for partition, replicas in assigned.items():
        of_racks = {"racks": [racks[broker] for broker in replicas]} if racks else {}
        yield {"partition": partition, "replicas": list(replicas), **of_racks}


def _racks(placement: Placement) -> dict[int, str]:
    return {broker: rack for broker, rack in enumerate(placement.racks) if rack}
