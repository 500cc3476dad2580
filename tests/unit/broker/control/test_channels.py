"""A controller of ours beside brokers that are played: what it sends them over TCP, in which order, and how often."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.control.coordination import Coordination
from ottla.broker.server import Broker
from ottla.cluster.controller_events import TopicCreated
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.listeners import Endpoint
from ottla.env.clock import SystemClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.codec import decode, encode
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import encode_response_frame, parse_request_header
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.zk.client import LocalClient
from ottla.zk.layout import (
    BrokerIdZnode,
    BrokerRegistration,
    IsrChangeNotificationZnode,
    LeaderAndIsr,
    LogDirEventNotificationZnode,
    PartitionStateZnode,
)
from ottla.zk.store import TreeStore

WAIT_S = 60.0
#: In so many turns of the loop a connection that was accepted is being served.
TURNS_TO_SERVE = 10
SERVED = {3: (0, 12), 4: (0, 7), 5: (0, 4), 6: (0, 8), 18: (0, 4)}
REQUESTS: dict[int, type[Any]] = {4: LeaderAndIsrRequest, 5: StopReplicaRequest, 6: UpdateMetadataRequest}

pytestmark = pytest.mark.spec("R1")


class PlayedBroker:
    """Listens as a broker, answers control requests, and keeps them. `failing` are partitions without a log dir."""

    def __init__(self, broker_id: int, store: TreeStore, session_id: int) -> None:
        self.id = broker_id
        self.zk = LocalClient(store, session_id)
        self.requests: list[Any] = []
        self.versions: list[tuple[int, int]] = []
        self.failing: set[tuple[str, int]] = set()
        #: Connections that are closed without an answer from now on.
        self.hang_ups = 0
        #: The error with which it answers UpdateMetadata.
        self.refusal = ErrorCode.NONE
        self.epoch = -1
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", port)
        path = BrokerIdZnode.path(self.id)
        await self.zk.create(path, BrokerIdZnode.encode(BrokerRegistration(self.id, (endpoint,))), ephemeral=True)
        stat = await self.zk.exists(path)
        assert stat is not None
        self.epoch = stat.czxid

    async def stop(self) -> None:
        assert self._server is not None
        # A connection that is being accepted when its server closes is never closed (CPython's issue 109564).
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(TURNS_TO_SERVE):
            await asyncio.sleep(0)
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self.zk.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header, offset = parse_request_header(frame)
                body = self._answer(header.api_key, header.api_version, frame[offset:])
                if body is None:
                    return
                writer.write(encode_response_frame(header.api_key, header.api_version, header.correlation_id, body))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def _answer(self, api_key: int, version: int, body: bytes) -> bytes | None:
        if api_key == 18:
            keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in SERVED.items()]
            return encode(ApiVersionsResponse(api_keys=keys), version)
        self.versions.append((api_key, version))
        request = decode(REQUESTS[api_key], body, version)
        self.requests.append(request)
        if self.hang_ups:
            self.hang_ups -= 1
            return None
        if isinstance(request, UpdateMetadataRequest):
            return encode(UpdateMetadataResponse(error_code=int(self.refusal)), version)
        if isinstance(request, StopReplicaRequest):
            errors = [
                StopReplicaPartitionError(topic_name=topic.topic_name, partition_index=each.partition_index)
                for topic in request.topic_states
                for each in topic.partition_states
            ]
            return encode(StopReplicaResponse(partition_errors=errors), version)
        topics = [
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        partition_index=each.partition_index,
                        error_code=self._error(topic.topic_name, each.partition_index),
                    )
                    for each in topic.partition_states
                ],
            )
            for topic in request.topic_states
        ]
        return encode(LeaderAndIsrResponse(topics=topics), version)

    def _error(self, topic: str, partition: int) -> int:
        return int(ErrorCode.KAFKA_STORAGE_ERROR if (topic, partition) in self.failing else ErrorCode.NONE)

    def story(self, since: int = 0) -> list[str]:
        """The requests as short lines."""
        return [line for request in self.requests[since:] for line in _lines(request)]


def _lines(request: Any) -> list[str]:
    name = type(request).__name__.removesuffix("Request")
    lines = []
    for topic in request.topic_states:
        for each in topic.partition_states:
            key = f"{topic.topic_name}-{each.partition_index}"
            if isinstance(request, StopReplicaRequest):
                lines.append(f"{name} {key} {each.leader_epoch}{' delete' if each.delete_partition else ''}")
            else:
                new = " new" if getattr(each, "is_new", False) else ""
                lines.append(f"{name} {key} leader {each.leader} epoch {each.leader_epoch} isr {each.isr}{new}")
    return lines or [f"{name} of brokers {sorted(broker.id for broker in request.live_brokers)}"]


class Stage:
    """A broker of ours, which is the controller, and played ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = TreeStore.open(MemoryDisk(), "/t", SystemClock())
        self.sessions = 1
        self.played: dict[int, PlayedBroker] = {}

    async def start(self) -> Broker:
        config = parse_broker_config(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(self.folder),
                "broker.id": "1",
                "controlled.shutdown.retry.backoff.ms": "10",
            }
        )
        assert isinstance(config, BrokerConfig)
        self.sessions += 1
        coordination = Coordination(LocalClient(self.store, self.sessions), 6_000, accepts_others=True)
        broker = Broker(config, coordination=coordination)
        assert await broker.start() is None
        return broker

    async def play(self, broker_id: int) -> PlayedBroker:
        self.sessions += 1
        broker = self.played[broker_id] = PlayedBroker(broker_id, self.store, self.sessions)
        await broker.start()
        return broker


