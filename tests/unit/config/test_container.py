"""Settings from the variables of a container: those of Testcontainers' modules, of compose files, and mistakes."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.container import ContainerRefusal, ContainerSettings, container_settings, setting_name

pytestmark = pytest.mark.spec("U4")

COMMON = {
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
}
KRAFT = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
}
#: What Testcontainers' modules set for a container that is reached at localhost:32768.
MODULES = {
    "java": {
        **COMMON,
        **KRAFT,
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://0123456789ab:9093",
    },
    "java, with a listener for its network": {
        **COMMON,
        **KRAFT,
        "KAFKA_LISTENERS": "TC-0://kafka:19092,CONTROLLER://:9094,PLAINTEXT://:9092,BROKER://:9093",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
            "CONTROLLER:PLAINTEXT,TC-0:PLAINTEXT,BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
        ),
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://0123456789ab:9093,TC-0://kafka:19092",
    },
    "go": {
        **COMMON,
        **KRAFT,
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
        "KAFKA_REST_BOOTSTRAP_SERVERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
        "KAFKA_BROKER_ID": "1",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://0123456789ab:9092",
    },
    "python": {
        **COMMON,
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_BROKER_ID": "1",
        "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000",
        "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://172.17.0.2:9092",
    },
    "python, KRaft": {
        **COMMON,
        **KRAFT,
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
        "KAFKA_BROKER_ID": "1",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://172.17.0.2:9092",
    },
    "node, KRaft": {
        **COMMON,
        **KRAFT,
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
        "KAFKA_BROKER_ID": "1",
        "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
        "KAFKA_ADVERTISED_LISTENERS": "BROKER://0123456789ab:9092,PLAINTEXT://localhost:32768",
    },
}


def made(environment: dict[str, str]) -> ContainerSettings:
    settings = container_settings(environment)
    assert isinstance(settings, ContainerSettings), settings
    return settings


def config_of(environment: dict[str, str]) -> BrokerConfig:
    config = parse_broker_config(made(environment).settings)
    assert isinstance(config, BrokerConfig), config
    return config


@pytest.mark.parametrize("module", MODULES)
def test_testcontainers(module: str) -> None:
    config = config_of(MODULES[module])
    assert config.broker_id == 1
    assert config.get_int("group.initial.rebalance.delay.ms") == 0
    assert {"PLAINTEXT", "BROKER"} <= {endpoint.listener_name for endpoint in config.listeners}
    assert "CONTROLLER" not in {endpoint.listener_name for endpoint in config.listeners}
    advertised = {endpoint.listener_name: (endpoint.host, endpoint.port) for endpoint in config.advertised}
    assert advertised["PLAINTEXT"] == ("localhost", 32768)
    assert config.inter_broker_listener_name == "BROKER"
    assert [warning for warning in config.warnings if "not a known setting" in warning] == []


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_RETENTION_HOURS", "log.retention.hours"),
        ("KAFKA_OTTLA_LOG_FLUSH_ON_ACK", "ottla.log.flush.on.ack"),
        ("KAFKA_A__B_C___D", "a_b.c-d"),
    ],
)
def test_names(variable: str, name: str) -> None:
    assert setting_name(variable) == name


def test_without_variables_it_is_reached_at_localhost() -> None:
    config = config_of({"PATH": "/bin", "KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_VERSION": "3.9.1"})
    assert [endpoint[2:] for endpoint in config.listeners] == [("", 9092)]
    assert [endpoint[2:] for endpoint in config.advertised] == [("localhost", 9092)]
    assert config.log_dirs == ["/var/lib/kafka/data"]
    assert config.warnings == []


def test_advertised_listeners_alone_say_where_to_listen() -> None:
    config = config_of({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka.example:9095"})
    assert [(endpoint.host, endpoint.port) for endpoint in config.listeners] == [("", 9095)]


def test_what_is_left_out_is_said() -> None:
    assert made(MODULES["java"]).notes == [
        "settings of KRaft are left out: this broker keeps its coordination metadata itself"
    ]
    notes = made(MODULES["python"]).notes
    assert notes == ["KAFKA_ZOOKEEPER_CONNECT=localhost:2181: the broker itself serves its znodes at port 2181"]
    assert config_of(MODULES["python"]).get_int("ottla.zookeeper.port") == 2181


def test_another_zookeeper_is_used() -> None:
    settings = made({"KAFKA_ZOOKEEPER_CONNECT": "zk1:2181,zk2:2181/kafka"}).settings
    assert settings["zookeeper.connect"] == "zk1:2181,zk2:2181/kafka"
    assert "ottla.zookeeper.port" not in settings
    assert "zookeeper.connect" not in made({"KAFKA_ZOOKEEPER_CONNECT": ""}).settings


def test_controllers_are_refused() -> None:
    refusal = container_settings({"KAFKA_PROCESS_ROLES": "controller"})
    assert isinstance(refusal, ContainerRefusal)
    assert refusal.message.startswith("KAFKA_PROCESS_ROLES=controller: ottla has no KRaft controllers")
