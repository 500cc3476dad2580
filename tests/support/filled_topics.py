"""Topics with given records in each partition, whichever broker keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.client.sync import Admin, Client, Producer
from ottla.records.record import Record
from support.brokers import Bootstrapped
from support.waiting import wait_until

#: Records of tests are as old, or as far in the future, as they like.
ANY_TIME = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}


def fill_topic(
    broker: Bootstrapped,
    topic: str,
    partitions: Sequence[Sequence[Record]],
    *,
    create: bool = True,
    config: Mapping[str, str] | None = None,
    **settings: Any,
) -> None:
    """Make a topic (with `config` beside ANY_TIME) and send records (key, value, timestamp, headers) to its partitions.

    Without `create` the topic is there already. `settings` are the producer's.
    """
    with Client(broker.bootstrap) as client:
        if create:
            client.create_topic(topic, len(partitions), config=ANY_TIME | dict(config or {}))
        with Producer(bootstrap_servers=broker.bootstrap, **({"linger_ms": 5} | settings)) as producer:
            for number, records in enumerate(partitions):
                for record in records:
                    producer.send(topic, record.value, record.key, number, record.timestamp, record.headers)


def add_partitions(broker: Bootstrapped, topic: str, count: int) -> None:
    """Give a topic more partitions, `count` in all, and return when they can be used."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin, Client(broker.bootstrap) as client:
        admin.create_partitions({topic: count})
        wait_until(lambda: client.partitions([topic])[topic] == list(range(count)), f"{count} partitions of {topic}")


def read_topic(broker: Bootstrapped, topic: str) -> list[list[Record]]:
    """All records of a topic, by partition."""
    with Client(broker.bootstrap) as client:
        partitions = [TopicPartition(topic, number) for number in client.partitions([topic])[topic]]
        first, last = client.offsets_at(partitions, EARLIEST), client.offsets_at(partitions, LATEST)
        return [
            [record for batch in client.read_range(each, first[each], last[each]) for record in batch]
            for each in partitions
        ]