async def until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():  # noqa: ASYNC110 - brokers that are played have no signals
            await asyncio.sleep(0.01)  # sleep: connections have their turn

    await asyncio.wait_for(wait(), WAIT_S)


def run(tmp_path: Path, scenario: Callable[[Stage, Broker], Awaitable[None]]) -> None:
    async def whole() -> None:
        stage = Stage(tmp_path)
        broker = await stage.start()
        try:
            await scenario(stage, broker)
        finally:
            for played in stage.played.values():
                await played.stop()
            await broker.stop()

    asyncio.run(whole())


async def joined(stage: Stage, broker: Broker, broker_id: int) -> PlayedBroker:
    played = await stage.play(broker_id)
    await until(lambda: broker_id in broker.image.brokers and len(played.requests) >= 1)
    return played


def test_a_topic_is_made_led_and_deleted_by_requests_in_kafkas_order(tmp_path: Path) -> None:
    async def scenario(stage: Stage, broker: Broker) -> None:
        two = await joined(stage, broker, 2)
        assert two.story() == ["UpdateMetadata of brokers [1, 2]"]
        spec = TopicSpec("t", assignments={0: (2, 1), 1: (1, 2)})
        assert isinstance(await broker.control.admin.create_topic(spec), TopicCreated)
        await until(lambda: len(two.requests) == 3)
        assert two.story(1) == [
            "LeaderAndIsr t-0 leader 2 epoch 0 isr [2, 1] new",
            "LeaderAndIsr t-1 leader 1 epoch 0 isr [1, 2] new",
            "UpdateMetadata t-0 leader 2 epoch 0 isr [2, 1]",
            "UpdateMetadata t-1 leader 1 epoch 0 isr [1, 2]",
        ]
        roles = two.requests[1]
        assert (roles.controller_id, roles.controller_epoch, roles.broker_epoch) == (1, 1, two.epoch)
        assert [leader.broker_id for leader in roles.live_leaders] == [2, 1]
        assert roles.live_leaders[1].port == broker.listening[0].port
        assert roles.topic_states[0].topic_id == broker.image.topics["t"].topic_id
        assert not roles.is_kraft_controller
        assert await broker.control.admin.delete_topic("t") is None
        assert two.story(3) == [
            "UpdateMetadata t-0 leader -2 epoch 0 isr [2, 1]",
            "UpdateMetadata t-1 leader -2 epoch 0 isr [1, 2]",
            "StopReplica t-0 -2",
            "StopReplica t-1 -2",
            "StopReplica t-0 -2 delete",
            "StopReplica t-1 -2 delete",
        ]
        assert await two.zk.exists("/brokers/topics/t") is None
        assert sorted(set(two.versions)) == [(4, 7), (5, 4), (6, 8)]

    run(tmp_path, scenario)


