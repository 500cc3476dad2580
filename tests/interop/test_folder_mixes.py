"""Random mixes on one folder: written by one broker, appended to by the other, by the first again, and clean to Apache
Kafka's tool and ours.

What varies by the seed: who begins, how it ends, compression, message format, sizes of segments, compaction,
timestamps, and who writes: plain, idempotent and transactional producers. A list of everything that was acknowledged
is the judge of what each broker serves.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import gt
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kazoo.client import KazooClient

from interop.test_log_folders import complains, has_leaders, register
from ottla.env.disk import RealDisk
from ottla.storage.inspection.findings import Severity, Tally
from ottla.storage.inspection.verify import VerifyWish, verify
from support.apache import ApacheKafka, ApacheZooKeeper
from support.brokers import RunningBroker
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(150), pytest.mark.spec("L3", "L7", "L9")]

TOPIC = "mix"
PARTITIONS = 2
KEYS = 20
TIMEOUT_S = 20.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
#: Topics in the formats before 2, which Apache Kafka writes only when told that its fellows are that old.
OLD_FORMATS = {0: "0.9.0", 1: "0.10.2"}
OLD_FELLOWS = {"inter.broker.protocol.version": "2.8"}
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
}
MIXES = 20
EVERY_DAY = (6, 15)


@dataclass(frozen=True)
class Mix:
    """What is chosen by the seed."""

    apache_begins: bool
    end: str
    #: The format that Apache Kafka writes.
    magic: int
    topic: dict[str, str]
    codecs: list[str]
    #: Of plain, idempotent and transactional producers, one after the other.
    writers: list[str]
    #: Whether a transaction is left open when Apache Kafka stops.
    left_open: bool

    @property
    def compact(self) -> bool:
        """Whether older values of a key may be gone."""
        return "compact" in self.topic["cleanup.policy"]

    @property
    def rolls_and_compacts(self) -> bool:
        """Whether there is something for a cleaner to do."""
        return self.compact and int(self.topic["segment.bytes"]) <= 6000


def mix_of(seed: int) -> Mix:
    chance = random.Random(seed)
    magic = chance.choice([2, 2, 2, 1, 0])
    codecs = CODECS if magic == 2 else CODECS[:-1]
    topic = {
        "segment.bytes": str(chance.choice([2500, 6000, 20_000, 1 << 30])),
        "index.interval.bytes": str(chance.choice([1, 300, 4096])),
        "cleanup.policy": chance.choice(["delete", "delete", "compact", "compact,delete"]),
        "message.timestamp.type": chance.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        "compression.type": chance.choice(["producer", "producer", chance.choice(codecs[1:]), "uncompressed"]),
        "min.cleanable.dirty.ratio": "0.01",
    }
    kinds = ["plain", "idempotent", "transactional"] if magic == 2 else ["plain"]
    return Mix(
        apache_begins=seed % 2 == 0,
        end=chance.choice(["stopped", "killed"]),
        magic=magic,
        topic=topic,
        codecs=[chance.choice(codecs) for _ in range(4)],
        writers=[chance.choice(kinds) for _ in range(4)],
        left_open=magic == 2 and chance.random() < 0.6,
    )


class Row(NamedTuple):
    """A record as a consumer gets it."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: tuple[int, int]
    headers: tuple[tuple[str, bytes], ...]


class Wrote(NamedTuple):
    """A record as it was produced."""

    key: bytes
    value: bytes | None


@dataclass
class Ledger:
    """Everything that was acknowledged, by partition and offset."""

    all: dict[tuple[int, int], Wrote] = field(default_factory=dict)
    aborted: set[tuple[int, int]] = field(default_factory=set)
    #: Records of a transaction that nobody will end.
    open: set[tuple[int, int]] = field(default_factory=set)

    def stable_end(self, partition: int) -> int:
        """Where readers of committed records have to stop."""
        return min((offset for number, offset in self.open if number == partition), default=1 << 62)

    def expected(self, partition: int, committed: bool) -> list[tuple[int, Wrote]]:
        """What a reader gets of a log that is not compacted."""
        rows = []
        for (number, offset), wrote in sorted(self.all.items()):
            skipped = committed and ((number, offset) in self.aborted or offset >= self.stable_end(partition))
            if number == partition and not skipped:
                rows.append((offset, wrote))
        return rows


