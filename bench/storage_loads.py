"""What the storage benchmark does with a broker: filling it, spoiling its clean stop, cooling its files, asking it."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import loadgen
from contestants import Started
from frames import TIMESTAMP_MS, Caller, fetch_frame, produce_frame, record_batch
from loads import IN_FLIGHT, KIB, MIB, TOPIC_SETTINGS

from ottla.records.record import Record, encode_batch
from ottla.storage.checkpoints import RECOVERY_POINT_FILE
from ottla.wire.apis import ApiKey
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.waiting import wait_until

CLEANER_OFFSETS_FILE = "cleaner-offset-checkpoint"
#: ConfigResource.Type.TOPIC and AlterConfigOp.OpType.SET.
TOPIC_RESOURCE, SET = 2, 0
READY_TIMEOUT_S = 300.0
COMPACTION_TIMEOUT_S = 300.0
POLL_S = 0.02

#: Compaction: records of this size, of this many different batches, each of them sent several times.
COMPACTED_VALUE_BYTES = 100
KEYS = 400_000
SEED = 4


def create(broker: Started, name: str, partitions: int, settings: Mapping[str, str] = {}) -> None:
    """A topic with old records that are to stay, ready for use."""
    with Caller(broker.port) as caller:
        caller.create_topic(name, partitions, TOPIC_SETTINGS | dict(settings))
    wait_for_leaders(broker, name, partitions)


def wait_for_leaders(broker: Started, name: str, partitions: int) -> None:
    """Until all partitions of the topic can be used."""
    with Caller(broker.port, READY_TIMEOUT_S) as caller:
        wait_until(lambda: caller.leaders(name) >= partitions, f"the leaders of {name}", READY_TIMEOUT_S, POLL_S)


def fill(broker: Started, topic: str, partitions: int, total_bytes: int, batch_bytes: int = MIB) -> int:
    """Append `total_bytes` of 1 KiB records to each partition in equal parts; returns the bytes appended."""
    batch, _ = record_batch(KIB, batch_bytes)
    each = max(1, total_bytes // partitions // len(batch))
    send(broker, topic, {partition: itertools.repeat(batch, each) for partition in range(partitions)})
    return each * partitions * len(batch)


def send(broker: Started, topic: str, batches: Mapping[int, Iterator[bytes]]) -> None:
    """Append batches to partitions, in order, a few requests in flight for each."""
    frames = {partition: _produce_frames(topic, partition, each) for partition, each in batches.items()}
    with Caller(broker.port) as caller:
        answers = {caller.probe(ApiKey.PRODUCE, next(each)) for each in frames.values()}
    loadgen.stream(broker.port, list(frames.values()), answers.pop(), IN_FLIGHT)


def _produce_frames(topic: str, partition: int, batches: Iterator[bytes]) -> Iterator[bytes]:
    return (produce_frame(topic, {partition: batch}) for batch in batches)


def spoil_stop(log_dir: Path) -> None:
    """Make a killed broker's folder look as if nothing had been forced to disk: all of it must be recovered."""
    (log_dir / RECOVERY_POINT_FILE).unlink(missing_ok=True)
    for path in log_dir.glob("*/*.snapshot"):
        path.unlink()


def keyed_batches(distinct: int, times: int) -> Iterator[bytes]:
    """`distinct` different batches of 64 KiB with random keys, all of them `times` times over."""
    chosen = random.Random(SEED)
    value = b"v" * COMPACTED_VALUE_BYTES
    count = 64 * KIB // (COMPACTED_VALUE_BYTES + 24)

    def batch() -> bytes:
        keys = (b"%016d" % chosen.randrange(KEYS) for _ in range(count))
        return encode_batch([Record(at, TIMESTAMP_MS, key, value, ()) for at, key in enumerate(keys)])

    made = [batch() for _ in range(distinct)]
    return itertools.chain.from_iterable(itertools.repeat(made, times))


def unique_batches(count: int) -> Iterator[bytes]:
    """`count` batches of 64 KiB in which no key comes twice."""
    value = b"v" * COMPACTED_VALUE_BYTES
    per_batch = 64 * KIB // (COMPACTED_VALUE_BYTES + 24)
    numbers = itertools.count()
    for _ in range(count):
        records = [Record(at, TIMESTAMP_MS, b"%016d" % next(numbers), value, ()) for at in range(per_batch)]
        yield encode_batch(records)


def compact(broker: Started, topic: str) -> tuple[int, float, float]:
    """Turn compaction on for a topic of one partition and wait for it: (bytes cleaned, seconds, CPU seconds)."""
    folder = broker.log_dir / f"{topic}-0"
    segments = sorted(folder.glob("*.log"))
    active = int(segments[-1].name.partition(".")[0])
    dirty_bytes = sum(path.stat().st_size for path in segments[:-1])
    checkpoint = broker.log_dir / CLEANER_OFFSETS_FILE
    before, begun = broker.cpu_seconds(), time.monotonic()
    set_topic_config(broker, topic, "cleanup.policy", "compact")
    wait_until(lambda: _cleaned_to(checkpoint, topic) >= active, f"{topic} to be cleaned", COMPACTION_TIMEOUT_S, POLL_S)
    return dirty_bytes, time.monotonic() - begun, broker.cpu_seconds() - before


def _cleaned_to(checkpoint: Path, topic: str) -> int:
    if not checkpoint.exists():
        return -1
    for line in checkpoint.read_text().splitlines()[2:]:
        name, _, offset = line.split()
        if name == topic:
            return int(offset)
    return -1


def set_topic_config(broker: Started, topic: str, name: str, value: str) -> None:
    """Change one setting of a topic."""
    change = AlterableConfig(name=name, config_operation=SET, value=value)
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change])
    with Caller(broker.port) as caller:
        answer = caller.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource]))
    if answer.responses[0].error_code:
        raise loadgen.LoadFailed(f"IncrementalAlterConfigs: {answer}")


class Readable(Protocol):
    """A running broker whose files are here."""

    @property
    def port(self) -> int: ...

    @property
    def log_dir(self) -> Path: ...


class ColdReader:
    """A process that reads a topic's files through a broker, again and again, made cold before each time."""

    def __init__(self, broker: Readable, topic: str, topic_id: uuid.UUID, partitions: int, batches: int) -> None:
        files = [str(path) for path in sorted(broker.log_dir.glob(f"{topic}-*/*.log"))]
        batch, records = record_batch(KIB, MIB)
        with Caller(broker.port) as caller:
            answer_bytes = caller.probe(ApiKey.FETCH, fetch_frame(topic_id, 0, 0, len(batch)))
        counts = map(str, (broker.port, topic_id, partitions, batches, records, answer_bytes))
        arguments = [*counts, *files]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("cold_reader.py")), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_reading(self) -> None:
        """Until it has got its first answer."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise loadgen.LoadFailed("the cold reader ended early")

    def stop(self) -> int:
        """End it; returns the bytes it read."""
        told, _ = self._process.communicate(timeout=60)
        if self._process.returncode:
            raise loadgen.LoadFailed("the cold reader failed")
        return int(told.split()[-1])

    def kill(self) -> None:
        """End it without asking."""
        self._process.kill()
        self._process.communicate()