def test_a_request_is_repeated_until_it_is_answered(tmp_path: Path) -> None:
    async def scenario(stage: Stage, broker: Broker) -> None:
        two = await joined(stage, broker, 2)
        two.hang_ups = 2
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t", assignments={0: (2,)})), TopicCreated)
        await until(lambda: len(two.requests) == 5)
        asked = "LeaderAndIsr t-0 leader 2 epoch 0 isr [2] new"
        assert two.story(1) == [asked, asked, asked, "UpdateMetadata t-0 leader 2 epoch 0 isr [2]"]

    run(tmp_path, scenario)


def test_a_broker_whose_acls_deny_brokers_is_named_with_the_cure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stage: Stage, broker: Broker) -> None:
        two = await joined(stage, broker, 2)
        two.refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t", assignments={0: (2,)})), TopicCreated)
        await until(lambda: "broker 2 refuses a control request: error 31, not authorized: name this" in caplog.text)
        assert "super.users, or allow it ClusterAction" in caplog.text

    run(tmp_path, scenario)


def test_a_broker_that_registers_anew_gets_all_its_replicas_in_one_request(tmp_path: Path) -> None:
    async def scenario(stage: Stage, broker: Broker) -> None:
        two = await joined(stage, broker, 2)
        for name, replicas in (("t", (2, 1)), ("u", (2,))):
            spec = TopicSpec(name, assignments={0: replicas, 1: replicas})
            assert isinstance(await broker.control.admin.create_topic(spec), TopicCreated)
        await until(lambda: len(two.requests) == 5)
        await two.stop()
        await until(lambda: broker.image.topics["u"].partitions[1].leader == -1)
        assert broker.image.topics["t"].partitions[0][:2] == (1, 1)
        again = await joined(stage, broker, 2)
        await until(lambda: len(again.requests) >= 4)
        kinds = [type(request).__name__ for request in again.requests[:4]]
        assert kinds == ["UpdateMetadataRequest", "LeaderAndIsrRequest", "LeaderAndIsrRequest", "UpdateMetadataRequest"]
        assert [(topic.topic_name, len(topic.partition_states)) for topic in again.requests[1].topic_states] == [
            ("t", 2),
            ("u", 2),
        ]
        assert again.requests[1].broker_epoch == again.epoch > two.epoch
        led = [line for line in again.story(2) if line.startswith("LeaderAndIsr")]
        assert led == ["LeaderAndIsr u-0 leader 2 epoch 2 isr [2]", "LeaderAndIsr u-1 leader 2 epoch 2 isr [2]"]

    run(tmp_path, scenario)


def test_replicas_without_a_log_directory_lose_their_leaders(tmp_path: Path) -> None:
    async def scenario(stage: Stage, broker: Broker) -> None:
        two = await joined(stage, broker, 2)
        two.failing = {("t", 0)}
        spec = TopicSpec("t", assignments={0: (2, 1), 1: (2, 1)})
        assert isinstance(await broker.control.admin.create_topic(spec), TopicCreated)
        await until(lambda: broker.image.topics["t"].partitions[0].leader == 1)
        assert broker.image.topics["t"].partitions[0].isr == (1,)
        assert broker.image.topics["t"].partitions[1].leader == 2

    run(tmp_path, scenario)


async def ask(broker: Broker, request: Any) -> Any:
    """Ask our broker over a connection of its own."""
    connector = broker.control.connector
    connection = await connector.connect(broker.image.brokers[1])
    try:
        return await connection.request(request)
    finally:
        connection.close()


