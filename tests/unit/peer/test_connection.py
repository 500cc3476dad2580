from __future__ import annotations

import asyncio
import gc
import socket
import threading
import weakref

import pytest

from ottla.client.errors import (
    BrokerUnreachableError,
    ClientError,
    ClientTimeoutError,
    ConnectionLostError,
    InvalidArgumentError,
    NotKafkaError,
    ProtocolError,
    UnresolvableHostError,
    UnsupportedVersionError,
)
from ottla.env.environment import Environment
from ottla.env.outgoing import SystemNetwork
from ottla.peer.connection import open_connection
from ottla.peer.hosts import canonical_servers
from ottla.peer.settings import ConnectionSettings
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.fake_cluster import FakeConnection

SETTINGS = ConnectionSettings("unused:1", request_timeout_ms=2000, socket_connection_setup_timeout_ms=1000)


def connected(port, work, host="127.0.0.1", settings=SETTINGS):
    async def body():
        connection = await open_connection(host, port, settings, Environment())
        try:
            return await work(connection)
        finally:
            connection.close()

    return asyncio.run(body())


async def nothing(connection):
    return connection.offered


@pytest.fixture
def answering():
    """A server that reads once, answers with fixed bytes and closes; gives its port."""
    servers = []

    def start(answer: bytes | None) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(10_000)
                if answer is None:
                    peer.recv(1)  # silent until the other side gives up
                else:
                    peer.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1]

    yield start
    for server in servers:
        server.close()


def test_versions_are_agreed_on(fake):
    assert connected(fake.ports[0], nothing)[ApiKey.FETCH] == (0, 12)
    [(_, _, request)] = fake.requests
    assert (request.client_software_name, request.client_software_version) == ("ottla", "0.1.0")


def test_a_broker_with_an_older_api_versions_is_asked_again(fake):
    fake.newest_api_versions = 2
    assert ApiKey.PRODUCE in connected(fake.ports[0], nothing)
    assert [message is None for _, _, message in fake.requests] == [True, False]


def test_requests_in_flight_get_their_own_answers(fake):
    fake.topic("a", 0)
    fake.topic("b", 0, 0)

    async def work(connection):
        from ottla.wire.messages.metadata import MetadataRequestTopic

        pending = [connection.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)])) for name in "abab"]
        return [answer.topics[0].name for answer in await asyncio.gather(*pending)]

    assert connected(fake.ports[0], work) == ["a", "b", "a", "b"]


def test_a_request_without_an_answer_leaves_the_next_alone(fake):
    from ottla.wire.messages.produce import ProduceRequest

    async def work(connection):
        assert await connection.request(ProduceRequest(acks=0, topic_data=[]), awaits_response=False) is None
        return (await connection.request(MetadataRequest(topics=None))).cluster_id

    assert connected(fake.ports[0], work) == "fake"


def test_a_late_answer_closes_the_connection(fake, faults):
    fake.faults[ApiKey.METADATA].append(faults["SILENT"])

    async def work(connection):
        with pytest.raises(ClientTimeoutError, match=r"did not answer METADATA \(3\) within 50 ms") as caught:
            await connection.request(MetadataRequest(topics=None), timeout_ms=50)
        assert caught.value.retriable
        assert not connection.is_open
        with pytest.raises(ClientTimeoutError):
            await connection.request(MetadataRequest(topics=None))

    connected(fake.ports[0], work)


def test_all_in_flight_fail_when_the_connection_is_lost(fake, faults):
    fake.faults[ApiKey.METADATA].append(faults["DROP"])

    async def work(connection):
        pending = [connection.request(MetadataRequest(topics=None)) for _ in range(3)]
        return await asyncio.gather(*pending, return_exceptions=True)

    lost = connected(fake.ports[0], work)
    assert {type(each) for each in lost} == {ConnectionLostError}
    assert all(each.retriable for each in lost)


def test_a_cancelled_request_does_not_shift_answers(fake):
    fake.topic("a", 0)

    async def work(connection):
        given_up = asyncio.create_task(connection.request(FindCoordinatorRequest(key="g")))
        await asyncio.sleep(0)
        given_up.cancel()
        return (await connection.request(MetadataRequest(topics=None))).cluster_id

    assert connected(fake.ports[0], work) == "fake"


