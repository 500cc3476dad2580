"""Metrics of a client by Kafka's names: plain numbers when recorded, rates and averages computed when read.

Nothing is computed per record: a `Total` is a number to add to, a `Measured` keeps count, sum and maximum.
Rates, averages and maxima are those of the last `metrics.num.samples` times `metrics.sample.window.ms`, or of
the time since the metrics were last read if that is longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.env.threads import Lock


class MetricName(NamedTuple):
    """A metric's group, as in Kafka, and its description. `tags` are the names of its tags."""

    group: str
    documentation: str
    tags: tuple[str, ...] = ()


PRODUCER_GROUP = "producer-metrics"
FETCH_GROUP = "consumer-fetch-manager-metrics"
COORDINATOR_GROUP = "consumer-coordinator-metrics"
CONSUMER_GROUP = "consumer-metrics"

TOTALS: dict[str, MetricName] = {
    "record-send": MetricName(PRODUCER_GROUP, "Records that were sent."),
    "record-error": MetricName(PRODUCER_GROUP, "Records that failed."),
    "record-retry": MetricName(PRODUCER_GROUP, "Records that were sent again."),
    "batch-split": MetricName(PRODUCER_GROUP, "Batches that were split, being too large for the broker."),
    "request": MetricName(PRODUCER_GROUP, "Produce requests."),
    "buffer-exhausted": MetricName(PRODUCER_GROUP, "Records refused, as buffer.memory was full for max.block.ms."),
    "records-consumed": MetricName(FETCH_GROUP, "Records that were handed out."),
    "bytes-consumed": MetricName(FETCH_GROUP, "Bytes of batches that were fetched."),
    "fetch": MetricName(FETCH_GROUP, "Fetch requests that were answered."),
}
"""Each has two metrics: NAME-total, and NAME-rate per second."""

MEASURED: dict[str, MetricName] = {
    "batch-size": MetricName(PRODUCER_GROUP, "Size in bytes of the batches as they were sent."),
    "compression-rate": MetricName(PRODUCER_GROUP, "Size of batches as they are sent, of 1 for what they had before."),
    "records-per-request": MetricName(PRODUCER_GROUP, "Records in a request."),
    "record-queue-time": MetricName(PRODUCER_GROUP, "Milliseconds that batches waited to be sent."),
    "request-latency": MetricName(PRODUCER_GROUP, "Milliseconds until a produce request was answered."),
    "produce-throttle-time": MetricName(PRODUCER_GROUP, "Milliseconds that brokers put off requests for, by quotas."),
    "fetch-size": MetricName(FETCH_GROUP, "Bytes that a fetch brought."),
    "fetch-latency": MetricName(FETCH_GROUP, "Milliseconds until a fetch was answered."),
    "fetch-throttle-time": MetricName(FETCH_GROUP, "Milliseconds that brokers put off fetches for, by quotas."),
    "time-between-poll": MetricName(CONSUMER_GROUP, "Milliseconds between two calls of `poll`."),
}
"""Each has two metrics: NAME-avg and NAME-max, NaN without measurements."""

GAUGES: dict[str, MetricName] = {
    "buffer-total-bytes": MetricName(PRODUCER_GROUP, "buffer.memory."),
    "buffer-available-bytes": MetricName(PRODUCER_GROUP, "What of buffer.memory is free."),
    "metadata-age": MetricName(
        PRODUCER_GROUP, "Seconds since the last topic metadata from a broker; NaN before the first."
    ),
    "requests-in-flight": MetricName(PRODUCER_GROUP, "Produce requests without an answer yet."),
    "records-lag-max": MetricName(FETCH_GROUP, "The most records that a partition is behind its end."),
    "records-lag": MetricName(FETCH_GROUP, "Records that a partition is behind its end.", ("topic", "partition")),
    "preferred-read-replica": MetricName(
        FETCH_GROUP, "The follower that a partition is read from; -1 for its leader.", ("topic", "partition")
    ),
    "records-lead-min": MetricName(FETCH_GROUP, "The fewest records between a log's start and a position."),
    "last-poll-seconds-ago": MetricName(CONSUMER_GROUP, "Seconds since the last call of `poll`; -1 before the first."),
    "assigned-partitions": MetricName(COORDINATOR_GROUP, "Partitions that are assigned."),
    "commit-total": MetricName(COORDINATOR_GROUP, "Commits that succeeded."),
    "commit-latency-avg": MetricName(COORDINATOR_GROUP, "Milliseconds that these took on average."),
    "commit-latency-max": MetricName(COORDINATOR_GROUP, "Milliseconds that the longest of them took."),
    "join-total": MetricName(COORDINATOR_GROUP, "Joins of the group."),
    "sync-total": MetricName(COORDINATOR_GROUP, "Assignments that the group gave, with SyncGroup."),
    "heartbeat-total": MetricName(COORDINATOR_GROUP, "Heartbeats."),
    "last-heartbeat-seconds-ago": MetricName(
        COORDINATOR_GROUP, "Seconds since the last heartbeat; -1 before the first."
    ),
    "rebalance-total": MetricName(COORDINATOR_GROUP, "Rebalances that succeeded."),
    "failed-rebalance-total": MetricName(COORDINATOR_GROUP, "Rebalances that failed."),
    "rebalance-latency-total": MetricName(COORDINATOR_GROUP, "Milliseconds of all rebalances that succeeded."),
    "rebalance-latency-avg": MetricName(COORDINATOR_GROUP, "Milliseconds that these took on average."),
    "rebalance-latency-max": MetricName(COORDINATOR_GROUP, "Milliseconds that the longest of them took."),
    "last-rebalance-seconds-ago": MetricName(
        COORDINATOR_GROUP, "Seconds since the last rebalance; -1 before the first."
    ),
    "rejoin-needed": MetricName(COORDINATOR_GROUP, "1 if the member has to join the group again."),
    "client-state": MetricName(
        COORDINATOR_GROUP,
        "What a member of a group is about: 0 down, 1 finding the coordinator, 2 member, 3 finding the coordinator "
        "again (it continues to consume), 4 stopped until a rebalance is over.",
    ),
}
"""Each has one metric of its own name."""

