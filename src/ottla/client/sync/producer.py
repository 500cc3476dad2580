"""The sync producer: that of `ottla.client`, run in a thread.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        future = producer.send("clicks", value=b"v", key=b"k")
        metadata = future.result()

Records are encoded into their batches in the caller's own thread; the loop is woken once per batch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Concatenate, Generic, Self, overload

from ottla.client.configs import parse_producer_config
from ottla.client.errors import (
    ClientClosedError,
    ClientError,
    DeliveryError,
    IllegalStateError,
    InvalidArgumentError,
)
from ottla.client.foreign_methods import PRODUCER_METHODS, MethodHints, explains_arguments, unexpected
from ottla.client.loop_thread import LoopThread
from ottla.client.model import PartitionMetadata
from ottla.client.producer.bulk import Slices, interrupted
from ottla.client.producer.bulk_future import BulkFuture
from ottla.client.producer.delegate import ProducerDelegate, Wait
from ottla.client.producer.futures import Callback, RecordFuture
from ottla.client.producer.producer import Producer as AsyncProducer
from ottla.client.producer.record import ProducerRecord, SendHeaders, fields_of, topic_name
from ottla.client.producer.transactions import (
    Consumed,
    OffsetsToSend,
    ProducerTransactions,
    TransactedConsumer,
    group_of,
    offsets_to_send,
)
from ottla.client.sync.blocking import P, T, made_of
from ottla.env.threads import Latch
from ottla.peer.cluster import Cluster
from ottla.records.type_variables import K, V


def at_once(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A coroutine method of the asyncio producer that waits nowhere but in `_drive`, which blocks here."""

    def call(*args: Any, **options: Any) -> Any:
        try:
            method(*args, **options).send(None)
        except StopIteration as ended:
            return ended.value
        raise AssertionError(f"{method.__name__} waits")

    made: Callable[Concatenate[Any, P], T] = made_of(method, call)
    return made


