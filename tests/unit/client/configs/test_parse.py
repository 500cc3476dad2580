"""Configurations of clients: names, types, defaults, and what is told of settings that cannot be."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import numpy
import pytest

from ottla.client.configs import (
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    parse_admin_config,
    parse_consumer_config,
    parse_producer_config,
)
from ottla.client.configs.settings import SETTINGS_OF, attribute_of
from ottla.client.errors import ClientError, InvalidConfigError
from ottla.config.settings import REFUSED
from ottla.security.jaas import Login

SERVERS = {"bootstrap.servers": "a:1"}
CONFIGS: dict[str, type[ClientConfig]] = {
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
    "admin": AdminConfig,
}
PARSERS = {"producer": parse_producer_config, "consumer": parse_consumer_config, "admin": parse_admin_config}
TYPES = {"boolean": bool, "int": int, "short": int, "long": int, "double": float, "class": Any}


def producer(config: dict[str, Any] | None = None, **keywords: Any) -> ProducerConfig:
    return parse_producer_config({**SERVERS, **(config or {})}, keywords)


def consumer(config: dict[str, Any] | None = None, **keywords: Any) -> ConsumerConfig:
    return parse_consumer_config({**SERVERS, **(config or {})}, keywords)


def admin(config: dict[str, Any] | None = None, **keywords: Any) -> AdminConfig:
    return parse_admin_config({**SERVERS, **(config or {})}, keywords)


def problems(make: Any, config: dict[str, Any] | None = None, **keywords: Any) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        make(config, **keywords)
    assert isinstance(caught.value, ClientError)
    assert isinstance(caught.value, ValueError)
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize("kind", sorted(CONFIGS))
@pytest.mark.parametrize("text", ["x" * 32_768, "\u00e9" * 16_384])
def test_texts_that_no_request_can_hold(kind: str, text: str) -> None:
    names = {"client.id", "client.rack", "group.id", "group.instance.id", "transactional.id"} & SETTINGS_OF[kind].keys()
    for name in names:
        found = problems(PARSERS[kind], {**SERVERS, name: text}, keywords={})
        assert (
            found == f"{name} has 32768 bytes, and a string of Kafka's protocol has 32767 at most. Give a shorter one."
        )


def test_a_member_s_client_id_leaves_room_for_its_member_id() -> None:
    longest = "c" * (32_767 - 37)
    assert consumer(group_id="g", client_id=longest).client_id == longest
    assert len(consumer(group_id="g" * 32_767, client_id="c").group_id or "") == 32_767
    found = problems(consumer, group_id="g", client_id=longest + "c")
    assert found.startswith("client.id has 32731 bytes; that of a group's member has 32730 at most")
    found = problems(consumer, group_id="g" * 32_767)
    assert found.startswith("group.id is long, and the client.id that is made of it has 327")
    assert found.endswith("Give a client.id, or a shorter group.id.")
    assert consumer(client_id="c" * 32_767).client_id == "c" * 32_767


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_every_setting_has_a_typed_attribute(kind: str) -> None:
    """But for those of security: `tls` has those of TLS, `sasl` those of logins, the others are refused."""
    hints = get_type_hints(CONFIGS[kind])
    settings = {
        attribute_of(name): setting
        for name, setting in SETTINGS_OF[kind].items()
        if not name.startswith(("ssl.", "sasl.kerberos.", "sasl.login.", "sasl.oauthbearer."))
        and (setting.effect != REFUSED or not name.startswith(("sasl.", "security.")))
    }
    assert {field.name for field in fields(CONFIGS[kind])} - {"originals", "sasl", "tls"} == set(settings)
    config = PARSERS[kind]({"bootstrap.servers": "a:1", "client.id": "c"}, {})
    for attribute, setting in settings.items():
        hint, value = hints[attribute], getattr(config, attribute)
        if setting.type in TYPES and attribute != "acks":
            assert hint is TYPES[setting.type], attribute
        if hint in (bool, int, float, str):
            assert type(value) is hint, attribute


def test_names_of_kafka_and_keywords_both_do() -> None:
    config = producer({"linger.ms": "7", "batch_size": 100}, buffer_memory="1000", **{"max.block.ms": 5})
    assert (config.linger_ms, config.batch_size, config.buffer_memory, config.max_block_ms) == (7, 100, 1000, 5)
    assert config.originals["linger.ms"] == "7"


@pytest.mark.parametrize(
    ("given", "expected"),
    [("all", -1), ("-1", -1), (-1, -1), (1, 1), ("1", 1), (0, 0)],
)
def test_acks(given: object, expected: int) -> None:
    assert producer(acks=given).acks == expected


def test_none_is_not_set() -> None:
    config = consumer(group_id=None, max_poll_records=None)
    assert (config.group_id, config.max_poll_records) == (None, 500)


def test_lists_are_texts_or_lists() -> None:
    for servers in ("a:1, b:2", ["a:1", "b:2"], ("a:1", "b:2")):
        config = parse_producer_config({"bootstrap.servers": servers}, {})
        assert config.bootstrap_servers == ("a:1", "b:2")
        assert config.client_settings.bootstrap_servers == "a:1,b:2"


def test_classes_are_taken_as_they_are() -> None:
    class Mine:
        pass

    one = Mine()
    config = consumer(partition_assignment_strategy=[Mine, "range"], interceptor_classes=one, key_deserializer=Mine)
    assert config.partition_assignment_strategy == (Mine, "range")
    assert config.interceptor_classes == (one,)
    assert config.key_deserializer is Mine


@pytest.mark.parametrize("given", [True, "true", "TRUE", " true "])
def test_booleans(given: object) -> None:
    assert consumer(enable_auto_commit=given, group_id="g").enable_auto_commit is True


def test_the_same_twice_is_an_error_where_it_differs() -> None:
    assert producer({"linger.ms": "5"}, linger_ms=5).linger_ms == 5
    assert producer({"acks": "all"}, acks=-1).acks == -1
    assert "linger.ms is given twice with different values, as 5 and 6" in problems(
        producer, {"linger.ms": 5}, linger_ms=6
    )
    assert "my.secret is given twice with different values. Give it once." in problems(
        producer, {"my.secret": "a", "value.serializer": Configurable}, my_secret="b"
    )


class Configurable:
    config_names = ("my.secret",)

    def serialize(self, topic: str, headers: object, data: bytes | None) -> bytes | None:
        return data


def test_none_says_nothing() -> None:
    assert producer({"linger.ms": 5}, linger_ms=None).linger_ms == 5
    assert producer({"linger.ms": None}, linger_ms=5).linger_ms == 5


def test_whole_numbers_of_other_packages() -> None:
    assert producer({"batch.size": numpy.int64(7)}).batch_size == 7
    assert "Invalid value 7.0" in problems(producer, {"batch.size": numpy.float64(7)})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"linger.ms": -5}, ["Invalid value -5 for configuration linger.ms: Value must be at least 0", "milliseconds"]),
        ({"linger.ms": 1.5}, ["linger.ms", "1.5", "whole number of milliseconds from 0 to 9223372036854775807"]),
        ({"linger.ms": True}, ["linger.ms", "True", "whole number"]),
        ({"batch.size": "x"}, ["batch.size", "x", "Not a number of type INT", "bytes", "the default is 16384"]),
        ({"enable.idempotence": "yes"}, ["enable.idempotence", "yes", "Give enable.idempotence True or False"]),
        ({"acks": 2}, ["acks", "2", "one of all, -1, 0, 1"]),
        ({"compression.type": "brotli"}, ["brotli", "one of none, gzip, snappy, lz4, zstd; the default is none"]),
        ({"compression.gzip.level": 0}, ["compression.gzip.level", "1 to 9 or -1"]),
        ({"client.id": 5}, ["client.id", "Expected text, not int"]),
        ({"bootstrap.servers": "a"}, ["bootstrap.servers", "'a' is not of the form host:port"]),
        ({"bootstrap.servers": [1]}, ["bootstrap.servers", "a list"]),
        ({1: 2}, ["the name of a setting is text, not 1"]),
    ],
)
def test_values_that_cannot_be(settings: dict[Any, Any], told: list[str]) -> None:
    message = problems(producer, settings)
    assert [part for part in told if part not in message] == []


@pytest.mark.parametrize(
    ("make", "name", "told"),
    [
        (producer, "linger_msec", "linger.ms (linger_ms)"),
        (producer, "queue.buffering.max.ms", "Kafka's own name is linger.ms (linger_ms)"),
        (producer, "compression.level", "compression.gzip.level (compression_gzip_level) or compression.lz4.level"),
        (producer, "go.delivery.reports", "give send() a callback"),
        (producer, "api_version", "versions are agreed on"),
        (producer, "group.id", "is a setting of consumers, not of producers"),
        (producer, "max_batch_size", "batch.size (batch_size)"),
        (consumer, "consumer_timeout_ms", "give poll() a timeout_ms"),
        (consumer, "fetch.wait.max.ms", "fetch.max.wait.ms (fetch_max_wait_ms)"),
        (producer, "consume.callback.max.messages", "Kafka's own, max.poll.records, is one of consumers"),
        (producer, "ssl.ca.pem", "Kafka's own name is ssl.truststore.certificates"),
        (producer, "ssl.crl.location", "lists of revoked certificates are not read"),
        (consumer, "linger.ms", "is a setting of producers, not of consumers"),
        (consumer, "log_level", "logger"),
        (consumer, "zookeeper.connect", "bootstrap.servers"),
        (admin, "acks", "is a setting of producers, not of admin clients"),
        (admin, "qqqqqqqq", "docs/client-settings.md"),
        (admin, "x" * 100_000, "docs/client-settings.md"),
    ],
)
def test_unknown_names_are_reported_kafkas(make: Any, name: str, told: str) -> None:
    message = problems(make, {name: "1"})
    assert message.startswith(f"{name} is ")
    assert told in message


def test_words_of_other_clients_are_reported_kafkas() -> None:
    assert "Kafka's word for it is 'earliest'" in problems(consumer, {"auto.offset.reset": "smallest"})


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InvalidConfigError, match=r"several problems:\n- .*acks.*\n- linger") as caught:
        producer({"lingerms": 1, "acks": 7})
    assert len(caught.value.problems) == 2


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(InvalidConfigError, match=r"bootstrap\.servers is missing"):
        parse_producer_config(None, {})


@pytest.mark.parametrize(
    ("make", "settings", "told"),
    [
        (producer, {"enable.idempotence": True, "acks": 1}, "acks=1: set acks to all"),
        (producer, {"enable.idempotence": True, "retries": 0}, "retries=0"),
        (producer, {"transactional.id": "t", "enable.idempotence": False}, "transactional.id needs enable.idempotence"),
        (producer, {"transactional.id": "t", "acks": 1}, "transactional.id is not possible with acks=1: set acks to"),
        (producer, {"enable.idempotence": True, "max.in.flight.requests.per.connection": 6}, "set it to 5 at most"),
        (producer, {"delivery.timeout.ms": 1000}, "Raise it to 30000 or more"),
        (producer, {"batch.size": 101, "buffer.memory": 100}, "buffer.memory=100"),
        (producer, {"reconnect.backoff.ms": 9, "reconnect.backoff.max.ms": 8}, "reconnect.backoff.max.ms=8"),
        (consumer, {"session.timeout.ms": 3000, "heartbeat.interval.ms": 3000}, "Lower it to 1000"),
        (consumer, {"heartbeat.interval.ms": 50_000}, "Lower it to 15000"),
        (consumer, {"session.timeout.ms": 1}, "is not shorter than session.timeout.ms=1"),
        (consumer, {"session.timeout.ms": 0}, "session.timeout.ms=0"),
        (consumer, {"heartbeat.interval.ms": 0}, "heartbeat.interval.ms=0"),
        (consumer, {"enable.auto.commit": True}, "Give group.id"),
        (consumer, {"group.instance.id": "i"}, "Give group.id"),
        (consumer, {"group.instance.id": "i/j", "group.id": "g"}, "letters"),
        (consumer, {"group.id": " "}, "group.id is empty"),
        (consumer, {"fetch.min.bytes": 2, "fetch.max.bytes": 1}, "fetch.max.bytes=1"),
        (consumer, {"fetch.max.wait.ms": 30_000}, "request.timeout.ms=30000"),
        (admin, {"default.api.timeout.ms": 10}, "request.timeout.ms=30000"),
    ],
)
def test_contradictions(make: Any, settings: dict[str, Any], told: str) -> None:
    assert told in problems(make, settings)


def test_what_is_not_given_gives_way_to_what_is() -> None:
    assert not producer(acks=1).enable_idempotence
    assert not producer(retries=0).enable_idempotence
    assert not producer(max_in_flight_requests_per_connection=6).enable_idempotence
    assert producer().enable_idempotence
    assert producer(linger_ms=200_000).delivery_timeout_ms == 230_000
    assert producer(buffer_memory=1000).batch_size == 1000
    assert consumer(session_timeout_ms=1500).heartbeat_interval_ms == 500
    assert consumer(request_timeout_ms=400).fetch_max_wait_ms == 200
    assert consumer(fetch_max_bytes=0).fetch_min_bytes == 1
    assert consumer().enable_auto_commit is False
    assert consumer(group_id="g").enable_auto_commit is True
    assert admin(request_timeout_ms=90_000).default_api_timeout_ms == 90_000
    assert producer(reconnect_backoff_ms=500).reconnect_backoff_max_ms == 500
    assert producer(retry_backoff_ms=5_000).retry_backoff_max_ms == 5_000
    assert producer(retry_backoff_max_ms=10).retry_backoff_ms == 10


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (producer, {"sasl.login.class": "x.Y"}),
        (consumer, {"group.protocol": "Consumer"}),
        (consumer, {"group.remote.assignor": "uniform"}),
        (consumer, {"ssl.engine.factory.class": "x.Y"}),
        (admin, {"bootstrap.controllers": "a:1"}),
    ],
)
def test_what_is_not_there_yet_is_refused(make: Any, settings: dict[str, Any]) -> None:
    assert "cannot be honoured" in problems(make, settings)


KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.mark.spec("S2", "S6")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"sasl.mechanism": "EXTERNAL"},
            "sasl.mechanism=EXTERNAL is not supported yet. Set it to one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
            "OAUTHBEARER, GSSAPI.",
        ),
        ({}, "sasl.mechanism=GSSAPI (Kerberos, the default) logs in by sasl.jaas.config alone; give it, or set"),
        ({"sasl.username": "a"}, "logs in by sasl.jaas.config alone"),
        ({"sasl.jaas.config": f"{KERBEROS} useTicketCache=true;"}, "sasl.kerberos.service.name is missing"),
        (
            {"sasl.jaas.config": f"{KERBEROS} useTicketCache=true;", "sasl.kerberos.service.name": "kafka"},
            "SASL by GSSAPI (Kerberos) needs gssapi: pip install 'ottla[kerberos]'.",
        ),
        ({"sasl.mechanism": "PLAIN"}, "the login is missing; give sasl.username and sasl.password"),
        ({"sasl.mechanism": "PLAIN", "sasl.password": "hunter2"}, "sasl.username is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "hunter2;"}, "sasl.jaas.config cannot be read"),
    ],
)
def test_logins_that_are_not_whole(settings: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    found = problems(producer, {"security.protocol": "SASL_PLAINTEXT", **settings})
    assert said in found
    assert "hunter2" not in found


def test_a_login_is_not_shown() -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "amy", "sasl_password": "hunter2"}
    config = producer(security_protocol="SASL_PLAINTEXT", **login)
    assert config.client_settings.sasl.login == Login("amy", "hunter2")
    assert "hunter2" not in repr(config) + repr(config.client_settings)


def a_token() -> str:
    return ""


ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
CREDENTIALS = {
    "sasl.oauthbearer.client.credentials.client.id": "us",
    "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
}


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"sasl_login_callback_handler_class": a_token}, "sasl.login.callback.handler.class"),
        ({"sasl.login.callback.handler.class": f"{__name__}.a_token"}, "sasl.login.callback.handler.class"),
        (CREDENTIALS | {ENDPOINT: "https://h/token?a=b"}, "https://h/token"),
        (
            CREDENTIALS
            | {
                ENDPOINT: "https://h/token",
                "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured."
                "OAuthBearerLoginCallbackHandler",
            },
            "https://h/token",
        ),
        (
            {"sasl.jaas.config": 'a.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="a";'},
            "sasl.jaas.config",
        ),
    ],
)
def test_logins_by_tokens(settings: dict[str, Any], shown: str, caplog: pytest.LogCaptureFixture) -> None:
    config = producer({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, **settings)
    assert config.client_settings.sasl.login.shown == shown
    assert "hunter2" not in repr(config) + repr(config.client_settings)
    assert caplog.text == ""


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, f"OAUTHBEARER needs tokens; set {ENDPOINT}"),
        ({ENDPOINT: "https://h"}, "needs a client id; set sasl.oauthbearer.client.credentials.client.id"),
        ({"sasl.username": "us"}, "sasl.username is not for OAUTHBEARER; give sasl.oauthbearer.client.credentials"),
        ({"sasl.jaas.config": "hunter2;"}, "sasl.jaas.config cannot be read"),
        ({"sasl.login.callback.handler.class": "no.such"}, "no.such cannot be imported"),
        ({"sasl.login.callback.handler.class": "org.apache.kafka.Own"}, "is a Java class without a counterpart here"),
        ({"sasl.login.callback.handler.class": 5}, "give a callable without arguments"),
        ({"sasl.login.class": "a.Login"}, "sasl.login.class=a.Login cannot be honoured: Java classes cannot be loaded"),
        ({"sasl.mechanism": "PLAIN", "sasl.login.callback.handler.class": a_token}, "is for OAUTHBEARER, and sasl.mec"),
        ({"oauth_cb": a_token}, "Kafka's own name is sasl.login.callback.handler.class"),
    ],
)
def test_logins_by_tokens_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    found = problems(producer, {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **settings})
    assert said in found
    assert "hunter2" not in found


def test_a_secret_without_tls_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **CREDENTIALS}
    producer(sasl | {ENDPOINT: "http://127.0.0.1:1/token"})
    assert caplog.text == ""
    producer(sasl | {ENDPOINT: "http://login.example.org/token"})
    assert "is without TLS: the client secret and tokens can be read on the network" in caplog.text


def test_passwords_are_not_shown() -> None:
    assert "hunter2" not in problems(producer, {"ssl.key.password": "hunter2", "ssl.keystore.password": 5})


def test_defaults_of_what_is_refused_are_taken() -> None:
    assert consumer({"security.protocol": "PLAINTEXT", "group.protocol": "CLASSIC"}).group_protocol == "classic"


def test_what_has_no_effect_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    producer({"metrics.recording.level": "DEBUG", "enable.metrics.push": True})
    assert [record.message for record in caplog.records if "no effect" in record.message] == [
        "metrics.recording.level=DEBUG has no effect here: Which metrics are kept; all that there are, always."
    ]


def test_client_ids_are_made_as_java_makes_them() -> None:
    """Counted in the process for each kind of client; consumers of all groups together."""
    first, second = producer().client_id, producer().client_id
    assert first.startswith("producer-")
    assert second == f"producer-{int(first.split('-')[1]) + 1}"
    assert consumer(group_id="g", group_instance_id="i").client_id == "consumer-g-i"
    number = int(consumer(group_id="g").client_id.removeprefix("consumer-g-"))
    assert consumer(group_id="never-used").client_id == f"consumer-never-used-{number + 1}"
    assert consumer().client_id == f"consumer-{number + 2}"
    assert admin().client_id.startswith("adminclient-")
    assert admin(client_id="mine").client_settings.client_id == "mine"


class Own:
    """A class of the user's, with settings of its own."""

    config_names = ("my.url", "my_limit")


