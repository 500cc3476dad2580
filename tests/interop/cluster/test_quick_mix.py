"""One broker of Apache Kafka 3.9.1 and two of ottla, in a minute; the other tests of this folder take longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop.cluster.mixes import ASSIGNMENT
from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import check_replicas
from support.tapped_cluster import TappedCluster

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.spec("R8")]

TOPIC = "quick"


def test_either_side_dies_under_load(tmp_path: Path) -> None:
    with TappedCluster(tmp_path, ("apache", "ottla", "ottla")).prepared() as cluster:
        cluster.start_all()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wanted = NewTopic(TOPIC, 3, replica_assignment=ASSIGNMENT, config={"min.insync.replicas": "2"})
        admin.create_topics([wanted])[TOPIC].result(60)
        cluster.wait_for_isr(TOPIC)
        with AcknowledgedLoad(cluster.bootstrap, TOPIC, 3) as load:
            for broker_id, maker in ((2, "ottla"), (1, "apache")):
                assert (cluster.controller(), cluster.brokers[broker_id].maker) == (1, maker)
                load.wait_for_more()
                cluster.brokers[broker_id].kill9()
                cluster.wait_until_gone(broker_id)
                cluster.wait_for_isr(TOPIC, {1, 2, 3} - {broker_id})
                load.wait_for_more()
                cluster.start(broker_id)
                cluster.wait_for_isr(TOPIC)
            assert cluster.brokers[cluster.controller()].maker == "ottla"
            load.wait_for_more()
        load.check()
        check_replicas(cluster, TOPIC)
