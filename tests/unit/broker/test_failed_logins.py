"""What a failed login costs a client on virtual time: the same delay, whatever was wrong."""

from __future__ import annotations

import asyncio

import pytest

from ottla.net.connection import Principal
from ottla.security.jaas import Login
from ottla.security.sasl import client_exchange
from ottla.security.scram import SCRAM_MECHANISMS, credential_of, salted_password
from ottla.wire.apis import ApiKey
from ottla.wire.codec import encode
from ottla.wire.framing import RequestHeader, encode_request_frame
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.memory_connection import MemoryClient
from support.sasl_broker import MECHANISMS, PASSWORD, SETTINGS, USER
from support.virtual_cluster import VirtualCluster

pytestmark = [pytest.mark.spec("S2"), pytest.mark.spec("S5")]
LISTENER = "SASL_PLAINTEXT"
DELAY_S = 0.1


def frame(key: ApiKey, version: int, request: SaslHandshakeRequest | SaslAuthenticateRequest) -> bytes:
    return encode_request_frame(RequestHeader(key, version, 1, "c"), encode(request, version))


async def seconds_to_fail(client: MemoryClient, mechanism: str, login: Login, *, is_raw: bool) -> float:
    """Log in with tokens in requests or in bare frames; the virtual time until the connection is closed."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    client.stream.feed(frame(ApiKey.SASL_HANDSHAKE, 0 if is_raw else 1, SaslHandshakeRequest(mechanism=mechanism)))
    client.frames()
    exchange = client_exchange(mechanism, login, "nonce")
    token: bytes | None = exchange.first()
    while token is not None:
        if is_raw:
            client.stream.feed(len(token).to_bytes(4, "big") + token)
        else:
            client.stream.feed(frame(ApiKey.SASL_AUTHENTICATE, 0, SaslAuthenticateRequest(auth_bytes=token)))
        answers = client.frames()
        if not answers:
            break
        # Correlation id, error code, no message, length of the token.
        token = exchange.step(answers[0] if is_raw else answers[0][12:])
    for _ in range(1000):
        if client.connection.closed:
            break
        await asyncio.sleep(0.001)  # sleep: virtual time
    return loop.time() - began_s


def test_every_failed_login_costs_the_same_delay() -> None:
    async def story(cluster: VirtualCluster) -> None:
        settings = dict(SETTINGS)
        settings["listeners"] = f"{LISTENER}://broker1:9092"
        broker = await cluster.start(1, **settings)
        assert broker.authentication is not None
        for mechanism in SCRAM_MECHANISMS:
            salted = salted_password(mechanism, PASSWORD, b"salt", 4096)
            broker.authentication.scram[mechanism][USER] = credential_of(mechanism, salted, b"salt", 4096)
        for mechanism in MECHANISMS:
            for login in (Login(USER, "wrong"), Login("unknown", PASSWORD)):
                for is_raw in (False, True):
                    client = MemoryClient(broker, LISTENER, None)
                    took_s = await seconds_to_fail(client, mechanism, login, is_raw=is_raw)
                    assert took_s == pytest.approx(DELAY_S, abs=0.003), (mechanism, login.user, is_raw)
        assert broker.authentication.failures == 2 * 2 * len(MECHANISMS)

    VirtualCluster(1).run(story)


def test_all_brokers_of_a_cluster_show_one_salt_of_an_unknown_user_also_after_a_restart() -> None:
    async def story(cluster: VirtualCluster) -> None:
        settings = dict(SETTINGS)
        shown = []
        for broker_id in (1, 2, 1):
            settings["listeners"] = f"{LISTENER}://broker{broker_id}:9092"
            if broker_id in cluster.brokers:
                await cluster.stop(broker_id)
            broker = await cluster.start(broker_id, **settings)
            client = MemoryClient(broker, LISTENER, None)
            for key, request in (
                (ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=SCRAM_MECHANISMS[0])),
                (ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=b"n,,n=unknown,r=x")),
            ):
                client.stream.feed(frame(key, 1, request))
            shown.append(client.frames()[1].partition(b",s=")[2])
            client.connection.close()
        assert len(shown[0]) > 20
        assert shown == [shown[0]] * 3

    VirtualCluster(2).run(story)


@pytest.mark.parametrize(
    ("limit", "size", "is_refused"),
    [("100", 100, False), ("100", 101, True), ("524288", 524_289, True), ("0", 1, True), ("-1", 1_000_000, False)],
)
def test_requests_before_a_login_have_a_limit_of_their_own(
    limit: str, size: int, caplog: pytest.LogCaptureFixture, *, is_refused: bool
) -> None:
    """As Apache Kafka's NetworkReceive takes it: -1 is none, beside that of all requests."""

    async def story(cluster: VirtualCluster) -> None:
        settings = {"listeners": f"{LISTENER}://broker1:9092", "sasl.server.max.receive.size": limit}
        broker = await cluster.start(1, **SETTINGS | settings)
        client = MemoryClient(broker, LISTENER, None)
        client.stream.feed(size.to_bytes(4, "big"))
        assert client.connection.closed == is_refused
        assert (f"larger than sasl.server.max.receive.size={limit}" in caplog.text) == is_refused
        if limit == "-1":
            MemoryClient(broker, LISTENER, None).stream.feed((10**9).to_bytes(4, "big"))
            assert "larger than socket.request.max.bytes=" in caplog.text
        client = MemoryClient(broker, LISTENER, None)
        client.connection.set_principal(Principal("User", USER))
        client.stream.feed((10_000_000).to_bytes(4, "big"))
        assert not client.connection.closed

    VirtualCluster(1).run(story)
