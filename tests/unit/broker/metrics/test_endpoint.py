"""The HTTP endpoint of a broker: every metric with its value, nothing else, off unless asked for."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.metrics.catalogue import BROKER_METRICS
from ottla.broker.metrics.endpoint import MOST_CONNECTIONS, MOST_REQUEST_BYTES, TEXT_FORMAT
from ottla.broker.server import Broker
from ottla.cluster.topics import TopicSpec
from ottla.groups.events import OffsetCommit
from ottla.groups.offsets import StoredOffset
from ottla.records.record import Record, encode_batch
from ottla.storage.log import CLIENT
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
        assert await broker.groups.ensure_offsets_topic() == 0
        answers: list[Any] = []
        value = StoredOffset(1, -1, "", broker.groups.now_ms())
        broker.groups.submit(OffsetCommit(answers.append, "g", -1, "", None, [("t", 0, value)]))
        values = await scrape(broker)
        names = {name for name, _ in values}
        assert {metric.declaration.name for metric in BROKER_METRICS} == names
        expected = {
            ("kafka_server_brokertopicmetrics_messagesin_total", ("t",)): 3,
            ("kafka_server_brokertopicmetrics_messagesin_total", ("__consumer_offsets",)): 1,
            ("kafka_network_requestmetrics_requests_total", ("Produce",)): 0,
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
        }
        assert {key: values[key] for key in expected} == expected
        assert values["ottla_unflushed_bytes", ()] > 0

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
        (b"GET / HTTP/1.1", "404 Not Found", b"the metrics are at /metrics\n"),
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
