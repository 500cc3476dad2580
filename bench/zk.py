"""Apache ZooKeeper 3.8.4 and `ottla zookeeper`, side by side in one run.

    ./run bench zk [--quick] [--only start reads writes watches sessions memory] [--write]

Both servers get the same requests in turns, and force what they change to disk before they say so; figures are medians
of three rounds. See README.md beside this file for what each row means, and RESULTS.md for the last complete run.
"""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts servers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

import zk_frames as zf  # noqa: E402
import zk_load as load  # noqa: E402
from contestants import OTTLA, compile_package, launch  # noqa: E402
from frames import HOST  # noqa: E402
from report import AT_LEAST_EQUAL, AT_MOST_EQUAL, HALF, Figures, Goal  # noqa: E402
from session import Options, execute, say  # noqa: E402
from zk_frames import Burst, Session  # noqa: E402
from zk_load import Load  # noqa: E402

from ottla.zk.wire import Op  # noqa: E402
from support.apache import ApacheZooKeeper  # noqa: E402
from support.ottla_server import OttlaServer  # noqa: E402
from support.ottla_zookeeper import OttlaZooKeeper  # noqa: E402

APACHE = "Apache ZooKeeper 3.8.4"
NAMES = (APACHE, OTTLA)
START, READS, WRITES, WATCHES, SESSIONS, MEMORY = PARTS = ("start", "reads", "writes", "watches", "sessions", "memory")
#: What `zkServer.sh` gives the JVM; all else is the JVM's own choice.
HEAP, JVM = "1000m", ("-server",)
MB = 1e6
SERVE = "ottla serve"
#: What `ottla serve` promises, seconds.
PROMPT = Goal(0.3, at_least=False, absolute=True)
_TREE_PORT = re.compile(r"ZooKeeper clients on [^\s,]+:(\d+)")

VALUE = b"v" * 100
#: Requests that are sent together, two times on their way.
BURST = 16
CONNECTIONS = (16, 1)
#: The nodes that are read and written, one for each connection, and how many children each has.
NODES, CHILDREN = 16, 10
MULTI_OPERATIONS = 10
WATCHERS = 200
WATCHED_NODES = 500
OPENING_AT_A_TIME = 16
FILL_AT_A_TIME = 100


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_s: dict[str, float]
    load_s: float
    sessions: int
    pings_per_s: int
    ping_s: float
    nodes: int


FULL = Plan(3, {APACHE: 30.0, OTTLA: 4.0}, 1.0, 2000, 1000, 3.0, 100_000)
QUICK = Plan(1, {APACHE: 12.0, OTTLA: 1.0}, 0.6, 500, 500, 1.0, 20_000)

Measure = Callable[[int], Load]


@dataclass(frozen=True)
class Row:
    """One load: a server's port in, what was done out."""

    part: str
    group: str
    title: str
    unit: str
    measure: Measure


def main_path(number: int) -> str:
    """The node of a connection."""
    return f"/bench/node-{number:02d}"


def prepare(port: int) -> None:
    """Make the nodes that are read and written."""
    with Session(port) as session:
        session.burst([zf.create("/bench")])
        for number in range(NODES):
            path = main_path(number)
            children = [zf.create(f"{path}/child-{child}", VALUE) for child in range(CHILDREN)]
            session.burst([zf.create(path, VALUE), *children])
        session.burst([zf.create("/watched"), *(zf.create(path, VALUE) for path in _watched())])


def _watched() -> list[str]:
    return [f"/watched/node-{number:03d}" for number in range(WATCHED_NODES)]


def _requests(
    port: int, frames: Callable[[int], Sequence[Sequence[bytes]]], connections: int, seconds: float, in_flight: int = 2
) -> Load:
    """A load of what `frames` makes for each connection: bursts, which are sent in turn."""
    with load.sessions(port, connections) as opened:
        bursts: list[list[Burst]] = [
            [session.burst(burst) for burst in frames(number)] for number, session in enumerate(opened)
        ]
        return load.pipelined(opened, bursts, seconds, in_flight)


def _reading(op: Op, number: int) -> list[list[bytes]]:
    return [[zf.read(op, main_path(number))] * BURST]


def _one_read(number: int) -> list[list[bytes]]:
    return [[zf.read(Op.GET_DATA, main_path(number))]]


def _setting(number: int) -> list[list[bytes]]:
    return [[zf.set_data(main_path(number), VALUE)] * BURST]


def _one_set(number: int) -> list[list[bytes]]:
    return [[zf.set_data(main_path(number), VALUE)]]


def _making_and_deleting(number: int) -> list[list[bytes]]:
    paths = [f"{main_path(number)}/made-{child:02d}" for child in range(BURST)]
    return [[zf.create(path, VALUE) for path in paths], [zf.delete(path) for path in paths]]


