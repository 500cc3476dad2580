"""What a broker and controller read from and write to Kafka's tree: registration, election, topics, producer ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.cluster.image import NO_LEADER, PartitionImage, TopicImage
from ottla.cluster.topics import is_internal_topic
from ottla.zk.layout import (
    PERSISTENT_PATHS,
    BrokerConfigZnode,
    BrokerIdZnode,
    ClusterIdZnode,
    ConfigChangeZnode,
    ControllerEpochZnode,
    ControllerZnode,
    DeleteTopicZnode,
    FeatureZnode,
    PartitionState,
    PartitionStateZnode,
    ProducerIdBlock,
    ProducerIdBlockZnode,
    TopicAssignment,
    TopicConfigZnode,
    TopicZnode,
    ZnodeDataError,
)
from ottla.zk.tree import BadVersionError, Create, Delete, NodeExistsError, NoNodeError, Operation, Set, parent_of

if TYPE_CHECKING:
    from ottla.zk.client import ZkClient

PRODUCER_IDS_PER_BLOCK = 1000
#: How far above the ids in adopted logs ours begin. Their first cluster goes on in its own tree with the very next ids,
#: and the logs may go back to it; it takes a new block at each start of a broker.
ADOPTED_DISTANCE = 1000 * PRODUCER_IDS_PER_BLOCK
HIGHEST_PRODUCER_ID = 2**63 - 1
FIRST_CONTROLLER_EPOCH = 0
#: Nodes that told of older changes of settings and go with one new change.
MOST_REMOVED = 100
#: Topics that are read together: over the wire the answers of many take little longer than that of one.
READ_AT_ONCE = 50
#: How often nodes are made that others make at the same time.
MOST_ATTEMPTS = 10


async def read_cluster_id(zk: ZkClient) -> str | None:
    """The cluster's id; None where the tree has none yet."""
    try:
        data, _ = await zk.get(ClusterIdZnode.PATH)
    except NoNodeError:
        return None
    return ClusterIdZnode.decode(data)


async def no_broker_was_registered(zk: ZkClient) -> bool:
    """Whether no broker ever was in the tree: the node that holds their registrations never had a child."""
    stat = await zk.exists(BrokerIdZnode.ROOT)
    return stat is None or stat.cversion == 0


async def only_broker_of_all_topics(zk: ZkClient) -> int | None:
    """The broker that holds every partition in the tree; None where there are several, or no topics."""
    try:
        names = await zk.children(TopicZnode.ROOT)
    except NoNodeError:
        return None
    brokers: set[int] = set()
    for name in names:
        data, _ = await zk.get(TopicZnode.path(name))
        brokers.update(*TopicZnode.decode(name, data).partitions.values())
        if len(brokers) > 1:
            return None
    return brokers.pop() if brokers else None


async def write_persistent_paths(zk: ZkClient) -> None:
    """Make the nodes that every cluster has, where they are missing, in one transaction."""
    wanted: dict[str, bytes | None] = dict.fromkeys(PERSISTENT_PATHS)
    wanted[FeatureZnode.PATH] = FeatureZnode.encode()
    wanted[ControllerEpochZnode.PATH] = ControllerEpochZnode.encode(FIRST_CONTROLLER_EPOCH)
    for attempt in range(1, MOST_ATTEMPTS + 1):
        try:
            await zk.multi(await _creations_of_missing(zk, wanted))
        except NodeExistsError:
            if attempt == MOST_ATTEMPTS:
                raise
        else:
            return


async def _creations_of_missing(zk: ZkClient, wanted: Mapping[str, bytes | None]) -> list[Operation]:
    missing: dict[str, bytes | None] = {}
    for path, data in wanted.items():
        above = []
        while path != "/" and path not in missing and await zk.exists(path) is None:
            above.append(path)
            path = parent_of(path)
        for found in reversed(above):
            missing[found] = None
        if above:
            missing[above[0]] = data
    return [Create(path, data) for path, data in missing.items()]


async def election(zk: ZkClient, broker_id: int, now_ms: int) -> tuple[int, list[Operation]]:
    """The epoch of the next controller, and what makes this broker it unless another is faster."""
    data, stat = await zk.get(ControllerEpochZnode.PATH)
    epoch = ControllerEpochZnode.decode(data) + 1
    return epoch, [
        Create(ControllerZnode.PATH, ControllerZnode.encode(broker_id, now_ms), ephemeral=True),
        Set(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(epoch), stat.version),
    ]


