"""The cluster for tests: brokers that know each other, elections, brokers killed and back."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ottla.client.sync import Admin
from ottla.testing import Cluster, TestBrokerError, WaitedInVainError
from ottla.testing.disk_memory import MemoryDisk
from support.waiting import wait_until

pytestmark = pytest.mark.spec("R9")


def test_brokers_know_each_other_and_have_a_controller() -> None:
    with Cluster(3, racks=["a", "b", "c"]) as cluster:
        assert cluster.running == [0, 1, 2]
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            described = admin.describe_cluster()
        assert [(each.node_id, each.rack) for each in described.nodes] == [(0, "a"), (1, "b"), (2, "c")]
        assert described.controller is not None
        assert described.controller.node_id == cluster.controller
        addresses = [f"{each.host}:{each.port}" for each in described.nodes]
        assert ",".join(addresses) == cluster.bootstrap_servers


@pytest.mark.parametrize("how", ["kill", "shut_down"])
def test_another_controller_is_elected_and_the_broker_comes_back_at_its_port(how: str) -> None:
    with Cluster(3) as cluster:
        former, addresses = cluster.controller, cluster.bootstrap_servers
        assert former is not None
        getattr(cluster, how)(former)
        assert cluster.running == [each for each in range(3) if each != former]
        cluster.wait_for(lambda: cluster._controller() not in (None, former), "another controller")
        port = int(addresses.split(",")[former].rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            pass
        cluster.restart(former)
        cluster.wait_for(lambda: cluster._all_registered() is True, "all brokers to know each other")
        assert (cluster.bootstrap_servers, cluster.running) == (addresses, [0, 1, 2])
        assert cluster.controller != former


def test_a_cluster_of_one_serves() -> None:
    with Cluster(1, {"orders": {"partitions": 2, "retention_ms": 5}}) as cluster:
        assert cluster.wait_for_leader("orders", 1) == cluster.leader("orders") == 0
        assert (cluster.replicas("orders"), cluster.in_sync("orders")) == ((0,), (0,))
        assert cluster.leader("orders", 2) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"brokers": 0}, "give a number from 1 to"),
        ({"brokers": 2, "racks": ["a"]}, "name one for each of the 2 brokers"),
        ({"settings": {"log.dirs": "/x"}}, "log.dirs cannot be among the settings"),
        ({"settings": {"listeners": "PLAINTEXT://:1"}}, "leave host=, port=, tls= and sasl= out"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(TestBrokerError, match=message):
        Cluster(**given)  # type: ignore[arg-type]


def test_calls_that_cannot_be() -> None:
    cluster = Cluster(1)
    with pytest.raises(TestBrokerError, match="is not running: use it inside"):
        cluster.kill(0)
    with cluster:
        with pytest.raises(TestBrokerError, match="the ids are 0 to 0"):
            cluster.kill(1)
        with pytest.raises(TestBrokerError, match="broker 0 is running"):
            cluster.restart(0)
        with pytest.raises(TestBrokerError, match="running already"):
            cluster.start()
        with pytest.raises(TestBrokerError, match=r"Replication factor: 2 larger than available brokers: 1\."):
            cluster.create_topic("orders", replication_factor=2)
        with pytest.raises(WaitedInVainError, match="in vain for a leader of orders-0"):
            cluster.wait_for_leader("orders", timeout_s=0.05)
        cluster.kill(0)
        with pytest.raises(TestBrokerError, match="broker 0 is not running"):
            cluster.kill(0)


def test_a_copy_of_a_disk_is_unlocked_and_goes_its_own_way() -> None:
    disk = MemoryDisk()
    disk.mkdirs("/d")
    disk.write_atomic("/d/f", b"one")
    assert disk.lock("/d/.lock") is not None
    copy = disk.copy()
    disk.open("/d/f").append([b", two"])
    disk.write_atomic("/d/g", b"later")
    assert (copy.listdir("/d"), copy.read_bytes("/d/f")) == (["f"], b"one")
    assert copy.lock("/d/.lock") is not None


def test_in_a_program_on_asyncio() -> None:
    async def use() -> list[int]:
        async with Cluster(2) as cluster:
            return cluster.running

    assert asyncio.run(use()) == [0, 1]


def test_a_cluster_that_is_dropped_warns_and_ends() -> None:
    made = [Cluster(2).start()]
    port = int(made[0].bootstrap_servers.rpartition(":")[2])
    with pytest.warns(ResourceWarning, match="a test cluster was dropped while it ran"):
        made.clear()
    wait_until(lambda: not _listens(port), "its brokers have stopped")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_faults_of_one_broker_end_with_it() -> None:
    with Cluster(2, {"orders": 1}) as cluster:
        at = cluster.wait_for_leader("orders")
        faults = cluster.faults(at)
        assert cluster.faults(at) is faults
        rule = faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", client_id=f"broker-{1 - at}-fetcher-0")
        rule.wait_until_fired()
        cluster.kill(at)
        cluster.restart(at)
        assert cluster.faults(at) is not faults
        with pytest.raises(TestBrokerError, match="the ids are 0 to 1"):
            cluster.faults(2)
