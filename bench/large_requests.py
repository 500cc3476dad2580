"""Large requests to ottla: what other clients notice, and what memory they take.

    ./run bench large_requests [--quick] [--api NAME …] [--all]

For every API that the broker serves, and its oldest and newest versions with and without flexible encoding, well-formed
requests near 16 MB: with as many elements as the broker takes in each of their arrays, with all levels of arrays
filled, with more elements than it takes, and with few large ones. Meanwhile another connection asks for ApiVersions.
One row per API has the worst of its requests; `--all` prints each. The exit status is 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from frames import HOST, Caller, CallFailed, record_batch  # noqa: E402
from session import say  # noqa: E402

from ottla.broker.served import SERVED  # noqa: E402
from ottla.wire.apis import API, ApiKey  # noqa: E402
from ottla.wire.codec import encode  # noqa: E402
from ottla.wire.framing import RequestHeader, encode_request_frame  # noqa: E402
from ottla.wire.messages.api_versions import ApiVersionsRequest  # noqa: E402
from support.cpu_clock import process_cpu_seconds  # noqa: E402
from support.large_requests import LONGEST_STRING, ArrayPath, RequestMaker, array_paths, versions  # noqa: E402
from support.ottla_server import OttlaServer  # noqa: E402

MB = 1_000_000
REQUEST_BYTES = 16 * MB
ELEMENT_LIMIT = 200_000
#: Goals: other connections, memory, and the end of the work when its client goes.
P99_MS = 50.0
MEMORY_BYTES = 64 * MB
MEMORY_PER_BYTE = 4
ENDED_AFTER_S = 5.0
#: The client of a request waits so long for the answer, then closes its connection.
PATIENCE_S = 15.0
PROBE_EVERY_S = 0.001
#: Processor time below which the broker counts as idle, of a second.
IDLE_SHARE = 0.25
TOPIC = "t0"
#: Thousands of topics that were made take a while to be closed.
STOP_TIMEOUT_S = 120.0


class Probe:
    """Another client that asks for ApiVersions all the time.

    On a busy machine it waits for processors, too; so the processor time that the broker used between a question and
    its answer is measured beside the time that passed.
    """

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._pid = pid
        self._times_ms: list[float] = []
        self._cpu_ms: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        frame = encode_request_frame(
            RequestHeader(int(ApiKey.API_VERSIONS), 0, 1, "probe"), encode(ApiVersionsRequest(), 0)
        )
        with Caller(self._port) as caller:
            while not self._is_over.wait(PROBE_EVERY_S):
                used_s, began_s = process_cpu_seconds(self._pid), time.perf_counter()
                caller.exchange(frame)
                self._times_ms.append((time.perf_counter() - began_s) * 1e3)
                self._cpu_ms.append((process_cpu_seconds(self._pid) - used_s) * 1e3)

    def stop(self) -> tuple[Waits, Waits]:
        """The times that passed, and the broker's processor time meanwhile."""
        self._is_over.set()
        self._thread.join()
        return Waits.of(self._times_ms), Waits.of(self._cpu_ms)


class Waits(NamedTuple):
    """The p99 and the longest of some times, ms."""

    p99: float
    longest: float

    @classmethod
    def of(cls, times: list[float]) -> Waits:
        ordered = sorted(times) or [0.0]
        return cls(ordered[int(len(ordered) * 0.99)], ordered[-1])

    def __str__(self) -> str:
        return f"{self.p99:.0f} / {self.longest:.0f}"


@dataclass(frozen=True)
class Case:
    """One request."""

    key: int
    version: int
    shape: str
    frame: bytes

    @property
    def name(self) -> str:
        return f"{API[self.key].name} v{self.version} {self.shape}"


@dataclass(frozen=True)
class Outcome:
    """What one request did."""

    case: Case
    #: Size of the answer; 0: the connection was closed by the broker; -1: the client lost patience.
    answered: int
    seconds: float
    #: What the probe waited, and the broker's processor time meanwhile.
    waits: Waits
    cpu: Waits
    memory_bytes: int
    #: From the end of the connection until the broker was idle.
    idle_after_s: float

    @property
    def problems(self) -> list[str]:
        found = []
        if self.cpu.p99 > P99_MS:
            found.append("p99")
        if self.memory_bytes > MEMORY_BYTES + MEMORY_PER_BYTE * len(self.case.frame):
            found.append("memory")
        if self.idle_after_s > ENDED_AFTER_S:
            found.append("goes on")
        return found

    def row(self) -> str:
        answer = {0: "closed", -1: "gave up"}.get(self.answered, f"{self.answered / MB:.1f} MB")
        return (
            f"| {self.case.name} | {len(self.case.frame) / MB:.1f} | {answer} | {self.seconds:.2f} | {self.waits} | "
            f"{self.cpu} | {self.memory_bytes / MB:.0f} | {self.idle_after_s:.1f} | {' '.join(self.problems)} |"
        )


