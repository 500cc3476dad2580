"""Moves of partitions carried out, verified and cancelled, over the wire, at brokers of ottla and of Apache Kafka.

Source: `ReassignPartitionsCommand` of Apache Kafka 3.9. As there, a throttle stands until a verification finds that no
partition of the cluster moves any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ottla.client.admin.configs import ConfigAdmin
from ottla.client.admin.log_dirs import NOT_AVAILABLE, LogDirAdmin
from ottla.client.admin.model import PartitionReassignment, TopicPartitionReplica
from ottla.client.admin.reassignments import ReassignmentAdmin
from ottla.client.errors import BrokerError, ClientError, InvalidArgumentError, PartlyFailedError
from ottla.client.model import Node, TopicMetadata, TopicPartition
from ottla.cluster.placement import BrokerRack, assign_replicas
from ottla.cluster.refusal import TopicRefusal
from ottla.ops.cluster_status import ClusterStatus, PartitionStatus, read_cluster_status
from ottla.ops.moves.files import ReplicaDirectory, WantedMove, replica_directories
from ottla.ops.moves.throttles import Changes, cleared, flows, interbroker, log_dirs
from ottla.peer.cluster import Cluster
from ottla.wire.errors import ErrorCode

MOST_CHANGED_AT_ONCE = 100
"""Topics and brokers whose settings are changed in one call."""
NOTHING_MOVES = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Errors of a cancellation after which the partition does not move, either."""
DIRECTORY_ATTEMPTS = 100
DIRECTORY_PAUSE_S = 0.1
"""How often brokers are asked to put replicas into log directories that they do not have yet: ten seconds, as Kafka."""
Draw = Callable[[int], int]
"""A number below this one, by chance: where a topic begins."""


class MoveState(StrEnum):
    """How far a move is."""

    DONE = "done"
    MOVING = "moving"
    NOT_MOVED = "not moved"
    GONE = "gone"
    """There is no such partition, or it was deleted since."""


class MoveStanding(NamedTuple):
    """A wanted move as it stands: the replicas now, those wanted, and whether it is under way."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    wanted: tuple[int, ...]
    state: MoveState


class DirectoryMove(NamedTuple):
    """A wanted move between log directories as it stands; `log_dir` is where the replica is now, None for nowhere."""

    partition: TopicPartition
    broker: int
    log_dir: str | None
    wanted_log_dir: str
    state: MoveState


def move_row(each: MoveStanding | DirectoryMove) -> dict[str, Any]:
    """A move as an object of JSON: its fields, with `topic` and `partition`."""
    row = each._asdict()
    return {**row.pop("partition")._asdict(), **row}


@dataclass(frozen=True, slots=True)
class Standing:
    """How wanted moves stand, and all moves that are under way in the cluster."""

    moves: Sequence[MoveStanding]
    replicas: Sequence[DirectoryMove]
    under_way: Mapping[TopicPartition, PartitionReassignment]
    status: ClusterStatus

    @property
    def is_done(self) -> bool:
        """Whether all replicas are where they are wanted."""
        states = [*(each.state for each in self.moves), *(each.state for each in self.replicas)]
        return all(state is MoveState.DONE for state in states)

    @property
    def gone(self) -> list[TopicPartition]:
        """The partitions that do not exist: their moves are never done."""
        found = [(each.partition, each.state) for each in self.moves]
        found += [(each.partition, each.state) for each in self.replicas]
        return list(dict.fromkeys(partition for partition, state in found if state is MoveState.GONE))

    @property
    def is_moving(self) -> bool:
        """Whether anything moves: any partition of the cluster, or one of these replicas between log directories."""
        return bool(self.under_way) or any(each.state is MoveState.MOVING for each in self.replicas)

    @property
    def now(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas of each partition that exists, as they are."""
        return {each.partition: each.replicas for each in self.moves if each.replicas}


