"""Partitions that are moved between the log directories of a broker while clients use them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.embedded import EmbeddedBroker
from ottla.client.admin.model import ConfigOperation, ConfigResource
from ottla.client.sync import Admin
from ottla.storage.checkpoints import MOVED_FILE
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from support.raw_client import RawClient, batch_of
from support.waiting import wait_until

pytestmark = pytest.mark.spec("R1")


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture
def broker(tmp_path: Path, folders: list[Path]) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(tmp_path, log_dirs=",".join(map(str, folders)), log_segment_bytes="100000")
    made.start()
    yield made
    made.disk.heal()
    made.stop()


def move(client: RawClient, folder: Path | str, *indexes: int, topic: str = "t") -> list[int]:
    """Ask for it; the errors."""
    wanted = AlterReplicaLogDir(
        path=str(folder), topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(indexes))]
    )
    answer = client.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), AlterReplicaLogDirsResponse, 2)
    return [partition.error_code for result in answer.results for partition in result.partitions]


def described(client: RawClient, topic: str = "t") -> dict[tuple[str, int, bool], DescribeLogDirsPartition]:
    """What DescribeLogDirs says, by name of the log directory, partition and whether it is a future replica."""
    answer = client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    return {
        (Path(result.log_dir).name, partition.partition_index, partition.is_future_key): partition
        for result in answer.results
        for described_topic in result.topics
        if described_topic.name == topic
        for partition in described_topic.partitions
    }


def home_of(client: RawClient, index: int) -> str:
    return next(name for name, number, is_future in described(client) if number == index and not is_future)


def is_settled(client: RawClient, index: int, folder: Path) -> bool:
    places = [(name, is_future) for name, number, is_future in described(client) if number == index]
    return places == [(folder.name, False)]


class Load:
    """A producer of numbered records, one batch each, until it is stopped."""

    def __init__(self, port: int, index: int) -> None:
        self._port, self._index = port, index
        self.acknowledged = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with RawClient(self._port, client_id="load") as client:
            while not self._is_over.is_set():
                assert client.produce("t", self._index, batch_of(b"%d" % self.acknowledged)).error_code == 0
                self.acknowledged += 1


def read_back(client: RawClient, index: int) -> list[bytes | None]:
    return [record.value for record in client.read_all("t", index)]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_a_partition_moves_under_load(broker: EmbeddedBroker, folders: list[Path]) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 1) == 0
        here = folders[0] if home_of(client, 0) == "one" else folders[1]
        there = folders[1] if here is folders[0] else folders[0]
        with Load(broker.port, 0) as load:
            wait_until(lambda: load.acknowledged > 500, "some records")
            for target in (there, here, there):
                assert move(client, target, 0) == [0]
                wait_until(lambda target=target: is_settled(client, 0, target), "the partition to be moved")  # type: ignore[misc]
                seen = load.acknowledged
                wait_until(lambda seen=seen: load.acknowledged > seen + 100, "more records")  # type: ignore[misc]
        assert read_back(client, 0) == numbers(load.acknowledged)
        wait_until(lambda: not (here / "t-0").exists(), "the former directory to be renamed")
        assert not list(there.glob("t-0*-future"))
        wait_until(lambda: not (there / "t-0" / MOVED_FILE).exists(), "the marker to be removed")
    broker.restart()
    with RawClient(broker.port) as client:
        assert home_of(client, 0) == there.name
        assert read_back(client, 0) == numbers(load.acknowledged)
        assert client.produce("t", 0, batch_of(b"%d" % load.acknowledged)).error_code == 0


def test_what_cannot_be_moved(broker: EmbeddedBroker, folders: list[Path]) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 2) == 0
        home = next(folder for folder in folders if folder.name == home_of(client, 0))
        assert move(client, "/nowhere", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
        assert move(client, home, 0) == [0], "it is there"
        assert move(client, home, 7) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert move(client, home, 0, topic="t" * 240) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        other = next(folder for folder in folders if folder is not home)
        broker.disk.fail("*", f"{other}*")
        assert move(client, other, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
        wait_until(lambda: move(client, home, 1) == [ErrorCode.KAFKA_STORAGE_ERROR], "the other to be offline")


def test_a_partition_to_come_goes_where_it_was_said(broker: EmbeddedBroker, folders: list[Path]) -> None:
    with RawClient(broker.port) as client:
        for index in range(4):
            assert move(client, folders[1], index) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert client.create_topic("t", 5) == 0
        homes = [home_of(client, index) for index in range(5)]
        assert homes == ["two"] * 4 + ["one"]


def test_a_move_that_is_taken_back(broker: EmbeddedBroker, folders: list[Path]) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 1) == 0
        assert client.produce("t", 0, batch_of(b"0")).error_code == 0
        home, other = sorted(folders, key=lambda folder: folder.name != home_of(client, 0))
        broker.disk.fail("write", f"{other}/t-0.*.log")
        assert move(client, other, 0) == [0]
        found = described(client)
        assert found[other.name, 0, True].offset_lag == 1
        assert found[home.name, 0, False].offset_lag == 0
        assert len(list(other.glob("t-0.*-future"))) == 1
        assert move(client, home, 0) == [0]
        assert is_settled(client, 0, home)
        assert not list(other.glob("*-future"))
        assert read_back(client, 0) == numbers(1)


def test_a_topic_that_is_deleted_while_it_moves(broker: EmbeddedBroker, folders: list[Path]) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 1) == 0
        assert client.produce("t", 0, batch_of(b"0")).error_code == 0
        other = next(folder for folder in folders if folder.name != home_of(client, 0))
        broker.disk.fail("write", f"{other}/t-0.*.log")
        assert move(client, other, 0) == [0]
        assert client.delete_topic("t") == 0
        assert not [path for folder in folders for path in folder.glob("t-0*") if not path.name.endswith("-delete")]
        broker.disk.heal()
        assert client.create_topic("t", 1) == 0
        assert client.produce("t", 0, batch_of(b"0")).error_code == 0


def test_a_move_goes_on_after_a_restart(broker: EmbeddedBroker, folders: list[Path]) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 1) == 0
        for number in range(200):
            assert client.produce("t", 0, batch_of(b"%d" % number)).error_code == 0
        other = next(folder for folder in folders if folder.name != home_of(client, 0))
        broker.disk.fail("rename", f"{other}/t-0.*")
        assert move(client, other, 0) == [0]
        wait_until(lambda: described(client)[other.name, 0, True].offset_lag == 0, "all to be copied")
        assert client.produce("t", 0, batch_of(b"200")).error_code == 0
    broker.restart()
    with RawClient(broker.port) as client:
        wait_until(lambda: is_settled(client, 0, other), "the partition to be moved")
        assert read_back(client, 0) == numbers(201)


def test_a_move_keeps_to_its_limit(broker: EmbeddedBroker, folders: list[Path]) -> None:
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    with RawClient(broker.port) as client, Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
        assert client.create_topic("t", 1) == 0
        for _ in range(20):
            assert client.produce("t", 0, batch_of(b"x" * 10_000)).error_code == 0
        other = next(folder for folder in folders if folder.name != home_of(client, 0))
        resource = ConfigResource.broker(admin.describe_cluster().nodes[0].node_id)
        admin.incremental_alter_configs({resource: [ConfigOperation("set", rate, "40000")]})
        before = time.monotonic()
        assert move(client, other, 0) == [0]
        wait_until(lambda: is_settled(client, 0, other), "the partition to be moved")
        # 200,000 bytes, of which those of the first second are free.
        assert time.monotonic() - before > 2


def test_a_move_to_a_slower_disk_ends_under_durable_load(tmp_path: Path, folders: list[Path]) -> None:
    broker = EmbeddedBroker(tmp_path, log_dirs=",".join(map(str, folders)), ottla_log_flush_on_ack="true")
    broker.start()
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 1) == 0
        other = next(folder for folder in folders if folder.name != home_of(client, 0))
        check = broker.disk.check
        time_of_a_flush = threading.Event()

        def slow(operation: str, path: str) -> None:
            if operation == "flush" and path.startswith(str(other)):
                time_of_a_flush.wait(0.05)  # sleep: the disk to which it moves is slower
            check(operation, path)

        broker.disk.check = slow  # type: ignore[method-assign]
        with Load(broker.port, 0) as load:
            wait_until(lambda: load.acknowledged > 20, "some records")
            assert move(client, other, 0) == [0]
            wait_until(lambda: is_settled(client, 0, other), "the partition to be moved while records come")
            seen = load.acknowledged
            wait_until(lambda: load.acknowledged > seen + 5, "more records")
        assert read_back(client, 0) == numbers(load.acknowledged)
    broker.stop()
