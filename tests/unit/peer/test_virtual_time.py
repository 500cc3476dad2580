"""Connections over another network than the machine's, on virtual time: what the simulator runs whole clusters with."""

from __future__ import annotations

import asyncio
import errno

import pytest

from ottla.client import Admin, Consumer, Producer, SimpleConsumer
from ottla.env.environment import Environment
from ottla.env.outgoing import UnknownHostError
from ottla.env.randomness import Randomness
from ottla.peer.cluster import Cluster
from ottla.peer.errors import (
    BrokerUnreachableError,
    ClientTimeoutError,
    ConnectionLostError,
    UnknownTopicError,
    UnresolvableHostError,
)
from ottla.peer.settings import ConnectionSettings
from ottla.sim.virtual_loop import LoopClock, VirtualTimeLoop, run_in_virtual_time
from ottla.wire.apis import API, ApiKey
from ottla.wire.connection import ServerProtocol
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from support.waiting import Stopwatch

LATENCY_S = 0.020
REAL_TIME_S = 5.0
"""Hours of virtual time take less than this."""


class Stream:
    """A client's connection to a scripted broker, with a latency each way."""

    def __init__(self, network, receiver, peer):
        self.peer = peer
        self.unsent_bytes = 0
        self._network = network
        self._receiver = receiver
        self._broker = ServerProtocol(1 << 20)
        self._loop = asyncio.get_running_loop()
        self._open = True

    def write(self, parts):
        self._loop.call_later(LATENCY_S, self._arrive, b"".join(parts))

    def _arrive(self, data):
        for request in self._broker.receive(data):
            self._network.note("asked", ApiKey(request.header.api_key).name)
            answer = self._network.answer(request)
            if answer is not None:
                self._loop.call_later(LATENCY_S, self._deliver, self._broker.respond(answer))

    def _deliver(self, frame):
        if not self._open:
            return
        buffer = self._receiver.get_buffer(len(frame))
        buffer[: len(frame)] = frame
        self._receiver.buffer_updated(len(frame))

    def report_when_sent(self):
        pass

    def abort(self):
        if self._open:
            self._open = False
            self._network.note("closed")
            self._loop.call_soon(self._receiver.disconnected, None)


class Network:
    """One broker, named b:9092. `refusals` of the first connections fail; `silent` answers nothing but versions."""

    def __init__(self, loop, refusals=0, *, silent=False):
        self.history = []
        self._loop = loop
        self._refusals = refusals
        self._silent = silent

    def note(self, *event):
        self.history.append((round(self._loop.time(), 6), *event))

    async def addresses(self, host, port):
        if host != "b":
            raise UnknownHostError("no such host")
        return ["10.0.0.1"]

    async def canonical_names(self, host, port):
        return [host]

    async def connect(self, address, port, receiver, *, send_buffer_bytes=-1, receive_buffer_bytes=-1):
        await asyncio.sleep(LATENCY_S)  # sleep: virtual time
        if self._refusals:
            self._refusals -= 1
            self.note("refused")
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        self.note("connected")
        receiver.connected(Stream(self, receiver, (address, port)))

    def answer(self, request):
        if isinstance(request.message, ApiVersionsRequest):
            served = (ApiKey.API_VERSIONS, ApiKey.METADATA)
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=key, min_version=API[key].min_version, max_version=API[key].max_version)
                    for key in served
                ]
            )
        if self._silent:
            return None
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=7, host="b", port=9092)], cluster_id="c", topics=[]
        )


def run(work, seed=1, servers="b:9092", *, refusals=0, silent=False, **settings):
    """What `work(cluster)` gives, and the history of the network."""
    loop = VirtualTimeLoop()
    network = Network(loop, refusals, silent=silent)

    async def body():
        environment = Environment(LoopClock(loop, 0), network, Randomness(seed))
        cluster = Cluster(ConnectionSettings(servers, **settings), environment)
        try:
            return await work(cluster)
        finally:
            await cluster.close()

    watch = Stopwatch()
    result = run_in_virtual_time(body(), loop)
    assert watch.seconds() < REAL_TIME_S
    return result, network.history


async def refreshed(cluster):
    await cluster.refresh([])
    return sorted(cluster.metadata.nodes)


def test_a_cluster_is_found_over_another_network():
    nodes, history = run(refreshed)
    assert nodes == [7]
    assert [event[1:] for event in history] == [
        ("connected",),
        ("asked", "API_VERSIONS"),
        ("asked", "METADATA"),
        ("closed",),
    ]
    assert history[-1][0] == pytest.approx(5 * LATENCY_S)


def reconnecting(cluster):
    """The broker is gone for a while after it was known."""

    async def body():
        await cluster.refresh([])
        (await cluster.any_connection()).close()
        cluster.environment.network._refusals = 6
        return await cluster.retry("asking", lambda: refreshed(cluster), 3_600_000)

    return body()


def test_reconnects_take_the_same_pauses_with_the_same_seed():
    nodes, first = run(reconnecting, reconnect_backoff_ms=1000, reconnect_backoff_max_ms=600_000)
    _, again = run(reconnecting, reconnect_backoff_ms=1000, reconnect_backoff_max_ms=600_000)
    _, other = run(reconnecting, seed=2, reconnect_backoff_ms=1000, reconnect_backoff_max_ms=600_000)
    assert nodes == [7]
    assert first == again
    assert first != other
    assert first[-1][0] > 30, "pauses of 1, 2, 4, 8, 16 and 32 seconds, less or more a fifth"


def test_a_broker_that_answers_nothing_is_given_up_when_the_time_is_over():
    async def work(cluster):
        with pytest.raises(ClientTimeoutError, match="METADATA"):
            await cluster.refresh([])

    _, history = run(work, silent=True, request_timeout_ms=7_200_000)
    assert history[-1][1:] == ("closed",)
    assert history[-1][0] > 7200


def test_connections_that_are_not_used_are_closed():
    async def work(cluster):
        await cluster.refresh([])
        connection = await cluster.any_connection()
        await asyncio.sleep(541)  # sleep: virtual time
        with pytest.raises(ConnectionLostError, match="was idle"):
            connection._check_open()

    run(work, connections_max_idle_ms=540_000)


def test_errors_of_another_network():
    async def nowhere(cluster):
        with pytest.raises(UnresolvableHostError, match=r"the host of nowhere:1 cannot be resolved \(no such host\)"):
            await cluster.refresh([])

    async def closed(cluster):
        with pytest.raises(BrokerUnreachableError, match=r"cannot connect to b:9092 \(Connection refused\)"):
            await cluster.refresh([])

    run(nowhere, servers="nowhere:1")
    run(closed, refusals=1)


def test_shipped_clients_take_another_environment():
    async def body(loop, network):
        environment = Environment(LoopClock(loop, 0), network, Randomness(1))
        async with Admin(bootstrap_servers="b:9092", environment=environment) as admin:
            names = await admin.list_topics()
        for kind in (Consumer, Producer, SimpleConsumer):
            async with kind(bootstrap_servers="b:9092", request_timeout_ms=1000, environment=environment) as client:
                with pytest.raises(UnknownTopicError, match="topic t does not exist at b:9092"):
                    await (client.fetch("t", 0, 0) if kind is SimpleConsumer else client.partitions_for("t"))
        return names

    loop = VirtualTimeLoop()
    network = Network(loop)
    assert run_in_virtual_time(body(loop, network), loop) == []
    assert len([event for event in network.history if event[1] == "connected"]) == 4
