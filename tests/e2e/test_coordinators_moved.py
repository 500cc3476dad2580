"""Coordinators of groups that move from broker to broker, in a cluster of three on real sockets."""

from __future__ import annotations

import pytest

from e2e.raw_client import RawClient
from ottla.testing import Cluster
from ottla.wire.errors import ErrorCode
from support.waiting import wait_until


def port_of(cluster: Cluster, broker_id: int) -> int:
    return cluster.broker(broker_id).listening[0].port


def found(cluster: Cluster, broker_id: int, group: str = "g") -> ErrorCode:
    with RawClient(port_of(cluster, broker_id)) as client:
        return ErrorCode(client.find_coordinator(group))


@pytest.mark.spec("G11")
def test_there_is_no_coordinator_before_enough_brokers_live(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(3) as cluster:
        cluster.kill(2)
        cluster.wait_for(lambda: all(len(cluster.broker(each).image.brokers) == 2 for each in (0, 1)))
        for broker_id in (0, 1, 0, 1):
            assert found(cluster, broker_id) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        told = [
            record for record in caplog.messages if "Replication factor: 3 larger than available brokers: 2." in record
        ]
        assert len(told) == 2, "each broker says it once"
        assert "set offsets.topic.replication.factor" in told[0]
        cluster.restart(2)
        for broker_id in range(3):
            wait_until(lambda at=broker_id: found(cluster, at) is ErrorCode.NONE, "a coordinator")
        assert len(cluster.replicas("__consumer_offsets")) == 3
