"""Clients over their quotas: what they are told, and that nothing is counted without quotas."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers import metadata
from ottla.broker.quotas.clients import MOST_WINDOWS, ClientQuotas
from ottla.client.admin import DEFAULT_NAME, ClientQuotaEntity
from ottla.client.sync import Admin
from ottla.cluster.quotas import DEFAULT, QuotaEntity, QuotaKey, quotas_in
from ottla.config.broker import BrokerConfig
from ottla.net.connection import ANONYMOUS
from ottla.records.record import Record, encode_batch
from ottla.testing import Broker
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.produce import ProduceResponse
from support.framed_socket import Disconnected
from support.raw_client import FETCH_V, PRODUCE_V, RawClient, fetch_request, produce_request

pytestmark = pytest.mark.spec("S4")

CONNECTIONS = "connection_creation_rate"
EVERYONE = ClientQuotaEntity(DEFAULT_NAME)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"t": 1}) as started:
        yield started


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as started:
        yield started


def produced(port: int, size: int = 10_000, acks: int = 1) -> int:
    """The throttle time of a produce request on a connection of its own."""
    with RawClient(port) as client:
        request = produce_request("t", 0, encode_batch([Record(0, 0, None, bytes(size))]), acks)
        return client.ask(request, ProduceResponse, PRODUCE_V).throttle_time_ms


def test_without_quotas_nothing_is_counted(broker: Broker, admin: Admin) -> None:
    admin.alter_client_quotas({EVERYONE: {"producer_byte_rate": 1}, ClientQuotaEntity(ip="::1"): {CONNECTIONS: 1}})
    assert broker.server.dispatcher.quotas is not None
    admin.alter_client_quotas(
        {EVERYONE: {"producer_byte_rate": None}, ClientQuotaEntity(ip="::1"): {CONNECTIONS: None}}
    )
    assert broker.server.dispatcher.quotas is None
    assert broker.server.connections.wait_of_host_ms is None
    assert produced(broker.port) == 0


def test_the_connection_waits_and_others_do_not(broker: Broker, admin: Admin) -> None:
    admin.alter_client_quotas({ClientQuotaEntity(client_id="raw"): {"producer_byte_rate": 1_000}})
    with RawClient(broker.port, client_id="another") as another, RawClient(broker.port) as client:
        request = produce_request("t", 0, encode_batch([Record(0, 0, None, bytes(10_200))]))
        assert another.ask(request, ProduceResponse, PRODUCE_V).throttle_time_ms == 0
        began_at = monotonic()
        wait_ms = client.ask(request, ProduceResponse, PRODUCE_V).throttle_time_ms
        assert 200 <= wait_ms <= 350
        client.ask(HeartbeatRequest(group_id="g", member_id="m"), HeartbeatResponse, 3)
        assert (monotonic() - began_at) * 1000 >= wait_ms
    throttled = broker.server.client_quotas.throttled
    assert throttled[QuotaKey.PRODUCER_BYTE_RATE] == 1


def test_bytes_count_where_there_is_no_answer(broker: Broker, admin: Admin) -> None:
    """Of a batch that closes the connection, since its sender expects no answer to its faults."""
    admin.alter_client_quotas({EVERYONE: {"producer_byte_rate": 1_000}})
    with RawClient(broker.port) as client:
        client.send(produce_request("t", 0, bytes(20_000), acks=0), PRODUCE_V)
        with pytest.raises(Disconnected):
            client.receive(ProduceResponse, PRODUCE_V)
    assert produced(broker.port, 0) > 5_000


def test_bytes_that_are_answered_later_count_at_once_and_once() -> None:
    quotas = ClientQuotas(BrokerConfig({}, {}, {}), lambda: 0.0, lambda: None)
    quotas.set(QuotaEntity(DEFAULT), {QuotaKey.PRODUCER_BYTE_RATE: 1_000.0})
    waits: list[int] = []
    context: Any = SimpleNamespace(
        principal=ANONYMOUS, client_id="c", throttle_ms=0, throttle=waits.append, header=SimpleNamespace(api_key=0)
    )
    charge = quotas.charge(context, 12_000)
    charge.received()
    assert quotas.use(QuotaKey.PRODUCER_BYTE_RATE, ANONYMOUS.name, "c", 0) == 2_000
    charge.produced(context)
    assert waits == [2_000]


def test_a_fetch_over_the_quota_gets_no_records_and_keeps_its_session(broker: Broker, admin: Admin) -> None:
    produced(broker.port)
    admin.alter_client_quotas({EVERYONE: {"consumer_byte_rate": 900}})
    with RawClient(broker.port) as client:
        request = fetch_request("t", 0, 0, 0)
        request.session_epoch = 0
        answer = client.ask(request, FetchResponse, FETCH_V)
        assert (answer.session_id, answer.responses, answer.error_code) == (0, [], 0)
        assert 1_100 <= answer.throttle_time_ms <= 1_500
        assert len(broker.server.fetch_sessions) == 0
    admin.alter_client_quotas({EVERYONE: {"consumer_byte_rate": 2_100}})
    with RawClient(broker.port) as client:
        session_id = client.ask(request, FetchResponse, FETCH_V).session_id
        assert session_id
        again = fetch_request("t", 0, 0, 0)
        again.session_id, again.session_epoch = session_id, 1
        # What was not sent the first time does not count.
        assert client.ask(again, FetchResponse, FETCH_V).throttle_time_ms == 0
        again.session_epoch = 2
        answer = client.ask(again, FetchResponse, FETCH_V)
        assert (answer.session_id, answer.responses) == (session_id, [])
        assert answer.throttle_time_ms > 0


def test_followers_are_not_throttled(broker: Broker, admin: Admin) -> None:
    produced(broker.port)
    admin.alter_client_quotas({EVERYONE: {"consumer_byte_rate": 1, "request_percentage": 0.000001}})
    with RawClient(broker.port) as client:
        request = fetch_request("t", 0, 0, 0)
        request.replica_id = 1
        assert client.ask(request, FetchResponse, FETCH_V).throttle_time_ms == 0


@pytest.mark.parametrize(("version", "refuses"), [(5, False), (7, True)])
def test_changes_of_topics(broker: Broker, admin: Admin, version: int, refuses: bool) -> None:
    """The bucket holds what comes in 11 s, and may be overdrawn once."""
    admin.alter_client_quotas({EVERYONE: {"controller_mutation_rate": 0.01}})

    def created(name: str, partitions: int) -> tuple[int, int]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        with RawClient(broker.port) as client:
            answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9_000), CreateTopicsResponse, version)
        return answer.topics[0].error_code, answer.throttle_time_ms

    assert created("t", 1)[0] == ErrorCode.TOPIC_ALREADY_EXISTS  # does not count
    error, wait_ms = created("a", 4)
    assert error == 0
    assert (wait_ms > 200_000) != refuses
    error, wait_ms = created("b", 1)
    assert (error == ErrorCode.THROTTLING_QUOTA_EXCEEDED) == refuses
    assert 200_000 < wait_ms <= 500_000
    with RawClient(broker.port) as client:
        assert client.delete_topic("a") == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with RawClient(broker.port) as client:
        assert client.metadata("a").topics[0].error_code == 0
    admin.alter_client_quotas({EVERYONE: {"controller_mutation_rate": None}})
    with RawClient(broker.port) as client:
        assert client.create_partitions("a", 5) == 0


def test_topics_created_on_demand_count(broker: Broker, admin: Admin) -> None:
    """Metadata does not wait for them, as in Apache Kafka; what is asked for next does."""
    admin.alter_client_quotas({EVERYONE: {"controller_mutation_rate": 0.01}})
    with RawClient(broker.port) as client:
        topics = [MetadataRequestTopic(name=name) for name in ("on-demand-1", "on-demand-2")]
        answer = client.ask(MetadataRequest(topics=topics), MetadataResponse, 4)
        assert [topic.error_code for topic in answer.topics] == [0, 0]
        assert answer.throttle_time_ms == 0
        assert client.create_topic("refused") == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_deletion_that_is_disabled_does_not_count() -> None:
    with (
        Broker({"t": 1}, settings={"delete.topic.enable": "false"}) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.alter_client_quotas({EVERYONE: {"controller_mutation_rate": 0.01}})
        with RawClient(broker.port) as client:
            for _ in range(3):
                assert client.delete_topic("t") == ErrorCode.TOPIC_DELETION_DISABLED
            assert client.create_topic("new") == 0


def test_time_of_requests(broker: Broker, admin: Admin) -> None:
    """A request waits for one sample at most, whatever it took."""
    admin.alter_client_quotas({EVERYONE: {"request_percentage": 1e-9}})
    with RawClient(broker.port) as client:
        assert client.ask(HeartbeatRequest(group_id="g", member_id="m"), HeartbeatResponse, 3).throttle_time_ms == 1_000
    with RawClient(broker.port) as client:
        assert client.metadata("t").throttle_time_ms == 1_000


def test_metadata_are_encoded_once_also_with_quotas(
    broker: Broker, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    make = metadata._response
    monkeypatch.setattr(metadata, "_response", lambda *all_: made.append(all_) or make(*all_))
    admin.alter_client_quotas({EVERYONE: {"producer_byte_rate": 1}})
    with RawClient(broker.port) as client:
        made.clear()
        answers = [client.ask(MetadataRequest(topics=None), MetadataResponse, 12) for _ in range(3)]
        assert len(made) == 1
        assert answers == [answers[0]] * 3
        admin.alter_client_quotas({EVERYONE: {"request_percentage": 0.000001}})
        throttled = client.ask(MetadataRequest(topics=None), MetadataResponse, 12)
        assert throttled.throttle_time_ms > 0
        assert throttled.topics == answers[0].topics
        admin.alter_client_quotas({EVERYONE: {"request_percentage": None}})
        assert client.ask(MetadataRequest(topics=None), MetadataResponse, 12) == answers[0]


@pytest.mark.parametrize("limit", ["NaN", "Infinity", "-Infinity", "1E-320"])
def test_any_double_in_a_znode_leaves_the_broker_usable(broker: Broker, limit: str) -> None:
    broker.server.client_quotas.set_all({QuotaEntity(DEFAULT): quotas_in(dict.fromkeys(QuotaKey, limit))})
    is_limit = limit in ("-Infinity", "1E-320")
    assert (produced(broker.port) > 0) == is_limit
    with RawClient(broker.port) as client:
        answer = client.ask(fetch_request("t", 0, 0, 0), FetchResponse, FETCH_V)
        assert (answer.throttle_time_ms > 0, bool(answer.responses)) == (is_limit, not is_limit)


def test_new_connections_of_an_address(broker: Broker, admin: Admin) -> None:
    """More than 10 in 10 s are closed unserved after a while, as in Apache Kafka."""
    admin.alter_client_quotas({ClientQuotaEntity(ip=DEFAULT_NAME): {CONNECTIONS: 1}})
    clients = [RawClient(broker.port) for _ in range(11)]
    try:
        for client in clients[:10]:
            client.metadata("t")
        with pytest.raises(Disconnected):
            clients[10].metadata("t")
    finally:
        for client in clients:
            client.close()
    assert broker.server.client_quotas.throttled[QuotaKey.CONNECTION_CREATION_RATE] == 1


def test_an_address_may_be_written_as_java_does() -> None:
    quotas = ClientQuotas(BrokerConfig({}, {}, {}), lambda: 0.0, lambda: None)
    written = QuotaEntity(ip="0:0:0:0:0:0:0:1")
    quotas.set(written, {QuotaKey.CONNECTION_CREATION_RATE: 0.0})
    assert quotas.connection_wait_ms("::1") > 0
    quotas.set_all({written: {QuotaKey.CONNECTION_CREATION_RATE: 0.0}})
    assert quotas.connection_wait_ms("::1") > 0
    quotas.set(written, {})
    assert quotas.connection_wait_ms("::1") == 0


def test_what_is_remembered_of_clients_is_bounded() -> None:
    now_ms = 0.0
    quotas = ClientQuotas(BrokerConfig({}, {}, {}), lambda: now_ms, lambda: None)
    quotas.set(QuotaEntity(client_id=DEFAULT), {QuotaKey.PRODUCER_BYTE_RATE: 1.0})
    for number in range(MOST_WINDOWS + 10):
        assert quotas.use(QuotaKey.PRODUCER_BYTE_RATE, "u", f"c{number}", 1.0) == 0
    assert len(quotas._rates) == MOST_WINDOWS
    assert quotas.use(QuotaKey.PRODUCER_BYTE_RATE, "u", f"c{MOST_WINDOWS}", 100.0) > 0
