"""The same folder compacted by Apache Kafka and by us: what is left, and whether each reads the other's."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.env.clock import SystemClock
from ottla.env.disk import RealDisk
from ottla.env.executor import InlineExecutor
from ottla.records.batch import split_batches
from ottla.records.record import decode_batch
from ottla.storage.checkpoints import CLEANER_FILE, decode_offsets
from ottla.storage.cleaning import CleanerSettings, LogCleaner
from ottla.storage.log import PartitionLog
from ottla.storage.recovery import LogPlace, load_log
from ottla.storage.resources import LogResources
from ottla.storage.transaction_index import AbortedTransaction, decode_aborted
from support.apache import ApacheKafka
from support.java import java_tool
from support.storage_logs import log_config
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("L5")]

TOPIC = "keys"
KEYS = 25
TIMEOUT_S = 60.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "index.interval.bytes": "300",
    "min.cleanable.dirty.ratio": "0",
}


class Kept(NamedTuple):
    """A batch of a compacted log, as a reader sees it."""

    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    sequence: int
    is_control: bool
    is_transactional: bool
    max_timestamp: int
    has_horizon: bool
    records: tuple[tuple[int, int, bytes | None, bytes | None], ...]


@pytest.fixture
def apache(tmp_path: Path) -> Iterator[ApacheKafka]:
    broker = ApacheKafka(tmp_path / "apache", zookeeper=None, overrides={"log.cleaner.enable": "false"})
    yield broker
    broker.stop()


def fill(broker: ApacheKafka) -> None:
    """Batches of all codecs, idempotent ones, transactions that end well and badly, tombstones; few keys."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wait_until(lambda: admin.describe_cluster().result(TIMEOUT_S).controller, "the controller")
    for made in admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)]).values():
        made.result(TIMEOUT_S)
    chance = random.Random(11)
    for round_ in range(4):
        for codec in CODECS:
            settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 2}
            idempotent = Producer({**settings, "enable.idempotence": True, "batch.num.messages": 10})
            produce(idempotent, chance, f"{round_} {codec}", 25)
            assert idempotent.flush(TIMEOUT_S) == 0
            transactional = Producer({**settings, "transactional.id": f"t-{codec}", "batch.num.messages": 5})
            transactional.init_transactions(TIMEOUT_S)
            for number, ends_well in enumerate(chance.sample([True, True, False, False], 4)):
                transactional.begin_transaction()
                produce(transactional, chance, f"{round_} {codec} {number} {ends_well}", 9)
                assert transactional.flush(TIMEOUT_S) == 0
                if ends_well:
                    transactional.commit_transaction(TIMEOUT_S)
                else:
                    transactional.abort_transaction(TIMEOUT_S)
    # A last segment that is never cleaned.
    last = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(3):
        last.produce(TOPIC, b"end" * 1000, b"end")
        assert last.flush(TIMEOUT_S) == 0


def produce(producer: Producer, chance: random.Random, name: str, count: int) -> None:
    for number in range(count):
        value = None if chance.random() < 0.1 else f"{name} {number} ".encode() * chance.randrange(1, 5)
        producer.produce(TOPIC, value, f"key-{chance.randrange(KEYS)}".encode())


def committed_records(broker: ApacheKafka) -> dict[bytes, tuple[int, bytes | None]]:
    """Each key's newest record, by a consumer that reads committed ones only."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "check.crcs": True, "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[bytes, tuple[int, bytes | None]] = {}
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            break
        found[message.key()] = (message.offset(), message.value())
    consumer.close()
    return found


def open_directory(folder: Path) -> PartitionLog:
    config = log_config(**{name.replace(".", "_"): value for name, value in CONFIG.items()})
    return load_log(LogResources(RealDisk()), LogPlace(str(folder), TOPIC, 0, config), 0)


def compact(folder: Path) -> int:
    """Compact the folder by our cleaner; the offset up to which it is clean."""
    log = open_directory(folder)
    log.flush()
    # As its leader does, which is alone here: what is not committed is not compacted.
    log.update_high_watermark(log.log_end_offset)
    notes: list[str] = []
    cleaner = LogCleaner(
        RealDisk(),
        SystemClock(),
        InlineExecutor(),
        CleanerSettings(),
        lambda _, paths: [Path(path).unlink() for path in paths] and None,
        lambda _: None,
        notes.append,
    )
    cleaner.maintain({(TOPIC, 0): log}, SystemClock().now_ms())
    assert notes == []
    log.close()
    return cleaner.checkpoints[TOPIC, 0]


def kept(folder: Path, below: int) -> list[Kept]:
    found = []
    log = open_directory(folder)
    for data in log.read_batches(0):
        for header in split_batches(data):
            if header.base_offset < below:
                records = tuple((r.offset, r.timestamp, r.key, r.value) for r in decode_batch(data, header))
                fields = (header.base_offset, header.last_offset, header.producer_id, header.producer_epoch)
                flags = (header.is_control, header.is_transactional, header.max_timestamp)
                found.append(Kept(*fields, header.base_sequence, *flags, header.delete_horizon is not None, records))
    log.release_files()
    return found


def aborted(folder: Path) -> set[AbortedTransaction]:
    """What the indexes of aborted transactions still know."""
    return {entry for path in folder.glob("*.txnindex") for entry in decode_aborted(path.read_bytes())}


def dump_is_clean(folder: Path) -> None:
    """Apache's tool reads every file of the folder without a complaint."""
    for suffix, options in (
        ("log", ["--deep-iteration"]),
        ("index", ["--index-sanity-check"]),
        ("index", []),
        ("timeindex", []),
        ("txnindex", []),
    ):
        files = sorted(path for path in folder.glob(f"*.{suffix}") if path.stat().st_size or suffix == "log")
        if files:
            done = java_tool("kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files)))
            told = done.stdout + done.stderr
            bad = [one for one in told.splitlines() if re.search(r"(?i)mismatch|exception|invalid|isvalid: f", one)]
            assert not bad, bad[:5]


def test_both_leave_the_same(apache: ApacheKafka, tmp_path: Path) -> None:
    fill(apache.start())
    expected = committed_records(apache)
    apache.stop()
    folder = apache.log_dir / f"{TOPIC}-0"
    ours = tmp_path / "ours"
    shutil.copytree(folder, ours)
    cleaned_to = compact(ours)
    dump_is_clean(ours)

    apache.overrides |= {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "100"}
    apache.start()
    checkpoint = apache.log_dir / CLEANER_FILE

    def cleaned_by_apache() -> bool:
        if not checkpoint.exists():
            return False
        return decode_offsets(checkpoint.read_bytes(), str(checkpoint)).get((TOPIC, 0), 0) >= cleaned_to

    wait_until(cleaned_by_apache, "Apache's cleaner", 60.0)
    apache.stop()
    theirs = {batch.base_offset: batch for batch in kept(folder, cleaned_to)}
    mine = {batch.base_offset: batch for batch in kept(ours, cleaned_to)}
    # We keep a bare head at the end of each new segment; Apache Kafka does so at the end of the round only.
    assert all(not mine[offset].records for offset in mine.keys() - theirs.keys())
    assert theirs.keys() - mine.keys() == set()
    for offset, batch in theirs.items():
        assert mine[offset] == batch
    assert len(mine) < 400
    assert aborted(ours) == aborted(folder)
    assert aborted(ours)

    # And Apache Kafka serves what we compacted.
    shutil.rmtree(folder)
    shutil.copytree(ours, folder)
    apache.overrides["log.cleaner.enable"] = "false"
    apache.start()
    assert committed_records(apache) == expected
