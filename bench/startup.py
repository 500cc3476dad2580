"""Start-up, first records and memory: the test broker, `ottla serve`, Apache Kafka 3.9.1 and kfake, in one run.

    ./run bench startup [--quick] [--only start subscribe plugin] [--write]

Figures are medians of seven rounds, another contestant first in each. See README.md beside this file.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
BENCH = PROJECT / "bench"
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from contestants import APACHE, compile_package, make  # noqa: E402
from frames import HOST, Caller, produce_frame, record_batch  # noqa: E402
from round_trip import first_round_trip  # noqa: E402
from session import Options, execute, say  # noqa: E402
from startup_figures import Goal, StartupFigures  # noqa: E402
from startup_process import LIBRARIES, TOPIC  # noqa: E402

from ottla.testing import Broker  # noqa: E402
from ottla.wire.apis import ApiKey  # noqa: E402
from support.apache import ApacheZooKeeper  # noqa: E402
from support.cpu_clock import process_cpu_seconds  # noqa: E402
from support.ottla_server import OttlaServer  # noqa: E402
from support.processes import ServerProcess  # noqa: E402

START, SUBSCRIBE, PLUGIN = PARTS = ("start", "subscribe", "plugin")
TEST_BROKER, SERVE, KFAKE = "test broker", "ottla serve", "kfake"
CONTESTANTS = (TEST_BROKER, SERVE, KFAKE, APACHE)
WITH_PLUGIN, WITHOUT_PLUGIN = "with it", "without"
ROUNDS = 7
MB = 1e6
FIRST_CALL, LATER_CALL = "the first one, once they are imported, ms", "a later one, ms"
READY_TIMEOUT_S = 60.0
#: The record of the generator is years old.
KEEP = {"log.retention.ms": "-1"}
#: Of Apache Kafka, as the test broker has them.
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1", **KEEP}
#: Groups for each process of a client; the first one also pays for the library's own first use.
GROUPS = 3
#: Of pytest, for each of the two in a round.
PLUGIN_RUNS = 5
#: For a process of a client.
SUBSCRIBE_TIMEOUT_S = 30.0

#: Goals of milliseconds and megabytes.
HALF_THE_JVM = Goal(SERVE, 0.5, APACHE)
TEST_HALF_THE_JVM = Goal(TEST_BROKER, 0.5, APACHE)
_ADDRESS = re.compile(rb"listening on [^\s:]+:(\d+)")


class Launched:
    """A broker's process, timed from its start to its first answer to Metadata."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        folder.mkdir(parents=True)
        began_s = time.perf_counter()
        with (folder / "stderr").open("wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        assert self.process.stdout is not None
        found = None
        while found is None:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"{command[0]} ended: {(folder / 'stderr').read_text()}")
            found = _ADDRESS.search(line)
        self.port = int(found[1])
        with Caller(self.port) as caller:
            while not caller.brokers():
                time.sleep(0.001)
        self.seconds = time.perf_counter() - began_s

    def stop(self) -> None:
        """Kill it; its data is thrown away."""
        self.process.kill()
        self.process.communicate()


def build_kfake(folder: Path) -> Path | None:
    """kfake as a program, None where there is no Go that can build it."""
    program = folder / "kfake"
    if shutil.which("go") is None:
        say("no Go: kfake is not measured")
        return None
    built = subprocess.run(
        ["go", "build", "-o", str(program), "."], cwd=BENCH / "kfake", capture_output=True, text=True, check=False
    )
    if built.returncode:
        say(f"kfake cannot be built, and is not measured: {built.stderr.strip().splitlines()[-1:]}")
        return None
    return program


