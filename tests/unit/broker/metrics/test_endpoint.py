"""The HTTP endpoint of a broker: every metric with its value, nothing else, off unless asked for."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla import testing
from ottla.broker.metrics.catalogue import BROKER_METRICS
from ottla.broker.metrics.endpoint import MOST_CONNECTIONS, MOST_REQUEST_BYTES, TEXT_FORMAT, MetricsEndpoint
from ottla.broker.metrics.health import not_ready
from ottla.broker.metrics.registry import PROCESS_METRICS
from ottla.broker.server import Broker
from ottla.cluster.topics import TopicSpec
from ottla.env.network import NetworkError
from ottla.groups.events import OffsetCommit
from ottla.groups.evidence import Evidence
from ottla.groups.records import StoredOffset
from ottla.net.listener import ACCEPT_PAUSE_S
from ottla.net.tls import TlsTerms
from ottla.records.record import Record, encode_batch
from ottla.storage.log import CLIENT
from support.waiting import wait_until
from support.wired_connection import HandLoop
from unit.broker.test_server import config

pytestmark = pytest.mark.spec("U3")

Values = dict[tuple[str, tuple[str, ...]], float]


def run(scenario: Callable[[Broker], Awaitable[None]], folder: Path, **settings: str) -> None:
    async def with_broker() -> None:
        broker = Broker(config(folder, **({"ottla_metrics_port": "0"} | settings)))
        assert await broker.start() is None
        try:
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(with_broker())


async def ask(broker: Broker, request: bytes) -> tuple[str, dict[str, str], bytes]:
    """Status, headers and body of the answer; empty where the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.metrics.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, dict(line.split(": ", 1) for line in lines), body


async def scrape(broker: Broker) -> Values:
    status, headers, body = await ask(broker, b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (status, headers["Content-Type"]) == ("HTTP/1.1 200 OK", TEXT_FORMAT)
    assert int(headers["Content-Length"]) == len(body)
    families = text_string_to_metric_families(body.decode())
    return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}


async def ask_api_versions(broker: Broker) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.listening[0].port)
    writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    await reader.readexactly(4)
    writer.close()


async def health(broker: Broker, what: str) -> tuple[str, str]:
    status, _, body = await ask(broker, f"GET /health/{what} HTTP/1.1\r\n\r\n".encode())
    return status.partition(" ")[2], body.decode()


