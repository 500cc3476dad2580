"""One broker in this process that is not the controller, and a test that plays the controller: frames over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.broker.control.coordination import Coordination
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.clock import SystemClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.apis import API
from ottla.wire.codec import decode, encode
from ottla.wire.framing import RequestHeader, encode_request_frame, parse_response_header
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from ottla.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.zk.client import LocalClient
from ottla.zk.layout import PERSISTENT_PATHS, ClusterIdZnode, ControllerEpochZnode, ControllerZnode, TopicConfigZnode
from ottla.zk.store import TreeStore
from ottla.zk.tree import NodeExistsError

SESSION_TIMEOUT_MS = 6_000
CONTROLLER = 9
TOPIC_ID = UUID(int=0xA)

Key = tuple[str, int]
"""Topic and partition."""
State = tuple[int, int, list[int]]
"""Leader, leader epoch, replicas; all of them in sync."""


def run_controlled(folder: Path, scenario: Callable[[ControlledBroker], Awaitable[None]], **options: Any) -> None:
    """Play a scenario with a broker that has begun, and stop the broker."""

    async def whole() -> None:
        test = ControlledBroker(folder, **options)
        await test.begin()
        try:
            await scenario(test)
        finally:
            await test.broker.stop()

    asyncio.run(whole())


class ControlledBroker:
    """A broker with the id 1 that joins a cluster whose controller is broker 9, which the test plays."""

    def __init__(self, folder: Path, broker_id: int = 1, log_dirs: int = 1) -> None:
        self.folder = folder
        self.broker_id = broker_id
        self.log_dirs = [folder / f"d{number}" for number in range(log_dirs)]
        self.store = TreeStore.open(MemoryDisk(), "/t", SystemClock())
        self.sessions = 2
        self.zk = LocalClient(self.store, 2)
        self.broker: Broker
        self.epoch = 1
        self.broker_epoch = -1
        self._correlation_id = 0

    async def begin(self) -> None:
        """Make the tree of a cluster that has a controller, and start the broker."""
        for path in PERSISTENT_PATHS:
            with contextlib.suppress(NodeExistsError):
                await self.zk.create(path, make_parents=True)
        await self.zk.create(ClusterIdZnode.PATH, ClusterIdZnode.encode("abc"), make_parents=True)
        await self.zk.create(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(1))
        await self.zk.create(ControllerZnode.PATH, ControllerZnode.encode(CONTROLLER, 0), ephemeral=True)
        await self.start()

    async def start(self) -> None:
        """Start the broker in a session of its own."""
        self.sessions += 1
        config = parse_broker_config(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": ",".join(map(str, self.log_dirs)),
                "broker.id": str(self.broker_id),
            }
        )
        assert isinstance(config, BrokerConfig)
        zk = LocalClient(self.store, self.sessions)
        self.broker = Broker(config, coordination=Coordination(zk, SESSION_TIMEOUT_MS, accepts_others=True))
        assert await self.broker.start() is None
        self.broker_epoch = self.broker.control.membership.broker_epoch

    async def restart(self) -> None:
        """Stop it in order, and start it on the same disk."""
        await self.broker.stop()
        await self.start()

    async def configure(self, topic: str, **configs: str) -> None:
        """Write a topic's settings, as whoever creates it does."""
        data = TopicConfigZnode.encode({name.replace("_", "."): value for name, value in configs.items()})
        await self.zk.create(TopicConfigZnode.path(topic), data, make_parents=True)

    async def send(self, frame: bytes) -> bytes:
        """The answer to a frame (both without their sizes), on a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.broker.listening[0].port)
        try:
            writer.write(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            return await reader.readexactly(size)
        finally:
            writer.close()

    async def ask(self, request: Any, version: int) -> Any:
        """The response to a request."""
        key = request.SCHEMA.api_key
        self._correlation_id += 1
        header = RequestHeader(key, version, self._correlation_id, "controller")
        answer = await self.send(encode_request_frame(header, encode(request, version))[4:])
        correlation_id, start = parse_response_header(answer, key, version)
        assert correlation_id == self._correlation_id
        return decode(API[key].response, answer[start:], version)

    async def lead_or_follow(
        self, states: dict[Key, State], *, is_new: bool = False, topic_id: UUID = TOPIC_ID, **header: Any
    ) -> dict[Key, int]:
        """The error codes of a LeaderAndIsr 7; ("", -1) is the whole."""
        by_topic: dict[str, list[LeaderAndIsrPartitionState]] = {}
        for (topic, index), (leader, leader_epoch, replicas) in states.items():
            by_topic.setdefault(topic, []).append(
                LeaderAndIsrPartitionState(
                    partition_index=index,
                    controller_epoch=self.epoch,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    isr=replicas,
                    replicas=replicas,
                    is_new=is_new,
                )
            )
        topics = [
            LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id, partition_states=some)
            for name, some in by_topic.items()
        ]
        response = await self.ask(LeaderAndIsrRequest(**self._header(header), topic_states=topics), 7)
        found = {("", -1): response.error_code} if response.error_code else {}
        for told, result in zip(topics, response.topics, strict=True):
            assert result.topic_id == topic_id
            found |= {(told.topic_name, one.partition_index): one.error_code for one in result.partition_errors}
        return found

    async def update_metadata(
        self, states: dict[Key, State], brokers: tuple[int, ...] = (1, 2), topic_id: UUID = TOPIC_ID, **header: Any
    ) -> int:
        """The error code of an UpdateMetadata 8."""
        by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
        for (topic, index), (leader, leader_epoch, replicas) in states.items():
            by_topic.setdefault(topic, []).append(
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=self.epoch,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    isr=replicas,
                    replicas=replicas,
                )
            )
        live = [
            UpdateMetadataBroker(
                id=number,
                endpoints=[UpdateMetadataEndpoint(port=9, host="127.0.0.1", listener="PLAINTEXT")],
                rack=f"r{number}",
            )
            for number in brokers
        ]
        topics = [
            UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=some)
            for name, some in by_topic.items()
        ]
        request = UpdateMetadataRequest(**self._header(header), topic_states=topics, live_brokers=live)
        error: int = (await self.ask(request, 8)).error_code
        return error

    async def stop_replicas(self, epochs: dict[Key, int], *, is_deletion: bool, **header: Any) -> dict[Key, int]:
        """The error codes of a StopReplica 4."""
        topics = [
            StopReplicaTopicState(
                topic_name=topic,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=index, leader_epoch=leader_epoch, delete_partition=is_deletion
                    )
                ],
            )
            for (topic, index), leader_epoch in epochs.items()
        ]
        response = await self.ask(StopReplicaRequest(**self._header(header), topic_states=topics), 4)
        found = {("", -1): response.error_code} if response.error_code else {}
        return found | {(one.topic_name, one.partition_index): one.error_code for one in response.partition_errors}

    def _header(self, given: dict[str, Any]) -> dict[str, Any]:
        return {
            "controller_id": CONTROLLER,
            "controller_epoch": self.epoch,
            "broker_epoch": self.broker_epoch,
            **given,
        }
