"""Several log folders and DescribeLogDirs beside Apache Kafka, by the raw protocol and by its tool."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.both_brokers import BrokerPair, Each, assert_alike, made, topic_id_when_usable
from interop.raw import RawConnection, batch
from interop.wire_json import Json
from support.apache import ApacheKafka, ApacheZooKeeper
from support.brokers import RunningBroker
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.spec("L8")]

LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
KAFKA_STORAGE_ERROR = 56
#: Where the folders are and how large their volume is: each broker's own.
OWN = {"log_dir", "total_bytes", "usable_bytes"}
FIRST_VERSION_WITH_SIZES = 4


def of_topic(answer: Json, name: str) -> Json:
    """The answer with nothing but this topic in it."""
    for result in answer["results"]:
        result["topics"] = [topic for topic in result["topics"] if topic["name"] == name]
        for topic in result["topics"]:
            topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return answer


@pytest.mark.parametrize("version", range(5))
def test_all_directories_are_described_alike(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique, partitions=3)
    produced(pair.ours, unique, 1, 40)
    produced(pair.theirs, unique, 1, 40)
    both = pair.ask_each("DescribeLogDirs", version, topics=None)
    ours, theirs = of_topic(both.ours, unique), of_topic(both.theirs, unique)
    assert_alike(ours, theirs, f"DescribeLogDirs v{version}", OWN)
    (result,) = ours["results"]
    assert [p["partition_size"] > 0 for p in result["topics"][0]["partitions"]] == [False, True, False]
    if version >= FIRST_VERSION_WITH_SIZES:
        for (one,) in (ours["results"], theirs["results"]):
            assert one["total_bytes"] >= one["usable_bytes"] > 0
        assert ours["results"][0]["total_bytes"] == theirs["results"][0]["total_bytes"], "the same volume"


@pytest.mark.parametrize("version", range(5))
def test_some_partitions_are_described_alike(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique, partitions=3)
    wanted = [{"topic": unique, "partitions": [2, 0, 7]}, {"topic": "nowhere", "partitions": [0]}]
    both = pair.ask_each("DescribeLogDirs", version, topics=wanted)
    assert [named(result) for result in both.ours["results"]] == [named(result) for result in both.theirs["results"]]
    assert_alike(of_topic(both.ours, unique), of_topic(both.theirs, unique), f"v{version}", OWN)
    nothing = pair.ask_each("DescribeLogDirs", version, topics=[])
    assert [named(result) for result in nothing.ours["results"]] == [named(r) for r in nothing.theirs["results"]]


def named(result: Json) -> set[str]:
    """The topics of a folder of which a partition is told."""
    return {topic["name"] for topic in result["topics"] if topic["partitions"]}


def test_the_tool_reads_the_directories(broker: RunningBroker, raw: RawConnection, unique: str) -> None:
    wait_until(lambda: made(raw, {"name": unique, "num_partitions": 2, "replication_factor": 1}), "the topic")
    topic_id_when_usable(raw, unique, 2)
    told = java_tool(
        LOG_DIRS, "--describe", "--topic-list", unique, "--bootstrap-server", broker.bootstrap
    ).stdout.splitlines()
    (found,) = [json.loads(line) for line in told if line.startswith("{")]
    (one,) = found["brokers"]
    (folder,) = one["logDirs"]
    assert folder["error"] is None
    assert Path(folder["logDir"]) == broker.log_dir.absolute()
    assert sorted(partition["partition"] for partition in folder["partitions"]) == [f"{unique}-0", f"{unique}-1"]


# Folders that are gone


class TwoLogDirectories:
    """A broker with two folders, one of which is made useless while it is stopped."""

    def __init__(self, server: OttlaServer | ApacheKafka, folder: Path, connect: Callable[..., RawConnection]) -> None:
        self.server = server
        self.folders = [folder / "one", folder / "two"]
        self._connect = connect
        self.connection: RawConnection

    def start(self) -> None:
        """Start, and connect."""
        self.server.start()
        self.connection = self._connect(self.server)

    def prepare(self) -> tuple[int, int]:
        """A topic with records in both folders, then the second is gone; a partition that stayed, and one that went."""
        self.start()
        topic = {"name": "t", "num_partitions": 4, "replication_factor": 1}
        wait_until(lambda: made(self.connection, topic), "the topic")
        topic_id_when_usable(self.connection, "t", 4)
        for index in range(4):
            produced(self.connection, "t", index)
        stayed, went = (sorted(int(path.name[2:]) for path in folder.glob("t-*"))[0] for folder in self.folders)
        self.connection.close()
        self.server.stop()
        self.folders[1].rename(self.folders[1].with_name("away"))
        self.folders[1].write_text("a file is no folder")
        self.start()
        return stayed, went


def produced(connection: RawConnection, topic: str, index: int, size: int = 10, version: int = 9) -> int:
    """The error of producing one record."""
    data = {"index": index, "records": batch([b"v" * size])}
    answer = connection.request(
        "Produce",
        version,
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[{"name": topic, "partition_data": [data]}],
    )
    error: int = answer["responses"][0]["partition_responses"][0]["error_code"]
    return error


@pytest.fixture
def halves(
    tmp_path: Path, connect: Callable[..., RawConnection], apache_zookeeper: ApacheZooKeeper
) -> Iterator[tuple[BrokerPair, Each, Each]]:
    """Both brokers without their second folder; a partition that stayed, and one that went, of each."""
    both: list[TwoLogDirectories] = []
    for name in ("ours", "theirs"):
        folder = tmp_path / name
        folder.mkdir()
        dirs = f"{folder}/one,{folder}/two"
        server: OttlaServer | ApacheKafka
        if name == "ours":
            server = OttlaServer(folder, data=Path(dirs), arguments=["--id", "1"])
        else:
            apart = {"zookeeper.connect": f"{apache_zookeeper.connect}/{tmp_path.name}"}
            server = ApacheKafka(folder, zookeeper=apache_zookeeper, overrides={"log.dirs": dirs, **apart})
        both.append(TwoLogDirectories(server, folder, connect))
    try:
        ours, theirs = (one.prepare() for one in both)
        pair = BrokerPair(both[0].connection, both[1].connection)
        wait_until(lambda: leaderless(pair.theirs, theirs[1]), "Apache Kafka to see that a folder is gone")
        yield pair, Each(ours[0], theirs[0]), Each(ours[1], theirs[1])
    finally:
        for one in both:
            one.server.stop()


def leaderless(connection: RawConnection, index: int) -> bool:
    (topic,) = connection.request("Metadata", 12, topics=[{"name": "t"}])["topics"]
    leaders = {partition["partition_index"]: partition["leader_id"] for partition in topic["partitions"]}
    return bool(leaders and leaders[index] == -1 and sum(leader >= 0 for leader in leaders.values()) == 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_directory_that_is_gone_at_the_start(halves: tuple[BrokerPair, Each, Each]) -> None:
    pair, stayed, went = halves
    for index in (stayed, went):
        for version in (3, 7, 9, 11):
            data = {"index": index, "records": batch([b"v"])}
            body: Json = {"acks": -1, "timeout_ms": 10_000, "transactional_id": None}
            topics = [{"name": "t", "partition_data": [data]}]
            pair.check_alike("Produce", version, ignore={"base_offset"}, topic_data=topics, **body)
        for version in (4, 5, 6, 11, 12):
            fetched: Json = {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000, "log_start_offset": -1}
            if version < FIRST_FETCH_WITH_LOG_START:
                del fetched["log_start_offset"]
            topics = [{"topic": "t", "partitions": [fetched]}]
            more: Json = {"session_id": 0, "session_epoch": -1} if version >= FIRST_FETCH_WITH_SESSIONS else {}
            ignored = {"records", "current_leader"}
            answer: Json = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000}
            pair.check_alike("Fetch", version, ignore=ignored, topics=topics, isolation_level=0, **answer, **more)
        for version in (1, 5, 7):
            asked = [{"partition_index": index, "timestamp": -1}]
            wanted = [{"name": "t", "partitions": asked}]
            level: Json = {"isolation_level": 0} if version >= 2 else {}
            pair.check_alike("ListOffsets", version, replica_id=-1, topics=wanted, **level)
        epochs = [{"topic": "t", "partitions": [{"partition": index, "current_leader_epoch": -1, "leader_epoch": 0}]}]
        pair.check_alike("OffsetForLeaderEpoch", 3, replica_id=-1, topics=epochs)
    for version in range(5):
        both = pair.ask_each("DescribeLogDirs", version, topics=None)
        errors = [sorted(result["error_code"] for result in side["results"]) for side in (both.ours, both.theirs)]
        assert errors == [[0, KAFKA_STORAGE_ERROR]] * 2
        counted = [[len(result["topics"]) for result in sorted(side["results"], key=path_of)] for side in
                   (both.ours, both.theirs)]  # fmt: skip
        assert counted[0] == counted[1]
    described = pair.ask_each("Metadata", 12, topics=[{"name": "t"}])
    assert_alike(
        partition_of(described.ours, went.ours), partition_of(described.theirs, went.theirs), "Metadata",
        {"partition_index", "leader_epoch"},
    )  # fmt: skip


FIRST_FETCH_WITH_LOG_START = 5
FIRST_FETCH_WITH_SESSIONS = 7


def path_of(result: Json) -> str:
    path: Any = result["log_dir"]
    return str(path).rpartition("/")[2]


def partition_of(answer: Json, index: int) -> Json:
    (found,) = [p for p in answer["topics"][0]["partitions"] if p["partition_index"] == index]
    return dict(found)
