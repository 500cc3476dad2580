"""Shared by the asyncio producer and the sync client: everything except how they wait."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable
from enum import Enum
from math import ceil
from operator import index
from typing import Any

from ottla.client.client_metrics import Metrics
from ottla.client.configs import ProducerConfig
from ottla.client.errors import (
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
    DeliveryError,
    ForkedError,
    InvalidArgumentError,
    RecordTooLargeError,
    UnknownTopicError,
)
from ottla.client.interceptors import ProducerInterceptors
from ottla.client.model import TopicMetadata
from ottla.client.producer.accumulator import CLOSED, RECORD_OVERHEAD, Accumulator, AccumulatorSettings, TopicQueues
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.failures import Failures
from ottla.client.producer.futures import Callback, RecordFuture
from ottla.client.producer.partitioners import ClusterView, partitioner_of, random_int
from ottla.client.producer.producer_metrics import ProducerMetrics
from ottla.client.producer.record import EncodedHeaders, SendHeaders, checked_headers, headers_size, topic_name
from ottla.client.producer.sender import Sender
from ottla.client.producer.serializing import SerializingAppend
from ottla.client.producer.transaction_states import TransactionCall
from ottla.client.producer.transactions import ProducerTransactions
from ottla.env.process import call_after_fork
from ottla.peer.arguments import milliseconds_or_none
from ottla.peer.cluster import Cluster
from ottla.records.batch import BATCH_OVERHEAD
from ottla.records.building import COMPILED, murmur2

logger = logging.getLogger(__name__)

MAX_INT32 = 0x7FFFFFFF
MAX_TIMESTAMP = 2**62
FORKED = "the producer belongs to the parent process"
OUTSIDE = "the producer is not in a transaction"


class Wait(Enum):
    """A resource that must be available before a record can be accepted."""

    TOPIC = "the topic's metadata"
    MEMORY = "room in buffer.memory"


class ProducerDelegate:
    """Accepts records in any thread; everything else runs in the event loop of `cluster`.

    `wake` is called in the appending thread if the sender may have work.
    """

    def __init__(self, config: ProducerConfig, cluster: Cluster, wake: Callable[[], None]) -> None:
        self.config = config
        self.cluster = cluster
        #: Why records are refused; None while they are accepted.
        self.refusal: str | None = None
        self.failures = Failures()
        self.transactions = ProducerTransactions(
            cluster, config, self.failures, self._drained, self._transaction_changed
        )
        settings = AccumulatorSettings(
            config.batch_size,
            config.linger_ms,
            config.buffer_memory,
            config.delivery_timeout_ms,
            config.partitioner_adaptive_partitioning_enable,
        )
        self.accumulator = Accumulator(
            settings,
            cluster.clock,
            wake,
            random=random_int(cluster.environment.randomness),
            compresses=config.compression_type != "none",
        )
        self._sender: Sender | None = None
        self._metadata = cluster.metadata
        self._topics = self.accumulator.topics
        self._append = self.accumulator.append
        self._now_ms = cluster.clock.now_ms
        self._largest = min(config.max_request_size, config.buffer_memory) - BATCH_OVERHEAD
        self._ignores_keys = config.partitioner_ignore_keys
        self._partitioner = partitioner_of(config.partitioner_class, config.originals)
        self._switches = hasattr(self._partitioner, "on_new_batch")
        self._looked_again: set[str] = set()
        #: Metadata requests for topics whose callers have timed out.
        self._lookups: dict[str, asyncio.Task[None]] = {}
        self._closed_user_code = False
        self.interceptors = ProducerInterceptors.of(config)
        self._serializing = SerializingAppend(config, self.append)
        #: Same as `append`, for keys and values before serialization.
        self.take: Callable[..., RecordFuture | Wait] = (
            self._serializing.take if self._serializing.is_needed else self.append
        )
        self._metrics = Metrics(cluster.clock, config.metrics_num_samples, config.metrics_sample_window_ms)
        self._metrics.gauge("metadata-age", lambda: cluster.metadata_age_s)
        self._producer_metrics = ProducerMetrics(self._metrics, self.accumulator)
        self._transaction_changed()
        _alive.add(self)

    def start(self) -> None:
        """Start the sender; in the event loop."""
        self.accumulator.home.loop = asyncio.get_running_loop()
        self._sender = Sender(self.cluster, self.config, self.accumulator, self._producer_metrics, self.transactions)

    def _transaction_changed(self) -> None:
        """Refuse records outside of transactions."""
        if not self._is_closed:
            self.refusal = None if self.transactions.refusal(TransactionCall.SEND) is None else OUTSIDE

    @property
    def _is_closed(self) -> bool:
        return self.refusal not in (None, OUTSIDE)

    def metrics(self) -> dict[str, float]:
        """Return metrics by Kafka's names."""
        return self._metrics.read()

    def wake(self) -> None:
        """In the event loop: the sender may have work."""
        if self._sender is not None:
            self._sender.wake()

    def appended(self) -> None:
        """In the event loop: a batch was created."""
        if self._sender is not None:
            self._sender.appended()

    def run_once(self) -> None:
        """In the event loop's own callback, not inside the sender's work: do all pending work."""
        if self._sender is not None:
            self._sender.run_once()

    def hurry(self) -> None:
        """For a caller waiting in an event loop for what it sent: run the sender now if that is its loop."""
        if self._sender is not None and self.accumulator.home.is_here:
            self._sender.hurry()

    # For an open batch this is the accumulator's append without its lock. As a method it would cost 5 to 9 % of the
    # processor time of a record (decision 63).
    def append(
        self,
        topic: str,
        partition: int | None,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: SendHeaders,
        callback: Callback | None = None,
        original: tuple[Any, Any] | None = None,
    ) -> RecordFuture | Wait:
        """Append a record to a batch, or return what to wait for. `original` is the key and value before serialization.

        Raises ClientClosedError, InvalidArgumentError, RecordTooLargeError.
        """
        if self.refusal is not None:
            raise self._refused()
        queues = self._topics.get(topic)
        known = self._metadata.topics.get(topic)
        if queues is None or queues.metadata is not known:  # inlined `queues_of`
            if known is None:
                return Wait.TOPIC
            queues = self.accumulator.topic(known)
        if key is not None and key.__class__ is not bytes:
            key = octets("key", key)
        if value is not None and value.__class__ is not bytes:
            value = octets("value", value)
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        encoded_headers: EncodedHeaders = ()
        size = key_size + value_size + (RECORD_OVERHEAD + 2)
        if headers:
            encoded_headers = checked_headers(headers)
            size += headers_size(encoded_headers)
        if size > self._largest:
            self._check_size(topic, size)
        if timestamp is None:
            timestamp = self._now_ms()
        else:
            check_timestamp(timestamp)
        if partition is not None:
            if partition.__class__ is not int:
                partition = _number(partition)
            if partition < 0 or partition >= queues.count:
                return self._check_partition(queues, partition)
        elif self._partitioner is not None:
            partition = self._ask_partitioner(queues, key, value, original or (key, value), size)
        elif key is None or self._ignores_keys:
            partition = -1
        else:
            partition = (murmur2(key) & MAX_INT32) % queues.count
        if callback is None and COMPILED:
            batch = queues.queues[queues.sticky.partition if partition < 0 else partition].open
            if batch is not None:
                before = 0 if partition < 0 else batch.builder.size
                index = batch.builder.append(timestamp, key, value, encoded_headers)
                if index >= 0:
                    if partition >= 0:
                        batch.other_bytes += batch.builder.size - before
                    return RecordFuture(batch.result, index, timestamp, key_size, value_size)
        future = self._append(
            queues, partition, timestamp, key, value, encoded_headers, key_size, value_size, size, callback
        )
        return Wait.MEMORY if future is None else future

    def queues_of(self, topic: str) -> TopicQueues | None:
        """Return the topic's queues, None if its metadata is missing."""
        queues = self._topics.get(topic)
        known = self._metadata.topics.get(topic)
        if known is None or (queues is not None and queues.metadata is known):
            return queues if known is not None else None
        return self.accumulator.topic(known)

    @property
    def needs_each_record(self) -> bool:
        """Whether user code has to see each record."""
        return self._serializing.is_needed or bool(self.interceptors) or self._partitioner is not None

    def check_no_partitioner(self, method: str) -> None:
        """Raise InvalidArgumentError if a custom partitioner is configured."""
        if self._partitioner is not None:
            raise InvalidArgumentError(f"{method} does not ask partitioner.class; use send_many, or leave it out")

    def _check_size(self, topic: str, size: int) -> None:
        size += BATCH_OVERHEAD
        if size > self.config.max_request_size:
            limit = f"max.request.size of the producer ({self.config.max_request_size})"
            raise RecordTooLargeError(topic, size, limit)
        if size > self.config.buffer_memory:
            raise RecordTooLargeError(topic, size, f"buffer.memory of the producer ({self.config.buffer_memory})")

    def _check_partition(self, queues: TopicQueues, partition: int) -> Wait:
        """Return what to wait for with an unknown partition: it may be new, unless the topic's metadata is fresh."""
        name = queues.metadata.name
        if partition >= 0 and self._metadata.is_fresh(name) and name not in self._looked_again:
            self._looked_again.add(name)
            self._metadata.expire([name])
        if partition >= 0 and not self._metadata.is_fresh(name):
            return Wait.TOPIC
        self._looked_again.discard(name)
        last = queues.count - 1
        raise InvalidArgumentError(f"topic {name} has no partition {partition}; it has the partitions 0 to {last}")

    def _ask_partitioner(
        self, queues: TopicQueues, key: bytes | None, value: bytes | None, original: tuple[Any, Any], size: int
    ) -> int:
        """Call the user's partitioner; if the batch is full, call `on_new_batch` and ask it again (KIP-480)."""
        partitioner, name = self._partitioner, queues.metadata.name
        view = ClusterView(self._metadata.topics)
        chosen = partitioner.partition(name, original[0], key, original[1], value, view)
        is_there = isinstance(chosen, int) and 0 <= chosen < queues.count
        if is_there and self._switches and not self.accumulator.has_room(queues, chosen, size):
            partitioner.on_new_batch(name, view, chosen)
            chosen = partitioner.partition(name, original[0], key, original[1], value, view)
            is_there = isinstance(chosen, int) and 0 <= chosen < queues.count
        if not is_there:
            raise InvalidArgumentError(
                f"{type(partitioner).__name__} chose partition {chosen!r} of topic {name}; "
                f"it has the partitions 0 to {queues.count - 1}"
            )
        number: int = chosen
        return number

    # Waiting, in the event loop

    async def find_topic(self, topic: str) -> TopicMetadata:
        """Return the topic's metadata; requests it if missing, with retries for max.block.ms.

        Also waits for a topic that does not exist, as it may be about to be created; a warning is logged after a while.
        Raises UnknownTopicError and other ClientErrors.
        """
        if topic.__class__ is not str:
            topic = topic_name(topic)
        return await self._find_topic(topic, self.config.max_block_ms, [])

    async def _find_topic(self, topic: str, timeout_ms: float, missing: list[UnknownTopicError]) -> TopicMetadata:
        """Same as `find_topic`; `missing` gets the error of a topic that did not exist so far."""
        now_ms = self.cluster.clock.monotonic_ms
        deadline_ms = now_ms() + timeout_ms
        patience_ms = min(self.cluster.settings.unknown_topic_timeout_ms, ceil(timeout_ms / 2))
        what, whole_ms = f"looking up topic {topic}", self.config.max_block_ms

        async def ask() -> list[TopicMetadata]:
            return await self.cluster.topics([topic], allow_auto_topic_creation=True, patience_ms=patience_ms)

        while True:
            left_ms = max(ceil(deadline_ms - now_ms()), 0)
            try:
                (found,) = await self.cluster.retry(what, ask, left_ms, whole_ms=whole_ms)
            except UnknownTopicError as error:
                left_ms = patience_ms = ceil(deadline_ms - now_ms())
                if left_ms <= 0:
                    raise
                if not missing:
                    logger.warning("%s; it is asked for again for max.block.ms, %d ms more", error, left_ms)
                missing.append(error)
            except ClientTimeoutError:
                if missing:
                    raise missing[0] from None
                raise
            else:
                return found

    async def find_topic_within(self, topic: str, timeout_ms: float) -> bool:
        """Same as `find_topic`; False at the timeout.

        The request continues in the background: a caller that never waits (`max.block.ms` 0) gets the topic later.
        """
        missing: list[UnknownTopicError] = []
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._find_topic(topic, timeout_ms, missing)
        except ClientTimeoutError:
            self._look_up(topic)
            raise
        except TimeoutError:
            self._look_up(topic)
            if missing:
                raise missing[0] from None
            return False
        return True

    def _look_up(self, topic: str) -> None:
        """Request the topic's metadata once, in the background, unless that is in progress."""
        if not self._is_closed and topic not in self._lookups:
            lookup = asyncio.get_running_loop().create_task(self._ask_once(topic))
            self._lookups[topic] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(topic, None))

    async def _ask_once(self, topic: str) -> None:
        try:
            await self.cluster.topics([topic], allow_auto_topic_creation=True)
        except ClientError as error:
            logger.debug("metadata of topic %s cannot be had: %s", topic, error)

    def refuse(self) -> None:
        """Accept no more records."""
        if not self._is_closed:
            self.refusal = CLOSED

    def check_open(self, *, for_records: bool = False) -> None:
        """Raise ClientClosedError once the producer is closed, or in a forked child; for records all that refuses."""
        if self._is_closed or (for_records and self.refusal is not None):
            raise self._refused()

    def _refused(self) -> ClientError:
        if self.refusal == OUTSIDE and (outside := self.transactions.refusal(TransactionCall.SEND)) is not None:
            return outside
        return ForkedError("producer") if self.refusal == FORKED else ClientClosedError(self.refusal or CLOSED)

    def blocked(self, wait: Wait, topic: str) -> ClientTimeoutError:
        """The error of a record that was not accepted within `max.block.ms`."""
        config = self.config
        if wait is Wait.TOPIC:
            return ClientTimeoutError(
                f"topic {topic} was not known after max.block.ms ({config.max_block_ms}); check that "
                f"{self.cluster.name} can be reached and that the topic exists"
            )
        self._producer_metrics.exhausted()
        return ClientTimeoutError(
            f"buffer.memory ({config.buffer_memory} bytes) was full for max.block.ms ({config.max_block_ms}): the "
            f"brokers do not take records as fast as they are sent, or cannot be reached{self._hindrance()}"
        )

    def _hindrance(self) -> str:
        return "" if self._sender is None else self._sender.completion.hindrance()

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Send everything and wait for the responses. Raises DeliveryError, ClientTimeoutError."""
        milliseconds_or_none("timeout_ms", timeout_ms)
        batches = self.accumulator.begin_flush()
        try:
            self.wake()
            if not await self._all_done(batches, timeout_ms):
                raise ClientTimeoutError(
                    f"not all records were acknowledged within {timeout_ms} ms; they may still be{self._hindrance()}"
                )
        finally:
            self.accumulator.end_flush()
        failure = self.failures.take()
        if failure is not None:
            raise failure

    async def _all_done(self, batches: list[ProducerBatch], timeout_ms: float | None) -> bool:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()
        remaining = len(batches)

        def one_is_done() -> None:
            nonlocal remaining
            remaining -= 1
            if not remaining and not arrived.done():
                arrived.set_result(None)

        for batch in batches:
            if not batch.result.when_done(one_is_done):
                one_is_done()
        if not batches:
            return True
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await arrived
        except TimeoutError:
            return False
        return True

    async def close(self, timeout_ms: int | None = None) -> None:
        """Accept no more records, wait for pending ones, then stop. Raises DeliveryError for undelivered records."""
        milliseconds_or_none("timeout_ms", timeout_ms)
        if self.refusal == FORKED:
            return
        self.refuse()
        began_ms = self.cluster.clock.monotonic_ms()
        await self.transactions.close(timeout_ms)
        left_ms = None if timeout_ms is None else max(0, timeout_ms - int(self.cluster.clock.monotonic_ms() - began_ms))
        timed_out = self._sender is not None and not await self._drained(left_ms)
        sender = self._sender
        failure = self.stop(timeout_ms if timed_out else None)
        if sender is not None:
            await sender.ended()
        if failure is not None:
            raise failure

    async def _drained(self, timeout_ms: int | None) -> bool:
        """Whether everything was acknowledged in time, records that other threads were just sending included."""
        now_ms = self.cluster.clock.monotonic_ms
        deadline = None if timeout_ms is None else now_ms() + timeout_ms
        while True:
            batches = self.accumulator.begin_flush()
            try:
                if not batches:
                    return True
                self.wake()
                left_ms = None if deadline is None else deadline - now_ms()
                if (left_ms is not None and left_ms <= 0) or not await self._all_done(batches, left_ms):
                    return False
            finally:
                self.accumulator.end_flush()

    async def abandon(self) -> DeliveryError | None:
        """Same as `abort`, from another event loop than the sender's. IllegalStateError if that one still runs."""
        self.cluster.check_abandoned()
        failure = self.stop()
        await self.cluster.close()
        return failure

    async def abort(self) -> DeliveryError | None:
        """Same as `stop`, for callers in other threads."""
        sender = self._sender
        failure = self.stop()
        if sender is not None:
            await sender.ended()
        return failure

    async def drop(self) -> None:
        """Stop at once and close all connections: the producer was garbage-collected, or its owner cannot wait."""
        self.stop_and_log()
        await self.cluster.close()

    def stop_and_log(self) -> None:
        """Same as `stop`, but logs the error, as no caller could catch it."""
        failure = self.stop()
        if failure is not None:
            logger.warning("a producer was ended: %s", failure)

    def stop(self, timeout_ms: int | None = 0) -> DeliveryError | None:
        """Fail what is still pending; returns the error of what was not delivered."""
        if self.refusal == FORKED:
            return None
        self.refuse()
        for lookup in list(self._lookups.values()):
            lookup.cancel()
        self.accumulator.close()
        self.failures.counts_reported = True  # records that fail here are reported even if their futures are retrieved
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.completion.fail_all(
                ClientClosedError(
                    f"the producer was closed (timeout {timeout_ms} ms) before the record was acknowledged"
                    f"{sender.completion.hindrance()}"
                )
            )
            sender.close()
        self._close_user_code()
        return self.failures.take()

    def _close_user_code(self) -> None:
        if not self._closed_user_code:
            self._closed_user_code = True
            self.interceptors.close()
            self._serializing.close()
            if (close := getattr(self._partitioner, "close", None)) is not None:
                try:
                    close()
                except Exception:  # user code: it must not keep the producer from being closed
                    logger.exception("close of partitioner %s failed", type(self._partitioner).__qualname__)


def octets(what: str, data: Any) -> bytes:
    """Return the bytes of a key or value. Raises InvalidArgumentError if it is not bytes-like."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise InvalidArgumentError(
        f"the {what} is {type(data).__name__}, not bytes or None; encode it, or set {what}.serializer"
    )


def _number(partition: Any) -> int:
    """Convert a partition number that is not a plain int (numpy's, say). Raises InvalidArgumentError."""
    try:
        return index(partition)
    except TypeError:
        raise InvalidArgumentError(f"a partition is a number (int), not {partition!r}") from None


def check_timestamp(timestamp: Any) -> None:
    """Raise InvalidArgumentError for anything but milliseconds since 1970."""
    if not isinstance(timestamp, int) or not 0 <= timestamp <= MAX_TIMESTAMP:
        raise InvalidArgumentError(
            f"a timestamp is a whole number of milliseconds since 1970, as int(time.time() * 1000), not {timestamp!r}"
        )


_alive: weakref.WeakSet[ProducerDelegate] = weakref.WeakSet()


def _refuse_in_child() -> None:
    for delegate in _alive:
        delegate.refusal = FORKED


call_after_fork(_refuse_in_child)
