"""A folder in which Apache Kafka ran transactions, served by our broker to readers of committed records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop.raw import RawConnection
from interop.wire_json import Definitions
from support.apache import ApacheKafka, ApacheZooKeeper
from support.brokers import RunningBroker
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("L3", "L5", "C8")]

TOPIC = "transacted"
TIMEOUT_S = 60.0
TURNS = 12
READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"


@pytest.fixture
def apache(tmp_path: Path, apache_zookeeper: ApacheZooKeeper) -> Iterator[ApacheKafka]:
    chroot = f"{apache_zookeeper.connect}/txn-{tmp_path.name}"
    broker = ApacheKafka(tmp_path / "apache", zookeeper=apache_zookeeper, overrides={"zookeeper.connect": chroot})
    yield broker.start()
    broker.stop()


def transact(broker: RunningBroker) -> None:
    """Committed, aborted and open transactions of several producers, and records of none, over several segments."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wait_until(lambda: admin.describe_cluster().result(TIMEOUT_S).controller, "the controller")
    admin.create_topics([NewTopic(TOPIC, 1, 1, config={"segment.bytes": "2000"})])[TOPIC].result(TIMEOUT_S)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    writers = []
    for name in ("a", "b"):
        writers.append(Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name}))
        writers[-1].init_transactions(TIMEOUT_S)
    for turn in range(TURNS):
        for number, writer in enumerate(writers):
            writer.begin_transaction()
            write(writer, f"{number}-{turn}", 5)
        write(plain, f"plain-{turn}", 2)
        for number, writer in enumerate(writers):
            if (turn + number) % 3:
                writer.commit_transaction(TIMEOUT_S)
            else:
                writer.abort_transaction(TIMEOUT_S)
    left_open = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "open"})
    left_open.init_transactions(TIMEOUT_S)
    left_open.begin_transaction()
    write(left_open, "open", 5)
    write(plain, "behind", 5)


def write(producer: Producer, name: str, count: int) -> None:
    for number in range(count):
        producer.produce(TOPIC, f"{name}-{number}".encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def read(broker: RunningBroker, isolation: str) -> list[tuple[int, bytes]]:
    """All records that a consumer of this isolation level is given, until it has read to the end that it may see."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.partition.eof": True, "check.crcs": True, "fetch.message.max.bytes": 700})

    def leader() -> bool:
        found = consumer.list_topics(TOPIC, TIMEOUT_S).topics[TOPIC].partitions
        return bool(found) and found[0].leader >= 0

    wait_until(leader, "the leader")
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[int, bytes]] = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            assert message.error().name() == "_PARTITION_EOF"
            consumer.close()
            return found
        found.append((message.offset(), message.value()))


def stable_offset(
    connect: Callable[[RunningBroker], RawConnection], broker: RunningBroker
) -> tuple[int, int, set[Any]]:
    """Last stable offset, high watermark, and the aborted transactions that one large fetch names."""
    answer = connect(broker).request("Fetch", 11, **fetch())
    (partition,) = answer["responses"][0]["partitions"]
    assert partition["error_code"] == 0
    aborted = {(one["producer_id"], one["first_offset"]) for one in partition["aborted_transactions"]}
    return partition["last_stable_offset"], partition["high_watermark"], aborted


def fetch() -> dict[str, Any]:
    wanted = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    return {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 1,
        "session_id": 0, "session_epoch": -1, "topics": [{"topic": TOPIC, "partitions": [wanted]}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_committed_records_are_read_alike(
    apache: ApacheKafka, tmp_path: Path, connect: Any, definitions: Definitions, end: str
) -> None:
    transact(apache)
    written = {isolation: read(apache, isolation) for isolation in (READ_UNCOMMITTED, READ_COMMITTED)}
    told = stable_offset(connect, apache)
    assert len(written[READ_COMMITTED]) < len(written[READ_UNCOMMITTED])
    assert not [value for _, value in written[READ_COMMITTED] if value.startswith((b"open", b"behind"))]
    apache.stop() if end == "stopped" else apache.kill9()
    files = {path.name: path.read_bytes() for path in (apache.log_dir / f"{TOPIC}-0").glob("*.txnindex")}
    assert any(files.values())
    if end == "killed":
        # What is made again from the log is what was there.
        for name in files:
            (apache.log_dir / f"{TOPIC}-0" / name).unlink()
        (apache.log_dir / "recovery-point-offset-checkpoint").unlink()
    ottla = OttlaServer(tmp_path / "ottla", data=apache.log_dir)
    try:
        ottla.start()
        assert {isolation: read(ottla, isolation) for isolation in written} == written
        assert stable_offset(connect, ottla) == told
        again = {path.name: path.read_bytes() for path in (apache.log_dir / f"{TOPIC}-0").glob("*.txnindex")}
        assert {name: data for name, data in again.items() if data} == {
            name: data for name, data in files.items() if data
        }
    finally:
        ottla.stop()