class Writing:
    """Writes to one broker, and notes what it acknowledges."""

    def __init__(self, broker: RunningBroker, ledger: Ledger, chance: random.Random) -> None:
        self._bootstrap = broker.bootstrap
        self._ledger = ledger
        self._chance = chance

    def run(self, mix: Mix, name: str, *, transactions: bool) -> None:
        for number, (kind, codec) in enumerate(zip(mix.writers, mix.codecs, strict=True)):
            if kind == "transactional" and transactions:
                self._transactions(codec, f"{name} {number}")
            else:
                producer = self._producer(codec, {"enable.idempotence": kind != "plain"})
                self._produce(producer, f"{name} {kind} {number}", 60)

    def leave_open(self) -> None:
        """Begin a transaction that nobody ends, unless this is called again."""
        producer = self._producer("none", {"transactional.id": "left-open", "transaction.timeout.ms": 600_000})
        producer.init_transactions(TIMEOUT_S)
        self._ledger.aborted |= self._ledger.open
        producer.begin_transaction()
        self._ledger.open = self._produce(producer, "left open", 7)

    def _producer(self, codec: str, settings: dict[str, Any]) -> Producer:
        base = {"bootstrap.servers": self._bootstrap, "compression.type": codec, "linger.ms": 2}
        return Producer({**base, "batch.num.messages": self._chance.choice([3, 15]), **settings})

    def _transactions(self, codec: str, name: str) -> None:
        """Two producers whose transactions lie among each other."""
        names = ("one", "two")
        producers = [self._producer(codec, {"transactional.id": each}) for each in names]
        for producer in producers:
            producer.init_transactions(TIMEOUT_S)
        for number in range(4):
            for producer in producers:
                producer.begin_transaction()
            found: list[set[tuple[int, int]]] = [set(), set()]
            for _ in range(2):
                for which, producer in enumerate(producers):
                    found[which] |= self._produce(producer, f"{name} {names[which]} {number}", 4)
            for which, producer in self._chance.sample(list(enumerate(producers)), 2):
                if self._chance.random() < 0.5:
                    producer.commit_transaction(TIMEOUT_S)
                else:
                    producer.abort_transaction(TIMEOUT_S)
                    self._ledger.aborted |= found[which]

    def _produce(self, producer: Producer, name: str, count: int) -> set[tuple[int, int]]:
        """Produce so many records and wait; where they are."""
        found: set[tuple[int, int]] = set()

        def noted(wrote: Wrote) -> Callable[[KafkaError | None, Message], None]:
            def note(error: KafkaError | None, message: Message) -> None:
                assert error is None, error
                place = message.partition(), message.offset()
                assert place not in self._ledger.all
                self._ledger.all[place] = wrote
                found.add(place)

            return note

        for number in range(count):
            padding = self._chance.randbytes(self._chance.randrange(60)).hex().encode()
            value = None if self._chance.random() < 0.05 else f"{name} {number} ".encode() + padding
            wrote = Wrote(f"key-{self._chance.randrange(KEYS)}".encode(), value)
            partition = self._chance.randrange(PARTITIONS)
            producer.produce(TOPIC, wrote.value, wrote.key, partition, on_delivery=noted(wrote))
        assert producer.flush(TIMEOUT_S) == 0
        assert len(found) == count
        return found


def read(broker: RunningBroker, isolation: str) -> dict[int, list[Row]]:
    """All records of the topic, by partition."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.auto.commit": False, "check.crcs": True, "enable.partition.eof": True})
    try:
        wait_until(lambda: has_leaders(consumer, TOPIC), "the leaders")
        rows: dict[int, list[Row]] = {number: [] for number in range(PARTITIONS)}
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in rows])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"nothing more; ended are {ended}"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            headers = tuple(message.headers() or ())
            row = Row(message.offset(), message.key(), message.value(), message.timestamp(), headers)
            rows[message.partition()].append(row)
        return rows
    finally:
        consumer.close()


def check(broker: RunningBroker, ledger: Ledger, compact: bool) -> dict[int, list[Row]]:
    """What is served is what was acknowledged; returns it all."""
    everything = {}
    for isolation in ("read_committed", "read_uncommitted"):
        everything = read(broker, isolation)
        for partition, rows in everything.items():
            found = [(row.offset, Wrote(row.key, row.value)) for row in rows]
            expected = ledger.expected(partition, isolation == "read_committed")
            if not compact:
                assert found == expected, isolation
                continue
            assert set(found) <= set(expected)
            assert found == sorted(found, key=lambda row: row[0])
            newest = {wrote.key: (offset, wrote) for offset, wrote in ledger.expected(partition, committed=True)}
            assert set(newest.values()) <= set(found), isolation
    return everything


def set_up(broker: RunningBroker, settings: dict[str, str], *, make: bool) -> None:
    """Make the topic, or give it its settings: a folder does not hold them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wait_until(lambda: admin.describe_cluster().result(TIMEOUT_S).controller, "the controller")
    if make:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=settings)])[TOPIC].result(TIMEOUT_S)
        return
    wait_until(lambda: TOPIC in admin.list_topics(timeout=TIMEOUT_S).topics, "the topic")
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)


def cleaned_to(log_dir: Path) -> list[int]:
    """How far each partition was compacted, where it was."""
    path = log_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    found = {int(number): int(offset) for topic, number, offset in map(str.split, lines) if topic == TOPIC}
    return [found.get(number, -1) for number in range(PARTITIONS)]


