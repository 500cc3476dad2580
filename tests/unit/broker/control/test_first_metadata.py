"""A broker that has just started, whose controller has not said yet which brokers and topics there are."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ottla.broker.control import first_metadata
from ottla.broker.control.coordination import Coordination
from ottla.broker.server import Broker
from ottla.cluster.image import BrokerImage, ImageDelta
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.clock import SystemClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.codec import decode, encode
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.schema import Message
from ottla.zk.client import LocalClient
from ottla.zk.layout import ControllerZnode, TopicAssignment, TopicZnode
from ottla.zk.store import TreeStore

CONTROLLER = 9
WAIT_S = 30.0

pytestmark = pytest.mark.spec("R1", "R5")

#: Key, version and class of the response; the versions are those before flexible ones.
ASKED: dict[type[Message], tuple[int, int, type[Message]]] = {
    MetadataRequest: (3, 8, MetadataResponse),
    FindCoordinatorRequest: (10, 2, FindCoordinatorResponse),
    OffsetCommitRequest: (8, 7, OffsetCommitResponse),
}


class Client:
    """One connection; requests of versions without flexible headers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, broker: Broker) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", broker.listening[0].port))

    async def ask(self, request: Message) -> Any:
        """The response."""
        key, version, response = ASKED[type(request)]
        frame = struct.pack(">hhih", key, version, 1, -1) + encode(request, version)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode(response, (await self._reader.readexactly(size))[4:], version)

    async def ask_about_the_cluster(self) -> Any:
        """The response to DescribeCluster, all of whose versions are flexible."""
        frame = struct.pack(">hhihb", 60, 0, 1, -1, 0) + encode(DescribeClusterRequest(), 0)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode(DescribeClusterResponse, (await self._reader.readexactly(size))[5:], 0)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def with_silent_controller(folder: Path, scenario: Callable[[Broker], Awaitable[None]]) -> None:
    """Broker 2 of a cluster with the topics `t` and `__consumer_offsets`, whose controller has not spoken to it."""

    async def whole() -> None:
        store = TreeStore.open(MemoryDisk(), "/t", SystemClock())
        other = LocalClient(store, 2)
        await other.create(ControllerZnode.PATH, ControllerZnode.encode(CONTROLLER, 1))
        for name in ("t", "__consumer_offsets"):
            data = TopicZnode.encode(TopicAssignment.of(uuid4(), {0: [CONTROLLER]}))
            await other.create(TopicZnode.path(name), data, make_parents=True)
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), "broker.id": "2"}
        config = parse_broker_config(settings)
        assert isinstance(config, BrokerConfig)
        broker = Broker(config, coordination=Coordination(LocalClient(store, 3), 6_000, accepts_others=True))
        assert await broker.start() is None
        try:
            await asyncio.wait_for(scenario(broker), WAIT_S)
        finally:
            await broker.stop()

    asyncio.run(whole())


def told(broker: Broker) -> ImageDelta:
    """What the controller says first."""
    brokers = {each: BrokerImage(each, broker.control.endpoints) for each in (2, CONTROLLER)}
    return ImageDelta((), brokers, CONTROLLER)


def test_metadata_are_answered_when_it_knows_brokers(tmp_path: Path) -> None:
    """librdkafka closes all its connections when it is told that there are no brokers, and is silent from then on."""

    async def scenario(broker: Broker) -> None:
        client, other = await Client.connect(broker), await Client.connect(broker)
        asked = asyncio.ensure_future(client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")])))
        described = asyncio.ensure_future(other.ask_about_the_cluster())
        while len(broker.control.first_brokers) < 2:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0)  # sleep: the broker has its turn
        assert not asked.done()
        assert not described.done()
        broker.control.publisher.publish(told(broker))
        answer = await asked
        assert [each.node_id for each in answer.brokers] == [2, CONTROLLER]
        assert [each.error_code for each in answer.topics] == [ErrorCode.LEADER_NOT_AVAILABLE]
        assert [each.broker_id for each in (await described).brokers] == [2, CONTROLLER]
        assert not len(broker.control.first_brokers)
        await client.close()
        await other.close()

    with_silent_controller(tmp_path, scenario)


def test_who_asks_in_vain_for_long_is_left_to_ask_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker) -> None:
        client, other = await Client.connect(broker), await Client.connect(broker)
        with pytest.raises(asyncio.IncompleteReadError):
            await client.ask(MetadataRequest(topics=None))
        with pytest.raises(asyncio.IncompleteReadError):
            await other.ask_about_the_cluster()
        await client.close()
        await other.close()

    monkeypatch.setattr(first_metadata, "FIRST_BROKERS_WAIT_S", 0.01)
    with_silent_controller(tmp_path, scenario)


def test_who_waits_and_leaves_is_forgotten(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        client = await Client.connect(broker)
        asked = asyncio.ensure_future(client.ask(MetadataRequest(topics=None)))
        while not len(broker.control.first_brokers):  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0)  # sleep: the broker has its turn
        await client.close()
        while len(broker.control.first_brokers):  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0)  # sleep: the broker has its turn
        with pytest.raises(asyncio.IncompleteReadError):
            await asked

    with_silent_controller(tmp_path, scenario)


def test_groups_are_told_to_try_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(broker: Broker) -> None:
        client = await Client.connect(broker)
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
        topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
        for _ in ("knows no brokers", "knows brokers, no topics"):
            found = await client.ask(FindCoordinatorRequest(key="g"))
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            committed = await client.ask(OffsetCommitRequest(group_id="g", topics=topics))
            assert committed.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            broker.control.publisher.publish(told(broker))
        await client.close()

    with_silent_controller(tmp_path, scenario)
    assert "cannot be made" not in caplog.text


def test_requests_that_wait_are_answered_in_the_order_in_which_they_came() -> None:
    """In the order of a set, that of addresses, a seed of the simulation played differently after other seeds."""

    async def scenario() -> None:
        waiting, answered = first_metadata.FirstBrokers(), list[int]()

        async def wait(number: int) -> None:
            assert await waiting.wait()
            answered.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(50)]
        await asyncio.sleep(0)
        assert len(waiting) == len(tasks)
        waiting.heard()
        await asyncio.gather(*tasks)
        assert answered == list(range(50))
        assert len(waiting) == 0

    asyncio.run(scenario())
