"""The controller's changes as operations on Kafka's znodes, guarded by its epoch, in slices.

A change whose operations fit into one transaction is atomic. A larger one takes several, each guarded, so that the loop
is not blocked and ZooKeeper's limit on request size is kept. What a failed broker leaves unfinished is completed by the
next controller, which finds partitions without leaders, or the mark of a deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from ottla.broker.control.refusals import METADATA_ERRORS, is_passing, metadata_refusal
from ottla.cluster.controller_events import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    MarkDeletion,
    MetadataChange,
    PartitionKey,
    PutAssignment,
    PutState,
    RemovePartitions,
    ReplicaMove,
    Write,
    WriteFailure,
    Written,
)
from ottla.zk.client import in_transactions
from ottla.zk.layout import (
    ControllerEpochZnode,
    DeleteTopicZnode,
    LeaderAndIsr,
    PartitionStateZnode,
    ReassignPartitionsZnode,
    TopicAssignment,
    TopicConfigZnode,
    TopicZnode,
    ZnodeDataError,
)
from ottla.zk.tree import BadVersionError, Check, Create, Delete, NodeExistsError, NoNodeError, Operation, Set

if TYPE_CHECKING:
    from ottla.broker.control.membership import Term
    from ottla.broker.slices import LoopSlices
    from ottla.cluster.image import PartitionImage, TopicImage
    from ottla.env.disk import DiskError
    from ottla.zk.client import ZkClient
    from ottla.zk.tree import ZkError

log = logging.getLogger("ottla.controller")

NO_MOVES: Mapping[int, ReplicaMove] = {}
#: Most operations of one transaction, which bounds the time on the loop. A topic of up to 240 partitions fits into one.
MOST_OPERATIONS = 500


class MetadataWriter:
    """Carries out the controller's `Write` effects."""

    def __init__(self, zk: ZkClient, slices: LoopSlices, transaction_bytes: int) -> None:
        self._zk = zk
        self._slices = slices
        self._transaction_bytes = transaction_bytes
        #: The error of the last write, None if it succeeded.
        self.error: DiskError | ZkError | None = None

    async def write(self, effect: Write, term: Term) -> Written:
        """Carry out a `Write` as controller of this term; return its outcome as an event."""
        self.error = None
        try:
            if term.epoch != effect.epoch:
                raise BadVersionError(ControllerEpochZnode.PATH, "another was elected since")
            for is_states, changes in groupby(effect.changes, _is_later_state):
                if is_states:
                    # Made as the transactions take them: those of a whole cluster at once would hold the loop.
                    operations = (
                        _set_state(change, effect.epoch) for change in changes if isinstance(change, PutState)
                    )
                    await self._commit(operations, [term.fence()])
                    continue
                for change in changes:
                    await self._write(change, effect.epoch, term)
        except METADATA_ERRORS as error:
            self.error = error
            return _failed(effect.write_id, error)
        return Written(effect.write_id)

    async def _write(self, change: MetadataChange, epoch: int, term: Term) -> None:
        operations = await self._operations(change, epoch)
        guards: list[Operation] = [term.fence()]
        if isinstance(change, DeleteTopic) and change.is_marked:
            # The deletion may have ended, and the topic be a later one.
            guards.append(Check(DeleteTopicZnode.path(change.name)))
        await self._commit(operations, guards)

    async def _commit(self, operations: Iterable[Operation], guards: Sequence[Operation]) -> None:
        for part in in_transactions(operations, self._transaction_bytes, MOST_OPERATIONS):
            # Making the operations takes as long as executing them, where the znodes are in this process.
            await self._slices.point()
            await self._zk.multi([*guards, *part])
            await self._slices.point()

    async def _operations(self, change: MetadataChange, epoch: int) -> Iterable[Operation]:
        if isinstance(change, CreateTopic):
            path = TopicConfigZnode.path(change.topic.name)
            # Settings left over from a former topic of the same name are replaced.
            is_left_over = await self._zk.exists(path) is not None
            return _creation(change.topic, await self._topic_data(change.topic), is_left_over, epoch)
        if isinstance(change, PutState) and change.version < 0:
            return await self._first_state(change, epoch)
        if isinstance(change, DeleteTopic):
            return await self._deletion(change)
        if isinstance(change, PutAssignment):
            data = await self._topic_data(change.topic, change.moves)
            return [Set(TopicZnode.path(change.topic.name), data), *await self._request_deletions(change)]
        if isinstance(change, AddPartitions):
            return _growth(change, await self._topic_data(change.topic, change.moves), epoch)
        if isinstance(change, RemovePartitions):
            return _shrinking(change, await self._topic_data(change.topic, change.moves))
        return _simple(change, epoch)

    async def _topic_data(self, topic: TopicImage, moves: Mapping[int, ReplicaMove] = NO_MOVES) -> bytes:
        """The data of a topic's node; that of many partitions is made in slices."""
        parts = []
        for part in TopicZnode.encoded_slices(_assignment(topic, moves)):
            parts.append(part)
            await self._slices.point()
        return b"".join(parts)

    async def _first_state(self, change: PutState, epoch: int) -> list[Operation]:
        """Operations that create the state of a partition that has none, with its parent nodes."""
        path = PartitionStateZnode.path(change.topic, change.partition)
        above = [
            PartitionStateZnode.partitions_path(change.topic),
            PartitionStateZnode.partition_path(change.topic, change.partition),
        ]
        missing: list[Operation] = [Create(parent) for parent in above if await self._zk.exists(parent) is None]
        return [*missing, Create(path, _state(change.state, epoch))]

    async def _request_deletions(self, change: PutAssignment) -> list[Operation]:
        """Operations that take what is done out of the request of a tool, and end it where nothing is left."""
        if not change.done and not change.replaced:
            return []
        try:
            data, stat = await self._zk.get(ReassignPartitionsZnode.PATH)
            wanted = ReassignPartitionsZnode.decode(data)
        except (NoNodeError, ZnodeDataError):
            return []
        done = {(change.topic.name, index): replicas for index, replicas in change.done.items()}
        replaced = {(change.topic.name, index) for index in change.replaced}
        ended = [key for key, replicas in wanted.items() if done.get(key) == replicas or key in replaced]
        return requests_left(wanted, ended, stat.version)

    async def _deletion(self, change: DeleteTopic) -> Iterator[Operation]:
        """Operations that remove a topic's nodes and its settings, where they exist, and its deletion mark.

        The mark is removed last: if several transactions are needed, the remaining nodes stay marked.
        """
        name = change.name
        paths = [TopicZnode.path(name)] if await self._zk.exists(TopicZnode.path(name)) is not None else []
        for path in paths:
            async for part in self._slices.chunks(await self._zk.children(path)):
                paths.extend(f"{path}/{child}" for child in part)
        paths.reverse()
        if await self._zk.exists(TopicConfigZnode.path(name)) is not None:
            paths.append(TopicConfigZnode.path(name))
        if change.is_marked:
            paths.append(DeleteTopicZnode.path(name))
        return map(Delete, paths)  # made as the transactions take them


