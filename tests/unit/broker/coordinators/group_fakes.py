"""A group runtime without a broker: a log in memory whose commits can be held back, topics that are made at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any
from uuid import UUID

from ottla.broker.control.first_metadata import UnheardTopics
from ottla.broker.coordinators.coordinator_log import Appended
from ottla.broker.coordinators.groups import GroupCoordinatorService
from ottla.broker.replicas.manager import RoleListener
from ottla.broker.replicas.partition import Committed
from ottla.broker.slices import LoopSlices
from ottla.broker.zookeeper_offsets import OffsetZnodes
from ottla.cluster.image import BrokerImage, ClusterImage, ImageDelta, PartitionImage, TopicImage
from ottla.cluster.refusal import TopicRefusal
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.listeners import Endpoint
from ottla.env.clock import Clock, SystemClock, VirtualClock
from ottla.env.randomness import Randomness
from ottla.records.batch import parse_batch_header, patch_batch
from ottla.storage.results import UnreadableRange
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.codec import decode, encode
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Message
from ottla.zk.client import LocalClient
from ottla.zk.store import TreeStore
from support.handler_context import HandlerContext

BROKER_ID = 1


class FakeLog:
    """Partitions as lists of batches. With `follows` off, nothing is committed before `commit` is called."""

    def __init__(self) -> None:
        self.batches: dict[tuple[str, int], list[bytes]] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.waiting: list[tuple[tuple[str, int], int, Committed]] = []
        self.follows = True
        self.error: ErrorCode | None = None
        #: Of partitions that are not led in the epoch 0.
        self.epochs: dict[tuple[str, int], int] = {}
        #: Whether enough replicas are in sync.
        self.has_enough = True
        #: The partitions of topics that this broker leads, with their epochs, and who hears of changes.
        self.led: dict[str, dict[int, int]] = {}
        self.listeners: dict[str, RoleListener] = {}

    def follow_roles(self, topic: str, listener: RoleListener | None) -> None:
        self.listeners.pop(topic, None)
        if listener is not None:
            self.listeners[topic] = listener
            for partition, leader_epoch in self.led.get(topic, {}).items():
                listener.load(partition, leader_epoch)

    def take_roles(self, topic: str, states: Sequence[PartitionImage]) -> None:
        """The broker's roles change, as a controller says; without states the topic is deleted."""
        listener = self.listeners.get(topic)
        before = self.led.pop(topic, {})
        led = self.led[topic] = {index: each.leader_epoch for index, each in enumerate(states) if _leads(each)}
        for index, each in enumerate(states):
            self.epochs[topic, index] = each.leader_epoch
            if listener is None:
                continue
            if index in led:
                listener.load(index, each.leader_epoch)
            else:
                listener.unload(index, each.leader_epoch)
        for index in before.keys() - set(range(len(states))):
            if listener is not None:
                listener.unload(index, None)

    def append(
        self, topic: str, partition: int, batch: bytearray, leader_epoch: int | None, *, needs_replicas: bool
    ) -> Appended | ErrorCode:
        if self.error is not None:
            return self.error
        if needs_replicas and not self.has_enough:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if leader_epoch not in (None, self.epochs.get((topic, partition), 0)):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        key = (topic, partition)
        first = self.ends.get(key, 0)
        header = parse_batch_header(batch)
        patch_batch(batch, 0, first, 0)
        self.batches.setdefault(key, []).append(bytes(batch))
        self.ends[key] = first + header.last_offset_delta + 1
        if self.follows:
            self.committed[key] = self.ends[key]
        return Appended(first, self.high_watermark(topic, partition))

    def read_batches(
        self, topic: str, partition: int, unreadable: Callable[[UnreadableRange], None]
    ) -> Iterator[memoryview]:
        for batch in self.batches.get((topic, partition), []):
            yield memoryview(batch)

    def is_empty(self, topic: str, partition: int) -> bool:
        return not self.batches.get((topic, partition))

    def end_offset(self, topic: str, partition: int) -> int:
        return self.ends.get((topic, partition), 0)

    def high_watermark(self, topic: str, partition: int) -> int:
        return self.committed.get((topic, partition), 0)

    def when_committed(self, topic: str, partition: int, offset: int, done: Committed) -> None:
        self.waiting.append(((topic, partition), offset, done))

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Everything appended is committed, or, with an error, lost."""
        if error is ErrorCode.NONE:
            self.committed = dict(self.ends)
        waiting, self.waiting = self.waiting, []
        for _, _, done in waiting:
            done(error)


def _leads(state: PartitionImage) -> bool:
    return state.leader == BROKER_ID


class FakeTopics:
    """Topics that come into being when asked for."""

    def __init__(self, runtime_of: list[GroupCoordinatorService], log: FakeLog, partitions: int = 3) -> None:
        self.unheard_topics = UnheardTopics(lambda: 0.0)
        self.runtime_of = runtime_of
        self.log = log
        self.partitions = partitions
        self.refusal: TopicRefusal | None = None
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "host", 9092)
        self.image = ClusterImage("c", BROKER_ID, {BROKER_ID: BrokerImage(BROKER_ID, (endpoint,))})

    def put(self, name: str, partitions: int, leader: int = BROKER_ID, leader_epoch: int = 0) -> None:
        known = self.image.topics.get(name)
        topic_id = UUID(int=len(self.image.topics) + 1) if known is None else known.topic_id
        image = PartitionImage(leader, leader_epoch, (leader,), (leader,))
        self.change(name, TopicImage(name, topic_id, (image,) * partitions, {}, False))

    def remove(self, name: str) -> None:
        self.change(name, None)

    def change(self, name: str, topic: TopicImage | None) -> None:
        delta = ImageDelta((self.image.delta_of(name, topic),))
        if topic is not None:
            self.log.take_roles(name, topic.partitions)
        self.image.apply(delta)
        for runtime in self.runtime_of:
            runtime.image_changed(delta)
        if topic is None:
            self.log.take_roles(name, ())

    async def ensure_topic(self, name: str) -> TopicRefusal | None:
        await asyncio.sleep(0)
        if self.refusal is None and name not in self.image.topics:
            self.put(name, self.partitions)
        return self.refusal


def broker_config(**settings: str) -> BrokerConfig:
    given = {"group.initial.rebalance.delay.ms": "0"} | {name.replace("_", "."): v for name, v in settings.items()}
    config = parse_broker_config(given)
    assert isinstance(config, BrokerConfig), config
    return config


class FakeBroker:
    """What handlers of group requests see of the broker."""

    def __init__(self, log: FakeLog | None = None, clock: Clock | None = None, **settings: str) -> None:
        runtimes: list[GroupCoordinatorService] = []
        self.log = log or FakeLog()
        self.control = FakeTopics(runtimes, self.log)
        self.config = broker_config(**settings)
        self.groups = GroupCoordinatorService(
            self.config, clock or SystemClock(), self.log, self.control, Randomness(7)
        )
        runtimes.append(self.groups)
        self.tree_disk = FaultyDisk(MemoryDisk())
        self.zk = LocalClient(TreeStore.open(self.tree_disk, "/tree", VirtualClock(1)))
        self.slices = LoopSlices(VirtualClock().monotonic_ms)
        self.zookeeper_offsets = OffsetZnodes(self.zk, self.slices)

    @property
    def image(self) -> ClusterImage:
        return self.control.image

    def begin(self, partitions: int = 3) -> FakeBroker:
        """Start with the offsets topic there."""
        self.control.put("__consumer_offsets", partitions)
        self.groups.start()
        return self


class FakeContext(HandlerContext):
    """A request; what its handler goes on with is a task."""

    def __init__(self, broker: FakeBroker, version: int, client_id: str = "client") -> None:
        super().__init__(broker, version)
        self.client_id = client_id
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))


def ask(broker: FakeBroker, handler: Any, version: int, request: Message, client_id: str = "client") -> FakeContext:
    """One request through its handler, as bytes."""
    context = FakeContext(broker, version, client_id)
    handler.handle(context, decode(type(request), encode(request, version), version))
    return context
