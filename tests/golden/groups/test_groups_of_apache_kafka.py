"""Groups change hands with their folder: Apache Kafka's are taken over by us, ours are read by its tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from interop.test_log_directories import register
from support.apache import ApacheKafka, ApacheZooKeeper
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.spec("G12")]

TOPIC = "t"
#: Both brokers have to agree about where groups are.
OFFSETS_TOPIC = {"offsets.topic.num.partitions": "4"}
PARTITIONS = 3
#: Until a broker that has just started leads its partitions, on a busy machine.
LOADED_S = 60.0
#: librdkafka does not always ask again by itself within a request that came too early.
REQUEST_S = 10
NOT_LOADED = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TIMED_OUT)
#: confluent-kafka sends the zero byte behind the text, too, and cuts it off when it reads.
METADATA = "so far\x00"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    zookeeper = ApacheZooKeeper(tmp_path / "zookeeper").start()
    kafka = ApacheKafka(tmp_path / "kafka", zookeeper=zookeeper)
    try:
        yield kafka.start()
    finally:
        kafka.stop()
        zookeeper.stop()


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(30):
        producer.produce(TOPIC, key=str(number), value=str(number), partition=number % PARTITIONS)
    assert producer.flush(120) == 0


def static_member(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "stable",
            "group.instance.id": "instance-1",
            "client.id": "client-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Longer than two JVMs take to start on a busy machine: a member whose session is over joins again.
            "session.timeout.ms": 600_000,
            "max.poll.interval.ms": 600_000,
            "log_level": 0,
        }
    )


def assigned(consumer: Consumer) -> bool:
    consumer.poll(0.1)
    return len(consumer.assignment()) == PARTITIONS


def use_groups(bootstrap: str) -> Consumer:
    """A group with one static member, which is returned, and one that only keeps offsets."""
    make_topic(bootstrap)
    consumer = static_member(bootstrap)
    consumer.subscribe([TOPIC])
    wait_until(lambda: assigned(consumer), "the assignment")
    consumer.commit(offsets=[TopicPartition(TOPIC, 1, 7, metadata="so far")], asynchronous=False)
    simple = Consumer({"bootstrap.servers": bootstrap, "group.id": "simple"})
    simple.commit(offsets=[TopicPartition(TOPIC, 2, 9)], asynchronous=False)
    simple.close()
    return consumer


def test_groups_of_apache_kafka_are_taken_over(kafka: ApacheKafka, tmp_path: Path) -> None:
    member = use_groups(kafka.bootstrap)
    kafka.kill9()
    ours = OttlaServer(tmp_path / "ottla", data=kafka.log_dir, arguments=["--id", str(kafka.broker_id)]).start()
    try:
        expect_groups(ours.bootstrap, {(1, 7, "so far")})
        back = static_member(ours.bootstrap)
        back.subscribe([TOPIC])
        wait_until(lambda: assigned(back), "the static member's old assignment")
        expect_groups(ours.bootstrap, {(1, 7, "so far")})
        back.close()
    finally:
        ours.server.terminate()
        member.close()


def test_groups_of_ours_are_taken_over_by_apache_kafka_and_come_back(tmp_path: Path) -> None:
    """A Stable group with its static member, and one that only keeps offsets, go there with their folder, and back."""
    ours = OttlaServer(tmp_path / "ottla", overrides=OFFSETS_TOPIC, arguments=["--id", "1"])
    zookeeper = ApacheZooKeeper(tmp_path / "zookeeper")
    kafka = ApacheKafka(tmp_path / "kafka", zookeeper=zookeeper, overrides={"log.dirs": str(ours.log_dir)})
    try:
        member = use_groups(ours.start().bootstrap)
        ours.kill9()
        register(zookeeper.start().connect, ours.log_dir)
        kafka.start()
        expect_groups(kafka.bootstrap, {(1, 7, "so far")})
        back = static_member(kafka.bootstrap)
        back.subscribe([TOPIC])
        wait_until(lambda: assigned(back), "the static member's old assignment")
        back.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)
        kafka.kill9()
        ours.restart()
        expect_groups(ours.bootstrap, {(1, 7, "so far"), (0, 3, None)})
        for one in (member, back):
            one.close()
    finally:
        ours.stop()
        kafka.stop()
        zookeeper.stop()


def expect_groups(bootstrap: str, offsets: set[tuple[int, int, str | None]]) -> None:
    """The groups as they were: `stable` with its member and these offsets (partition, offset, metadata)."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    group = when_loaded(lambda: admin.describe_consumer_groups(["stable"], request_timeout=REQUEST_S)["stable"])
    assert group.state is ConsumerGroupState.STABLE
    (described,) = group.members
    assert (described.group_instance_id, described.client_id) == ("instance-1", "client-1")
    assert sorted(tp.partition for tp in described.assignment.topic_partitions) == [0, 1, 2]
    kept = {}
    for name in ("stable", "simple"):
        asked = [ConsumerGroupTopicPartitions(name)]
        found = when_loaded(
            lambda asked=asked, name=name: admin.list_consumer_group_offsets(asked, request_timeout=REQUEST_S)[name]
        )
        kept[name] = {(tp.partition, tp.offset, tp.metadata) for tp in found.topic_partitions}
    assert kept == {"stable": offsets, "simple": {(2, 9, None)}}


