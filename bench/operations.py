"""What an operator does with a cluster, on three brokers of Apache Kafka 3.9.1 and on three of ottla, side by side.

    ./run bench operations [--quick] [--gigabytes 10] [--throttle-mb 50] [--only move restart] [--write]

Moving partitions under load, at a throttle and without one, and a rolling restart under load; see README.md beside
this file. Both clusters run all the time and are measured in turns, another one first in every round.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

import loadgen  # noqa: E402
from cluster_loads import ALL_IN_SYNC, IN_FLIGHT, TWO_OF_THREE, Producing, spread, warm_up  # noqa: E402
from clusters import BROKER_IDS, Cluster  # noqa: E402
from contestants import APACHE, NAMES, OTTLA, compile_package  # noqa: E402
from frames import HOST, Caller, produce_frame, record_batch  # noqa: E402
from loads import KIB, MIB, Bulk  # noqa: E402
from report import AT_MOST_EQUAL, Figures, Goal  # noqa: E402
from session import Bench as AnyBench  # noqa: E402
from session import Options, execute, say  # noqa: E402

from ottla.client.admin import Admin, ConfigOperation, ConfigResource  # noqa: E402
from ottla.client.model import TopicPartition  # noqa: E402
from ottla.wire.apis import ApiKey  # noqa: E402
from support.acknowledged_load import AcknowledgedLoad  # noqa: E402
from support.waiting import wait_until  # noqa: E402

MOVE, RESTART = PARTS = ("move", "restart")
LOAD = Bulk(KIB, 64 * KIB)
#: Partitions that are moved, a third of them from each broker; with one replica each, so that what moves is known.
MOVED = 12
#: The load beside a move, megabytes a second of records: light, so that the disk is not what is measured.
FOREGROUND_MB_PER_S = 2.0
MOVE_TIMEOUT_S = 1_800.0
LOOK_S = 0.05
MB = 1e6
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
#: How far the rate may be from the throttle, as a share of it.
ACCURATE = Goal(1.0, at_least=False)

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_s: dict[str, float]
    moved_bytes: int
    throttle_mb_per_s: float


FULL = Plan(3, {APACHE: 60.0, OTTLA: 5.0}, 10 * 1024 * MIB, 50.0)
QUICK = Plan(1, {APACHE: 15.0, OTTLA: 1.0}, 384 * MIB, 8.0)


def administer(cluster: Cluster, work: Callable[[Admin], object]) -> None:
    """Run admin calls of ottla's own client against a cluster, whoever made it."""

    async def run() -> None:
        servers = ",".join(f"{HOST}:{port}" for port in cluster.ports.values())
        async with Admin(bootstrap_servers=servers) as admin:
            done = work(admin)
            assert asyncio.iscoroutine(done)
            await done

    asyncio.run(run())


