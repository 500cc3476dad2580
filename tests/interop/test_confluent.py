"""confluent-kafka (librdkafka): the client most Python programs use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from support.brokers import RunningBroker
from support.waiting import wait_until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
TIMEOUT_S = 60.0


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def new_topic(admin: AdminClient, unique: str) -> Callable[..., str]:
    """Makes the test's topic: `new_topic(partitions, name=…, **{"retention.ms": "1"})`."""

    def make(partitions: int = 1, name: str = "", **config: str) -> str:
        topic = NewTopic(name or unique, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
        admin.create_topics([topic])[topic.topic].result(TIMEOUT_S)
        return str(topic.topic)

    return make


@pytest.fixture
def make_consumer(broker: RunningBroker, unique: str) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers of the test's group, all closed in the end."""
    made: list[Consumer] = []

    def make(**config: Any) -> Consumer:
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": unique,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        made.append(Consumer(settings | {name.replace("_", "."): value for name, value in config.items()}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def producing(broker: RunningBroker, **config: Any) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "message.timeout.ms": 20_000}
    return Producer(settings | {name.replace("_", "."): value for name, value in config.items()})


def flush(producer: Producer) -> None:
    assert producer.flush(TIMEOUT_S) == 0, "not everything was acknowledged"


def read(consumer: Consumer, count: int, timeout_s: float = TIMEOUT_S) -> list[Any]:
    """The next `count` messages; an AssertionError if they do not come, or one of them is an error."""
    found: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(message)
    assert len(found) == count
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.spec("L2", "L7")
def test_all_parts_of_a_record_survive(broker: RunningBroker, new_topic: Any, make_consumer: Any, codec: str) -> None:
    topic = new_topic()
    records: list[dict[str, Any]] = [
        {"key": b"key", "value": b"value", "timestamp": 1_234_567_890_123},
        {"key": None, "value": b"no key", "timestamp": 1_234_567_890_124},
        {"key": b"no value", "value": None, "timestamp": 1_234_567_890_125},
        {"key": b"", "value": b"", "timestamp": 1},
        {"key": b"k", "value": b"v" * 10_000, "timestamp": 2, "headers": [("a", b"1"), ("a", None), ("ü", b"")]},
    ]
    producer = producing(broker, compression_type=codec)
    for record in records:
        producer.produce(topic, partition=0, **record)
    flush(producer)
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0, 0)])
    for offset, (sent, got) in enumerate(zip(records, read(consumer, len(records)), strict=True)):
        assert (got.key(), got.value(), got.offset()) == (sent["key"], sent["value"], offset)
        assert got.timestamp() == (TIMESTAMP_CREATE_TIME, sent["timestamp"])
        assert got.headers() == sent.get("headers")


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgements(broker: RunningBroker, new_topic: Any, make_consumer: Any, acks: str) -> None:
    topic = new_topic()
    delivered: list[Any] = []
    producer = producing(broker, acks=acks)
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=0, on_delivery=lambda error, m: delivered.append((error, m)))
    flush(producer)
    assert [error for error, _ in delivered] == [None] * 100
    if acks != "0":
        assert [message.offset() for _, message in delivered] == list(range(100))
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [m.value() for m in read(consumer, 100)] == [b"%d" % number for number in range(100)]


@pytest.mark.spec("P5", "L1")
def test_an_idempotent_producer_keeps_order_in_each_partition(
    broker: RunningBroker, new_topic: Any, make_consumer: Any
) -> None:
    topic = new_topic(4)
    producer = producing(broker, enable_idempotence=True, linger_ms=1, batch_num_messages=50)
    for number in range(8000):
        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 37))
        producer.poll(0)
    flush(producer)
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    by_key: dict[bytes, list[int]] = {}
    for message in read(consumer, 8000):
        by_key.setdefault(message.key(), []).append(int(message.value()))
    assert sum(map(len, by_key.values())) == 8000
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_big_records(broker: RunningBroker, new_topic: Any, make_consumer: Any) -> None:
    topic = new_topic(max_message_bytes="6000000")
    value = bytes(range(256)) * 20_000
    producer = producing(broker, message_max_bytes=6_000_000)
    for _ in range(3):
        producer.produce(topic, value)
    flush(producer)
    # The limits are below the size: a fetch brings one batch all the same.
    consumer = make_consumer(fetch_message_max_bytes=1000, fetch_max_bytes=7_000_000, message_max_bytes=6_000_000)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [m.value() == value for m in read(consumer, 3)] == [True] * 3


