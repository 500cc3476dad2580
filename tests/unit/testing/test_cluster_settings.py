"""Settings given while the brokers of a cluster run, brokers that are forgotten, and producers that leaders know."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.admin import ConfigOperation, ConfigResource, NewTopic
from ottla.client.errors import BrokerError, PartlyFailedError, UnknownTopicError
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin, Producer
from ottla.testing import Cluster
from ottla.wire.errors import ErrorCode
from support.waiting import wait_until

pytestmark = pytest.mark.spec("R1")

DEFAULTS = ConfigResource.broker(None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


def in_force(cluster: Cluster, name: str) -> list[int]:
    return [cluster.broker(each).config.get_int(name) for each in cluster.running]


def test_all_brokers_obey_a_default_and_one_its_own(cluster: Cluster, admin: Admin) -> None:
    admin.incremental_alter_configs({DEFAULTS: {"message.max.bytes": "2000000"}})
    cluster.wait_for(lambda: in_force(cluster, "message.max.bytes") == [2_000_000] * 3, "all brokers to obey")
    admin.incremental_alter_configs({ConfigResource.broker(1): {"message.max.bytes": "3000000"}})
    assert in_force(cluster, "message.max.bytes") == [2_000_000, 3_000_000, 2_000_000], "at once where it is changed"
    one = ConfigResource.broker(1)
    entry = admin.describe_configs([one], include_synonyms=True)[one]["message.max.bytes"]
    assert (entry.value, entry.source) == ("3000000", "DYNAMIC_BROKER_CONFIG")
    assert [(each.value, each.source) for each in entry.synonyms] == [
        ("3000000", "DYNAMIC_BROKER_CONFIG"),
        ("2000000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("1048588", "DEFAULT_CONFIG"),
    ]
    # A restart keeps both.
    cluster.kill(1)
    cluster.restart(1)
    cluster.wait_for(lambda: cluster._all_registered() is True, "all brokers to know each other")
    assert cluster.broker(1).config.get_int("message.max.bytes") == 3_000_000
    admin.incremental_alter_configs(
        {one: {"message.max.bytes": None}, DEFAULTS: [ConfigOperation("delete", "message.max.bytes")]}
    )
    cluster.wait_for(lambda: in_force(cluster, "message.max.bytes") == [1_048_588] * 3, "all brokers to obey")


def test_topics_inherit_it_and_unclean_elections_begin(cluster: Cluster, admin: Admin) -> None:
    cluster.create_topic("lost", partitions=1, replication_factor=2)
    leader = cluster.leader("lost")
    (follower,) = set(cluster.replicas("lost")) - {leader}
    cluster.kill(follower)
    wait_until(lambda: cluster.in_sync("lost") == (leader,), "the follower to leave the ISR")
    assert leader is not None
    cluster.kill(leader)
    cluster.restart(follower)
    admin.incremental_alter_configs({DEFAULTS: {"unclean.leader.election.enable": "true"}})
    assert cluster.wait_for_leader("lost") == follower
    cluster.restart(leader)
    cluster.wait_for(lambda: cluster._all_registered() is True, "all brokers to know each other")
    admin.incremental_alter_configs({DEFAULTS: {"unclean.leader.election.enable": None}})
    admin.delete_topics(["lost"])


def test_throttles_are_described_only_where_they_are_set(admin: Admin) -> None:
    name, zero, one = "leader.replication.throttled.rate", ConfigResource.broker(0), ConfigResource.broker(1)
    admin.incremental_alter_configs({zero: {name: "1000"}})
    described = admin.describe_configs([zero, one])
    assert (described[zero][name].value, described[zero][name].type) == ("1000", "LONG")
    assert name not in described[one]
    with pytest.raises(BrokerError, match="Value must be at least 0"):
        admin.incremental_alter_configs({zero: {name: "-1"}})
    admin.incremental_alter_configs({zero: {name: None}})


def test_producers_of_a_partition(cluster: Cluster, admin: Admin) -> None:
    cluster.create_topic("produced", partitions=2)
    known, unknown = TopicPartition("produced", 0), TopicPartition("produced", 1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True) as producer:
        for number in range(3):
            producer.send("produced", b"%d" % number, partition=0).result()
    found = admin.describe_producers([known, unknown])
    assert found[unknown] == []
    (state,) = found[known]
    assert (state.producer_epoch, state.last_sequence, state.coordinator_epoch) == (0, 2, -1)
    assert state.transaction_start_offset == -1
    assert state.last_timestamp > 0
    with pytest.raises(UnknownTopicError):
        admin.describe_producers([TopicPartition("nowhere", 0)])
    with pytest.raises(PartlyFailedError):
        admin.describe_producers([known, TopicPartition("produced", 7)])


def test_a_dead_broker_is_forgotten(cluster: Cluster, admin: Admin) -> None:
    cluster.create_topic("kept", partitions=1, replication_factor=3)

    def refused(broker_id: int) -> BrokerError:
        with pytest.raises(BrokerError) as caught:
            admin.unregister_broker(broker_id)
        return caught.value

    assert "Broker 2 is alive. Stop it first" in str(refused(2))
    assert refused(77).code == ErrorCode.BROKER_ID_NOT_REGISTERED
    admin.incremental_alter_configs({ConfigResource.broker(2): {"log.cleaner.threads": "2"}})
    cluster.kill(2)
    assert "still has replicas of" in str(refused(2))
    admin.delete_topics({"kept", "produced"} & set(admin.list_topics()))
    throttled = {"leader.replication.throttled.replicas": "0:2,0:0", "follower.replication.throttled.replicas": "0:2"}
    admin.create_topics([NewTopic("named", replica_assignments={0: [0]}, configs=throttled)])
    admin.unregister_broker(2)
    topic = ConfigResource.topic("named")
    left = admin.describe_configs([topic])[topic]
    assert left["leader.replication.throttled.replicas"].value == "0:0"
    assert left["follower.replication.throttled.replicas"].source == "DEFAULT_CONFIG"
    assert refused(2).code == ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.restart(2)
    assert cluster.broker(2).config.get_int("log.cleaner.threads") == 1