@explains_arguments
class Producer(MethodHints, Generic[K, V]):
    """Sends records in batches, idempotent by default. Any thread may use it.

    Settings, methods and errors are those of `ottla.client.Producer`. Callbacks run in the producer's own thread.
    """

    _instead_of = PRODUCER_METHODS

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self.config = parse_producer_config(config, settings)
        me = weakref.ref(self)  # code in the loop must not keep an unreferenced producer alive

        def wake() -> None:
            if (producer := me()) is not None:
                producer._wake()

        self._delegate = ProducerDelegate(self.config, Cluster(self.config.client_settings), wake)
        self._take = self._delegate.take
        self._intercepts = bool(self._delegate.interceptors)
        self._woken = False
        self._thread = LoopThread(f"{self.config.client_id}-producer", self._delegate.drop)
        self._thread.run(self._start)

    async def _start(self) -> None:
        self._delegate.start()

    def _wake(self) -> None:
        if not self._woken:
            try:
                self._woken = True
                self._thread.call(self._run_once)
            except KeyboardInterrupt:
                self._thread.call(self._run_once)  # again, whether the first call succeeded or not
                raise

    def _run_once(self) -> None:
        self._woken = False
        self._delegate.run_once()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        elif isinstance(error, Exception):
            try:
                self.close()
            except ClientError as left:
                error.add_note(f"besides, {left}")
        else:  # interrupted: do not wait
            self.abort()

    @overload
    def send(self, record: ProducerRecord[K, V], callback: Callback | None = None, /) -> RecordFuture: ...

    @overload
    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: SendHeaders = (),
        callback: Callback | None = None,
    ) -> RecordFuture: ...

    def send(
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
        """As `ottla.client.Producer.send`."""
        if foreign:
            raise unexpected("Producer", "send", foreign, ProducerRecord._fields)
        if topic.__class__ is not str:
            if isinstance(topic, tuple):
                callback = value if callback is None else callback
                topic, value, key, partition, timestamp, headers = fields_of(topic)
            else:
                topic = topic_name(topic)
        if self._intercepts:
            record = ProducerRecord(topic, value, key, partition, timestamp, headers)
            return self._send_intercepted(record, callback)
        outcome = self._take(topic, partition, timestamp, key, value, headers, callback)
        if outcome.__class__ is RecordFuture:
            return outcome
        return self._send_later(outcome, topic, partition, timestamp, key, value, headers, callback)

    def _send_intercepted(self, record: ProducerRecord[Any, Any], callback: Callback | None) -> RecordFuture:
        with self._delegate.interceptors.sending(record, callback) as (changed, notify):
            topic, value, key, partition, timestamp, headers = changed
            outcome = self._take(topic, partition, timestamp, key, value, headers, notify)
            if outcome.__class__ is RecordFuture:
                return outcome
            return self._send_later(outcome, topic, partition, timestamp, key, value, headers, notify)

    send_many = at_once(AsyncProducer.send_many)
    send_arrow = at_once(AsyncProducer.send_arrow)

    async def _drive(self, slices: Slices, future: BulkFuture) -> BulkFuture:
        """For `at_once`: run the slices, and block for what they yield; returns `future`, which they fill."""
        try:
            needed = next(slices)
            while True:
                wait, topic = needed
                try:
                    if wait is not None:
                        self._block(wait, topic, self.config.max_block_ms)
                except ClientError as error:
                    needed = slices.throw(error)
                else:
                    needed = next(slices)
        except StopIteration:
            return future
        except BaseException as error:
            interrupted(slices, future, error)
            raise

    def _send_later(self, outcome: Any, topic: str, *rest: Any) -> RecordFuture:
        clock = self._delegate.cluster.clock
        deadline = clock.monotonic_ms() + self.config.max_block_ms
        while outcome.__class__ is not RecordFuture:
            self._block(outcome, topic, deadline - clock.monotonic_ms())
            outcome = self._take(topic, *rest)
        return outcome

    def _block(self, wait: Wait, topic: str, timeout_ms: float) -> None:
        """Wait; raises ClientTimeoutError at the timeout."""
        if self._thread.is_current:
            raise InvalidArgumentError(f"send() in a callback would have to wait for {wait.value}, for ever")
        timeout_ms = max(timeout_ms, 0)
        if wait is Wait.TOPIC:
            arrived = self._thread.run(self._delegate.find_topic_within, topic, timeout_ms)
        else:
            arrived = self._wait_for_space(timeout_ms)
        if not arrived:
            raise self._delegate.blocked(wait, topic)

    def _wait_for_space(self, timeout_ms: float) -> bool:
        freed = Latch()
        if not self._delegate.accumulator.when_space(freed.set):
            return True
        try:
            return freed.wait(timeout_ms / 1000)
        finally:
            self._delegate.accumulator.forget_waiter(freed.set)

    def init_transactions(self) -> None:
        """As `ottla.client.Producer.init_transactions`."""
        self._thread.run(self._transactions().initialize)

    def begin_transaction(self) -> None:
        """As `ottla.client.Producer.begin_transaction`."""
        self._thread.run(self._transactions().begin)

    def send_offsets_to_transaction(self, offsets: OffsetsToSend, group_metadata: Any) -> None:
        """As `ottla.client.Producer.send_offsets_to_transaction`."""
        group = group_of(group_metadata)
        self._thread.run(self._transactions().send_offsets, offsets_to_send(offsets), group)

    def commit_transaction(self) -> None:
        """As `ottla.client.Producer.commit_transaction`."""
        self._thread.run(self._transactions().commit)

    def abort_transaction(self) -> None:
        """As `ottla.client.Producer.abort_transaction`."""
        self._thread.run(self._transactions().abort)

    @contextmanager
    def transaction(self, consumer: TransactedConsumer | None = None) -> Iterator[Self]:
        """As `ottla.client.Producer.transaction`."""
        transactions = self._transactions()
        if transactions.is_new:
            self.init_transactions()
        consumed = None if consumer is None else Consumed(consumer)
        self.begin_transaction()
        try:
            yield self
            if consumed is not None:
                self.send_offsets_to_transaction(*consumed.offsets())
            self.commit_transaction()
        except BaseException as error:
            if transactions.is_open:
                try:
                    self.abort_transaction()
                except ClientError as failed:
                    error.add_note(f"besides, the transaction is not aborted: {failed}")
            raise

    def _transactions(self) -> ProducerTransactions:
        self._delegate.check_open()
        return self._delegate.transactions

    def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """As `ottla.client.Producer.partitions_for`."""
        self._delegate.check_open()
        return list(self._thread.run(self._delegate.find_topic, topic).partitions)

    def metrics(self) -> dict[str, float]:
        """Return metrics by Kafka's names (record-send-total, request-latency-avg, …)."""
        return self._delegate.metrics()

    def flush(self, timeout_ms: int | None = None) -> None:
        """As `ottla.client.Producer.flush`."""
        self._delegate.check_open()
        self._thread.run(self._delegate.flush, timeout_ms)

    def close(self, timeout_ms: int | None = None) -> None:
        """As `ottla.client.Producer.close`. Can be called again after an interrupt (Ctrl-C)."""
        if self._thread.is_closed:
            return
        try:
            self._thread.run(self._delegate.close, timeout_ms)
        except ClientClosedError:
            return  # closed by another thread meanwhile
        except IllegalStateError:
            raise  # called in a callback: it is still open
        except ClientError:
            self._stop()
            raise
        self._stop()

    def abort(self) -> DeliveryError | None:
        """Stop at once; returns the error of undelivered records."""
        if self._thread.is_closed:
            return None
        failure = self._thread.run(self._delegate.abort)
        self._stop()
        return failure

    def _stop(self) -> None:
        with suppress(ClientClosedError):  # closed by another thread meanwhile
            self._thread.run(self._delegate.cluster.close)
        self._thread.close()