def test_a_record_too_big_is_refused(broker: RunningBroker, new_topic: Any) -> None:
    topic = new_topic(max_message_bytes="10000")
    told: list[KafkaError] = []
    producer = producing(broker)
    producer.produce(topic, b"x" * 20_000, on_delivery=lambda error, _: told.append(error))
    flush(producer)
    assert [error.code() for error in told] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_an_unknown_topic_is_refused(broker: RunningBroker, make_consumer: Any, unique: str) -> None:
    consumer = make_consumer(allow_auto_create_topics=False)
    consumer.subscribe([unique])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_is_made_by_producing_to_it(broker: RunningBroker, make_consumer: Any, unique: str) -> None:
    producer = producing(broker)
    producer.produce(unique, b"first")
    flush(producer)
    consumer = make_consumer()
    consumer.subscribe([unique])
    assert read(consumer, 1)[0].value() == b"first"


@pytest.mark.spec("L7")
def test_log_append_time(broker: RunningBroker, new_topic: Any, make_consumer: Any) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    producer = producing(broker, compression_type="lz4")
    producer.produce(topic, b"x", timestamp=1)
    flush(producer)
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0, 0)])
    kind, timestamp = read(consumer, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before - 1000 <= timestamp <= int(time.time() * 1000) + 1000


class Group:
    """Consumers of one group, polled in turn by one thread until they agree."""

    def __init__(self, consumers: list[Consumer]) -> None:
        self.consumers = list(consumers)
        self.values: list[bytes] = []

    def owned(self) -> list[set[int]]:
        return [{one.partition for one in consumer.assignment()} for consumer in self.consumers]

    def poll(self) -> None:
        for consumer in self.consumers:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                self.values.append(message.value())

    def wait_until_settled(self, sizes: list[int], partitions: int) -> list[set[int]]:
        """Poll until every partition has one owner and the members own this many each, largest first."""

        def settled() -> bool:
            self.poll()
            owned = self.owned()
            union: set[int] = set().union(*owned)
            total = sum(map(len, owned))
            return total == len(union) == partitions and sorted(map(len, owned), reverse=True) == sizes

        wait_until(settled, lambda: f"the group to settle at {sizes}: {self.owned()}", 30)
        return self.owned()


ASSIGNORS = ["range", "roundrobin", "cooperative-sticky"]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.spec("C6", "C7", "A1", "A2", "A4")
def test_members_come_and_go(broker: RunningBroker, new_topic: Any, make_consumer: Any, assignor: str) -> None:
    topic = new_topic(3)

    def joined() -> Consumer:
        consumer = make_consumer(partition_assignment_strategy=assignor)
        consumer.subscribe([topic])
        return consumer

    group = Group([joined()])
    group.wait_until_settled([3], 3)
    group.consumers.append(joined())
    group.wait_until_settled([2, 1], 3)
    group.consumers.append(joined())
    group.wait_until_settled([1, 1, 1], 3)
    group.consumers.append(joined())
    group.wait_until_settled([1, 1, 1, 0], 3)
    for sizes in ([1, 1, 1], [2, 1], [3]):
        owner = next(number for number, owned in enumerate(group.owned()) if owned)
        group.consumers.pop(owner).close()
        group.wait_until_settled(sizes, 3)
    producer = producing(broker)
    for number in range(30):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    flush(producer)
    wait_until(lambda: group.poll() or len(group.values) == 30, "all records", 20)


@pytest.mark.spec("A4")
def test_cooperative_members_keep_what_they_own(broker: RunningBroker, new_topic: Any, make_consumer: Any) -> None:
    topic = new_topic(4)
    revoked: list[int] = []

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        revoked.extend(one.partition for one in partitions)

    first = make_consumer(partition_assignment_strategy="cooperative-sticky")
    first.subscribe([topic], on_revoke=on_revoke)
    group = Group([first])
    group.wait_until_settled([4], 4)
    second = make_consumer(partition_assignment_strategy="cooperative-sticky")
    second.subscribe([topic])
    group.consumers.append(second)
    owned = group.wait_until_settled([2, 2], 4)
    assert set(revoked) == owned[1]
    assert len(revoked) == 2


@pytest.mark.spec("C5")
def test_groups_do_not_disturb_each_other(
    broker: RunningBroker, new_topic: Any, make_consumer: Any, unique: str
) -> None:
    topic = new_topic(3)
    producer = producing(broker)
    for number in range(60):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    flush(producer)
    for name in ("broadcast-a", "broadcast-b"):
        consumer = make_consumer(group_id=f"{unique}-{name}")
        consumer.subscribe([topic])
        assert len({m.value() for m in read(consumer, 60)}) == 60


@pytest.mark.spec("C3")
def test_a_group_goes_on_where_it_committed(broker: RunningBroker, new_topic: Any, make_consumer: Any) -> None:
    topic = new_topic()
    producer = producing(broker)
    for number in range(20):
        producer.produce(topic, b"%d" % number)
    flush(producer)
    first = make_consumer()
    first.subscribe([topic])
    last = read(first, 8)[-1]
    (done,) = first.commit(message=last, asynchronous=False)
    assert done.error is None
    first.close()
    second = make_consumer()
    second.subscribe([topic])
    assert read(second, 1)[0].value() == b"8"
    (committed,) = second.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    assert committed.offset == 8


@pytest.mark.spec("C3")
def test_auto_commit(broker: RunningBroker, new_topic: Any, make_consumer: Any) -> None:
    topic = new_topic()
    producer = producing(broker)
    for number in range(5):
        producer.produce(topic, b"%d" % number)
    flush(producer)
    consumer = make_consumer(enable_auto_commit=True, auto_commit_interval_ms=100)
    consumer.subscribe([topic])
    read(consumer, 5)

    def committed() -> bool:
        consumer.poll(0.05)
        return bool(consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset == 5)

    wait_until(committed, "the automatic commit")


def test_commits_with_metadata(broker: RunningBroker, new_topic: Any, make_consumer: Any) -> None:
    topic = new_topic(2)
    consumer = make_consumer()
    consumer.commit(offsets=[TopicPartition(topic, 0, 7, metadata="why")], asynchronous=False)
    first, second = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], TIMEOUT_S)
    assert (first.offset, first.metadata) == (7, "why")
    assert second.offset == -1001