ENDINGS = ((TOTALS, ("-total", "-rate")), (MEASURED, ("-avg", "-max")), (GAUGES, ("",)))
"""Endings of the metrics that each has."""
FIGURES: dict[str, MetricName] = {
    f"{name}{ending}": metric
    for declared, endings in ENDINGS
    for name, metric in declared.items()
    for ending in endings
}
"""All metrics by name, without tags."""


@dataclass(slots=True, eq=False)
class Total:
    """A counter that only grows: `total.value += 1`."""

    value: int = 0


@dataclass(slots=True, eq=False)
class Measured:
    """Count, sum and maximum of measurements."""

    count: int = 0
    sum: float = 0.0
    largest: float = nan

    def add(self, value: float) -> None:
        """Add a measurement."""
        self.count += 1
        self.sum += value
        if not self.largest >= value:
            self.largest = value


class _Sample(NamedTuple):
    """Totals, counts and sums at a point in time, and the maxima of the time before it."""

    at_ms: float
    totals: dict[str, int]
    measured: dict[str, tuple[int, float]]
    largest: dict[str, float]


class Metrics:
    """The metrics of one client. Each number is updated by one thread only; `read` may be called by any."""

    def __init__(self, clock: Clock, num_samples: int = 2, sample_window_ms: int = 30_000) -> None:
        self._clock = clock
        self._num_samples = num_samples
        self._window_ms = sample_window_ms
        self._totals: dict[str, Total] = {}
        self._measured: dict[str, Measured] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        self._tagged: dict[str, Callable[[], Mapping[tuple[object, ...], float]]] = {}
        # Readers drop and add samples: an exporter's thread beside the program's.
        self._reading = Lock()
        self._samples: deque[_Sample] = deque([self._sample()])

    def total(self, name: str) -> Total:
        """Return the total of that name. Raises KeyError for one that is not declared."""
        TOTALS[name]
        return self._totals.setdefault(name, Total())

    def measured(self, name: str) -> Measured:
        """Return the measurement of that name. Raises KeyError for one that is not declared."""
        MEASURED[name]
        return self._measured.setdefault(name, Measured())

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Register a metric that is computed when read. Raises KeyError for one that is not declared."""
        GAUGES[name]
        self._gauges[name] = read

    def tagged(self, name: str, read: Callable[[], Mapping[tuple[object, ...], float]]) -> None:
        """Same as `gauge`, for a metric with one value per combination of tags."""
        GAUGES[name]
        self._tagged[name] = read

    def read(self) -> dict[str, float]:
        """Return all metrics by name, with tags appended, as `records-lag{topic=t,partition=0}`."""
        with self._reading:
            return self._read()

    def _read(self) -> dict[str, float]:
        now = self._clock.monotonic_ms()
        self._forget(now)
        base = self._samples[0]
        seconds = (now - base.at_ms) / 1000
        metrics: dict[str, float] = {}
        for name, total in self._totals.items():
            metrics[f"{name}-total"] = total.value
            metrics[f"{name}-rate"] = (total.value - base.totals.get(name, 0)) / seconds if seconds > 0 else 0.0
        for name, measured in self._measured.items():
            count, whole = base.measured.get(name, (0, 0.0))
            more = measured.count - count
            metrics[f"{name}-avg"] = (measured.sum - whole) / more if more else nan
            largest = [sample.largest.get(name, nan) for sample in list(self._samples)[1:]]
            metrics[f"{name}-max"] = max(
                (value for value in (measured.largest, *largest) if value == value), default=nan
            )
        for name, gauge in self._gauges.items():
            metrics[name] = float(gauge())
        for name, tagged in self._tagged.items():
            tags = GAUGES[name].tags
            for values, figure in tagged().items():
                pairs = ",".join(f"{tag}={value}" for tag, value in zip(tags, values, strict=True))
                metrics[f"{name}{{{pairs}}}"] = float(figure)
        if now - self._samples[-1].at_ms >= self._window_ms:
            self._samples.append(self._sample())
            for measured in self._measured.values():
                measured.largest = nan
        return metrics

    def _forget(self, now: float) -> None:
        """Drop samples, except the newest one that is old enough to be the base of rates."""
        oldest = now - self._num_samples * self._window_ms
        while len(self._samples) > 1 and self._samples[1].at_ms <= oldest:
            self._samples.popleft()

    def _sample(self) -> _Sample:
        return _Sample(
            self._clock.monotonic_ms(),
            {name: total.value for name, total in self._totals.items()},
            {name: (measured.count, measured.sum) for name, measured in self._measured.items()},
            {name: measured.largest for name, measured in self._measured.items()},
        )
