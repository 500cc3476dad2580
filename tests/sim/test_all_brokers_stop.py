"""All brokers of a cluster stop at the same time: none can take over, so that none is waited for."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla.client import Admin, NewTopic
from support.virtual_cluster import VirtualCluster

pytestmark = [pytest.mark.slow, pytest.mark.spec("R1")]

#: Less than one pause of `controlled.shutdown.retry.backoff.ms`.
AT_ONCE_S = 2.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("brokers", [2, 3, 5])
def test_none_waits_for_the_others(brokers: int, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    ids = range(1, brokers + 1)

    async def story(cluster: VirtualCluster) -> float:
        await asyncio.gather(*map(cluster.start, ids))
        await cluster.until(
            lambda: all(set(broker.image.brokers) == set(ids) for broker in cluster.brokers.values()), "all brokers"
        )
        async with Admin(bootstrap_servers=cluster.bootstrap_servers(), environment=cluster.environment()) as admin:
            await admin.create_topics([NewTopic("t", 6, 2)])
        await cluster.until(cluster.all_partitions_have_leaders, "leaders")
        began_s = cluster.loop.time()
        with caplog.at_level(logging.INFO):
            await asyncio.gather(*map(cluster.stop, ids))
        return cluster.loop.time() - began_s

    assert VirtualCluster(seed).run(story) < AT_ONCE_S
    said = [record.getMessage() for record in caplog.records]
    assert not [line for line in said if "not moved" in line or "tried again" in line], said
    assert [line for line in said if line.startswith("no other broker stays")], said


def test_a_replica_that_is_away_is_waited_for_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: VirtualCluster) -> float:
        await asyncio.gather(*(cluster.start(each, controlled_shutdown_max_retries="2") for each in (1, 2, 3)))
        await cluster.until(
            lambda: all(len(broker.image.brokers) == 3 for broker in cluster.brokers.values()), "all brokers"
        )
        async with Admin(bootstrap_servers=cluster.bootstrap_servers(), environment=cluster.environment()) as admin:
            await admin.create_topics([NewTopic("t", replica_assignments={0: [1, 2]})])
        await cluster.until(cluster.all_partitions_have_leaders, "leaders")
        await cluster.stop(2)
        began_s = cluster.loop.time()
        caplog.clear()
        await cluster.stop(1)
        return cluster.loop.time() - began_s

    assert VirtualCluster(1).run(story) > 10
    said = [record.getMessage() for record in caplog.records if record.name == "ottla.controller"]
    assert [line for line in said if "shutdown" in line or "stops" in line] == [
        *["a controlled shutdown is tried again: no other broker in sync can lead t-0"] * 2,
        "this broker stops, but its leaders are not moved: no other broker in sync can lead t-0",
    ]