HEAD = (
    "| request | MB | answer | s | p99 / longest, ms | of processor time | memory, MB | idle after, s | missed |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def cases(key: int, quick: bool) -> Iterator[Case]:
    """The requests of one API."""
    chosen = versions(key)
    for version in (chosen[0], chosen[-1]) if quick and len(chosen) > 1 else chosen:
        yield from _arrays(key, version)
        yield from _large_fields(key, version)


def _arrays(key: int, version: int) -> Iterator[Case]:
    for path in array_paths(API[key].request, version):
        name = ".".join(path)
        for counts in _counts(len(path)):
            elements = _elements(counts)
            padding = min(max(REQUEST_BYTES // elements - 24, 0), 200)
            shape = f"{name} {'x'.join(map(str, counts))}"
            yield _case(key, version, shape, path, counts, string_bytes=padding)
            yield _case(key, version, f"{shape} same", path, counts, same=True, records=record_batch(16, 80)[0])
        over = (ELEMENT_LIMIT + 1,)
        yield _case(key, version, f"{name} too many", path, (1,) * (len(path) - 1) + over)


def _counts(levels: int) -> Iterator[tuple[int, ...]]:
    """Elements of each level of arrays, together at most the limit."""
    most = ELEMENT_LIMIT - levels
    yield (1,) * (levels - 1) + (most,)
    if levels > 1:
        each = int(ELEMENT_LIMIT ** (1 / levels)) - 1
        yield (each,) * levels
        yield (most // levels,) + (1,) * (levels - 1)


def _elements(counts: tuple[int, ...]) -> int:
    total, product = 0, 1
    for count in counts:
        product *= count
        total += product
    return total


def _large_fields(key: int, version: int) -> Iterator[Case]:
    """Few elements with very long strings, or one with very long data."""
    deepest = max(array_paths(API[key].request, version), key=len, default=())
    many = REQUEST_BYTES // (LONGEST_STRING + 200)
    if deepest:
        counts = (many,) + (1,) * (len(deepest) - 1)
        yield _case(key, version, "long strings", deepest, counts, string_bytes=LONGEST_STRING - 8)
    data = b"b" * (REQUEST_BYTES - 1000)
    case = _case(key, version, "long data", deepest, (1,) * len(deepest), data=data, same=True)
    if len(case.frame) > len(data):
        yield case


def _case(key: int, version: int, shape: str, path: ArrayPath, counts: tuple[int, ...], **options: object) -> Case:
    maker = RequestMaker(version, "t", **options)  # type: ignore[arg-type]
    return Case(key, version, shape, maker.frame(key, path, counts))


class Broker:
    """A broker with one topic and one group."""

    def __init__(self, folder: Path) -> None:
        self._server = OttlaServer(folder, overrides={"auto.create.topics.enable": "false"})
        self._server.start()
        with Caller(self._server.port) as caller:
            caller.create_topic(TOPIC, 4, {})
            caller.wait_for_coordinator(TOPIC)

    def stop(self) -> float:
        """Stop it; returns the seconds that it took."""
        began = time.monotonic()
        self._server.stop(STOP_TIMEOUT_S)
        return time.monotonic() - began

    def measure(self, case: Case) -> Outcome:
        """Send the request, and see what happens."""
        process = self._server.server
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")
        before = process.memory_bytes()
        probe = Probe(self._server.port, process.pid)
        time.sleep(0.05)
        began = time.monotonic()
        answered = self._exchange(case.frame)
        seconds = time.monotonic() - began
        idle_after_s = self._idle_after_s()
        waits, cpu = probe.stop()
        grown = process.peak_memory_bytes() - before
        return Outcome(case, answered, seconds, waits, cpu, grown, idle_after_s)

    def stop_during(self, case: Case) -> float:
        """Stop the broker while it works on the request; returns the seconds that it took."""
        with socket.create_connection((HOST, self._server.port)) as sock:
            sock.sendall(case.frame)
            time.sleep(0.2)
            return self.stop()

    def _exchange(self, frame: bytes) -> int:
        try:
            with Caller(self._server.port, PATIENCE_S) as caller:
                return len(caller.exchange(frame))
        except TimeoutError:
            return -1
        except (CallFailed, ConnectionError):
            return 0

    def _idle_after_s(self) -> float:
        began = time.monotonic()
        while True:
            used = self._server.server.cpu_seconds()
            time.sleep(0.1)
            # The probe alone takes some.
            if (
                self._server.server.cpu_seconds() - used
            ) / 0.1 < IDLE_SHARE or time.monotonic() - began > 3 * ENDED_AFTER_S:
                return time.monotonic() - began - 0.1


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the oldest and the newest version only")
    parser.add_argument("--api", nargs="+", default=[API[key].name for key in SERVED], help="these APIs only")
    parser.add_argument("--all", action="store_true", help="a row for each request")
    arguments = parser.parse_args()
    # A request to stop takes the broker and its data along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cache = PROJECT / ".cache"
    cache.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=cache))
    rows: list[str] = []
    missed = 0
    stops: list[str] = []
    broker: Broker | None = None
    try:
        for key in SERVED:
            if API[key].name not in arguments.api:
                continue
            broker = Broker(folder / str(key))
            outcomes = []
            for number, case in enumerate(cases(key, arguments.quick)):
                if key == ApiKey.CREATE_TOPICS and number:
                    # Topics of the request before, thousands of them, would be measured with it.
                    broker.stop()
                    broker = Broker(folder / f"{key}-{number}")
                outcomes.append(broker.measure(case))
                say(outcomes[-1].row())
            if not outcomes:
                broker.stop()
                continue
            slowest = max(outcomes, key=lambda outcome: outcome.seconds)
            stopped_s = broker.stop_during(slowest.case)
            stops.append(f"| {slowest.case.name} | {stopped_s:.1f} |")
            bad = [outcome for outcome in outcomes if outcome.problems]
            missed += len(bad)
            worst = {
                id(o): o
                for o in (slowest, max(outcomes, key=lambda o: o.cpu.p99), max(outcomes, key=lambda o: o.memory_bytes))
            }
            rows += [
                o.row() for o in (outcomes if arguments.all else [*bad, *(o for o in worst.values() if o not in bad)])
            ]
    finally:
        if broker is not None:
            broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join([HEAD, *rows, "", "| stopped (SIGTERM) during | s |", "|---|---|", *stops]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
