"""The administrator's client against ottla and Apache Kafka, with an event loop and without."""

from __future__ import annotations

import uuid

import pytest

from ottla.client.admin import ConfigOperation, ConfigResource, MemberToRemove, NewPartitions, NewTopic
from ottla.client.errors import BrokerError, PartlyFailedError, TopicExistsError, UnknownTopicError
from ottla.client.model import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAndMetadata, TopicPartition
from support.waiting import wait_until

pytestmark = pytest.mark.slow

T0 = 1_700_000_000_000


@pytest.fixture
def admin(broker, facade):
    with facade.admin(bootstrap_servers=broker.bootstrap) as admin:
        yield admin


@pytest.fixture
def filled(admin, facade, broker, unique):
    """A topic of two partitions with ten records in the first; the timestamp of the fourth is the largest."""
    admin.create_topics([NewTopic(unique, 2, 1)])
    with facade.producer(bootstrap_servers=broker.bootstrap) as producer:
        for at in range(10):
            producer.send(unique, b"%d" % at, partition=0, timestamp=T0 + (100 if at == 3 else at))
    return TopicPartition(unique, 0), TopicPartition(unique, 1)


def test_topics_from_creation_to_deletion(admin, unique):
    first, second, third = (f"{unique}-{each}" for each in "abc")
    topics = [
        NewTopic(first, num_partitions=3, replication_factor=1, configs={"retention.ms": "12345"}),
        NewTopic(second),
        NewTopic(third, replica_assignments={0: [1], 1: [1]}),
    ]
    assert admin.create_topics(topics, validate_only=True).keys() == {first, second, third}
    assert not {first, second, third} & set(admin.list_topics())
    created = admin.create_topics(topics)
    assert (created[first].num_partitions, created[first].replication_factor) == (3, 1)
    assert created[first].configs["retention.ms"].value == "12345"
    assert created[third].num_partitions == 2
    described = admin.describe_topics([first, third])
    assert [each.partition for each in described[first].partitions] == [0, 1, 2]
    assert {each.leader for each in described[third].partitions} == {1}
    assert described[first].topic_id == created[first].topic_id
    assert admin.list_topics(f"{unique}-.*") == [first, second, third]

    with pytest.raises(TopicExistsError):
        admin.create_topics([NewTopic(first)])
    with pytest.raises(PartlyFailedError) as caught:
        admin.create_topics([NewTopic(f"{unique}-d"), NewTopic(second), NewTopic(f"{unique}-e", 1, 99)])
    assert caught.value.values.keys() == {f"{unique}-d"}
    assert {name: error.name for name, error in caught.value.errors.items()} == {
        second: "TOPIC_ALREADY_EXISTS",
        f"{unique}-e": "INVALID_REPLICATION_FACTOR",
    }

    admin.create_partitions({first: 5, second: NewPartitions(2, [[1]])})
    wait_until(lambda: len(admin.describe_topics([first])[first].partitions) == 5, "five partitions")
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        admin.create_partitions({first: 2})

    admin.delete_topics(topic_ids=[created[first].topic_id])
    admin.delete_topics([second, f"{unique}-d"])
    wait_until(lambda: admin.list_topics(f"{unique}-.*") == [third], "only the third topic")
    with pytest.raises(UnknownTopicError, match=f"did you mean {third}"):
        admin.delete_topics([first[:-1] + "C"])
    with pytest.raises(UnknownTopicError):
        admin.delete_topics(topic_ids=[uuid.uuid4()])


def test_settings_of_topics_and_brokers(admin, unique):
    admin.create_topics([NewTopic(unique, 1, 1, configs={"cleanup.policy": "compact"})])
    topic, broker = ConfigResource.topic(unique), ConfigResource.broker(1)
    admin.incremental_alter_configs(
        {topic: [ConfigOperation("append", "cleanup.policy", "delete"), ConfigOperation("set", "retention.ms", "77")]}
    )
    found = admin.describe_configs([topic, broker], include_synonyms=True, include_documentation=True)
    retention = found[topic]["retention.ms"]
    assert (retention.value, retention.source, retention.type) == ("77", "DYNAMIC_TOPIC_CONFIG", "LONG")
    assert retention.documentation
    assert retention.synonyms[0].source == "DYNAMIC_TOPIC_CONFIG"
    assert found[topic]["cleanup.policy"].value == "compact,delete"
    assert found[topic]["segment.bytes"].is_default
    assert found[broker]["broker.id"].is_read_only

    admin.incremental_alter_configs({topic: {"retention.ms": None}})
    assert admin.describe_configs([topic])[topic]["retention.ms"].source != "DYNAMIC_TOPIC_CONFIG"
    admin.alter_configs({topic: {"retention.ms": "88"}})
    now = admin.describe_configs([topic])[topic]
    assert (now["retention.ms"].value, now["cleanup.policy"].value) == ("88", "delete")
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        admin.incremental_alter_configs({topic: {"retention.ms": "soon"}}, validate_only=True)
    with pytest.raises(UnknownTopicError):
        admin.describe_configs([ConfigResource.topic(f"{unique}-not-there")])