def test_a_broker_lives_from_its_bind_on_and_is_ready_when_it_has_started(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(config(tmp_path, ottla_metrics_port="0"))
        opens, may_open = asyncio.Event(), threading.Event()
        loop, open_logs = asyncio.get_running_loop(), broker.logs.open

        def open_late() -> object:
            loop.call_soon_threadsafe(opens.set)
            may_open.wait()
            return open_logs()

        broker.logs.open = open_late  # type: ignore[method-assign,assignment]
        starting = asyncio.create_task(broker.start())
        await opens.wait()
        try:
            assert await health(broker, "live") == ("200 OK", "ok\n")
            status, reason = await health(broker, "ready")
            assert (status, reason.partition(":")[0]) == ("503 Service Unavailable", "the broker starts")
            assert (await ask(broker, b"GET /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 503 Service Unavailable"
        finally:
            may_open.set()
        assert await starting is None
        assert await health(broker, "ready") == ("200 OK", "ok\n")
        broker.metrics.stopping()
        assert await health(broker, "ready") == ("503 Service Unavailable", "the broker stops\n")
        await broker.stop()

    asyncio.run(scenario())


def test_it_is_not_ready_while_something_is_missing(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.control.admin.create_topic(TopicSpec("t", 2))
        assert await broker.groups.router.ensure_topic() == 0
        broker.control.membership.controller_id = -1
        assert broker.partitions.stop("t", 0)
        broker.groups.runtime.load(0, 1)
        next(iter(broker.groups.runtime.shards.values())).loading = True
        assert await broker.slices.through(not_ready(broker)) == [
            "no controller is known",
            "1 partitions of this broker have no role yet",
            "1 partitions of __consumer_offsets are being loaded",
        ]

    run(scenario, tmp_path)


def test_it_is_off_by_default(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert broker.metrics.port is None

    run(scenario, tmp_path, ottla_metrics_port="-1")


@pytest.mark.spec("G10")
def test_every_metric_has_a_value(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.control.admin.create_topic(TopicSpec("t", 2))
        partition = broker.partitions.get("t", 0)
        assert partition is not None
        batch = bytearray(encode_batch([Record(0, 1, b"k", b"v")] * 3))
        broker.partitions.append(partition, memoryview(batch), CLIENT)
        assert await broker.groups.router.ensure_topic() == 0
        answers: list[Any] = []
        value = StoredOffset(1, -1, "", broker.groups.now_ms())
        broker.groups.submit(OffsetCommit(answers.append, "g", -1, "", None, [("t", 0, value)]))
        cause = {"cause": "member_left"}
        closed = {"causes": [cause, cause], "duration_ms": 3000, "members": [{"pause_ms": None}, {"pause_ms": 1500}]}
        broker.groups.rebalance_figures.add([Evidence("g", 0, closed)])
        broker.listener_tls.terms["SSL"] = TlsTerms(SSLContext(PROTOCOL_TLS_SERVER), lambda certificate: "none", 5000)
        await ask_api_versions(broker)
        values = await scrape(broker)
        names = {name for name, _ in values}
        assert {metric.declaration.name for metric in BROKER_METRICS} == names - set(PROCESS_METRICS)
        expected = {
            ("ottla_listener_certificate_expiry_timestamp_seconds", ("SSL",)): 5,
            ("kafka_server_brokertopicmetrics_messagesin_total", ("t",)): 3,
            ("kafka_server_brokertopicmetrics_messagesin_total", ("__consumer_offsets",)): 1,
            ("kafka_server_replicamanager_partitioncount", ()): 4,
            ("kafka_controller_kafkacontroller_globaltopiccount", ()): 2,
            ("kafka_coordinator_group_groupmetadatamanager_numgroups", ()): 1,
            ("kafka_coordinator_group_groupmetadatamanager_numgroupsempty", ()): 1,
            ("kafka_coordinator_group_groupmetadatamanager_numgroupsstable", ()): 0,
            ("kafka_coordinator_group_groupmetadatamanager_numoffsets", ()): 1,
            ("ottla_group_coordinators", ("ready",)): 1,
            ("ottla_group_coordinators", ("down",)): 0,
            ("ottla_group_coordinator_state", ("g",)): 2,
            ("ottla_group_requests_total", ()): 1,
            ("kafka_network_requestmetrics_requests_total", ("ApiVersions", "0")): 1,
            ("kafka_server_brokertopicmetrics_bytesin_total", ("t",)): len(batch),
            ("kafka_server_brokertopicmetrics_totalproducerequests_total", ("t",)): 1,
            ("kafka_server_replicafetchermanager_maxlag", ("Replica",)): 0,
            ("kafka_server_delayedoperationpurgatory_purgatorysize", ("Fetch",)): 0,
            ("kafka_log_log_size", ("0", "t")): len(batch),
            ("kafka_cluster_partition_insyncreplicascount", ("1", "t")): 1,
            ("kafka_topic_partition_current_offset", ("0", "t")): 3,
            ("kafka_topic_partition_leader_is_preferred", ("0", "t")): 1,
            ("kafka_topic_partitions", ("t",)): 2,
            ("kafka_brokers", ()): 1,
            ("kafka_consumergroup_current_offset", ("g", "0", "t")): 1,
            ("kafka_consumergroup_lag", ("g", "0", "t")): 2,
            ("kafka_consumergroup_lag_sum", ("g", "t")): 2,
            ("kafka_consumergroup_members", ("g",)): 0,
            ("ottla_group_rebalance_causes_total", ("member_left", "g")): 1,
            ("ottla_group_rebalance_seconds_total", ("g",)): 3,
            ("ottla_group_last_pause_seconds", ("g",)): 1.5,
            ("ottla_ready", ()): 1,
        }
        assert {key: values[key] for key in expected} == expected
        assert values["ottla_unflushed_bytes", ()] > 0
        # The records were written at 1 ms of the Unix epoch.
        assert values["ottla_consumergroup_lag_seconds", ("g", "t")] > 1e9

    run(scenario, tmp_path)


def test_connections_are_counted_after_their_end_too(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.listening[0].port)
        writer.write(b"\xff\xff\xff\xff")
        assert await reader.read() == b""
        writer.close()
        values = await scrape(broker)
        assert values["kafka_server_socket_server_metrics_connection_count", ()] == 0
        assert values["kafka_server_socket_server_metrics_incoming_byte_total", ()] == 4
        assert values["ottla_refused_frames_total", ()] == 1

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (
            b"GET / HTTP/1.1",
            "404 Not Found",
            b"the metrics are at /metrics, the health at /health/live and /health/ready\n",
        ),
        (b"POST /metrics HTTP/1.1", "405 Method Not Allowed", b"only GET is served\n"),
        (b"HEAD /metrics?x=1 HTTP/1.0", "200 OK", b""),
        (b"\x00\xff", "405 Method Not Allowed", b"only GET is served\n"),
    ],
)
def test_other_requests(tmp_path: Path, request_line: bytes, status: str, body: bytes) -> None:
    async def scenario(broker: Broker) -> None:
        answered, headers, found = await ask(broker, request_line + b"\r\n\r\n")
        assert (answered, found) == (f"HTTP/1.1 {status}", body)
        assert headers["Connection"] == "close"

    run(scenario, tmp_path)


def test_a_head_without_end_and_too_many_connections_are_closed(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.metrics.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MOST_REQUEST_BYTES)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        idle = [await asyncio.open_connection("127.0.0.1", broker.metrics.port) for _ in range(MOST_CONNECTIONS + 1)]
        assert await idle[-1][0].read() == b""
        idle[0][1].close()
        for _, each in idle[1:]:
            each.close()

    run(scenario, tmp_path)


def test_a_port_in_use_and_a_missing_package_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(**settings: str) -> str:
        refusal = await Broker(config(tmp_path, **settings)).start()
        assert refusal is not None
        return refusal.message

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        message = asyncio.run(start(ottla_metrics_port=str(taken.getsockname()[1])))
        assert message.startswith("ottla.metrics.port: cannot listen on 127.0.0.1:")

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    message = asyncio.run(start(ottla_metrics_port="0"))
    assert message == "ottla.metrics.port: the metrics endpoint needs prometheus-client: pip install 'ottla[metrics]'"


@pytest.mark.spec("S1")
def test_the_metrics_are_served_with_the_tls_of_a_listener(caplog: pytest.LogCaptureFixture) -> None:
    from ottla.security.contexts import client_context

    settings = {
        "ottla.metrics.port": 0,
        "ottla.metrics.tls.listener": "SSL",
        "listener.name.ssl.ssl.client.auth": "required",
    }
    with testing.Broker(tls=True, settings=settings) as broker:
        port = broker.server.metrics.port
        assert port is not None
        found = broker.client_settings()
        url = f"https://localhost:{port}"
        for path in ("/metrics", "/health/live"):
            with urlopen(f"{url}{path}", context=client_context(found), timeout=60) as response:
                assert response.status == 200
                assert response.read()
        bare = client_context({name: each for name, each in found.items() if "keystore" not in name})
        with pytest.raises(OSError):
            urlopen(f"{url}/metrics", context=bare, timeout=60)
        wait_until(lambda: "the client shows no certificate" in caplog.text, "the refused client to be logged")
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            received = b""
            with suppress(ConnectionResetError):
                received = plain.recv(100)
            assert not received.startswith(b"HTTP")
    with pytest.raises(testing.TestBrokerError, match=r"tls\.listener=PLAINTEXT names no listener with TLS"):
        testing.Broker(settings={"ottla.metrics.port": 0, "ottla.metrics.tls.listener": "PLAINTEXT"}).start()


def test_connections_that_cannot_be_accepted_are_asked_for_again_later(caplog: pytest.LogCaptureFixture) -> None:
    """Where there are no files left the socket stays readable, and asking at once would take a whole processor."""

    class NoFiles:
        fd, port = 7, 1

        def accept(self) -> None:
            raise NetworkError("too many open files")

        def close(self) -> None:
            pass

    loop: Any = HandLoop()
    nothing: Any = None
    listening: Any = NoFiles()
    endpoint = MetricsEndpoint(loop, listening, nothing, nothing)
    for _ in range(3):
        loop.readers[7]()
        assert loop.readers == {}, "it is not asked again at once"
        assert caplog.messages.pop() == "metrics: too many open files"
        (again,) = (callback for delay_s, callback in loop.later if delay_s == ACCEPT_PAUSE_S)
        loop.later.clear()
        again()
        assert list(loop.readers) == [7]
    endpoint.close()
    assert loop.readers == {}
