"""From a frame to its handler: large requests in slices, what a client may do, verdicts of an intercept."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from e2e.valid_requests import VICTIM, Maker, apis_and_versions
from ottla.broker.authorization import Access
from ottla.broker.context import RequestContext
from ottla.broker.dispatch import ACCESSES_PER_SLICE, Dispatcher
from ottla.broker.error_answers import error_response
from ottla.broker.intercept import AnswerError, Delay, Disconnect, Drop, Throttle, Verdict
from ottla.broker.served import SERVED
from ottla.cluster.acls import Operation, ResourceType
from ottla.net.connection import Principal
from ottla.wire.apis import API
from ottla.wire.codec import encode
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from support.dispatching import Ask, FakeConnection, wait_until, with_broker


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

    def permitted(
        self, principal: Principal, host: str, accesses: Iterable[Access], api_key: int
    ) -> Collection[Access]:
        asked = list(accesses)
        self.declared.update(asked)
        return {access for access in asked if self._permits(access)}

    def operations(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        return 0


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
@pytest.mark.parametrize(("topics", "tasks"), [(ACCESSES_PER_SLICE // 2, 0), (ACCESSES_PER_SLICE + 1, 1)])
def test_few_accesses_are_decided_without_a_copy_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: int, tasks: int
) -> None:
    rests = []
    rest = Dispatcher._authorize_rest

    def noted(self: Dispatcher, *arguments: Any) -> Any:
        rests.append(arguments)
        return rest(self, *arguments)

    async def scenario(ask: Ask) -> None:
        recorder = Recorder(lambda access: access.name != "t1")
        ask.broker.dispatcher.authorizer = recorder
        names = [f"t{number}" for number in range(topics)]
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
                for name in names
            ],
            timeout_ms=0,
        )
        found = {each.name: each.partitions[0].error_code for each in (await ask(21, 2, request)).topics}
        assert found.pop("t1") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert set(found.values()) == {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        assert {access.name for access in recorder.declared} == set(names)

    monkeypatch.setattr(Dispatcher, "_authorize_rest", noted)
    with_broker(tmp_path, scenario)
    assert len(rests) == tasks


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


@pytest.mark.slow
@pytest.mark.spec("S3")
@pytest.mark.spec("S5")
def test_who_is_denied_everything_changes_nothing(tmp_path: Path) -> None:
    """Requests of every API that name what is there: no znode, no log and no group is another one afterwards."""

    async def scenario(ask: Ask) -> None:
        broker = ask.broker
        assert broker._coordination is not None
        assert broker._coordination.store is not None
        nodes = broker._coordination.store.tree.nodes

        def state() -> object:
            znodes = {path: (node.data, node.stat().version) for path, node in nodes.items()}
            ends = {(each.topic, each.index): each.log.log_end_offset for each in broker.partitions}
            return znodes, ends, len(broker.groups.groups()[1])

        ask.broker.dispatcher.authorizer = Recorder(lambda _: False)
        before = state()
        for key, version in apis_and_versions():
            if key in SERVED:
                await ask(key, version, Maker(random.Random(key)).request(key, version))
                assert state() == before, (API[key].name, version)

    with_broker(tmp_path, scenario, first_topic=VICTIM, auto_create_topics_enable="false")


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
