"""A mixed group whose broker, and with it the ZooKeeper that is the broker's own tree, is killed and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from interop.conftest import SETTINGS
from interop.zkconsumer.conftest import Group
from support.old_consumers import OldConsumer
from support.ottla_server import OttlaServer
from support.ports import LOOPBACK, free_port
from support.waiting import wait_until
from support.zk_clusters import Cluster

pytestmark = [
    pytest.mark.needs_kafka,
    pytest.mark.needs_082,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.spec("Z2", "Z4", "Z6"),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OttlaServer]:
    """Our broker on ports that it keeps, with its own tree open to others; the test kills it."""
    made = OttlaServer(
        tmp_path / "ottla", overrides=SETTINGS, arguments=["--id", "1", "--zookeeper-port", str(free_port())]
    )
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def cluster(server: OttlaServer) -> Cluster:
    """The test's own broker with its tree."""
    return Cluster(server.bootstrap, f"{LOOPBACK}:{server.arguments[-1]}")


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_a_mixed_group_outlives_broker_and_tree(
    server: OttlaServer, cluster: Cluster, zk: KazooClient, old_consumer: Callable[..., OldConsumer], storage: str
) -> None:
    cluster.create("t", 4)
    group = Group(cluster, "g", zk)
    settings = {"offsets.storage": storage, "dual.commit.enabled": "false"}
    try:
        theirs = old_consumer("c1", group="g", subscription="t:1", settings=settings)
        ours = group.start({"t": 1}, consumer_id="c2", auto_commit_interval_ms=200, offsets_storage=storage)
        owners = {0: "c1-0", 1: "c1-0", 2: "c2-0", 3: "c2-0"}
        produced = 0

        def all_is_read() -> bool:
            return {int(got.value) for got in theirs.got()} | set(ours.values) == set(range(produced))

        for _ in range(3):
            group.wait_until_owned_by("t", owners)
            cluster.produce("t", 4, 40, first=produced)
            produced += 40
            wait_until(all_is_read, "all to be read")
            server.kill9()
            server.start()
            cluster.wait_for_leaders("t", 4)
        group.wait_until_owned_by("t", owners)
        cluster.produce("t", 4, 40, first=produced)
        produced += 40
        wait_until(all_is_read, "all to be read")
        theirs.close()
        group.wait_until_owned_by("t", dict.fromkeys(range(4), "c2-0"))
    finally:
        group.close()
