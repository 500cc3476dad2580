"""One log folder under Apache Kafka and under us in turn, in random mixes of all that can be written to it.

Even mixes begin with Apache Kafka, odd ones with us; the other appends, and then the first again. Each broker that
takes the folder over has to give readers what the one before gave, and what was sent; each folder left behind has to be
sound to Apache Kafka's DumpLogSegments and to `ottla log verify`. A failure shows its mix.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from interop.test_log_directories import register
from ottla.records.batch import MAGIC_AT, BatchHeader, parse_batch_header
from ottla.storage.checkpoints import CLEANER_FILE, decode_offsets
from support.apache import ApacheKafka, ApacheZooKeeper
from support.directory_mixes import (
    APACHE,
    FALLBACKS,
    FORMATS,
    IDEMPOTENT,
    OTTLA,
    PARTITIONS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TRANSACTIONAL,
    Mix,
    Model,
    Row,
    Turn,
    View,
    Writer,
    differences,
    random_mix,
)
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.processes import run_tool
from support.waiting import wait_until
from support.zk_trees import open_tree

pytestmark = [
    pytest.mark.needs_kafka,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.spec("L3", "L5", "L7", "L9"),
]

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
#: After so long without a record it ends; on a busy machine the first one comes late.
JAVA_SILENCE_MS = 15_000
TOPIC, GROUP = "mixed", "mixers"
MIXES = 20
#: Between them: both orders, compaction, an old format, a transaction left open and ended later, both ends.
EVERY_DAY = (11, 18)
TIMEOUT_S = 60.0
TURN_RECORDS = 60
KEYS = 20
BURST = 400
#: So often, at most, records are written for a cleaner to have a segment that is not the active one.
FILLS = 20
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
}
#: No transaction may end by itself while the other broker has its turn.
TRANSACTION_TIMEOUT_MS = 600_000

NO_COORDINATOR_YET = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}

Server = ApacheKafka | OttlaServer


class Passage:
    """A folder's way through the turns of a mix."""

    def __init__(self, mix: Mix, folder: Path, zookeeper: ApacheZooKeeper) -> None:
        self.mix = mix
        self.data = folder / "data"
        self.chroot = f"{zookeeper.connect}/mix-{folder.name}"
        self.chance = random.Random(mix.number)
        self.model = Model()
        self.views: dict[str, View] = {}
        self.compacted = False
        self.committed = -1001
        self.registered = False
        self.servers: dict[str, Server] = {
            APACHE: ApacheKafka(folder / "apache", zookeeper=zookeeper),
            OTTLA: OttlaServer(folder / "ottla", data=self.data, arguments=["--id", "1"]),
        }
        #: Kept until their broker has ended: a producer that goes first might end its transaction.
        self.left_open: list[Producer] = []

    def start(self, turn: Turn) -> Server:
        server = self.servers[turn.broker]
        server.overrides = {**SETTINGS, "log.cleaner.enable": str(turn.cleans).lower()}
        if turn.broker == APACHE:
            server.overrides |= {"log.dirs": str(self.data), "zookeeper.connect": self.chroot}
            server.overrides["zookeeper.session.timeout.ms"] = "3000"
            if turn.magic < 2:
                server.overrides["inter.broker.protocol.version"] = "2.8"
            if not self.registered and self.data.exists():
                register(self.chroot, self.data)
            self.registered = True
            self.wait_for_the_dead()
        else:
            self.forget_metadata()
        return server.start()

    def forget_metadata(self) -> None:
        """As a user does when a folder comes back: topics that Apache Kafka made meanwhile are adopted, not stray."""
        for path in self.data.glob("ottla-tree.*"):
            path.unlink()

    def wait_for_the_dead(self) -> None:
        """Until ZooKeeper knows that a broker which was killed is gone: Apache Kafka does not start before."""
        host, _, path = self.chroot.partition("/")
        client = open_tree(host)
        try:
            wait_until(lambda: not client.exists(f"/{path}/brokers/ids/1"), "the end of a session")
        finally:
            client.stop()
            client.close()

    def run(self, position: int, turn: Turn) -> None:
        server = self.start(turn)
        self.configure(server, turn)
        self.compacted |= turn.cleans
        if position > 0:
            self.check_taken_over(server, turn)
        if turn.ends_open:
            self.end_open(server)
        for number, writer in enumerate(turn.writers):
            self.write(server, f"{position}.{number}", writer, turn.magic)
        if turn.leaves_open:
            self.leave_open(server, f"{position}.open")
        assert self.model.refused == []
        self.commit(server, position)
        if turn.cleans:
            self.clean(server, str(position))
        self.views = self.read(server)
        self.model.check(self.views, self.compacted)
        if turn.cleans and any(self.clean_limit(partition) for partition in range(PARTITIONS)):
            assert self.is_smaller()
        self.end(server, turn)

    def configure(self, server: Server, turn: Turn) -> None:
        """Make the topic, or give it the mix's settings: neither broker knows what the other was told."""
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        wait_until(lambda: admin.describe_cluster().result(TIMEOUT_S).controller, "the controller")
        config = dict(self.mix.config)
        if turn.magic < 2:
            config["message.format.version"] = FORMATS[turn.magic]

        def has_leaders() -> bool:
            found = admin.list_topics(TOPIC, TIMEOUT_S).topics[TOPIC].partitions.values()
            return len(found) == PARTITIONS and all(one.leader >= 0 for one in found)

        if not (self.data / f"{TOPIC}-0").exists():
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)])[TOPIC].result(TIMEOUT_S)
            wait_until(has_leaders, "the leaders")
            return
        wait_until(has_leaders, "the leaders")
        entries = [ConfigEntry(*pair, incremental_operation=AlterConfigOpType.SET) for pair in config.items()]
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def check_taken_over(self, server: Server, turn: Turn) -> None:
        """What the broker before gave to readers, this one gives."""
        views = self.read(server)
        self.model.take_unsure(views[READ_UNCOMMITTED])
        self.model.check(views, self.compacted)
        for isolation, before in self.views.items():
            for partition, (then, now) in enumerate(zip(before, views[isolation], strict=True)):
                known = {row.offset: row for row in then}
                common = [row for row in now if row.offset in known]
                assert common == [known[row.offset] for row in common], f"{isolation} {partition}"
                # A cleaner that runs may have gone on.
                assert turn.cleans or common == list(then), f"{isolation} {partition}: {differences(then, now)}"
        self.views = views
        assert self.committed_offset(server) == self.committed

    def read(self, server: Server) -> dict[str, View]:
        return {isolation: self.read_all(server, isolation) for isolation in (READ_UNCOMMITTED, READ_COMMITTED)}

    def read_all(self, server: Server, isolation: str) -> View:
        """All that a consumer of this isolation level is given."""
        settings = {"bootstrap.servers": server.bootstrap, "group.id": "reader", "isolation.level": isolation}
        size = self.chance.choice([900, 5_000, 1 << 20])
        more = {
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.message.max.bytes": size,
            "fetch.wait.max.ms": 10,
        }
        consumer = Consumer({**settings, **more, "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        found: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        at_end: set[int] = set()
        while len(at_end) < PARTITIONS:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"nothing more to read, but no end: {[len(rows) for rows in found]}"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                at_end.add(message.partition())
            else:
                found[message.partition()].append(row_of(message))
        consumer.close()
        return tuple(tuple(rows) for rows in found)

    def java_reads_the_same(self, server: Server) -> None:
        """Apache Kafka's own consumer is given the committed records that librdkafka's is given."""
        properties = {"print.partition": True, "print.offset": True, "print.value": False}
        options = [
            part for name, value in properties.items() for part in ("--property", f"{name}={str(value).lower()}")
        ]
        options += ["--from-beginning", "--isolation-level", READ_COMMITTED, "--timeout-ms", str(JAVA_SILENCE_MS)]
        options += ["--topic", TOPIC, "--bootstrap-server", server.bootstrap]
        told = java_tool(CONSOLE_CONSUMER, *options, check=False).stdout
        found = sorted((int(one[1]), int(one[2])) for one in re.finditer(r"Partition:(\d+)\s+Offset:(\d+)", told))
        rows = [(number, row.offset) for number, part in enumerate(self.views[READ_COMMITTED]) for row in part]
        assert found == rows

    def write(self, server: Server, name: str, writer: Writer, kept_magic: int) -> None:
        settings = producer_settings(server, writer)
        if writer.kind == TRANSACTIONAL:
            self.transact(settings, name)
            return
        producer = Producer(settings)
        self.produce(producer, name, TURN_RECORDS, has_headers=min(writer.magic, kept_magic) == 2)
        assert producer.flush(TIMEOUT_S) == 0

    def produce(
        self,
        producer: Producer,
        name: str,
        count: int,
        *,
        has_headers: bool = True,
        transaction: str | None = None,
    ) -> None:
        took = self.model.delivered(transaction)
        for number in range(count):
            key = f"key-{self.chance.randrange(KEYS)}".encode()
            value = f"{name} {number} ".encode() * self.chance.randrange(1, 12)
            produced = None if self.mix.compacted and self.chance.random() < 0.1 else value
            more = {"headers": [("of", name.encode()), ("none", None)]} if has_headers else {}
            producer.produce(TOPIC, produced, key, number % PARTITIONS, on_delivery=took, **more)

    def transact(self, settings: dict[str, Any], name: str) -> None:
        """Two producers whose transactions lie among each other and a third one's records; some are aborted."""
        producers = {
            f"{name}.{which}": Producer(
                {**settings, "transactional.id": f"id-{which}", "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
            )
            for which in ("a", "b")
        }
        for producer in producers.values():
            producer.init_transactions(TIMEOUT_S)
        plain = Producer({key: value for key, value in settings.items() if key != "transactional.id"})
        for number in range(6):
            for each, producer in producers.items():
                self.model.committed[f"{each}.{number}"] = None
                producer.begin_transaction()
            for step in range(2):
                for each, producer in producers.items():
                    self.produce(producer, f"{each}.{number}.{step}", 4, transaction=f"{each}.{number}")
                    assert producer.flush(TIMEOUT_S) == 0
                self.produce(plain, f"{name}.between.{number}.{step}", 2)
                assert plain.flush(TIMEOUT_S) == 0
            for each, producer in self.chance.sample(sorted(producers.items()), len(producers)):
                ends_well = self.chance.random() < 0.5
                self.send_offsets(producer, f"{each}.{number}", ends_well)

    def send_offsets(self, producer: Producer, transaction: str, ends_well: bool) -> None:
        """End a transaction, an offset of the group in it."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": GROUP})
        offset = self.chance.randrange(1000)
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, offset)], metadata, TIMEOUT_S)
        consumer.close()
        if ends_well:
            producer.commit_transaction(TIMEOUT_S)
            self.committed = offset
        else:
            producer.abort_transaction(TIMEOUT_S)
        self.model.committed[transaction] = ends_well

    @property
    def bootstrap(self) -> str:
        return self.servers[APACHE].bootstrap

    def leave_open(self, server: Server, name: str) -> None:
        settings = {"bootstrap.servers": server.bootstrap, "transactional.id": "id-open", "batch.size": 1000}
        producer = Producer({**settings, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS})
        producer.init_transactions(TIMEOUT_S)
        self.end_in_model()
        self.model.committed[name] = None
        producer.begin_transaction()
        self.produce(producer, name, 10, transaction=name)
        assert producer.flush(TIMEOUT_S) == 0
        self.left_open.append(producer)
        # Records behind its begin, which readers of committed ones are not given.
        behind = Producer({"bootstrap.servers": server.bootstrap, "batch.size": 1000})
        self.produce(behind, f"{name}.behind", 10)
        assert behind.flush(TIMEOUT_S) == 0

    def end_open(self, server: Server) -> None:
        """Take the transactional id over, which aborts what its last owner left open."""
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "id-open"})
        producer.init_transactions(TIMEOUT_S)
        self.end_in_model()

    def end_in_model(self) -> None:
        for name, committed in self.model.committed.items():
            if committed is None:
                self.model.committed[name] = False

    def commit(self, server: Server, position: int) -> None:
        """Half of the time, so that offsets committed in transactions stay, too."""
        if self.chance.random() < 0.5:
            consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": GROUP})
            self.committed = 2000 + position
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.committed)], asynchronous=False)
            consumer.close()

    def committed_offset(self, server: Server) -> int:
        """What the group has committed; a broker that has just started may not coordinate it yet."""
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": GROUP})

        def told() -> list[TopicPartition]:
            try:
                return consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() not in NO_COORDINATOR_YET:
                    raise
                return []

        (found,) = wait_until(told, "the group's coordinator")
        consumer.close()
        return found.offset

    def clean(self, server: Server, name: str) -> None:
        """Give the cleaner sealed segments, and wait until it has come as far as it may."""
        producer = Producer({"bootstrap.servers": server.bootstrap, "batch.size": 1500})
        for number in range(FILLS):
            if all(self.bases(partition)[-1] for partition in range(PARTITIONS)):
                break
            self.produce(producer, f"{name}.fill.{number}", TURN_RECORDS, has_headers=False)
            assert producer.flush(TIMEOUT_S) == 0
        wait_until(lambda: all(self.cleaned_to(n) >= self.clean_limit(n) for n in range(PARTITIONS)), "the cleaner")

    def bases(self, partition: int) -> list[int]:
        return sorted(int(log.stem) for log in self.data.glob(f"{TOPIC}-{partition}/*.log"))

    def clean_limit(self, partition: int) -> int:
        """Where the cleaner may not continue: in the active segment, or where the first open transaction begins."""
        bases, first_open = self.bases(partition), self.model.first_open(partition)
        return bases[-1] if first_open is None else max(base for base in bases if base <= first_open)

    def cleaned_to(self, partition: int) -> int:
        path = self.data / CLEANER_FILE
        checkpoints = decode_offsets(path.read_bytes(), str(path)) if path.exists() else {}
        return checkpoints.get((TOPIC, partition), 0)

    def is_smaller(self) -> bool:
        """Whether readers are given fewer records than were sent."""
        given = sum(len(rows) for rows in self.views[READ_UNCOMMITTED])
        return given < sum(len(part) for part in self.model.sent)

    def end(self, server: Server, turn: Turn) -> None:
        """Stop the broker, or kill it while records arrive; then everybody's tools look at the folder."""
        if turn.killed:
            producer = Producer({"bootstrap.servers": server.bootstrap, "retries": 0, "batch.size": 1500})
            for number in range(BURST):
                partition, key, value = number % PARTITIONS, b"key-0", b"%d unsure " % number * 8
                value = b"%s %s" % (turn.broker.encode(), value)
                self.model.unsure.add((partition, key, value))
                producer.produce(TOPIC, value, key, partition, on_delivery=self.model.delivered())
            producer.poll(self.chance.choice([0.0, 0.005, 0.02]))
            server.kill9()
            producer.purge()
            producer.flush(TIMEOUT_S)
            self.model.refused.clear()
        else:
            server.stop()
            if isinstance(server, ApacheKafka):
                assert " ERROR " not in server.server.stdout
        self.left_open.clear()
        self.check_log(turn.killed)

    def check_log(self, killed: bool) -> None:
        told = run_tool([sys.executable, "-m", "ottla", "log", "verify", str(self.data)], check=False)
        if not killed:
            assert told.returncode == 0, told.stdout
        assert "DAMAGE" not in told.stdout, told.stdout
        told_by_tool = dump_is_clean(self.data, killed)
        gaps = [line for line in told_by_tool.splitlines() if line.startswith("Non-consecutive offsets in")]
        assert self.compacted or not [line for line in gaps if f"/{TOPIC}-" in line]

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()


def row_of(message: Message) -> Row:
    headers = tuple(message.headers() or ())
    return Row(message.offset(), message.key(), message.value(), message.timestamp(), headers)


def producer_settings(server: Server, writer: Writer) -> dict[str, Any]:
    settings = {"bootstrap.servers": server.bootstrap, "compression.type": writer.codec, "linger.ms": 2}
    settings |= {"batch.size": 1500, "enable.idempotence": writer.kind in (IDEMPOTENT, TRANSACTIONAL)}
    if writer.magic < 2:
        settings |= {"api.version.request": False, "broker.version.fallback": FALLBACKS[writer.magic]}
    return settings


def dump_is_clean(data: Path, killed: bool) -> str:
    """Apache Kafka's tool reads every file of the folder, of the log record by record, without a complaint."""
    files: list[Path] = []
    for folder in data.glob("*-*/"):
        active = max(folder.glob("*.log"), default=None)
        for path in folder.iterdir():
            if path.suffix == ".log":
                files.append(path)
            elif path.suffix in (".index", ".timeindex"):
                # Of the active segment they have space in advance until their broker stops.
                if path.stat().st_size and not (killed and active and path.stem == active.stem):
                    files.append(path)
            elif path.suffix in (".txnindex", ".snapshot") and path.stat().st_size:
                files.append(path)
    names = ",".join(str(path) for path in sorted(files))
    done = java_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names, check=False)
    complaints = [*filter(complains, (done.stdout + done.stderr).splitlines()), *wrong_times(done.stdout)]
    assert (done.returncode, complaints) == (0, []), complaints[:10]
    assert done.stdout.count("Dumping ") == len(files)
    return done.stdout


def complains(line: str) -> bool:
    return bool(re.search(r"(?i)offset mismatch|mismatches in|exception|invalid|out of order|corrupt|error", line)) or (
        "isvalid: false" in line
    )


def wrong_times(told: str) -> list[str]:
    """What the tool finds of time indexes, but for heads of batches: to it a batch without records has no time (-1)."""
    found = []
    path, bare = "", set[str]()
    for line in told.splitlines():
        if line.startswith("Found timestamp mismatch in :"):
            path = line.partition(":")[2]
            log = Path(path).with_suffix(".log").read_bytes()
            bare = {str(one.max_timestamp) for one in headers(log) if one.records_count == 0}
        match = re.match(r"\s+Index timestamp: (-?\d+), log timestamp: (-?\d+)", line)
        if match and not (match[2] == "-1" and match[1] in bare):
            found.append(f"{path}: {line}")
    return found


def headers(log: bytes) -> Iterator[BatchHeader]:
    """The headers of format 2 in a log."""
    position = 0
    while position < len(log):
        length = int.from_bytes(log[position + 8 : position + 12], "big") + 12
        if log[position + MAGIC_AT] == 2:
            yield parse_batch_header(log[position : position + length])
        position += length


@pytest.fixture
def passage(tmp_path: Path, apache_zookeeper: ApacheZooKeeper) -> Iterator[Callable[[Mix], Passage]]:
    made: list[Passage] = []

    def make(mix: Mix) -> Passage:
        made.append(Passage(mix, tmp_path, apache_zookeeper))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def everyday_and_long() -> list[Any]:
    return [
        pytest.param(random_mix(n), id=str(random_mix(n)), marks=[] if n in EVERY_DAY else [pytest.mark.long])
        for n in range(MIXES)
    ]


@pytest.mark.parametrize("mix", everyday_and_long())
def test_a_directory_goes_from_broker_to_broker(passage: Callable[[Mix], Passage], mix: Mix) -> None:
    print(mix.described())
    folder = passage(mix)
    for position, turn in enumerate(mix.turns):
        print(f"turn {position}")
        folder.run(position, turn)
    # At last the other one serves what came of it.
    other = OTTLA if mix.turns[-1].broker == APACHE else APACHE
    last = Turn(other, (), cleans=False, leaves_open=False, ends_open=False, killed=False)
    server = folder.start(last)
    folder.configure(server, last)
    folder.check_taken_over(server, last)
    if mix.number not in EVERY_DAY:
        folder.java_reads_the_same(server)
    folder.end(server, last)
