"""An earlier version of ottla and this one, side by side in one run: what a change of the code costs.

    ./run bench before_after --before COMMIT [--quick] [--only bulk tiny groups storage zk clients] [--write]

The earlier version is taken from the repository's history and its compiled code is built. Both versions get the same
loads in turns, another one first in every round; figures are medians of seven rounds, of processor time per unit. The
goal is that nothing costs more than a twentieth more.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

import loadgen  # noqa: E402
import zk  # noqa: E402
from client_process import ClientProcess  # noqa: E402
from client_programs import meter as m  # noqa: E402
from client_worker import OTTLA as ASYNC_CLIENT  # noqa: E402
from client_worker import OTTLA_SYNC  # noqa: E402
from clients import PARTITIONS, READING, Filled, check_appended, fill  # noqa: E402
from contestants import DELETE_DELAY, OTTLA, Started, compile_package, launch  # noqa: E402
from frames import HOST, Caller  # noqa: E402
from loads import BULK_LOADS, MIB, TINY_CONNECTIONS, Bulk, make_topic, produce_and_consume, tiny, warm_up  # noqa: E402
from raw_members import RawGroup  # noqa: E402
from report import Figures, Goal  # noqa: E402
from session import Options, execute, say  # noqa: E402
from storage_versions import Sizes, StorageVersions  # noqa: E402

from support.ottla_server import OttlaServer  # noqa: E402
from support.ottla_zookeeper import OttlaZooKeeper  # noqa: E402

BEFORE = "before"
NAMES = (BEFORE, OTTLA)
BULK, TINY, GROUPS, STORAGE, ZK, CLIENTS = PARTS = ("bulk", "tiny", "groups", "storage", "zk", "clients")
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4", **DELETE_DELAY}
#: Nothing may cost more than that share of what it cost before.
NO_DEARER = Goal(1.05, at_least=False)
GROUP_SIZES = (10, 100)
GROUP_PARTITIONS = 400
#: Rebalances are short: this many groups make one measurement.
GROUPS_PER_ROUND = 3
HEARTBEAT_MEMBERS = 64
VALUE_BYTES = 100
CLIENT_LOADS = (m.PRODUCE_LOOP, m.PRODUCE_BATCH, m.CONSUME_LOOP, m.CONSUME_BATCH)
MICRO = 1e6


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_s: float
    bulk_bytes: int
    passes: int
    tiny_requests: int
    heartbeats: int
    zk_s: float
    client_s: float
    fill_bytes: int
    storage: Sizes


FULL = Plan(7, 4.0, 384 * MIB, 3, 30_000, 40_000, 0.5, 0.6, 384 * MIB, Sizes(512 * MIB, 2_000, 1_024))
QUICK = Plan(1, 1.0, 128 * MIB, 2, 10_000, 10_000, 0.3, 0.3, 128 * MIB, Sizes(128 * MIB, 500, 512))


def check_out(commit: str, folder: Path) -> Path:
    """The package as it was at `commit`, with its compiled code; gives the folder to import it from."""
    place = folder / "version-before"
    place.mkdir()
    archive = subprocess.run(
        ["git", "archive", commit, "src", "setup.py", "pyproject.toml", "README.md", "LICENSE"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        check=True,
    )
    subprocess.run(["tar", "-x", "-C", str(place)], input=archive.stdout, check=True)
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=place, check=True)
    shutil.rmtree(place / "build", ignore_errors=True)
    return place / "src"


class Bench:
    """One run: its figures, and the processes that it has to stop."""

    def __init__(self, plan: Plan, options: Options, folder: Path) -> None:
        self._plan = plan
        self._parts = options.parts
        self._before = str(options.arguments.before)
        self._folder = folder
        self._environments: dict[str, dict[str, str]] = {}
        self._running: dict[str, Started] = {}
        self._trees: dict[str, OttlaZooKeeper] = {}
        self._storage = StorageVersions(plan.storage, folder, self._environments, self._add)
        self._filled: Filled | None = None
        self._numbers = itertools.count(1)
        self.figures = Figures(BEFORE)

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        sources = {BEFORE: check_out(self._before, self._folder), OTTLA: PROJECT / "src"}
        for name, source in sources.items():
            path = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
            self._environments[name] = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}
            self._start(name)
        for number in range(1, self._plan.rounds + 1):
            for part, what, measure in self._measurements():
                if part in self._parts:
                    say(f"round {number}: {what}")
                    for name in NAMES if number % 2 else NAMES[::-1]:
                        measure(name)

    def stop(self) -> None:
        """Kill what still runs."""
        for broker in self._running.values():
            broker.stop()
        for tree in self._trees.values():
            tree.kill9()
        self._storage.stop()

    def _start(self, name: str) -> None:
        say(f"starting and warming up {name}")
        environment = self._environments[name]
        if self._parts & {BULK, TINY, GROUPS, CLIENTS}:
            server = OttlaServer(self._folder / f"{name}-broker", overrides=SETTINGS, env=environment)
            broker = self._running[name] = launch(name, server)
            warm_up(broker, self._plan.warm_up_s)
            with Caller(broker.port) as caller:
                caller.wait_for_coordinator("warm-up")
            if CLIENTS in self._parts and name == OTTLA:
                self._filled = fill(broker, VALUE_BYTES, self._plan.fill_bytes)
        if ZK in self._parts:
            tree = self._trees[name] = OttlaZooKeeper(self._folder / f"{name}-zookeeper", env=environment).start()
            zk.prepare(tree.port)
        if STORAGE in self._parts:
            self._storage.prepare(name)

    def _measurements(self) -> list[tuple[str, str, Callable[[str], None]]]:
        found: list[tuple[str, str, Callable[[str], None]]] = []
        found += [(BULK, bulk.title, partial(self._bulk, bulk)) for bulk in BULK_LOADS]
        found += [(TINY, f"tiny requests on {count}", partial(self._tiny, count)) for count in TINY_CONNECTIONS]
        found += [(GROUPS, f"{size} members", partial(self._rebalances, size)) for size in GROUP_SIZES]
        found.append((GROUPS, "heartbeats", self._heartbeats))
        found += [(STORAGE, what, measure) for what, measure in self._storage.measurements()]
        found += [
            (ZK, f"{row.group}, {row.title}", partial(self._zk, row))
            for row in zk.rows(self._plan.zk_s)
            if row.part in (zk.READS, zk.WRITES, zk.WATCHES)
        ]
        found += [
            (CLIENTS, f"{client}, {load}", partial(self._client, client, load))
            for client in (ASYNC_CLIENT, OTTLA_SYNC)
            for load in CLIENT_LOADS
        ]
        return found

    def _add(self, group: str, what: str, unit: str, name: str, value: float) -> None:
        self.figures.add(group, what, unit, name, value, NO_DEARER)

    def _bulk(self, bulk: Bulk, name: str) -> None:
        found = produce_and_consume(self._running[name], bulk, self._plan.bulk_bytes, self._plan.passes)
        for group, one in zip(("Produce", "Consume"), found, strict=True):
            self._add(group, bulk.title, "broker CPU s per GB", name, one.cpu_s_per_gb)

    def _tiny(self, connections: int, name: str) -> None:
        found = tiny(self._running[name], connections, self._plan.tiny_requests)
        what = f"{connections} connection{'s' if connections > 1 else ''}"
        self._add("One tiny record per request", what, "broker CPU µs per request", name, found.cpu_us)

    def _group(self, name: str) -> RawGroup:
        port = self._running[name].port
        with Caller(port) as caller:
            topic, _ = make_topic(caller, GROUP_PARTITIONS)
        return RawGroup(port, f"bench-group-{next(self._numbers)}", topic, GROUP_PARTITIONS)

    def _rebalances(self, size: int, name: str) -> None:
        broker = self._running[name]
        cpu_s = 0.0
        for _ in range(GROUPS_PER_ROUND):
            group = self._group(name)
            before_s = broker.cpu_seconds()
            group.form(size)
            group.one_leaves()
            group.one_joins()
            cpu_s += broker.cpu_seconds() - before_s
            group.close()
        what = f"{size} members start, one leaves, one joins"
        self._add("Groups", what, "broker CPU ms", name, cpu_s / GROUPS_PER_ROUND * 1e3)

    def _heartbeats(self, name: str) -> None:
        group, broker = self._group(name), self._running[name]
        group.form(HEARTBEAT_MEMBERS)
        frames = group.heartbeat_frames()
        with Caller(broker.port) as caller:
            answer = caller.exchange(frames[0])
        before_s = broker.cpu_seconds()
        done = loadgen.ping_pong(broker.port, frames, len(answer), self._plan.heartbeats)
        cpu_s = broker.cpu_seconds() - before_s
        group.close()
        self._add("Groups", "heartbeats", "broker CPU µs each", name, cpu_s / done.requests * MICRO)

    def _zk(self, row: zk.Row, name: str) -> None:
        tree = self._trees[name]
        before_s = tree.server.cpu_seconds()
        done = row.measure(tree.port)
        cpu_s = tree.server.cpu_seconds() - before_s
        self._add(f"ZooKeeper: {row.group}", row.title, f"CPU µs per {row.unit}", name, cpu_s / done.count * MICRO)

    def _client(self, client: str, load: str, name: str) -> None:
        """A load of the client of one version; the broker is this version's for both."""
        broker = self._running[OTTLA]
        with ClientProcess(client, self._environments[name]) as process, Caller(broker.port) as caller:
            if load in m.PRODUCING:
                topic, _ = make_topic(caller, PARTITIONS)
                found = process.measure(self._job(broker, load, Filled(topic, 0)))
                check_appended(caller, topic, found)
                caller.delete_topic(topic)
                broker.wait_until_deleted(topic)
            else:
                assert self._filled is not None
                found = process.measure(self._job(broker, load, self._filled))
        self._add(f"Client {client}", load, "CPU s per million records", name, found.cpu_s / found.records * MICRO)

    def _job(self, broker: Started, load: str, topic: Filled) -> m.Job:
        return m.Job(
            load=load,
            bootstrap=f"{HOST}:{broker.port}",
            broker_pid=broker.server.pid,
            topic=topic.name,
            partitions=PARTITIONS,
            records=topic.records,
            value_bytes=VALUE_BYTES,
            seconds=self._plan.client_s * (2 if load in READING else 1),
            sends=0,
            group_id=f"bench-clients-{next(self._numbers)}",
        )


def _make(options: Options, folder: Path) -> Bench:
    return Bench(QUICK if options.quick else FULL, options, folder)


if __name__ == "__main__":
    sys.exit(
        execute(
            "before_after",
            __doc__,
            PARTS,
            FULL.rounds,
            _make,
            lambda parser: parser.add_argument(
                "--before",
                required=True,
                metavar="COMMIT",
                help="the earlier version, a name for git",
            ),
        )
    )