def _multi(number: int) -> list[list[bytes]]:
    paths = [f"{main_path(number)}/child-{child}" for child in range(MULTI_OPERATIONS)]
    return [[zf.multi_set(paths, VALUE)] * 2]


def _many_watch_one(port: int, seconds: float) -> Load:
    with load.sessions(port, WATCHERS + 1) as (changer, *watchers):
        return load.many_watch_one(changer, watchers, _watched()[0], seconds)


def _one_watches_many(port: int, seconds: float) -> Load:
    with load.sessions(port, 2) as (changer, watcher):
        return load.one_watches_many(changer, watcher, _watched(), seconds)


def rows(seconds: float) -> list[Row]:
    """All loads in their order."""
    made: list[Row] = []

    def add(part: str, group: str, title: str, unit: str, measure: Measure) -> None:
        made.append(Row(part, group, title, unit, measure))

    for connections in CONNECTIONS:
        of = f"{connections} connection{'s' if connections > 1 else ''}"
        for title, op in (("getData, 100 B", Op.GET_DATA), ("exists", Op.EXISTS), ("getChildren, 10", Op.GET_CHILDREN)):
            ask = partial(_requests, frames=partial(_reading, op), connections=connections, seconds=seconds)
            add(READS, f"Reads, {of}", title, "reads", ask)
        ask = partial(_requests, frames=_one_read, connections=connections, seconds=seconds, in_flight=1)
        add(READS, f"Reads, {of}", "getData, one in flight", "reads", ask)
        for title, unit, frames, in_flight in (
            ("setData, 100 B", "writes", _setting, 2),
            ("create and delete, 100 B", "writes", _making_and_deleting, 2),
            (f"multi of {MULTI_OPERATIONS} setData", "multis", _multi, 2),
            ("setData, one in flight", "writes", _one_set, 1),
        ):
            ask = partial(_requests, frames=frames, connections=connections, seconds=seconds, in_flight=in_flight)
            add(WRITES, f"Writes, {of}", title, unit, ask)
    add(WATCHES, "Watches", f"{WATCHERS} sessions on one node", "events", partial(_many_watch_one, seconds=seconds))
    one = partial(_one_watches_many, seconds=seconds)
    add(WATCHES, "Watches", f"one session on each of {WATCHED_NODES} nodes", "events", one)
    opening = partial(load.open_and_close, connections=OPENING_AT_A_TIME, seconds=seconds)
    add(SESSIONS, "Sessions", "opened and closed", "sessions", opening)
    return made


