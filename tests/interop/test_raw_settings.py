"""Every setting of topics and brokers with good and bad values, side by side with Apache Kafka in ZooKeeper mode."""

from __future__ import annotations

from typing import Any

import pytest

from interop.both_brokers import BrokerPair, Each, differences, scrubbed
from interop.raw import RawConnection
from interop.wire_json import Json
from ottla.config.dynamic import FIXED_AT_START
from ottla.config.settings import BROKER_SETTINGS, REFUSED, TOPIC_SETTINGS
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.spec("L4"), pytest.mark.slow]

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION = 0, 40, 42, 44
VALUES = (
    "x", " x ", "-5", "", " 7 ", "1e3", "5.0", "true", "TRUE", "0", "-1", "1", "99999999999", "99999999999999999999",
    "compact", "a,b", ",", "none", "*", "0:1,,1:1", "1:x", "9.5E400", "NaN", "2.8", "0.5",
)  # fmt: skip
#: Settings without effect here that a part of Apache Kafka's broker looks at, or set to something in the harness.
APART = {
    "log.cleaner.threads", "log.local.retention.ms", "log.local.retention.bytes", "max.connections.per.ip.overrides",
    "metric.reporters", "num.io.threads", "num.network.threads",
}  # fmt: skip


def changed(kind: int, name: Any, *changes: tuple[str, int, str | None]) -> Json:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def replaced(kind: int, name: Any, settings: dict[str, str | None]) -> Json:
    configs = [{"name": key, "value": value} for key, value in settings.items()]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def node_of(raw: RawConnection) -> str:
    answer = raw.request("DescribeCluster", 1, include_cluster_authorized_operations=False, endpoint_type=1)
    return str(answer["brokers"][0]["broker_id"])


@pytest.fixture
def brokers(pair: BrokerPair) -> Each:
    return Each(node_of(pair.ours), node_of(pair.theirs))


def differing(pair: BrokerPair, api: str, version: int, resource: Json, validate_only: bool = True) -> list[str]:
    """How the answers differ but for the names of the brokers."""
    both = pair.ask_each(api, version, resources=[resource], validate_only=validate_only)
    hidden = {"resource_name"}
    return list(differences(scrubbed(both.ours, hidden), scrubbed(both.theirs, hidden)))


