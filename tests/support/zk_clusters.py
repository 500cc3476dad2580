"""Brokers with a ZooKeeper that others may go to, too."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from support.waiting import wait_until


class Cluster(NamedTuple):
    """A broker and its ZooKeeper."""

    bootstrap: str
    zookeeper: str
    """As `zookeeper.connect` has it."""

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic and wait until all its partitions have leaders."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)
        self.wait_for_leaders(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """Give the topic more partitions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(120)
        self.wait_for_leaders(topic, partitions)

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        """Until the topic has this many partitions, each with a leader."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})

        def have_leaders() -> bool:
            found = admin.list_topics(topic, 60).topics[topic].partitions
            return len(found) == partitions and all(each.leader >= 0 for each in found.values())

        wait_until(have_leaders, f"leaders of {topic}")

    def produce(self, topic: str, partitions: int, count: int, first: int = 0) -> None:
        """Records numbered from `first` on, dealt to the partitions in turn."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(first, first + count):
            producer.produce(topic, str(number), partition=number % partitions)
        assert producer.flush(120) == 0
