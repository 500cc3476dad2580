"""Metrics of a producer: updated per batch and per request, never per record."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.client_metrics import Metrics
from ottla.client.producer.accumulator import Accumulator
from ottla.client.producer.batch import ProducerBatch
from ottla.records.batch import BATCH_OVERHEAD


class ProducerMetrics:
    """Updates `metrics`, in the event loop."""

    def __init__(self, metrics: Metrics, accumulator: Accumulator) -> None:
        self._requests = metrics.total("request")
        self._sent = metrics.total("record-send")
        self._failed = metrics.total("record-error")
        self._retried = metrics.total("record-retry")
        self._splits = metrics.total("batch-split")
        self._latency = metrics.measured("request-latency")
        self._batch_size = metrics.measured("batch-size")
        self._compression_rate = metrics.measured("compression-rate")
        self._exhausted = metrics.total("buffer-exhausted")
        self._records_per_request = metrics.measured("records-per-request")
        self._throttle = metrics.measured("produce-throttle-time")
        self._queue_time = metrics.measured("record-queue-time")
        memory = accumulator.settings.buffer_memory
        metrics.gauge("buffer-total-bytes", lambda: memory)
        metrics.gauge("buffer-available-bytes", lambda: max(0, memory - accumulator.used_bytes))
        self._in_flight = 0
        metrics.gauge("requests-in-flight", lambda: self._in_flight)

    def requested(self, batches: Iterable[ProducerBatch], now_ms: float) -> None:
        """Count a request with these batches."""
        self._requests.value += 1
        self._in_flight += 1
        records = 0
        for batch in batches:
            records += batch.record_count
            self._batch_size.add(batch.size)
            if batch.attempts > 1:
                self._retried.value += batch.record_count
            else:
                self._queue_time.add(now_ms - batch.created_ms)
                self._compression_rate.add(batch.size / (batch.builder.size + BATCH_OVERHEAD))
        self._sent.value += records
        self._records_per_request.add(records)

    def answered(self, latency_ms: float) -> None:
        """Count a response, or a lost connection."""
        self._in_flight -= 1
        self._latency.add(latency_ms)

    def throttled(self, throttle_time_ms: int) -> None:
        """Count the throttle time of a response; 0 for none."""
        self._throttle.add(throttle_time_ms)

    def failed(self, batch: ProducerBatch) -> None:
        """Count the records of a batch that failed."""
        self._failed.value += batch.record_count or batch.builder.count

    def exhausted(self) -> None:
        """Count a record that was refused, as no memory was available in time."""
        self._exhausted.value += 1

    def split(self) -> None:
        """Count a batch that was split, as it was too large for the broker."""
        self._splits.value += 1
