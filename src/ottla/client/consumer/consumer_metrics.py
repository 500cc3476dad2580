"""Metrics of a consumer: updated per response and per poll, never per record."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan

from ottla.client.client_metrics import Metrics
from ottla.client.consumer.subscription_state import PartitionState, SubscriptionState
from ottla.client.model import TopicPartition
from ottla.env.clock import Clock
from ottla.peer.metadata import NO_NODE

NEVER = -1.0


class ConsumerMetrics:
    """Updates `metrics`; the event loop counts responses, the polling thread counts records."""

    def __init__(
        self, metrics: Metrics, clock: Clock, subscriptions: SubscriptionState, *, read_committed: bool
    ) -> None:
        self.last_poll_at_ms: float | None = None
        self._clock = clock
        self._subscriptions = subscriptions
        self._read_committed = read_committed
        self._fetches = metrics.total("fetch")
        self._bytes = metrics.total("bytes-consumed")
        self._records = metrics.total("records-consumed")
        self._latency = metrics.measured("fetch-latency")
        self._size = metrics.measured("fetch-size")
        self._throttle = metrics.measured("fetch-throttle-time")
        self._between_polls = metrics.measured("time-between-poll")
        metrics.gauge("records-lag-max", lambda: max(self.lags().values(), default=nan))
        metrics.gauge("records-lead-min", lambda: min(self._leads(), default=nan))
        metrics.gauge("last-poll-seconds-ago", self._last_poll_seconds_ago)
        metrics.gauge("assigned-partitions", lambda: len(subscriptions.assigned_partitions))
        metrics.tagged("preferred-read-replica", self._preferred_replicas)
        metrics.tagged("records-lag", lambda: {tuple(each): lag for each, lag in self.lags().items()})

    def fetched(self, latency_ms: float, size_bytes: int, throttle_ms: int) -> None:
        """Count a fetch response."""
        self._fetches.value += 1
        self._bytes.value += size_bytes
        self._latency.add(latency_ms)
        self._size.add(size_bytes)
        self._throttle.add(throttle_ms)

    def polled(self, records: int) -> None:
        """Count a poll that returned this many records."""
        now_ms = self._clock.monotonic_ms()
        if self.last_poll_at_ms is not None:
            self._between_polls.add(now_ms - self.last_poll_at_ms)
        self.last_poll_at_ms = now_ms
        self._records.value += records

    def lags(self) -> dict[TopicPartition, int]:
        """Return the lag of each partition for which position and end are known."""
        partitions = self._partitions()
        lags = {each: state.lag(read_committed=self._read_committed) for each, state in partitions.items()}
        return {each: lag for each, lag in lags.items() if lag is not None}

    def _preferred_replicas(self) -> dict[tuple[object, ...], float]:
        """The follower that each partition is read from, -1 for the leader."""
        states = self._partitions().items()
        return {
            tuple(each): NO_NODE if state.preferred_read_replica is None else state.preferred_read_replica
            for each, state in states
        }

    def _leads(self) -> list[int]:
        return [
            max(0, state.position.offset - state.log_start_offset)
            for state in self._partitions().values()
            if state.position is not None and state.log_start_offset is not None
        ]

    def _partitions(self) -> Mapping[TopicPartition, PartitionState]:
        return self._subscriptions.snapshot()

    def _last_poll_seconds_ago(self) -> float:
        at_ms = self.last_poll_at_ms
        return NEVER if at_ms is None else (self._clock.monotonic_ms() - at_ms) / 1000