def test_an_api_that_is_not_served(fake):
    async def work(connection):
        connection._protocol.versions.pop(ApiKey.FIND_COORDINATOR)
        with pytest.raises(UnsupportedVersionError, match="FIND_COORDINATOR"):
            await connection.request(FindCoordinatorRequest(key="g"))

    connected(fake.ports[0], work)


def test_requests_sent_together_of_which_one_cannot_be_expressed(fake):
    async def work(connection):
        together = [HeartbeatRequest(group_id="g"), HeartbeatRequest(group_id="g", group_instance_id="static")]
        with pytest.raises(ProtocolError, match="cannot be sent"):
            await connection._exchange_together(together, [0, 0])
        # The first has its number, and no response will ever come for it.
        with pytest.raises(ProtocolError, match="cannot be sent"):
            await connection.request(MetadataRequest(topics=None))

    connected(fake.ports[0], work)
    assert not fake.requests_of(ApiKey.HEARTBEAT)


def test_a_message_that_its_version_cannot_express(fake):
    async def work(connection):
        with pytest.raises(ProtocolError, match="cannot be sent"):
            await connection._exchange(HeartbeatRequest(group_id="g", group_instance_id="static"), 0, None)

    connected(fake.ports[0], work)


class Through:
    """Takes steps in turns of the loop, and counts them."""

    def __init__(self) -> None:
        self.turns = 0

    async def __call__(self, steps):
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            self.turns += 1
            await asyncio.sleep(0)


def test_a_large_request_is_encoded_in_several_turns(fake):
    fake.topic("a", 0)
    through = Through()

    async def work(connection):
        names = [MetadataRequestTopic(name="a") for _ in range(1_000)]
        answer = await connection.request(MetadataRequest(topics=names), through=through)
        assert answer.topics[0].name == "a"
        with pytest.raises(ProtocolError, match="cannot be sent"):
            await connection.request(
                MetadataRequest(topics=[*names, MetadataRequestTopic(name="\ud800")]), through=through
            )
        assert (await connection.request(MetadataRequest(topics=names[:1]))).topics[0].name == "a"

    connected(fake.ports[0], work)
    assert through.turns > 2


def test_the_answer_to_a_large_request_is_decoded_in_several_turns(fake):
    names = [f"t{number}" for number in range(500)]
    for name in names:
        fake.topic(name, 0)
    through = Through()

    async def work(connection):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names[:1]])
        await connection.request(request, through=through)
        small = through.turns
        whole = await connection.request(MetadataRequest(topics=None))
        found = await connection.request(MetadataRequest(topics=None), through=through)
        assert list(found.topics) == list(whole.topics)
        assert (found.brokers, found.controller_id) == (whole.brokers, whole.controller_id)
        assert through.turns - small > len(names) / 32

    connected(fake.ports[0], work)


@pytest.mark.parametrize("change", [lambda frame: frame[:-3], lambda frame: frame + b"abc"], ids=["short", "long"])
def test_an_answer_that_cannot_be_read_in_turns_closes_the_connection(fake, monkeypatch, change):
    fake.topic("a", 0)
    answer = FakeConnection._frame

    def damaged(self, request, message):
        frame = answer(self, request, message)
        if request.header.api_key != ApiKey.METADATA:
            return frame
        frame = change(frame)
        return (len(frame) - 4).to_bytes(4, "big") + frame[4:]

    monkeypatch.setattr(FakeConnection, "_frame", damaged)

    async def work(connection):
        with pytest.raises(ProtocolError, match="cannot be read"):
            await connection.request(MetadataRequest(topics=None), through=Through())
        assert not connection.is_open

    connected(fake.ports[0], work)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answered in HTTP: .*; check the port"),
        (b"", "closed the connection before it answered; check that the port is a listener"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "cannot be read: .*; check the port"),
        (b"\x00\x00\x00\x03abc", "cannot be read: .*; check the port"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x63abcd", "cannot be read: .*; check the port"),
        (b"\xff\xff\xff\xff", "cannot be read: .*; check the port"),
    ],
)
def test_what_is_no_kafka_broker(answering, answer, told):
    settings = ConnectionSettings("unused:1", socket_connection_setup_timeout_ms=10_000)
    with pytest.raises(NotKafkaError, match=told):
        connected(answering(answer), nothing, settings=settings)


