"""What a consumer counts, and how it tells it by the names of Kafka's metrics. Plain numbers, counted per answer."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.consumer.subscription_state import PartitionState
from ottla.client.model import TopicPartition


class FetchFigures:
    """Counted since the consumer was made: the event loop counts answers, whoever polls counts records."""

    __slots__ = (
        "bytes_consumed",
        "fetch_latency_max_ms",
        "fetch_latency_total_ms",
        "fetch_size_max",
        "fetches",
        "last_poll_at_ms",
        "polls",
        "records_consumed",
        "throttle_max_ms",
        "throttle_total_ms",
        "time_between_poll_max_ms",
    )

    def __init__(self) -> None:
        self.fetches = 0
        self.fetch_latency_total_ms = 0.0
        self.fetch_latency_max_ms = 0.0
        self.fetch_size_max = 0
        self.throttle_total_ms = 0
        self.throttle_max_ms = 0
        self.bytes_consumed = 0
        self.records_consumed = 0
        self.polls = 0
        self.last_poll_at_ms: float | None = None
        self.time_between_poll_max_ms = 0.0

    def fetched(self, latency_ms: float, size_bytes: int, throttle_ms: int) -> None:
        """A broker answered a fetch."""
        self.fetches += 1
        self.fetch_latency_total_ms += latency_ms
        self.fetch_latency_max_ms = max(self.fetch_latency_max_ms, latency_ms)
        self.fetch_size_max = max(self.fetch_size_max, size_bytes)
        self.bytes_consumed += size_bytes
        self.throttle_total_ms += throttle_ms
        self.throttle_max_ms = max(self.throttle_max_ms, throttle_ms)

    def polled(self, now_ms: float, records: int) -> None:
        """The user got so many records."""
        before = self.last_poll_at_ms
        if before is not None and now_ms - before > self.time_between_poll_max_ms:
            self.time_between_poll_max_ms = now_ms - before
        self.last_poll_at_ms = now_ms
        self.polls += 1
        self.records_consumed += records

    def metrics(
        self, now_ms: float, partitions: Mapping[TopicPartition, PartitionState], *, read_committed: bool
    ) -> dict[str, float]:
        """By the names of Apache Kafka's consumer-fetch-manager-metrics and consumer-metrics.

        Totals, averages and maxima are since the consumer was made. Lag and lead are those of this moment; without any
        position that is known they are left out.
        """
        fetches = self.fetches or 1
        told = {
            "bytes-consumed-total": float(self.bytes_consumed),
            "records-consumed-total": float(self.records_consumed),
            "records-per-request-avg": self.records_consumed / fetches,
            "fetch-total": float(self.fetches),
            "fetch-latency-avg": self.fetch_latency_total_ms / fetches,
            "fetch-latency-max": self.fetch_latency_max_ms,
            "fetch-size-avg": self.bytes_consumed / fetches,
            "fetch-size-max": float(self.fetch_size_max),
            "fetch-throttle-time-avg": self.throttle_total_ms / fetches,
            "fetch-throttle-time-max": float(self.throttle_max_ms),
            "time-between-poll-max": self.time_between_poll_max_ms,
            "assigned-partitions": float(len(partitions)),
        }
        if self.last_poll_at_ms is not None:
            told["last-poll-seconds-ago"] = (now_ms - self.last_poll_at_ms) / 1000
        lags, leads = [], []
        for state in partitions.values():
            end = state.last_stable_offset if read_committed else state.high_watermark
            if state.position is not None and end is not None:
                lags.append(max(0, end - state.position.offset))
            if state.position is not None and state.log_start_offset is not None:
                leads.append(max(0, state.position.offset - state.log_start_offset))
        if lags:
            told["records-lag-max"] = float(max(lags))
            told["records-lag-avg"] = sum(lags) / len(lags)
        if leads:
            told["records-lead-min"] = float(min(leads))
        return told
