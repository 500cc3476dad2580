"""What prepares and checks the clients' tests: a client of other make, which goes to the broker directly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

TIMEOUT_S = 60.0
#: What librdkafka gives in one call.
MOST_AT_ONCE = 10_000


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """Create a topic; its name."""
    topic = NewTopic(name, partitions, 1, config=dict(config or {}))
    # Its futures end with it.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[name].result(TIMEOUT_S)
    return name


def add_partitions(bootstrap: str, topic: str, count: int) -> None:
    """Let the topic have `count` partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(TIMEOUT_S)


@contextmanager
def reader(bootstrap: str, group: str = "reader") -> Iterator[Consumer]:
    """A consumer that commits nothing of itself."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    try:
        yield consumer
    finally:
        consumer.close()


def values_of(bootstrap: str, topic: str, partition: int) -> list[bytes | None]:
    """All values of a partition, in order."""
    with reader(bootstrap) as consumer:
        asked = TopicPartition(topic, partition)
        _, end = consumer.get_watermark_offsets(asked, TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[bytes | None] = []
        at = 0
        while at < end:
            messages = consumer.consume(min(end - at, MOST_AT_ONCE), 0.2)
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                values.append(message.value())
                at = message.offset() + 1
            if not messages:
                # Batches of control records move the position and give nothing.
                (position,) = consumer.position([asked])
                at = max(at, position.offset)
        return values


def committed(bootstrap: str, group: str, topic: str, count: int) -> dict[int, int]:
    """What the group has committed for the partitions of a topic, those without left out."""
    with reader(bootstrap, group) as consumer:
        told = consumer.committed([TopicPartition(topic, one) for one in range(count)], TIMEOUT_S)
        return {one.partition: one.offset for one in told if one.offset >= 0}


def group_size(bootstrap: str, group: str) -> int:
    """How many members the group has."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (told,) = admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S).values()
    return len(told.result(TIMEOUT_S).members)
