"""A producer process of a run: `python -m ottla.profiles.producing`, driven by `ottla.profiles.producer_processes`.

It reads its task (a JSON object) from standard input, says that it is ready, and begins at the line `go`. It reports
its progress and in the end its result, each as a JSON object in a line. It ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from ottla.client.errors import ClientError, DeliveryError
from ottla.client.producer.bulk_future import BulkFuture
from ottla.client.producer.futures import BatchResult
from ottla.client.sync import Producer
from ottla.profiles.latencies import Latencies
from ottla.profiles.payloads import CHUNK_ROWS, RecordMaker
from ottla.profiles.workload import WORKLOADS, ProfileName

GO: Final = "go"
PROGRESS_S: Final = 0.25
#: At a rate, the time between two handovers of records.
TICK_S: Final = 0.01
#: Time that the generator runs without a producer, to show that it is not the bottleneck.
ALONE_S: Final = 0.2
#: Limit on chunks that wait for their acknowledgements.
MOST_CHUNKS: Final = 4096
#: The same at a rate: then records gather, and go out in larger batches, as with any producer that brokers hold up.
MOST_PACED_CHUNKS: Final = 5
#: Failed calls in a row after which the producer stops.
MOST_FAILURES: Final = 3
#: Kinds of errors that are reported.
MOST_ERRORS: Final = 5
#: A chunk that was not acknowledged in part is uncertain as a whole; the producer stops after this many.
MOST_UNCERTAIN: Final = 10_000


@dataclass(frozen=True, slots=True)
class ProducerTask:
    """The task of one producer; `records` or `seconds` end it, `per_s` is its own share of the rate.

    `client` are the settings of its client.
    """

    client: Mapping[str, str] = field(repr=False)
    topic: str
    profile: str
    number: int
    partitions: int
    record_bytes: int
    records: int | None
    seconds: float | None
    per_s: float | None
    most_records: int


@dataclass(slots=True)
class ProducerResult:
    """The result of one producer. `latencies` are counts by bucket, `uncertain` ranges of sequence numbers."""

    number: int
    handed_over: int = 0
    acknowledged: int = 0
    refused: int = 0
    uncertain: list[tuple[int, int]] = field(default_factory=list)
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    alone_per_s: float = 0.0
    latencies: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> ProducerResult:
        """A result as it was reported."""
        latencies = {int(bucket): count for bucket, count in row["latencies"].items()}
        uncertain = [(start, end) for start, end in row["uncertain"]]
        return cls(**{**row, "latencies": latencies, "uncertain": uncertain})


class TimedFuture(BulkFuture):
    """The future of a chunk that reports when each of its batches was acknowledged, from the moment it was due."""

    def __init__(self, due_s: float, arrivals: deque[tuple[float, int]]) -> None:
        super().__init__()
        self._due_s = due_s
        self._arrivals = arrivals

    def add_batch(self, result: BatchResult, count: int) -> None:
        """As `BulkFuture.add_batch`; called when the batch is handed to the sender."""
        super().add_batch(result, count)
        arrived = partial(self._arrived, result, count)
        if not result.when_done(arrived):
            arrived()

    def _arrived(self, result: BatchResult, count: int) -> None:
        if result.error is None:
            self._arrivals.append(((time.perf_counter() - self._due_s) * 1000, count))


class LoadProducer:
    """Produces a task's records in chunks, and keeps account of them."""

    def __init__(
        self,
        task: ProducerTask,
        producer: Producer[Any, Any],
        report: Callable[[Mapping[str, Any]], None],
        *,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        self._task = task
        self._producer = producer
        self._report = report
        workload = WORKLOADS[ProfileName(task.profile)]
        self._maker = RecordMaker(workload, task.number, task.record_bytes, chunk_rows=chunk_rows)
        self._arrivals: deque[tuple[float, int]] = deque()
        self._chunks: deque[tuple[int, int, TimedFuture]] = deque()
        self._latencies = Latencies()
        self._failures = 0
        self._reported_s = 0.0
        self.result = ProducerResult(task.number)

    def prepare(self, alone_s: float = ALONE_S) -> None:
        """Find the topic, and measure for `alone_s` how fast records are made. Raises ClientError."""
        self._producer.partitions_for(self._task.topic)
        self.result.alone_per_s = self._maker.alone_per_s(alone_s)

    def run(self) -> ProducerResult:
        """Produce all; returns when everything is acknowledged or has failed."""
        result, began_s, cpu_s = self.result, time.perf_counter(), time.process_time()
        limit = self._task.most_records if self._task.records is None else self._task.records
        while result.handed_over < limit and self._may_continue(began_s):
            count, due_s = self._next(began_s, min(self._maker.rows, limit - result.handed_over))
            if count:
                self._send(count, due_s)
            self._settle(MOST_CHUNKS if self._task.per_s is None else MOST_PACED_CHUNKS)
            self._report_progress()
        self._settle(0)
        result.elapsed_s, result.cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        result.latencies = self._latencies.counts
        return result

    def _may_continue(self, began_s: float) -> bool:
        if self._failures >= MOST_FAILURES or len(self.result.uncertain) >= MOST_UNCERTAIN:
            return False
        return self._task.seconds is None or time.perf_counter() - began_s < self._task.seconds

    def _next(self, began_s: float, most: int) -> tuple[int, float]:
        """How many records come next, and when the first one was due; at most speed, that is now.

        At a rate, those of a tick are waited for, and all that are due by then come together: none where time is over.
        """
        per_s, now_s = self._task.per_s, time.perf_counter()
        if per_s is None:
            return most, now_s
        first = self.result.handed_over
        wanted = max(1, min(most, round(per_s * TICK_S)))
        ready_s = began_s + (first + wanted - 1) / per_s
        while (now_s := time.perf_counter()) < ready_s:
            if not self._may_continue(began_s):
                return 0, now_s
            self._report_progress()
            time.sleep(min(ready_s - now_s, PROGRESS_S))
        return min(most, max(wanted, int((now_s - began_s) * per_s) + 1 - first)), began_s + first / per_s

    def _send(self, count: int, due_s: float) -> None:
        first = self.result.handed_over
        self.result.handed_over += count
        future = TimedFuture(due_s, self._arrivals)
        chunk = self._maker.chunk(first, count, time.time_ns() // 1_000_000)
        try:
            self._producer.send_arrow(chunk, self._task.topic, into=future)
        except ClientError as error:
            self._failures += 1
            self.result.refused += count - future.count
            self._note(error)
            self._doubt(first, first + count)
            first += count  # nothing is left of it to be doubted later
            count = 0
        else:
            self._failures = 0
        self._chunks.append((first, first + count, future))

    def _settle(self, most: int) -> None:
        """Account for chunks that are done, and wait until `most` are left."""
        while self._chunks and (len(self._chunks) > most or self._chunks[0][2].done()):
            start, end, future = self._chunks.popleft()
            try:
                future.result()
            except DeliveryError as error:
                self.result.refused += error.count
                self.result.acknowledged += future.count - error.count
                self._note(error.causes[0] if error.causes else error)
                if start < end:
                    self._doubt(start, end)
            else:
                self.result.acknowledged += future.count
        while self._arrivals:
            self._latencies.add(*self._arrivals.popleft())

    def _doubt(self, start: int, end: int) -> None:
        """Call a range uncertain. They are kept in order, and those side by side as one."""
        ranges = self.result.uncertain
        ranges.append((start, end))
        ranges.sort()
        merged: list[tuple[int, int]] = []
        for each in ranges:
            if merged and merged[-1][1] == each[0]:
                merged[-1] = (merged[-1][0], each[1])
            else:
                merged.append(each)
        ranges[:] = merged

    def _note(self, error: Exception) -> None:
        text = str(error)
        if text not in self.result.errors and len(self.result.errors) < MOST_ERRORS:
            self.result.errors.append(text)

    def _report_progress(self) -> None:
        now_s = time.perf_counter()
        if now_s - self._reported_s >= PROGRESS_S:
            self._reported_s = now_s
            self._report({"acknowledged": self.result.acknowledged})


def settings_of(task: ProducerTask) -> dict[str, Any]:
    """The settings of its producer."""
    own = {**task.client, "client.id": f"profile-{task.profile}-{task.number}"}
    return own | dict(WORKLOADS[ProfileName(task.profile)].settings)


def main() -> None:
    """Do the task that standard input names."""
    task = ProducerTask(**json.loads(sys.stdin.readline()))
    try:
        with Producer(settings_of(task)) as producer:
            load = LoadProducer(task, producer, _report)
            load.prepare()
            _report({"ready": True})
            if sys.stdin.readline().strip() != GO:
                return
            threading.Thread(target=_end_with_parent, daemon=True).start()
            _report({"result": asdict(load.run())})
    except ClientError as error:
        _report({"failed": str(error)})


def _report(row: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    """End with the parent, which holds the pipe of standard input open."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
