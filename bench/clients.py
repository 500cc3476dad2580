"""confluent-kafka, kafka-python, aiokafka and ottla side by side, against Apache Kafka 3.9.1 and against ottla.

    ./run bench clients [--quick] [--only produce consume groups single] [--write]

Each client runs in a process of its own, one after the other; figures are medians of several rounds. See README.md
beside this file for what each row means, and RESULTS.md for the last complete run.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

import loadgen  # noqa: E402
from client_figures import ClientFigures, Key  # noqa: E402
from client_process import ClientProcess  # noqa: E402
from client_programs import meter as m  # noqa: E402
from client_programs.meter import Job, Measured  # noqa: E402
from client_programs.with_confluent import TUNED_BACKOFF_MS  # noqa: E402
from client_worker import MODULES, OTHERS, programs, version  # noqa: E402
from client_worker import OTTLA as OTTLA_CLIENT  # noqa: E402
from contestants import APACHE, NAMES, OTTLA, Started, compile_package, launch, make  # noqa: E402
from frames import HOST, Caller, produce_frame, record_batch  # noqa: E402
from loads import KIB, MIB, delete_topic, make_topic, warm_up  # noqa: E402
from session import Options, execute, say  # noqa: E402

from ottla.wire.apis import ApiKey  # noqa: E402
from support.apache import ApacheZooKeeper  # noqa: E402

PRODUCE, CONSUME, GROUPS, SINGLE = PARTS = ("produce", "consume", "groups", "single")
LOADS = {PRODUCE: m.PRODUCING, CONSUME: m.CONSUMING, GROUPS: (m.GROUP_LOOP,), SINGLE: (m.SINGLE,)}
READING = (m.CONSUME_LOOP, m.GROUP_LOOP)
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
PARTITIONS = 4
#: What a topic that is read was filled with.
FILL_BATCH_BYTES = 64 * KIB
FILL_IN_FLIGHT = 3
SMALL = 100
#: Measured with small records alone.
SMALL_ONLY = (GROUPS, SINGLE)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_s: dict[str, float]
    #: Of each load but the single sends; reading record by record takes longer, since librdkafka reads in bursts.
    seconds: float
    reading_seconds: float
    sends: int
    #: What lies in the topics that are read, by the size of values.
    fill_bytes: dict[int, int]


FULL = Plan(
    rounds=3,
    warm_up_s={APACHE: 25.0, OTTLA: 3.0},
    seconds=0.5,
    reading_seconds=0.9,
    sends=2000,
    fill_bytes={SMALL: 512 * MIB, KIB: 1024 * MIB},
)
QUICK = Plan(
    rounds=1,
    warm_up_s={APACHE: 7.0, OTTLA: 1.0},
    seconds=0.2,
    reading_seconds=0.25,
    sends=300,
    fill_bytes={SMALL: 128 * MIB},
)


@dataclass(frozen=True)
class Filled:
    """A topic to be read, and how many records lie in it."""

    name: str
    records: int


class Bench:
    """One run: its figures, and the brokers that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path) -> None:
        self._plan = plan
        self._parts = parts
        self._zookeeper = ApacheZooKeeper(folder)
        self._folder = folder
        self._running: dict[str, Started] = {}
        self._filled: dict[tuple[str, int], Filled] = {}
        self._groups = map("bench-clients-{}".format, itertools.count(1))
        self.figures = ClientFigures(_legend())

    def run(self) -> None:
        """Measure everything, another client and another broker first in every round."""
        compile_package()
        self._zookeeper.start()
        for name in NAMES:
            say(f"starting and warming up {name}")
            self._start(name)
        clients = list(MODULES)
        for number in range(self._plan.rounds):
            turn = number % len(clients)
            for value_bytes in self._plan.fill_bytes:
                for name in reversed(NAMES) if number % 2 else NAMES:
                    for client in clients[turn:] + clients[:turn]:
                        say(f"round {number + 1}: {client}, {value_bytes} B, {name}")
                        self._measure(name, client, value_bytes)

    def stop(self) -> None:
        """Kill what still runs."""
        for broker in self._running.values():
            broker.stop()
        self._zookeeper.stop()

    def _start(self, name: str) -> None:
        folder = self._folder / name.split()[0].lower()
        broker = self._running[name] = launch(name, make(name, folder, self._zookeeper, SETTINGS))
        warm_up(broker, self._plan.warm_up_s[name])
        with Caller(broker.port) as caller:
            caller.wait_for_coordinator("warm-up")
        for value_bytes, total_bytes in self._plan.fill_bytes.items():
            self._filled[name, value_bytes] = fill(broker, value_bytes, total_bytes)

    def _measure(self, name: str, client: str, value_bytes: int) -> None:
        """All loads of a client, each on a new producer or consumer."""
        broker = self._running[name]
        with ClientProcess(client) as process, Caller(broker.port) as caller:
            for load in self._loads(client, value_bytes):
                job = partial(self._job, broker, load, value_bytes)
                if load in (*m.PRODUCING, m.SINGLE):
                    topic, _ = make_topic(caller, PARTITIONS)
                    found = process.measure(job(Filled(topic, 0)))
                    check_appended(caller, topic, found)
                    delete_topic(caller, broker, topic)
                else:
                    found = process.measure(job(self._filled[name, value_bytes]))
                self.figures.add(Key(name, load, value_bytes, client), found)

    def _loads(self, client: str, value_bytes: int) -> Iterator[str]:
        able = programs(client)
        for part in PARTS:
            if part in self._parts and (part not in SMALL_ONLY or value_bytes == SMALL):
                yield from (load for load in LOADS[part] if load in able)

    def _job(self, broker: Started, load: str, value_bytes: int, topic: Filled) -> Job:
        return Job(
            load=load,
            bootstrap=f"{HOST}:{broker.port}",
            broker_pid=broker.server.pid,
            topic=topic.name,
            partitions=PARTITIONS,
            records=topic.records,
            value_bytes=value_bytes,
            seconds=self._plan.reading_seconds if load in READING else self._plan.seconds,
            sends=self._plan.sends,
            group_id=next(self._groups),
        )