def test_classes_may_name_settings_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    for own in (Own, "mine.Own", Own()):
        config = producer({"my.url": "x"}, my_limit=5, interceptor_classes=[own])
        assert (config.originals["my.url"], config.originals["my.limit"]) == ("x", 5)
    told = problems(producer, {"my.urls": "x", "key.serializer": Own, "value.serializer": "mine.Missing"})
    assert told == "my.urls is not a known setting of producers; docs/client-settings.md lists those that there are."


class Forgetful:
    """A serializer of the user's that reads a setting, and does not list it."""

    def configure(self, configs: Mapping[str, object], is_key: bool) -> None:
        self.url = configs["my.url"]

    def serialize(self, topic: str, headers: object, data: bytes | None) -> bytes | None:
        return data


def test_a_setting_that_a_class_of_the_users_does_not_list_says_where_to_list_it() -> None:
    for serializer in (Forgetful, Forgetful()):
        told = problems(producer, {"my.url": "x"}, value_serializer=serializer)
        assert told.endswith("If Forgetful reads it, list it in the class: config_names = ('my.url',).")
    assert "config_names" not in problems(producer, {"my.url": "x"}, value_serializer=str.encode)
    assert "config_names" not in problems(producer, {"queued.min.messages": 1}, value_serializer=Forgetful)


def test_settings_of_serializers_are_known() -> None:
    config = producer({"serializer.encoding": "latin-1"}, key_serializer_encoding="utf-16")
    assert config.originals["key.serializer.encoding"] == "utf-16"
    assert "did you mean" in problems(consumer, {"key.serializer.encoding": "utf-8"})


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_all_defaults_of_kafka_written_out_are_taken_without_a_word(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    written = {name: setting.default for name, setting in SETTINGS_OF[kind].items()}
    extra = {"bootstrap.servers": "a:1", "client.id": "c"} | ({"group.id": "g"} if kind == "consumer" else {})
    config = PARSERS[kind]({**written, **extra}, {})
    assert caplog.records == []
    plain = PARSERS[kind](extra, {})
    assert [
        field.name
        for field in fields(config)
        if field.name != "originals" and getattr(config, field.name) != getattr(plain, field.name)
    ] == []
