"""Requests about delegation tokens, and logins by them, as clients of a broker see them.

Source of the errors: Apache Kafka 3.9, KafkaApis and DelegationTokenManagerZk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.connection_state import ConnectionState
from ottla.broker.handlers.create_delegation_token import allows_token_requests
from ottla.client.admin import AclBinding, DelegationToken
from ottla.client.errors import AuthenticationError, BrokerError, InvalidArgumentError
from ottla.client.sync import Admin
from ottla.config.listeners import Endpoint
from ottla.net.connection import Principal
from ottla.security.scram import ScramClient
from ottla.testing import Broker
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from support.raw_client import RawClient
from support.sasl_broker import PASSWORD, SETTINGS, USER, login, sasl_broker

pytestmark = pytest.mark.spec("S2")
USERS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
SECURED = SETTINGS | {
    "delegation.token.secret.key": "hush",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "true",
    "connection.failed.authentication.delay.ms": "1",
    USERS: SETTINGS[USERS].replace(";", f' user_bob="{PASSWORD}";'),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 1}, settings=SECURED) as started:
        yield started


@pytest.fixture
def admin(broker: Broker) -> Iterator[Callable[..., Admin]]:
    """The admin client of a user."""
    made: list[Admin] = []

    def of(user: str = USER, **more: Any) -> Admin:
        made.append(Admin(login(broker, user=user) | more))
        return made[-1]

    yield of
    for each in made:
        each.close()


def by_token(broker: Broker, token: DelegationToken, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    return login(broker, mechanism, token.token_id, token.hmac_as_base64) | {"sasl.tokenauth": "true"}


def error_of(call: Callable[..., object], *arguments: Any, **options: Any) -> int:
    with pytest.raises(BrokerError) as caught:
        call(*arguments, **options)
    return caught.value.code


def test_a_life(broker: Broker, admin: Callable[..., Admin]) -> None:
    alice, bob = admin(), admin("bob")
    token = alice.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=100_000)
    assert (token.owner, token.token_requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 100_000
    assert token.expiry_timestamp_ms == token.max_timestamp_ms
    assert token.hmac_as_base64 not in repr(token)
    for user in (alice, bob):
        assert user.describe_delegation_token(["User:alice"]) == [token]
    assert alice.describe_delegation_token(["User:carol"]) == []
    assert alice.describe_delegation_token([]) == []
    renewed_ms = bob.renew_delegation_token(token.hmac, renew_time_period_ms=50_000)
    assert renewed_ms < token.expiry_timestamp_ms
    assert [each.expiry_timestamp_ms for each in bob.describe_delegation_token()] == [renewed_ms]
    with Admin(by_token(broker, token)) as client:
        assert client.list_topics() == ["t"]
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert error_of(client.create_delegation_token) == refused
        assert error_of(client.renew_delegation_token, token.hmac) == refused
        assert error_of(client.expire_delegation_token, token.hmac) == refused
        assert error_of(client.describe_delegation_token) == refused
    alice.expire_delegation_token(token.hmac)
    assert error_of(bob.renew_delegation_token, token.hmac) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with Admin(by_token(broker, token)) as client, pytest.raises(AuthenticationError, match="invalid credentials"):
        client.list_topics()


@pytest.mark.parametrize("version", range(4))
def test_all_versions(broker: Broker, version: int) -> None:
    """Those before 3 have no requester; expiry and renewal end with 2."""
    with raw_client(broker) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        asked = SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        assert client.ask(asked, SaslAuthenticateResponse, 2).error_code == 0
        bob = CreatableRenewers(principal_type="User", principal_name="bob")
        request = CreateDelegationTokenRequest(renewers=[bob], max_lifetime_ms=100_000)
        made = client.ask(request, CreateDelegationTokenResponse, version)
        times = made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms
        requester = ("User", USER) if version == 3 else ("", "")
        assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", USER)
        assert (made.token_requester_principal_type, made.token_requester_principal_name) == requester
        assert times == (times[0], times[0] + 100_000, times[0] + 100_000)
        alice = DescribeDelegationTokenOwner(principal_type="User", principal_name=USER)
        described = client.ask(DescribeDelegationTokenRequest(owners=[alice]), DescribeDelegationTokenResponse, version)
        (found,) = described.tokens
        assert (found.token_id, bytes(found.hmac)) == (made.token_id, bytes(made.hmac))
        assert (found.issue_timestamp, found.expiry_timestamp, found.max_timestamp) == times
        assert (found.principal_type, found.principal_name) == ("User", USER)
        assert (found.token_requester_principal_type, found.token_requester_principal_name) == requester
        assert [(each.principal_type, each.principal_name) for each in found.renewers] == [("User", "bob")]
        hmac, changing = bytes(made.hmac), min(version, 2)
        renewal = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=50_000)
        assert client.ask(renewal, RenewDelegationTokenResponse, changing).expiry_timestamp_ms < times[1]
        expiry = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
        assert client.ask(expiry, ExpireDelegationTokenResponse, changing).error_code == 0
        assert client.ask(expiry, ExpireDelegationTokenResponse, changing).expiry_timestamp_ms == -1
        everything = DescribeDelegationTokenRequest(owners=None)
        assert client.ask(everything, DescribeDelegationTokenResponse, version).tokens == []


def test_tokens_of_others_need_acls(admin: Callable[..., Admin]) -> None:
    root, alice, bob = admin("admin", **{"sasl.password": "admin-secret"}), admin(), admin("bob")
    root.create_acls([AclBinding("USER", "User:alice", "User:nobody", "CREATE_TOKENS")])
    denied = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert error_of(bob.create_delegation_token, owner="User:alice") == denied
    token = root.create_delegation_token(owner="User:alice")
    assert (token.owner, token.token_requester) == ("User:alice", "User:admin")
    root.create_acls([AclBinding("DELEGATION_TOKEN", token.token_id, "User:nobody", "DESCRIBE")])
    assert bob.describe_delegation_token() == []
    assert alice.describe_delegation_token() == root.describe_delegation_token() == [token]
    assert error_of(root.expire_delegation_token, token.hmac) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    root.create_acls([AclBinding("USER", "User:alice", "User:bob", "DESCRIBE_TOKENS")])
    assert bob.describe_delegation_token() == [token]
    alice.expire_delegation_token(token.hmac)


def test_arguments(admin: Callable[..., Admin]) -> None:
    alice = admin()
    assert error_of(alice.create_delegation_token, renewers=["Group:ops"]) == ErrorCode.INVALID_PRINCIPAL_TYPE
    many = [f"User:{number}" for number in range(10_001)]
    assert error_of(alice.create_delegation_token, renewers=many) == ErrorCode.INVALID_REQUEST
    assert error_of(alice.describe_delegation_token, many) == ErrorCode.INVALID_REQUEST
    with pytest.raises(InvalidArgumentError, match="is of the form TYPE:NAME"):
        alice.create_delegation_token(owner="bob")
    with pytest.raises(InvalidArgumentError, match="named by its HMAC"):
        alice.renew_delegation_token("id")


@pytest.mark.parametrize(("protocol", "error"), [("SASL_PLAINTEXT", 61), ("PLAINTEXT", 64)])
def test_brokers_without_tokens(protocol: str, error: int) -> None:
    """Without a secret on a listener with SASL; and with one, where nobody logs in."""
    is_sasl = protocol == "SASL_PLAINTEXT"
    with sasl_broker() if is_sasl else Broker(settings={"delegation.token.master.key": "hush"}) as broker:
        settings = login(broker) if is_sasl else {"bootstrap.servers": broker.bootstrap_servers}
        with Admin(settings) as client:
            assert error_of(client.create_delegation_token) == error
            assert error_of(client.renew_delegation_token, b"hmac") == error
            assert error_of(client.expire_delegation_token, b"hmac") == error
            assert error_of(client.describe_delegation_token) == error


def test_a_session_lasts_as_long_as_its_token(broker: Broker, admin: Callable[..., Admin]) -> None:
    alice = admin()
    token = alice.create_delegation_token(max_lifetime_ms=600_000)
    with raw_client(broker) as client, raw_client(broker) as another:
        assert 0 < by_scram(client, token).session_lifetime_ms <= 600_000
        alice.expire_delegation_token(token.hmac)
        assert by_scram(another, token).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def raw_client(broker: Broker) -> RawClient:
    return RawClient(int(broker.bootstrap_servers.rpartition(":")[2]))


def by_scram(client: RawClient, token: DelegationToken) -> SaslAuthenticateResponse:
    """The last answer to a login by a token."""
    mechanism = "SCRAM-SHA-512"
    exchange = ScramClient(mechanism, token.token_id, token.hmac_as_base64, "nonce", is_token=True)
    client.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, 1)
    message: bytes | None = exchange.first()
    while message is not None:
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse, 2)
        message = None if answer.error_code else exchange.step(answer.auth_bytes)
    return answer


@pytest.mark.parametrize(
    ("protocol", "name", "allowed"),
    [("SSL", "ANONYMOUS", False), ("SSL", "CN=ann", True), ("PLAINTEXT", "ANONYMOUS", False)],
)
def test_what_listeners_without_a_login_allow(protocol: str, name: str, allowed: bool) -> None:
    """TLS with a client's certificate does."""
    context: Any = SimpleNamespace(
        listener_name="L",
        client_state=ConnectionState(),
        principal=Principal("User", name),
        broker=SimpleNamespace(config=SimpleNamespace(listeners=[Endpoint("L", protocol, "h", 1)])),
    )
    assert allows_token_requests(context) is allowed
