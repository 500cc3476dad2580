"""Settings and throttles of a cluster of both makes: Apache Kafka's tools change them, and every broker obeys."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from interop.both_brokers import assert_alike
from ottla.client.admin import ConfigEntry, ConfigOperation, ConfigResource, NewTopic
from ottla.client.errors import BrokerError, UnknownTopicError
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin, Producer
from ottla.testing import Cluster
from support.java import java_tool
from support.tapped_cluster import TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(900), pytest.mark.spec("R1", "R8")]

CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
OTTLA, APACHE = 1, 2
MB = 1_000_000
DEFAULTS = ConfigResource.broker(None)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TappedCluster]:
    """Brokers 1 and 3 of ottla, 2 of Apache Kafka; the first is the controller."""
    with TappedCluster(tmp_path_factory.mktemp("settings"), ("ottla", "apache", "ottla")).prepared() as cluster:
        cluster.start_all()
        yield cluster


@pytest.fixture
def admin(cluster: TappedCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield admin


def entry(admin: Admin, broker: int, name: str) -> ConfigEntry | None:
    one = ConfigResource.broker(broker)
    return admin.describe_configs([one], include_synonyms=True)[one].get(name)


def values(admin: Admin, name: str) -> list[str | None]:
    return [found.value if (found := entry(admin, each, name)) else None for each in (1, 2, 3)]


def configs_tool(cluster: TappedCluster, broker_id: int, *arguments: str) -> str:
    """`kafka-configs.sh`, which asks one broker first."""
    return java_tool(CONFIGS, "--bootstrap-server", cluster.brokers[broker_id].bootstrap, *arguments).stdout


@pytest.mark.parametrize("broker_id", [OTTLA, APACHE], ids=["ottla", "apache"])
def test_all_brokers_obey_a_default_whoever_was_asked(cluster: TappedCluster, admin: Admin, broker_id: int) -> None:
    brokers = ("--entity-type", "brokers")
    default = (*brokers, "--entity-default", "--alter")
    configs_tool(cluster, broker_id, *default, "--add-config", "message.max.bytes=2000000,log.cleaner.backoff.ms=12345")
    wait_until(lambda: values(admin, "message.max.bytes") == ["2000000"] * 3, "all brokers to obey")
    own = (*brokers, "--entity-name", "3", "--alter")
    configs_tool(cluster, broker_id, *own, "--add-config", "message.max.bytes=3000000")
    wait_until(lambda: values(admin, "message.max.bytes") == ["2000000", "2000000", "3000000"], "broker 3 to obey")
    told = configs_tool(cluster, broker_id, *brokers, "--entity-name", "3", "--describe")
    assert "message.max.bytes=3000000" in told
    assert "DYNAMIC_BROKER_CONFIG:message.max.bytes=3000000" in told
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000000" in told
    assert "log.cleaner.backoff.ms=12345" in configs_tool(
        cluster, broker_id, *brokers, "--entity-default", "--describe"
    )
    configs_tool(cluster, broker_id, *own, "--delete-config", "message.max.bytes")
    configs_tool(cluster, broker_id, *default, "--delete-config", "message.max.bytes,log.cleaner.backoff.ms")
    wait_until(lambda: values(admin, "message.max.bytes") == ["1048588"] * 3, "all brokers to obey")


def test_both_describe_throttles_alike_and_only_where_they_are_set(cluster: TappedCluster, admin: Admin) -> None:
    names = ("leader.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second")
    admin.incremental_alter_configs({DEFAULTS: {names[0]: "5000000"}})
    admin.incremental_alter_configs({ConfigResource.broker(each): {names[1]: "7000000"} for each in (OTTLA, APACHE)})
    wait_until(lambda: values(admin, names[0]) == ["5000000"] * 3, "all brokers to obey")
    for name in names:
        ours, theirs = entry(admin, OTTLA, name), entry(admin, APACHE, name)
        assert ours is not None
        assert theirs is not None
        assert_alike(ours._asdict(), theirs._asdict(), name, {"documentation"})
    assert entry(admin, 3, names[1]) is None
    admin.incremental_alter_configs({DEFAULTS: {names[0]: None}})
    admin.incremental_alter_configs({ConfigResource.broker(each): {names[1]: None} for each in (OTTLA, APACHE)})
    wait_until(lambda: values(admin, names[0]) == [None] * 3, "the throttle to be gone")


@pytest.mark.parametrize("broker_id", [OTTLA, APACHE], ids=["ottla", "apache"])
def test_lists_of_topics_grow_and_shrink(cluster: TappedCluster, broker_id: int) -> None:
    name, setting = f"list-{broker_id}", "leader.replication.throttled.replicas"
    with Admin(bootstrap_servers=cluster.brokers[broker_id].bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 3)])
        topic = ConfigResource.topic(name)
        for operation, value in (("append", "0:1,0:2"), ("append", "0:2,0:3"), ("subtract", "0:1")):
            admin.incremental_alter_configs({topic: [ConfigOperation(operation, setting, value)]})
    for each in cluster.brokers.values():
        with Admin(bootstrap_servers=each.bootstrap) as admin:
            wait_until(partial(knows, admin, topic, setting, "0:2,0:3"), "all to know")


def knows(admin: Admin, topic: ConfigResource, setting: str, value: str) -> bool:
    try:
        return admin.describe_configs([topic])[topic][setting].value == value
    except UnknownTopicError:
        return False


def fill(cluster: TappedCluster, topic: str, size: int, record: int) -> None:
    settings = {"max_request_size": 2 * MB, "batch_size": max(record, 50_000), "compression_type": "none"}
    with Producer(bootstrap_servers=cluster.bootstrap, acks=1, **settings) as producer:
        for _ in range(size // record):
            producer.send(topic, bytes(record), partition=0)
        producer.flush()


def size_of(admin: Admin, broker: int, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    directories = admin.describe_log_dirs([broker])[broker].values()
    return sum(each.replicas[partition].size_bytes for each in directories if partition in each.replicas)


def rates(admin: Admin, targets: dict[str, int], size: int) -> dict[str, float]:
    """Bytes a second that each of these topics came at, to the broker that it moves to."""
    begun: dict[str, tuple[float, int]] = {}
    ended: dict[str, tuple[float, int]] = {}

    def look() -> bool:
        for topic, broker in targets.items():
            now_s, there = time.monotonic(), size_of(admin, broker, topic)
            if there and topic not in begun:
                begun[topic] = now_s, there
            if there >= size * 0.95 and topic not in ended:
                ended[topic] = now_s, there
        return len(ended) == len(targets)

    wait_until(look, "all replicas to be copied", 240)
    return {topic: (ended[topic][1] - begun[topic][1]) / (ended[topic][0] - begun[topic][0]) for topic in targets}


def move(cluster: TappedCluster, folder: Path, places: dict[str, int], *options: str) -> Path:
    """Begin to move single partitions to these brokers, with Apache Kafka's tool."""
    moved = [{"topic": name, "partition": 0, "replicas": [broker]} for name, broker in places.items()]
    path = folder / "moves.json"
    path.write_text(json.dumps({"version": 1, "partitions": moved}))
    cluster.tool(REASSIGN, "--execute", "--reassignment-json-file", str(path), *options)
    return path


