"""`ottla serve --zookeeper-port`: the broker's own tree, open to other processes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from support.ottla_server import OttlaServer
from support.processes import ServerDied
from support.raw_client import RawClient, batch_of
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("Z2", "Z3")]

CONNECT_S = 60.0
#: Until the broker is back, on a busy machine.
SESSION_S = 40.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OttlaServer]:
    made = OttlaServer(tmp_path, arguments=["--zookeeper-port", "0", "--id", "7"])
    yield made
    made.stop()


def tree_of(server: OttlaServer) -> KazooClient:
    found = re.findall(r"ZooKeeper clients on ([^\s,]+)", server.server.stdout)
    client = KazooClient(hosts=found[-1], timeout=SESSION_S)
    client.start(CONNECT_S)
    return client


def end(client: KazooClient) -> None:
    client.stop()
    client.close()


def partitions(server: OttlaServer, name: str) -> int:
    with RawClient(server.port) as client:
        found = {topic.name: topic for topic in client.metadata().topics}
        return len(found[name].partitions) if name in found else 0


def test_others_see_the_broker_and_may_change_its_tree(server: OttlaServer) -> None:
    server.start()
    tree = tree_of(server)
    assert json.loads(tree.get("/brokers/ids/7")[0])["port"] == server.port
    assert tree.get("/controller_epoch")[0] == b"1"
    seen: list[list[str]] = []
    tree.ChildrenWatch("/brokers/topics", lambda names: seen.append(sorted(names)))
    with RawClient(server.port) as client:
        assert client.create_topic("by-request") == 0
    wait_until(lambda: ["by-request"] in seen, "the watch on a change by the broker itself")
    tree.create("/brokers/topics/by-tree", b'{"version":1,"partitions":{"0":[7],"1":[7]}}')
    wait_until(lambda: partitions(server, "by-tree") == 2, "the topic made in the tree")
    with RawClient(server.port) as client:
        assert client.produce("by-tree", 1, batch_of(b"x")).error_code == 0
    tree.create("/admin/delete_topics/by-tree")
    wait_until(lambda: tree.exists("/brokers/topics/by-tree") is None, "the deletion")
    with pytest.raises(NodeExistsError):
        tree.create("/brokers/ids/7", b"", ephemeral=True)
    end(tree)


def test_what_others_made_survives_the_end_of_the_broker(server: OttlaServer) -> None:
    server.start()
    tree = tree_of(server)
    tree.create("/consumers/g/offsets/t/0", b"12", makepath=True)
    tree.create("/consumers/g/ids/member", b"", makepath=True, ephemeral=True)
    session = tree.client_id
    server.kill9()
    server.start()
    again = KazooClient(hosts=tree_of_address(server), timeout=SESSION_S, client_id=session)
    again.start(CONNECT_S)
    assert again.client_id[0] == session[0], "the session goes on"
    assert again.get("/consumers/g/offsets/t/0")[0] == b"12"
    assert again.exists("/consumers/g/ids/member").ephemeralOwner == session[0]
    assert again.get_children("/brokers/ids") == ["7"]
    end(again)
    other = tree_of(server)
    assert other.get_children("/consumers/g/ids") == []
    end(other)
    # The first client's process would be gone by now.
    end(tree)


def tree_of_address(server: OttlaServer) -> str:
    return re.findall(r"ZooKeeper clients on ([^\s,]+)", server.server.stdout)[-1]


def test_a_port_in_use_is_reported(server: OttlaServer, tmp_path: Path) -> None:
    server.start()
    port = tree_of_address(server).rpartition(":")[2]
    second = OttlaServer(tmp_path / "second", arguments=["--zookeeper-port", port])
    with pytest.raises(ServerDied):
        second.start()
    assert "ottla.zookeeper.port: " in second.server.stderr
    assert f"127.0.0.1:{port}" in second.server.stderr
    assert "Traceback" not in second.server.stderr


def test_two_trees_are_one_too_many(tmp_path: Path) -> None:
    server = OttlaServer(tmp_path, arguments=["--zookeeper-port", "0", "--zookeeper", "127.0.0.1:1"])
    with pytest.raises(ServerDied):
        server.start()
    assert "give one of them" in server.server.stderr
