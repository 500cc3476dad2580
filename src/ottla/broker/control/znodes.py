"""Reads of Kafka's znodes, and the changes that any broker makes: election, settings, ids."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.broker.control.refusals import METADATA_ERRORS, is_passing, metadata_refusal
from ottla.cluster.controller_events import LiveBroker
from ottla.cluster.image import BrokerImage
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.zk.client import ConnectionLossError
from ottla.zk.layout import (
    PERSISTENT_PATHS,
    BrokerConfigZnode,
    BrokerIdZnode,
    ClusterIdZnode,
    ConfigChangeZnode,
    ControllerEpochZnode,
    ControllerZnode,
    FeatureZnode,
    ProducerIdBlock,
    ProducerIdBlockZnode,
    TopicConfigZnode,
    TopicZnode,
    UserConfigZnode,
    ZnodeDataError,
)
from ottla.zk.tree import BadVersionError, Create, Delete, NodeExistsError, NoNodeError, Operation, Set, parent_of

if TYPE_CHECKING:
    from ottla.zk.client import Watcher, ZkClient

log = logging.getLogger("ottla.broker")
T = TypeVar("T")

PRODUCER_IDS_PER_BLOCK = 1000
#: Distance of our first producer ids from those in adopted logs. The logs' first cluster continues with the very next
#: ids in its own metadata, one block per broker start, and the logs may be moved back to it.
ADOPTED_DISTANCE = 1000 * PRODUCER_IDS_PER_BLOCK
HIGHEST_PRODUCER_ID = 2**63 - 1
FIRST_CONTROLLER_EPOCH = 0
#: Most notifications of older changes removed with a new change.
MOST_REMOVED = 100
#: Errors of `reconfiguration` where others have changed the settings since they were read.
CHANGED_MEANWHILE = (BadVersionError, NodeExistsError, NoNodeError)
#: Attempts at a change that others make at the same time, or of which no answer came.
MOST_ATTEMPTS = 10


async def read_cluster_id(zk: ZkClient) -> str | None:
    """The cluster's id; None if there is none yet."""
    try:
        data, _ = await zk.get(ClusterIdZnode.PATH)
    except NoNodeError:
        return None
    return ClusterIdZnode.decode(data)


async def no_broker_was_registered(zk: ZkClient) -> bool:
    """Whether no broker was ever registered: the parent node of registrations never had a child."""
    stat = await zk.exists(BrokerIdZnode.ROOT)
    return stat is None or stat.cversion == 0


async def only_broker_of_all_topics(zk: ZkClient) -> int | None:
    """The broker that holds all partitions; None if there are several, or no topics."""
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
    """Create the missing ones of the nodes that every cluster has, in one transaction.

    Raises `ZkError`. If others create them at the same time or an answer is lost, what is missing is looked up again.
    """
    wanted: dict[str, bytes | None] = dict.fromkeys(PERSISTENT_PATHS)
    wanted[FeatureZnode.PATH] = FeatureZnode.encode()
    wanted[ControllerEpochZnode.PATH] = ControllerEpochZnode.encode(FIRST_CONTROLLER_EPOCH)
    for attempt in range(1, MOST_ATTEMPTS + 1):
        try:
            await zk.multi(await _creations_of_missing(zk, wanted))
        except (NodeExistsError, ConnectionLossError):
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
    """The epoch of the next controller, and the operations that elect this broker unless another is faster."""
    data, stat = await zk.get(ControllerEpochZnode.PATH)
    epoch = ControllerEpochZnode.decode(data) + 1
    return epoch, [
        Create(ControllerZnode.PATH, ControllerZnode.encode(broker_id, now_ms), ephemeral=True),
        Set(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(epoch), stat.version),
    ]


async def read_brokers(zk: ZkClient, watch: Watcher | None = None) -> dict[int, LiveBroker]:
    """The registered brokers; unreadable registrations are skipped."""
    brokers: dict[int, LiveBroker] = {}
    for name in await zk.children(BrokerIdZnode.ROOT, watch):
        if not name.isdecimal():
            continue
        try:
            data, stat = await zk.get(BrokerIdZnode.path(int(name)))
            registration = BrokerIdZnode.decode(int(name), data)
        except NoNodeError:
            continue  # deleted since
        except ZnodeDataError as error:
            log.error("a broker is passed over: %s", error)
            continue
        image = BrokerImage(registration.id, registration.endpoints, registration.rack)
        brokers[registration.id] = LiveBroker(image, stat.czxid)
    return brokers