@pytest.mark.spec("C1")
def test_seeking_and_times(broker: RunningBroker, new_topic: Any, make_consumer: Any) -> None:
    topic = new_topic()
    producer = producing(broker, linger_ms=0)
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=1_000_000 + number * 1000)
        flush(producer)
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0, 4)])
    assert read(consumer, 1)[0].value() == b"4"
    consumer.seek(TopicPartition(topic, 0, 9))
    assert read(consumer, 1)[0].value() == b"9"
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, 10)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1_002_500)], TIMEOUT_S)
    assert found.offset == 3
    (late,) = consumer.offsets_for_times([TopicPartition(topic, 0, 9_000_000)], TIMEOUT_S)
    assert late.offset == -1


@pytest.mark.spec("C7")
def test_new_partitions_are_consumed(
    broker: RunningBroker, admin: AdminClient, new_topic: Any, make_consumer: Any
) -> None:
    topic = new_topic(1)
    consumer = make_consumer()
    consumer.subscribe([topic])
    group = Group([consumer])
    group.wait_until_settled([1], 1)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
    group.wait_until_settled([4], 4)


@pytest.mark.spec("C7")
def test_new_topics_of_a_pattern_are_consumed(new_topic: Any, make_consumer: Any, unique: str) -> None:
    new_topic(1, name=f"{unique}-first")
    consumer = make_consumer()
    consumer.subscribe([f"^{unique}-.*"])
    wait_until(lambda: consumer.poll(0.05) is None and len(consumer.assignment()) == 1, "the first topic")
    new_topic(1, name=f"{unique}-second")
    wait_until(lambda: consumer.poll(0.05) is None and len(consumer.assignment()) == 2, "the second topic")


def test_a_static_member_returns_without_a_rebalance(
    new_topic: Any, make_consumer: Any, admin: AdminClient, unique: str
) -> None:
    topic = new_topic(2)
    members = [make_consumer(group_instance_id=name) for name in ("one", "two")]
    for member in members:
        member.subscribe([topic])
    before = Group(members).wait_until_settled([1, 1], 2)
    members[0].close()
    again = make_consumer(group_instance_id="one")
    again.subscribe([topic])
    assert Group([again, members[1]]).wait_until_settled([1, 1], 2) == before
    described = admin.describe_consumer_groups([unique])[unique].result(TIMEOUT_S)
    assert {one.group_instance_id for one in described.members} == {"one", "two"}


