"""Settings of SASL that change while the broker runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.authentication import Authentication
from ottla.broker.control.interbroker import BrokerConnector
from ottla.client.admin import ConfigResource
from ottla.client.errors import AuthenticationError, BrokerError
from ottla.client.sync import Admin
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.clock import VirtualClock
from ottla.env.environment import Environment
from ottla.env.randomness import Randomness
from ottla.security.scram import SCRAM_MECHANISMS
from ottla.testing import Broker
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from support.command_line import ottla_at
from support.raw_client import RawClient
from support.sasl_broker import PASSWORD, SETTINGS, USER, login, sasl_broker
from support.waiting import wait_until

pytestmark = pytest.mark.spec("S2")

LISTENER = "listener.name.sasl_plaintext."
JAAS, ENABLED = f"{LISTENER}plain.sasl.jaas.config", f"{LISTENER}sasl.enabled.mechanisms"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
NEW = f'{MODULE} username="admin" password="hunter2" user_admin="hunter2" user_bob="hunter3";'
SECRET = {"password.encoder.secret": "s3cret"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with sasl_broker(**SECRET) as started:
        yield started


def change(broker: Broker, password: str = "admin-secret", **settings: str | None) -> None:
    """As `admin`, by IncrementalAlterConfigs. Raises what the broker answers."""
    with Admin(login(broker, user="admin", password=password)) as admin:
        admin.incremental_alter_configs({ConfigResource.broker(broker.server.id): settings})


def logs_in(broker: Broker, user: str, password: str) -> bool:
    try:
        with Admin(login(broker, user=user, password=password)) as admin:
            return "t" in admin.list_topics()
    except AuthenticationError:
        return False


@pytest.mark.spec("S6")
def test_users_of_plain_change_and_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By `ottla config set`, whose output does not show them; who is logged in stays."""
    settings = SETTINGS | SECRET | {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}

    def at_sasl(broker: Broker) -> RawClient:
        return RawClient(next(each.port for each in broker.server.listening if each.uses_sasl))

    def login_by(client: RawClient, user: str, password: str) -> int:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        token = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
        return int(client.ask(token, SaslAuthenticateResponse, 2).error_code)

    with Broker({"t": 1}, settings=settings, data=tmp_path) as broker:
        before = at_sasl(broker)
        assert login_by(before, USER, PASSWORD) == 0
        done = ottla_at(broker, "config", "set", "--broker", str(broker.server.id), f"{JAAS}={NEW}", "--yes")
        assert done.exit_code == 0, done.output
        described = ottla_at(broker, "config", "describe", "--broker", str(broker.server.id), "--json")
        assert JAAS in described.output
        assert "hunter" not in done.output + described.output + caplog.text
        after = at_sasl(broker)
        assert login_by(after, USER, PASSWORD) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert before.topics() == {"t"}
        before.close()
        after.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert JAAS.encode() in kept
    assert b"hunter" not in kept
    with Broker(settings=settings, data=tmp_path) as broker:
        client = at_sasl(broker)
        assert login_by(client, "bob", "hunter3") == 0
        client.close()


