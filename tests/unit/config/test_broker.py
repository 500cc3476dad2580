from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig, ConfigRefusal, parse_broker_config
from ottla.config.describe import describe_broker
from ottla.config.properties import parse_properties
from ottla.config.settings import BROKER_SETTINGS

#: What the server.properties of Apache Kafka 3.9 sets (its comments left out).
SHIPPED = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.segment.bytes=1073741824
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
KRAFT = {"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@localhost:9093"}


def parsed(**settings: str) -> BrokerConfig:
    config = parse_broker_config({name.replace("_", "."): value for name, value in settings.items()})
    assert isinstance(config, BrokerConfig), config
    return config


def problems(properties: dict[str, str], strict: frozenset[str] = frozenset()) -> list[str]:
    refusal = parse_broker_config(properties, strict=strict)
    assert isinstance(refusal, ConfigRefusal)
    return refusal.problems


def test_every_default_is_a_valid_value() -> None:
    config = parsed()
    for name in BROKER_SETTINGS:
        config.value(name)
    assert config.warnings == []


def test_typed_getters() -> None:
    config = parsed(num_partitions=" 4 ", log_cleanup_policy="compact, delete", auto_create_topics_enable="FALSE")
    assert config.get_int("num.partitions") == 4
    assert config.get_long("log.retention.check.interval.ms") == 300_000
    assert config.value("log.cleanup.policy") == ["compact", "delete"]
    assert config.get_boolean("auto.create.topics.enable") is False
    assert config.get_double("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.get_string("compression.type") == "producer"
    assert config.get_string_or_none("broker.rack") is None
    assert config.get_int_or_none("log.retention.ms") is None
    assert config.overridden == {
        "num.partitions": " 4 ",
        "log.cleanup.policy": "compact, delete",
        "auto.create.topics.enable": "FALSE",
    }


@pytest.mark.parametrize(
    ("getter", "name"),
    [("get_int", "log.dirs"), ("get_string", "num.partitions"), ("get_boolean", "num.partitions"),
     ("get_double", "num.partitions"), ("get_string", "broker.rack")],
)  # fmt: skip
def test_asking_for_the_wrong_type_is_a_bug(getter: str, name: str) -> None:
    with pytest.raises(TypeError, match=name.replace(".", r"\.")):
        getattr(parsed(), getter)(name)


def test_the_shipped_server_properties_is_taken() -> None:
    config = parse_broker_config(parse_properties(SHIPPED))
    assert isinstance(config, BrokerConfig)
    assert config.broker_id == 0
    assert config.log_dirs == ["/tmp/kafka-logs"]
    assert config.warnings == []
    assert config.get_string_or_none("zookeeper.connect") == "localhost:2181"
    assert config.get_int_or_none("zookeeper.connection.timeout.ms") == 18_000


def test_unknown_settings_name_the_nearest() -> None:
    config = parse_broker_config({"num.partition": "4"})
    assert isinstance(config, BrokerConfig)
    assert config.warnings == ["num.partition is not a known setting; did you mean num.partitions?"]
    assert problems({"num.partition": "4"}, frozenset({"num.partition"})) == [
        "num.partition is not a known setting; did you mean num.partitions?"
    ]
    assert problems({"zzz": "4"}, frozenset({"zzz"})) == ["zzz is not a known setting; no setting has a name like it."]


def test_a_throttle_in_a_file_says_where_it_is_given() -> None:
    name = "leader.replication.throttled.rate"
    config = parse_broker_config({name: "5"})
    assert isinstance(config, BrokerConfig)
    assert config.warnings == [f"{name} has no effect in a file; set it while the brokers run, with `ottla config set`"]
    refused = parse_broker_config({name: "5"}, strict=[name])
    assert isinstance(refused, ConfigRefusal)
    assert "ottla config set" in refused.problems[0]


def test_a_value_of_one_listener_is_checked_like_one_of_all() -> None:
    name = "listener.name.x.oauthbearer.sasl.oauthbearer.clock.skew.seconds"
    assert problems({name: "x"}) == [f"Invalid value x for configuration {name}: Not a number of type INT"]


def test_all_problems_are_reported_at_once() -> None:
    found = problems({"num.partitions": "0", "fetch.max.bytes": "x", "sasl.login.class": "a.Login"})
    assert len(found) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.engine.factory.class", "a.Factory"),
        ("sasl.jaas.config", "secret"),
        ("sasl.login.class", "a.Login"),
        ("sasl.login.callback.handler.class", "a.Handler"),
        ("sasl.server.callback.handler.class", "a.Handler"),
        ("authorizer.class.name", "org.example.Authorizer"),
        ("authorizer.zookeeper.url", "h:2181"),
        ("process.roles", "broker"),
        ("controller.quorum.voters", "1@h:1"),
        ("create.topic.policy.class.name", "a.Policy"),
        ("zookeeper.metadata.migration.enable", "true"),
        ("remote.log.storage.system.enable", "true"),
        ("listener.name.external.ssl.engine.factory.class", "a.Factory"),
        ("listener.name.external.sasl.login.class", "a.Login"),
        ("replica.selector.class", "org.example.NearestDatacentre"),
    ],
)
def test_what_cannot_be_honoured_refuses_with_cause_and_cure(name: str, value: str) -> None:
    (problem,) = problems({name: value})
    assert problem.startswith(f"{name} cannot be honoured: ")
    cause, _, cure = problem.partition(". ")
    assert len(cause) > len(name) + 30
    assert cure.endswith(".")
    assert "secret" not in problem.removeprefix(name)


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("create.topic.policy.class.name", "a.Policy", "it names a Java class"),
        ("listener.name.external.ssl.engine.factory.class", "a.Factory", "it names a Java class"),
        ("process.roles", "broker", "takes no KRaft role"),
        ("remote.log.storage.system.enable", "true", "tiered storage is not there"),
        ("sasl.jaas.config", "secret", "of one listener and mechanism only"),
        ("sasl.login.class", "a.Login", "PLAIN, SCRAM, OAUTHBEARER and GSSAPI only"),
        ("security.providers", "a.Provider", "it names a Java class"),
        ("zookeeper.ssl.crl.enable", "true", "the revocation of certificates is not checked"),
    ],
)
def test_each_refusal_has_its_own_cause(name: str, value: str, cause: str) -> None:
    (problem,) = problems({name: value})
    assert cause in problem


