"""Figures of replication and of the controller: what leaders here lack, and what the cluster lacks.

Those of the controller are 0 at all other brokers, as in Apache Kafka: sum them up over the brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.cluster.image import NO_LEADER
from ottla.env.disk import DiskError

if TYPE_CHECKING:
    from ottla.broker.replicas.leader import Leader
    from ottla.broker.services import BrokerServices
    from ottla.cluster.controller import Controller
    from ottla.cluster.image import PartitionImage
    from ottla.storage.log import PartitionLog


def leaders(broker: BrokerServices) -> int:
    """Partitions that it leads."""
    return sum(1 for each in broker.partitions if each.leader is not None)


def _shared(broker: BrokerServices) -> Iterator[tuple[Leader, PartitionLog]]:
    """The led partitions that have followers."""
    for each in broker.partitions.shared:
        if each.leader is not None:
            yield each.leader, each.log


def under_replicated(broker: BrokerServices) -> int:
    """Led partitions of which a replica is not in sync; those that a reassignment adds count, too, until they are."""
    return sum(1 for leader, _ in _shared(broker) if len(leader.isr) < 1 + len(leader.replicas.followers))


def under_min_isr(broker: BrokerServices) -> int:
    """Led partitions that refuse acks=all."""
    return sum(1 for leader, log in _shared(broker) if not leader.has_enough(log.config.min_insync_replicas))


def at_min_isr(broker: BrokerServices) -> int:
    """Led partitions that refuse acks=all as soon as one more replica falls behind."""
    return sum(
        1
        for leader, log in _shared(broker)
        if len(leader.isr) == leader.effective_minimum(log.config.min_insync_replicas)
        and len(leader.isr) < 1 + len(leader.replicas.followers)
    )


# Of the controller


def _controller(broker: BrokerServices) -> Controller | None:
    """The controller; None where another broker is it."""
    return broker.control.controller.controller if broker.control.is_controller else None


def active_controller(broker: BrokerServices) -> int:
    """1 at the controller."""
    return int(broker.control.is_controller)


def _partitions(broker: BrokerServices) -> Iterator[PartitionImage]:
    controller = _controller(broker)
    if controller is not None:
        deleting = controller.deleting
        for topic in controller.image.topics.values():
            if topic.name not in deleting:
                yield from topic.partitions


def offline_partitions(broker: BrokerServices) -> int:
    """Partitions of the cluster without a leader that lives."""
    alive = broker.image.brokers
    return sum(1 for each in _partitions(broker) if each.leader == NO_LEADER or each.leader not in alive)


def not_preferred(broker: BrokerServices) -> int:
    """Partitions of the cluster that their preferred replica does not lead."""
    return sum(1 for each in _partitions(broker) if each.leader != each.replicas[0])


def reassigning(broker: BrokerServices) -> int:
    """Partitions of the cluster that a reassignment moves."""
    controller = _controller(broker)
    return 0 if controller is None else controller.reassigning


def topics_to_delete(broker: BrokerServices) -> int:
    """Topics whose deletion is under way."""
    controller = _controller(broker)
    return 0 if controller is None else len(controller.deleting)


def topics_that_wait(broker: BrokerServices) -> int:
    """Topics whose deletion waits for a broker that is not there, or whose log directory has failed."""
    controller = _controller(broker)
    return 0 if controller is None else len(controller.waiting_deletions)


# Of disks


def usable_bytes(broker: BrokerServices) -> Iterator[tuple[tuple[str, ...], float]]:
    """Free bytes by log directory; one that has failed has none."""
    yield from ((key, free) for key, _, free in _volumes(broker))


def total_bytes(broker: BrokerServices) -> Iterator[tuple[tuple[str, ...], float]]:
    """Size of the volume by log directory."""
    yield from ((key, total) for key, total, _ in _volumes(broker))


def _volumes(broker: BrokerServices) -> Iterator[tuple[tuple[str, ...], int, int]]:
    for each in broker.config.log_dirs:
        try:
            total, free = broker.disk.space(each)
        except DiskError:
            continue
        yield (each,), total, free
