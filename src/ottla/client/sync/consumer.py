"""The sync consumer: that of `ottla.client`, run in a thread.

    with Consumer(bootstrap_servers="localhost:9092", group_id="g") as consumer:
        consumer.subscribe(["clicks"])
        for record in consumer:
            ...

Prefetched records are taken out in the caller's own thread; the loop is involved only when there are none, or
when the group, a position or the metadata needs attention.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Never

from ottla.client.consumer.consumer import CLOSE_TIMEOUT_MS, MAX_ARROW_ROWS, Take, take_records
from ottla.client.consumer.consumer import Consumer as AsyncConsumer
from ottla.client.consumer.delegate import FOREVER_MS
from ottla.client.consumer.health import ConsumerHealth
from ottla.client.consumer.records import ConsumerRecords
from ottla.client.consumer.use_guard import Guard, UseGuard
from ottla.client.errors import ClientClosedError
from ottla.client.foreign_methods import CONSUMER_METHODS, MethodHints, explains_arguments, unexpected
from ottla.client.loop_thread import LoopThread
from ottla.client.sync.blocking import P, SyncClient, T, blocking, passed_to
from ottla.env.threads import thread_id
from ottla.peer import arguments
from ottla.records.consumed import ConsumerRecord
from ottla.records.type_variables import K, V

if TYPE_CHECKING:
    import pyarrow


class _CallerGuard(UseGuard):
    """Before a call begins, the work of an interrupted one has ended: both would move the same positions."""

    def __init__(self, loop_thread: LoopThread) -> None:
        super().__init__("thread", thread_id)
        self._finish_left_over = loop_thread.finish_left_over

    def __enter__(self) -> None:
        self._finish_left_over()
        super().__enter__()


def in_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A plain method of the asyncio consumer that must not interleave with work in the loop."""
    made: Callable[Concatenate[Any, P], T] = passed_to("_call_in_loop", method)
    return made