class Moving:
    """A topic of `MOVED` partitions with one replica each, filled; moved around and deleted in the end."""

    def __init__(self, cluster: Cluster, total_bytes: int) -> None:
        self._cluster = cluster
        self.topic = f"moved-{next(_numbers)}"
        self._owners = [[BROKER_IDS[index % len(BROKER_IDS)]] for index in range(MOVED)]
        cluster.make_topic(self.topic, self._owners, {})
        batch, _ = record_batch(LOAD.record_bytes, LOAD.batch_bytes)
        each = max(1, total_bytes // MOVED // len(batch))
        self.bytes = each * MOVED * len(batch)
        frames = [produce_frame(self.topic, {index: batch}, ALL_IN_SYNC) for index in range(MOVED)]
        ports = [cluster.ports[owner] for (owner,) in self._owners]
        with Caller(ports[0]) as caller:
            size = caller.probe(ApiKey.PRODUCE, frames[0])
        loadgen.stream(ports, [itertools.repeat(frame, each) for frame in frames], size, IN_FLIGHT)

    def move(self, throttle_bytes: int | None) -> float:
        """Let each partition go to the next broker; seconds until none is under way."""
        self._owners = [[1 + owner % len(BROKER_IDS)] for (owner,) in self._owners]
        wanted = {TopicPartition(self.topic, index): owner for index, owner in enumerate(self._owners)}
        if throttle_bytes is not None:
            self._set(dict.fromkeys(RATES, str(throttle_bytes)), dict.fromkeys(REPLICAS, "*"))
        seconds: list[float] = []

        async def move(admin: Admin) -> None:
            began_s = time.monotonic()
            await admin.alter_partition_reassignments(wanted)
            while await admin.list_partition_reassignments(list(wanted)):
                assert time.monotonic() < began_s + MOVE_TIMEOUT_S, "the move does not end"
                await asyncio.sleep(LOOK_S)
            seconds.append(time.monotonic() - began_s)

        administer(self._cluster, move)
        if throttle_bytes is not None:
            self._set(dict.fromkeys(RATES), dict.fromkeys(REPLICAS))
        self._cluster.wait_until_in_sync(self.topic)
        return seconds[0]

    def _set(self, rates: Mapping[str, str | None], replicas: Mapping[str, str | None]) -> None:
        """Settings of all brokers and of the topic; None takes one back."""

        def operations(settings: Mapping[str, str | None]) -> list[ConfigOperation]:
            return [
                ConfigOperation("delete" if value is None else "set", name, value) for name, value in settings.items()
            ]

        changes = {ConfigResource.broker(broker_id): operations(rates) for broker_id in BROKER_IDS}
        changes[ConfigResource.topic(self.topic)] = operations(replicas)
        administer(self._cluster, lambda admin: admin.incremental_alter_configs(changes))

    def end(self) -> None:
        """Delete the topic."""
        self._cluster.delete_topic(self.topic)


def beside_load(cluster: Cluster, seconds: float, work: Callable[[], float]) -> tuple[float, float, float]:
    """What `work` gives, and p50 and p99 of a paced load of acks=all that continues for so long beside it, ms."""
    producing = Producing(cluster, LOAD)
    found: list[float] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    p50_ms, p99_ms = producing.paced(FOREGROUND_MB_PER_S, seconds)
    worker.join()
    producing.end()
    if failed:
        raise failed[0]
    return found[0], p50_ms, p99_ms


class Bench:
    """One run: its figures, and the clusters that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path, names: Sequence[str]) -> None:
        self._plan = plan
        self._parts = parts
        self._clusters = {name: Cluster(name, folder / name.split()[0].lower()) for name in names}
        self.figures = Figures()

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        for name, cluster in self._clusters.items():
            say(f"starting three brokers of {name}")
            cluster.start()
            warm_up(cluster, self._plan.warm_up_s[name], [LOAD])
        measures: dict[str, Callable[[Cluster], None]] = {MOVE: self._move, RESTART: self._restart}
        for number in range(1, self._plan.rounds + 1):
            for part, measure in measures.items():
                if part not in self._parts:
                    continue
                clusters = list(self._clusters.values())
                for cluster in clusters if number % 2 else reversed(clusters):
                    say(f"round {number}: {part}, {cluster.name}")
                    measure(cluster)

    def stop(self) -> None:
        """Kill what still runs."""
        for cluster in self._clusters.values():
            cluster.stop()

    def _move(self, cluster: Cluster) -> None:
        plan, add, name = self._plan, self.figures.add, cluster.name
        moving = Moving(cluster, plan.moved_bytes)
        throttle = int(plan.throttle_mb_per_s * MB)
        # Each broker gives a third away and takes a third.
        ideal_s = moving.bytes / len(BROKER_IDS) / throttle
        group = f"{moving.bytes / 2**30:.2f} GiB move at {plan.throttle_mb_per_s:g} MB/s a broker, beside a load"
        before = cluster.cpu_seconds()
        seconds, p50_ms, p99_ms = beside_load(cluster, ideal_s, lambda: moving.move(throttle))
        cpu_s = cluster.cpu_seconds() - before
        rate = moving.bytes / len(BROKER_IDS) / seconds / MB
        add(group, "time", "s", name, seconds)
        add(group, "rate of a broker", "MB/s", name, rate)
        off = abs(rate - plan.throttle_mb_per_s) / plan.throttle_mb_per_s * 100
        add(group, "off the throttle by", "%", name, off, ACCURATE)
        add(group, "the load's p50", "ms", name, p50_ms)
        add(group, "the load's p99", "ms", name, p99_ms, AT_MOST_EQUAL)
        add(group, "CPU of the cluster", "s", name, cpu_s, AT_MOST_EQUAL)
        group = f"{moving.bytes / 2**30:.2f} GiB move without a throttle"
        before = cluster.cpu_seconds()
        seconds = moving.move(None)
        add(group, "time", "s", name, seconds, AT_MOST_EQUAL)
        add(group, "CPU of the cluster", "s", name, cluster.cpu_seconds() - before, AT_MOST_EQUAL)
        moving.end()

    def _restart(self, cluster: Cluster) -> None:
        """Each broker in turn: stop, start, wait until all is in sync."""
        topic, partitions = f"rolling-{next(_numbers)}", len(BROKER_IDS)
        cluster.make_topic(topic, spread(partitions), TWO_OF_THREE)
        bootstrap = ",".join(f"{HOST}:{port}" for port in cluster.ports.values())
        began_s = time.monotonic()
        with AcknowledgedLoad(bootstrap, topic, partitions, clients=("librdkafka",)) as load:
            for broker_id in BROKER_IDS:
                load.wait_for_more(200)
                cluster.halt(broker_id, in_order=True)
                cluster.restart(broker_id)
                cluster.wait_until_in_sync(topic)
            load.wait_for_more(200)
        seconds = time.monotonic() - began_s
        load.check()
        (producer,) = load.producers
        group, add, name = "Rolling restart of three brokers under load", self.figures.add, cluster.name
        add(group, "longest time without an acknowledgement", "ms", name, producer.longest_pause_s * 1e3, AT_MOST_EQUAL)
        add(group, "all three restarted and in sync", "s", name, seconds, AT_MOST_EQUAL)
        cluster.prefer_leaders()
        wait_until(lambda: cluster.controller() > 0, "a controller")
        cluster.delete_topic(topic)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", choices=NAMES, help="measure this one alone")
    parser.add_argument("--gigabytes", type=float, help="GiB that move")
    parser.add_argument("--throttle-mb", type=float, help="throttle of each broker, MB/s")
    parser.add_argument("--rounds", type=int, help="how often all is measured")


def _make(options: Options, folder: Path) -> AnyBench:
    plan, arguments = QUICK if options.quick else FULL, options.arguments
    plan = Plan(
        arguments.rounds or plan.rounds,
        plan.warm_up_s,
        int(arguments.gigabytes * 2**30) if arguments.gigabytes else plan.moved_bytes,
        arguments.throttle_mb or plan.throttle_mb_per_s,
    )
    return Bench(plan, options.parts, folder, (arguments.cluster,) if arguments.cluster else NAMES)


if __name__ == "__main__":
    sys.exit(execute("operations", __doc__, PARTS, FULL.rounds, _make, _add_options))
