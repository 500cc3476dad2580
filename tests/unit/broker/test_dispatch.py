"""From a frame to its handler: large requests in slices, what a client may do, verdicts of an intercept."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from e2e.valid_requests import Maker, apis_and_versions
from ottla.broker.authorization import Access, Operation, ResourceType
from ottla.broker.context import RequestContext
from ottla.broker.error_answers import error_response
from ottla.broker.intercept import AnswerError, Delay, Disconnect, Drop, Throttle, Verdict
from ottla.broker.served import SERVED
from ottla.broker.server import Broker
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.net.connection import ANONYMOUS, Principal
from ottla.wire.apis import API
from ottla.wire.codec import decode, encode
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import RequestHeader, encode_request_frame, parse_response_header
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.wire.schema import Message


async def wait_until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until the condition holds."""
    for _ in range(10_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


class FakeConnection:
    """Keeps answers."""

    def __init__(self, principal: Principal | None = ANONYMOUS) -> None:
        self.listener_name = "PLAINTEXT"
        self.peer_host, self.peer_port = "1.2.3.4", 9
        self.principal = principal
        self.frame_limit = 1 << 30
        self.state: object = None
        self.last_active_ms = 0.0
        self.closed = False
        self.kept = False
        self.muted_ms = 0.0
        self.answers: list[bytes] = []
        self.completed = 0

    def keep_frame(self) -> None:
        self.kept = True

    def mute_for(self, duration_ms: float) -> None:
        self.muted_ms = duration_ms

    def send_bytes(self, data: bytes) -> None:
        self.answers.append(data)

    def send(self, parts: Iterable[bytes]) -> None:
        self.answers.append(b"".join(parts))

    def complete(self) -> None:
        self.completed += 1

    def close(self) -> None:
        self.closed = True

    @property
    def is_done(self) -> bool:
        return self.closed or bool(self.completed) or bool(self.answers)


class Ask:
    """Gives requests to a broker's dispatcher."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def __call__(self, key: int, version: int, request: Message, principal: Principal | None = ANONYMOUS) -> Any:
        connection = FakeConnection(principal)
        self.give(connection, key, version, request)
        await wait_until(lambda: connection.is_done)
        return self.answer(connection, key, version)

    def give(self, connection: FakeConnection, key: int, version: int, request: Message) -> None:
        frame = encode_request_frame(RequestHeader(key, version, 5, "c"), encode(request, version))
        stand_in: Any = connection
        self.broker.dispatcher.handle_frame(stand_in, memoryview(bytearray(frame))[4:])

    def answer(self, connection: FakeConnection, key: int, version: int) -> Any:
        """The decoded answer, None where there was none."""
        if not connection.answers:
            return None
        body = memoryview(connection.answers[0])[4:]
        _, at = parse_response_header(body, key, version)
        return decode(API[key].response, bytes(body[at:]), version)


def with_broker(folder: Path, scenario: Callable[[Ask], Awaitable[None]], **settings: str) -> None:
    async def run() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        config = parse_broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), **named})
        assert isinstance(config, BrokerConfig), config
        broker = Broker(config)
        assert await broker.start() is None
        try:
            await broker.control.admin.create_topic(TopicSpec("t", 1))
            await scenario(Ask(broker))
        finally:
            await broker.stop()

    asyncio.run(run())


def list_offsets(partitions: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])


@pytest.mark.spec("S5")
def test_a_large_request_is_answered_as_a_small_one(tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        small = await ask(2, 6, list_offsets(3))
        large = await ask(2, 6, list_offsets(10_000))
        assert list(large.topics[0].partitions)[:3] == small.topics[0].partitions
        assert len(large.topics[0].partitions) == 10_000

    with_broker(tmp_path, scenario)


@pytest.mark.spec("S5")
def test_more_elements_than_the_limit_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ask: Ask) -> None:
        names = [MetadataRequestTopic(name=f"name-{index}") for index in range(6_000)]
        with caplog.at_level(logging.WARNING):
            assert await ask(3, 9, MetadataRequest(topics=names)) is None
        assert "at most 5000 are taken; ask for less at a time, or raise ottla.request.max.elements" in caplog.text
        groups = API[15].request(groups=[f"group-{index}" for index in range(6_000)])
        assert await ask(15, 5, groups) is None, "there is no error of the whole: the connection is closed"
        leaving = [MemberIdentity(member_id=f"member-{index}") for index in range(6_000)]
        answer = await ask(13, 3, LeaveGroupRequest(group_id="g", members=leaving))
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    with_broker(tmp_path, scenario, ottla_request_max_elements="5000")


@pytest.mark.spec("R1", "S5")
@pytest.mark.parametrize("count", [6_000, 60_000])
def test_a_controller_may_name_ten_times_as_many(tmp_path: Path, count: int) -> None:
    """The first LeaderAndIsr to a broker has all of its replicas."""

    async def scenario(ask: Ask) -> None:
        deleted = [StopReplicaPartitionState(partition_index=index, leader_epoch=0) for index in range(count)]
        request = StopReplicaRequest(topic_states=[StopReplicaTopicState(topic_name="t", partition_states=deleted)])
        answer = await ask(5, 3, request)
        is_read = count < 50_000
        assert answer.error_code == (ErrorCode.STALE_CONTROLLER_EPOCH if is_read else ErrorCode.INVALID_REQUEST)

    with_broker(tmp_path, scenario, ottla_request_max_elements="5000")


@pytest.mark.spec("S5")
def test_the_work_of_a_large_request_ends_with_its_connection(tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        connection = FakeConnection()
        ask.give(connection, 2, 6, list_offsets(150_000))
        assert connection.kept
        assert not connection.is_done, "it is cut into slices"
        connection.closed = True
        stand_in: Any = connection
        ask.broker.dispatcher.connection_closed(stand_in)
        await wait_until(lambda: not ask.broker.dispatcher._tasks)
        assert not connection.answers

    with_broker(tmp_path, scenario)


class Recorder:
    """An authorizer that permits what a test says, and keeps what was declared."""

    def __init__(self, permits: Callable[[Access], bool]) -> None:
        self._permits = permits
        self.declared: set[Access] = set()

    def permitted(self, principal: Principal, host: str, accesses: Iterable[Access]) -> Collection[Access]:
        asked = list(accesses)
        self.declared.update(asked)
        return {access for access in asked if self._permits(access)}


@pytest.mark.spec("S3")
def test_handlers_work_on_what_is_permitted(tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        ask.broker.dispatcher.authorizer = Recorder(lambda access: access.name != "t")
        produce = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"x" * 80)])],
        )
        (topic,) = (await ask(0, 9, produce)).responses
        assert topic.partition_responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        (topic,) = (await ask(2, 6, list_offsets(1))).topics
        assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [t.name for t in (await ask(3, 9, MetadataRequest(topics=None))).topics] == []
        ask.broker.dispatcher.authorizer = None
        (topic,) = (await ask(2, 6, list_offsets(1))).topics
        assert topic.partitions[0].error_code == 0

    with_broker(tmp_path, scenario)


@pytest.mark.spec("S3")
@pytest.mark.parametrize("replica_id", [-1, 5])
def test_list_offsets_needs_describe_of_brokers_too(tmp_path: Path, replica_id: int) -> None:
    """As `KafkaApis.handleListOffsetRequest`, which asks nobody for CLUSTER_ACTION."""

    async def scenario(ask: Ask) -> None:
        recorder = Recorder(lambda access: access.operation is Operation.DESCRIBE)
        ask.broker.dispatcher.authorizer = recorder
        request = list_offsets(1)
        request.replica_id = replica_id
        (topic,) = (await ask(2, 6, request)).topics
        assert topic.partitions[0].error_code == 0
        assert recorder.declared == {Access(Operation.DESCRIBE, ResourceType.TOPIC, "t")}

    with_broker(tmp_path, scenario)


@pytest.mark.spec("S3")
def test_handlers_ask_for_nothing_that_they_do_not_declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[Access] = set()
    permits = RequestContext.permits

    def noted(context: RequestContext, operation: Operation, kind: ResourceType, name: str) -> bool:
        asked.add(Access(operation, kind, name))
        return permits(context, operation, kind, name)

    async def scenario(ask: Ask) -> None:
        for allowed in (True, False):
            for key, version in apis_and_versions():
                if key not in SERVED:
                    continue
                recorder = Recorder(lambda _, allowed=allowed: allowed)  # type: ignore[misc]
                ask.broker.dispatcher.authorizer = recorder
                asked.clear()
                await ask(key, version, Maker(random.Random(key), absurd=False).request(key, version))
                assert asked <= recorder.declared, (API[key].name, version)

    monkeypatch.setattr(RequestContext, "permits", noted)
    with_broker(tmp_path, scenario, auto_create_topics_enable="false")


def test_before_authentication_little_may_be_asked(tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        assert await ask(3, 9, MetadataRequest(topics=None), None) is None
        assert (await ask(18, 0, ApiVersionsRequest(), None)).error_code == 0

    with_broker(tmp_path, scenario)


def test_an_intercept_decides_what_becomes_of_requests(tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        verdict: Verdict | None = None
        ask.broker.dispatcher.intercept = lambda context, request: verdict
        assert (await ask(2, 6, list_offsets(1))).topics[0].partitions[0].error_code == 0
        verdict = AnswerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        (topic,) = (await ask(2, 6, list_offsets(2))).topics
        assert topic.name == "t"
        assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(0, 6), (1, 6)]
        verdict = Throttle(70)
        connection = FakeConnection()
        ask.give(connection, 2, 6, list_offsets(1))
        await wait_until(lambda: connection.is_done)
        assert connection.muted_ms == 70
        assert ask.answer(connection, 2, 6).throttle_time_ms == 70
        verdict = Drop()
        dropped = FakeConnection()
        ask.give(dropped, 2, 6, list_offsets(1))
        # The connection goes on to no further request: the responses to those would be out of order.
        assert (dropped.completed, dropped.answers, dropped.closed) == (0, [], False)
        verdict = Disconnect()
        assert await ask(2, 6, list_offsets(1)) is None
        verdict = Delay(1)
        late = FakeConnection()
        ask.give(late, 2, 6, list_offsets(1))
        assert not late.is_done
        await wait_until(lambda: late.is_done)
        assert ask.answer(late, 2, 6).topics[0].partitions[0].error_code == 0

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(("key", "version"), [(k, v) for k, v in apis_and_versions() if k in SERVED])
def test_every_api_can_be_answered_with_an_error(key: int, version: int) -> None:
    request = Maker(random.Random(1)).request(key, version)
    response = error_response(key, version, request, ErrorCode.NOT_CONTROLLER)
    if response is not None:
        assert b"\x00\x29" in encode(response, version)
    else:
        assert (key, version) in ((18, -1),), "an API without a place for errors"
