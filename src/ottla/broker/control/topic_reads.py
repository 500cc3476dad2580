"""Topics as read from their znodes: many of them, and their partitions, in few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.cluster.controller_events import FoundPartitionState, FoundTopic, ReplicaMove
from ottla.cluster.topics import is_internal_topic
from ottla.zk.layout import PartitionStateZnode, TopicConfigZnode, TopicZnode, ZnodeDataError

if TYPE_CHECKING:
    from ottla.zk.client import ZkClient
    from ottla.zk.layout import TopicAssignment
    from ottla.zk.tree import Stat

S = TypeVar("S")
T = TypeVar("T")

#: Topics that are read before the next ones are begun.
TOPICS_AT_ONCE: Final = 50
#: Topics, and partitions, that are read in one request and decoded in one slice.
TOPICS_IN_A_READ: Final = 10
PARTITIONS_IN_A_READ: Final = 100
#: Such requests under way: others of the session wait for them.
READS_AT_ONCE: Final = 4
#: Partitions of a topic that are noted to be read in one slice.
PARTITIONS_IN_A_TURN: Final = 2_000


async def read_topics(zk: ZkClient, names: Sequence[str], new_uuid: Callable[[], UUID]) -> list[FoundTopic]:
    """Read those of these topics that exist. Raises `ZnodeDataError`."""
    topics: list[FoundTopic] = []
    room = asyncio.Semaphore(READS_AT_ONCE)
    for start in range(0, len(names), TOPICS_AT_ONCE):
        part = names[start : start + TOPICS_AT_ONCE]
        read = [topic for topic in await _by_batch(_read_topics, zk, part, TOPICS_IN_A_READ, room) if topic is not None]
        wanted: list[_Replicas] = []
        for topic in read:
            replicas = sorted(topic.assignment.partitions.items())
            for begin in range(0, len(replicas), PARTITIONS_IN_A_TURN):
                part_of_topic = replicas[begin : begin + PARTITIONS_IN_A_TURN]
                wanted += [_Replicas(topic.name, index, brokers) for index, brokers in part_of_topic]
                await _next_turn()
        states = iter(await _by_batch(_read_partitions, zk, wanted, PARTITIONS_IN_A_READ, room))
        topics += [_found_topic(topic, states, new_uuid) for topic in read]
    return topics


class _ReadTopic(NamedTuple):
    """The contents of a topic's two znodes."""

    name: str
    assignment: TopicAssignment
    configs: dict[str, str]


class _Replicas(NamedTuple):
    """A partition whose state must be read."""

    topic: str
    partition: int
    replicas: tuple[int, ...]


async def _by_batch(
    read: Callable[[ZkClient, Sequence[S]], Awaitable[list[T]]],
    zk: ZkClient,
    wanted: Sequence[S],
    most: int,
    room: asyncio.Semaphore,
) -> list[T]:
    """Read in parts; return the results of `read` in order. Raises the error of the first part that fails."""

    async def read_batch(part: Sequence[S]) -> list[T]:
        async with room:
            found = await read(zk, part)
            await _next_turn()
        return found

    reads = (read_batch(wanted[start : start + most]) for start in range(0, len(wanted), most))
    found: list[T] = []
    for part in await asyncio.gather(*reads, return_exceptions=True):
        if isinstance(part, BaseException):
            raise part
        found += part
    return found


async def _next_turn() -> None:
    """Let others have their slices: where the znodes are in this process no read waits for anything."""
    await asyncio.sleep(0)  # sleep: one turn of the loop


async def decoded_in_slices(name: str, data: bytes | None) -> TopicAssignment:
    """Decode a topic's znode, in several slices if it has many partitions. Raises `ZnodeDataError`."""
    steps = TopicZnode.decoding(name, data)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assignment: TopicAssignment = end.value
            return assignment
        await _next_turn()


async def _read_topics(zk: ZkClient, names: Sequence[str]) -> list[_ReadTopic | None]:
    """Assignments and settings of topics; None for one that was deleted since. Raises `ZnodeDataError`."""
    paths = [path(name) for path in (TopicZnode.path, TopicConfigZnode.path) for name in names]
    found = await zk.get_many(paths)
    topics: list[_ReadTopic | None] = []
    for name, topic, config in zip(names, found[: len(names)], found[len(names) :], strict=True):
        if topic is None:
            topics.append(None)
            continue
        assignment = await decoded_in_slices(name, topic[0])
        if sorted(assignment.partitions) != list(range(len(assignment.partitions))):
            raise ZnodeDataError(
                f"{TopicZnode.path(name)} leaves out numbers of partitions: {sorted(assignment.partitions)}"
            )
        topics.append(_ReadTopic(name, assignment, {} if config is None else TopicConfigZnode.decode(name, config[0])))
    return topics


async def _read_partitions(zk: ZkClient, wanted: Sequence[_Replicas]) -> list[FoundPartitionState]:
    """The states of partitions. Raises `ZnodeDataError`."""
    found = await zk.get_many([PartitionStateZnode.path(each.topic, each.partition) for each in wanted])
    return [_partition_state(each, state) for each, state in zip(wanted, found, strict=True)]


def _partition_state(read: _Replicas, found: tuple[bytes | None, Stat] | None) -> FoundPartitionState:
    if found is None:
        return FoundPartitionState(read.replicas)  # it never had a leader
    data, stat = found
    state = PartitionStateZnode.decode(read.topic, read.partition, data)
    return FoundPartitionState(
        read.replicas,
        state.leader,
        state.leader_epoch,
        state.isr,
        stat.version,
        state.is_recovering,
        written_zxid=stat.mzxid,
    )


def _found_topic(read: _ReadTopic, states: Iterator[FoundPartitionState], new_uuid: Callable[[], UUID]) -> FoundTopic:
    """A topic, whose partitions are the next ones of `states`."""
    name, assignment, configs = read
    partitions = list(islice(states, len(assignment.partitions)))
    for index in {*assignment.adding, *assignment.removing} & assignment.partitions.keys():
        move = ReplicaMove(assignment.adding.get(index, ()), assignment.removing.get(index, ()))
        partitions[index] = partitions[index]._replace(move=move)
    new_id = assignment.topic_id or new_uuid()
    return FoundTopic(name, assignment.topic_id, new_id, tuple(partitions), configs, is_internal_topic(name))


async def read_topic_configs(zk: ZkClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The topics' own settings. Raises `ZnodeDataError`."""
    found = await zk.get_many([TopicConfigZnode.path(name) for name in names])
    return {
        name: {} if config is None else TopicConfigZnode.decode(name, config[0])
        for name, config in zip(names, found, strict=True)
    }
