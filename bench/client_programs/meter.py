"""What a client is asked to do, and the measurement around it."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from support.cpu_clock import process_cpu_seconds

PRODUCE_LOOP, PRODUCE_BATCH, PRODUCE_ARROW = PRODUCING = ("produce_loop", "produce_batch", "produce_arrow")
CONSUME_LOOP, CONSUME_BATCH, CONSUME_ARROW = CONSUMING = ("consume_loop", "consume_batch", "consume_arrow")
GROUP_LOOP = "group_loop"
SINGLE = "single"
LOADS = (*PRODUCING, *CONSUMING, GROUP_LOOP, SINGLE)

#: The same for every client.
LINGER_MS = 5
BATCH_SIZE = 64 * 1024
FETCH_MAX_BYTES = 50 * 1024 * 1024
MAX_PARTITION_FETCH_BYTES = 1024 * 1024
#: How many records a batch call takes or gives at most.
RECORDS_PER_CALL = 10_000
#: So many records are handled between two looks at the clock.
RECORDS_PER_LOOK = 2_000
#: Produced before the measurement begins: connections are up, metadata and a producer id are there.
WARM_UP_RECORDS = 2_000
WARM_UP_SENDS = 100


@dataclass(frozen=True)
class Job:
    """One load on one topic of one broker: for `seconds`, or to the end of its `records`; or `sends` single sends."""

    load: str
    bootstrap: str
    broker_pid: int
    topic: str
    partitions: int
    records: int
    value_bytes: int
    seconds: float
    sends: int
    group_id: str

    @property
    def value(self) -> bytes:
        """What every record holds."""
        return b"v" * self.value_bytes


@dataclass
class Measured:
    """What came of a job; `appended` counts the records of the warm-up, too."""

    records: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    broker_cpu_s: float = 0.0
    appended: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0


class WrongRecords(Exception):
    """A client gave records that are not those of the topic."""


class Meter:
    """Times one job: `start` when the client is warm, `stop` when everything is acknowledged or read."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._deadline = self._begun = self._cpu_s = self._broker_cpu_s = 0.0
        self.measured = Measured()

    def start(self) -> None:
        """Begin; nothing before counts."""
        self._broker_cpu_s = process_cpu_seconds(self._job.broker_pid)
        self._cpu_s = _own_cpu_seconds()
        self._begun = time.perf_counter()
        self._deadline = self._begun + self._job.seconds

    def running(self) -> bool:
        """Whether there is time for more."""
        return time.perf_counter() < self._deadline

    def reading(self, records: int) -> bool:
        """Whether there is time and a record left after the first and this many more."""
        return records + 1 < self._job.records and self.running()

    def stop(self, records: int) -> None:
        """End, after this many records since `start`."""
        found = self.measured
        found.seconds = time.perf_counter() - self._begun
        found.cpu_s = _own_cpu_seconds() - self._cpu_s
        # A thread of the broker that ended meanwhile took its time along.
        found.broker_cpu_s = max(0.0, process_cpu_seconds(self._job.broker_pid) - self._broker_cpu_s)
        found.records = records

    def check_bytes(self, records: int, value_bytes: int) -> None:
        """Refuse a count of bytes that this many records cannot have."""
        if value_bytes != records * self._job.value_bytes or not records:
            raise WrongRecords(f"{records} records had {value_bytes} bytes in all")

    def latencies(self, seconds: Sequence[float]) -> None:
        """Keep the percentiles of single sends."""
        cuts = statistics.quantiles(seconds, n=100, method="inclusive")
        self.measured.p50_ms, self.measured.p99_ms = cuts[49] * 1e3, cuts[98] * 1e3


#: A client's loads by name; what it cannot do is not there.
Programs = dict[str, Callable[[Job, Meter], None]]


def _own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