def test_throttles_are_kept_between_both(cluster: TappedCluster, admin: Admin, tmp_path: Path) -> None:
    """One topic moves to Apache's broker, one away from it: first throttled on both sides, then only at ours."""
    size, limit = 48 * MB, 2 * MB
    places = {"there": OTTLA, "back": APACHE}
    admin.create_topics([NewTopic(name, replica_assignments={0: [broker]}) for name, broker in places.items()])
    fill(cluster, "there", size, 10_000)
    fill(cluster, "back", size, 900_000)
    plan = move(cluster, tmp_path, {"there": APACHE, "back": OTTLA}, "--throttle", str(limit))
    for topic, rate in rates(admin, {"there": APACHE, "back": OTTLA}, size).items():
        # Both sides limit; where one waits, in blocks of half a second, the other does not make up for it.
        print(f"{topic}, throttled on both sides: {rate / limit:.3f} of the limit")
        assert 0.75 * limit < rate < 1.1 * limit, topic
    wait_until(lambda: cluster.partitions("there") == {0: [APACHE]}, "the end of the move", 60)
    wait_until(lambda: cluster.partitions("back") == {0: [OTTLA]}, "the end of the move", 60)
    told = cluster.tool(REASSIGN, "--verify", "--reassignment-json-file", str(plan))
    assert "Clearing broker-level throttles on brokers" in told
    assert values(admin, "leader.replication.throttled.rate") == [None] * 3
    # Back again: our broker leads "back" and follows "there".
    ours = ConfigResource.broker(OTTLA)
    rate_of = {side: f"{side}.replication.throttled.rate" for side in ("leader", "follower")}
    replicas_of = {side: f"{side}.replication.throttled.replicas" for side in ("leader", "follower")}
    admin.incremental_alter_configs({ours: {rate_of["leader"]: str(limit), rate_of["follower"]: str(limit)}})
    admin.incremental_alter_configs({ConfigResource.topic("back"): {replicas_of["leader"]: "*"}})
    admin.incremental_alter_configs({ConfigResource.topic("there"): {replicas_of["follower"]: f"0:{OTTLA}"}})
    wait_until(lambda: entry(admin, OTTLA, rate_of["follower"]) is not None, "the throttle")
    move(cluster, tmp_path, {"there": OTTLA, "back": APACHE})
    for topic, rate in rates(admin, {"there": OTTLA, "back": APACHE}, size).items():
        print(f"{topic}, throttled by ours: {rate / limit:.3f} of the limit")
        assert rate == pytest.approx(limit, rel=0.1), topic


