"""A cluster of Apache Kafka 3.9.1 becomes one of ottla, broker by broker and under load, and back (docs/cluster.md).

Each broker is stopped in order, and one of the other make is started with its id, its ports and its log directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop.cluster.mixes import ASSIGNMENT
from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import OFFSETS, check_group, check_replicas, members, wait_until_read
from support.tapped_cluster import Maker, TappedCluster

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.spec("R8")]

TOPIC = "moved"
#: So many records are acknowledged between two replacements.
RECORDS = 300


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1)], ids=["controller-first", "controller-last"])
def test_a_cluster_moves_to_ottla_and_back(tmp_path: Path, order: Sequence[int]) -> None:
    makers: Sequence[Maker] = ("apache", "apache", "apache")
    with TappedCluster(tmp_path / "cluster", makers).prepared() as cluster:
        cluster.start_all()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        settings = {"min.insync.replicas": "2", "segment.bytes": "65536"}
        created = admin.create_topics([NewTopic(TOPIC, 3, replica_assignment=ASSIGNMENT, config=settings)])
        created[TOPIC].result(60)
        cluster.wait_for_isr(TOPIC)
        with (
            members(cluster, tmp_path / "members", TOPIC) as group,
            AcknowledgedLoad(cluster.bootstrap, TOPIC, len(ASSIGNMENT)) as load,
        ):
            load.wait_for_more(RECORDS)
            wait_until_read(load, group)
            turns: Sequence[Maker] = ("ottla", "apache")
            for maker in turns:
                for broker_id in order:
                    cluster.replace(broker_id, maker)
                    cluster.wait_for_isr(TOPIC)
                    cluster.wait_for_isr(OFFSETS)
                    load.wait_for_more(RECORDS)
                    wait_until_read(load, group)
                assert {broker.maker for broker in cluster.brokers.values()} == {maker}
            for member in group:
                member.leave()
            load.wait_for_more(RECORDS)
        load.check()
        # Another generation continues where the first has committed.
        with members(cluster, tmp_path / "again", TOPIC) as again:
            wait_until_read(load, [*group, *again])
            for member in again:
                member.leave()
            check_group(load, group, again)
        check_replicas(cluster, TOPIC, OFFSETS)
