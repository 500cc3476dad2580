"""Metadata and the administration of topics: every version, every refusal, side by side with Apache Kafka."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from interop.both_brokers import BrokerPair
from interop.raw import RawConnection
from interop.wire_json import Json
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka]

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
UNKNOWN_TOPIC_ID = 100

#: Names that no topic may have, and one that is just short enough.
BAD_NAMES = ["", ".", "..", "a b", "a/b", "ä", "a" * 250]


def names_of(answer: Json) -> set[str]:
    return {topic["name"] for topic in answer["topics"]}


def only(answer: Json) -> Json:
    (topic,) = answer["topics"]
    return topic


@pytest.mark.parametrize("version", range(13))
def test_a_topic_is_described_alike_in_every_version(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique, partitions=3)
    ours = pair.check_alike("Metadata", version, topics=[{"name": unique}], **later(version))
    assert [one["partition_index"] for one in sorted(only(ours)["partitions"], key=index)] == [0, 1, 2]


def later(version: int) -> Json:
    """Fields that only later versions have and that must not be given to the others."""
    body: Json = {}
    if version >= 4:
        body["allow_auto_topic_creation"] = False
    if version >= 8:
        body["include_topic_authorized_operations"] = True
    if 8 <= version <= 10:
        body["include_cluster_authorized_operations"] = True
    return body


def index(partition: Json) -> int:
    number: int = partition["partition_index"]
    return number


@pytest.mark.parametrize("version", range(4, 13))
def test_an_unknown_topic_is_not_made_unless_allowed(pair: BrokerPair, unique: str, version: int) -> None:
    ours = pair.check_alike("Metadata", version, topics=[{"name": unique}], allow_auto_topic_creation=False)
    assert only(ours)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert only(ours)["partitions"] == []


@pytest.mark.parametrize("version", [0, 1, 3, 4, 12])
def test_an_unknown_topic_is_made_when_allowed(raw: RawConnection, unique: str, version: int) -> None:
    allowed = {"allow_auto_topic_creation": True} if version >= 4 else {}

    def described() -> Json | None:
        topic = only(raw.request("Metadata", version, topics=[{"name": unique}], **allowed))
        # The first answer may come before the topic is ready: every client asks again.
        assert topic["error_code"] in (NONE, UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE)
        return topic if topic["error_code"] == NONE else None

    topic = wait_until(described, "the topic")
    assert [one["partition_index"] for one in topic["partitions"]] == [0]
    assert topic["partitions"][0]["leader_id"] == 1


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("version", [1, 9, 12])
def test_bad_names_are_refused_in_metadata(pair: BrokerPair, name: str, version: int) -> None:
    ours = pair.check_alike("Metadata", version, topics=[{"name": name}])
    assert only(ours)["error_code"] == INVALID_TOPIC


@pytest.mark.parametrize("version", [0, 1, 5, 12])
def test_all_topics(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    # In version 0 an empty list asks for all, later null does.
    answers = pair.ask_each("Metadata", version, topics=[] if version == 0 else None)
    assert unique in names_of(answers.ours)
    assert unique in names_of(answers.theirs)


@pytest.mark.parametrize("version", [1, 5, 12])
def test_no_topics(pair: BrokerPair, version: int) -> None:
    assert pair.check_alike("Metadata", version, topics=[])["topics"] == []


def test_the_same_topic_twice(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    pair.check_alike("Metadata", 9, topics=[{"name": unique}, {"name": unique}])


def test_topics_by_id(pair: BrokerPair, unique: str) -> None:
    made = pair.create_topic(unique)
    ours = pair.check_alike("Metadata", 12, topics=[{"name": None, "topic_id": made}])
    assert only(ours)["name"] == unique
    assert only(ours)["topic_id"] == made.ours


def test_an_unknown_topic_id(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    ours = pair.check_alike("Metadata", 12, topics=[{"name": None, "topic_id": stranger(1)}])
    assert only(ours)["error_code"] == UNKNOWN_TOPIC_ID


def stranger(number: int) -> uuid.UUID:
    return uuid.UUID(int=(1 << 100) + number)


def creation(name: str, **more: Any) -> Json:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, **more}


CREATIONS: dict[str, Json] = {
    "partitions of the default": {"num_partitions": -1, "replication_factor": -1},
    "partitions zero": {"num_partitions": 0},
    "partitions negative": {"num_partitions": -3},
    "replication factor zero": {"replication_factor": 0},
    "replication factor too large": {"replication_factor": 4},
    "unknown config": {"configs": [{"name": "no.such.thing", "value": "1"}]},
    "config out of range": {"configs": [{"name": "segment.bytes", "value": "1"}]},
    "config not a number": {"configs": [{"name": "retention.ms", "value": "soon"}]},
    "config of a list": {"configs": [{"name": "cleanup.policy", "value": "burn"}]},
    "config null": {"configs": [{"name": "retention.ms", "value": None}]},
    "config good": {"configs": [{"name": "retention.ms", "value": "1000"}]},
    "assignment": {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": number, "broker_ids": [1]} for number in (0, 1)],
    },
    "assignment and partitions": {"assignments": [{"partition_index": 0, "broker_ids": [1]}]},
    "assignment with a gap": {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 1, "broker_ids": [1]}],
    },
    "assignment twice the same": {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [1, 1]}],
    },
}


@pytest.mark.parametrize("validate_only", [True, False], ids=["validated", "made"])
@pytest.mark.parametrize("what", CREATIONS)
def test_creating_a_topic(pair: BrokerPair, unique: str, what: str, validate_only: bool) -> None:
    topic = creation(unique, **CREATIONS[what])
    # The answer tells each broker's own defaults too, and a twofold replica in the words of Scala's collections.
    ignore = {"configs", "error_message"} if "twice" in what else {"configs"}
    pair.check_alike("CreateTopics", 7, topics=[topic], timeout_ms=20_000, validate_only=validate_only, ignore=ignore)


def test_a_topic_may_be_assigned_to_a_stranger(pair: BrokerPair, unique: str) -> None:
    """It is there, and gets its leader when that broker is."""
    assignment = {"partition_index": 0, "broker_ids": [77]}
    topic = creation(unique, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    pair.ask_each("CreateTopics", 7, topics=[topic], timeout_ms=1_000)
    ours = pair.check_alike("CreateTopics", 7, topics=[topic], timeout_ms=1_000, ignore={"configs"})
    assert only(ours)["error_code"] == TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("version", range(2, 8))
def test_creating_topics_in_every_version(pair: BrokerPair, unique: str, version: int) -> None:
    topics = [creation(unique), creation(unique + "-bad", replication_factor=9)]
    body: Json = {"topics": topics, "timeout_ms": 20_000}
    pair.check_alike("CreateTopics", version, ignore={"configs"}, **body)
    pair.check_alike("CreateTopics", version, ignore={"configs"}, **body)


@pytest.mark.parametrize("name", [*BAD_NAMES, "a" * 249, "__consumer_offsets"])
def test_creating_a_topic_of_a_bad_name(pair: BrokerPair, name: str) -> None:
    pair.check_alike(
        "CreateTopics", 7, topics=[creation(name)], timeout_ms=20_000, validate_only=True, ignore={"configs"}
    )


def test_creating_a_topic_twice_in_one_request(pair: BrokerPair, unique: str) -> None:
    pair.check_alike(
        "CreateTopics", 7, topics=[creation(unique), creation(unique)], timeout_ms=20_000, ignore={"configs"}
    )


def test_names_that_collide_in_metrics(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique + ".x_y")
    pair.check_alike("CreateTopics", 7, topics=[creation(unique + "_x.y")], timeout_ms=20_000, ignore={"configs"})


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique, partitions=2)
    for count in (3, 3, 2, -1):
        topics = [{"name": unique, "count": count, "assignments": None}]
        pair.check_alike("CreatePartitions", version, topics=topics, timeout_ms=20_000, validate_only=False)
    topics = [{"name": unique + "-none", "count": 4, "assignments": None}]
    pair.check_alike("CreatePartitions", version, topics=topics, timeout_ms=20_000, validate_only=False)


ASSIGNMENTS: dict[str, list[list[int]]] = {
    "one broker each": [[1], [1]],
    "too few": [[1]],
    "a stranger": [[1], [5]],
    "none": [[], []],
    "twice the same": [[1, 1], [1, 1]],
}


@pytest.mark.parametrize("what", ASSIGNMENTS)
def test_partitions_are_added_by_hand(pair: BrokerPair, unique: str, what: str) -> None:
    pair.create_topic(unique, partitions=1)
    assignments = [{"broker_ids": brokers} for brokers in ASSIGNMENTS[what]]
    topics = [{"name": unique, "count": 3, "assignments": assignments}]
    pair.check_alike("CreatePartitions", 3, topics=topics, timeout_ms=20_000, validate_only=False)


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    pair.check_alike("DeleteTopics", version, topic_names=[unique, unique + "-none"], timeout_ms=20_000)


def test_topics_are_deleted_by_id(pair: BrokerPair, unique: str) -> None:
    made = pair.create_topic(unique)
    topics = [{"name": None, "topic_id": made}, {"name": None, "topic_id": stranger(5)}]
    answers = pair.ask_each("DeleteTopics", 6, topics=topics, timeout_ms=20_000)
    told = [
        sorted((one["error_code"], one["name"]) for one in side["responses"]) for side in (answers.ours, answers.theirs)
    ]
    assert told[0] == told[1] == [(NONE, unique), (UNKNOWN_TOPIC_ID, None)]


def test_a_topic_is_made_anew_after_its_deletion(raw: RawConnection, unique: str) -> None:
    for _ in range(3):
        wait_until(lambda: made(raw, unique), "the topic, while the old one is still being deleted")
        raw.request("DeleteTopics", 5, topic_names=[unique], timeout_ms=20_000)

        def gone() -> bool:
            asked = raw.request("Metadata", 9, topics=[{"name": unique}], allow_auto_topic_creation=False)
            return bool(only(asked)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION)

        wait_until(gone, "the end of the topic")


def made(raw: RawConnection, name: str) -> bool:
    error = only(raw.request("CreateTopics", 7, topics=[creation(name)], timeout_ms=20_000))["error_code"]
    assert error in (NONE, TOPIC_ALREADY_EXISTS)
    return bool(error == NONE)


@pytest.mark.parametrize("version", range(2))
def test_the_cluster_is_described(pair: BrokerPair, version: int) -> None:
    ours = pair.check_alike("DescribeCluster", version, include_cluster_authorized_operations=True)
    assert [one["broker_id"] for one in ours["brokers"]] == [1]


TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


@pytest.mark.parametrize("version", range(1, 5))
def test_configs_of_a_topic(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique, retention_ms="123456", cleanup_policy="compact")
    resources = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": unique, "configuration_keys": keys}
        for keys in (["retention.ms", "cleanup.policy", "segment.bytes", "compression.type"],)
    ]
    more = {"include_documentation": False} if version >= 3 else {}
    answers = pair.ask_each("DescribeConfigs", version, resources=resources, include_synonyms=True, **more)
    ours, theirs = (configs_by_name(side) for side in (answers.ours, answers.theirs))
    assert ours == theirs
    assert ours["retention.ms"]["value"] == "123456"


def configs_by_name(answer: Json) -> Json:
    (result,) = answer["results"]
    assert result["error_code"] == NONE, result
    return {config["name"]: config for config in result["configs"]}


def test_all_configs_of_a_topic_have_the_same_names_and_values(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    resources = [{"resource_type": TOPIC_RESOURCE, "resource_name": unique, "configuration_keys": None}]
    answers = pair.ask_each("DescribeConfigs", 4, resources=resources, include_synonyms=False)
    ours, theirs = (
        {name: (one["value"], one["config_type"], one["read_only"]) for name, one in configs_by_name(side).items()}
        for side in (answers.ours, answers.theirs)
    )
    assert ours == theirs


def test_configs_of_the_broker(pair: BrokerPair) -> None:
    resources = [{"resource_type": BROKER_RESOURCE, "resource_name": "1", "configuration_keys": None}]
    answers = pair.ask_each("DescribeConfigs", 4, resources=resources, include_synonyms=False)
    ours, theirs = configs_by_name(answers.ours), configs_by_name(answers.theirs)
    assert set(theirs) <= set(ours)
    for name in ("num.partitions", "log.segment.bytes", "group.max.session.timeout.ms", "message.max.bytes"):
        assert ours[name]["value"] == theirs[name]["value"], name


REFUSED_RESOURCES: dict[str, tuple[int, str]] = {
    "unknown topic": (TOPIC_RESOURCE, "nobody-made-this"),
    "bad topic name": (TOPIC_RESOURCE, "a b"),
    "another broker": (BROKER_RESOURCE, "77"),
    "no broker id": (BROKER_RESOURCE, "seven"),
}


@pytest.mark.parametrize("what", REFUSED_RESOURCES)
def test_configs_of_what_is_not_there(pair: BrokerPair, what: str) -> None:
    kind, name = REFUSED_RESOURCES[what]
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    ours = pair.check_alike("DescribeConfigs", 4, resources=resources)
    assert ours["results"][0]["error_code"] != NONE