def requests_left(
    wanted: Mapping[PartitionKey, tuple[int, ...]], ended: Collection[PartitionKey], version: int
) -> list[Operation]:
    """The change of a tool's request to reassign partitions, where some of them are done or refused."""
    left = {key: replicas for key, replicas in wanted.items() if key not in ended}
    path = ReassignPartitionsZnode.PATH
    if not left:
        return [Delete(path, version)]
    return [Set(path, ReassignPartitionsZnode.encode(left), version)] if len(left) < len(wanted) else []


async def announcement(zk: ZkClient, topic: TopicImage) -> list[Operation]:
    """Operations that create a topic without leaders, as a broker does that is not the controller."""
    config_path = TopicConfigZnode.path(topic.name)
    config = TopicConfigZnode.encode(topic.configs)
    is_left_over = await zk.exists(config_path) is not None
    return [
        Set(config_path, config) if is_left_over else Create(config_path, config),
        Create(TopicZnode.path(topic.name), TopicZnode.encode(_assignment(topic))),
    ]


def _simple(change: MetadataChange, epoch: int) -> Iterable[Operation]:
    """The operations of a change of one node."""
    if isinstance(change, PutState):
        return [_set_state(change, epoch)]
    if isinstance(change, MarkDeletion):
        return [Create(DeleteTopicZnode.path(change.name))]
    assert not isinstance(change, CreateTopic | DeleteTopic | PutAssignment | AddPartitions | RemovePartitions)
    return [Delete(DeleteTopicZnode.path(change.name))]