def when_loaded(ask: Callable[..., Any]) -> Any:
    """The result of a request about groups. Apache Kafka says that it has started before it leads its partitions."""

    def result() -> Any:
        try:
            return ask().result()
        except KafkaException as error:
            if error.args[0].code() not in NOT_LOADED:
                raise
            return None

    return wait_until(result, "the coordinator", LOADED_S)


def test_groups_of_ours_are_read_by_apache_kafkas_tools(ottla_server: OttlaServer) -> None:
    member = use_groups(ottla_server.bootstrap)
    ottla_server.server.terminate()
    records = []
    for log in sorted(ottla_server.log_dir.glob("__consumer_offsets-*/*.log")):
        if log.stat().st_size:
            told = java_tool("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(log)).stdout
            for line in told.splitlines():
                _, key, rest = line.partition(" key: ")
                if key:
                    decoded, _, payload = rest.partition(" payload: ")
                    records.append((json.loads(decoded), json.loads(payload)))
    offsets = {
        (key["data"]["group"], key["data"]["partition"]): (payload["data"]["offset"], payload["data"]["metadata"])
        for key, payload in records
        if key["type"] == "1"
    }
    assert offsets == {("stable", 1): (7, METADATA), ("simple", 2): (9, "")}
    generations = [payload["data"] for key, payload in records if key["type"] == "2"]
    last = generations[-1]
    assert (last["generation"], last["protocolType"], last["protocol"]) == (1, "consumer", "range")
    assert [m["groupInstanceId"] for m in last["members"]] == ["instance-1"]
    member.close()


#: Both generations of Apache Kafka's formatters: that of the tools, and the coordinator's own, which 3.9 deprecates.
FORMATTERS = {
    "tools": "org.apache.kafka.tools.consumer.{}MessageFormatter",
    "coordinator": "kafka.coordinator.group.GroupMetadataManager${}MessageFormatter",
}


@pytest.mark.parametrize("formatters", sorted(FORMATTERS))
def test_groups_of_ours_are_read_by_apache_kafkas_formatters(tmp_path: Path, formatters: str) -> None:
    """One partition holds all groups, so that the tool can be told how many records there are to read."""
    ours = OttlaServer(tmp_path / "ottla", overrides={"offsets.topic.num.partitions": "1"}).start()
    try:
        member = use_groups(ours.bootstrap)
        count = member.get_watermark_offsets(TopicPartition("__consumer_offsets", 0), 20)[1]

        def told(kind: str) -> str:
            return java_tool(
                "org.apache.kafka.tools.consumer.ConsoleConsumer",
                *("--bootstrap-server", ours.bootstrap, "--topic", "__consumer_offsets", "--partition", "0"),
                *("--offset", "earliest", "--max-messages", str(count)),
                *("--formatter", FORMATTERS[formatters].format(kind)),
            ).stdout

        offsets, generations = told("Offsets"), told("GroupMetadata")
        member.close()
    finally:
        ours.stop()
    if formatters == "coordinator":
        assert "[stable,t,1]::OffsetAndMetadata(offset=7, leaderEpoch=Optional" in offsets
        assert "metadata=so far" in offsets
        assert "[simple,t,2]::OffsetAndMetadata(offset=9, " in offsets
        assert "groupInstanceId=Some(instance-1), clientId=client-1" in generations
        return
    kept = objects(offsets)
    found = {(one["key"]["data"]["group"], one["key"]["data"]["partition"]): one["value"]["data"] for one in kept}
    assert {key: (value["offset"], value["metadata"]) for key, value in found.items()} == {
        ("stable", 1): (7, METADATA),
        ("simple", 2): (9, ""),
    }
    last = objects(generations)[-1]["value"]["data"]
    assert (last["protocolType"], last["generation"], last["protocol"]) == ("consumer", 1, "range")
    assert [one["groupInstanceId"] for one in last["members"]] == ["instance-1"]


def objects(text: str) -> list[Any]:
    """The JSON objects of a text that has nothing between them."""
    found, at = [], 0
    while at < len(text.rstrip()):
        one, at = json.JSONDecoder().raw_decode(text, at)
        found.append(one)
    return found
