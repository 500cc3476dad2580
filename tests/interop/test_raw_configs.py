"""Changes of settings while the broker runs, side by side with Apache Kafka in ZooKeeper mode."""

from __future__ import annotations

from typing import Any

import pytest

from interop.both_brokers import BrokerPair, Each
from interop.raw import RawConnection
from interop.wire_json import Json
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.spec("L4")]

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE, INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_SERVER_ERROR = 0, 40, 42, -1
#: DescribeConfigs: where a value comes from.
BY_TOPIC, BY_BROKER, BY_DEFAULT = 1, 2, 3

TOPIC_CHANGES: dict[str, list[tuple[str, int, str | None]]] = {
    "nothing": [],
    "set": [("retention.ms", SET, "5")],
    "removed": [("retention.ms", DELETE, None)],
    "removed with a value": [("retention.ms", DELETE, "5")],
    "two": [("retention.ms", SET, "5"), ("segment.ms", SET, "6")],
    "no number": [("retention.ms", SET, "x")],
    "too small": [("retention.ms", SET, "-5")],
    "unknown": [("nonsense", SET, "5")],
    "unknown removed": [("nonsense", DELETE, None)],
    "null": [("retention.ms", SET, None)],
    "nulls": [("retention.ms", SET, None), ("segment.ms", APPEND, None)],
    "appended to no list": [("retention.ms", APPEND, "5")],
    "cut from no list": [("retention.ms", SUBTRACT, "5")],
    "appended": [("cleanup.policy", APPEND, "compact")],
    "appended nonsense": [("cleanup.policy", APPEND, "bogus")],
    "cut": [("cleanup.policy", SUBTRACT, "delete")],
    "twice": [("retention.ms", SET, "5"), ("retention.ms", SET, "6")],
    "conflict": [("min.compaction.lag.ms", SET, "50"), ("max.compaction.lag.ms", SET, "6")],
    "throttled": [("follower.replication.throttled.replicas", APPEND, "0:1")],
    "badly throttled": [("follower.replication.throttled.replicas", SET, "x")],
}
BROKER_CHANGES: dict[str, list[tuple[str, int, str | None]]] = {
    "set": [("log.retention.ms", SET, "5")],
    "no number": [("log.retention.ms", SET, "x")],
    "negative": [("log.retention.ms", SET, "-7")],
    "unknown": [("nonsense", SET, "x")],
    "unknown removed": [("nonsense", DELETE, None)],
    "fixed": [("broker.id", SET, "7")],
    "two fixed": [("broker.id", SET, "7"), ("log.dirs", SET, "x")],
    "security": [("ssl.keystore.type", SET, "JKS")],
    "few threads": [("background.threads", SET, "1")],
    "many threads": [("background.threads", SET, "100")],
    "little memory": [("log.cleaner.dedupe.buffer.size", SET, "100")],
    "too small": [("message.max.bytes", SET, "-1")],
    "appended": [("log.cleanup.policy", APPEND, "compact")],
    "cut": [("log.cleanup.policy", SUBTRACT, "delete")],
    "appended nonsense": [("log.cleanup.policy", APPEND, "bogus")],
    "appended to no list": [("log.retention.ms", APPEND, "4")],
    "not one of": [("log.message.timestamp.type", SET, "zz")],
    "no connections": [("max.connections", SET, "0")],
    "hours": [("log.retention.hours", SET, "1")],
    "no time": [("producer.id.expiration.ms", SET, "0")],
}


def incremental(kind: int, name: Any, changes: list[tuple[str, int, str | None]]) -> Json:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def whole(kind: int, name: Any, settings: dict[str, str | None]) -> Json:
    configs = [{"name": key, "value": value} for key, value in settings.items()]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def node_of(raw: RawConnection) -> str:
    answer = raw.request("DescribeCluster", 1, include_cluster_authorized_operations=False, endpoint_type=1)
    return str(answer["brokers"][0]["broker_id"])