@dataclass(slots=True)
class MovePlan:
    """The moves to carry out, and their throttles."""

    moves: Sequence[WantedMove]
    throttle: int | None = None
    log_dir_throttle: int | None = None
    standing: Standing = field(init=False)

    @property
    def wanted(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas by partition."""
        return {move.partition: move.replicas for move in self.moves}


async def read_standing(cluster: Cluster, moves: Sequence[WantedMove], *, sizes: bool = True) -> Standing:
    """How these moves stand. Raises ClientError."""
    names = sorted({move.partition.topic for move in moves})
    under_way = await ReassignmentAdmin(cluster).list_partition_reassignments()
    directories = replica_directories(moves)
    status = await read_cluster_status(cluster, names, configs=[], sizes=sizes or bool(directories))
    known = {each.partition: each for each in status.partitions}
    found = [_partition_move(move, known.get(move.partition), under_way.get(move.partition)) for move in moves]
    replicas = [_replica_move(each, status, is_there=each.partition in known) for each in directories]
    return Standing(found, replicas, under_way, status)


def _partition_move(
    move: WantedMove, known: PartitionStatus | None, under_way: PartitionReassignment | None
) -> MoveStanding:
    if under_way is not None:
        return MoveStanding(move.partition, under_way.replicas, move.replicas, MoveState.MOVING)
    if known is None:
        return MoveStanding(move.partition, (), move.replicas, MoveState.GONE)
    replicas = tuple(each.broker for each in known.replicas)
    state = MoveState.DONE if replicas == move.replicas else MoveState.NOT_MOVED
    return MoveStanding(move.partition, replicas, move.replicas, state)


def _replica_move(wanted: ReplicaDirectory, status: ClusterStatus, *, is_there: bool) -> DirectoryMove:
    if not is_there:
        return DirectoryMove(wanted.partition, wanted.broker, None, wanted.log_dir, MoveState.GONE)
    here = future = None
    for broker in status.brokers:
        for path, log_dir in broker.log_dirs.items() if broker.node.node_id == wanted.broker else ():
            size = log_dir.replicas.get(wanted.partition)
            if size is not None and size.is_future:
                future = path
            elif size is not None:
                here = path
    if here == wanted.log_dir and future is None:
        state = MoveState.DONE
    else:
        state = MoveState.NOT_MOVED if future is None else MoveState.MOVING
    return DirectoryMove(wanted.partition, wanted.broker, here, wanted.log_dir, state)


def check_plan(plan: MovePlan, *, is_additional: bool) -> None:
    """Refuse what cannot be carried out as given. Raises InvalidArgumentError, in Kafka's words."""
    standing = plan.standing
    if standing.under_way and not is_additional:
        raise InvalidArgumentError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be used "
            "to change the throttle by resubmitting the current reassignment."
        )
    missing = [str(each.partition) for each in standing.moves if not each.replicas]
    if missing:
        raise InvalidArgumentError(f"these partitions do not exist: {', '.join(missing)}")
    brokers = set(standing.status.registered)
    unknown = sorted({broker for move in plan.moves for broker in move.replicas} - brokers)
    if unknown:
        raise InvalidArgumentError(
            f"Unknown broker id {', '.join(map(str, unknown))}; the brokers are {', '.join(map(str, sorted(brokers)))}"
        )


async def execute(cluster: Cluster, plan: MovePlan) -> dict[TopicPartition | TopicPartitionReplica, str]:
    """Set the throttles, then begin the moves; returns what was refused, with reasons. Raises ClientError."""
    standing = plan.standing
    if plan.throttle is not None:
        copied = flows(standing.under_way, plan.wanted, standing.now)
        live = set(standing.status.registered)
        await _change(cluster, interbroker(copied, plan.throttle, live))
    directories = replica_directories(plan.moves)
    if plan.log_dir_throttle is not None:
        await _change(cluster, log_dirs((each.broker for each in directories), plan.log_dir_throttle))
    refused: dict[TopicPartition | TopicPartitionReplica, str] = {}
    try:
        await ReassignmentAdmin(cluster).alter_partition_reassignments(plan.wanted)
    except PartlyFailedError as error:
        refused.update((key, str(each)) for key, each in error.errors.items())
    except BrokerError as error:
        if len(plan.moves) > 1:
            raise
        refused[plan.moves[0].partition] = str(error)
    wanted = {
        TopicPartitionReplica(*each.partition, each.broker): each.log_dir
        for each in directories
        if each.partition not in refused
    }
    return {**refused, **await _into_directories(cluster, wanted)}


