"""The fault rules of a test broker, as a connection sees them; the requests that it has seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import Broker, TestBrokerError, WaitedInVainError
from ottla.testing.faults import declared
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.raw_client import PRODUCE_V, RawClient, batch_of, fetch_request

pytestmark = pytest.mark.spec("U1")

NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    with Broker({"orders": 2, "payments": 2}) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    yield shared_broker
    shared_broker.faults.clear()


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


def produce_to(*topics: str, acks: int = 1) -> ProduceRequest:
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch_of(b"x"))])
        for name in topics
    ]
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=data)


def metadata_of(*names: str) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


class TestFail:
    def test_the_third_produce(self, broker: Broker, client: RawClient) -> None:
        end = broker.end_offsets("orders")[0]
        with broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", nth=3) as rule:
            errors = [client.produce("orders", 0, batch_of(b"x")).error_code for _ in range(5)]
        assert errors == [0, 0, NOT_LEADER, 0, 0]
        assert (rule.seen, rule.fired) == (5, 1)
        assert broker.end_offsets("orders")[0] == end + 4
        assert client.produce("orders", 0, batch_of(b"x")).error_code == 0

    def test_only_the_topic_of_the_rule_fails(self, broker: Broker, client: RawClient) -> None:
        before = {name: broker.end_offsets(name)[0] for name in ("orders", "payments")}
        broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders")
        response = client.ask(produce_to("orders", "payments"), ProduceResponse, PRODUCE_V)
        assert {each.name: each.partition_responses[0].error_code for each in response.responses} == {
            "orders": NOT_LEADER,
            "payments": 0,
        }
        response = client.ask(produce_to("orders"), ProduceResponse, PRODUCE_V)
        assert [each.partition_responses[0].error_code for each in response.responses] == [NOT_LEADER]
        assert client.produce("payments", 1, batch_of(b"x")).error_code == 0
        assert {name: broker.end_offsets(name)[0] for name in before} == {
            "orders": before["orders"],
            "payments": before["payments"] + 1,
        }

    @pytest.mark.parametrize("given", [{}, {"topic": "orders"}])
    def test_a_produce_without_acks_loses_its_connection(
        self, broker: Broker, client: RawClient, given: dict[str, str]
    ) -> None:
        broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", **given)  # type: ignore[arg-type]
        client.send(produce_to("orders", acks=0), PRODUCE_V)
        assert client.is_closed_by_broker()

    def test_a_fetch_fails_at_once_by_partition(self, broker: Broker, client: RawClient) -> None:
        broker.send("orders", "x", partition=0)
        with broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER"):
            assert client.fetch("orders", 0, 0, max_wait_ms=60_000) == (NOT_LEADER, [])
        error, records = client.fetch("orders", 0, 0)
        assert (error, records[0].value is not None) == (0, True)

    def test_a_topic_of_a_fetch_session_fails(self, broker: Broker, client: RawClient) -> None:
        ids = {each.name: each.topic_id for each in client.metadata("orders", "payments").topics}
        request = fetch_request("", 0, 0, 0)
        request.session_epoch = 0
        request.topics = [
            FetchTopic(topic_id=each, partitions=[FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=99)])
            for each in ids.values()
        ]
        session_id = client.ask(request, FetchResponse, 17).session_id
        assert session_id
        with broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders"):
            request = FetchRequest(
                session_id=session_id, session_epoch=1, topics=[], max_wait_ms=60_000, min_bytes=1, max_bytes=99
            )
            response = client.ask(request, FetchResponse, 17)
            failed = [(each.topic_id, each.partitions[0].error_code) for each in response.responses]
            assert (ids["orders"], NOT_LEADER) in failed
            assert (ids["payments"], NOT_LEADER) not in failed
        assert broker.requests("Fetch")[-1].topics == ("orders", "payments")

    def test_metadata_keeps_its_brokers(self, broker: Broker, client: RawClient) -> None:
        with broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="orders"):
            for request, version in (
                (metadata_of("orders", "payments"), 12),
                (metadata_of("orders"), 12),
                (MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 0),
                (MetadataRequest(topics=None), 12),
            ):
                response = client.ask(request, MetadataResponse, version)
                errors = {each.name: (each.error_code, len(each.partitions)) for each in response.topics}
                assert errors["orders"] == (int(ErrorCode.LEADER_NOT_AVAILABLE), 0)
                assert errors.get("payments", (0, 2)) == (0, 2)
                assert len(errors) <= max(len(request.topics or ()), 2)
                assert len(response.brokers) == 1
        with broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE"):
            response = client.metadata()
            assert {each.error_code for each in response.topics} == {int(ErrorCode.LEADER_NOT_AVAILABLE)}
            assert len(response.brokers) == 1

    def test_topics_that_fail_are_neither_made_nor_deleted(self, broker: Broker, client: RawClient) -> None:
        made = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("bad", "good")]
        )
        with broker.faults.fail("CreateTopics", "POLICY_VIOLATION", topic="bad"):
            response = client.ask(made, CreateTopicsResponse, 7)
        assert {each.name: each.error_code for each in response.topics} == {
            "bad": int(ErrorCode.POLICY_VIOLATION),
            "good": 0,
        }
        assert "bad" not in broker.topics()
        deletions: list[tuple[Any, int]] = [
            (DeleteTopicsRequest(topics=[DeleteTopicState(name="good")]), 6),
            (DeleteTopicsRequest(topic_names=["good"]), 5),
        ]
        with broker.faults.fail("DeleteTopics", "TOPIC_DELETION_DISABLED", topic="good"):
            for request, version in deletions:
                answer = client.ask(request, DeleteTopicsResponse, version)
                assert [each.error_code for each in answer.responses] == [int(ErrorCode.TOPIC_DELETION_DISABLED)]
        assert "good" in broker.topics()
        broker.delete_topic("good")

    def test_an_api_whose_topics_cannot_fail_alone_fails_whole(self, broker: Broker, client: RawClient) -> None:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in ("orders", "payments")]
        broker.faults.fail("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", topic="orders", group="g")
        answer = client.ask(OffsetFetchRequest(group_id="g", topics=topics), OffsetFetchResponse, 7)
        assert answer.error_code == int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = client.ask(OffsetFetchRequest(group_id="h", topics=topics), OffsetFetchResponse, 7)
        assert answer.error_code != int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class TestOtherFaults:
    def test_delay_ends_with_moved_time(self, broker: Broker, client: RawClient) -> None:
        with broker.faults.delay("Metadata", ms=600_000) as rule:
            client.send(metadata_of("orders"), 12)
            rule.wait_until_fired()
            broker.advance(minutes=10)
            assert client.receive(MetadataResponse, 12).topics[0].name == "orders"

    def test_delay_takes_time(self, broker: Broker, client: RawClient) -> None:
        with broker.faults.delay("Metadata", ms=50):
            begin = time.monotonic()
            client.metadata("orders")
            assert time.monotonic() - begin >= 0.05

    def test_disconnect_before_the_request_is_handled(self, broker: Broker, client: RawClient) -> None:
        end = broker.end_offsets("orders")[0]
        broker.faults.disconnect("Produce")
        client.send(produce_to("orders"), PRODUCE_V)
        assert client.is_closed_by_broker()
        assert broker.end_offsets("orders")[0] == end

    @pytest.mark.parametrize("after_bytes", [0, 10])
    def test_cut_after_the_request_is_handled(self, broker: Broker, client: RawClient, after_bytes: int) -> None:
        end = broker.end_offsets("orders")[0]
        broker.faults.cut("Produce", after_bytes=after_bytes)
        client.send(produce_to("orders"), PRODUCE_V)
        assert len(client.receive_exactly(after_bytes)) == after_bytes
        assert client.is_closed_by_broker()
        assert broker.end_offsets("orders")[0] == end + 1

    def test_cut_a_fetch_within_its_records(self, broker: Broker, client: RawClient) -> None:
        broker.send("payments", bytes(100_000), partition=1)
        broker.faults.cut("Fetch", after_bytes=5_000)
        client.send(fetch_request("payments", 1, 0, 0), 11)
        assert len(client.receive_exactly(5_000)) == 5_000
        assert client.is_closed_by_broker()

    def test_cut_of_a_response_that_is_shorter(self, broker: Broker, client: RawClient) -> None:
        broker.faults.cut("Metadata", after_bytes=1_000_000)
        assert client.metadata("orders").topics[0].name == "orders"
        assert client.is_closed_by_broker()

    def test_cut_of_pipelined_requests_sends_the_responses_before(self, broker: Broker, client: RawClient) -> None:
        broker.faults.cut("Metadata", after_bytes=6, nth=2)
        client.send_bytes(client.frame(metadata_of("orders"), 12) * 3)
        client.receive_frame()
        assert len(client.receive_exactly(6)) == 6
        assert client.is_closed_by_broker()

    def test_drop_answers_nothing_and_keeps_the_connection(self, broker: Broker) -> None:
        with RawClient(broker.port) as client, broker.faults.drop("Metadata", times=1) as rule:
            client.send(metadata_of("orders"), 12)
            client.send(metadata_of("orders"), 12)
            rule.wait_until_fired()
            client.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.receive_frame()
            assert (rule.seen, rule.fired) == (1, 1)

    def test_throttle_is_told_and_enforced(self, broker: Broker, client: RawClient) -> None:
        broker.faults.throttle("Produce", ms=100, times=1)
        response = client.ask(produce_to("orders"), ProduceResponse, PRODUCE_V)
        assert response.throttle_time_ms == 100
        begin = time.monotonic()
        assert client.ask(produce_to("orders"), ProduceResponse, PRODUCE_V).throttle_time_ms == 0
        assert time.monotonic() - begin >= 0.05


class TestRules:
    def test_the_first_rule_that_applies_wins(self, broker: Broker, client: RawClient) -> None:
        first = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
        second = broker.faults.fail("produce", ErrorCode.MESSAGE_TOO_LARGE, nth=2, client_id="raw")
        third = broker.faults.fail("Produce", "corrupt_message", when=lambda request: request.acks == -1)
        errors = [client.produce("orders", 0, batch_of(b"x"), acks=acks).error_code for acks in (1, 1, 1, -1)]
        assert errors == [NOT_LEADER, int(ErrorCode.MESSAGE_TOO_LARGE), 0, int(ErrorCode.CORRUPT_MESSAGE)]
        assert [(each.seen, each.fired) for each in (first, second, third)] == [(4, 1), (4, 1), (1, 1)]
        assert str(second) == (
            "<fail Produce with MESSAGE_TOO_LARGE for client_id='raw', times=1, nth=2: 4 seen, 1 fired>"
        )
        third.remove()
        third.remove()
        assert client.produce("orders", 0, batch_of(b"x"), acks=-1).error_code == 0

    def test_a_failing_function_is_told(self, broker: Broker, client: RawClient) -> None:
        rule = broker.faults.disconnect("Metadata", when=lambda request: request.nonsense)
        assert client.metadata("orders").topics[0].error_code == 0
        with pytest.raises(TestBrokerError, match=r"^the function when= of the rule <disconnect at .*AttributeError"):
            rule.remove()
        with (
            pytest.raises(TestBrokerError, match="when= of the rule"),
            broker.faults.disconnect("Metadata", when=lambda request: request.nonsense),
        ):
            client.metadata("orders")

    @pytest.mark.parametrize("failure", [pytest.fail.Exception("no"), SystemExit(1), KeyboardInterrupt()])
    def test_a_function_that_ends_the_test_does_not_end_the_broker(
        self, broker: Broker, client: RawClient, failure: BaseException
    ) -> None:
        def fail(_: object) -> bool:
            raise failure

        rule = broker.faults.disconnect("Metadata", when=fail)
        assert client.metadata("orders").topics[0].error_code == 0
        with pytest.raises(TestBrokerError, match=r"^the function when= of the rule <disconnect at Metadata"):
            rule.wait_until_fired()
        with pytest.raises(TestBrokerError, match=r"^the function when= of the rule <disconnect at Metadata"):
            rule.remove()

    def test_a_wait_for_a_rule_says_how_often_it_was_applied(self, broker: Broker) -> None:
        with pytest.raises(
            WaitedInVainError, match="for the rule <drop Heartbeat: 0 seen, 0 fired> to be applied 2 times"
        ):
            broker.faults.drop("Heartbeat").wait_until_fired(2, timeout_s=0.01)

    def test_rules_end_with_the_broker(self) -> None:
        broker = Broker()
        with pytest.raises(TestBrokerError, match="declare faults inside `with Broker"):
            broker.faults.drop("Heartbeat")
        with broker:
            rule = broker.faults.drop("Heartbeat")
        rule.remove()
        with broker:
            assert broker.count_requests("Heartbeat") == 0
            assert broker.faults._rules == []

    def test_their_number_is_limited(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(declared, "MOST_RULES", 1)
        broker.faults.drop("Heartbeat")
        with pytest.raises(TestBrokerError, match=r"^there are 1 rules already: remove some, or all with faults.clear"):
            broker.faults.drop("Heartbeat")

    def test_waiting_for_a_rule_in_an_event_loop(self, broker: Broker, client: RawClient) -> None:
        async def scenario() -> None:
            rule = broker.faults.disconnect("Metadata")
            waiting = asyncio.ensure_future(broker.aio.wait_until_fired(rule))
            await asyncio.sleep(0)
            client.send(metadata_of("orders"), 12)
            await waiting
            assert rule.fired == 1

        asyncio.run(scenario())


class TestRequestsSeen:
    def test_what_is_kept(self, broker: Broker, client: RawClient) -> None:
        count = broker.count_requests("Produce")
        client.ask(produce_to("orders", "payments"), ProduceResponse, PRODUCE_V)
        assert broker.count_requests("produce") == count + 1
        seen = broker.requests("Produce", client_id="raw")[-1]
        assert (seen.api, seen.version, seen.client_id) == ("Produce", PRODUCE_V, "raw")
        assert (seen.topics, seen.groups) == (("orders", "payments"), ())
        assert abs(seen.at_ms - broker.now_ms()) < 60_000
        client.committed("readers", "orders", 0)
        assert broker.requests("OffsetFetch", group="readers")[-1].topics == ("orders",)
        assert broker.requests("OffsetFetch", group="others") == []

    def test_no_more_than_the_latest_are_kept(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(declared, "REQUESTS_KEPT", 3)
        with Broker({"t": 1}) as small, RawClient(small.port) as client:
            for _ in range(5):
                client.metadata("t")
            assert (len(small.requests("Metadata")), small.count_requests("Metadata")) == (3, 5)
            assert len(small.wait_for_requests("Metadata", 5)) == 3
            with pytest.raises(TestBrokerError, match="no more than 3 of an API are kept"):
                small.wait_for_requests("Metadata", 4, topic="t")

    def test_waiting_for_them(self, broker: Broker, client: RawClient) -> None:
        async def scenario() -> None:
            waiting = asyncio.ensure_future(broker.aio.wait_for_requests("FindCoordinator", group="aio"))
            await asyncio.sleep(0)
            client.find_coordinator("aio")
            assert (await waiting)[0].groups == ("aio",)

        asyncio.run(scenario())
        client.find_coordinator("waited")
        assert len(broker.wait_for_requests("FindCoordinator", group="waited")) == 1
        said = r"waited 0\.01 s in vain for 2 requests FindCoordinator with group='waited': 1 came in"
        with pytest.raises(WaitedInVainError, match=said):
            broker.wait_for_requests("FindCoordinator", 2, timeout_s=0.01, group="waited")