@pytest.fixture
def brokers(pair: BrokerPair) -> Each:
    return Each(node_of(pair.ours), node_of(pair.theirs))


@pytest.fixture
def check_change(pair: BrokerPair) -> Any:
    """Change something on both and compare the answers but for the names of the brokers."""

    def ask(resource: Json, version: int = 1, validate_only: bool = False) -> int:
        answer = pair.check_alike(
            "IncrementalAlterConfigs",
            version,
            ignore={"resource_name"},
            resources=[resource],
            validate_only=validate_only,
        )
        code: int = answer["responses"][0]["error_code"]
        return code

    return ask


@pytest.mark.parametrize("changes", TOPIC_CHANGES.values(), ids=TOPIC_CHANGES)
@pytest.mark.parametrize("validate_only", [True, False])
def test_changes_of_a_topic(
    pair: BrokerPair, unique: str, check_change: Any, changes: Any, validate_only: bool
) -> None:
    pair.create_topic(unique, retention_ms="1000", segment_bytes="100000")
    check_change(incremental(TOPIC, unique, changes), validate_only=validate_only)
    ours = pair.ask_each("DescribeConfigs", 1, resources=[asked(TOPIC, unique)], include_synonyms=True)
    assert set_by(ours.ours, BY_TOPIC) == set_by(ours.theirs, BY_TOPIC)


def asked(kind: int, name: Any) -> Json:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": None}


def set_by(answer: Json, *sources: int) -> list[tuple[str, str | None, int, list[tuple[str, str | None, int]]]]:
    """Name, value, source and synonyms of what comes from these sources."""
    (result,) = answer["results"]
    return sorted(
        (
            each["name"],
            each["value"],
            each["config_source"],
            [(one["name"], one["value"], one["source"]) for one in each["synonyms"]],
        )
        for each in result["configs"]
        if each["config_source"] in sources
    )


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_of_incremental_changes(pair: BrokerPair, unique: str, check_change: Any, version: int) -> None:
    pair.create_topic(unique)
    assert check_change(incremental(TOPIC, unique, [("retention.ms", SET, "7")]), version) == NONE
    assert check_change(incremental(TOPIC, unique, [("retention.ms", SET, "y")]), version) == INVALID_CONFIG


@pytest.mark.parametrize("version", [0, 1, 2])
def test_all_settings_replaced(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique, retention_ms="1000", segment_bytes="100000")
    cases: list[dict[str, str | None]] = [
        {"retention.ms": "5"}, {"retention.ms": None}, {"retention.ms": "x"}, {"nonsense": "x"}, {}
    ]  # fmt: skip
    for validate_only in (True, False):
        for settings in cases:
            pair.check_alike(
                "AlterConfigs", version, resources=[whole(TOPIC, unique, settings)], validate_only=validate_only
            )
            both = pair.ask_each("DescribeConfigs", 1, resources=[asked(TOPIC, unique)], include_synonyms=False)
            assert set_by(both.ours, BY_TOPIC) == set_by(both.theirs, BY_TOPIC)


@pytest.mark.parametrize("kind", [0, 3, 9, CLIENT_METRICS, 32])
def test_kinds_that_have_no_settings(pair: BrokerPair, check_change: Any, kind: int) -> None:
    assert check_change(incremental(kind, "x", [("retention.ms", SET, "5")])) == INVALID_REQUEST
    pair.check_alike("AlterConfigs", 2, resources=[whole(kind, "x", {"a": "b"})], validate_only=False)


@pytest.mark.parametrize("name", ["", "no-such-topic", "a b"])
def test_topics_that_are_not_there(pair: BrokerPair, check_change: Any, name: str) -> None:
    assert check_change(incremental(TOPIC, name, [("retention.ms", SET, "5")])) != NONE
    pair.check_alike("AlterConfigs", 2, resources=[whole(TOPIC, name, {"retention.ms": "5"})], validate_only=False)