def test_offsets_and_deletion_of_records(admin, filled):
    full, empty = filled
    asked = {full: EARLIEST, empty: LATEST}
    assert {each: found.offset for each, found in admin.list_offsets(asked).items()} == {full: 0, empty: 0}
    assert admin.list_offsets({full: LATEST}, isolation_level="read_committed")[full].offset == 10
    assert admin.list_offsets({full: T0 + 5})[full][:2] == (3, T0 + 100)
    assert admin.list_offsets({full: MAX_TIMESTAMP})[full][:2] == (3, T0 + 100)
    assert admin.list_offsets({full: T0 + 500})[full].offset == -1

    assert admin.delete_records({full: 4}) == {full: 4}
    assert admin.list_offsets({full: EARLIEST})[full].offset == 4
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        admin.delete_records({full: 11})
    with pytest.raises(PartlyFailedError) as caught:
        admin.delete_records({full: -1, TopicPartition(full.topic, 7): 0})
    assert caught.value.values == {full: 10}
    [error] = caught.value.errors.values()
    assert "has no partition 7" in str(error)


def test_groups_and_their_offsets(admin, facade, broker, filled, unique):
    full, empty = filled
    admin.alter_group_offsets(unique, {full: 3, empty: OffsetAndMetadata(0, "text")})
    assert admin.list_group_offsets(unique) == {full: OffsetAndMetadata(3), empty: OffsetAndMetadata(0, "text")}
    assert admin.list_group_offsets(unique, [full]) == {full: OffsetAndMetadata(3)}
    listed = {each.group_id: each for each in admin.list_groups(states=["Empty"])}
    assert listed[unique].state == "Empty"
    admin.delete_group_offsets(unique, [empty])
    assert admin.list_group_offsets(unique) == {full: OffsetAndMetadata(3)}

    settings = {"bootstrap.servers": broker.bootstrap, "group.id": unique, "group.instance.id": f"{unique}-i"}
    with facade.consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([full.topic])
        wait_until(lambda: consumer.poll(timeout_ms=100), "records of the group")
        described = admin.describe_groups([unique, f"{unique}-other"])
        assert (described[unique].state, described[f"{unique}-other"].state) == ("Stable", "Dead")
        [member] = described[unique].members
        assert (member.group_instance_id, member.partitions) == (f"{unique}-i", (full, empty))
        with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
            admin.delete_groups([unique])
        with pytest.raises(BrokerError, match="GROUP_SUBSCRIBED_TO_TOPIC"):
            admin.delete_group_offsets(unique, [full])
        with pytest.raises(BrokerError, match="only they may commit"):
            admin.alter_group_offsets(unique, {full: 1})
        with pytest.raises(PartlyFailedError, match="UNKNOWN_MEMBER_ID"):
            admin.remove_members_from_group(unique, [MemberToRemove(member_id="nobody"), f"{unique}-i"])
    admin.remove_members_from_group(unique)
    assert admin.describe_groups([unique])[unique].state == "Empty"
    with pytest.raises(PartlyFailedError, match="GROUP_ID_NOT_FOUND"):
        admin.delete_groups([unique, f"{unique}-other"])
    assert unique not in {each.group_id for each in admin.list_groups()}


def test_the_cluster_and_its_directories(admin, broker, filled):
    cluster = admin.describe_cluster()
    assert cluster.controller in cluster.nodes
    assert [f"{node.host}:{node.port}" for node in cluster.nodes if node.node_id == 1] == [broker.bootstrap]
    [folders] = admin.describe_log_dirs([1]).values()
    [sizes] = [folder.replicas for folder in folders.values() if filled[0] in folder.replicas]
    assert sizes[filled[0]].size_bytes > 0
    assert all(folder.error is None for folder in folders.values())
    assert admin.describe_log_dirs().keys() == {node.node_id for node in cluster.nodes}