def fill(broker: Started, value_bytes: int, total_bytes: int) -> Filled:
    """A topic with about this many bytes, in batches as a busy producer makes them."""
    batch, _ = record_batch(value_bytes, FILL_BATCH_BYTES)
    count = max(1, total_bytes // len(batch) // PARTITIONS)
    with Caller(broker.port) as caller:
        topic, _ = make_topic(caller, PARTITIONS)
        frames = [produce_frame(topic, {partition: batch}) for partition in range(PARTITIONS)]
        answer_size = max(caller.probe(ApiKey.PRODUCE, frame) for frame in frames)
        requests = [itertools.repeat(frame, count) for frame in frames]
        loadgen.stream(broker.port, requests, answer_size, FILL_IN_FLIGHT)
        return Filled(topic, sum(caller.end_offsets(topic, PARTITIONS)))


def check_appended(caller: Caller, topic: str, found: Measured) -> None:
    """Refuse a figure of records that are not in the log."""
    appended = sum(caller.end_offsets(topic, PARTITIONS))
    if appended != found.appended:
        raise loadgen.LoadFailed(f"{appended} records were appended instead of {found.appended}")


def _legend() -> str:
    clients = ", ".join(f"{client} {version(client)}" for client in (*OTHERS, OTTLA_CLIENT))
    return (
        f"Clients: {clients}. CPU s/M is seconds of processor time for a million records. For all: acks=all, "
        f"idempotence, linger.ms={m.LINGER_MS} (single sends 0), batch.size={m.BATCH_SIZE}, no compression; "
        f"check.crcs=true, fetch.max.bytes={m.FETCH_MAX_BYTES}, "
        f"max.partition.fetch.bytes={m.MAX_PARTITION_FETCH_BYTES}, at most {m.RECORDS_PER_CALL:,} records a call of "
        f"batches; else their defaults. Tuned is confluent-kafka with fetch.queue.backoff.ms={TUNED_BACKOFF_MS}. "
        f"A topic of {PARTITIONS} partitions, no keys."
    )


def _make(options: Options, folder: Path) -> Bench:
    return Bench(QUICK if options.quick else FULL, options.parts, folder)


if __name__ == "__main__":
    sys.exit(execute("clients", __doc__, PARTS, FULL.rounds, _make))