def test_a_resource_named_twice(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    resources = [incremental(TOPIC, name, []) for name in (unique, unique, f"{unique}-missing")]
    answer = pair.check_alike("IncrementalAlterConfigs", 1, resources=resources, validate_only=True)
    codes = [one["error_code"] for one in answer["responses"] if one["resource_name"] == unique]
    assert codes == [INVALID_REQUEST, INVALID_REQUEST]


@pytest.mark.parametrize("changes", BROKER_CHANGES.values(), ids=BROKER_CHANGES)
def test_changes_of_a_broker(check_change: Any, brokers: Each, changes: Any) -> None:
    check_change(incremental(BROKER, brokers, changes), validate_only=True)


@pytest.mark.parametrize("changes", BROKER_CHANGES.values(), ids=BROKER_CHANGES)
def test_changes_of_all_brokers(check_change: Any, changes: Any) -> None:
    check_change(incremental(BROKER, "", changes), validate_only=True)


def test_what_only_single_brokers_may_be_given(check_change: Any) -> None:
    for name in ("listeners", "listener.name.plaintext.ssl.keystore.type"):
        assert check_change(incremental(BROKER, "", [(name, SET, "x")]), validate_only=True) == INVALID_REQUEST


def test_a_broker_that_is_none(check_change: Any) -> None:
    assert check_change(incremental(BROKER, "zz", [("log.retention.ms", SET, "5")])) == INVALID_REQUEST


def test_values_come_from_the_topic_the_broker_and_all_brokers(
    pair: BrokerPair, unique: str, check_change: Any, brokers: Each
) -> None:
    pair.create_topic(unique, retention_ms="1000")
    everything = [(BROKER, brokers), (BROKER, ""), (TOPIC, unique)]
    sets = [
        [("log.retention.ms", SET, "500000")],
        [("log.retention.ms", SET, "600000"), ("log.cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "compact")],
    ]
    try:
        for (kind, name), changes in zip(everything, sets, strict=True):
            assert check_change(incremental(kind, name, changes)) == NONE

        def alike() -> bool:
            return all(
                set_by(both.ours, BY_TOPIC, BY_BROKER, BY_DEFAULT)
                == set_by(both.theirs, BY_TOPIC, BY_BROKER, BY_DEFAULT)
                != []
                for kind, name in everything
                for both in [pair.ask_each("DescribeConfigs", 4, resources=[asked(kind, name)], include_synonyms=True)]
            )

        # Apache Kafka's brokers learn of a change from the tree, some time later.
        wait_until(alike, "both to tell the same sources")
    finally:
        check_change(incremental(BROKER, brokers, [("log.retention.ms", DELETE, None)]))
        check_change(
            incremental(BROKER, "", [("log.retention.ms", DELETE, None), ("log.cleanup.policy", DELETE, None)])
        )

    def gone() -> bool:
        # The topic has values of its own, so only the brokers tell theirs.
        return all(
            set_by(answer, BY_BROKER, BY_DEFAULT) == []
            for kind, name in everything[:2]
            for both in [pair.ask_each("DescribeConfigs", 4, resources=[asked(kind, name)], include_synonyms=True)]
            for answer in (both.ours, both.theirs)
        )

    # Otherwise the next topics of these brokers may be compacted.
    wait_until(gone, "the brokers to learn that their own settings are gone")


def test_where_apache_kafka_fails_we_say_what_is_wrong(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    for changes, code, told in (
        ([("nonsense", APPEND, "x")], INVALID_CONFIG, "Unknown topic config name: nonsense"),
        ([("cleanup.policy", 7, "x")], INVALID_REQUEST, "Unknown operation type 7 for config key: cleanup.policy"),
    ):
        resource = incremental(TOPIC, unique, changes)
        both = pair.ask_each("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
        assert both.theirs["responses"][0]["error_code"] == UNKNOWN_SERVER_ERROR
        assert both.ours["responses"][0]["error_code"] == code
        assert both.ours["responses"][0]["error_message"] == told