@pytest.mark.parametrize(
    ("name", "value"),
    [("authorizer.class.name", ""), ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
     ("ssl.client.auth", "none"), ("security.inter.broker.protocol", "PLAINTEXT"),
     ("process.roles", ""), ("sasl.enabled.mechanisms", "GSSAPI"), ("zookeeper.set.acl", "false"),
     ("replica.selector.class", ""),
     ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
     ("replica.selector.class", "org.apache.kafka.common.replica.LeaderSelector")],
)  # fmt: skip
def test_what_changes_nothing_is_not_refused(name: str, value: str) -> None:
    config = parse_broker_config({name: value})
    assert isinstance(config, BrokerConfig)
    assert config.warnings == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("sasl.kerberos.min.time.before.relogin", "58000"),
     ("ssl.provider", "BC"), ("controller.quorum.fetch.timeout.ms", "5000")],
)  # fmt: skip
def test_details_of_features_that_are_off_have_no_effect(name: str, value: str) -> None:
    """They promise nothing by themselves, and Apache Kafka takes them beside PLAINTEXT listeners, too."""
    config = parse_broker_config({name: value})
    assert isinstance(config, BrokerConfig)
    assert config.warnings == [f"{name}={value} has no effect here"]


def test_kraft_roles_refuse() -> None:
    found = problems(KRAFT)
    assert [problem.partition(" ")[0] for problem in found] == ["process.roles", "controller.quorum.voters"]


def test_node_id_alone_is_the_brokers_id() -> None:
    config = parsed(node_id="5")
    assert config.broker_id == 5
    assert config.overridden["broker.id"] == "5"
    assert parsed(broker_id="6").get_int("node.id") == 6


def test_a_found_broker_id() -> None:
    config = parsed(broker_rack="r").with_broker_id(1001)
    assert (config.broker_id, config.get_int("node.id"), config.get_string("broker.rack")) == (1001, 1001, "r")
    assert config.listeners


