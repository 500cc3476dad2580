"""The log of Apache Kafka 3.9.1 and ottla's, side by side in one run.

    ./run bench storage [--quick] [--only data recovery compaction cold partitions] [--write]

Append and read per CPU second, recovery after kill -9, compaction, reads while somebody reads cold data, and ten
thousand partitions. See README.md beside this file for what each row means, and RESULTS.md for the last complete run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

import loadgen  # noqa: E402
from contestants import LAUNCH_TIMEOUT_S, NAMES, Started, compile_package, launch, make, wait_until_forgotten  # noqa: E402
from frames import Caller, fetch_frame, produce_frame, record_batch  # noqa: E402
from loads import BULK_LOADS, KIB, MIB, TINY_RECORD_BYTES, TOPIC_SETTINGS, produce_and_consume, warm_up  # noqa: E402
from report import AT_LEAST_EQUAL, AT_MOST_EQUAL, Figures, Goal  # noqa: E402
from session import Options, execute, say  # noqa: E402
from storage_loads import (  # noqa: E402
    ColdReader,
    compact,
    create,
    fill,
    keyed_batches,
    send,
    spoil_stop,
    unique_batches,
    wait_for_leaders,
)

from ottla.wire.apis import ApiKey  # noqa: E402
from support.apache import ApacheKafka, ApacheZooKeeper  # noqa: E402
from support.ottla_server import OttlaServer  # noqa: E402

DATA, RECOVERY, COMPACTION, COLD, PARTITIONS = PARTS = ("data", "recovery", "compaction", "cold", "partitions")
GIB = 1024 * MIB
MB = 1e6
RECOVERY_PARTITIONS = 8
COLD_PARTITIONS = 2
TOPICS_OF_MANY = 10
#: Bytes of a segment that is compacted; the active one is left alone.
SEGMENT_BYTES = 64 * MIB
CLEANER = {"log.cleaner.dedupe.buffer.size": str(128 * MIB), "log.cleaner.backoff.ms": "100"}
#: How much slower the slowest hundredth of warm reads may be while another client reads cold data.
COLD_LIMIT = Goal(1.5, at_least=False, absolute=True)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_s: float
    bulk_bytes: int
    recovery_bytes: int
    compaction_batches: int
    cold_bytes: int
    warm_reads: int
    cold_rounds: int
    partitions: int


FULL = Plan(3, 25.0, 768 * MIB, 2 * GIB, 8192, GIB, 20_000, 5, 10_000)
QUICK = Plan(1, 6.0, 256 * MIB, 512 * MIB, 2048, 256 * MIB, 5_000, 2, 1_000)


class StorageBench:
    """One run: its figures, and the brokers that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path) -> None:
        self._plan = plan
        self._parts = parts
        self._folder = folder
        self._zookeeper = ApacheZooKeeper(folder)
        self._running: list[Started] = []
        self._cold_reader: ColdReader | None = None
        self.figures = Figures()

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        self._zookeeper.start()
        measures = {
            DATA: self._data,
            RECOVERY: self._recovery,
            COMPACTION: self._compaction,
            COLD: self._cold,
            PARTITIONS: self._partitions,
        }
        for part, measure in measures.items():
            if part not in self._parts:
                continue
            for number in range(1, (self._plan.rounds if part in (RECOVERY, COMPACTION) else 1) + 1):
                for name in NAMES if number % 2 else reversed(NAMES):
                    say(f"{part}, round {number}: {name}")
                    measure(name, f"{part}-{number}")
                    self._end()

    def stop(self) -> None:
        """Kill what still runs."""
        if self._cold_reader is not None:
            self._cold_reader.kill()
        self._end()
        self._zookeeper.stop()

    def _make(self, name: str, label: str, overrides: Mapping[str, str] | None = None) -> OttlaServer | ApacheKafka:
        return make(name, self._folder / f"{name.split()[0].lower()}-{label}", self._zookeeper, overrides)

    def _launch(self, name: str, broker: OttlaServer | ApacheKafka) -> Started:
        started = launch(name, broker)
        self._running.append(started)
        return started

    def _end(self) -> None:
        for broker in self._running:
            broker.stop()
        self._running.clear()

    def _data(self, name: str, label: str) -> None:
        broker = self._launch(name, self._make(name, label))
        warm_up(broker, self._plan.warm_up_s)
        for _ in range(self._plan.rounds):
            for bulk in BULK_LOADS:
                found = produce_and_consume(broker, bulk, self._plan.bulk_bytes, 3)
                for group, one in zip(("Append", "Read"), found, strict=True):
                    per_cpu_s = 1000 / one.cpu_s_per_gb
                    self.figures.add(group, bulk.title, "MB per broker CPU s", name, per_cpu_s, AT_LEAST_EQUAL)

    def _recovery(self, name: str, label: str) -> None:
        broker = self._make(name, label)
        started = self._launch(name, broker)
        create(started, "data", RECOVERY_PARTITIONS)
        fill(started, "data", RECOVERY_PARTITIONS, self._plan.recovery_bytes, 64 * KIB)
        self._end()
        spoil_stop(broker.log_dir)
        wait_until_forgotten(broker)
        started = self._launch(name, broker)
        wait_for_leaders(started, "data", RECOVERY_PARTITIONS)
        group = f"Recovery of {self._plan.recovery_bytes / GIB:g} GiB after kill -9"
        self.figures.add(group, "process start to first answer", "s", name, started.seconds, AT_MOST_EQUAL)
        self.figures.add(group, "CPU until then", "s", name, started.cpu_s)

    def _compaction(self, name: str, label: str) -> None:
        broker = self._launch(name, self._make(name, label, CLEANER))
        count = self._plan.compaction_batches
        kinds = {
            "one record of sixteen survives": keyed_batches(count // 16, 16),
            "all records survive": unique_batches(count // 2),
        }
        for number, (kind, batches) in enumerate(kinds.items()):
            topic = f"keyed-{number}"
            create(broker, topic, 1, {"segment.bytes": str(SEGMENT_BYTES)})
            send(broker, topic, {0: batches})
            dirty_bytes, seconds, cpu_s = compact(broker, topic)
            megabytes = dirty_bytes / MB
            self.figures.add("Compaction", kind, "MB/s", name, megabytes / seconds, AT_LEAST_EQUAL)
            self.figures.add("Compaction", kind, "MB per broker CPU s", name, megabytes / cpu_s)

    def _cold(self, name: str, label: str) -> None:
        plan = self._plan
        broker = self._launch(name, self._make(name, label))
        with Caller(broker.port) as caller:
            warm_id = caller.create_topic("warm", 1, TOPIC_SETTINGS)
            cold_id = caller.create_topic("cold", COLD_PARTITIONS, TOPIC_SETTINGS)
            wait_for_leaders(broker, "warm", 1)
            wait_for_leaders(broker, "cold", COLD_PARTITIONS)
            batch, _ = record_batch(KIB, KIB)
            caller.probe(ApiKey.PRODUCE, produce_frame("warm", {0: batch}))
            frame = fetch_frame(warm_id, 0, 0, MIB)
            answer_size = caller.probe(ApiKey.FETCH, frame)
            cold_bytes = fill(broker, "cold", COLD_PARTITIONS, plan.cold_bytes)
            batches = cold_bytes // COLD_PARTITIONS // len(record_batch(KIB, MIB)[0])
        warm_up(broker, plan.warm_up_s / 2)
        for _ in range(plan.cold_rounds):
            quiet = loadgen.ping_pong(broker.port, [frame], answer_size, plan.warm_reads).percentile_ms(99)
            reader = self._cold_reader = ColdReader(broker, "cold", cold_id, COLD_PARTITIONS, batches)
            reader.wait_until_reading()
            busy = loadgen.ping_pong(broker.port, [frame], answer_size, plan.warm_reads)
            megabytes = reader.stop() / MB
            self._cold_reader = None
            group, p99 = "Warm reads while another client reads cold data", busy.percentile_ms(99)
            self.figures.add(group, "p99 without cold reads", "ms", name, quiet)
            self.figures.add(group, "p99 with cold reads", "ms", name, p99, AT_MOST_EQUAL)
            self.figures.add(group, "p99 with, divided by p99 without", "", name, p99 / quiet, COLD_LIMIT)
            self.figures.add(group, "cold reads meanwhile", "MB", name, megabytes)

    def _partitions(self, name: str, label: str) -> None:
        broker = self._make(name, label)
        started = self._launch(name, broker)
        each = self._plan.partitions // TOPICS_OF_MANY
        topics = [f"many-{number}" for number in range(TOPICS_OF_MANY)]
        batch, _ = record_batch(TINY_RECORD_BYTES, 0)
        for topic in topics:
            create(started, topic, each)
            with Caller(started.port) as caller:
                caller.probe(ApiKey.PRODUCE, produce_frame(topic, dict.fromkeys(range(each), batch)))
        group, add = f"{self._plan.partitions:,} partitions, a record in each", self.figures.add
        add(group, "resident memory", "MB", name, started.server.memory_bytes() / MB, AT_MOST_EQUAL)
        broker.stop(LAUNCH_TIMEOUT_S)
        self._running.clear()
        started = self._launch(name, broker)
        add(group, "process start to first answer after a clean stop", "s", name, started.seconds, AT_MOST_EQUAL)
        add(group, "CPU until then", "s", name, started.cpu_s)
        for topic in topics:
            wait_for_leaders(started, topic, each)
        add(group, "resident memory after the start", "MB", name, started.server.memory_bytes() / MB, AT_MOST_EQUAL)


def _make(options: Options, folder: Path) -> StorageBench:
    return StorageBench(QUICK if options.quick else FULL, options.parts, folder)


if __name__ == "__main__":
    sys.exit(execute("storage", __doc__, PARTS, FULL.rounds, _make))