def test_many_partitions(broker: RunningBroker, new_topic: Any, make_consumer: Any) -> None:
    topic = new_topic(200)
    producer = producing(broker)
    for number in range(2000):
        producer.produce(topic, b"%d" % number, partition=number % 200)
    flush(producer)
    consumer = make_consumer()
    consumer.subscribe([topic])
    assert {int(m.value()) for m in read(consumer, 2000)} == set(range(2000))


def test_topics_are_administered(admin: AdminClient, new_topic: Any) -> None:
    topic = new_topic(3, retention_ms="60000")
    described = admin.list_topics(topic, TIMEOUT_S).topics[topic]
    assert sorted(described.partitions) == [0, 1, 2]
    assert all(one.leader == 1 and one.isrs == [1] for one in described.partitions.values())
    with pytest.raises(KafkaException) as again:
        new_topic(3)
    assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert configs["retention.ms"].value == "60000"
    assert configs["cleanup.policy"].value == "delete"
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    wait_until(lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics, "the end of the topic")


@pytest.mark.spec("L4")
def test_settings_are_changed(admin: AdminClient, new_topic: Any) -> None:
    topic = new_topic(1, delete_retention_ms="60000")

    def described() -> dict[str, ConfigEntry]:
        (told,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        found: dict[str, ConfigEntry] = told.result(TIMEOUT_S)
        return found

    def change(operation: AlterConfigOpType, name: str, value: str | None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (done,) = admin.incremental_alter_configs([resource]).values()
        done.result(TIMEOUT_S)

    change(AlterConfigOpType.SET, "segment.ms", "5000")
    change(AlterConfigOpType.APPEND, "cleanup.policy", "compact")
    assert [described()[name].value for name in ("segment.ms", "cleanup.policy")] == ["5000", "delete,compact"]
    change(AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete")
    change(AlterConfigOpType.DELETE, "segment.ms", None)
    assert [described()[name].value for name in ("segment.ms", "cleanup.policy")] == ["604800000", "compact"]
    with pytest.raises(KafkaException) as refused:
        change(AlterConfigOpType.SET, "retention.ms", "-2")
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        (done,) = admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"flush.ms": "7"})]).values()
    done.result(TIMEOUT_S)
    assert [described()[name].value for name in ("flush.ms", "delete.retention.ms")] == ["7", "86400000"]


def test_the_cluster_is_described(admin: AdminClient, broker: RunningBroker) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [(node.id, node.port) for node in cluster.nodes] == [(1, broker.port)]
    assert cluster.controller.id == 1
    assert cluster.cluster_id


def test_offsets_are_listed_and_records_deleted(broker: RunningBroker, admin: AdminClient, new_topic: Any) -> None:
    topic = new_topic()
    producer = producing(broker)
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=5000 + number)
    flush(producer)
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        found: int = admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset
        return found

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.max_timestamp()) == 9
    assert offset(OffsetSpec.for_timestamp(5003)) == 3
    deleted = admin.delete_records([TopicPartition(topic, 0, 6)])[TopicPartition(topic, 0, 6)].result(TIMEOUT_S)
    assert deleted.low_watermark == 6
    assert offset(OffsetSpec.earliest()) == 6


@pytest.mark.spec("G2")
def test_groups_are_administered(
    broker: RunningBroker, admin: AdminClient, new_topic: Any, make_consumer: Any, unique: str
) -> None:
    topic = new_topic(2)
    consumer = make_consumer(client_id="the client")
    consumer.subscribe([topic])
    Group([consumer]).wait_until_settled([2], 2)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    listed = {one.group_id: one.state for one in admin.list_consumer_groups().result(TIMEOUT_S).valid}
    assert listed[unique] == ConsumerGroupState.STABLE
    described = admin.describe_consumer_groups([unique])[unique].result(TIMEOUT_S)
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (member,) = described.members
    assert member.client_id == "the client"
    assert {one.partition for one in member.assignment.topic_partitions} == {0, 1}
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([unique])[unique].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    consumer.close()
    request = ConsumerGroupTopicPartitions(unique, [TopicPartition(topic, 0, 1)])
    admin.alter_consumer_group_offsets([request])[unique].result(TIMEOUT_S)
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(unique)])
    assert [(one.partition, one.offset) for one in asked[unique].result(TIMEOUT_S).topic_partitions] == [(0, 1)]
    admin.delete_consumer_groups([unique])[unique].result(TIMEOUT_S)
    assert unique not in {one.group_id for one in admin.list_consumer_groups().result(TIMEOUT_S).valid}
