"""Leader election and ISR checks: `PartitionLeaderElectionAlgorithms`, AlterPartition. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ottla.cluster.image import NO_LEADER, PartitionImage
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.cluster.controller_events import IsrProposed, LiveBroker
    from ottla.cluster.placement import Assignment


def elect(state: PartitionImage, live: Collection[int]) -> PartitionImage:
    """Elect a leader for a partition without a live one: the first live replica in sync.

    If no replica in sync is alive there is no leader, and the ISR stays: no other replica has all records. A partition
    that never had a leader has no ISR yet; it starts as soon as one of its replicas is alive.
    """
    if state.leader in live:
        return state
    if not state.isr:
        first = first_state(state.replicas, live)
        return state if first == state else first
    leader = next((broker for broker in state.replicas if broker in live and broker in state.isr), NO_LEADER)
    if leader == NO_LEADER:
        # Not written: the epoch stays the dead leader's, which leads on if it comes back first.
        return state._replace(leader=NO_LEADER)
    isr = tuple(broker for broker in state.isr if broker in live)
    return state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)


def first_state(replicas: tuple[int, ...], live: Collection[int]) -> PartitionImage:
    """The state of a new partition: its first live replica leads, and all live ones are in sync."""
    alive = tuple(broker for broker in replicas if broker in live)
    return PartitionImage(alive[0] if alive else NO_LEADER, 0, replicas, alive)


def first_states(assignment: Assignment, live: Collection[int]) -> tuple[PartitionImage, ...]:
    """The states of new partitions, in order; partitions with the same replicas share one object."""
    known = {replicas: first_state(replicas, live) for replicas in set(assignment.values())}
    return tuple(known[replicas] for _, replicas in sorted(assignment.items()))


def prefer(state: PartitionImage, live: Collection[int]) -> PartitionImage | str:
    """The state with the preferred replica as leader, or why it cannot lead; unchanged if it leads already."""
    preferred = state.replicas[0]
    if state.leader == preferred:
        return state
    if preferred not in live:
        return f"its preferred replica, broker {preferred}, is not alive"
    if preferred not in state.isr:
        return f"its preferred replica, broker {preferred}, is not in sync"
    return state._replace(leader=preferred, leader_epoch=state.leader_epoch + 1)


def isr_refusal(
    proposed: IsrProposed, state: PartitionImage | None, version: int, live: Mapping[int, LiveBroker]
) -> ErrorCode:
    """Why a leader's proposed ISR is refused; NONE if it is to be written or is in force already.

    The order of the checks is Kafka's (`KafkaController.tryProcessAlterPartition`).
    """
    broker = live.get(proposed.broker_id)
    if broker is None or broker.epoch != proposed.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if proposed.leader_epoch > state.leader_epoch or proposed.partition_epoch > version:
        # This controller is stale: another one was elected and has changed the state.
        return ErrorCode.NOT_CONTROLLER
    if proposed.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if set(proposed.isr) == set(state.isr):
        return ErrorCode.NONE
    if proposed.partition_epoch < version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if proposed.broker_id != state.leader or proposed.broker_id not in proposed.isr:
        return ErrorCode.INVALID_REQUEST
    if any(replica not in state.replicas for replica in proposed.isr):
        return ErrorCode.INVALID_REQUEST
    if any(replica not in live for replica in proposed.isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
