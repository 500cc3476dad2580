"""Settings, messages and descriptions are those of Apache Kafka 3.9.1.

`kafka_3_9_settings.json` is what `KafkaSettings.java settings` prints, `kafka_3_9_messages.json` holds cases with what
`KafkaSettings.java messages` makes of them; where Java is there, both are made again. `kafka_3_9_describe.json` is what
a broker with the properties below answered to DescribeConfigs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig, ConfigRefusal, parse_broker_config
from ottla.config.describe import DescribedConfig, describe_broker, describe_topic
from ottla.config.settings import (
    AUTHORIZER_SETTINGS,
    BROKER_SETTINGS,
    INTERNAL_SETTINGS,
    TOPIC_SETTINGS,
    TOPIC_SYNONYMS,
)
from ottla.config.topic import LogConfig
from support.java import java_tool

FOLDER = Path(__file__).parent
PROGRAM = FOLDER / "KafkaSettings.java"
SETTINGS: dict[str, dict[str, Any]] = json.loads((FOLDER / "kafka_3_9_settings.json").read_text())
#: Scope, names and values in turn, and what Kafka said ("OK" where it took them).
MESSAGES: list[list[str]] = json.loads((FOLDER / "kafka_3_9_messages.json").read_text())
DESCRIBED: dict[str, dict[str, list[Any]]] = json.loads((FOLDER / "kafka_3_9_describe.json").read_text())

PROPERTIES = {
    "broker.id": "7",
    "listeners": "PLAINTEXT://127.0.0.1:52192",
    "log.dirs": "/var/lib/kafka",
    "zookeeper.connect": "127.0.0.1:52181",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.hours": "100",
    "num.partitions": "3",
    "broker.rack": "r1",
}
SOURCES = {1: "DYNAMIC_TOPIC_CONFIG", 4: "STATIC_BROKER_CONFIG", 5: "DEFAULT_CONFIG"}
TYPES = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
#: There Kafka's words are a Java exception's, or it notices later, or the setting is one we refuse for our own reason.
OTHER_WORDS = {
    ("listeners", "PLAINTEXT://h:99999"),  # Kafka notices when it binds.
    ("listeners", "PLAINTEXT://:-1"),
    ("listener.security.protocol.map", "PLAINTEXT"),
    ("listener.security.protocol.map", "A=PLAINTEXT"),
    ("max.connections.per.ip.overrides", "a"),
    ("principal.builder.class", "foo.Bar"),
    ("controller.listener.names", "X"),
    ("controller.quorum.voters", "1@a:1"),
    ("control.plane.listener.name", "X"),
    ("zookeeper.metadata.migration.enable", "true"),
}


def defaults() -> BrokerConfig:
    config = parse_broker_config({})
    assert isinstance(config, BrokerConfig)
    return config


@pytest.mark.parametrize(("ours", "kafka"), [(BROKER_SETTINGS, "broker"), (TOPIC_SETTINGS, "topic")])
def test_every_setting_is_declared_as_kafka_declares_it(ours: dict[str, Any], kafka: str) -> None:
    theirs = SETTINGS[kafka]
    assert {name for name in ours.keys() - AUTHORIZER_SETTINGS if not name.startswith("ottla.")} == set(theirs)
    for name, setting in theirs.items():
        declared = ours[name]
        assert (declared.type, declared.default, declared.importance) == (
            setting["type"],
            setting["default"],
            setting["importance"],
        ), name
        if declared.valid.startswith("[") and name != "group.consumer.migration.policy":
            assert declared.valid == setting["valid"], name
        if kafka == "broker":
            assert declared.update_mode == setting["update_mode"], name
            assert (name in INTERNAL_SETTINGS) == setting["internal"], name


def test_topic_synonyms_are_kafkas() -> None:
    assert {name: list(synonyms) for name, synonyms in TOPIC_SYNONYMS.items()} == SETTINGS["topic_synonyms"]


def is_about_security(problem: str) -> bool:
    return "cannot be served yet" in problem or "cannot be honoured" in problem


def check(result: object, said: str) -> None:
    if said == "OK":
        taken = not isinstance(result, ConfigRefusal)
        assert taken or all(map(is_about_security, result.problems))
    else:
        assert isinstance(result, ConfigRefusal)
        assert said.removeprefix("requirement failed: ") in result.problems


@pytest.mark.parametrize("case", [case for case in MESSAGES if case[0] == "broker"])
def test_a_brokers_values_are_judged_in_kafkas_words(case: list[str]) -> None:
    _, *pairs, said = case
    result = parse_broker_config(dict(zip(pairs[::2], pairs[1::2], strict=True)))
    if tuple(pairs) not in OTHER_WORDS:
        check(result, said)


#: Whether there is tiered storage is the broker's to judge (`test_raw_settings`); the classes alone take it.
OF_THE_BROKER = ("remote.storage.enable", "true")


@pytest.mark.parametrize(
    "case", [case for case in MESSAGES if case[0] == "topic" and tuple(case[1:3]) != OF_THE_BROKER]
)
def test_a_topics_values_are_judged_in_kafkas_words(case: list[str]) -> None:
    _, name, value, said = case
    check(LogConfig.of(defaults(), {name: value}), said)


@pytest.mark.needs_kafka
def test_the_settings_are_those_of_kafkas_jars() -> None:
    assert json.loads(java_tool(str(PROGRAM), "settings").stdout) == SETTINGS


@pytest.mark.needs_kafka
def test_the_messages_are_those_of_kafkas_jars() -> None:
    cases = json.dumps([case[:-1] for case in MESSAGES])
    assert json.loads(java_tool(str(PROGRAM), "messages", stdin=cases).stdout) == [case[-1] for case in MESSAGES]


def as_described(entry: DescribedConfig) -> list[Any]:
    synonyms = [[synonym.name, synonym.value, SOURCES[synonym.source]] for synonym in entry.synonyms]
    return [entry.value, SOURCES[entry.source], TYPES[entry.type], entry.is_sensitive, entry.read_only, synonyms]


def test_a_topic_is_described_as_kafka_describes_it() -> None:
    broker = parse_broker_config(PROPERTIES)
    assert isinstance(broker, BrokerConfig)
    log_config = LogConfig.of(
        broker, {"retention.ms": "1000", "cleanup.policy": "compact,delete", "segment.bytes": "1048576"}
    )
    assert isinstance(log_config, LogConfig)
    ours = {entry.name: as_described(entry) for entry in describe_topic(log_config, broker)}
    assert ours == DESCRIBED["TOPIC:configured"]


def test_a_broker_is_described_as_kafka_describes_it() -> None:
    broker = parse_broker_config(PROPERTIES)
    assert isinstance(broker, BrokerConfig)
    ours = {e.name: as_described(e) for e in describe_broker(broker) if not e.name.startswith("ottla.")}
    assert ours == DESCRIBED["BROKER:7"]