async def read_topics(
    zk: ZkClient, broker_id: int, controller_epoch: int, new_uuid: Callable[[], UUID]
) -> tuple[dict[str, TopicImage], list[Operation]]:
    """All topics of the tree, and what sets right in the tree what a controller must set right (`read_topic`)."""
    topics: dict[str, TopicImage] = {}
    repairs: list[Operation] = []
    names = await zk.children(TopicZnode.ROOT)
    for start in range(0, len(names), READ_AT_ONCE):
        part = names[start : start + READ_AT_ONCE]
        found = await asyncio.gather(
            *(read_topic(zk, name, broker_id, controller_epoch, new_uuid) for name in part), return_exceptions=True
        )
        for one in found:
            if isinstance(one, NoNodeError):
                continue  # deleted since
            if isinstance(one, BaseException):
                raise one
            topic, operations = one
            topics[topic.name] = topic
            repairs.extend(operations)
    return topics, repairs


async def read_topic(
    zk: ZkClient, name: str, broker_id: int, controller_epoch: int, new_uuid: Callable[[], UUID]
) -> tuple[TopicImage, list[Operation]]:
    """A topic as it is when what the operations do is done: they give an id where it is missing, and leaders.

    Raises `NoNodeError`, `ZnodeDataError`.
    """
    repairs: list[Operation] = []
    data, _ = await zk.get(TopicZnode.path(name))
    assignment = TopicZnode.decode(name, data)
    if assignment.topic_id is None:
        assignment = assignment._replace(topic_id=new_uuid())
        repairs.append(Set(TopicZnode.path(name), TopicZnode.encode(assignment)))
    assert assignment.topic_id is not None
    if sorted(assignment.partitions) != list(range(len(assignment.partitions))):
        raise ZnodeDataError(
            f"{TopicZnode.path(name)} leaves out numbers of partitions: {sorted(assignment.partitions)}"
        )
    partitions = []
    states: list[Operation] = []
    for index in range(len(assignment.partitions)):
        state, repair = await _read_partition(zk, name, index, assignment, broker_id, controller_epoch)
        partitions.append(state)
        states.extend(repair)
    if states and await zk.exists(PartitionStateZnode.partitions_path(name)) is None:
        repairs.append(Create(PartitionStateZnode.partitions_path(name)))
    repairs.extend(states)
    config = await read_topic_config(zk, name)
    return TopicImage(name, assignment.topic_id, tuple(partitions), config, is_internal_topic(name)), repairs


async def read_topic_config(zk: ZkClient, topic: str) -> dict[str, str]:
    """What a topic sets itself. Raises `ZnodeDataError`."""
    try:
        data, _ = await zk.get(TopicConfigZnode.path(topic))
    except NoNodeError:
        return {}
    return TopicConfigZnode.decode(topic, data)


async def _read_partition(
    zk: ZkClient, topic: str, index: int, assignment: TopicAssignment, broker_id: int, controller_epoch: int
) -> tuple[PartitionImage, list[Operation]]:
    """A partition with this broker as leader where it may be, and the operations that make it so in the tree."""
    replicas = assignment.partitions[index]
    path = PartitionStateZnode.path(topic, index)
    try:
        data, _ = await zk.get(path)
    except NoNodeError:
        # A partition that was announced and never got a leader.
        leader = broker_id if broker_id in replicas else NO_LEADER
        if leader == NO_LEADER:
            return PartitionImage(NO_LEADER, 0, replicas, ()), []
        state = PartitionState(leader, 0, (leader,), controller_epoch)
        operations: list[Operation] = [Create(path, PartitionStateZnode.encode(state))]
        if await zk.exists(parent_of(path)) is None:
            operations.insert(0, Create(parent_of(path)))
        return _image(state, replicas), operations
    state = PartitionStateZnode.decode(topic, index, data)
    if state.leader == broker_id:
        return _image(state, replicas), []
    if broker_id not in state.isr:
        return PartitionImage(NO_LEADER, state.leader_epoch, replicas, state.isr), []
    state = PartitionState(broker_id, state.leader_epoch + 1, (broker_id,), controller_epoch)
    return _image(state, replicas), [Set(path, PartitionStateZnode.encode(state))]


def _image(state: PartitionState, replicas: tuple[int, ...]) -> PartitionImage:
    return PartitionImage(state.leader, state.leader_epoch, replicas, state.isr)


def _topic_data(topic: TopicImage) -> bytes:
    replicas = {index: partition.replicas for index, partition in enumerate(topic.partitions)}
    return TopicZnode.encode(TopicAssignment.of(topic.topic_id, replicas))


def _partition_nodes(topic: TopicImage, first: int, controller_epoch: int) -> list[Operation]:
    operations: list[Operation] = []
    for index in range(first, len(topic.partitions)):
        partition = topic.partitions[index]
        state = PartitionState(partition.leader, partition.leader_epoch, partition.isr, controller_epoch)
        operations.append(Create(PartitionStateZnode.partition_path(topic.name, index)))
        operations.append(Create(PartitionStateZnode.path(topic.name, index), PartitionStateZnode.encode(state)))
    return operations