def dump(log_dir: Path, compact: bool) -> str:
    """All files of the topic's folders by Apache Kafka's tool, which must find nothing wrong."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = [path for path in log_dir.glob(f"{TOPIC}-*/*") if path.suffix in suffixes and path.stat().st_size]
    names = ",".join(map(str, sorted(files)))
    done = java_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", names)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if complains(line)]
    if compact:
        # Gaps are what compaction makes; and entries of time indexes may name batches of which it left the heads only.
        lines = [line for line in lines if "Non-consecutive" not in line and "timestamp mismatch" not in line]
        lines += [line for line in done.stdout.splitlines() if re.search(r"log timestamp: (?!-1$)", line)]
    assert not lines, lines[:10]
    return done.stdout


class Ground:
    """One folder, and who serves it now."""

    def __init__(self, tmp_path: Path, zookeeper: ApacheZooKeeper, mix: Mix) -> None:
        self._tmp_path = tmp_path
        self._connect = f"{zookeeper.connect}/mix-{tmp_path.name}"
        self._mix = mix
        old = OLD_FELLOWS if mix.magic < 2 else {}
        self.log_dir = tmp_path / "data"
        settings = {**SETTINGS, **old, "zookeeper.connect": self._connect, "log.dirs": str(self.log_dir)}
        self._apache = ApacheKafka(tmp_path / "apache", zookeeper=zookeeper, overrides=settings)
        self._ottla = OttlaServer(tmp_path / "ottla", data=self.log_dir, overrides=SETTINGS, arguments=["--id", "1"])

    def serve(self, apache: bool) -> RunningBroker:
        """Start one of the two; the other one must have ended."""
        fresh = not self.log_dir.exists()
        settings = dict(self._mix.topic)
        if apache and self._mix.magic < 2:
            settings["message.format.version"] = OLD_FORMATS[self._mix.magic]
        if apache and not fresh:
            self._prepare_zookeeper()
        broker: RunningBroker = self._apache.start() if apache else self._ottla.start()
        set_up(broker, settings, make=fresh)
        return broker

    def _prepare_zookeeper(self) -> None:
        """Tell Apache Kafka's ZooKeeper of what we made meanwhile."""
        if not self._apache.folder.exists():
            register(self._connect, self.log_dir)
            return
        host, _, path = self._connect.partition("/")
        client = KazooClient(hosts=host)
        client.start()
        try:
            # Of a broker that was killed, the session has to end first.
            wait_until(lambda: not client.exists(f"/{path}/brokers/ids/1"), "the end of the session")
            # Producer ids go on behind those given out, by us, too.
            block = {"version": 1, "broker": 1, "block_start": "0", "block_end": "999999"}
            client.set(f"/{path}/latest_producer_id_block", json.dumps(block).encode())
        finally:
            client.stop()
            client.close()

    def end(self, apache: bool, how: str) -> None:
        broker: ApacheKafka | OttlaServer = self._apache if apache else self._ottla
        broker.stop() if how == "stopped" else broker.kill9()

    def close(self) -> None:
        self._apache.stop()
        self._ottla.stop()


@pytest.fixture
def ground_of(tmp_path: Path, apache_zookeeper: ApacheZooKeeper) -> Iterator[Callable[[Mix], Ground]]:
    made: list[Ground] = []

    def make(mix: Mix) -> Ground:
        made.append(Ground(tmp_path, apache_zookeeper, mix))
        return made[-1]

    yield make
    for ground in made:
        ground.close()


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed in EVERY_DAY else pytest.mark.long) for seed in range(MIXES)]
)
def test_a_mix_on_one_folder(ground_of: Callable[[Mix], Ground], seed: int) -> None:
    mix = mix_of(seed)
    ground = ground_of(mix)
    ledger = Ledger()
    chance = random.Random(seed)
    before: dict[int, list[Row]] = {}
    turns = (mix.apache_begins, not mix.apache_begins, mix.apache_begins)
    for turn, apache in enumerate(turns):
        cleaned = cleaned_to(ground.log_dir)
        broker = ground.serve(apache)
        after = check(broker, ledger, mix.compact) if turn else {}
        for partition, rows in before.items():
            told = set(after[partition])
            assert told <= set(rows) if mix.compact else told == set(rows)
        writing = Writing(broker, ledger, chance)
        writing.run(mix, f"turn {turn}", transactions=apache)
        if apache and mix.left_open:
            writing.leave_open()
            writing.run(mix, f"turn {turn} behind", transactions=False)
        if mix.rolls_and_compacts and not apache and not ledger.open:
            wait_until(lambda cleaned=cleaned: all(map(gt, cleaned_to(ground.log_dir), cleaned)), "our compaction")
        before = check(broker, ledger, mix.compact)
        ground.end(apache, "stopped" if turn == len(turns) - 1 else mix.end)
    told = dump(ground.log_dir, mix.compact)
    assert f"magic: {mix.magic} " in told
    if mix.left_open or "transactional" in mix.writers:
        assert "isTransactional: true" in told
    rows = sum(map(len, before.values()))
    assert rows < len(ledger.all) * 0.7 if mix.rolls_and_compacts else rows <= len(ledger.all)
    faults = list(verify(RealDisk(), str(ground.log_dir), VerifyWish(), Tally()))
    assert [fault for fault in faults if fault.severity is not Severity.NOTICE] == []