def test_producers_as_apaches_tool_shows_them(cluster: TappedCluster, admin: Admin) -> None:
    shown = {}
    for broker in (OTTLA, APACHE):
        topic = f"produced-{broker}"
        admin.create_topics([NewTopic(topic, replica_assignments={0: [broker]})])
        with Producer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
            for _ in range(3):
                producer.send(topic, b"x", partition=0).result()
        servers = ("--bootstrap-server", cluster.bootstrap)
        told = java_tool(TRANSACTIONS, *servers, "describe-producers", "--topic", topic, "--partition", "0").stdout
        heads, cells = [line.split() for line in told.splitlines() if line.strip()][:2]
        shown[broker] = dict(zip(heads, cells, strict=True))
        assert shown[broker]["LastSequence"] == "2"
    kept = ("ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "CurrentTransactionStartOffset")
    assert [shown[OTTLA][name] for name in kept] == [shown[APACHE][name] for name in kept]


def test_a_dead_broker_is_unregistered(cluster: TappedCluster, admin: Admin) -> None:
    """Our client finds a broker that does it."""
    with pytest.raises(BrokerError, match="Broker 3 is alive"):
        admin.unregister_broker(3)
    held = [name for name in admin.list_topics() if 3 in cluster.partitions(name).get(0, [])]
    admin.delete_topics(held)
    wait_until(lambda: not any(cluster.partitions(name) for name in held), "the end of its replicas", 60)
    admin.incremental_alter_configs({ConfigResource.broker(3): {"log.cleaner.threads": "2"}})
    cluster.brokers[3].stop()
    cluster.wait_until_gone(3)
    admin.unregister_broker(3)
    assert cluster.zk.exists("/config/brokers/3") is None


def test_a_dead_broker_is_unregistered_with_apaches_tool() -> None:
    with Cluster(3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        unregister = (CLUSTER, "unregister", "--bootstrap-server", cluster.bootstrap_servers, "--id", "2")
        alive = java_tool(*unregister, check=False)
        # The tool shows the error's code alone, not our reason.
        assert "Unregister broker request for broker ID 2 failed" in alive.stdout + alive.stderr
        admin.incremental_alter_configs({ConfigResource.broker(2): {"log.cleaner.threads": "2"}})
        cluster.shut_down(2)
        assert "Broker 2 is no longer registered." in java_tool(*unregister).stdout
        again = java_tool(*unregister, check=False)
        assert "The given broker ID was not registered" in again.stdout + again.stderr
