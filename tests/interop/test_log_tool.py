"""`ottla log` on folders that Apache Kafka and ottla wrote: sound to verify, and dumped as Apache's own tool does."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.env.disk import RealDisk
from ottla.inspection.batch_rows import RecordWish
from ottla.inspection.dump import DumpWish, dump
from ottla.inspection.findings import LogFinding, Severity, Tally
from ottla.inspection.repair import carry_out
from ottla.inspection.verify import VerifyWish, verify
from support.apache import ApacheKafka, ApacheZooKeeper
from support.dumped_logs import PRODUCER, dumped_by_apache, dumped_by_us
from support.inspected_logs import starts
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("L3")]

TIMEOUT_S = 60.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PLAIN, COMPACTED, TRANSACTIONAL = "plain", "compacted", "transactional"
GROUP = "travellers"
SMALL = {"segment.bytes": "8000", "index.interval.bytes": "512"}
COMPACT = {
    **SMALL,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "400",
    "delete.retention.ms": "100",
}


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_until(lambda: admin.describe_cluster().result(TIMEOUT_S).controller, "the controller")
    wanted = [NewTopic(PLAIN, 1, 1, config=SMALL), NewTopic(COMPACTED, 1, 1, config=COMPACT)]
    wanted.append(NewTopic(TRANSACTIONAL, 1, 1, config=SMALL))
    for made in admin.create_topics(wanted).values():
        made.result(TIMEOUT_S)


def fill(bootstrap: str) -> None:
    """All codecs, with and without idempotence, and the offsets of a group."""
    for codec in CODECS:
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.num.messages": 20}
        producer = Producer({**settings, "enable.idempotence": codec != "gzip", "linger.ms": 2})
        for number in range(120):
            producer.produce(PLAIN, b"value %d " % number * 5, headers=[("codec", codec.encode()), ("none", None)])
            key = b"key %d" % (number % 7)
            producer.produce(COMPACTED, None if number % 50 == 9 else b"value" * 10, key=key)
        assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(PLAIN, 0, 123, metadata="so far")], asynchronous=False)
    consumer.close()


def transactions(bootstrap: str) -> None:
    """Two producers whose transactions lie among each other; every third is aborted."""
    producers = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "batch.num.messages": 3})
        for name in ("one", "two")
    ]
    for producer in producers:
        producer.init_transactions(TIMEOUT_S)
    for number in range(30):
        for producer in producers:
            producer.begin_transaction()
        for step in range(4):
            for producer in producers:
                producer.produce(TRANSACTIONAL, b"value %d" % number * 20, key=b"%d" % step)
                producer.flush(TIMEOUT_S)
        for which, producer in enumerate(producers):
            if (number + which) % 3:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)


def findings(folder: Path) -> list[LogFinding]:
    found = list(verify(RealDisk(), str(folder), VerifyWish(), Tally()))
    return [each for each in found if each.severity is not Severity.NOTICE]


def compacted(folder: Path) -> bool:
    path = folder / "cleaner-offset-checkpoint"
    return path.exists() and COMPACTED in path.read_text()


@pytest.fixture
def apache(tmp_path: Path, apache_zookeeper: ApacheZooKeeper) -> Iterator[ApacheKafka]:
    overrides = {
        "zookeeper.connect": f"{apache_zookeeper.connect}/log-tool-{tmp_path.name}",
        "log.cleaner.backoff.ms": "100",
    }
    broker = ApacheKafka(tmp_path / "apache", zookeeper=apache_zookeeper, overrides=overrides)
    yield broker.start()
    broker.stop()


def compare_with_apaches_tool(log_dir: Path) -> int:
    """All files of all partitions, field by field; returns how many lines were equal."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = [path for path in log_dir.glob("*/*") if path.suffix in suffixes and path.stat().st_size]
    theirs = dumped_by_apache(files, "--deep-iteration")
    equal = 0
    for path in files:
        rows = theirs[str(path)]
        if path.suffix == ".snapshot":
            rows = [{name: value for name, value in row.items() if name in PRODUCER} for row in rows]
            ours = dumped_by_us(path)
            for row, mine in zip(rows, ours, strict=True):
                # Of a producer without a batch the tool shows fewer fields.
                assert row == {name: mine[name] for name in row}, path
        else:
            assert dumped_by_us(path, records=True) == rows, path
        equal += len(rows)
    return equal


@pytest.mark.spec("L5", "L9")
def test_a_directory_of_apache_kafka(apache: ApacheKafka) -> None:
    make_topics(apache.bootstrap)
    fill(apache.bootstrap)
    transactions(apache.bootstrap)
    time.sleep(0.5)  # sleep: segment.ms of the compacted topic has to be over, so that the next append rolls
    fill(apache.bootstrap)
    wait_until(lambda: compacted(apache.log_dir), "the cleaner", TIMEOUT_S)
    assert findings(apache.log_dir) == [], "while the broker runs"
    apache.stop()
    assert findings(apache.log_dir) == []
    assert list(apache.log_dir.glob(f"{TRANSACTIONAL}-0/*.txnindex"))
    assert compare_with_apaches_tool(apache.log_dir) > 1000
    topics_of_brokers(apache.log_dir)


def topics_of_brokers(log_dir: Path) -> None:
    """Committed offsets and transactions in words."""
    offsets = [row for row in decoded(log_dir, "__consumer_offsets") if row["kind"] == "offset"]
    assert {(row["group"], row["topic"], row["committed_offset"]) for row in offsets} == {(GROUP, PLAIN, 123)}
    assert offsets[0]["metadata"].startswith("so far")
    states = decoded(log_dir, "__transaction_state")
    assert {row["transactional_id"] for row in states} == {"one", "two"}
    assert {"Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"} <= {
        row.get("state") for row in states
    }


def decoded(log_dir: Path, topic: str) -> list[dict]:
    wish = DumpWish(records=RecordWish(records=True), topic=topic)
    rows = dump(RealDisk(), str(log_dir), wish)
    return [row["decoded"] for row in rows if row["type"] == "record" and "decoded" in row]


@pytest.mark.spec("L5", "L9")
@pytest.mark.parametrize("end", ["running", "stopped", "killed"])
def test_a_directory_of_ours(tmp_path: Path, end: str) -> None:
    settings = {"offsets.topic.num.partitions": "4", "log.cleaner.backoff.ms": "100"}
    server = OttlaServer(tmp_path / "ottla", overrides=settings, arguments=["--id", "1"])
    try:
        server.start()
        make_topics(server.bootstrap)
        fill(server.bootstrap)
        time.sleep(0.5)  # sleep: segment.ms of the compacted topic has to be over, so that the next append rolls
        fill(server.bootstrap)
        wait_until(lambda: compacted(server.log_dir), "the cleaner", TIMEOUT_S)
        if end == "killed":
            server.kill9()
        elif end == "stopped":
            assert server.stop() == 0
        harmless = {Severity.WARNING} if end == "killed" else set()
        # What a killed broker had not written of an index yet, the next one makes again.
        assert [each for each in findings(server.log_dir) if each.severity not in harmless] == []
    finally:
        server.stop()


@pytest.mark.spec("L9")
def test_apache_kafka_serves_what_was_repaired(apache: ApacheKafka) -> None:
    """A damaged folder of Apache Kafka's: after the repair it starts on it and gives all that was whole."""
    make_topics(apache.bootstrap)
    fill(apache.bootstrap)
    transactions(apache.bootstrap)
    before = {topic: read_all(apache.bootstrap, topic) for topic in (PLAIN, TRANSACTIONAL)}
    apache.stop()
    chance = random.Random(3)
    for topic in before:
        for path in sorted(apache.log_dir.glob(f"{topic}-0/*.log"))[:3]:
            data = bytearray(path.read_bytes())
            begin = starts(data)
            for start in chance.sample(begin[1:-1], 2):
                data[start + chance.choice((3, 9, 16, 70))] ^= 4
            path.write_bytes(data)
        next(apache.log_dir.glob(f"{topic}-0/*.index")).write_bytes(b"damaged")
    assert any(each.severity is Severity.DAMAGE for each in findings(apache.log_dir))
    assert carry_out(RealDisk(), str(apache.log_dir), VerifyWish()).to_repair == []
    assert not [each for each in findings(apache.log_dir) if each.severity is Severity.DAMAGE]
    apache.start()
    for topic, rows in before.items():
        after = read_all(apache.bootstrap, topic)
        assert after.items() <= rows.items()
        assert len(after) > len(rows) // 2
    produced = Producer({"bootstrap.servers": apache.bootstrap})
    produced.produce(PLAIN, b"life goes on")
    assert produced.flush(TIMEOUT_S) == 0


def read_all(bootstrap: str, topic: str) -> dict[int, bytes]:
    """Committed records by offset."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True, "check.crcs": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: dict[int, bytes] = {}
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"the end of {topic} does not come"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, str(message.error())
            break
        rows[message.offset()] = message.value()
    consumer.close()
    return rows