class FoundSettings(NamedTuple):
    """Settings as read from a znode, and its version; None without a znode."""

    configs: dict[str, str]
    version: int | None


async def _found_settings(
    zk: ZkClient, path: str, decode: Callable[[str, bytes | None], dict[str, str]], name: str
) -> FoundSettings:
    try:
        data, stat = await zk.get(path)
    except NoNodeError:
        return FoundSettings({}, None)
    return FoundSettings(decode(name, data), stat.version)


async def find_topic_config(zk: ZkClient, topic: str) -> FoundSettings:
    """A topic's own settings. Raises `ZnodeDataError`."""
    return await _found_settings(zk, TopicConfigZnode.path(topic), TopicConfigZnode.decode, topic)


async def find_user_config(zk: ZkClient, path: str) -> FoundSettings:
    """The settings of a user, a client or an address, by the path of its znode. Raises `ZnodeDataError`."""
    return await _found_settings(zk, path, UserConfigZnode.decode, path)


async def reconfiguration(
    zk: ZkClient, path: str, entity_path: str, data: bytes, version: int | None
) -> list[Operation]:
    """Operations that replace the settings at `path`, notify brokers, and remove old notifications.

    `entity_path` is the path below `/config`, such as `topics/<topic>`; `version` that of the settings replaced, None
    if there are none. They fail if another broker changes the settings at the same time (`CHANGED_MEANWHILE`).
    """
    return [
        Create(path, data) if version is None else Set(path, data, version),
        Create(ConfigChangeZnode.PREFIX, ConfigChangeZnode.encode(entity_path), sequential=True),
        *await expired_notifications(zk, ConfigChangeZnode.ROOT, ConfigChangeZnode.EXPIRATION_MS),
    ]


async def expired_notifications(zk: ZkClient, root: str, expiration_ms: int) -> list[Operation]:
    """Operations that remove notifications below `root` that are older than this; a limited number at once."""
    # Names are in order of creation, so the nodes after a recent one are recent, too. Ages are those by ZooKeeper's
    # clock: by one of a broker that is wrong others would not see new ones before they are removed.
    names = await zk.children(root)
    newest = await zk.exists(f"{root}/{names[-1]}") if names else None
    expired: list[Operation] = []
    for name in names[:MOST_REMOVED]:
        stat = await zk.exists(f"{root}/{name}")
        if stat is None or newest is None or newest.ctime_ms - stat.ctime_ms <= expiration_ms:
            break
        expired.append(Delete(f"{root}/{name}"))
    return expired


async def reconfigured(change: Callable[[], Awaitable[T]]) -> T | TopicRefusal:
    """Make a change of znodes, again if another broker was faster; return its result, or the refusal if it fails."""
    for attempt in range(1, MOST_ATTEMPTS + 1):
        try:
            return await change()
        except METADATA_ERRORS as error:
            if attempt == MOST_ATTEMPTS or is_passing(error) or not isinstance(error, CHANGED_MEANWHILE):
                return metadata_refusal(error)
        except ZnodeDataError as error:
            return TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"The present settings are damaged: {error}")
    raise AssertionError("the last attempt returns")


async def find_broker_config(zk: ZkClient, name: str) -> FoundSettings:
    """The dynamic settings of a broker, or of all with `BrokerConfigZnode.DEFAULT`. Raises ZnodeDataError."""
    return await _found_settings(zk, BrokerConfigZnode.path(name), BrokerConfigZnode.decode, name)


async def take_producer_ids(zk: ZkClient, broker_id: int, seen_in_logs: int = -1) -> ProducerIdBlock:
    """Allocate the next block of producer ids; retried if another broker took it at the same time.

    The first block of new metadata begins far above `seen_in_logs`, the highest id in the logs: in logs from another
    cluster, a new producer with an old one's id would be taken for that one, and its sequence numbers refused.
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
