"""One tree and one log folder, under Apache Kafka and under us in turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from interop.zookeeper.brokers.test_in_the_tree import delete, make, partitions, read, send, setting
from interop.zookeeper.conftest import Server
from support.apache import SESSION_TIMEOUT_MS, ApacheKafka
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [
    pytest.mark.needs_kafka,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.spec("L9", "Z1", "Z2", "Z3"),
]


def nodes(tree: KazooClient, path: str = "/") -> dict[str, bytes | None]:
    """All that lasts, by path."""
    found: dict[str, bytes | None] = {}
    for name in tree.get_children(path):
        below = f"{path.rstrip('/')}/{name}"
        data, stat = tree.get(below)
        if not stat.ephemeralOwner:
            found[below] = data
            found |= nodes(tree, below)
    return found


def test_a_broker_of_apache_kafka_is_taken_over_and_given_back(
    tmp_path: Path,
    zookeeper: Server,
    address: str,
    tree: KazooClient,
    serve: Callable[..., OttlaServer],
) -> None:
    data = tmp_path / "kafka-logs"
    theirs = ApacheKafka(
        tmp_path / "apache",
        zookeeper=zookeeper,
        broker_id=3,
        overrides={"zookeeper.connect": address, "log.dirs": str(data)},
    )
    theirs.start()
    try:
        make(theirs, "t", 3, **{"retention.ms": "88000000", "max.message.bytes": "2000000"})
        make(theirs, "gone", 1)
        send(theirs, "t", "a", "b", "c")
        assert read(theirs, "t", 3) == ["a", "b", "c"]
    finally:
        theirs.stop()
    before = nodes(tree)

    ours = serve(data=data, overrides={"broker.id": "3"})
    assert json.loads(tree.get("/brokers/topics/t/partitions/0/state")[0])["leader"] == 3
    assert setting(ours, "t", "retention.ms") == "88000000"
    send(ours, "t", "d", "e")
    assert read(ours, "t", 2) == ["d", "e"]  # the group's offsets are those of before
    assert read(ours, "t", 5, "all") == ["a", "b", "c", "d", "e"]
    make(ours, "u", 2, **{"retention.ms": "66000000"})
    send(ours, "u", "1")
    delete(ours, "gone")
    ours.stop()
    after = nodes(tree)
    # Nothing of theirs was changed but what a broker changes that is elected and has made and deleted topics.
    changed = {path for path in before if before[path] != after.get(path, b"gone")}
    changed = {path for path in changed if not path.startswith(("/brokers/topics/gone", "/config/topics/gone"))}
    assert changed <= {"/controller_epoch", "/latest_producer_id_block"}
    added = {path.split("/")[3] for path in after.keys() - before.keys()}
    assert {name for name in added if not name.startswith("config_change_")} == {"u", "__ottla_rebalances"}

    theirs.start()
    try:
        wait_until(lambda: partitions(theirs, "u") == 2, "their metadata")
        assert partitions(theirs, "gone") == 0
        assert setting(theirs, "u", "retention.ms") == "66000000"
        send(theirs, "u", "2")
        assert read(theirs, "u", 2, "gu") == ["1", "2"]
        send(theirs, "t", "f")
        assert read(theirs, "t", 1) == ["f"]
        assert read(theirs, "t", 6, "whole") == ["a", "b", "c", "d", "e", "f"]
    finally:
        theirs.stop()


def test_a_broker_joins_the_cluster_of_apache_kafka_that_lives(
    tmp_path: Path, zookeeper: Server, address: str, tree: KazooClient
) -> None:
    """Apache's controller tells ours which partitions it leads; when Apache's goes, ours is the controller."""
    theirs = ApacheKafka(
        tmp_path / "apache", zookeeper=zookeeper, broker_id=3, overrides={"zookeeper.connect": address}
    )

    def started(broker_id: str) -> OttlaServer:
        return OttlaServer(
            tmp_path / broker_id,
            arguments=["--zookeeper", address, "--id", broker_id],
            overrides={"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)},
        )

    ours = started("4")
    theirs.start()
    try:
        refused = started("3")
        with pytest.raises(Exception, match="ended"):
            refused.start()
        assert "a broker with id 3 is registered" in refused.server.stderr
        make(theirs, "before", 2)
        ours.start()
        wait_until(lambda: partitions(ours, "before") == 2, "Apache's controller")
        make(theirs, "both", 4, **{"retention.ms": "88000000"})
        wait_until(lambda: partitions(ours, "both") == 4, "Apache's controller")
        states = [json.loads(tree.get(f"/brokers/topics/both/partitions/{n}/state")[0]) for n in range(4)]
        assert sorted(state["leader"] for state in states) == [3, 3, 4, 4]
        assert setting(ours, "both", "retention.ms") == "88000000"
        values = [str(number) for number in range(100)]
        send(ours, "both", *values[:50])
        send(theirs, "both", *values[50:])
        assert sorted(read(theirs, "both", 100)) == sorted(values)
        assert len(list((tmp_path / "4").rglob("both-*"))) == 2
        delete(theirs, "both")
        wait_until(lambda: not list((tmp_path / "4").rglob("both-?")), "our replicas to be deleted")
        wait_until(lambda: tree.exists("/brokers/topics/both") is None, "Apache's deletion to end")
        theirs.stop()
        wait_until(lambda: json.loads(tree.get("/controller")[0])["brokerid"] == 4, "ours to be elected")
        make(ours, "after", 2)
        send(ours, "after", "a")  # acknowledged; a group's offsets may have been with Apache's broker
    finally:
        ours.stop()
        theirs.stop()


@pytest.mark.spec("L3")
def test_apache_kafka_s_tool_sees_the_broker_and_writes_the_tree_in_its_absence(
    serve: Callable[..., OttlaServer], address: str
) -> None:
    server = serve(overrides={"broker.id": "7"})
    make(server, "t")
    command = [
        "kafka.admin.ConfigCommand", "--zookeeper", address, "--alter",
        "--entity-type", "brokers", "--entity-name", "7", "--add-config", "log.retention.ms=99000",
    ]  # fmt: skip
    assert (
        "Broker configuration operations using ZooKeeper are only supported" in java_tool(*command, check=False).stderr
    )
    server.stop()
    java_tool(*command)
    server.start()
    assert setting(server, "t", "retention.ms") == "99000"
