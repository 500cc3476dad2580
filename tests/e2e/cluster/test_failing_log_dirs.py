"""One of a broker's log directories fails under load in a cluster: others lead its partitions, and it comes back."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from ottla.cli.main import app
from ottla.client import NewTopic, TopicPartition
from ottla.client.sync import Admin, Producer
from ottla.testing import Cluster
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("R1", "L8"), pytest.mark.slow]

ONE, TWO = "/logs/one", "/logs/two"
PARTITIONS = 4
FAILING = 0


class FailingDisk(FaultyDisk):
    """A disk in memory that fails on order, also in the next life of its broker."""

    def copy(self) -> FailingDisk:
        """What a killed process leaves."""
        assert isinstance(self.disk, MemoryDisk)
        return FailingDisk(self.disk.copy())


class Load:
    """A producer of numbered records to all partitions, until it is stopped; nothing may be refused for good."""

    def __init__(self, cluster: Cluster) -> None:
        self._bootstrap = cluster.bootstrap_servers
        self.sent = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with Producer(bootstrap_servers=self._bootstrap, acks="all", retry_backoff_ms=20) as producer:
                while not self._is_over.is_set():
                    for index in range(PARTITIONS):
                        producer.send("t", b"%d" % self.sent, partition=index)
                    producer.flush()
                    self.sent += 1
        except BaseException as error:
            self.error = error

    def goes_on(self, records: int = 20) -> None:
        """Wait for this many more records in each partition."""
        before = self.sent
        wait_until(lambda: self.error is not None or self.sent >= before + records, "acknowledgements")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three brokers with two log directories each, and a topic whose partitions are in both."""
    with monkeypatch.context() as patched:
        # What is offered to users has one log directory, on a disk that works.
        patched.setattr("ottla.testing.disk_memory.MemoryDisk", lambda now_ms: FailingDisk(MemoryDisk(now_ms)))
        patched.setattr("ottla.testing.cluster.IN_MEMORY", f"{ONE},{TWO}")
        cluster = Cluster(3, settings={"replica.lag.time.max.ms": "2000"}).start()
    monkeypatch.setattr("ottla.testing.cluster.IN_MEMORY", f"{ONE},{TWO}")
    try:
        cluster.create_topic("t", partitions=PARTITIONS, replication_factor=3)
        in_sync(cluster)
        yield cluster
    finally:
        for place in cluster._places.values():
            disk_of(place.disk).heal()
        cluster.stop()


def disk_of(disk: Any) -> FailingDisk:
    assert isinstance(disk, FailingDisk)
    return disk


def in_sync(cluster: Cluster) -> None:
    wait_until(
        lambda: all(len(cluster.in_sync("t", index)) == 3 for index in range(PARTITIONS)),
        lambda: f"all in sync: {[cluster.in_sync('t', index) for index in range(PARTITIONS)]}",
    )


