"""The mirror pipeline beside MirrorMaker 2: both copy the same topic of one `ottla serve` to another one.

    ./run bench mirror [--quick] [--write]

Each copies what is there when it starts, in a process (and its descendants) of its own. Records per second are counted
from the first record at the target to the last, so that the start counts in none of the two; processor time is that of
the process tree in the same stretch, and in all with the start.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

import pyarrow  # noqa: E402
from contestants import OTTLA, compile_package  # noqa: E402
from process_tree import PeakMemory, ProcessTree  # noqa: E402
from report import HALF, Figures, Goal  # noqa: E402
from session import Options, execute, say  # noqa: E402

from ottla.client.model import LATEST, TopicPartition  # noqa: E402
from ottla.client.sync import Client, Producer  # noqa: E402
from support.java import java_command  # noqa: E402
from support.ottla_server import OttlaServer  # noqa: E402
from support.waiting import wait_until  # noqa: E402

MIRROR_MAKER = "MirrorMaker 2"
CONTESTANTS = (MIRROR_MAKER, OTTLA)
PARTS = ("small", "large")
PARTITIONS = 4
TOPIC = "bench"
SIZES = {"small": 100, "large": 1024}
ROWS_PER_SEND = 50_000
AHEAD = Goal(1.0, at_least=True)
NO_MORE_MEMORY = Goal(1.0, at_least=False)
TIMEOUT_S = 600.0
MB = 1e6
#: What `connect-mirror-maker.sh` gives it, with a heap that suits this machine.
JVM = ("-Xms256m", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    records: dict[str, int]


FULL = Plan(3, {"small": 2_000_000, "large": 600_000})
QUICK = Plan(1, {"small": 400_000, "large": 100_000})


class MirrorBench:
    """Fills a topic for each part, and lets the two copy it in turns, each time to an empty cluster."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.figures = Figures(MIRROR_MAKER)
        self._plan = QUICK if options.quick else FULL
        self._parts = [part for part in PARTS if part in options.parts]
        self._folder = folder
        self._numbers = itertools.count()
        self._servers: list[OttlaServer] = []

    def run(self) -> None:
        compile_package()
        for part in self._parts:
            source = self._server()
            _fill(source, self._plan.records[part], SIZES[part])
            for number in range(self._plan.rounds):
                order = CONTESTANTS if number % 2 == 0 else CONTESTANTS[::-1]
                for name in order:
                    self._measure(part, name, source)
            self._stop(source)

    def stop(self) -> None:
        for server in list(self._servers):
            self._stop(server)

    def _server(self) -> OttlaServer:
        server = OttlaServer(self._folder / f"server-{next(self._numbers)}")
        self._servers.append(server)
        return server.start()

    def _stop(self, server: OttlaServer) -> None:
        self._servers.remove(server)
        server.kill9()

    def _measure(self, part: str, name: str, source: OttlaServer) -> None:
        target = self._server()
        folder = self._folder / f"run-{next(self._numbers)}"
        folder.mkdir()
        count = self._plan.records[part]
        say(f"{name}: {count:,} records of {SIZES[part]} bytes")
        with _process(name, source, target, folder) as process:
            tree = ProcessTree(process.pid)
            peak = PeakMemory(tree)
            try:
                with Client(target.bootstrap) as client:
                    wait_until(lambda: f"west.{TOPIC}" in client.topics(), "the topic", TIMEOUT_S)
                    first = wait_until(lambda: _sent(client), "the first records", TIMEOUT_S)
                    begun, begun_cpu = time.monotonic(), tree.cpu_seconds()
                    wait_until(lambda: _sent(client) >= count, "all records", TIMEOUT_S)
                    seconds, cpu = time.monotonic() - begun, tree.cpu_seconds() - begun_cpu
                    assert _sent(client) == count, "no record twice"
            finally:
                memory = sum(peak.stop().values())
            whole_cpu = tree.cpu_seconds()
        title = f"{SIZES[part]}-byte values, {PARTITIONS} partitions"
        copied = count - first
        self.figures.add(title, "records", "1/s", name, copied / seconds, AHEAD)
        self.figures.add(title, "processor time while copying", "µs/record", name, cpu / copied * 1e6, HALF)
        self.figures.add(title, "processor time with the start", "s", name, whole_cpu)
        self.figures.add(title, "memory, peak", "MB", name, memory / MB, NO_MORE_MEMORY)
        self._stop(target)


def _sent(client: Client) -> int:
    partitions = [TopicPartition(f"west.{TOPIC}", number) for number in range(PARTITIONS)]
    return sum(client.offsets_at(partitions, LATEST).values())


def _fill(server: OttlaServer, count: int, size: int) -> None:
    chance = random.Random(16)
    # Half of each value compresses, as events do.
    values = [chance.randbytes(size // 2) + b"x" * (size - size // 2) for _ in range(10_000)]
    with Client(server.bootstrap) as client, Producer(bootstrap_servers=server.bootstrap, linger_ms=5) as producer:
        client.create_topic(TOPIC, PARTITIONS)
        for start in range(0, count, ROWS_PER_SEND):
            rows = range(start, min(start + ROWS_PER_SEND, count))
            table = pyarrow.table(
                {
                    "value": pyarrow.array([values[row % len(values)] for row in rows], pyarrow.binary()),
                    "partition": pyarrow.array([row % PARTITIONS for row in rows], pyarrow.int32()),
                }
            )
            producer.send_arrow(table, TOPIC)


@contextmanager
def _process(name: str, source: OttlaServer, target: OttlaServer, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = _mirror_maker(source, target, folder) if name == MIRROR_MAKER else _pipeline(source, target, folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        yield process
    except BaseException:
        print((folder / "log").read_text(errors="replace")[-4_000:], file=sys.stderr)
        raise
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _mirror_maker(source: OttlaServer, target: OttlaServer, folder: Path) -> list[str]:
    copies = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage")
    settings = {
        "clusters": "west, east",
        "west.bootstrap.servers": source.bootstrap,
        "east.bootstrap.servers": target.bootstrap,
        "west->east.enabled": "true",
        "east->west.enabled": "false",
        "west->east.topics": TOPIC,
        "replication.factor": "1",
        "tasks.max": str(PARTITIONS),
        "config.storage.replication.factor": "1",
        **{f"{each}.replication.factor": "1" for each in copies},
    }
    path = folder / "mm2.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    return java_command("org.apache.kafka.connect.mirror.MirrorMaker", str(path), options=JVM)


def _pipeline(source: OttlaServer, target: OttlaServer, folder: Path) -> list[str]:
    settings = {
        "source_alias": "west",
        "target_alias": "east",
        "source_bootstrap_servers": source.bootstrap,
        "target_bootstrap_servers": target.bootstrap,
        "topics": TOPIC,
        "group_id": "bench-mirror",
    }
    path = folder / "settings.json"
    path.write_text(json.dumps(settings))
    return [sys.executable, str(Path(__file__).with_name("mirror_process.py")), str(path)]


if __name__ == "__main__":
    sys.exit(execute("mirror", __doc__, PARTS, FULL.rounds, MirrorBench))
