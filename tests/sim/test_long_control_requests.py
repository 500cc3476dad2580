"""Requests of the controller about more partitions than the broker keeps as objects (`LAZY_ELEMENTS`)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla.client import Admin, NewTopic
from ottla.wire.sliced import LAZY_ELEMENTS
from support.virtual_cluster import VirtualCluster

pytestmark = [pytest.mark.slow, pytest.mark.spec("R1", "R3")]

BROKERS = (1, 2, 3)
#: In one topic, and as many of them in each request about roles.
PARTITIONS = LAZY_ELEMENTS + 20


def all_in_sync(cluster: VirtualCluster) -> bool:
    """Whether each broker knows of all partitions, and that all their replicas on running brokers are in sync."""
    known = [broker.image.topics.get("t") for broker in cluster.brokers.values()]
    return all(
        topic is not None
        and len(topic.partitions) == PARTITIONS
        and all(
            state.leader in cluster.brokers and set(state.isr) == set(cluster.brokers) for state in topic.partitions
        )
        for topic in known
    )


def hosted(cluster: VirtualCluster) -> int:
    return sum(len(list(broker.partitions)) for broker in cluster.brokers.values())


@pytest.mark.usefixtures("sealed")
def test_a_topic_of_many_partitions_is_made_kept_and_deleted_on_all_brokers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.dispatch.DECODED_AT_ONCE_BYTES", 0)

    async def story(cluster: VirtualCluster) -> None:
        await asyncio.gather(*map(cluster.start, BROKERS))
        await cluster.until(
            lambda: all(set(broker.image.brokers) == set(BROKERS) for broker in cluster.brokers.values()),
            "word of the controller to all brokers",
        )
        client = {"bootstrap_servers": cluster.bootstrap_servers(), "environment": cluster.environment()}
        async with Admin(**client) as admin:
            await admin.create_topics([NewTopic("t", PARTITIONS, 3)])
        await cluster.until(lambda: all_in_sync(cluster), "all replicas in sync")
        assert hosted(cluster) == 3 * PARTITIONS
        first = cluster.controller()
        await cluster.stop(first)
        await cluster.until(
            lambda: cluster.controller() != -1 and all_in_sync(cluster), "leaders by another controller"
        )
        await cluster.start(first)
        await cluster.until(lambda: all_in_sync(cluster), "the former controller's replicas")
        async with Admin(**client) as admin:
            await admin.delete_topics(["t"])
        await cluster.until(lambda: hosted(cluster) == 0, "the end of all replicas")

    with caplog.at_level(logging.WARNING):
        cluster = VirtualCluster(5)
        cluster.run(story)
    assert not [record.getMessage() for record in caplog.records if record.exc_info]
