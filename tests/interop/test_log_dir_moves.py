"""AlterReplicaLogDirs beside Apache Kafka: its errors, and moves that one broker begins and the other one ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop.both_brokers import made, topic_id_when_usable
from interop.raw import RawConnection, batch
from interop.wire_json import Json
from support.apache import ApacheKafka, ApacheZooKeeper
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("R1")]

Connect = Callable[..., RawConnection]
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER = 4
#: Of ten kilobytes: Apache Kafka copies a megabyte before it looks at its limit.
RECORDS = 300


class TwoDirectories:
    """A broker with two log directories; either make may serve them."""

    def __init__(self, maker: str, folder: Path, zookeeper: ApacheZooKeeper, connect: Connect) -> None:
        self.folders = [folder / "one", folder / "two"]
        self.folder = folder
        self._zookeeper = zookeeper
        self._connect = connect
        self.start(maker)

    def start(self, maker: str) -> None:
        """Start a broker of this make on them."""
        dirs = ",".join(map(str, self.folders))
        chroot = f"{self._zookeeper.connect}/{self.folder.name}-{self.folder.parent.name}"
        self.server: OttlaServer | ApacheKafka
        if maker == "ottla":
            arguments = ["--id", str(BROKER), "--zookeeper", chroot]
            self.server = OttlaServer(self.folder, data=Path(dirs), arguments=arguments)
        else:
            own = {"log.dirs": dirs, "zookeeper.connect": chroot}
            self.server = ApacheKafka(self.folder, zookeeper=self._zookeeper, broker_id=BROKER, overrides=own)
        self.server.start()
        self.connection = self._connect(self.server)

    def replace(self, maker: str) -> None:
        """Stop it in order, and start one of the other make."""
        self.connection.close()
        self.server.stop()
        self.start(maker)

    def create(self, name: str, partitions: int = 1) -> None:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        wait_until(lambda: made(self.connection, topic), "the topic")
        topic_id_when_usable(self.connection, name, partitions)

    def move(self, version: int, path: str, name: str, *indexes: int) -> list[int]:
        """The errors of a request."""
        wanted = [{"path": path, "topics": [{"name": name, "partitions": list(indexes)}]}]
        answer = self.connection.request("AlterReplicaLogDirs", version, dirs=wanted)
        return [one["error_code"] for topic in answer["results"] for one in topic["partitions"]]

    def places(self, name: str) -> dict[tuple[str, bool], Json]:
        """Where the topic's first partition is, and whether that is a future replica."""
        answer = self.connection.request("DescribeLogDirs", 4, topics=[{"topic": name, "partitions": [0]}])
        return {
            (Path(result["log_dir"]).name, one["is_future_key"]): one
            for result in answer["results"]
            for topic in result["topics"]
            for one in topic["partitions"]
        }

    def other(self, name: str) -> Path:
        """The directory where the first partition is not; none while it is said to be in both."""
        places = self.places(name)
        return next((each for each in self.folders if (each.name, False) not in places), Path())

    def produce(self, name: str, count: int) -> None:
        for number in range(count):
            data = {"index": 0, "records": batch([b"%d" % number + b"x" * 10_000])}
            topics = [{"name": name, "partition_data": [data]}]
            self.connection.request("Produce", 9, transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)

    def throttle(self, rate: str) -> None:
        """Limit moves, in bytes a second."""
        config = {"name": RATE, "config_operation": 0, "value": rate}
        resource = {"resource_type": 4, "resource_name": str(BROKER), "configs": [config]}
        answer = self.connection.request("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
        assert [each["error_code"] for each in answer["responses"]] == [0], answer


@pytest.fixture
def both(tmp_path: Path, connect: Connect, apache_zookeeper: ApacheZooKeeper) -> Iterator[list[TwoDirectories]]:
    """A broker of ottla, and one of Apache Kafka."""
    found: list[TwoDirectories] = []
    try:
        for maker in ("ottla", "apache"):
            (tmp_path / maker).mkdir()
            found.append(TwoDirectories(maker, tmp_path / maker, apache_zookeeper, connect))
        yield found
    finally:
        for each in found:
            each.server.stop()


def test_errors_are_alike(both: list[TwoDirectories]) -> None:
    answers = []
    for one in both:
        one.create("t", 2)
        one.produce("t", 1)
        here = str(next(each for each in one.folders if each != one.other("t")))
        found = {
            "unknown directory": [one.move(version, "/nowhere", "t", 0, 1) for version in range(3)],
            "relative path": [one.move(2, "one", "t", 0)],
            "no such topic": [one.move(version, here, "nothing", 0) for version in range(3)],
            "no such partition": [one.move(2, here, "t", 7)],
            "long name": [one.move(2, here, "n" * 215, 0)],
            "where it is": [one.move(version, here, "t", 0) for version in range(3)],
            "elsewhere": [one.move(2, str(one.other("t")), "t", 0)],
        }
        wait_until(lambda one=one, here=here: Path(here) == one.other("t"), "the end of the move")  # type: ignore[misc]
        answers.append(found)
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("begins", "ends"), [("apache", "ottla"), ("ottla", "apache")])
def test_a_move_is_ended_by_the_other_make(
    tmp_path: Path, connect: Connect, apache_zookeeper: ApacheZooKeeper, begins: str, ends: str
) -> None:
    folder = tmp_path / begins
    folder.mkdir()
    one = TwoDirectories(begins, folder, apache_zookeeper, connect)
    try:
        one.create("t")
        one.produce("t", RECORDS)
        one.throttle("100000")
        target = one.other("t")
        assert one.move(2, str(target), "t", 0) == [0]
        wait_until(lambda: any(place[1] for place in one.places("t")), "a future replica")
        wait_until(lambda: any(path.stat().st_size for path in target.glob("t-0.*-future/*.log")), "some of it")
        assert (target.name, True) in one.places("t"), "the limit holds it up"
        one.replace(ends)
        wait_until(lambda: (target.name, True) in one.places("t") or one.other("t") != target, "the future replica")
        one.throttle("100000000")
        wait_until(lambda: one.places("t").keys() == {(target.name, False)}, lambda: f"its end: {one.places('t')}", 90)
        fetched = one.connection.request(
            "ListOffsets",
            5,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        )
        assert fetched["topics"][0]["partitions"][0]["offset"] == RECORDS
        assert sum(path.stat().st_size for path in target.glob("t-0/*.log")) > RECORDS * 10_000
    finally:
        one.server.stop()