def proposal(broker: Broker, played: PlayedBroker, isr: list[int], partition_epoch: int) -> AlterPartitionRequest:
    state = broker.image.topics["t"].partitions[0]
    partition = AlterPartitionRequestPartitionData(
        partition_index=0,
        leader_epoch=state.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=replica) for replica in isr],
        partition_epoch=partition_epoch,
    )
    topic_id = broker.image.topics["t"].topic_id
    topics = [AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[partition])]
    return AlterPartitionRequest(broker_id=played.id, broker_epoch=played.epoch, topics=topics)


def test_a_leader_changes_the_isr_and_every_broker_learns_of_it(tmp_path: Path) -> None:
    async def scenario(stage: Stage, broker: Broker) -> None:
        two = await joined(stage, broker, 2)
        assert isinstance(
            await broker.control.admin.create_topic(TopicSpec("t", assignments={0: (2, 1)})), TopicCreated
        )
        await until(lambda: len(two.requests) == 3)
        answer = await ask(broker, proposal(broker, two, [2], 0))
        [partition] = answer.topics[0].partitions
        assert (partition.error_code, partition.isr, partition.partition_epoch) == (0, [2], 1)
        await until(lambda: len(two.requests) == 4)
        assert two.story(3) == ["UpdateMetadata t-0 leader 2 epoch 0 isr [2]"]
        assert two.requests[3].topic_states[0].partition_states[0].zk_version == 1
        stale = await ask(broker, proposal(broker, two, [2, 1], 0))
        assert stale.topics[0].partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
        two.epoch -= 1
        assert (await ask(broker, proposal(broker, two, [2, 1], 1))).error_code == ErrorCode.STALE_BROKER_EPOCH
        unknown = proposal(broker, two, [2], 1)
        unknown.broker_epoch += 1
        unknown.topics[0].topic_id = UUID(int=7)
        assert (await ask(broker, unknown)).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(tmp_path, scenario)


def test_a_broker_that_wants_to_stop_has_its_leaders_moved(tmp_path: Path) -> None:
    async def scenario(stage: Stage, broker: Broker) -> None:
        two = await joined(stage, broker, 2)
        three = await joined(stage, broker, 3)
        spec = TopicSpec("t", assignments={0: (2, 3), 1: (3, 2)})
        assert isinstance(await broker.control.admin.create_topic(spec), TopicCreated)
        await until(lambda: len(three.requests) == 3)
        begun = len(two.requests)
        answer = await ask(broker, ControlledShutdownRequest(broker_id=2, broker_epoch=two.epoch))
        assert (answer.error_code, answer.remaining_partitions) == (0, [])
        assert [(state.leader, state.isr) for state in broker.image.topics["t"].partitions] == [(3, (3,)), (3, (3,))]
        await until(lambda: len(two.requests) == begun + 3)
        assert two.story(begun) == [
            "LeaderAndIsr t-0 leader 3 epoch 1 isr [3]",
            "UpdateMetadata t-0 leader 3 epoch 1 isr [3]",
            "UpdateMetadata t-1 leader 3 epoch 1 isr [3]",
            "StopReplica t-1 1",
        ]
        three_too = await ask(broker, ControlledShutdownRequest(broker_id=3, broker_epoch=three.epoch))
        assert [each.partition_index for each in three_too.remaining_partitions] == [0, 1]
        unknown = await ask(broker, ControlledShutdownRequest(broker_id=9, broker_epoch=-1))
        assert unknown.error_code == ErrorCode.BROKER_NOT_AVAILABLE

    run(tmp_path, scenario)


