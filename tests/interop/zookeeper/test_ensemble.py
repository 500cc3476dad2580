"""A real ensemble of three: a server is killed, and sessions of ours continue with another of the list."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from interop.zookeeper.brokers.test_in_the_tree import can_make, make, node, partitions, read, send
from ottla.zkconsumer import create_connector
from support.ottla_server import OttlaServer
from support.waiting import wait_until
from support.zk_ensemble import ApacheEnsemble
from support.zk_trees import open_tree

pytestmark = [pytest.mark.slow, pytest.mark.needs_kafka, pytest.mark.timeout(600)]

SETTLED_S = 60.0
#: No session may end while the servers that are left elect a leader, on a busy machine either.
SESSION_TIMEOUT_MS = "30000"


@pytest.fixture
def ensemble(tmp_path) -> Iterator[ApacheEnsemble]:
    made = ApacheEnsemble(tmp_path / "ensemble")
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def tree(ensemble) -> Iterator[KazooClient]:
    client = open_tree(ensemble.connect)
    client.ensure_path("/brokers-here")
    client.chroot = "/brokers-here"
    yield client
    client.stop()
    client.close()


@pytest.fixture
def broker(ensemble, tree, tmp_path) -> Iterator[OttlaServer]:
    server = OttlaServer(
        tmp_path / "broker",
        overrides={
            "broker.id": "7",
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            "offsets.topic.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
        },
        arguments=["--zookeeper", f"{ensemble.connect}/brokers-here"],
    )
    try:
        yield server.start()
    finally:
        server.stop()


def session_at(tree: KazooClient, path: str) -> int:
    """The session that an ephemeral node belongs to."""
    return tree.get(path)[1].ephemeralOwner


@pytest.mark.spec("Z2", "Z3")
def test_a_broker_keeps_its_session_when_its_server_is_killed(ensemble, tree, broker) -> None:
    make(broker, "t", 2)
    send(broker, "t", "before")
    assert read(broker, "t", 1) == ["before"]
    session = session_at(tree, "/brokers/ids/7")
    first = ensemble.member_of(session)
    assert first is not None
    first.stop()
    wait_until(lambda: ensemble.member_of(session) is not None, "the session at another server", SETTLED_S)
    wait_until(lambda: can_make(broker, "meanwhile"), "topics that can be made", SETTLED_S)
    assert session_at(tree, "/brokers/ids/7") == session
    assert node(tree, "/controller")["brokerid"] == 7
    assert tree.get("/controller_epoch")[0] == b"1", "nobody had to be elected"
    with suppress(NodeExistsError):  # it was created by a try whose response was lost
        tree.retry(tree.create, "/brokers/topics/by-another", b'{"version":1,"partitions":{"0":[7]}}')
    wait_until(lambda: partitions(broker, "by-another") == 1, "a watch that came along")

    second = ensemble.member_of(session)
    assert second is not None
    second.stop()
    wait_until(lambda: "the connection to ZooKeeper is lost" in broker.server.stderr, "the log", SETTLED_S)
    send(broker, "t", "while one of three is left")
    assert read(broker, "t", 1) == ["while one of three is left"]
    with pytest.raises(Exception, match="ZooKeeper could not be asked"):
        make(broker, "not-now", timeout_s=5)
    for member in (first, second):
        member.start()
    wait_until(lambda: can_make(broker, "later"), "topics that can be made", SETTLED_S)
    assert node(tree, "/brokers/ids/7")["version"] == 5
    assert "Traceback" not in broker.server.stderr


@pytest.mark.spec("Z4", "Z6")
def test_a_consumer_keeps_its_partitions_when_its_server_is_killed(ensemble, tree, broker) -> None:
    make(broker, "t", 2)
    connector = create_connector(
        {
            "zookeeper.connect": f"{ensemble.connect}/brokers-here",
            "group.id": "g",
            "auto.offset.reset": "smallest",
            "zookeeper.session.timeout.ms": int(SESSION_TIMEOUT_MS),
            "auto.commit.interval.ms": 200,
        }
    )
    got: list[str] = []
    try:
        [stream] = connector.create_message_streams({"t": 1})["t"]
        thread = threading.Thread(target=_collect, args=(stream, got), daemon=True)
        thread.start()
        for partition in range(2):
            wait_until(lambda at=partition: tree.exists(f"/consumers/g/owners/t/{at}"), "an owner", SETTLED_S)
        session = session_at(tree, "/consumers/g/owners/t/0")
        send(broker, "t", "a", "b", partition=0)
        wait_until(lambda: got == ["a", "b"], lambda: f"records, have {got}")
        member = ensemble.member_of(session)
        assert member is not None
        member.stop()
        send(broker, "t", "c", "d", partition=1)
        wait_until(lambda: sorted(got) == ["a", "b", "c", "d"], lambda: f"records, have {got}", SETTLED_S)
        wait_until(lambda: ensemble.member_of(session) is not None, "the session at another server", SETTLED_S)
        wait_until(lambda: _offset(tree, 1) == 2, "a commit", SETTLED_S)
        assert {session_at(tree, f"/consumers/g/owners/t/{at}") for at in range(2)} == {session}
    finally:
        connector.shutdown()
    wait_until(lambda: not tree.get_children("/consumers/g/ids"), "the member to be gone")


def _collect(stream, got: list[str]) -> None:
    got.extend(message.value.decode() for message in stream)


def _offset(tree: KazooClient, partition: int) -> int:
    path = f"/consumers/g/offsets/t/{partition}"
    return int(tree.get(path)[0]) if tree.exists(path) else -1