class Bench:
    """One run."""

    def __init__(self, rounds: int, parts: frozenset[str], folder: Path) -> None:
        self._rounds = rounds
        self._parts = parts
        self._folder = folder
        self._zookeeper = ApacheZooKeeper(folder)
        self._kfake: Path | None = None
        self._stopping: list[Launched | ServerProcess] = []
        self.figures = StartupFigures((*CONTESTANTS, WITH_PLUGIN, WITHOUT_PLUGIN))

    def run(self) -> None:
        """Measure everything; the first round only brings programs and libraries into memory."""
        compile_package()
        self._zookeeper.start()
        self._kfake = build_kfake(self._folder)
        for number in range(self._rounds + 1):
            say(f"round {number}" if number else "a round that does not count")
            figures = self.figures
            if not number:
                self.figures = StartupFigures(CONTESTANTS)
            if START in self._parts:
                for name in CONTESTANTS if number % 2 else reversed(CONTESTANTS):
                    self._start(name, number)
            if PLUGIN in self._parts:
                self._plugin(number)
            self.figures = figures
        if SUBSCRIBE in self._parts:
            self._subscribe()

    def _subscribed(self, library: str, name: str, port: int, groups: Sequence[str]) -> list[float]:
        """The seconds for each group; none where the client got no record at all, which the report says."""
        try:
            return _own_process([library, f"{HOST}:{port}"], groups)
        except subprocess.TimeoutExpired:
            said = f"A process of {library} with {name} got no record in {SUBSCRIBE_TIMEOUT_S:g} s, and is left out."
            say(said)
            self.figures.legend += f" {said}"
            return []

    def stop(self) -> None:
        """Kill what still runs."""
        for each in self._stopping:
            each.kill9() if isinstance(each, ServerProcess) else each.stop()
        self._zookeeper.stop()

    def _start(self, name: str, number: int) -> None:
        folder = self._folder / f"{name.split()[-1]}-{number}"
        if name == TEST_BROKER:
            self._test_broker()
        elif name == APACHE:
            apache = make(APACHE, folder, self._zookeeper, SETTINGS)
            apache.start()
            server = apache.server
            self._stopping.append(server)
            with Caller(apache.port) as caller:
                while not caller.brokers():
                    time.sleep(0.001)
            self._started(name, time.monotonic() - server.started_at, server.pid, apache.port)
            server.kill9()
            self._stopping.remove(server)
        elif name == SERVE or self._kfake is not None:
            command = OttlaServer(folder).command() if name == SERVE else [str(self._kfake)]
            launched = Launched(command, folder)
            self._stopping.append(launched)
            self._started(name, launched.seconds, launched.process.pid, launched.port)
            launched.stop()
            self._stopping.remove(launched)

    def _started(self, name: str, seconds: float, pid: int, port: int) -> None:
        self._add_start(name, seconds, process_cpu_seconds(pid), _resident_mb(pid))
        for what in (FIRST_CALL, LATER_CALL):
            self._add_call(what, name, seconds)
        self._add_round_trip(name, first_round_trip(port))

    def _add_start(self, name: str, seconds: float, cpu_s: float, resident_mb: float) -> None:
        add, title = self.figures.add, "Start"
        goals = Goal(SERVE, 300.0), HALF_THE_JVM, TEST_HALF_THE_JVM
        add(title, "process start to first answer, ms", name, seconds * 1e3, *goals)
        add(title, "processor time until then, ms", name, cpu_s * 1e3, HALF_THE_JVM, TEST_HALF_THE_JVM)
        memory = Goal(SERVE, 60.0), HALF_THE_JVM, TEST_HALF_THE_JVM
        add(title, "resident memory then, MB", name, resident_mb, *memory)

    def _add_round_trip(self, name: str, seconds: float) -> None:
        what = "connect, create the first topic, produce and fetch its first record, ms"
        self.figures.add("First round trip", what, name, seconds * 1e3, HALF_THE_JVM, TEST_HALF_THE_JVM)

    def _test_broker(self) -> None:
        began_at = time.monotonic()
        command = [sys.executable, str(BENCH / "startup_process.py"), "broker"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
        ) as process:
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
            self._add_start(TEST_BROKER, first["ready_at"] - began_at, first["cpu_s"], first["resident_mb"])
            self._add_round_trip(TEST_BROKER, first_round_trip(first["port"]))
            later_s = json.loads(process.communicate("go on\n")[0])["later_s"]
        self._add_call("import of its modules, ms", TEST_BROKER, first["import_s"])
        self._add_call(FIRST_CALL, TEST_BROKER, first["first_s"])
        self._add_call(LATER_CALL, TEST_BROKER, later_s)

    def _add_call(self, what: str, name: str, seconds: float) -> None:
        goals = (Goal(TEST_BROKER, 20.0), Goal(TEST_BROKER, 1.0, KFAKE)) if what in (FIRST_CALL, LATER_CALL) else ()
        self.figures.add("`Broker()` in a process that runs, others as processes", what, name, seconds * 1e3, *goals)

    def _plugin(self, number: int) -> None:
        """The least of several runs with and without it: other work only adds to them, and by more than it costs."""
        measured: dict[str, list[float]] = {WITH_PLUGIN: [], WITHOUT_PLUGIN: []}
        for _ in range(PLUGIN_RUNS if number else 1):
            for name in (WITH_PLUGIN, WITHOUT_PLUGIN) if number % 2 else (WITHOUT_PLUGIN, WITH_PLUGIN):
                measured[name].append(_pytest_cpu_ms(name == WITH_PLUGIN))
        least = {name: min(runs) for name, runs in measured.items()}
        add, title = self.figures.add, "The pytest plugin, not used"
        for name, least_ms in least.items():
            add(title, f"a run of one empty test, least of {PLUGIN_RUNS}, processor ms", name, least_ms)
        cost_ms = least[WITH_PLUGIN] - least[WITHOUT_PLUGIN]
        add(title, "difference, processor ms", WITH_PLUGIN, cost_ms, Goal(WITH_PLUGIN, 5.0))

    def _subscribe(self) -> None:
        """From subscribing to the first record, each client in processes of its own, against both brokers in turn."""
        apache = make(APACHE, self._folder / "apache-subscribe", self._zookeeper, SETTINGS)
        apache.start()
        self._stopping.append(apache.server)
        with Broker({TOPIC: 1}, settings=KEEP) as broker:
            brokers = {TEST_BROKER: broker.port, APACHE: apache.port}
            for port in brokers.values():
                _put_a_record(port)
            for number in range(self._rounds + 1):
                say(f"subscribing, round {number}")
                for library in LIBRARIES:
                    for name in brokers if number % 2 else reversed(brokers):
                        groups = [f"{library}-{number}-{group}" for group in range(GROUPS)]
                        found = self._subscribed(library, name, brokers[name], groups)
                        # The first one pays for the library's own first use.
                        for seconds in found[1:] if number else ():
                            title, goal = "Subscribe to first record, in a new group", Goal(TEST_BROKER, 50.0)
                            self.figures.add(title, f"{library}, ms", name, seconds * 1e3, goal)