def guarded(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A plain method of the asyncio consumer that runs in the caller's thread."""
    made: Callable[Concatenate[Any, P], T] = passed_to("_call_guarded", method)
    return made


@explains_arguments
class Consumer(SyncClient, MethodHints, Generic[K, V]):
    """Reads records of topics (`subscribe`) or of partitions (`assign`). Not for concurrent use by several threads.

    Settings, methods and errors are those of `ottla.client.Consumer`. Callbacks run in the thread that is calling
    the consumer.
    """

    _instead_of = CONSUMER_METHODS

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        me = weakref.ref(self)  # code in the loop must not keep an unreferenced consumer alive

        async def call(function: Callable[..., Any], *arguments: Any) -> Any:
            consumer = me()
            if consumer is None:
                raise ClientClosedError("the consumer was dropped")
            return await consumer._call(function, *arguments)

        self._async: AsyncConsumer[K, V] = AsyncConsumer(config, guard=Guard(), call=call, **settings)
        self.config = self._async.config
        self._delegate = self._async.delegate
        self._max_poll_records = self.config.max_poll_records
        self._thread = LoopThread(f"{self.config.client_id}-consumer", self._delegate.close)
        self._guard = _CallerGuard(self._thread)

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """In the loop: call the user's function in the thread that is calling the consumer; a coroutine runs here."""
        result = await self._thread.in_caller(function, *arguments)
        return await result if inspect.isawaitable(result) else result

    def _run(self, work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **options: P.kwargs) -> T:
        """Run a method of the asyncio consumer in the loop; returns its result."""
        with self._guard:
            return self._thread.run_serving(work, *args, **options)

    def _call_in_loop(self, method: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Same as `_run`, for a plain method that must not interleave with work in the loop."""

        async def begin() -> T:
            return method(*args, **options)

        return self._run(begin)

    def _call_guarded(self, method: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Call a plain method in the caller's thread."""
        with self._guard:
            return method(*args, **options)

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """As `ottla.client.Consumer.close`."""
        if self._guard.is_over:
            return
        arguments.milliseconds("timeout_ms", timeout_ms)
        with self._guard:
            try:
                self._run(self._async.close, timeout_ms)
            finally:
                self._guard.closed = True
                self._thread.close()

    def wakeup(self) -> None:
        """As `ottla.client.Consumer.wakeup`."""
        self._async.wakeup()

    # Subscription and assignment

    subscribe = blocking(AsyncConsumer.subscribe)
    assign = blocking(AsyncConsumer.assign)
    unsubscribe = blocking(AsyncConsumer.unsubscribe)
    subscription = guarded(AsyncConsumer.subscription)
    assignment = guarded(AsyncConsumer.assignment)
    pause = guarded(AsyncConsumer.pause)
    resume = guarded(AsyncConsumer.resume)
    paused = guarded(AsyncConsumer.paused)

    # Records

    def poll(self, timeout_ms: int = 0, **foreign: Never) -> ConsumerRecords[K, V]:
        """As `ottla.client.Consumer.poll`."""
        if foreign:
            raise unexpected("Consumer", "poll", foreign, ("timeout_ms",))
        with self._guard:
            gathered, moves = self._gather(self._async.deadline_ms(timeout_ms), take_records, self._max_poll_records)
            records: ConsumerRecords[K, V] = self._delegate.intercepted(gathered)
        self._delegate.handed_out.moves = moves  # no signal is handled between here and the return to the caller
        return records

    def _gather(self, deadline_ms: float, take: Take, most: int, **limits: Any) -> Any:
        delegate = self._delegate
        delegate.handed_out.settle()
        self._async.check_reads()
        must_wait = delegate.needs_loop
        while True:
            if must_wait:
                self._run(self._async.wait_for_data, deadline_ms)
            gathered, moves = delegate.collect(most, take, **limits)
            if gathered or delegate.cluster.clock.monotonic_ms() >= deadline_ms:
                return gathered, moves
            must_wait = True  # fetched data is of paused partitions, or only moved positions

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        while not self._guard.closed:
            yield from self._next_chunk()

    def _next_chunk(self) -> Iterator[ConsumerRecord[K, V]]:
        with self._guard:
            gathered, moves = self._gather(FOREVER_MS, take_records, self._max_poll_records, most_partitions=1)
            return self._delegate.hand_out_chunk(gathered, moves)

    def poll_arrow(
        self, timeout_ms: int = 0, max_rows: int = MAX_ARROW_ROWS, *, include_headers: bool = False, **foreign: Never
    ) -> pyarrow.Table:
        """As `ottla.client.Consumer.poll_arrow`."""
        from ottla.client.consumer.arrow_rows import table_of, taker

        if foreign:
            raise unexpected("Consumer", "poll_arrow", foreign, ("timeout_ms", "max_rows", "include_headers"))
        arguments.whole_number("max_rows", max_rows, 1)
        with self._guard:
            take = taker(include_headers=include_headers)
            gathered, moves = self._gather(self._async.deadline_ms(timeout_ms), take, max_rows)
            table = table_of(gathered, include_headers=include_headers)
        self._delegate.handed_out.moves = moves
        return table

    def arrow_batches(
        self, max_rows: int = MAX_ARROW_ROWS, *, include_headers: bool = False
    ) -> Iterator[pyarrow.RecordBatch]:
        """As `ottla.client.Consumer.arrow_batches`."""
        from ottla.client.consumer.arrow_rows import taker

        arguments.whole_number("max_rows", max_rows, 1)
        take = taker(include_headers=include_headers)
        while not self._guard.closed:
            with self._guard:
                gathered, moves = self._gather(FOREVER_MS, take, max_rows, once=True)
            ((batch,),) = gathered.values()
            self._delegate.handed_out.moves = moves
            yield batch

    # Commits and the group

    commit = blocking(AsyncConsumer.commit)
    commit_async = in_loop(AsyncConsumer.commit_async)
    committed = blocking(AsyncConsumer.committed)
    positions = in_loop(AsyncConsumer.positions)
    group_metadata = guarded(AsyncConsumer.group_metadata)
    enforce_rebalance = in_loop(AsyncConsumer.enforce_rebalance)

    # Positions

    seek = in_loop(AsyncConsumer.seek)
    seek_to_beginning = in_loop(AsyncConsumer.seek_to_beginning)
    seek_to_end = in_loop(AsyncConsumer.seek_to_end)
    position = blocking(AsyncConsumer.position)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    current_lag = guarded(AsyncConsumer.current_lag)

    # Topics

    partitions_for = blocking(AsyncConsumer.partitions_for)
    list_topics = blocking(AsyncConsumer.list_topics)

    # Metrics and health

    metrics = guarded(AsyncConsumer.metrics)

    def health(self) -> ConsumerHealth:
        """As `ottla.client.Consumer.health`."""
        return self._async.health()
