from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.describe import describe_broker, describe_broker_defaults, describe_topic
from ottla.config.dynamic import dynamic_problem
from ottla.config.topic import LogConfig


def config(**settings: str) -> BrokerConfig:
    parsed = parse_broker_config({name.replace("_", "."): value for name, value in settings.items()})
    assert isinstance(parsed, BrokerConfig)
    return parsed


def log_config(broker: BrokerConfig, **settings: str) -> LogConfig:
    found = LogConfig.of(broker, {name.replace("_", "."): value for name, value in settings.items()})
    assert isinstance(found, LogConfig)
    return found


def test_the_stronger_setting_holds() -> None:
    broker = config(log_retention_hours="1")
    assert log_config(broker).retention_ms == 3_600_000
    broker.set_dynamic({"log.retention.ms": "600"}, {})
    assert log_config(broker).retention_ms == 600
    broker.set_dynamic({"log.retention.ms": "600"}, {"log.retention.ms": "500"})
    assert log_config(broker).retention_ms == 500
    assert log_config(broker, retention_ms="400").retention_ms == 400
    broker.set_dynamic({}, {})
    assert log_config(broker).retention_ms == 3_600_000


def test_values_that_nobody_can_read_are_left_out_and_reported() -> None:
    broker = config()
    problems = broker.set_dynamic({"log.retention.ms": "x", "my.own": "y"}, {"message.max.bytes": "77"})
    assert problems == ["Invalid value x for configuration log.retention.ms: Not a number of type LONG"]
    assert broker.get_int("message.max.bytes") == 77


def test_a_copy_is_changed_apart() -> None:
    broker = config()
    broker.set_dynamic({}, {"message.max.bytes": "77"})
    copy = broker.with_broker_id(5)
    assert copy.get_int("message.max.bytes") == 77
    copy.set_dynamic({}, {})
    assert (broker.get_int("message.max.bytes"), copy.broker_id) == (77, 5)


def test_where_values_come_from_is_reported() -> None:
    broker = config(log_retention_hours="1")
    broker.set_dynamic({"log.retention.ms": "600", "my.own": "x"}, {"log.retention.ms": "500"})
    topic = {entry.name: entry for entry in describe_topic(log_config(broker, retention_ms="400"), broker)}
    told = [tuple(synonym) for synonym in topic["retention.ms"].synonyms]
    assert told == [
        ("retention.ms", "400", 1),
        ("log.retention.ms", "500", 2),
        ("log.retention.ms", "600", 3),
        ("log.retention.hours", "1", 4),
        ("log.retention.hours", "168", 5),
    ]
    entries = {entry.name: entry for entry in describe_broker(broker)}
    assert (entries["log.retention.ms"].value, entries["log.retention.ms"].source) == ("500", 2)
    assert (entries["my.own"].value, entries["my.own"].is_sensitive, entries["my.own"].source) == (None, True, 3)
    defaults = {entry.name: entry.value for entry in describe_broker_defaults(broker)}
    assert defaults == {"log.retention.ms": "600", "my.own": None}


@pytest.mark.parametrize(
    ("properties", "per_broker", "told"),
    [
        ({"log.retention.ms": "5", "nobody.knows": "x"}, True, None),
        ({"log.retention.ms": "5"}, False, None),
        ({"broker.id": "5"}, True, "Cannot update these configs dynamically: Set(broker.id)"),
        ({"listeners": "PLAINTEXT://:1"}, False, "at default cluster level, broker id must be specified"),
        ({"listeners": "PLAINTEXT://:1"}, True, "cannot be changed while this broker runs"),
        ({"listener.name.x.ssl.keystore.location": "/x"}, True, None),
        ({"listener.name.x.ssl.keystore.location": "/x"}, False, "at default cluster level"),
        ({"listener.name.x.ssl.keystore.password": "x"}, True, None),
        ({"listener.name.x.ssl.keystore.password": "x"}, False, "at default cluster level"),
        ({"listener.name.x.ssl.principal.mapping.rules": "DEFAULT"}, True, "Cannot update these configs dynamically"),
        ({"listener.name.x.ssl.client.auth": "never"}, True, "Invalid value never"),
        ({"listener.name.x.max.connections": "7"}, False, None),
        (
            {"listener.name.x.sasl.enabled.mechanisms": "PLAIN", "listener.name.x.plain.sasl.jaas.config": "x"},
            True,
            None,
        ),
        ({"listener.name.x.sasl.enabled.mechanisms": "PLAIN"}, False, "at default cluster level"),
        ({"listener.name.x.gssapi.sasl.kerberos.service.name": "kafka"}, True, None),
        ({"listener.name.x.oauthbearer.connections.max.reauth.ms": "x"}, True, "Not a number of type LONG"),
        ({"listener.name.x.sasl.login.class": "a.Login"}, True, "listener.name.x.sasl.login.class cannot be honoured"),
        ({"sasl.jaas.config": "x"}, True, "Name it listener.name.NAME.MECHANISM.sasl.jaas.config"),
        ({"sasl.oauthbearer.expected.issuer": "x"}, True, "Cannot update these configs dynamically"),
        ({"log.retention.ms": "0"}, True, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ({"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2000000"}, True, "at least 1MB per cleaner"),
        ({"log.cleaner.threads": "0"}, True, "log.cleaner.threads=0 leaves no thread to compact"),
        ({"max.connection.creation.rate": "0"}, False, "Invalid max.connection.creation.rate 0"),
        ({"ssl.keystore.type": "JKS"}, True, "per-listener using the listener prefix: HashSet(ssl.keystore.type)"),
        ({"sasl.kerberos.min.time.before.relogin": "58000", "ssl.cipher.suites": "x"}, True, None),
        ({"sasl.kerberos.min.time.before.relogin": "58000"}, False, "broker id must be specified"),
        ({"sasl.kerberos.min.time.before.relogin": "x"}, False, "Not a number of type LONG"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, True, None),
        ({"sasl.enabled.mechanisms": "PLAIN"}, False, "at default cluster level, broker id must be specified"),
        ({"background.threads": "21"}, True, "should not be greater than double the current value 10"),
        ({"background.threads": "4"}, True, "should be at least half the current value 10"),
        ({"background.threads": "0"}, True, "Value must be at least 1"),
        ({"max.connections": "0"}, True, "Invalid max.connections 0"),
    ],
)
def test_what_may_change_while_a_broker_runs(properties: dict[str, str], per_broker: bool, told: str | None) -> None:
    broker = config().with_broker_id(1001)
    problem = dynamic_problem(properties, broker, per_broker=per_broker)
    if told is None:
        assert problem is None
    else:
        assert problem is not None
        assert told in problem
    assert broker.dynamic_own == {}
