"""Sends batches to the brokers: grouped by leader, retried without loss of order and without duplicates.

It runs in one event loop; `run_once` is called if there may be work: a batch is ready, a response has arrived, a
timer has expired. Up to `max.in.flight.requests.per.connection` requests are in flight per broker; with idempotence
the order is kept all the same (`sequences`), without it only a limit of 1 keeps it, as in Java's client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from ottla.client.configs import ProducerConfig
from ottla.client.errors import BrokerError, ClientError, ClientTimeoutError
from ottla.client.model import NO_OFFSET, TopicPartition
from ottla.client.producer.accumulator import Accumulator, PartitionQueue
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.completion import BatchCompletion
from ottla.client.producer.links import BrokerLink, SentRequest
from ottla.client.producer.producer_metrics import ProducerMetrics
from ottla.client.producer.sequences import NO_SEQUENCE, ProducerIdentity, Sequences
from ottla.client.producer.transactions import ProducerTransactions
from ottla.peer.cluster import Cluster
from ottla.peer.metadata import NO_NODE
from ottla.records.batch import MAX_INT32, NO_TIMESTAMP
from ottla.records.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

logger = logging.getLogger(__name__)

REQUEST_OVERHEAD = 512
"""Size of a produce request besides its batches, when compared with `max.request.size`."""


class Sender:
    """Drains an accumulator, in the event loop. `completion` completes what it has sent."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        metrics: ProducerMetrics,
        transactions: ProducerTransactions,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._metrics = metrics
        self._compression = Compression[config.compression_type.upper()]
        self._level = _compression_level(config, self._compression)
        #: None without a transactional id.
        self._transactions = transactions if transactions.is_enabled else None
        self._sequences = Sequences(is_transactional=transactions.is_enabled) if config.enable_idempotence else None
        self._links: dict[int, BrokerLink] = {}
        self.completion = BatchCompletion(
            cluster, config, accumulator, self._sequences, metrics, self._links, transactions.batch_failed
        )
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0.0
        self._scheduled = False
        self._lingers = config.linger_ms > 0
        #: Inside `run_once` or the handling of a response, where user callbacks may send.
        self._is_at_work = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._identifying: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_not_before_ms = 0.0
        #: Whether the loop has read what arrived while it was busy: see `_expire_after_responses`.
        self._has_read = False
        self._is_reading = False
        self._refreshed_at_ms = cluster.clock.monotonic_ms()
        self._closed = False
        self.loop = asyncio.get_running_loop()
        if self._transactions is not None and self._sequences is not None:
            transactions.connect(self._sequences, self.completion, self._spawn, self.wake)

    def wake(self) -> None:
        """There may be work: schedule `run_once`, at most once per iteration of the loop."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self.loop.call_soon(self.hurry)

    def appended(self) -> None:
        """A batch was created. Sent at once if nothing lingers and no request is in flight, else as with `wake`."""
        if self._lingers or self._is_at_work or any(link.in_flight for link in self._links.values()):
            self.wake()
        else:
            self.run_once()

    def hurry(self) -> None:
        """Do now what `wake` has scheduled."""
        if self._scheduled:
            self.run_once()

    def close(self) -> None:
        """Stop; the caller fails what is not delivered."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for link in self._links.values():
            link.close()
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        """Wait until the tasks that `close` has cancelled have ended."""
        tasks = [*self._tasks, *filter(None, [link.task for link in self._links.values()])]
        await asyncio.gather(*tasks, return_exceptions=True)

    def run_once(self) -> None:
        """Do all pending work."""
        self._scheduled = False
        if self._closed:
            return
        now = self._cluster.clock.monotonic_ms()
        self._is_at_work = True
        try:
            next_due = self._send_all(now)
        finally:
            self._is_at_work = False
        if self._transactions is not None:
            self._transactions.proceed()
        refresh_due = self._keep_metadata(now)
        self._set_timer(min(next_due, refresh_due, self._next_deadline()), now)

    def _send_all(self, now: float) -> float:
        """Send what is ready; returns when the next waiting batch is due."""
        self._expire_after_responses(now)
        if self._sequences is not None:
            self._sequences.settle()
        active = self._accumulator.active
        next_due = float("inf")
        while active:
            loads, due = self._collect(now)
            next_due = min(next_due, due)
            if not loads:
                break
            for link, batches in loads:
                self._send(link, batches, now)
        if active or self._accumulator.slow_brokers:  # else everything ready is drained
            self._note_slow_brokers(now)
        return next_due

    def _collect(self, now: float) -> tuple[list[tuple[BrokerLink, list[ProducerBatch]]], float]:
        """Return the batches that are ready, grouped by broker, and when the next waiting batch is due."""
        accumulator, most = self._accumulator, self._config.max_in_flight_requests_per_connection
        loads: dict[BrokerLink, list[ProducerBatch]] = {}
        sizes: dict[BrokerLink, int] = {}
        next_due = float("inf")
        with accumulator.lock:
            for queue in list(accumulator.active):
                due = accumulator.due_ms(queue)
                if due > now:
                    next_due = min(next_due, due)
                    continue
                link = self._link_for(queue.partition, now)
                if link is None:
                    continue
                link.ready_ms = now
                if not link.is_ready(now):
                    next_due = min(next_due, link.due_ms(now), self._slow_from(link, now))
                    continue
                if not link.can_send(most):
                    continue
                link.drained_ms = now
                if not self._may_send(queue):
                    continue
                before = sizes.get(link, REQUEST_OVERHEAD)
                room = self._config.max_request_size - before if link in loads else float("inf")
                if queue.batches[0].size > room:
                    continue
                queue.close_first()  # it must not grow between measuring and taking
                size = queue.batches[0].size
                if size > room:
                    continue
                sizes[link] = before + size
                batch = accumulator.take(queue)
                if queue in accumulator.active:  # the others go first next time
                    del accumulator.active[queue]
                    accumulator.active[queue] = None
                if self._sequences is not None:
                    self._sequences.number(batch)
                loads.setdefault(link, []).append(batch)
        return list(loads.items()), next_due

    def _slow_from(self, link: BrokerLink, now: float) -> float:
        """When a broker that is not ready will count as slow: in milliseconds of the clock of `now`.

        Infinity where it counts as slow already, or `partitioner.availability.timeout.ms` is 0.
        """
        timeout = self._config.partitioner_availability_timeout_ms
        return link.drained_ms + timeout if timeout > 0 and now - link.drained_ms <= timeout else float("inf")

    def _note_slow_brokers(self, now: float) -> None:
        """Find the brokers with batches waiting for longer than `partitioner.availability.timeout.ms`."""
        timeout = self._config.partitioner_availability_timeout_ms
        if timeout > 0:
            waiting = [link for link in self._links.values() if link.ready_ms == now]
            slow = {link.node_id for link in waiting if now - link.drained_ms > timeout}
            self._accumulator.slow_brokers.clear()
            self._accumulator.slow_brokers.update(slow)

    def _link_for(self, partition: TopicPartition, now: float) -> BrokerLink | None:
        leader = self._cluster.metadata.leader(*partition)
        if leader is None or leader == NO_NODE:
            self._cluster.metadata.expire([partition.topic])
            return None
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = BrokerLink(self._cluster, leader, self.wake, now)
        return link

    def _may_send(self, queue: PartitionQueue) -> bool:
        if self._sequences is not None:
            batch = queue.batches[0]
            if self._transactions is not None:
                if not self._transactions.state.may_send(queue.partition, is_new=batch.base_sequence == NO_SEQUENCE):
                    return False
            elif not self._sequences.has_identity:
                self._identify()
                return False
            return self._sequences.may_send(batch)
        # Without sequence numbers only one batch in flight keeps the order.
        return self._config.max_in_flight_requests_per_connection > 1 or not queue.in_flight

    def _send(self, link: BrokerLink, batches: list[ProducerBatch], now: float) -> None:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in list(batches):
            batch.attempts += 1
            batch.drained_ms = now
            try:
                encoded = batch.encode(self._compression, self._level, is_transactional=self._transactions is not None)
            except Exception as error:  # out of memory, say: the others must be sent
                batches.remove(batch)
                self.completion.fail_in_flight(batch, self._not_encoded(batch, error))
                continue
            if self._compression and batch.attempts == 1:
                self._accumulator.topics[batch.partition.topic].compressed(batch.builder.size, len(encoded))
            topic, partition = batch.partition
            topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=encoded))
        if not batches:
            return
        request = ProduceRequest(
            transactional_id=self._config.transactional_id,
            acks=self._config.acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
        sent = SentRequest(now, batches)
        assert link.connection is not None
        link.in_flight.append(sent)

        def answered(answer: ProduceResponse | None, error: ClientError | None) -> None:
            self._answered(link, sent, answer, error)

        link.connection.submit(request, answered, awaits_response=self._config.acks != 0)
        self._metrics.requested(batches, now)  # after the write, so as not to delay the broker

    def _not_encoded(self, batch: ProducerBatch, error: Exception) -> ClientError:
        codec = self._config.compression_type
        failed = ClientError(
            f"{batch.record_count} records for {batch.partition} cannot be made a batch (compression.type={codec}, "
            f"{batch.builder.size} bytes): {type(error).__name__}: {error}"
        )
        failed.__cause__ = error
        return failed

    # Responses

    def _answered(
        self, link: BrokerLink, sent: SentRequest, answer: ProduceResponse | None, error: ClientError | None
    ) -> None:
        if self._closed:
            return
        was_at_work, self._is_at_work = self._is_at_work, True
        try:
            self._settle(link, sent, answer, error)
        finally:
            self._is_at_work = was_at_work
        # If all batches succeeded and nothing waits, no work is left.
        if self._accumulator.active or error is not None:
            self.wake()

    def _settle(
        self, link: BrokerLink, sent: SentRequest, answer: ProduceResponse | None, error: ClientError | None
    ) -> None:
        now = self._cluster.clock.monotonic_ms()
        self._metrics.answered(now - sent.sent_ms)
        if link.in_flight[0] is sent:
            link.in_flight.popleft()
        else:
            link.in_flight.remove(sent)
        if error is not None:
            for batch in sent.batches:
                self.completion.attempt_failed(batch, error)
            self._cluster.metadata.expire({batch.partition.topic for batch in sent.batches})
        elif answer is None:
            for batch in sent.batches:
                self.completion.delivered(batch, NO_OFFSET, NO_TIMESTAMP)
        else:
            self._metrics.throttled(answer.throttle_time_ms)
            if answer.throttle_time_ms > 0:
                link.throttled(answer.throttle_time_ms, now)
            self._cluster.metadata.update_nodes(answer.node_endpoints)
            responses = {
                (topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses
            }
            for batch in sent.batches:
                self.completion.answered(link, batch, responses.get(batch.partition))

    # Time

    def _expire_after_responses(self, now: float) -> None:
        """Expire overdue batches, but only after responses that have arrived in the meantime were read.

        After user code has blocked the loop, it finds responses in its sockets and expired timers at the same time.
        Two iterations of the loop later the responses are read, in whatever order the loop handles them.
        """
        if self._next_deadline() > now:
            self._has_read = False
        elif self._has_read:
            self._has_read = False
            self._expire(now)
        elif not self._is_reading:
            self._is_reading = True
            self.loop.call_soon(self.loop.call_soon, self._responses_read)

    def _responses_read(self) -> None:
        self._is_reading, self._has_read = False, True
        self.run_once()

    def _expire(self, now: float) -> None:
        """Fail the batches whose `delivery.timeout.ms` has expired, and the requests that were not answered in time."""
        self.completion.expire(now)
        timeout = self._config.request_timeout_ms
        for link in self._links.values():
            if link.answer_due_ms(timeout) <= now and link.connection is not None:
                what = f"broker {link.node_id} did not answer Produce within {timeout} ms"
                link.connection.close_because(ClientTimeoutError(what, retriable=True))

    def _next_deadline(self) -> float:
        """When the next request times out, or the next batch expires."""
        first = self._accumulator.oldest()
        deadline = float("inf") if first is None else first.created_ms + self._config.delivery_timeout_ms
        for link in self._links.values():
            deadline = min(deadline, link.answer_due_ms(self._config.request_timeout_ms))
        return deadline

    def _set_timer(self, due_ms: float, now: float) -> None:
        if self._timer is not None:
            # A timer that fires early finds no work and is set again: cheaper than a new one for every request.
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
            self._timer = None
        if due_ms != float("inf"):
            self._due_ms = due_ms
            self._timer = self.loop.call_later(max(0.0, due_ms - now) / 1000 + 0.0005, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self.wake()

    # Background tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def _identify(self) -> None:
        """Request a producer id, unless that is in progress."""
        if self._identifying is None:
            self._identifying = self._spawn(self._ask_for_identity())

    async def _ask_for_identity(self) -> None:
        assert self._sequences is not None
        try:
            timeout_ms = self._config.delivery_timeout_ms
            identity = await self._cluster.retry("getting a producer id", self._init_producer_id, timeout_ms)
            self._sequences.take(identity)
            self.completion.identity_error = None
        except ClientError as error:
            # A timeout of this request is not one of the batches that were created later.
            if not error.retriable and not isinstance(error, ClientTimeoutError):
                self.completion.fail_all(error)
        finally:
            self._identifying = None
        self.wake()

    async def _init_producer_id(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=MAX_INT32)
        try:
            answer: InitProducerIdResponse = await self._cluster.request_any(request)
            if answer.error_code != ErrorCode.NONE:
                raise BrokerError(answer.error_code, f"{self._cluster.name} gives out no producer id")
        except ClientError as error:
            self.completion.identity_error = error
            raise
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def _keep_metadata(self, now: float) -> float:
        """Refresh old or stale metadata of the topics in use; returns when to check again."""
        topics = self._accumulator.topics
        if self._refreshing is not None or not topics:
            return float("inf")
        aged_at = self._refreshed_at_ms + self._config.metadata_max_age_ms
        if now < aged_at and all(map(self._cluster.metadata.is_fresh, list(topics))):
            return aged_at
        used = self._accumulator.topics_in_use(now - self._config.metadata_max_idle_ms)
        stale = [topic for topic in used if now >= aged_at or self._needs_news(topic)]
        if not stale:
            return aged_at
        if now >= self._refresh_not_before_ms:
            self._refreshing = self._spawn(self._refresh(stale, aged=now >= aged_at))
        return self._refresh_not_before_ms

    def _needs_news(self, topic: str) -> bool:
        """Whether its metadata is stale and worth a refresh: for a deleted topic only if records wait."""
        metadata = self._cluster.metadata
        return not metadata.is_fresh(topic) and (topic in metadata.topics or self._accumulator.holds(topic))

    async def _refresh(self, topics: list[str], *, aged: bool) -> None:
        self._refresh_not_before_ms = self._cluster.clock.monotonic_ms() + self._config.retry_backoff_ms
        try:
            await self._cluster.refresh(topics)
            if aged:
                self._refreshed_at_ms = self._cluster.clock.monotonic_ms()
        except ClientError as error:
            logger.debug("metadata cannot be had: %s", error)
        finally:
            self._refreshing = None
        self.wake()


def _compression_level(config: ProducerConfig, compression: Compression) -> int | None:
    levels = {
        Compression.GZIP: None if config.compression_gzip_level < 0 else config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return levels.get(compression)
