"""Replica placement: even over brokers, each replica on another one, racks alternated (Kafka's AdminUtils, KIP-36)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple

from ottla.assign.java_order import sorted_texts
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode


class BrokerRack(NamedTuple):
    """A broker and its rack; None if it has none."""

    id: int
    rack: str | None = None


Assignment = dict[int, tuple[int, ...]]
"""Replicas by partition, the preferred leader first."""


def assign_replicas(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> Assignment | TopicRefusal:
    """Assign replicas to `partitions` new partitions, numbered from `first_partition`.

    `start` is the position, in the order of broker ids (or of alternating racks), of the first replica of the first
    partition; `shift` the distance to its second. Callers choose both at random, so that topics spread; for added
    partitions they follow from the existing assignment. Refuses, in Kafka's words, impossible assignments.
    """
    if partitions <= 0:
        return TopicRefusal(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        return TopicRefusal(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        return TopicRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.",
        )
    racks = {broker.id: broker.rack for broker in brokers if broker.rack is not None}
    if racks and len(racks) < len(brokers):
        return TopicRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Not all brokers have rack information for replica rack aware assignment.",
        )
    numbers = range(first_partition, first_partition + partitions)
    # The first replica is the same one again after as many partitions as there are brokers, the distance to the second
    # after as many rounds as it has values: a topic of many partitions shares the replicas of its first ones.
    period = numbers[: len(brokers) * max(1, len(brokers) - 1)]
    if racks:
        placed = _rack_aware(racks, period, replication_factor, start, shift)
    else:
        placed = _rack_unaware(sorted(broker.id for broker in brokers), period, replication_factor, start, shift)
    return dict(zip(numbers, cycle(placed), strict=False))


def replica_index(first: int, shift: int, replica: int, brokers: int) -> int:
    """The position of a further replica, `replica` counting from 0; never that of the first."""
    return (first + 1 + (shift + replica) % (brokers - 1)) % brokers


def _rack_unaware(
    ids: Sequence[int], partitions: range, replication_factor: int, start: int, shift: int
) -> list[tuple[int, ...]]:
    placed: list[tuple[int, ...]] = []
    for partition in partitions:
        if partition > 0 and partition % len(ids) == 0:
            shift += 1
        first = (partition + start) % len(ids)
        others = (replica_index(first, shift, replica, len(ids)) for replica in range(replication_factor - 1))
        placed.append((ids[first], *(ids[place] for place in others)))
    return placed


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Broker ids in round-robin order over the racks, in Java's order of their names."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    waiting = [iter(by_rack[rack]) for rack in sorted_texts(by_rack)]
    order: list[int] = []
    while len(order) < len(racks):
        for brokers in waiting:
            order.extend(islice(brokers, 1))
    return order


def _rack_aware(
    racks: Mapping[int, str], partitions: range, replication_factor: int, start: int, shift: int
) -> list[tuple[int, ...]]:
    order = rack_alternated(racks)
    count_of_racks = len(set(racks.values()))
    placed: list[tuple[int, ...]] = []
    for partition in partitions:
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (partition + start) % len(order)
        replicas = [order[first]]
        tried = 0
        while len(replicas) < replication_factor:
            broker = order[replica_index(first, shift * count_of_racks, tried, len(order))]
            tried += 1
            if _may_hold(broker, replicas, racks, count_of_racks):
                replicas.append(broker)
        placed.append(tuple(replicas))
    return placed


def _may_hold(broker: int, replicas: Sequence[int], racks: Mapping[int, str], count_of_racks: int) -> bool:
    """Whether the broker may take a replica: it has none yet, nor has its rack while another rack has none."""
    if broker in replicas:
        return False
    used_racks = {racks[replica] for replica in replicas}
    return racks[broker] not in used_racks or len(used_racks) == count_of_racks