def test_values_of_all_settings_of_topics(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    found = {
        (name, operation, value): told
        for name, setting in TOPIC_SETTINGS.items()
        for operation in ((SET, APPEND, SUBTRACT) if setting.type == "list" else (SET,))
        for value in VALUES
        if (told := differing(pair, "IncrementalAlterConfigs", 1, changed(TOPIC, unique, (name, operation, value))))
    }
    assert found == {}


@pytest.mark.parametrize("level", ["one", "all"])
def test_values_of_the_settings_of_brokers(pair: BrokerPair, brokers: Each, level: str) -> None:
    """Those that change while a broker runs, and one of those that do not."""
    name_of_broker = brokers if level == "one" else ""
    settings = [
        setting
        for name, setting in BROKER_SETTINGS.items()
        if (not setting.read_only or name == "broker.id")
        and setting.effect != REFUSED
        and name not in APART | FIXED_AT_START
        and not name.startswith("ottla.")
    ]
    assert len(settings) > 40
    found = {
        (setting.name, value): told
        for setting in settings
        for value in VALUES
        if (
            told := differing(
                pair, "IncrementalAlterConfigs", 1, changed(BROKER, name_of_broker, (setting.name, SET, value))
            )
        )
    }
    assert found == {}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_all_settings_of_brokers_replaced(pair: BrokerPair, brokers: Each, version: int) -> None:
    cases: list[dict[str, str | None]] = [
        {}, {"log.retention.ms": "5000000"}, {"log.retention.ms": None}, {"log.retention.ms": "x"}, {"nonsense": "x"},
        {"broker.id": "4"}, {"log.retention.ms": "5", "message.max.bytes": "-1"}, {},
    ]  # fmt: skip
    found = {
        (str(name), str(case), validate_only): told
        for name in (brokers, "", "zz", "99", "-1", "007", " 1", "+1", "4294967297", "99999999999999999999")
        for case in cases
        for validate_only in (True, False)
        if (told := differing(pair, "AlterConfigs", version, replaced(BROKER, name, case), validate_only))
    }
    assert found == {}


LISTS: dict[str, list[tuple[int, str]]] = {
    "cleanup.policy": [
        (APPEND, ""), (APPEND, ","), (APPEND, "compact,"), (APPEND, ",compact"), (APPEND, "compact,,compact"),
        (APPEND, " compact"), (APPEND, "compact"), (SUBTRACT, ""), (SUBTRACT, "compact"), (SUBTRACT, "delete,,delete"),
        (APPEND, "delete, delete"), (SUBTRACT, "delete"), (SUBTRACT, "compact,delete"), (APPEND, "compact"),
    ],
    "follower.replication.throttled.replicas": [
        (APPEND, ",0:1"), (APPEND, "0:1"), (SUBTRACT, "0:1"), (SUBTRACT, ""), (APPEND, ""), (APPEND, "2:1,,2:1"),
        (SUBTRACT, "2:1"), (APPEND, "0:1,1:1,2:1"), (APPEND, "*"), (SUBTRACT, "0:1,1:1,2:1,2:1"), (SUBTRACT, ",,"),
        (APPEND, "*"), (SUBTRACT, "*"), (APPEND, "0:1"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_lists_grow_and_shrink_alike(pair: BrokerPair, unique: str, name: str) -> None:
    pair.create_topic(unique)
    for operation, value in LISTS[name]:
        told = differing(pair, "IncrementalAlterConfigs", 1, changed(TOPIC, unique, (name, operation, value)), False)
        assert told == [], (operation, value)
        asked = {"resource_type": TOPIC, "resource_name": unique, "configuration_keys": [name]}
        both = pair.ask_each("DescribeConfigs", 4, resources=[asked], include_synonyms=False)
        ours, theirs = ((one["results"][0]["configs"][0]["value"]) for one in (both.ours, both.theirs))
        assert ours == theirs, (operation, value)


def test_tiered_storage_is_refused_for_topics(pair: BrokerPair, unique: str) -> None:
    for number, settings in enumerate(
        (
            {"remote.storage.enable": "true"},
            {"remote.log.copy.disable": "true"},
            {"remote.log.delete.on.disable": "true"},
        )
    ):
        configs = [{"name": name, "value": value} for name, value in settings.items()]
        topic = {"name": f"{unique}{number}", "num_partitions": 1, "replication_factor": 1, "configs": configs}
        answer = pair.check_alike("CreateTopics", 7, topics=[topic], timeout_ms=10_000, validate_only=True)
        assert answer["topics"][0]["error_code"] == INVALID_CONFIG


LEVELS: dict[str, list[tuple[str, int, str | None]]] = {
    "nothing": [],
    "set": [("root", SET, "INFO")],
    "two": [("root", SET, "INFO"), ("nope", SET, "X")],
    "unknown": [("nope", SET, "INFO")],
    "unknown removed": [("nope", DELETE, None)],
    "root removed": [("root", DELETE, None)],
    "lower case": [("root", SET, "info")],
    "no level": [("root", SET, "OFF")],
    "null": [("root", SET, None)],
    "appended": [("root", APPEND, "INFO")],
    "cut": [("nope", SUBTRACT, "INFO")],
    "twice": [("root", SET, "INFO"), ("root", SET, "DEBUG")],
}


@pytest.mark.parametrize("changes", LEVELS.values(), ids=LEVELS)
def test_levels_of_loggers(pair: BrokerPair, brokers: Each, changes: list[tuple[str, int, str | None]]) -> None:
    for name in (brokers, "", "zz"):
        assert differing(pair, "IncrementalAlterConfigs", 1, changed(BROKER_LOGGER, name, *changes)) == []
        settings = {key: value for key, _, value in changes}
        assert differing(pair, "AlterConfigs", 2, replaced(BROKER_LOGGER, name, settings)) == []


def test_loggers_are_described(pair: BrokerPair, brokers: Each) -> None:
    for name in (brokers, "", "zz", "99", "+1"):
        asked = {"resource_type": BROKER_LOGGER, "resource_name": name, "configuration_keys": ["root", "nope"]}
        for version in range(5):
            both = pair.ask_each("DescribeConfigs", version, resources=[asked], include_synonyms=True)
            ours, theirs = (scrubbed(one, {"value", "resource_name"}) for one in (both.ours, both.theirs))
            assert list(differences(ours, theirs)) == []


def found_coordinator(raw: RawConnection, group: str) -> bool:
    return raw.request("FindCoordinator", 1, key=group, key_type=0)["error_code"] == 0


@pytest.mark.parametrize("version", range(3))
def test_records_that_may_not_be_deleted(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique, cleanup_policy="compact")
    # The offsets topic is there once somebody asks for a coordinator.
    for raw in (pair.ours, pair.theirs):
        wait_until(lambda raw=raw: found_coordinator(raw, unique), "the coordinator")
    for name in (unique, "__consumer_offsets", "", "a b"):
        for offset in (0, -1, -2, 5):
            topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": offset}]}]
            pair.check_alike("DeleteRecords", version, topics=topics, timeout_ms=20_000)


def test_records_asked_to_be_deleted_twice(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    one = {"partition_index": 0, "offset": 0}
    for topics in (
        [{"name": unique, "partitions": [one, one]}],
        [{"name": unique, "partitions": [one]}, {"name": unique, "partitions": [one]}],
        [{"name": unique, "partitions": []}],
        [],
    ):
        pair.check_alike("DeleteRecords", 2, topics=topics, timeout_ms=20_000)
