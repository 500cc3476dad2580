"""R7 with replication: producers of partitions in sync do not wait for what a returned broker has to catch up on."""

from __future__ import annotations

import pytest

from ottla.client.sync import Producer
from ottla.testing import Cluster

pytestmark = [pytest.mark.spec("R7"), pytest.mark.slow]

BEHIND, STEADY = "behind", "steady"
#: A partition with more than half of this to come is far behind.
MAX_BYTES = 4096


def write(cluster: Cluster, topic: str, count: int, size: int = 10) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all", linger_ms=0, batch_size=1) as producer:
        for sent in [producer.send(topic, bytes(size), partition=0) for _ in range(count)]:
            sent.result(60)


def test_what_is_written_now_does_not_wait_for_a_follower_that_catches_up() -> None:
    """The fetches of what is far behind fail; those of the others continue."""
    topics = {BEHIND: {"partitions": 1, "min_insync_replicas": 2}, STEADY: {"partitions": 1, "min_insync_replicas": 3}}
    settings = {"replica.fetch.max.bytes": MAX_BYTES, "replica.fetch.backoff.ms": 50}
    with Cluster(3, topics, settings=settings) as cluster:
        leaders = {topic: cluster.wait_for_leader(topic) for topic in topics}
        follower = next(broker_id for broker_id in cluster.running if broker_id not in leaders.values())
        write(cluster, STEADY, 3)
        cluster.kill(follower)
        write(cluster, BEHIND, 100, MAX_BYTES // 4)
        held = [
            cluster.faults(leader).disconnect("Fetch", client_id=f"broker-{follower}-fetcher-0-behind")
            for leader in sorted(set(leaders.values()))
        ]
        cluster.restart(follower)
        cluster.wait_until_in_sync(STEADY)
        write(cluster, STEADY, 20)
        assert follower not in cluster.in_sync(BEHIND)
        for rule in held:
            rule.remove()
        cluster.wait_until_in_sync(BEHIND)
        assert len(cluster.wait_for_records(BEHIND, 100, broker=follower)) == 100