def test_the_controller_allocates_producer_ids(tmp_path: Path) -> None:
    async def scenario(stage: Stage, broker: Broker) -> None:
        two = await joined(stage, broker, 2)
        first = await ask(broker, AllocateProducerIdsRequest(broker_id=2, broker_epoch=two.epoch))
        second = await ask(broker, AllocateProducerIdsRequest(broker_id=2, broker_epoch=two.epoch))
        assert [first.producer_id_start, second.producer_id_start] == [0, 1000]
        assert first.producer_id_len == 1000
        assert await broker.control.producer_ids.next() == 2000
        stale = await ask(broker, AllocateProducerIdsRequest(broker_id=2, broker_epoch=two.epoch - 1))
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        unknown = await ask(broker, AllocateProducerIdsRequest(broker_id=9, broker_epoch=1))
        assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    run(tmp_path, scenario)


def test_leaders_are_elected_on_request(tmp_path: Path) -> None:
    async def scenario(stage: Stage, broker: Broker) -> None:
        await joined(stage, broker, 2)
        spec = TopicSpec("t", assignments={0: (2, 1), 1: (1, 2)})
        assert isinstance(await broker.control.admin.create_topic(spec), TopicCreated)
        result = await broker.control.admin.elect_leaders(None)
        assert {refusal.error for refusal in result.refusals.values()} == {ErrorCode.ELECTION_NOT_NEEDED}
        partitions = [TopicPartitions(topic="t", partitions=[0, 1, 2])]
        asked = ElectLeadersRequest(election_type=0, topic_partitions=partitions)
        connection = await broker.control.connector.connect(broker.image.brokers[1])
        try:
            answer = await connection.request(asked, versions=(2, 2))
            whole = await connection.request(
                ElectLeadersRequest(election_type=1, topic_partitions=None), versions=(2, 2)
            )
        finally:
            connection.close()
        assert [each.error_code for each in answer.replica_election_results[0].partition_result] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert whole.replica_election_results == []

    run(tmp_path, scenario)


def test_our_broker_hands_its_leaders_over_before_it_stops(tmp_path: Path) -> None:
    async def whole() -> None:
        stage = Stage(tmp_path)
        broker = await stage.start()
        two = await joined(stage, broker, 2)
        assert isinstance(
            await broker.control.admin.create_topic(TopicSpec("t", assignments={0: (1, 2)})), TopicCreated
        )
        await until(lambda: len(two.requests) == 3)
        await broker.stop()
        assert two.story(3) == [
            "LeaderAndIsr t-0 leader 2 epoch 1 isr [2]",
            "UpdateMetadata t-0 leader 2 epoch 1 isr [2]",
        ]
        await two.stop()

    asyncio.run(whole())


def test_notifications_of_brokers_are_followed_and_cleared(tmp_path: Path) -> None:
    async def scenario(stage: Stage, broker: Broker) -> None:
        two = await joined(stage, broker, 2)
        spec = TopicSpec("t", assignments={0: (2, 1), 1: (2, 1)})
        assert isinstance(await broker.control.admin.create_topic(spec), TopicCreated)
        await until(lambda: len(two.requests) == 3)
        # A failed log directory: the broker is asked about all its replicas, and answers which are offline.
        two.failing = {("t", 1)}
        failed = LogDirEventNotificationZnode
        await two.zk.create(failed.PREFIX, failed.encode(2), sequential=True)
        await until(lambda: broker.image.topics["t"].partitions[1].leader == 1)
        assert [type(request).__name__ for request in two.requests[3:5]] == [
            "UpdateMetadataRequest",
            "LeaderAndIsrRequest",
        ]
        # An ISR that an old broker has written itself.
        path = PartitionStateZnode.path("t", 0)
        await two.zk.set(path, PartitionStateZnode.encode(LeaderAndIsr(2, 0, (2,), 1)))
        changed = IsrChangeNotificationZnode
        await two.zk.create(changed.PREFIX, changed.encode([("t", 0)]), sequential=True)
        await until(lambda: broker.image.topics["t"].partitions[0].isr == (2,))
        assert await two.zk.children(failed.ROOT) == []
        assert await two.zk.children(changed.ROOT) == []

    run(tmp_path, scenario)
