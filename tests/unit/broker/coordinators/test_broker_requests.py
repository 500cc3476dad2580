"""Requests of coordinators to other brokers, on virtual time: who gets them, and what comes of them."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from ottla.broker.control.interbroker import BrokerConnector
from ottla.broker.coordinators import broker_requests
from ottla.broker.coordinators.broker_requests import FAILURE_PAUSE_S, BrokerRequestSender
from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.config.listeners import Endpoint
from ottla.wire.apis import ApiKey
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest, Destination
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.fake_cluster import DROP, HOST, SILENT, Fault, Later
from support.virtual_fakes import VirtualFakeCluster
from support.waiting import until
from unit.broker.coordinators.group_fakes import broker_config

API = ApiKey.INIT_PRODUCER_ID
TIMEOUT_MS = 10_000


class Asking:
    """Broker 9 with the fakes as the other brokers: 0 leads t-0, 1 leads t-1, t-2 has no leader."""

    def __init__(self, fakes: VirtualFakeCluster, client_id: str | None = None) -> None:
        self.fakes = fakes
        self.outcomes: list[BrokerOutcome] = []
        self.image = ClusterImage("c", 9, {})
        for broker_id in fakes.ports:
            self.register(broker_id, fakes.ports[broker_id])
        states = tuple(PartitionImage(leader, 0, (0, 1), (0, 1)) for leader in (0, 1, -1))
        self.image.topics["t"] = TopicImage("t", UUID(int=1), states, {}, False)  # type: ignore[index]
        connector = BrokerConnector(9, broker_config(), fakes.environment)
        self.sender = BrokerRequestSender(connector, self.image, timeout_ms=TIMEOUT_MS, client_id=client_id)

    def register(self, broker_id: int, port: int) -> None:
        endpoints = (Endpoint("PLAINTEXT", "PLAINTEXT", HOST, port),)
        self.image.brokers[broker_id] = BrokerImage(broker_id, endpoints)  # type: ignore[index]

    def send(self, destination: Destination, token: object) -> None:
        request = InitProducerIdRequest(transactional_id=str(token), transaction_timeout_ms=1)
        self.sender.send(BrokerRequest(API, destination, request, token), self.outcomes.append)

    async def answered(self, count: int) -> None:
        await until(lambda: len(self.outcomes) >= count, "the outcomes")

    @property
    def errors(self) -> list[tuple[object, ErrorCode]]:
        return [(each.token, each.error) for each in self.outcomes]

    @property
    def took(self) -> list[tuple[int, str]]:
        """Which broker got which request."""
        return [(node, request.transactional_id) for node, key, request in self.fakes.requests if key == API]

    @property
    def connections(self) -> int:
        return sum(key == ApiKey.API_VERSIONS for _, key, _ in self.fakes.requests)


def test_a_request_goes_to_its_broker_or_to_the_leader_and_its_outcome_has_its_token(
    virtual_fakes: VirtualFakeCluster,
) -> None:
    async def scenario() -> None:
        asking = Asking(virtual_fakes)
        asking.send(2, "to a broker")
        asking.send(("t", 1), "to a leader")
        assert asking.outcomes == [], "no outcome comes before the caller has gone on"
        await asking.answered(2)
        assert sorted(asking.took) == [(1, "to a leader"), (2, "to a broker")]
        assert {each.token for each in asking.outcomes} == {"to a broker", "to a leader"}
        for each in asking.outcomes:
            assert each.error is ErrorCode.NONE
            assert isinstance(each.response, InitProducerIdResponse)
        asking.sender.close()

    virtual_fakes.run_to_end(scenario())


def test_one_connection_is_kept_for_each_broker_and_keeps_the_order(virtual_fakes: VirtualFakeCluster) -> None:
    async def scenario() -> None:
        asking = Asking(virtual_fakes)
        for number in range(10):
            asking.send(("t", 0), number)
        await asking.answered(10)
        asking.send(0, 10)
        await asking.answered(11)
        assert asking.took == [(0, str(number)) for number in range(11)]
        assert [each.token for each in asking.outcomes] == list(range(11))
        assert asking.connections == 1
        asking.sender.close()

    virtual_fakes.run_to_end(scenario())


@pytest.mark.parametrize(
    ("destination", "error"),
    [
        (7, ErrorCode.BROKER_NOT_AVAILABLE),
        (("t", 2), ErrorCode.LEADER_NOT_AVAILABLE),
        (("t", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("u", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_destination_that_is_not_there_is_a_failure_after_a_pause(
    virtual_fakes: VirtualFakeCluster, destination: Destination, error: ErrorCode
) -> None:
    async def scenario() -> None:
        asking = Asking(virtual_fakes)
        begun = virtual_fakes.loop.time()
        asking.send(destination, "x")
        await asking.answered(1)
        assert (asking.errors, asking.took) == ([("x", error)], [])
        assert virtual_fakes.loop.time() - begun >= FAILURE_PAUSE_S

    virtual_fakes.run_to_end(scenario())


@pytest.mark.parametrize(
    ("fault", "error"), [(DROP, ErrorCode.NETWORK_EXCEPTION), (SILENT, ErrorCode.REQUEST_TIMED_OUT)]
)
def test_what_is_not_answered_is_not_sent_again_and_the_next_gets_a_new_connection(
    virtual_fakes: VirtualFakeCluster, fault: Fault, error: ErrorCode
) -> None:
    async def scenario() -> None:
        asking = Asking(virtual_fakes)
        virtual_fakes.faults[API].append(fault)
        asking.send(0, "first")
        await asking.answered(1)
        asking.send(0, "second")
        await asking.answered(2)
        assert asking.errors == [("first", error), ("second", ErrorCode.NONE)]
        assert (asking.took, asking.connections) == ([(0, "first"), (0, "second")], 2)
        asking.sender.close()

    virtual_fakes.run_to_end(scenario())


def test_a_broker_that_has_gone_or_moved(virtual_fakes: VirtualFakeCluster) -> None:
    async def scenario() -> None:
        asking = Asking(virtual_fakes)
        asking.send(0, "a")
        await asking.answered(1)
        virtual_fakes.stop(0)
        asking.send(0, "b")
        await asking.answered(2)
        asking.register(0, virtual_fakes.ports[1])
        asking.send(0, "c")
        await asking.answered(3)
        none = ErrorCode.NONE
        assert asking.errors == [("a", none), ("b", ErrorCode.NETWORK_EXCEPTION), ("c", none)]
        assert asking.took == [(0, "a"), (1, "c")]
        asking.sender.close()

    virtual_fakes.run_to_end(scenario())


def test_requests_to_a_broker_that_does_not_answer_share_one_attempt(virtual_fakes: VirtualFakeCluster) -> None:
    """The hundredth does not wait a hundred times as long, and those to other brokers do not wait at all."""

    async def scenario() -> None:
        asking = Asking(virtual_fakes)
        virtual_fakes.faults[ApiKey.API_VERSIONS].append(SILENT)
        for number in range(100):
            asking.send(0, number)
        await asking.answered(100)
        assert {token for token, _ in asking.errors} == set(range(100))
        assert {error for _, error in asking.errors} == {ErrorCode.NETWORK_EXCEPTION}
        assert virtual_fakes.loop.time() < 2 * TIMEOUT_MS / 1000
        assert (asking.took, asking.connections) == ([], 1)
        asking.send(0, "next")
        await asking.answered(101)
        assert asking.errors[-1] == ("next", ErrorCode.NONE)
        asking.sender.close()

    virtual_fakes.run_to_end(scenario())


def test_an_api_that_the_broker_does_not_serve(virtual_fakes: VirtualFakeCluster) -> None:
    async def scenario() -> None:
        asking = Asking(virtual_fakes)
        request = BrokerRequest(ApiKey.ALLOCATE_PRODUCER_IDS, 0, AllocateProducerIdsRequest(), "x")
        asking.sender.send(request, asking.outcomes.append)
        await asking.answered(1)
        assert asking.errors == [("x", ErrorCode.UNSUPPORTED_VERSION)]
        asking.sender.close()

    virtual_fakes.run_to_end(scenario())


def test_more_requests_than_the_limit_fail(virtual_fakes: VirtualFakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_requests, "MOST_IN_WORK", 2)

    async def scenario() -> None:
        asking = Asking(virtual_fakes)
        answer = InitProducerIdResponse()
        virtual_fakes.faults[API].extend([lambda _: Later(answer, 1.0)] * 2)
        asking.send(0, "a")
        asking.send(0, "b")
        await asyncio.sleep(0.5)  # sleep: virtual
        asking.send(0, "c")
        await asking.answered(1)
        assert asking.errors == [("c", ErrorCode.REQUEST_TIMED_OUT)]
        await asking.answered(3)
        assert [each.token for each in asking.outcomes] == ["c", "a", "b"]
        assert asking.took == [(0, "a"), (0, "b")]
        asking.sender.close()

    virtual_fakes.run_to_end(scenario())


def test_after_the_end_there_are_no_outcomes(virtual_fakes: VirtualFakeCluster) -> None:
    async def scenario() -> None:
        asking = Asking(virtual_fakes)
        virtual_fakes.faults[API].append(SILENT)
        asking.send(0, "a")
        asking.send(7, "b")
        await asyncio.sleep(0.05)  # sleep: virtual
        asking.sender.close()
        await asyncio.sleep(60)  # sleep: virtual
        assert (asking.outcomes, asking.took) == ([], [(0, "a")])

    virtual_fakes.run_to_end(scenario())
