"""Log folders under real brokers and clients: Apache's tools read ours, each broker serves what the other wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.apache import ApacheKafka, ApacheZooKeeper
from support.brokers import RunningBroker
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until
from support.zk_trees import open_tree

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("L3")]

DUMP = "kafka.tools.DumpLogSegments"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
TOPIC, SMALL = "travels", "small"
PARTITIONS = 2
GROUP, COMMITTED = "travellers", 123
TIMEOUT_S = 60.0
#: Both brokers have to agree about where a group's offsets are.
SETTINGS = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}


def fill(broker: RunningBroker, name: str = "first", count: int = 600) -> None:
    """Make the topics, produce with all codecs, commit for a group."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"segment.bytes": "5000", "index.interval.bytes": "512"}
    wanted = [NewTopic(TOPIC, PARTITIONS, 1, config=config), NewTopic(SMALL, 1, 1)]
    # A broker that has just started may not know its controller yet, and librdkafka then waits for long.
    wait_until(lambda: admin.describe_cluster().result(TIMEOUT_S).controller, "the controller")
    for made in admin.create_topics(wanted).values():
        made.result(TIMEOUT_S)
    produce(broker, name, count)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, COMMITTED, metadata="so far")], asynchronous=False)
    consumer.close()


def produce(broker: RunningBroker, name: str, count: int = 600) -> None:
    for codec in CODECS:
        settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "enable.idempotence": True}
        producer = Producer({**settings, "batch.num.messages": 30, "linger.ms": 2})
        for number in range(count // len(CODECS)):
            value = f"{name} {codec} {number} " + "padding " * 10
            producer.produce(TOPIC, value.encode(), partition=number % PARTITIONS, headers=[("codec", codec.encode())])
        producer.produce(SMALL, f"{name} {codec}".encode())
        assert producer.flush(TIMEOUT_S) == 0


def everything(broker: RunningBroker) -> dict[tuple[str, int], list[tuple[int, bytes, int]]]:
    """All records of the topics: offset, value, timestamp."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "check.crcs": True})
    partitions = [(TOPIC, number) for number in range(PARTITIONS)] + [(SMALL, 0)]
    found: dict[tuple[str, int], list[tuple[int, bytes, int]]] = {}
    for topic in (TOPIC, SMALL):
        wait_until(lambda topic=topic: has_leaders(consumer, topic), f"the leaders of {topic}")
    for topic, number in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)
        consumer.assign([TopicPartition(topic, number, low)])
        rows = found.setdefault((topic, number), [])
        while len(rows) < high - low:
            messages = consumer.consume(high - low - len(rows), TIMEOUT_S)
            assert messages, f"{topic}-{number} ends at {len(rows)} of {high - low}"
            assert not [str(message.error()) for message in messages if message.error()]
            rows += [(one.offset(), one.value(), one.timestamp()[1]) for one in messages]
    consumer.close()
    return found


def has_leaders(consumer: Consumer, topic: str) -> bool:
    """Whether a broker that has just started knows the leaders of a topic's partitions."""
    described = consumer.list_topics(topic, TIMEOUT_S).topics[topic]
    return bool(described.partitions) and all(one.leader >= 0 for one in described.partitions.values())


def committed(broker: RunningBroker) -> tuple[int, str | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
    consumer.close()
    return found.offset, found.metadata


def dump(files: list[Path], *options: str) -> str:
    done = java_tool(DUMP, *options, "--files", ",".join(map(str, sorted(files))))
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if complains(line)]
    assert not complaints, complaints[:10]
    return done.stdout


def complains(line: str) -> bool:
    return bool(
        re.search(r"(?i)mismatch|exception|invalid|non-consecutive|out of order|corrupt|error|isvalid: false", line)
    )


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[OttlaServer]:
    server = OttlaServer(tmp_path / "ottla", overrides=SETTINGS, arguments=["--id", "1"])
    try:
        fill(server.start())
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("end", ["running", "stopped", "killed"])
def test_apaches_tool_reads_our_segments(filled: OttlaServer, end: str) -> None:
    if end == "stopped":
        assert filled.stop() == 0
    if end == "killed":
        filled.kill9()
        filled.restart()
    folders = [filled.log_dir / f"{TOPIC}-{number}" for number in range(PARTITIONS)]
    logs = [path for folder in folders for path in folder.glob("*.log")]
    assert len(logs) > 2, "the segments roll"
    told = dump(logs, "--deep-iteration", "--print-data-log")
    assert told.count("payload: first") == 600
    for codec in CODECS:
        assert told.count(f"payload: first {codec} ") == 120
        assert f"compresscodec: {codec}" in told.lower()
    # Of the active segment's index the unused tail is allocated in advance while the broker runs.
    indexes = [path for folder in folders for path in folder.glob("*.index")]
    sealed = indexes if end == "stopped" else [i for f in folders for i in sorted(f.glob("*.index"))[:-1]]
    assert sealed
    dump(sealed, "--index-sanity-check")
    dump(sealed)
    dump([path.with_suffix(".timeindex") for path in sealed])


@pytest.mark.spec("C3", "G12")
def test_apaches_tool_reads_our_offsets_topic(filled: OttlaServer) -> None:
    consumer = Consumer({"bootstrap.servers": filled.bootstrap, "group.id": "members", "client.id": "someone"})
    consumer.subscribe([TOPIC])
    for _ in range(200):
        consumer.poll(0.1)
        if consumer.assignment():
            break
    assert consumer.assignment()
    consumer.close()
    logs = [path for path in filled.log_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    told = dump(logs, "--offsets-decoder")
    (line,) = [one for one in told.splitlines() if f'"group":"{GROUP}"' in one and '"topic":' in one]
    assert f'"topic":"{TOPIC}"' in line
    assert '"partition":0' in line
    assert f'"offset":{COMMITTED}' in line
    assert '"metadata":"so far' in line
    generations = [one for one in told.splitlines() if '"group":"members"' in one and '"protocolType"' in one]
    assert generations, told
    assert any('"protocol":"range"' in one and "someone" in one for one in generations)


def test_apaches_tool_reads_our_producer_snapshots(filled: OttlaServer) -> None:
    filled.stop()
    snapshots = list(filled.log_dir.glob(f"{TOPIC}-0/*.snapshot"))
    assert snapshots
    assert "producerId" in dump(snapshots)


@pytest.fixture
def make_apache(tmp_path: Path, apache_zookeeper: ApacheZooKeeper) -> Iterator[Callable[..., ApacheKafka]]:
    """Makes Apache Kafka brokers of one chroot in ZooKeeper, all stopped in the end."""
    made: list[ApacheKafka] = []

    def make(folder: Path, **more: str) -> ApacheKafka:
        overrides = {**SETTINGS, "zookeeper.connect": chroot(apache_zookeeper, tmp_path), **more}
        made.append(ApacheKafka(folder, zookeeper=apache_zookeeper, overrides=overrides))
        return made[-1]

    yield make
    for broker in made:
        broker.stop()


def chroot(zookeeper: ApacheZooKeeper, tmp_path: Path) -> str:
    return f"{zookeeper.connect}/interop-{tmp_path.name}"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Path], OttlaServer]]:
    """Starts our broker on a data folder; all stopped in the end."""
    started: list[OttlaServer] = []

    def start(data: Path) -> OttlaServer:
        server = OttlaServer(tmp_path / f"ottla-{len(started)}", data=data, overrides=SETTINGS)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.stop()


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.spec("L9", "C3")
def test_we_serve_what_apache_kafka_wrote(make_apache: Any, serve: Any, tmp_path: Path, end: str) -> None:
    apache = make_apache(tmp_path / "apache").start()
    fill(apache)
    written = everything(apache)
    apache.stop() if end == "stopped" else apache.kill9()
    ottla = serve(apache.log_dir)
    assert everything(ottla) == written
    assert committed(ottla) == (COMMITTED, "so far")
    # Life continues: more records, a group that continues where it was.
    produce(ottla, "second", 100)
    settings = {"bootstrap.servers": ottla.bootstrap, "group.id": GROUP, "auto.offset.reset": "error"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0)])
    (first,) = consumer.consume(1, TIMEOUT_S)
    assert first.offset() == COMMITTED
    consumer.close()
    ottla.kill9()
    ottla.restart()
    after = everything(ottla)
    for partition, rows in written.items():
        assert after[partition][: len(rows)] == rows
        assert len(after[partition]) > len(rows)


