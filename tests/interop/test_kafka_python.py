"""kafka-python 3: pure Python, of its own making throughout."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, NewTopic
from kafka.codec import has_lz4, has_snappy, has_zstd
from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

from support.brokers import RunningBroker
from support.waiting import wait_until

# A client of it that was closed may leave a socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

CODECS = {None: True, "gzip": True, "snappy": has_snappy(), "lz4": has_lz4(), "zstd": has_zstd()}
TIMEOUT_S = 60.0
#: One poll may last so long. It must not end while its consumer joins a group: see FINDINGS.md.
POLL_MS = 60_000


class PollEnded(Exception):
    """Ends a poll, as the WakeupException of Java's consumer does."""


class LongPolling(KafkaConsumer):  # type: ignore[misc]
    """A consumer with Java's `wakeup`: kafka-python has none, and its polls have to be long."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._woken = threading.Event()

    def wakeup(self) -> None:
        """Let the present poll, or the next one, end with PollEnded between two fetches; from any thread."""
        self._woken.set()

    def _poll_once(self, *args: Any, **options: Any) -> Any:
        if self._woken.is_set():
            raise PollEnded
        return super()._poll_once(*args, **options)


@pytest.fixture(autouse=True)
def left_sockets() -> Iterator[None]:
    """Sockets that kafka-python leaves open go here, and not in a test to which the warning would be an error."""
    yield
    gc.collect()


@pytest.fixture
def admin(broker: RunningBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def new_topic(admin: KafkaAdminClient, unique: str) -> Callable[..., str]:
    def make(partitions: int = 1, **config: str) -> str:
        configs = {name.replace("_", "."): value for name, value in config.items()}
        admin.create_topics([NewTopic(unique, partitions, 1, topic_configs=configs)])
        return unique

    return make


@pytest.fixture
def make_producer(broker: RunningBroker) -> Iterator[Callable[..., KafkaProducer]]:
    made: list[KafkaProducer] = []

    def make(**config: Any) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=broker.bootstrap, **config))
        return made[-1]

    yield make
    for producer in made:
        producer.close(timeout=TIMEOUT_S)


@pytest.fixture
def make_consumer(broker: RunningBroker, unique: str) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def make(*topics: str, **config: Any) -> KafkaConsumer:
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap,
            "group_id": unique,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 30_000,
            "metadata_max_age_ms": 1000,
        }
        made.append(consumer := LongPolling(**settings | config))
        # Without, its first join can happen before it knows the topics, and then it may wait for ever (FINDINGS.md).
        for topic in topics:
            consumer.partitions_for_topic(topic)
        if topics:
            consumer.subscribe(topics)
        return consumer

    yield make
    for consumer in made:
        consumer.close(autocommit=False)


def read(consumer: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and (left_s := deadline - time.monotonic()) > 0:
        for records in consumer.poll(left_s * 1000, max_records=count - len(found)).values():
            found += records
    assert len(found) == count
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.spec("L2", "L7")
def test_all_parts_of_a_record_survive(
    new_topic: Any, make_producer: Any, make_consumer: Any, codec: str | None
) -> None:
    if not CODECS[codec]:
        pytest.skip(f"kafka-python has no library for {codec} here")
    topic = new_topic()
    producer = make_producer(compression_type=codec)
    headers = [("a", b"1"), ("a", b""), ("ü", b"2")]
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (b"key", b"value", []),
        (None, b"no key", headers),
        (b"no value", None, []),
        (b"k", b"v" * 10_000, []),
    ]
    for number, (key, value, tags) in enumerate(sent):
        producer.send(topic, value, key, headers=tags, partition=0, timestamp_ms=1000 + number)
    producer.flush(TIMEOUT_S)
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    got = read(consumer, len(sent))
    assert [(one.key, one.value, list(map(tuple, one.headers))) for one in got] == sent
    assert [(one.offset, one.timestamp) for one in got] == [(n, 1000 + n) for n in range(len(sent))]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acknowledgements(new_topic: Any, make_producer: Any, make_consumer: Any, acks: Any) -> None:
    topic = new_topic()
    producer = make_producer(acks=acks, enable_idempotence=False)
    futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(50)]
    producer.flush(TIMEOUT_S)
    if acks != 0:
        assert [future.get(TIMEOUT_S).offset for future in futures] == list(range(50))
    consumer = make_consumer(topic)
    assert [one.value for one in read(consumer, 50)] == [b"%d" % number for number in range(50)]


@pytest.mark.spec("P5")
def test_an_idempotent_producer_keeps_order(new_topic: Any, make_producer: Any, make_consumer: Any) -> None:
    topic = new_topic(3)
    producer = make_producer(enable_idempotence=True, batch_size=500, linger_ms=1)
    for number in range(1500):
        producer.send(topic, b"%d" % number, partition=number % 3)
    producer.flush(TIMEOUT_S)
    numbers: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for one in read(make_consumer(topic), 1500):
        numbers[one.partition].append(int(one.value))
    assert numbers == {partition: list(range(partition, 1500, 3)) for partition in range(3)}


def test_a_record_too_big_is_refused(new_topic: Any, make_producer: Any) -> None:
    topic = new_topic(max_message_bytes="10000")
    with pytest.raises(MessageSizeTooLargeError):
        make_producer(enable_idempotence=False, retries=0).send(topic, b"x" * 20_000).get(TIMEOUT_S)


class Member(threading.Thread):
    """A consumer that polls in a thread of its own until it is told to stop, then leaves the group."""

    def __init__(self, consumer: LongPolling) -> None:
        super().__init__(daemon=True)
        self.consumer = consumer
        self.values: list[bytes] = []
        self.start()

    def run(self) -> None:
        with suppress(PollEnded):
            while True:
                for records in self.consumer.poll(POLL_MS).values():
                    self.values += [one.value for one in records]
        self.consumer.close(autocommit=False)

    def owned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def end(self) -> None:
        self.consumer.wakeup()
        self.join(TIMEOUT_S)
        assert not self.is_alive()


def settle(members: list[Member], sizes: list[int], partitions: int) -> None:
    def settled() -> bool:
        owned = [member.owned() for member in members]
        union: set[int] = set().union(*owned)
        return sum(map(len, owned)) == len(union) == partitions and sorted(map(len, owned), reverse=True) == sizes

    wait_until(settled, lambda: f"{sizes}: {[member.owned() for member in members]}", 30)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@pytest.mark.spec("C6", "A1", "A2", "A3", "A4")
def test_members_come_and_go(new_topic: Any, make_consumer: Any, make_producer: Any, assignor: str) -> None:
    topic = new_topic(3)
    chosen = assignor_class(assignor)
    members: list[Member] = []
    try:
        for sizes in ([3], [2, 1], [1, 1, 1]):
            consumer = make_consumer(topic, partition_assignment_strategy=[chosen])
            # Joining without knowing the topic, kafka-python 3.0.12 may rebalance twice and then never notice that it
            # has been answered, whichever broker it talks to: see FINDINGS.md.
            assert consumer.partitions_for_topic(topic) == {0, 1, 2}
            members.append(Member(consumer))
            settle(members, sizes, 3)
        producer = make_producer()
        for number in range(30):
            producer.send(topic, b"%d" % number, partition=number % 3)
        producer.flush(TIMEOUT_S)
        wait_until(lambda: sum(len(member.values) for member in members) == 30, "all records")
        members.pop(0).end()
        settle(members, [2, 1], 3)
    finally:
        for member in members:
            member.end()


def assignor_class(name: str) -> Any:
    from kafka.coordinator.assignors import cooperative_sticky, range, roundrobin
    from kafka.coordinator.assignors.sticky import sticky_assignor as sticky

    return {
        "range": range.RangePartitionAssignor,
        "roundrobin": roundrobin.RoundRobinPartitionAssignor,
        "sticky": sticky.StickyPartitionAssignor,
        "cooperative-sticky": cooperative_sticky.CooperativeStickyAssignor,
    }[name]


@pytest.mark.spec("C3")
def test_a_group_goes_on_where_it_committed(new_topic: Any, make_producer: Any, make_consumer: Any) -> None:
    topic = new_topic()
    producer = make_producer()
    for number in range(10):
        producer.send(topic, b"%d" % number)
    producer.flush(TIMEOUT_S)
    first = make_consumer(topic)
    read(first, 6)
    partition = TopicPartition(topic, 0)
    first.commit({partition: OffsetAndMetadata(6, "half way", -1)})
    first.close(autocommit=False)
    second = make_consumer(topic)
    assert read(second, 1)[0].value == b"6"
    assert second.committed(partition) == 6


@pytest.mark.spec("C1")
def test_offsets_and_times(new_topic: Any, make_producer: Any, make_consumer: Any) -> None:
    topic = new_topic()
    producer = make_producer(batch_size=0)
    for number in range(10):
        producer.send(topic, b"%d" % number, timestamp_ms=1000 * (number + 1)).get(TIMEOUT_S)
    consumer = make_consumer()
    partition = TopicPartition(topic, 0)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    assert consumer.offsets_for_times({partition: 3500})[partition].offset == 3
    assert consumer.partitions_for_topic(topic) == {0}


def test_topics_are_administered(admin: KafkaAdminClient, new_topic: Any) -> None:
    topic = new_topic(2, retention_ms="60000")
    with pytest.raises(TopicAlreadyExistsError):
        new_topic(2)
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    configs = admin.describe_configs([ConfigResource("topic", topic)])
    assert "60000" in str(configs)
    admin.create_partitions({topic: 5})
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 5
    assert topic in {one if isinstance(one, str) else one["name"] for one in admin.list_topics()}
    admin.delete_topics([topic])
    wait_until(lambda: topic not in str(admin.list_topics()), "the end of the topic")


@pytest.mark.spec("L4")
@pytest.mark.parametrize("incremental", [True, False])
def test_settings_are_changed(admin: KafkaAdminClient, new_topic: Any, incremental: bool) -> None:
    topic = new_topic(1, retention_ms="60000")

    def change(**settings: Any) -> str:
        configs = {name.replace("_", "."): value for name, value in settings.items()}
        return str(admin.alter_configs([ConfigResource("topic", topic, configs)], incremental=incremental))

    def described() -> dict[str, str]:
        entries = admin.describe_configs([ConfigResource("topic", topic)])["topic"][topic]
        return {name: entry["value"] for name, entry in entries.items()}

    change(segment_ms="5000")
    assert (described()["segment.ms"], described()["retention.ms"]) == ("5000", "60000")
    assert "Not a number of type LONG" in change(retention_ms="x")
    if incremental:
        change(cleanup_policy=("APPEND", "compact"), retention_ms=("DELETE", None))
        assert described()["cleanup.policy"] == "delete,compact"
        assert "retention.ms" not in described()


def test_records_are_deleted(admin: KafkaAdminClient, new_topic: Any, make_producer: Any, make_consumer: Any) -> None:
    topic = new_topic()
    producer = make_producer()
    for number in range(10):
        producer.send(topic, b"%d" % number)
    producer.flush(TIMEOUT_S)
    partition = TopicPartition(topic, 0)
    admin.delete_records({partition: 4})
    assert make_consumer().beginning_offsets([partition]) == {partition: 4}


@pytest.mark.spec("G2")
def test_groups_are_administered(
    admin: KafkaAdminClient, new_topic: Any, make_consumer: Any, make_producer: Any, unique: str
) -> None:
    topic = new_topic()
    producer = make_producer()
    producer.send(topic, b"x").get(TIMEOUT_S)
    consumer = make_consumer(topic)
    read(consumer, 1)
    consumer.commit()
    assert unique in str(admin.list_groups())
    described = admin.describe_groups([unique])
    assert "Stable" in str(described)
    offsets = admin.list_group_offsets(unique)
    assert "offset=1" in str(offsets)
    consumer.close(autocommit=False)
    admin.delete_groups([unique])
    assert unique not in str(admin.list_groups())