def test_log_dirs_win_over_log_dir() -> None:
    assert parsed(log_dir="/a").log_dirs == ["/a"]
    assert parsed(log_dir="/a", log_dirs="/b, /c,").log_dirs == ["/b", "/c"]


@pytest.mark.spec("S6")
def test_passwords_are_not_shown() -> None:
    config = parse_broker_config({"ssl.key.password": "hunter2", "sasl.jaas.config": "hunter2"})
    assert "hunter2" not in repr(config)
    config = parse_broker_config({"ssl.key.password": "hunter2"})
    assert isinstance(config, BrokerConfig)
    assert "hunter2" not in f"{config!r} {config.warnings}"


def test_no_address_of_every_interface_is_announced() -> None:
    config = parsed(listeners="A://0.0.0.0:0,B://[::]:9093,C://:9094", **_map("A", "B", "C"))
    announced = config.advertised_endpoints({"A": 41234, "B": 9093, "C": 9094}, "machine.example")
    assert [endpoint.connection_string for endpoint in announced] == [
        "A://machine.example:41234",
        "B://machine.example:9093",
        "C://machine.example:9094",
    ]


def _map(*names: str) -> dict[str, str]:
    return {
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        "inter.broker.listener.name": names[0],
    }


def test_an_advertised_port_of_zero_is_the_bound_one() -> None:
    config = parsed(listeners="PLAINTEXT://127.0.0.1:0", advertised_listeners="PLAINTEXT://public:0")
    (endpoint,) = config.advertised_endpoints({"PLAINTEXT": 5}, "unused")
    assert endpoint.connection_string == "PLAINTEXT://public:5"


@pytest.mark.spec("S1")
def test_listeners_with_logins_want_certificates_by_a_setting_of_their_own() -> None:
    settings = {"listeners": "PLAINTEXT://:1,SSL://:2,SASL_SSL://:3", "ssl.client.auth": "required"}
    own = {"listener.name.sasl_ssl.ssl.client.auth": "requested"}
    for given, wanted in ((settings, "none"), (settings | own, "requested")):
        config = parse_broker_config(given)
        assert isinstance(config, BrokerConfig)
        found = [config.tls_settings(name)["ssl.client.auth"] for name in ("SSL", "SASL_SSL")]
        assert found == ["required", wanted]


@pytest.mark.spec("S1")
def test_a_listener_has_its_own_settings_of_tls_before_those_of_all() -> None:
    config = parse_broker_config(
        {
            "listeners": "PLAINTEXT://:1,OUT://:2,SSL://:3",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SSL,SSL:SSL",
            "ssl.keystore.location": "/all.p12",
            "ssl.keystore.password": "secret",
            "listener.name.out.ssl.keystore.location": "/out.p12",
            "listener.name.out.ssl.client.auth": "required",
            "listener.name.out.ssl.cipher.suites": "A,B",
        }
    )
    assert isinstance(config, BrokerConfig)
    assert config.warnings == []
    out, ssl = config.tls_settings("OUT"), config.tls_settings("SSL")
    assert (out["ssl.keystore.location"], ssl["ssl.keystore.location"]) == ("/out.p12", "/all.p12")
    assert (out["ssl.client.auth"], ssl["ssl.client.auth"]) == ("required", "none")
    assert (out["ssl.cipher.suites"], out["ssl.keystore.password"]) == (["A", "B"], "secret")
    config.set_dynamic({}, {"listener.name.out.ssl.keystore.location": "/new.p12"})
    assert config.tls_settings("OUT")["ssl.keystore.location"] == "/new.p12"
    described = {each.name: each for each in describe_broker(config)}
    assert described["listener.name.out.ssl.keystore.location"].value == "/new.p12"
    assert [each.value for each in described["listener.name.out.ssl.keystore.location"].synonyms] == [
        "/new.p12",
        "/out.p12",
    ]


@pytest.mark.spec("S1")
def test_a_wrong_setting_of_one_listener_is_named() -> None:
    (problem,) = problems({"listener.name.out.ssl.client.auth": "never"})
    assert "never" in problem
    assert "listener.name.out.ssl.client.auth" in problem
