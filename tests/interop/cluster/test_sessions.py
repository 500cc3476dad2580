"""Brokers of both makes are paused, under load, until their ZooKeeper sessions have expired, and continue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop.cluster.mixes import ASSIGNMENT, MIXES
from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import check_replicas, wait_until_agreed
from support.java import java_tool
from support.tapped_cluster import Maker, TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(600), pytest.mark.spec("R8")]

ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
TOPIC = "still"
RECORDS = 300


def are_preferred_elected(cluster: TappedCluster) -> bool:
    """Elect them; not possible while a controller has not heard yet that a broker is back.

    After all have stood still, metadata and states are as before, whoever the controller knows.
    """
    election = (ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    return java_tool(*election, "--bootstrap-server", cluster.bootstrap, check=False).returncode == 0


@pytest.mark.parametrize("makers", MIXES)
def test_sessions_end_while_brokers_stand_still(tmp_path: Path, makers: Sequence[Maker]) -> None:
    with TappedCluster(tmp_path, makers).prepared() as cluster:
        cluster.start_all()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wanted = NewTopic(TOPIC, 3, replica_assignment=ASSIGNMENT, config={"min.insync.replicas": "2"})
        admin.create_topics([wanted])[TOPIC].result(60)
        cluster.wait_for_isr(TOPIC)
        with AcknowledgedLoad(cluster.bootstrap, TOPIC, len(ASSIGNMENT)) as load:
            for still in ({1}, {2, 3}, {1, 3}, {1, 2, 3}):
                load.wait_for_more(RECORDS)
                for broker_id in still:
                    cluster.brokers[broker_id].pause()
                for broker_id in still:
                    cluster.wait_until_gone(broker_id)
                for broker_id in still:
                    cluster.brokers[broker_id].resume()
                # Before there is a controller again, the states are those of before.
                wait_until_agreed(cluster)
                cluster.wait_for_isr(TOPIC)
                wait_until(lambda: are_preferred_elected(cluster), "an election of the preferred leaders")
                states = [cluster.partition(TOPIC, number) for number in range(len(ASSIGNMENT))]
                assert [state and state["leader"] for state in states] == [1, 2, 3]
            load.wait_for_more(RECORDS)
        load.check()
        check_replicas(cluster, TOPIC)