def _put_a_record(port: int) -> None:
    batch, _ = record_batch(100, 1)
    with Caller(port) as caller:
        if not caller.leaders(TOPIC):
            caller.create_topic(TOPIC, 1, {})
        while not caller.leaders(TOPIC):
            time.sleep(0.01)
        caller.probe(ApiKey.PRODUCE, produce_frame(TOPIC, {0: batch}))
        caller.wait_for_coordinator("nobody")


def _own_process(arguments: Sequence[str], lines: Sequence[str]) -> list[float]:
    command = [sys.executable, str(BENCH / "startup_process.py"), *arguments]
    ended = subprocess.run(
        command,
        input="".join(f"{line}\n" for line in lines),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=_environment(),
        timeout=SUBSCRIBE_TIMEOUT_S,
    )
    seconds: list[float] = json.loads(ended.stdout)
    return seconds


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(PROJECT / "src"), "PYTHONDONTWRITEBYTECODE": ""}


def _pytest_cpu_ms(is_used: bool) -> float:
    """Processor time of a pytest run without other plugins."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_empty.py").write_text("def test_empty():\n    pass\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "ottla.testing.pytest_plugin"] if is_used else []
        env = _environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MB


def _make(options: Options, folder: Path) -> Bench:
    return Bench(1 if options.quick else ROUNDS, options.parts, folder)


if __name__ == "__main__":
    sys.exit(execute("startup", __doc__, PARTS, ROUNDS, _make))
