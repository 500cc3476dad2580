"""A ZooKeeper that is killed while topics are made, grown and deleted: afterwards broker and tree are of one mind."""

from __future__ import annotations

import json
import threading

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kazoo.client import KazooClient

from interop.zookeeper.brokers.test_in_the_tree import can_make, partitions_of_all, read, send
from interop.zookeeper.conftest import Server
from support.apache import ApacheZooKeeper
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper
from support.waiting import wait_until
from support.zk_trees import open_tree

pytestmark = [pytest.mark.slow, pytest.mark.spec("Z2", "Z3"), pytest.mark.timeout(600)]

KILLS = 3
TOPICS_PER_LIFE = 15
SETTLED_S = 60.0


def changes(bootstrap: str, done: dict[str, int], deleted: set[str], stop: threading.Event) -> None:
    """Make topics, grow every second one, delete every third one; note what was acknowledged."""
    asker = AdminClient({"bootstrap.servers": bootstrap})
    number = 0
    while not stop.is_set():
        name = f"t{number}"
        number += 1
        try:
            asker.create_topics([NewTopic(name, 2, 1)], operation_timeout=10)[name].result(30)
            done[name] = 2
            if number % 2:
                asker.create_partitions([NewPartitions(name, 4)], operation_timeout=10)[name].result(30)
                done[name] = 4
            if number % 3 == 0:
                done[name] = 0  # until it is known
                asker.delete_topics([name], operation_timeout=10)[name].result(30)
                deleted.add(name)
        except Exception:
            done.setdefault(name, 0)  # nobody knows


def in_tree(tree: KazooClient) -> dict[str, int]:
    names = tree.get_children("/brokers/topics")
    return {name: len(json.loads(tree.get(f"/brokers/topics/{name}")[0])["partitions"]) for name in names}


@pytest.mark.parametrize(
    "own_server", [OttlaZooKeeper, pytest.param(ApacheZooKeeper, marks=pytest.mark.needs_kafka)], indirect=True
)
def test_topics_are_made_while_zookeeper_is_killed(own_server: Server, tmp_path, request) -> None:
    server = OttlaServer(
        tmp_path,
        overrides={"broker.id": "7", "zookeeper.session.timeout.ms": "30000"},
        arguments=["--zookeeper", own_server.connect],
    )
    request.addfinalizer(server.stop)
    server.start()
    done: dict[str, int] = {}
    deleted: set[str] = set()
    stop = threading.Event()
    worker = threading.Thread(target=changes, args=(server.bootstrap, done, deleted, stop))
    worker.start()
    try:
        for _ in range(KILLS):
            before = len(done)
            wait_until(lambda before=before: len(done) > before + TOPICS_PER_LIFE, "topics", SETTLED_S)
            own_server.server.kill9()
            own_server.start()
    finally:
        stop.set()
        worker.join(SETTLED_S)
    wait_until(lambda: can_make(server, "last"), "topics that can be made", SETTLED_S)
    tree = open_tree(own_server.connect)
    request.addfinalizer(tree.close)
    request.addfinalizer(tree.stop)
    wait_until(lambda: tree.get_children("/admin/delete_topics") == [], "the end of deletions", SETTLED_S)
    found = in_tree(tree)
    wait_until(
        lambda: (
            found == {name: count for name, count in partitions_of_all(server).items() if name in found.keys() | done}
        ),
        lambda: f"broker and tree to agree on {found}",
        SETTLED_S,
    )
    for name, count in done.items():
        assert (name not in found) if name in deleted else (found.get(name, 0) >= count), name
    for name in [name for name in found if name != "last"][::10]:
        send(server, name, "x", partition=found[name] - 1)
        for index in range(found[name]):
            state = json.loads(tree.get(f"/brokers/topics/{name}/partitions/{index}/state")[0])
            assert state["leader"] == 7
    hosted = {path.name for path in server.data.glob("*-*[0-9]")}
    assert hosted == {f"{name}-{index}" for name, count in found.items() for index in range(count)}
    send(server, "last", "y")
    assert read(server, "last", 1) == ["y"]
    assert "Traceback" not in server.server.stderr
