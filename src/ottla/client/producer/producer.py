"""The producer for asyncio; the sync client is `ottla.client.sync.Producer`.

async with Producer(bootstrap_servers="localhost:9092") as producer:
    future = await producer.send("clicks", value=b"v", key=b"k")
    metadata = await future
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Generic, Self, overload

from ottla.client.configs import parse_producer_config
from ottla.client.errors import ClientError, DeliveryError
from ottla.client.foreign_methods import PRODUCER_METHODS, MethodHints, explains_arguments, unexpected
from ottla.client.model import PartitionMetadata
from ottla.client.producer.bulk import Bulk, Slices, bulk_future, interrupted
from ottla.client.producer.bulk_future import BulkFuture
from ottla.client.producer.delegate import ProducerDelegate, Wait
from ottla.client.producer.futures import Callback, RecordFuture
from ottla.client.producer.record import ProducerRecord, SendHeaders, fields_of, topic_name
from ottla.client.producer.transactions import (
    Consumed,
    OffsetsToSend,
    ProducerTransactions,
    TransactedConsumer,
    group_of,
    offsets_to_send,
)
from ottla.env.environment import Environment
from ottla.peer.cluster import Cluster
from ottla.records.type_variables import K, V

BATCHES_PER_SLICE = 16
"""Number of new batches after which `send` yields to the event loop."""


@explains_arguments
class Producer(MethodHints, Generic[K, V]):
    """Sends records in batches, idempotent by default. For the tasks of one event loop.

    Settings have Kafka's names, in `config` ("linger.ms") or as keywords (linger_ms). All errors are
    `ClientError`s. Make it and use it in a running loop; end it with `close`, or use `async with`. `environment` is for
    simulations.
    """

    _instead_of = PRODUCER_METHODS

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, *, environment: Environment | None = None, **settings: Any
    ) -> None:
        self.config = parse_producer_config(config, settings)
        self._delegate = ProducerDelegate(self.config, Cluster(self.config.client_settings, environment), self._wake)
        self._delegate.accumulator.home.hurry = self._delegate.hurry
        self._delegate.accumulator.home.check = self._check_place
        self._started = False
        #: Whether its event loop is closed, or not known yet. Cheaper than asking for the running loop.
        self._has_no_loop: Callable[[], bool] = _has_none
        #: Batches created since `send` last yielded to the loop.
        self._begun = 0
        self._intercepts = bool(self._delegate.interceptors)

    def _wake(self) -> None:
        self._begun += 1
        self._delegate.appended()

    def _check_place(self) -> None:
        if self._delegate.cluster.is_abroad:
            self._check_loop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        elif isinstance(error, Exception):
            try:
                await self.close()
            except ClientError as left:
                error.add_note(f"besides, {left}")
        else:  # cancelled or interrupted: do not wait
            await self.abort()

    @overload
    async def send(self, record: ProducerRecord[K, V], callback: Callback | None = None, /) -> RecordFuture: ...

    @overload
    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: SendHeaders = (),
        callback: Callback | None = None,
    ) -> RecordFuture: ...

    async def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: SendHeaders = (),
        callback: Callback | None = None,
        **foreign: Any,
    ) -> RecordFuture:
        """Append a record to the batch of its partition; the future, and `callback`, get the result.

        `send(record, callback)` takes a ProducerRecord. `timestamp` is in milliseconds, None for now. Waits, up to
        `max.block.ms`, if the topic is not known yet or `buffer.memory` is full. Callbacks run in the loop, in the
        order of their partition's records. Raises InvalidArgumentError, RecordTooLargeError, UnknownTopicError,
        ClientTimeoutError, ClientClosedError; then the record was not accepted, and the callback is not called.
        """
        if foreign:
            raise unexpected("Producer", "send", foreign, ProducerRecord._fields)
        if self._has_no_loop():
            self._check_loop()
        if topic.__class__ is not str:
            if isinstance(topic, tuple):
                callback = value if callback is None else callback
                topic, value, key, partition, timestamp, headers = fields_of(topic)
            else:
                topic = topic_name(topic)
        if self._intercepts:
            record = ProducerRecord(topic, value, key, partition, timestamp, headers)
            return await self._send_intercepted(record, callback)
        outcome = self._delegate.take(topic, partition, timestamp, key, value, headers, callback)
        if outcome.__class__ is not RecordFuture:
            return await self._send_later(outcome, topic, partition, timestamp, key, value, headers, callback)
        if self._begun >= BATCHES_PER_SLICE:
            self._begun = 0
            await asyncio.sleep(0)  # in a loop that only sends, the sender would never run
        return outcome

    async def _send_intercepted(self, record: ProducerRecord[Any, Any], callback: Callback | None) -> RecordFuture:
        with self._delegate.interceptors.sending(record, callback) as (changed, notify):
            topic, value, key, partition, timestamp, headers = changed
            outcome = self._delegate.take(topic, partition, timestamp, key, value, headers, notify)
            if outcome.__class__ is RecordFuture:
                return outcome
            return await self._send_later(outcome, topic, partition, timestamp, key, value, headers, notify)

    async def send_many(
        self, records: Iterable[Any], topic: str | None = None, *, into: BulkFuture | None = None
    ) -> BulkFuture:
        """Send many records: ProducerRecords, or pairs of key and value for `topic`. Returns one future for all.

        The records of a partition keep their order, with and without keys. Faster than `send`, and in batches of up to
        256 KiB even if `batch.size` is less. Records before a rejected one (InvalidArgumentError,
        RecordTooLargeError, SerializationError, UnknownTopicError) are sent, and so are those before an error raised by
        `records` itself. After a ClientTimeoutError (`max.block.ms`) records without room in `buffer.memory` are
        dropped; a note on the error has their number. `flush` reports failures of the others.

        A cancelled or interrupted call drops the records not handed over yet. A note on the error has their number,
        and so has the `count` of a future passed as `into`, which is filled instead of a new one:

            sent = BulkFuture()
            try:
                await asyncio.wait_for(producer.send_many(records, "clicks", into=sent), 5)
            finally:
                print(sent.count, await sent)
        """
        future = bulk_future(into)
        return await self._drive(Bulk(self._delegate).many(records, topic, future), future)

    async def send_arrow(
        self,
        data: Any,
        topic: str | None = None,
        *,
        key_column: str | None = "key",
        value_column: str | None = "value",
        partition_column: str | None = "partition",
        timestamp_column: str | None = "timestamp",
        headers_column: str | None = "headers",
        topic_column: str | None = "topic",
        partition: int | None = None,
        into: BulkFuture | None = None,
    ) -> BulkFuture:
        """Send the rows of a pyarrow Table or RecordBatch, or a Polars or pandas frame; returns one future for all.

        Columns are binary or string (key, value), integer (partition), timestamp or integer milliseconds (timestamp),
        lists of structs of key and value (headers), string (topic); all but the value are
        optional. Rows of a partition keep their order. Serializers and interceptors are not called, and no Python
        object is made per record. If rows were sent before an error, a note on it has their number, and `flush` reports
        their failures; `into` is the same as for `send_many`.
        """
        columns = {
            "key": key_column,
            "value": value_column,
            "partition": partition_column,
            "timestamp": timestamp_column,
            "headers": headers_column,
            "topic": topic_column,
        }
        future = bulk_future(into)
        return await self._drive(Bulk(self._delegate).arrow(data, topic, columns, partition, future), future)

    async def init_transactions(self) -> None:
        """Get a producer id for `transactional.id`; fences its other producers and aborts what they left open.

        Call it once, before the first transaction. This and the other methods of transactions wait up to
        `max.block.ms` and then raise ClientTimeoutError; call the same method again to continue. They raise
        ProducerFencedError, and other errors that only `close` helps against, and IllegalStateError where the method
        does not fit what was called before.
        """
        await self._transactions().initialize()

    async def begin_transaction(self) -> None:
        """Begin a transaction. Records can be sent in transactions only."""
        await self._transactions().begin()

    async def send_offsets_to_transaction(self, offsets: OffsetsToSend, group_metadata: Any) -> None:
        """Commit a group's offsets as part of the transaction, as with `Consumer.commit`: those of the next records.

        `group_metadata` is the consumer, or what its `group_metadata()` gives. Raises TransactionAbortableError if
        the consumer has left the group, or no answer came in time: abort then.
        """
        group = group_of(group_metadata)
        await self._transactions().send_offsets(offsets_to_send(offsets), group)

    async def commit_transaction(self) -> None:
        """Send everything, wait until it is acknowledged, and commit.

        Raises TransactionAbortableError if a record was not written; then nothing is committed: call
        `abort_transaction`. After a ClientTimeoutError the transaction may be committed or not: call it again.
        """
        await self._transactions().commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction: its records that were not sent yet fail with TransactionAbortedError."""
        await self._transactions().abort()

    @asynccontextmanager
    async def transaction(self, consumer: TransactedConsumer | None = None) -> AsyncIterator[Self]:
        """Run a transaction: `async with producer.transaction(consumer): …`; calls init_transactions the first time.

        Commits at the end, with the positions of the consumer (see `Consumer.positions`); aborts on an exception, a
        failure to commit included. The positions of the consumer stay where they are then.
        """
        transactions = self._transactions()
        if transactions.is_new:
            await transactions.initialize()
        consumed = None if consumer is None else Consumed(consumer)
        await transactions.begin()
        try:
            yield self
            if consumed is not None:
                await self.send_offsets_to_transaction(*consumed.offsets())
            await transactions.commit()
        except BaseException as error:
            if transactions.is_open:
                try:
                    await transactions.abort()
                except ClientError as failed:
                    error.add_note(f"besides, the transaction is not aborted: {failed}")
            raise

    def _transactions(self) -> ProducerTransactions:
        self._check_loop()
        self._start()
        return self._delegate.transactions

    def _check_loop(self) -> None:
        """Raise IllegalStateError in another event loop than the producer's, which is the first one to use it."""
        self._delegate.check_open()
        self._delegate.cluster.check_loop()
        self._has_no_loop = asyncio.get_running_loop().is_closed

    async def _drive(self, slices: Slices, future: BulkFuture) -> BulkFuture:
        """Run the slices, and wait for what they yield; returns `future`, which they fill."""
        self._check_loop()
        try:
            needed = next(slices)
            while True:
                wait, topic = needed
                try:
                    if wait is not None:
                        await self._block(wait, topic, self.config.max_block_ms)
                    elif self._begun >= BATCHES_PER_SLICE:
                        self._begun = 0
                        await asyncio.sleep(0)
                except ClientError as error:
                    needed = slices.throw(error)
                else:
                    needed = next(slices)
        except StopIteration:
            return future
        except BaseException as error:
            interrupted(slices, future, error)
            raise

    async def _send_later(self, outcome: Any, topic: str, *rest: Any) -> RecordFuture:
        timeout_ms = self.config.max_block_ms
        deadline = self._delegate.cluster.clock.monotonic_ms() + timeout_ms
        while outcome.__class__ is not RecordFuture:
            await self._block(outcome, topic, deadline - self._delegate.cluster.clock.monotonic_ms())
            outcome = self._delegate.take(topic, *rest)
        return outcome

    async def _block(self, wait: Wait, topic: str, timeout_ms: float) -> None:
        """Wait; raises ClientTimeoutError at the timeout."""
        self._start()
        timeout_ms = max(timeout_ms, 0)
        if wait is Wait.TOPIC:
            arrived = await self._delegate.find_topic_within(topic, timeout_ms)
        else:
            arrived = await self._wait_for_space(timeout_ms)
        if not arrived:
            raise self._delegate.blocked(wait, topic)

    async def _wait_for_space(self, timeout_ms: float) -> bool:
        loop = asyncio.get_running_loop()
        freed: asyncio.Future[None] = loop.create_future()

        def free() -> None:
            if not freed.done():
                freed.set_result(None)

        if not self._delegate.accumulator.when_space(free):
            return True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await freed
        except TimeoutError:
            return False
        else:
            return True
        finally:
            self._delegate.accumulator.forget_waiter(free)

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._delegate.start()

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """Return the topic's partitions with their leaders and replicas. Raises UnknownTopicError."""
        self._check_loop()
        self._start()  # the metadata found here also serves `send`
        return list((await self._delegate.find_topic(topic)).partitions)

    def metrics(self) -> dict[str, float]:
        """Return metrics by Kafka's names (record-send-total, request-latency-avg, …)."""
        return self._delegate.metrics()

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Send everything and wait until it is acknowledged.

        Raises DeliveryError if records since the last flush were not acknowledged and not reported by a
        callback or a future; ClientTimeoutError at the timeout.
        """
        self._check_loop()
        await self._delegate.flush(timeout_ms)

    async def close(self, timeout_ms: int | None = None) -> None:
        """Wait, `timeout_ms` at most, until everything is acknowledged, then stop. Closing twice is allowed.

        Unacknowledged records fail then: their futures and callbacks get an error, and a DeliveryError has their
        number. If cancelled, it stops at once and logs that error. So it does from another event loop if its own is
        closed; else it raises IllegalStateError.
        """
        if self._delegate.cluster.is_abroad:
            if (failure := await self._delegate.abandon()) is not None:
                raise failure
            return
        try:
            await self._delegate.close(timeout_ms)
        except asyncio.CancelledError:
            self._delegate.stop_and_log()
            raise
        finally:
            await self._delegate.cluster.close()

    async def abort(self) -> DeliveryError | None:
        """Stop at once; returns the error of undelivered records."""
        if self._delegate.cluster.is_abroad:
            return await self._delegate.abandon()
        failure = await self._delegate.abort()
        await self._delegate.cluster.close()
        return failure


def _has_none() -> bool:
    return True