def homes(cluster: Cluster) -> dict[str, set[int]]:
    """The partitions in each log directory of the failing broker that is in service."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.describe_log_dirs([FAILING])[FAILING]
    return {path: {key.partition for key in each.replicas} for path, each in found.items() if each.error is None}


def is_verified(cluster: Cluster) -> None:
    found = CliRunner().invoke(app, ["replica", "verify", "t", "-b", cluster.bootstrap_servers, "--json"])
    assert found.exit_code == 0, found.output


def failed(cluster: Cluster, load: Load, number: int) -> set[int]:
    """Let the second directory fail; its partitions, once others lead them and the rest is as before."""
    gone = homes(cluster)[TWO]
    assert gone
    assert len(gone) < PARTITIONS
    disk_of(cluster.broker(FAILING).disk).fail("*", f"{TWO}*", number)
    load.goes_on()
    wait_until(
        lambda: all((FAILING in cluster.in_sync("t", index)) == (index not in gone) for index in range(PARTITIONS)),
        lambda: f"{gone} to go: {[cluster.in_sync('t', index) for index in range(PARTITIONS)]}",
    )
    assert not [index for index in gone if cluster.leader("t", index) == FAILING]
    assert FAILING in cluster.running
    assert homes(cluster).keys() == {ONE}
    load.goes_on()
    return gone


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOENT], ids=["error", "read-only", "gone"])
def test_a_directory_fails_and_comes_back(cluster: Cluster, number: int) -> None:
    with Load(cluster) as load:
        load.goes_on()
        gone = failed(cluster, load, number)
        cluster.shut_down(FAILING)
        disk_of(cluster._places[FAILING].disk).heal()
        cluster.restart(FAILING)
        in_sync(cluster)
        assert homes(cluster)[TWO] == gone
        load.goes_on()
    is_verified(cluster)


def elect(cluster: Cluster, *, is_failing: bool) -> None:
    """Have the broker that is to fail elected as controller, or another one."""
    if (cluster.controller == FAILING) == is_failing:
        return
    for each in (each for each in range(3) if (each == FAILING) != is_failing):
        cluster.shut_down(each)
        cluster.restart(each)
        if (cluster.controller == FAILING) == is_failing:
            break
    in_sync(cluster)


@pytest.mark.parametrize("is_controller", [True, False], ids=["controller", "other"])
def test_an_empty_directory_in_its_place(cluster: Cluster, is_controller: bool) -> None:
    """Its replicas are made again, and none leads before it has caught up."""
    elect(cluster, is_failing=is_controller)
    with Load(cluster) as load:
        load.goes_on()
        gone = failed(cluster, load, errno.EIO)
        cluster.kill(FAILING)
        disk = disk_of(cluster._places[FAILING].disk)
        disk.heal()
        disk.remove_tree(TWO)
        cluster.restart(FAILING)
        in_sync(cluster)
        load.goes_on()
        assert set().union(*homes(cluster).values()) >= gone
    is_verified(cluster)


def test_a_full_disk_is_waited_for(cluster: Cluster) -> None:
    with Load(cluster) as load:
        load.goes_on()
        gone = homes(cluster)[TWO]
        disk = disk_of(cluster.broker(FAILING).disk)
        for operation in ("write", "replace"):
            disk.fail(operation, f"{TWO}*", errno.ENOSPC)
        wait_until(
            lambda: (
                not [
                    index
                    for index in gone
                    if cluster.leader("t", index) != FAILING and FAILING in cluster.in_sync("t", index)
                ]
            ),
            "its followers to leave the ISRs",
        )
        assert homes(cluster).keys() == {ONE, TWO}
        disk.heal()
        in_sync(cluster)
        load.goes_on()
    is_verified(cluster)


@pytest.mark.parametrize("is_controller", [True, False], ids=["controller", "other"])
def test_a_replica_that_a_full_disk_had_no_room_for_is_made_later(
    cluster: Cluster, is_controller: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.broker.control.offline_notices.HOST_AGAIN_S", 0.05)
    elect(cluster, is_failing=is_controller)
    moving = TopicPartition("moving", 0)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("moving", replica_assignments={0: (1, 2)})])
        disk = disk_of(cluster.broker(FAILING).disk)
        disk.fail("*", "*/moving-0*", errno.ENOSPC)
        admin.alter_partition_reassignments({moving: (1, FAILING)})
        wait_until(lambda: caplog.text.count("moving-0 cannot be hosted") > 1, "the disk to be full twice")
        assert moving in admin.list_partition_reassignments()
        cluster.create_topic("another", replication_factor=3)
        disk.heal()
        wait_until(lambda: set(cluster.in_sync("moving", 0)) == {1, FAILING}, "the replica to be made")
        wait_until(lambda: not admin.list_partition_reassignments(), "the end of the move")
    assert cluster.replicas("moving", 0) == (1, FAILING)


def test_all_of_them_fail(cluster: Cluster) -> None:
    said: list[str] = []
    cluster.broker(FAILING).on_fatal = said.append
    with Load(cluster) as load:
        load.goes_on()
        failed(cluster, load, errno.EIO)
        disk_of(cluster.broker(FAILING).disk).fail("*", f"{ONE}*", errno.EIO)
        wait_until(lambda: said, "the broker to give up")
        assert said == [f"Shutdown broker because all log dirs in {ONE}, {TWO} have failed"]
        cluster.kill(FAILING)
        load.goes_on()
        disk_of(cluster._places[FAILING].disk).heal()
        cluster.restart(FAILING)
        in_sync(cluster)
    is_verified(cluster)
