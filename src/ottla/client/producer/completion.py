"""Completes batches: delivered, put back for another attempt, split, or failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.client.configs import ProducerConfig
from ottla.client.errors import BrokerError, ClientError, ClientTimeoutError, ProtocolError, RecordTooLargeError
from ottla.client.model import NO_OFFSET
from ottla.client.producer.accumulator import Accumulator, PartitionQueue
from ottla.client.producer.batch import ProducerBatch, split_batch
from ottla.client.producer.links import BrokerLink
from ottla.client.producer.producer_metrics import ProducerMetrics
from ottla.client.producer.sequences import NO_SEQUENCE, Sequences
from ottla.peer.cluster import Cluster
from ottla.peer.errors import STALE_METADATA
from ottla.peer.metadata import NO_NODE
from ottla.records.batch import NO_TIMESTAMP
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceResponse


class BatchCompletion:
    """The sender's, in its event loop. `failed` is called with each batch that failed."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        sequences: Sequences | None,
        metrics: ProducerMetrics,
        links: Mapping[int, BrokerLink],
        failed: Callable[[ProducerBatch, ClientError], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._sequences = sequences
        self._metrics = metrics
        self._links = links
        self._failed = failed
        #: Why the producer id is still missing.
        self.identity_error: ClientError | None = None

    def answered(self, link: BrokerLink, batch: ProducerBatch, response: PartitionProduceResponse | None) -> None:
        """Handle the response of the batch's partition; None if the broker left it out."""
        if batch.result.is_done:  # it failed while in flight
            self._queue_of(batch).in_flight -= 1
            return
        if response is None:
            left_out = ProtocolError(f"broker {link.node_id} left {batch.partition} out of its answer")
            self.attempt_failed(batch, left_out)
            return
        code = response.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.delivered(batch, response.base_offset, response.log_append_time_ms)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._split(batch)
        elif code == ErrorCode.MESSAGE_TOO_LARGE:
            limit = "max.message.bytes of the topic (message.max.bytes of the broker)"
            self.fail_in_flight(batch, RecordTooLargeError(batch.partition.topic, batch.size, limit))
        else:
            has_moved = False
            if code in STALE_METADATA:
                metadata = self._cluster.metadata
                metadata.expire([batch.partition.topic])
                leader = response.current_leader
                metadata.update_leader(*batch.partition, leader.leader_id, leader.leader_epoch)
                has_moved = metadata.leader(*batch.partition) not in (link.node_id, NO_NODE, None)
            error = BrokerError(code, f"{batch.partition} at broker {link.node_id}", response.error_message or None)
            reasons = {
                each.batch_index: each.batch_index_error_message or str(error) for each in response.record_errors
            }
            self.attempt_failed(batch, error, code, reasons, has_moved=has_moved)

    def attempt_failed(
        self,
        batch: ProducerBatch,
        error: ClientError,
        code: int | None = None,
        record_errors: dict[int, str] | None = None,
        *,
        has_moved: bool = False,
    ) -> None:
        """Put the batch back for another attempt, or fail it; without a pause if another broker leads by now."""
        if batch.result.is_done:  # it failed while in flight
            self._queue_of(batch).in_flight -= 1
            return
        now = self._cluster.clock.monotonic_ms()
        batch.last_error = error
        again: bool | None = None
        if self._sequences is not None:
            again = self._sequences.can_retry(batch, code)
        if again is None:
            again = error.retriable
        in_time = now - batch.created_ms < self._config.delivery_timeout_ms
        if again and in_time and batch.attempts <= self._config.retries:
            batch.not_before_ms = now if has_moved else now + self._pause_ms(batch.attempts)
            self._accumulator.put_back(self._queue_of(batch), [batch])
        else:
            if again and not in_time:
                error = self._too_late(batch)
            self.fail_in_flight(batch, error, record_errors)

    def _pause_ms(self, attempts: int) -> float:
        config = self._config
        pause = min(config.retry_backoff_ms * 2.0 ** min(attempts - 1, 20), config.retry_backoff_max_ms)
        return self._cluster.jittered(pause)

    def delivered(self, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        """Complete a batch that the broker has written."""
        self._queue_of(batch).in_flight -= 1
        if self._sequences is not None:
            self._sequences.acknowledged(batch)
        self._accumulator.release(batch)
        batch.result.complete(base_offset, append_time_ms)

    def fail_in_flight(
        self, batch: ProducerBatch, error: ClientError, record_errors: dict[int, str] | None = None
    ) -> None:
        """Fail a batch that is in flight, or was just answered."""
        self._queue_of(batch).in_flight -= 1
        self._fail(batch, error, record_errors)

    def _fail(self, batch: ProducerBatch, error: ClientError, record_errors: dict[int, str] | None = None) -> None:
        if self._sequences is not None:
            self._sequences.failed(batch)
        self._accumulator.release(batch)
        self._metrics.failed(batch)
        batch.result.complete(NO_OFFSET, NO_TIMESTAMP, error, record_errors)
        self._failed(batch, error)

    def _split(self, batch: ProducerBatch) -> None:
        self._metrics.split()
        splits = split_batch(batch, self._accumulator.lock)
        if self._sequences is not None:
            self._sequences.split(batch, splits)
        self._accumulator.replace(batch, splits)
        first, indexed = 0, []
        for split in splits:
            indexed.append((first, split.result))
            first += split.record_count
        batch.result.split_into(indexed)
        self._accumulator.put_back(self._queue_of(batch), splits)

    def _queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        topic, partition = batch.partition
        return self._accumulator.topics[topic].queues[partition]

    def fail_all(self, error: ClientError, *, only_unsent: bool = False) -> int:
        """Fail all waiting and in-flight batches, or those never sent, with this error; returns their records' number.

        A batch that was sent before and waits for another attempt has a number, and may have been written.
        """
        with self._accumulator.lock:
            incomplete = list(self._accumulator.incomplete)
        count = 0
        for batch in incomplete:
            if only_unsent and batch.base_sequence != NO_SEQUENCE:
                continue
            self._accumulator.remove(self._queue_of(batch), batch)
            count += batch.record_count
            self._fail(batch, error)
        return count

    def expire(self, now_ms: float) -> None:
        """Fail the batches whose `delivery.timeout.ms` has expired, waiting or in flight."""
        oldest = now_ms - self._config.delivery_timeout_ms
        first = self._accumulator.oldest()
        if first is not None and first.created_ms <= oldest:
            with self._accumulator.lock:
                late = [batch for batch in self._accumulator.incomplete if batch.created_ms <= oldest]
            for batch in late:
                self._accumulator.remove(self._queue_of(batch), batch)
                self._fail(batch, self._too_late(batch))

    def _too_late(self, batch: ProducerBatch) -> ClientTimeoutError:
        timeout = self._config.delivery_timeout_ms
        why = self._hindrance_of(batch)
        tried = f"after {batch.attempts} attempts" if batch.attempts else "never sent"
        return ClientTimeoutError(
            f"{batch.record_count or batch.builder.count} records for {batch.partition} were not delivered within "
            f"delivery.timeout.ms ({timeout}), {tried}: {why or 'the brokers do not take records as fast as they come'}"
        )

    def _hindrance_of(self, batch: ProducerBatch) -> object:
        """Return why the batch is not delivered yet, if known; else None."""
        leader = self._cluster.metadata.leader(*batch.partition)
        link = self._links.get(NO_NODE if leader is None else leader)
        why = batch.last_error or (link.error if link is not None else None) or self.identity_error
        if why is not None:
            return why
        if link is not None and link.throttled_until_ms > self._cluster.clock.monotonic_ms():
            return f"a quota of broker {link.node_id} is used up"
        if batch.partition.topic not in self._cluster.metadata.topics:
            return "the topic is not there any more"
        return "the partition has no leader" if leader in (None, NO_NODE) else None

    def hindrance(self) -> str:
        """Return what delays the oldest batch, as the end of a message; empty if unknown."""
        oldest = self._accumulator.oldest()
        why = None if oldest is None else self._hindrance_of(oldest)
        return "" if oldest is None or why is None else f" ({oldest.partition} waits: {why})"
