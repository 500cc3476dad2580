"""A cluster as plans of reassignments see it: brokers with racks and capacities, partitions with their sizes.

Only public APIs are asked (Metadata, DescribeLogDirs, ListPartitionReassignments), so that plans can be made for
brokers of Apache Kafka as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.ops.cluster_status import BrokerStatus, ClusterStatus, PartitionStatus, read_cluster_status
from ottla.ops.planning.model import PlannedBroker, PlannedPartition
from ottla.peer.cluster import Cluster


class PlannedCluster(NamedTuple):
    """The basis of a plan. `silent` are brokers that did not say the sizes of their logs, with the reason."""

    brokers: list[PlannedBroker]
    partitions: list[PlannedPartition]
    silent: dict[int, str]


async def read_planned_cluster(cluster: Cluster, may_move: Callable[[str], bool]) -> PlannedCluster:
    """Ask all brokers. `may_move` says of which topics partitions may be moved; the others count.

    Raises ClientError.
    """
    return planned_cluster(await read_cluster_status(cluster, configs=(), offsets=False), may_move)


def planned_cluster(status: ClusterStatus, may_move: Callable[[str], bool]) -> PlannedCluster:
    """The cluster, in the form that a plan needs."""
    brokers = [
        PlannedBroker(each.node.node_id, each.node.rack, capacity_of(each), is_alive=True) for each in status.brokers
    ]
    partitions = [
        _planned(each, may_move(topic.name)) for topic in status.topics for each in topic.partitions if each.replicas
    ]
    return PlannedCluster(brokers, partitions, status.silent)


def capacity_of(broker: BrokerStatus) -> int | None:
    """The bytes that the broker's logs can take: their size and the free space; None if it did not say.

    Log directories whose volumes have equal sizes and equal free space count as directories of one volume.
    """
    alive = [each for each in broker.log_dirs.values() if each.error is None]
    if not alive or any(each.usable_bytes < 0 for each in alive):
        return None
    free = {(each.total_bytes, each.usable_bytes) for each in alive}
    return sum(usable for _, usable in free) + broker.size_bytes


def _planned(each: PartitionStatus, may_move: bool) -> PlannedPartition:
    return PlannedPartition(
        topic=each.partition.topic,
        partition=each.partition.partition,
        replicas=tuple(replica.broker for replica in each.replicas),
        # Of the leader; of one that did not say it, of whoever did.
        size_bytes=each.size_bytes or max((replica.size_bytes or 0 for replica in each.replicas), default=0),
        leader=each.leader,
        isr=each.isr,
        may_move=may_move,
        is_moving=bool(each.adding or each.removing),
        offline=tuple(replica.broker for replica in each.replicas if replica.is_offline),
    )
