"""Leader election and ISR checks: `PartitionLeaderElectionAlgorithms`, AlterPartition. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ottla.cluster.image import NO_LEADER, PartitionImage
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.cluster.controller_events import IsrProposed, LiveBroker
    from ottla.cluster.placement import Assignment


def settle(
    state: PartitionImage, alive: Collection[int], electable: Collection[int], *, unclean: bool = False
) -> PartitionImage:
    """The state after a change of the live replicas; the same object if nothing changes.

    A partition without a live leader gets one, where a replica of the ISR is electable (`elect`). Dead replicas leave
    the ISR, as far as it is not empty then; a dead leader leads no more. Each such change bumps the leader epoch once.
    `electable` are the live brokers that do not shut down. A partition that never had a leader has no ISR yet; it
    starts as soon as one of its replicas is alive. Source: `KafkaController.onReplicasBecomeOffline`.
    """
    if not state.isr:
        first = first_state(state.replicas, electable)
        return state if first == state else first
    if state.leader not in alive:
        elected = elect(state, alive, electable, unclean=unclean)
        if elected is not None:
            return elected
    if state.leader in alive and all(broker in alive for broker in state.isr):
        return state
    # The last replica stays: only it, or an unclean election, can bring the partition back.
    isr = tuple(broker for broker in state.isr if broker in alive) or state.isr[-1:]
    leader = state.leader if state.leader in alive else NO_LEADER
    if (leader, isr) == (state.leader, state.isr):
        return state
    return state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)


def elect(
    state: PartitionImage, alive: Collection[int], electable: Collection[int], *, unclean: bool = False
) -> PartitionImage | None:
    """The state with the first electable replica of the ISR as leader; None if there is none.

    With `unclean` it may be a replica that is not in the ISR: records that it lacks are lost. The leader is then the
    only member of the new ISR, and recovers (`is_unclean`). Source: `PartitionLeaderElectionAlgorithms`.
    """
    leader = next((broker for broker in state.replicas if broker in electable and broker in state.isr), NO_LEADER)
    if leader != NO_LEADER:
        isr = tuple(broker for broker in state.isr if broker in alive)
        return state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)
    leader = next((broker for broker in state.replicas if unclean and broker in electable), NO_LEADER)
    if leader == NO_LEADER:
        return None
    return state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, isr=(leader,))


def is_unclean(before: PartitionImage, after: PartitionImage) -> bool:
    """Whether the change elects a leader that was not in sync."""
    return bool(before.isr) and after.leader != NO_LEADER and after.leader not in before.isr


def hand_over(state: PartitionImage, leaving: Collection[int], electable: Collection[int]) -> PartitionImage:
    """The state without brokers that shut down as leader and in the ISR; the same object if they cannot be replaced.

    Source: `controlledShutdownPartitionLeaderElection`, and `removeReplicasFromIsr` where they follow.
    """
    isr = tuple(broker for broker in state.isr if broker not in leaving)
    if isr == state.isr:
        return state
    leader = state.leader
    if leader in leaving:
        leader = next((broker for broker in state.replicas if broker in electable and broker in isr), NO_LEADER)
    if leader == NO_LEADER:
        return state
    return state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)


def first_state(replicas: tuple[int, ...], live: Collection[int]) -> PartitionImage:
    """The state of a new partition: its first live replica leads, and all live ones are in sync."""
    alive = tuple(broker for broker in replicas if broker in live)
    return PartitionImage(alive[0] if alive else NO_LEADER, 0, replicas, alive)


def first_states(assignment: Assignment, live: Collection[int]) -> tuple[PartitionImage, ...]:
    """The states of new partitions, in order; partitions with the same replicas share one object."""
    known = {replicas: first_state(replicas, live) for replicas in set(assignment.values())}
    # Without a step of Python for each of what may be tens of thousands.
    return tuple(map(known.__getitem__, map(assignment.__getitem__, sorted(assignment))))


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
    proposed: IsrProposed,
    state: PartitionImage | None,
    version: int,
    live: Mapping[int, LiveBroker],
    ineligible: Collection[int] = (),
    *,
    is_recovering: bool = False,
) -> ErrorCode:
    """Why a leader's proposed ISR is refused; NONE if it can be written or is in force already.

    `ineligible` are replicas that shut down or whose log directory has failed; `is_recovering` says whether the leader
    was elected uncleanly and has not recovered yet. The order of the checks is Kafka's
    (`KafkaController.tryProcessAlterPartition`).
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
    if set(proposed.isr) == set(state.isr) and proposed.is_recovering == is_recovering:
        return ErrorCode.NONE
    if proposed.partition_epoch < version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if proposed.is_recovering and (len(proposed.isr) > 1 or not is_recovering):
        return ErrorCode.INVALID_REQUEST
    if any(replica not in live or replica in ineligible for replica in proposed.isr):
        return ErrorCode.INELIGIBLE_REPLICA
    if proposed.broker_id != state.leader or proposed.broker_id not in proposed.isr:
        return ErrorCode.INVALID_REQUEST
    if any(replica not in state.replicas for replica in proposed.isr):
        return ErrorCode.INVALID_REQUEST
    if any(
        live[replica].epoch != epoch for replica, epoch in proposed.broker_epochs.items() if replica in proposed.isr
    ):
        return ErrorCode.INELIGIBLE_REPLICA  # it was restarted since it fetched, and may lack what it had
    return ErrorCode.NONE