def _is_later_state(change: MetadataChange) -> bool:
    """Whether the change replaces a partition's state; those of many partitions share transactions."""
    return isinstance(change, PutState) and change.version >= 0


def _set_state(change: PutState, epoch: int) -> Operation:
    path = PartitionStateZnode.path(change.topic, change.partition)
    return Set(path, _state(change.state, epoch, change.is_recovering), change.version)


def _failed(write_id: int, error: DiskError | ZkError) -> Written:
    refusal = metadata_refusal(error)
    if isinstance(error, NodeExistsError):
        return Written(write_id, WriteFailure.EXISTS, refusal)
    is_unknown = is_passing(error) and not isinstance(error, BadVersionError)
    return Written(write_id, WriteFailure.UNKNOWN if is_unknown else WriteFailure.REFUSED, refusal)


def _creation(topic: TopicImage, data: bytes, is_left_over: bool, epoch: int) -> Iterator[Operation]:
    config_path = TopicConfigZnode.path(topic.name)
    config = TopicConfigZnode.encode(topic.configs)
    yield Set(config_path, config) if is_left_over else Create(config_path, config)
    yield Create(TopicZnode.path(topic.name), data)
    yield Create(PartitionStateZnode.partitions_path(topic.name))
    yield from _partition_nodes(topic, 0, epoch)


def _growth(change: AddPartitions, data: bytes, epoch: int) -> Iterator[Operation]:
    yield Set(TopicZnode.path(change.topic.name), data)
    yield from _partition_nodes(change.topic, change.existing, epoch)


def _shrinking(change: RemovePartitions, data: bytes) -> Iterator[Operation]:
    topic = change.topic
    yield Set(TopicZnode.path(topic.name), data)
    for index in range(len(topic.partitions), len(change.grown.partitions)):
        if change.grown.partitions[index].isr:
            yield Delete(PartitionStateZnode.path(topic.name, index))
        yield Delete(PartitionStateZnode.partition_path(topic.name, index))


def _partition_nodes(topic: TopicImage, first: int, epoch: int) -> Iterator[Operation]:
    """Create the nodes of partitions; as in Kafka, one has no state before one of its replicas is alive."""
    for index in range(first, len(topic.partitions)):
        state = topic.partitions[index]
        yield Create(PartitionStateZnode.partition_path(topic.name, index))
        if state.isr:
            yield Create(PartitionStateZnode.path(topic.name, index), _state(state, epoch))


def _assignment(topic: TopicImage, moves: Mapping[int, ReplicaMove] = NO_MOVES) -> TopicAssignment:
    replicas = {index: partition.replicas for index, partition in enumerate(topic.partitions)}
    adding = {index: move.adding for index, move in moves.items() if move.adding}
    removing = {index: move.removing for index, move in moves.items() if move.removing}
    return TopicAssignment(topic.topic_id, replicas, adding, removing)


def _state(state: PartitionImage, epoch: int, is_recovering: bool = False) -> bytes:
    return _encoded_state(LeaderAndIsr(state.leader, state.leader_epoch, state.isr, epoch, is_recovering))


@lru_cache(maxsize=256)
def _encoded_state(state: LeaderAndIsr) -> bytes:
    """Encode a partition state; cached, since the partitions of a topic share few states."""
    return PartitionStateZnode.encode(state)
