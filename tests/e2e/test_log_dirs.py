"""Several folders: where partitions go, and what a folder that fails takes with it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.embedded import EmbeddedBroker
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.metadata import MetadataResponsePartition
from ottla.wire.messages.produce import ProduceResponse
from support.raw_client import FETCH_V, PRODUCE_V, RawClient, batch_of, fetch_request, produce_request
from support.waiting import wait_until

pytestmark = pytest.mark.spec("L8")

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
Start = Callable[..., EmbeddedBroker]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture
def broker(tmp_path: Path, folders: list[Path]) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(tmp_path, log_dirs=",".join(map(str, folders)))
    made.start()
    yield made
    made.disk.heal()
    made.stop()


def parts_of(folder: Path, topic: str = "t") -> list[int]:
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob(f"{topic}-*"))


def produce_all(client: RawClient, count: int, value: bytes) -> list[int]:
    return [client.produce("t", index, batch_of(value)).error_code for index in range(count)]


def described(client: RawClient, name: str = "t") -> list[MetadataResponsePartition]:
    return client.metadata(name).topics[0].partitions


def dirs(client: RawClient) -> dict[str, DescribeLogDirsResult]:
    answer = client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    assert answer.error_code == 0
    return {result.log_dir: result for result in answer.results}


def list_offset_error(client: RawClient, index: int) -> int:
    wanted = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)])
    answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), ListOffsetsResponse, 5)
    return answer.topics[0].partitions[0].error_code


def break_log_dir(broker: EmbeddedBroker, folder: Path) -> None:
    broker.disk.fail("*", f"{folder}*")


def check_halves(client: RawClient, broken: list[int], working: list[int]) -> None:
    """The partitions of a broken folder are offline in every respect, the others work."""
    partitions = described(client)
    for index in broken:
        assert (partitions[index].leader_id, partitions[index].offline_replicas) == (-1, [broker_id(client)])
        assert partitions[index].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert client.produce("t", index, batch_of(b"x")).error_code == STORAGE_ERROR
        assert client.fetch("t", index, 0, max_wait_ms=0)[0] == STORAGE_ERROR
        assert list_offset_error(client, index) == STORAGE_ERROR
    for index in working:
        assert (partitions[index].leader_id, partitions[index].offline_replicas) == (broker_id(client), [])
        assert client.produce("t", index, batch_of(b"more")).error_code == 0
        assert client.read_all("t", index)[0].value == b"first"


def broker_id(client: RawClient) -> int:
    return client.metadata("t").brokers[0].node_id


def test_partitions_are_spread_over_the_directories(broker: EmbeddedBroker, folders: list[Path]) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 6) == 0
        assert client.create_topic("u", 4) == 0
        assert produce_all(client, 6, b"first") == [0] * 6
        assert [len(parts_of(folder)) for folder in folders] == [3, 3]
        assert [len(parts_of(folder, "u")) for folder in folders] == [2, 2]
        found = dirs(client)
    assert set(found) == set(map(str, folders))
    for folder in folders:
        result = found[str(folder)]
        sizes = {topic.name: {p.partition_index: p.partition_size for p in topic.partitions} for topic in result.topics}
        assert sorted(sizes["t"]) == parts_of(folder)
        assert set(sizes["t"].values()) == {len(batch_of(b"first"))}
        assert set(sizes["u"].values()) == {0}
        assert result.total_bytes >= result.usable_bytes > 0


def test_a_directory_that_fails_goes_alone(
    broker: EmbeddedBroker, folders: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 4) == 0
        assert produce_all(client, 4, b"first") == [0] * 4
        broken, working = parts_of(folders[1]), parts_of(folders[0])
        break_log_dir(broker, folders[1])
        assert client.produce("t", broken[0], batch_of(b"x")).error_code == STORAGE_ERROR
        wait_until(lambda: described(client)[broken[0]].leader_id == -1, "the folder to go offline")
        check_halves(client, broken, working)
        found = dirs(client)
        assert found[str(folders[1])].error_code == STORAGE_ERROR
        assert found[str(folders[1])].topics == []
        assert found[str(folders[0])].error_code == 0
        assert client.create_topic("new", 3) == 0, "new partitions go where there is a disk"
        assert parts_of(folders[0], "new") == [0, 1, 2]
    assert any(f"Stopping serving logs in dir {folders[1]}" in message for message in caplog.messages)
    broker.restart()
    with RawClient(broker.port) as client:
        check_halves(client, [], range(4))  # type: ignore[arg-type]


def test_who_waits_is_notified(broker: EmbeddedBroker, folders: list[Path]) -> None:
    with RawClient(broker.port) as client, RawClient(broker.port) as consumer:
        assert client.create_topic("t", 2) == 0
        assert produce_all(client, 2, b"first") == [0, 0]
        (broken,) = parts_of(folders[1])
        consumer.send(fetch_request("t", broken, 1, max_wait_ms=60_000), FETCH_V)
        break_log_dir(broker, folders[1])
        assert client.produce("t", broken, batch_of(b"x")).error_code == STORAGE_ERROR
        answer = consumer.receive(FetchResponse, FETCH_V).responses[0].partitions[0]
        assert answer.error_code == STORAGE_ERROR


@pytest.mark.spec("L6")
def test_a_flush_that_fails_takes_the_directory_and_reports_who_waits(tmp_path: Path, folders: list[Path]) -> None:
    broker = EmbeddedBroker(tmp_path, log_dirs=",".join(map(str, folders)), ottla_log_flush_on_ack="true").start()
    try:
        with RawClient(broker.port) as client:
            assert client.create_topic("t", 2) == 0
            assert produce_all(client, 2, b"first") == [0, 0]
            (broken,), (working,) = parts_of(folders[1]), parts_of(folders[0])
            broker.disk.fail("flush", f"{folders[1]}*")
            broker.disk.fail("replace", f"{folders[1]}*")
            client.send(produce_request("t", broken, batch_of(b"x")), PRODUCE_V)
            answer = client.receive(ProduceResponse, PRODUCE_V).responses[0].partition_responses[0]
            assert answer.error_code == STORAGE_ERROR
            wait_until(lambda: described(client)[broken].leader_id == -1, "the folder to go offline")
            check_halves(client, [broken], [working])
    finally:
        broker.disk.heal()
        broker.stop()


def test_one_bad_file_is_not_the_end_of_a_directory(broker: EmbeddedBroker, folders: list[Path]) -> None:
    """Where Apache Kafka gives the whole folder up, a probe tells whether it still works."""
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 4) == 0
        assert produce_all(client, 4, b"first") == [0] * 4
        bad, good = parts_of(folders[1])
        broker.disk.fail("write", f"{folders[1]}/t-{bad}/*.log")
        assert client.produce("t", bad, batch_of(b"x")).error_code == STORAGE_ERROR
        wait_until(lambda: not broker.broker.executor.pending, "the probe")  # type: ignore[attr-defined]
        assert client.produce("t", good, batch_of(b"x")).error_code == 0
        assert [partition.leader_id >= 0 for partition in described(client)] == [True] * 4
    assert not (folders[1] / "ottla-probe").exists()


def test_a_full_disk_is_not_a_failed_one(broker: EmbeddedBroker, folders: list[Path]) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 2) == 0
        (full,) = parts_of(folders[1])
        broker.disk.fail("write", f"{folders[1]}/*", errno.ENOSPC)
        broker.disk.fail("replace", f"{folders[1]}/*", errno.ENOSPC)
        assert client.produce("t", full, batch_of(b"x")).error_code == STORAGE_ERROR
        wait_until(lambda: not broker.broker.executor.pending, "the probe")  # type: ignore[attr-defined]
        broker.disk.heal()
        assert client.produce("t", full, batch_of(b"x")).error_code == 0


def test_a_group_whose_offsets_are_gone_has_no_coordinator(broker: EmbeddedBroker, folders: list[Path]) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 1) == 0
        assert client.find_coordinator("g") == 0
        assert client.commit("g", "t", 0, 0) == 0
        (home,) = [folder for folder in folders if parts_of(folder, "__consumer_offsets")]
        break_log_dir(broker, home)
        assert client.commit("g", "t", 0, 1) == ErrorCode.NOT_COORDINATOR
        wait_until(lambda: client.find_coordinator("g") == ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody to coordinate")


def test_a_directory_that_is_gone_at_the_start(
    broker: EmbeddedBroker, folders: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 4) == 0
        assert client.create_topic("gone", 4) == 0
        assert produce_all(client, 4, b"first") == [0] * 4
        broken, working = parts_of(folders[1]), parts_of(folders[0])
    broker.stop()
    away = folders[1].rename(folders[1].with_name("away"))
    folders[1].write_text("a file is no folder")
    broker.start()
    with RawClient(broker.port) as client:
        check_halves(client, broken, working)
        assert dirs(client)[str(folders[1])].error_code == STORAGE_ERROR
        assert client.create_topic("new", 2) == 0
        assert parts_of(folders[0], "new") == [0, 1]
        assert client.delete_topic("gone") == ErrorCode.REQUEST_TIMED_OUT, "half of it is out of reach"
        assert "gone" not in client.topics()
    broker.stop()
    assert any(f"Stopping serving logs in dir {folders[1]}" in message for message in caplog.messages)
    broker.start()
    with RawClient(broker.port) as client:
        assert client.topics() == {"t", "new"}
        assert client.create_topic("gone") == ErrorCode.TOPIC_ALREADY_EXISTS
    broker.stop()
    folders[1].unlink()
    away.rename(folders[1])
    broker.start()
    with RawClient(broker.port) as client:
        check_halves(client, [], range(4))  # type: ignore[arg-type]
        assert client.topics() == {"t", "new"}, "its folders do not bring a deleted topic back"
        assert client.create_topic("gone") == 0


def test_without_the_first_directory_there_is_no_start(broker: EmbeddedBroker, folders: list[Path]) -> None:
    broker.stop()
    folders[0].rename(folders[0].with_name("away"))
    folders[0].write_text("a file is no folder")
    with pytest.raises(AssertionError, match=r"first directory of log\.dirs holds the coordination metadata"):
        broker.start()
    folders[0].unlink()
    folders[0].with_name("away").rename(folders[0])
    broker.start()


def test_the_last_directory_ends_the_broker(broker: EmbeddedBroker, folders: list[Path]) -> None:
    said: list[str] = []
    broker.broker.on_fatal = said.append
    with RawClient(broker.port) as client:
        assert client.create_topic("t", 2) == 0
        for folder in folders:
            (index,) = parts_of(folder)
            break_log_dir(broker, folder)
            client.produce("t", index, batch_of(b"x"))
            wait_until(lambda index=index: described(client)[index].leader_id == -1, "the folder to go")  # type: ignore[misc]
    assert len(said) == 1
    assert said[0].startswith("Shutdown broker because all log dirs in ")