async def creation(zk: ZkClient, topic: TopicImage, controller_epoch: int) -> list[Operation]:
    """What makes a topic with its settings, replicas and leaders. Settings left over from a former one are replaced."""
    config_path = TopicConfigZnode.path(topic.name)
    config = TopicConfigZnode.encode(topic.configs)
    left_over = await zk.exists(config_path)
    return [
        Create(config_path, config) if left_over is None else Set(config_path, config),
        Create(TopicZnode.path(topic.name), _topic_data(topic)),
        Create(PartitionStateZnode.partitions_path(topic.name)),
        *_partition_nodes(topic, 0, controller_epoch),
    ]


def growth(topic: TopicImage, existing: int, controller_epoch: int) -> list[Operation]:
    """What adds the partitions from `existing` on to a topic."""
    return [Set(TopicZnode.path(topic.name), _topic_data(topic)), *_partition_nodes(topic, existing, controller_epoch)]


def shrinking(topic: TopicImage, grown: TopicImage) -> list[Operation]:
    """What takes a growth back."""
    operations: list[Operation] = [Set(TopicZnode.path(topic.name), _topic_data(topic))]
    for index in range(len(topic.partitions), len(grown.partitions)):
        operations.append(Delete(PartitionStateZnode.path(topic.name, index)))
        operations.append(Delete(PartitionStateZnode.partition_path(topic.name, index)))
    return operations


async def deletion(zk: ZkClient, name: str) -> list[Operation]:
    """What removes a topic's nodes, its settings, and the mark of its deletion: those of them that are there.

    The mark goes last: where they take several transactions, what is left of them is still marked.
    """
    paths = [TopicZnode.path(name)] if await zk.exists(TopicZnode.path(name)) is not None else []
    for path in paths:
        paths.extend(f"{path}/{child}" for child in await zk.children(path))
    paths.reverse()
    others = (TopicConfigZnode.path(name), DeleteTopicZnode.path(name))
    paths.extend([path for path in others if await zk.exists(path) is not None])
    return [Delete(path) for path in paths]


async def reconfiguration(zk: ZkClient, path: str, entity_path: str, data: bytes, now_ms: int) -> list[Operation]:
    """What replaces the settings at `path`, tells brokers of it, and removes what told them of older changes.

    `entity_path` names them below `/config`, as in `topics/<topic>`.
    """
    operations: list[Operation] = [
        Create(path, data) if await zk.exists(path) is None else Set(path, data),
        Create(ConfigChangeZnode.PREFIX, ConfigChangeZnode.encode(entity_path), sequential=True),
    ]
    # Their names are in the order of their times, so what stands behind a young one is young.
    for name in (await zk.children(ConfigChangeZnode.ROOT))[:MOST_REMOVED]:
        told = await zk.exists(f"{ConfigChangeZnode.ROOT}/{name}")
        if told is None or now_ms - told.ctime_ms <= ConfigChangeZnode.EXPIRATION_MS:
            break
        operations.append(Delete(f"{ConfigChangeZnode.ROOT}/{name}"))
    return operations


async def read_broker_config(zk: ZkClient, name: str) -> dict[str, str]:
    """The settings given to a broker, or with `BrokerConfigZnode.DEFAULT` to all, while they run. ZnodeDataError."""
    try:
        data, _ = await zk.get(BrokerConfigZnode.path(name))
    except NoNodeError:
        return {}
    return BrokerConfigZnode.decode(name, data)


async def take_producer_ids(zk: ZkClient, broker_id: int, seen_in_logs: int = -1) -> ProducerIdBlock:
    """Take the next block of producer ids; tried again when another broker took it at the same time.

    The first block of a tree begins far above `seen_in_logs`, the highest id that the logs know: logs that came from
    elsewhere would take a new producer with an old one's id for that one, and refuse its sequence numbers.
    """
    begin = -(-(seen_in_logs + 1) // PRODUCER_IDS_PER_BLOCK) * PRODUCER_IDS_PER_BLOCK
    if seen_in_logs >= 0:
        begin += ADOPTED_DISTANCE
    if begin > HIGHEST_PRODUCER_ID - PRODUCER_IDS_PER_BLOCK:
        begin = 0
    while True:
        data, stat = await zk.get(ProducerIdBlockZnode.PATH)
        latest = ProducerIdBlockZnode.decode(data)
        first = begin if latest is None else latest.last + 1
        block = ProducerIdBlock(broker_id, first, first + PRODUCER_IDS_PER_BLOCK - 1)
        try:
            await zk.set(ProducerIdBlockZnode.PATH, ProducerIdBlockZnode.encode(block), stat.version)
        except BadVersionError:
            continue
        return block