class Bench:
    """One run: its figures, and the servers that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path) -> None:
        self._plan = plan
        self._parts = parts
        self._folder = folder
        self._running: dict[str, ApacheZooKeeper | OttlaZooKeeper] = {}
        self._rows = [row for row in rows(plan.load_s) if row.part in parts]
        self.figures = Figures(APACHE)

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        if self._parts & {START, MEMORY}:
            self._new_servers()
        if not self._rows:
            return
        for name in NAMES:
            say(f"starting and warming up {name}")
            prepare(self._start(name, "load"))
            self._warm_up(name)
        for number in range(1, self._plan.rounds + 1):
            for row in self._rows:
                say(f"round {number}: {row.group}, {row.title}")
                for name in _in_turn(number):
                    self._measure(row, name)
            if SESSIONS in self._parts:
                say(f"round {number}: {self._plan.sessions} sessions")
                for name in _in_turn(number):
                    self._keep_sessions(name)

    def stop(self) -> None:
        """Kill what still runs."""
        for server in self._running.values():
            server.kill9() if isinstance(server, OttlaZooKeeper) else server.stop()
        self._running.clear()

    def _start(self, name: str, label: str) -> int:
        folder = self._folder / f"{name.split()[0].lower()}-{label}"
        if name == OTTLA:
            server: ApacheZooKeeper | OttlaZooKeeper = OttlaZooKeeper(folder)
        else:
            server = ApacheZooKeeper(folder, heap=HEAP, jvm_options=JVM)
        self._running[name] = server.start()
        _ruok(server.port)
        return server.port

    def _cpu_s(self, name: str) -> float:
        return self._running[name].server.cpu_seconds()

    def _new_servers(self) -> None:
        """Start-up, and memory with many nodes. Once unmeasured, so that programs are in the page cache."""
        for number in range(self._plan.rounds + 1):
            say("starting both servers" + (f", round {number}" if number else " to get everything into memory"))
            for name in _in_turn(number):
                port = self._start(name, f"start-{number}")
                server = self._running[name].server
                if number and START in self._parts:
                    seconds, cpu_s = time.monotonic() - server.started_at, self._cpu_s(name)
                    group, add = "Start and memory", self.figures.add
                    add(group, "process start to imok", "s", name, seconds, HALF)
                    add(group, "CPU until then", "s", name, cpu_s, HALF)
                    add(group, "resident memory then", "MB", name, server.memory_bytes() / MB, AT_MOST_EQUAL)
                if number == self._plan.rounds and MEMORY in self._parts:
                    self._fill(name, port)
                self.stop()
            if number and START in self._parts:
                self._brokers(number)

    def _brokers(self, number: int) -> None:
        """A broker that serves its tree answers as soon as one that does not."""
        for title, arguments in ((SERVE, ()), (f"{SERVE} --zookeeper-port", ("--zookeeper-port", "0"))):
            folder = self._folder / f"broker-{number}-{len(arguments)}"
            broker = OttlaServer(folder, arguments=arguments, env={"PYTHONDONTWRITEBYTECODE": ""})
            try:
                started = launch(OTTLA, broker)
                seconds = started.seconds
                if found := _TREE_PORT.search(started.server.stdout):
                    _ruok(int(found[1]))
                    seconds = time.monotonic() - started.server.started_at
                add = self.figures.add
                add("Start and memory", f"{title}, process start to first answers", "s", OTTLA, seconds, PROMPT)
                add("Start and memory", f"{title}, resident memory", "MB", OTTLA, started.memory_bytes / MB)
            finally:
                broker.kill9()

    def _fill(self, name: str, port: int) -> None:
        count, server = self._plan.nodes, self._running[name].server
        say(f"{count:,} nodes in {name}")
        folders = [f"/full-{number:04d}" for number in range(count // FILL_AT_A_TIME)]
        before_s = self._cpu_s(name)
        with Session(port) as session:
            frames = (
                zf.multi_create([folder, *(f"{folder}/{child:03d}" for child in range(FILL_AT_A_TIME - 1))], VALUE)
                for folder in folders
            )
            load.in_steps(session, frames, 2)
        title = f"{count:,} nodes of 100 B"
        group, add = "Start and memory", self.figures.add
        add(group, f"{title}, resident memory", "MB", name, server.memory_bytes() / MB, AT_MOST_EQUAL)
        add(group, f"{title}, CPU to make them", "s", name, self._cpu_s(name) - before_s, AT_MOST_EQUAL)

    def _warm_up(self, name: str) -> None:
        port, end_s = self._running[name].port, time.monotonic() + self._plan.warm_up_s[name]
        short = [row for row in rows(self._plan.warm_up_s[name] / 50) if row.part in self._parts]
        while time.monotonic() < end_s:
            for row in short:
                row.measure(port)

    def _measure(self, row: Row, name: str) -> None:
        before_s = self._cpu_s(name)
        done = row.measure(self._running[name].port)
        cpu_s = max(self._cpu_s(name) - before_s, 0.001)
        add = self.figures.add
        add(row.group, row.title, f"{row.unit} per CPU second", name, done.count / cpu_s, AT_LEAST_EQUAL)
        add(row.group, row.title, f"{row.unit}/s", name, done.count / done.seconds)
        add(row.group, row.title, "share of the generator", name, done.generator_cpu_s / done.seconds)

    def _keep_sessions(self, name: str) -> None:
        plan, server = self._plan, self._running[name].server
        with load.sessions(self._running[name].port, plan.sessions) as opened:
            before_s = self._cpu_s(name)
            done = load.ping_paced(opened, plan.pings_per_s, plan.ping_s)
            cpu_s = self._cpu_s(name) - before_s
            memory = server.memory_bytes() / MB
        title = f"{plan.sessions:,} sessions, {plan.pings_per_s:,} pings/s"
        add = self.figures.add
        add("Sessions", title, "CPU ms per second", name, cpu_s / done.seconds * 1e3, AT_MOST_EQUAL)
        add("Sessions", title, "resident memory, MB", name, memory, AT_MOST_EQUAL)


def _in_turn(number: int) -> Sequence[str]:
    """Both, another one first in every round."""
    return NAMES if number % 2 else NAMES[::-1]


def _ruok(port: int) -> None:
    with socket.create_connection((HOST, port), timeout=zf.TIMEOUT_S) as connection:
        connection.sendall(b"ruok")
        if connection.recv(4) != b"imok":
            raise load.LoadFailed("the server is not well")


def _make(options: Options, folder: Path) -> Bench:
    return Bench(QUICK if options.quick else FULL, options.parts, folder)


if __name__ == "__main__":
    sys.exit(execute("zk", __doc__, PARTS, FULL.rounds, _make))
