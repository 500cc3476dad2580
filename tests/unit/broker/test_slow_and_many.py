"""Clients that send very slowly, not at all, or without reading: the broker stays small and serves others."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from ottla.broker.server import Broker
from ottla.env.outgoing import Stream
from ottla.net.connection import ANONYMOUS, Principal
from ottla.net.framed import WAITING_BYTES_LIMIT
from ottla.net.listener import LOGIN_LIMIT_S
from ottla.net.reports import REPORTS_PER_PERIOD
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.memory_connection import MemoryClient
from support.raw_client import request_frame
from support.sasl_broker import SETTINGS
from support.virtual_cluster import VirtualCluster

pytestmark = pytest.mark.spec("S5")
SASL = "SASL_PLAINTEXT"
SASL_PORT = 9093
BOTH = SETTINGS | {"listeners": f"PLAINTEXT://broker1:9092,{SASL}://broker1:{SASL_PORT}"}
VERSIONS = request_frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
HANDSHAKE = request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
METADATA = request_frame(MetadataRequest(topics=None), 12)
#: Of a connection that sends nothing, both ends and their sockets included.
MOST_BYTES_PER_CONNECTION = 25_000
FLOOD = 500


class Visitor:
    """A client on the simulated network that reads nothing of what it gets."""

    def __init__(self) -> None:
        self.stream: Stream
        self.closed_s: float | None = None
        self._scratch = memoryview(bytearray(1024))

    def connected(self, stream: Stream) -> None:
        self.stream = stream

    def get_buffer(self, sizehint: int, /) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int, /) -> None:
        """It does not care."""

    def writable(self) -> None:
        """It does not wait."""

    def disconnected(self, error: Exception | None) -> None:
        self.closed_s = asyncio.get_running_loop().time()


async def visit(cluster: VirtualCluster, port: int = SASL_PORT) -> Visitor:
    visitor = Visitor()
    await cluster.network.host("client").connect("broker1", port, visitor)
    return visitor


async def is_served(broker: Broker) -> bool:
    """Whether a client that has logged in gets an answer."""
    other = MemoryClient(broker, SASL, Principal("User", "alice"))
    other.stream.feed(METADATA)
    await other.settle()
    answers = other.frames()
    other.connection.close()
    return len(answers) == 1


def frame_again_and_again(second: int) -> bytes:
    """Whole requests, which need no login."""
    return HANDSHAKE if second == 1 else VERSIONS


def byte_of_a_large_frame(second: int) -> bytes:
    return ((512 * 1024).to_bytes(4, "big") + bytes(1000))[second : second + 1]


def nothing(second: int) -> bytes:
    return b""


@pytest.mark.parametrize("sent", [nothing, byte_of_a_large_frame, frame_again_and_again])
def test_who_does_not_log_in_is_gone_in_time_whatever_it_sends(sent) -> None:
    async def story(cluster: VirtualCluster) -> None:
        broker = await cluster.start(1, **BOTH)
        loop = asyncio.get_running_loop()
        visitor = await visit(cluster)
        begun_s = loop.time()
        for second in range(60):
            if visitor.closed_s is not None:
                break
            if data := sent(second):
                visitor.stream.write([data])
            await asyncio.sleep(1)  # sleep: virtual time
            assert await is_served(broker)
        assert visitor.closed_s is not None
        assert visitor.closed_s - begun_s == pytest.approx(LOGIN_LIMIT_S, abs=0.1)
        assert not len(broker.connections)

    VirtualCluster(1).run(story)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("listener", "principal"), [("PLAINTEXT", ANONYMOUS), (SASL, None), (SASL, Principal("User", "ann"))]
)
def test_a_flood_of_rubbish_fills_no_log(
    caplog: pytest.LogCaptureFixture, listener: str, principal: Principal | None
) -> None:
    async def story(cluster: VirtualCluster) -> None:
        broker = await cluster.start(1, **BOTH)
        caplog.clear()
        for _ in range(10 * REPORTS_PER_PERIOD):
            client = MemoryClient(broker, listener, principal)
            client.stream.feed(b"GET / HTTP/1.1")
            assert client.connection.closed
        assert caplog.text.count("closing the connection") == REPORTS_PER_PERIOD

    VirtualCluster(1).run(story)


def test_a_flood_of_silent_connections_costs_little_and_ends() -> None:
    async def story(cluster: VirtualCluster) -> None:
        broker = await cluster.start(1, **BOTH)
        assert await is_served(broker)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        visitors = await asyncio.gather(*(visit(cluster) for _ in range(FLOOD)))
        await asyncio.sleep(1)  # sleep: virtual time
        assert len(broker.connections) == FLOOD
        assert await is_served(broker)
        growth = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert growth < FLOOD * MOST_BYTES_PER_CONNECTION
        await asyncio.sleep(LOGIN_LIMIT_S)  # sleep: virtual time
        assert all(each.closed_s is not None for each in visitors)
        assert not len(broker.connections)
        assert await is_served(broker)

    VirtualCluster(1).run(story)


@pytest.mark.slow
def test_a_byte_a_second_of_a_large_request_costs_no_more_than_it_sent() -> None:
    async def story(cluster: VirtualCluster) -> None:
        broker = await cluster.start(1, **BOTH)
        clients = [MemoryClient(broker) for _ in range(100)]
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for client in clients:
            client.stream.feed((100 * 1024 * 1024).to_bytes(4, "big"))
        for _ in range(60):
            for client in clients:
                client.stream.feed(b"\0")
            await asyncio.sleep(1)  # sleep: virtual time
        growth = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert growth < len(clients) * MOST_BYTES_PER_CONNECTION
        assert await is_served(broker)
        for client in clients:
            client.connection.close()

    VirtualCluster(1).run(story)


@pytest.mark.slow
@pytest.mark.parametrize("principal", [None, ANONYMOUS])
def test_requests_without_reading_their_answers_wait_at_the_client(principal: Principal | None) -> None:
    count = 10_000

    async def story(cluster: VirtualCluster) -> None:
        broker = await cluster.start(1, **BOTH)
        client = MemoryClient(broker, SASL if principal is None else "PLAINTEXT", principal)
        client.stream.takes = False
        client.stream.feed(VERSIONS * count)
        await asyncio.sleep(10)  # sleep: virtual time
        assert len(client.stream.incoming) > len(VERSIONS) * count - 3 * WAITING_BYTES_LIMIT, "it is not read"
        assert client.connection.unsent_bytes < WAITING_BYTES_LIMIT
        assert await is_served(broker)
        client.stream.take()
        await asyncio.sleep(1)  # sleep: virtual time
        assert len(client.frames()) == count
        client.connection.close()

    VirtualCluster(1).run(story)