def test_the_brokers_own_login_changes(broker: Broker) -> None:
    sasl = broker.server.control.connector._settings.sasl
    assert sasl is not None
    assert "admin-secret" in str(tuple(sasl.login))
    change(broker, **{JAAS: NEW})
    sasl = broker.server.control.connector._settings.sasl
    assert sasl is not None
    assert "hunter2" in str(tuple(sasl.login))
    assert [logs_in(broker, "admin", each) for each in ("hunter2", "admin-secret")] == [True, False]
    change(broker, "hunter2", **{JAAS: None})
    assert logs_in(broker, "admin", "admin-secret"), "that of server.properties counts again"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({JAAS: f'{MODULE} user_a="hush"'}, f"{JAAS} cannot be read: it does not end with a semicolon"),
        ({JAAS: f'{MODULE} user_a="hush";'}, f"{JAAS} has no username and password, by which this broker logs in"),
        ({JAAS: 'a.ScramLoginModule required username="a" password="hush";'}, "PLAIN needs the PlainLoginModule"),
        ({ENABLED: "SCRAM-SHA-256"}, "sasl.mechanism.inter.broker.protocol must be included"),
        ({ENABLED: "PLAIN,EXTERNAL"}, "listener SASL_PLAINTEXT has EXTERNAL, which cannot be served yet"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, f"{LISTENER}gssapi.sasl.jaas.config is missing"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}, "has no username and password"),
        ({f"{LISTENER}connections.max.reauth.ms": "x"}, "Not a number of type LONG"),
        ({f"{LISTENER}plain.sasl.server.callback.handler.class": "a.B"}, "a.B is a Java class"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(settings: dict[str, str], said: str) -> None:
    config = parse_broker_config(SETTINGS)
    assert isinstance(config, BrokerConfig)
    authentication = Authentication(config, Randomness(), VirtualClock(0))
    before = dict(authentication.listeners["SASL_PLAINTEXT"])
    trial = config.copy()
    problems = trial.set_dynamic({}, settings)
    problem = " ".join((*problems, authentication.problem(trial) or ""))
    assert said in problem
    assert "hush" not in problem
    assert authentication.listeners["SASL_PLAINTEXT"] == before


def test_the_answer_to_a_change_that_cannot_be(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BrokerError, match=f"{JAAS} cannot be read: it does not end"):
        change(broker, **{JAAS: f'{MODULE} user_a="hush"'})
    assert logs_in(broker, USER, PASSWORD)
    assert "hush" not in caplog.text


def test_logins_stay_where_the_kept_ones_cannot_be(caplog: pytest.LogCaptureFixture) -> None:
    """As after a password that could not be decoded."""
    config = parse_broker_config(SETTINGS)
    assert isinstance(config, BrokerConfig)
    authentication = Authentication(config, Randomness(), VirtualClock(0))
    config.set_dynamic({}, {ENABLED: "PLAIN,GSSAPI"})
    assert not authentication.reload(config)
    assert list(authentication.listeners["SASL_PLAINTEXT"]) == ["PLAIN", *SCRAM_MECHANISMS]
    assert "the listeners keep their logins: listener.name.sasl_plaintext.gssapi.sasl.jaas.config" in caplog.text
    config.set_dynamic({}, {ENABLED: "PLAIN"})
    assert authentication.reload(config)
    assert list(authentication.listeners["SASL_PLAINTEXT"]) == ["PLAIN"]


def test_the_brokers_own_login_stays_where_the_kept_one_cannot_be_and_certificates_are_renewed() -> None:
    """Renewed certificates apply all settings towards other brokers again."""
    config = parse_broker_config(SETTINGS)
    assert isinstance(config, BrokerConfig)
    connector = BrokerConnector(1, config, Environment())
    login_before = connector._settings.sasl
    assert login_before is not None
    config.set_dynamic({}, {"sasl.mechanism.inter.broker.protocol": "GSSAPI"})
    connector.apply_settings(config)
    assert connector._settings.sasl == login_before
    config.set_dynamic({}, {JAAS: NEW})
    connector.apply_settings(config)
    assert connector._settings.sasl is not None
    assert "hunter2" in str(tuple(connector._settings.sasl.login))


def test_a_session_by_a_mechanism_that_is_gone_cannot_go_on() -> None:
    with sasl_broker(**SECRET, connections_max_reauth_ms="1500") as broker:
        client = RawClient(broker.port)
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        token = SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        assert client.ask(token, SaslAuthenticateResponse, 2).session_lifetime_ms == 1500
        scram = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";'
        change(
            broker,
            **{
                ENABLED: "SCRAM-SHA-256",
                f"{LISTENER}scram-sha-256.sasl.jaas.config": scram,
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            },
        )
        connections = broker.server.connections
        wait_until(lambda: all(each.principal is None for each in connections.snapshot()), "the session ends")
        answer = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, [])
        client.close()