async def _into_directories(
    cluster: Cluster, wanted: Mapping[TopicPartitionReplica, str]
) -> dict[TopicPartition | TopicPartitionReplica, str]:
    """Have replicas moved to log directories; returns what was refused. Those that are not there yet are waited for."""
    refused: dict[TopicPartition | TopicPartitionReplica, str] = {}
    pending = dict(wanted)
    for attempt in range(DIRECTORY_ATTEMPTS):
        if not pending:
            break
        if attempt:
            await asyncio.sleep(DIRECTORY_PAUSE_S)  # sleep: until the broker has made the replica
        errors: Mapping[TopicPartitionReplica, ClientError] = {}
        try:
            await LogDirAdmin(cluster).alter_replica_log_dirs(pending)
        except PartlyFailedError as error:
            errors = error.errors
        except BrokerError as error:
            errors = dict.fromkeys(pending, error)
        refused = {key: str(error) for key, error in errors.items()}
        pending = {
            key: wanted[key]
            for key, error in errors.items()
            if isinstance(error, BrokerError) and error.code in NOT_AVAILABLE
        }
        if len(pending) < len(errors):
            break  # what is refused for good is said at once
    return refused


async def clear_throttles(cluster: Cluster, moves: Sequence[WantedMove], standing: Standing) -> None:
    """Take all throttles away from the cluster's brokers, and from the topics of these moves. Raises ClientError."""
    # Settings of a broker that is not there cannot be changed by asking it.
    brokers = standing.status.registered
    there = {topic.name for topic in standing.status.topics}
    await _change(cluster, cleared(brokers, (each.partition.topic for each in moves if each.partition.topic in there)))


async def cancel(cluster: Cluster, standing: Standing) -> tuple[list[TopicPartition], dict[TopicPartition, str]]:
    """Cancel those of these moves that are under way: which were, and which were refused. Raises ClientError."""
    back = {
        TopicPartitionReplica(*each.partition, each.broker): each.log_dir
        for each in standing.replicas
        if each.state is MoveState.MOVING and each.log_dir is not None
    }
    if back:
        # A replica that is sent where it is moves no more.
        await LogDirAdmin(cluster).alter_replica_log_dirs(back)
    moving = [each.partition for each in standing.moves if each.state is MoveState.MOVING]
    if not moving:
        return [], {}
    refused: dict[TopicPartition, str] = {}
    try:
        await ReassignmentAdmin(cluster).alter_partition_reassignments(dict.fromkeys(moving))
    except PartlyFailedError as error:
        refused = _refused(error.errors)
    except BrokerError as error:
        if len(moving) > 1:
            raise
        refused = _refused({moving[0]: error})
    return [each for each in moving if each not in refused], refused


def _refused(errors: Mapping[object, Exception]) -> dict[TopicPartition, str]:
    """The errors, without those of moves that ended, or whose partitions were deleted, just before it."""
    return {
        key: str(error)
        for key, error in errors.items()
        if isinstance(key, TopicPartition) and not (isinstance(error, BrokerError) and error.code in NOTHING_MOVES)
    }


async def _change(cluster: Cluster, changes: Changes) -> None:
    items = list(changes.items())
    for start in range(0, len(items), MOST_CHANGED_AT_ONCE):
        await ConfigAdmin(cluster).incremental_alter_configs(dict(items[start : start + MOST_CHANGED_AT_ONCE]))


def proposed(
    topics: Iterable[TopicMetadata], brokers: Sequence[Node], draw: Draw, *, rack_aware: bool = True
) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas on these brokers, as many as each topic has, spread evenly over brokers and racks.

    As `kafka-reassign-partitions --generate` does it, in `ReassignPartitionsCommand.generateAssignment`.

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
