"""Transactions in a cluster of Apache Kafka and ottla: coordinators and leaders on either side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop.cluster.mixes import ASSIGNMENT
from support.tapped_cluster import TappedCluster
from support.waiting import wait_until

pytestmark = [
    pytest.mark.needs_kafka,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.spec("X1"),
    pytest.mark.spec("X2"),
]

TOPIC = "transacted"
TIMEOUT_S = 60
IDS = 6
SETTINGS = {"transaction.state.log.num.partitions": "6"}
NO_OFFSET = -1001


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[TappedCluster]:
    with TappedCluster(tmp_path, ("apache", "ottla", "ottla"), settings=SETTINGS).prepared() as cluster:
        cluster.start_all()
        yield cluster


def test_either_side_coordinates_what_the_other_leads(mixed: TappedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": mixed.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 3, replica_assignment=ASSIGNMENT)])[TOPIC].result(TIMEOUT_S)
    mixed.wait_for_isr(TOPIC)
    expected = []
    partitions = [TopicPartition(TOPIC, index) for index in range(3)]
    for number in range(IDS):
        name = f"id-{number}"
        writer = Producer({"bootstrap.servers": mixed.bootstrap, "transactional.id": name})
        writer.init_transactions(TIMEOUT_S)
        group = Consumer({"bootstrap.servers": mixed.bootstrap, "group.id": name, "enable.auto.commit": False})
        for is_commit in (False, True):
            writer.begin_transaction()
            for index in range(3):
                value = f"{name} {index} {is_commit}"
                writer.produce(TOPIC, value.encode(), partition=index)
                expected += [value] if is_commit else []
            assert writer.flush(TIMEOUT_S) == 0
            positions = [TopicPartition(TOPIC, index, 10 + index) for index in range(3)]
            writer.send_offsets_to_transaction(positions, group.consumer_group_metadata(), TIMEOUT_S)
            (writer.commit_transaction if is_commit else writer.abort_transaction)(TIMEOUT_S)
            committed = [each.offset for each in group.committed(partitions, TIMEOUT_S)]
            assert committed == ([10, 11, 12] if is_commit else [NO_OFFSET] * 3)
        group.close()
    makers = {mixed.brokers[each].maker for each in coordinators(admin)}
    assert makers == {"apache", "ottla"}, "both sides coordinate"
    reader = Consumer(
        {
            "bootstrap.servers": mixed.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.assign([TopicPartition(TOPIC, index, 0) for index in range(3)])
    found: list[str] = []

    def has_all() -> bool:
        found.extend((each.value() or b"").decode() for each in reader.consume(100, 0.2) if each.error() is None)
        return len(found) >= len(expected)

    wait_until(has_all, "the records of committed transactions")
    reader.close()
    assert sorted(found) == sorted(expected)


def coordinators(admin: AdminClient) -> set[int]:
    """The brokers that lead partitions of the topic of transactions."""
    topic = admin.list_topics("__transaction_state", TIMEOUT_S).topics["__transaction_state"]
    return {each.leader for each in topic.partitions.values()}