@pytest.mark.spec("Z1")
def test_it_keeps_the_cluster_and_topic_ids(make_apache: Any, serve: Any, tmp_path: Path) -> None:
    apache = make_apache(tmp_path / "apache").start()
    fill(apache, count=10)
    before = ids(apache)
    apache.stop()
    assert ids(serve(apache.log_dir)) == before


def ids(broker: RunningBroker) -> tuple[str, str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    metadata = (broker.log_dir / f"{TOPIC}-0" / "partition.metadata").read_text()
    return cluster.cluster_id, metadata


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.spec("L9", "C3")
def test_apache_kafka_serves_what_we_wrote(
    filled: OttlaServer, make_apache: Any, apache_zookeeper: ApacheZooKeeper, tmp_path: Path, end: str
) -> None:
    written = everything(filled)
    filled.stop() if end == "stopped" else filled.kill9()
    register(chroot(apache_zookeeper, tmp_path), filled.log_dir)
    apache = make_apache(tmp_path / "apache", **{"log.dirs": str(filled.log_dir)}).start()
    assert everything(apache) == written
    assert committed(apache) == (COMMITTED, "so far")
    produce(apache, "second", 100)
    assert [line for line in apache.server.stdout.splitlines() if " ERROR " in line] == []
    apache.stop()
    # And back: we continue with what Apache Kafka added.
    filled.restart()
    after = everything(filled)
    for partition, rows in written.items():
        assert after[partition][: len(rows)] == rows
        assert len(after[partition]) > len(rows)


def register(connect: str, log_dir: Path) -> None:
    """Tell ZooKeeper of the topics in a folder and of its cluster: Apache Kafka deletes what it does not know."""
    properties = dict(
        line.split("=", 1) for line in (log_dir / "meta.properties").read_text().splitlines() if "=" in line
    )
    topic_ids: dict[str, str] = {}
    partitions_of: dict[str, set[int]] = {}
    for folder in filter(Path.is_dir, log_dir.iterdir()):
        name, _, number = folder.name.rpartition("-")
        partitions_of.setdefault(name, set()).add(int(number))
        metadata = folder / "partition.metadata"
        # A killed broker may leave partitions without records, and those without this file.
        if metadata.exists():
            found = re.search(r"topic_id: (\S+)", metadata.read_text())
            assert found is not None
            topic_ids[name] = found[1]
    host, _, path = connect.partition("/")
    client = open_tree(host)
    try:
        cluster = {"version": "1", "id": properties["cluster.id"]}
        client.create(f"/{path}/cluster/id", json.dumps(cluster).encode(), makepath=True)
        # Producer ids continue behind those given out, which the logs remember.
        block = {"version": 1, "broker": 1, "block_start": "0", "block_end": "999999"}
        client.create(f"/{path}/latest_producer_id_block", json.dumps(block).encode())
        for name, topic_id in topic_ids.items():
            partitions = {str(number): [1] for number in sorted(partitions_of[name])}
            described = {"version": 3, "topic_id": topic_id, "partitions": partitions}
            described |= {"adding_replicas": {}, "removing_replicas": {}}
            client.create(f"/{path}/brokers/topics/{name}", json.dumps(described).encode(), makepath=True)
    finally:
        client.stop()
        client.close()
