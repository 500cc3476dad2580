"""Lag while the group is at work: of one moment, not of two."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.client.model import LATEST, TopicPartition
from ottla.client.sync import Client, Producer
from ottla.ops.group_lag import measure_lag
from ottla.peer.cluster import Cluster
from ottla.peer.settings import ConnectionSettings

MEASUREMENTS = 150


@pytest.mark.slow
@pytest.mark.spec("G2")
def test_committed_offset_and_end_are_of_one_moment(shared_ottla_server, unique):
    """Somebody writes a record, commits, writes, commits: at any moment the lag is 0 or 1, and so it is measured."""
    bootstrap = shared_ottla_server.bootstrap
    partition = TopicPartition(unique, 0)
    ends = threading.Event()

    def write_and_commit():
        with Client(bootstrap) as client, Producer(bootstrap_servers=bootstrap) as producer:
            for end in range(1, 1_000_000):
                producer.send(unique, b"v", b"k", timestamp=1).result(120)
                client.commit(unique, {partition: end})
                if ends.is_set():
                    return

    async def measure():
        cluster = Cluster(ConnectionSettings(bootstrap))
        try:
            return {(await measure_lag(cluster, unique)).partitions[0].lag for _ in range(MEASUREMENTS)}
        finally:
            await cluster.close()

    with Client(bootstrap) as client:
        client.create_topic(unique, 1)
        client.commit(unique, {partition: 0})
        writer = threading.Thread(target=write_and_commit)
        writer.start()
        try:
            lags = asyncio.run(measure())
        finally:
            ends.set()
            writer.join(60)
        assert lags <= {0, 1}
        assert client.committed(unique, [partition]) == client.offsets_at([partition], LATEST)
        assert client.committed(unique, [partition])[partition] > MEASUREMENTS // 10