def test_versions_refused_with_another_error(fake):
    fake.faults[ApiKey.API_VERSIONS].append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(ClientError, match="CLUSTER_AUTHORIZATION_FAILED"):
        connected(fake.ports[0], nothing)


def test_a_closed_port(fake):
    port = fake.ports[0]
    fake.stop(0)
    with pytest.raises(BrokerUnreachableError, match=f"cannot connect to 127.0.0.1:{port}.*check that the broker runs"):
        connected(port, nothing)


def test_nobody_takes_the_connection():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        settings = ConnectionSettings("unused:1", socket_connection_setup_timeout_ms=100)
        with pytest.raises((BrokerUnreachableError, NotKafkaError), match="100 ms"):
            connected(full.getsockname()[1], nothing, settings=settings)
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 300])
def test_hosts_that_cannot_be_resolved(host):
    with pytest.raises(UnresolvableHostError, match="check its name"):
        connected(1, nothing, host=host)


def test_errors_are_client_errors():
    assert issubclass(InvalidArgumentError, ValueError)
    assert issubclass(ClientTimeoutError, TimeoutError)


def test_buffers_have_the_sizes_that_are_set(fake):
    async def sizes(connection):
        connected = connection._stream._transport.get_extra_info("socket")
        return [connected.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]

    settings = ConnectionSettings("unused:1", send_buffer_bytes=20_000, receive_buffer_bytes=30_000)
    assert connected(fake.ports[0], sizes, settings=settings) in ([20_000, 30_000], [40_000, 60_000])


def test_all_addresses_of_a_host_are_tried(fake, monkeypatch):
    """The first one refuses; the second one answers."""

    async def body():
        loop = asyncio.get_running_loop()
        resolve = loop.getaddrinfo

        async def two(host, port, **options):
            if host != "two.example":
                return await resolve(host, port, **options)
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, ("127.0.0.2", port)), (*kind, ("127.0.0.1", port))]

        monkeypatch.setattr(loop, "getaddrinfo", two)
        connection = await open_connection("two.example", fake.ports[0], SETTINGS, Environment())
        connection.close()
        return connection.address

    assert asyncio.run(body()) == f"two.example:{fake.ports[0]}"


def test_canonical_servers_of_addresses_and_of_hosts_that_are_not_there():
    async def body():
        return await canonical_servers(SystemNetwork(), [("no-such-host.invalid", 1), ("127.0.0.1", 2)])

    found = asyncio.run(body())
    assert found[0] == ("no-such-host.invalid", 1)
    assert [port for _, port in found[1:]] == [2]


def test_a_cancelled_request_keeps_nothing(fake, faults):
    """Neither once it is answered nor once the connection is closed is anything left until request.timeout.ms."""
    patient = ConnectionSettings("unused:1", request_timeout_ms=600_000)

    async def cancelled(connection):
        before = len(fake.requests_of(ApiKey.FIND_COORDINATOR))
        given_up = asyncio.create_task(connection.request(FindCoordinatorRequest(key="g")))
        while len(fake.requests_of(ApiKey.FIND_COORDINATOR)) == before:  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up

    def timers():
        return [each for each in asyncio.get_running_loop()._scheduled if not each.cancelled()]

    async def body():
        connection = await open_connection("127.0.0.1", fake.ports[0], patient, Environment())
        await cancelled(connection)
        await connection.request(MetadataRequest(topics=None))
        assert timers() == []
        fake.faults[ApiKey.FIND_COORDINATOR].append(faults["SILENT"])
        await cancelled(connection)
        assert len(timers()) == 1
        connection.close()
        assert timers() == []
        await asyncio.sleep(0)
        left = weakref.ref(connection)
        del connection
        await asyncio.sleep(0)
        gc.collect()
        assert left() is None

    asyncio.run(body())


def test_an_abandoned_connection_is_closed_from_any_thread(fake):
    async def body():
        connection = await open_connection("127.0.0.1", fake.ports[0], SETTINGS, Environment())
        await asyncio.to_thread(connection.abandon)
        await asyncio.sleep(0)
        assert not connection.is_open
        return connection

    asyncio.run(body()).abandon()  # its loop is closed now
