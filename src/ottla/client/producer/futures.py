"""Futures of records: a light one per record, and one shared result per batch.

A future is an index into its batch. Nothing is allocated for waiting before the first wait, and what is needed then (a
lock, an event, an asyncio future) belongs to the batch, so that discarded futures cost little.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from ottla.client.errors import (
    BrokerError,
    ClientError,
    ClientTimeoutError,
    ForkedError,
    IllegalStateError,
    InvalidArgumentError,
)
from ottla.client.model import NO_OFFSET, RecordMetadata, TopicPartition
from ottla.env.process import process_id
from ottla.env.threads import TIMEOUT_MAX, Lock, monotonic_s, thread_id
from ottla.records.batch import NO_TIMESTAMP
from ottla.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

Callback = Callable[[RecordMetadata | None, Exception | None], Any]
"""Called once per record with its metadata or its error; the other one is None."""

BLOCKS_SENDER = (
    "result() would block the event loop that sends the record, for ever; await the future instead (in a callback of a "
    "blocking producer, use add_done_callback)"
)
OTHER_RECORD_REFUSED = "another record of the batch was refused, so the broker took none of it"


class SenderHome:
    """The event loop of a producer's sender: `loop`, once it has started.

    If callers have to run in it, too, `check` raises for others, and `hurry` makes the sender do its deferred work
    at once; both are None if callers are in other threads.
    """

    __slots__ = ("check", "hurry", "loop")

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.check: Callable[[], None] | None = None
        self.hurry: Callable[[], None] | None = None

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in that loop, and so must not block."""
        return self.loop is not None and asyncio._get_running_loop() is self.loop

    def check_alive(self) -> None:
        """Raise IllegalStateError if the loop is closed: pending records will never be done."""
        if self.loop is not None and self.loop.is_closed():
            raise IllegalStateError(
                "the event loop in which the producer sent this was closed before the broker answered"
            )


class DoneCallback:
    """A user callback on a record's future, called in the event loop in which it was added, if any."""

    __slots__ = ("_callback", "_future", "_loop")

    def __init__(self, future: RecordFuture, callback: Callable[[RecordFuture], Any]) -> None:
        self._future = future
        self._callback = callback
        self._loop: asyncio.AbstractEventLoop | None = asyncio._get_running_loop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DoneCallback) and other._future is self._future and other._callback == self._callback

    def __hash__(self) -> int:
        return hash((id(self._future), self._callback))

    def __call__(self) -> None:
        """Handle completion of the record."""
        loop = self._loop
        if loop is None or asyncio._get_running_loop() is loop:
            self._callback(self._future)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(guard, self)

    def call_soon(self) -> None:
        """The record is done already: schedule the call, as asyncio's futures do."""
        if self._loop is None:
            guard(self)
        else:
            self._loop.call_soon(guard, self)


class BatchResult:
    """The result of one batch; nothing may change once `is_done`. Any thread may read it, the sender sets it."""

    __slots__ = (
        "_all_reported",
        "_callbacks",
        "_lock",
        "_process",
        "_reported",
        "_waiters",
        "append_time_ms",
        "base_offset",
        "error",
        "home",
        "is_done",
        "partition",
        "record_errors",
        "sender_thread",
        "splits",
    )

    def __init__(self, partition: TopicPartition, lock: Lock, home: SenderHome | None = None) -> None:
        self.partition = partition
        self.home = home
        self.is_done = False
        self.base_offset = NO_OFFSET
        self.append_time_ms = NO_TIMESTAMP
        self.error: ClientError | None = None
        self.record_errors: dict[int, str] = {}
        #: After a split: first index and result of each part.
        self.splits: list[tuple[int, BatchResult]] | None = None
        self.sender_thread = 0
        self._lock = lock
        self._process = process_id()
        self._callbacks: list[tuple[Callback, RecordFuture]] | None = None
        self._waiters: dict[Callable[[], None], None] | None = None
        self._reported: set[int] | None = None
        self._all_reported = False

    def add_callback(self, callback: Callback, future: RecordFuture) -> None:
        """Add a callback for completion; the caller holds the lock, and the batch is not done."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append((callback, future))

    def when_done(self, waiter: Callable[[], None]) -> bool:
        """Call `waiter` in the sender's thread once the batch is done; False if it is done already.

        Raises ForkedError in a child process, IllegalStateError if the sender's event loop is closed: the batch would
        never be done there.
        """
        if not self.is_done:
            if self._process != process_id():
                raise ForkedError("producer")  # the sender does not run here, nor the thread that may hold the lock
            if self.home is not None:
                self.home.check_alive()
        with self._lock:
            if self.is_done:
                return False
            if self._waiters is None:
                self._waiters = {}
            self._waiters[waiter] = None
            return True

    def forget_waiter(self, waiter: Callable[[], None]) -> bool:
        """Remove `waiter`; returns whether it was registered."""
        with self._lock:
            return self._waiters is not None and self._waiters.pop(waiter, self) is None

    @property
    def blocks_sender(self) -> bool:
        """Whether the caller runs in the sender's event loop, and so would deadlock if it waited."""
        return self.home is not None and self.home.is_here

    def wait(self, timeout_s: float | None) -> bool:
        """In a thread: wait for completion; returns False at the timeout."""
        # Waking is faster with a bare lock than with an event, which is made of several.
        arrived = Lock()
        arrived.acquire()
        patience = -1 if timeout_s is None else min(max(timeout_s, 0), TIMEOUT_MAX)
        return not self.when_done(arrived.release) or arrived.acquire(timeout=patience)

    def mark_all_reported(self) -> None:
        """Mark all records as reported: the caller learns, or will learn, their results."""
        self._all_reported = True
        for _, part in self.splits or ():
            part.mark_all_reported()

    def mark_reported(self, index: int) -> None:
        """Mark this record as reported: the caller learns, or will learn, its result."""
        if self._reported is None:
            self._reported = set()
        self._reported.add(index)

    def unreported(self, count: int) -> int:
        """Return how many of the `count` records of a failed batch were not reported."""
        return 0 if self._all_reported else count - len(self._reported or ())

    def complete(
        self,
        base_offset: int,
        append_time_ms: int,
        error: ClientError | None = None,
        record_errors: dict[int, str] | None = None,
    ) -> None:
        """Complete the batch: run its records' callbacks in order, then wake waiters."""
        with self._lock:
            if self.is_done:
                return
            self.base_offset = base_offset
            self.append_time_ms = append_time_ms
            self.error = error
            self.record_errors = record_errors or {}
            self.sender_thread = thread_id()
            self.is_done = True
            callbacks, self._callbacks = self._callbacks, None
            waiters, self._waiters = self._waiters, None
        for callback, future in callbacks or ():
            call_back(callback, future)
        for waiter in waiters or ():
            guard(waiter)

    def split_into(self, splits: list[tuple[int, BatchResult]]) -> None:
        """Split the batch into smaller ones; waiters wait for all of them."""
        remaining = len(splits)

        def one_is_done() -> None:
            nonlocal remaining
            remaining -= 1
            if not remaining:
                self.complete(NO_OFFSET, NO_TIMESTAMP)

        with self._lock:
            self.splits = splits
            callbacks, self._callbacks = self._callbacks, None
            for callback, future in callbacks or ():
                future.follow()[0].add_callback(callback, future)
        for index in self._reported or ():
            part, at = self.part_of(index)
            part.mark_reported(at)
        for _, part in splits:
            if self._all_reported:
                part.mark_all_reported()
            part.when_done(one_is_done)

    def part_of(self, index: int) -> tuple[BatchResult, int]:
        """Return the batch and index of a record after a split, by its index before."""
        assert self.splits is not None
        first, part = next((first, part) for first, part in reversed(self.splits) if first <= index)
        return part, index - first

    def error_of(self, index: int) -> ClientError | None:
        """Return the error of the record at `index`, None if it was delivered. Only once the batch is done."""
        if self.error is None or not self.record_errors:
            return self.error
        code = getattr(self.error, "code", ErrorCode.INVALID_RECORD)
        reason = self.record_errors.get(index, OTHER_RECORD_REFUSED)
        return BrokerError(code, f"a record for {self.partition}", reason)

    def place_of(self, index: int, timestamp: int) -> tuple[int, int]:
        """Return offset and timestamp of the record at `index` of a delivered batch."""
        offset = self.base_offset + index if self.base_offset >= 0 else NO_OFFSET
        return offset, timestamp if self.append_time_ms == NO_TIMESTAMP else self.append_time_ms


class RecordFuture:
    """The future of one record. Await it in asyncio, or call `result` from any thread but the sender's own."""

    __slots__ = ("_batch", "_index", "_key_size", "_timestamp", "_value_size")

    def __init__(self, batch: BatchResult, index: int, timestamp: int, key_size: int, value_size: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp
        self._key_size = key_size
        self._value_size = value_size

    def follow(self) -> tuple[BatchResult, int]:
        """Return the record's batch, which changes when the batch is split, and its index there."""
        batch, index = self._batch, self._index  # nothing is cached: several threads may call it
        while batch.splits is not None:
            batch, index = batch.part_of(index)
        return batch, index

    def done(self) -> bool:
        """Whether the record was delivered or failed."""
        return self.follow()[0].is_done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait, and return the record's metadata. Raises its delivery error, ClientTimeoutError."""
        error = self.exception(timeout_s)
        if error is not None:
            raise error
        return self.metadata()

    def exception(self, timeout_s: float | None = None) -> ClientError | None:
        """Wait, and return the delivery error, None if there is none. Raises ClientTimeoutError."""
        deadline = None if timeout_s is None else monotonic_s() + timeout_s
        while not self.follow()[0].is_done:
            if self._batch.blocks_sender:
                raise InvalidArgumentError(BLOCKS_SENDER)
            if not self.follow()[0].wait(None if deadline is None else max(deadline - monotonic_s(), 0)):
                raise ClientTimeoutError(
                    f"a record for {self._batch.partition} was not acknowledged within {timeout_s} s; it may still be"
                )
        return self._take_error()

    def _take_error(self) -> ClientError | None:
        """Return the delivery error, and mark the record as reported."""
        batch, index = self.follow()
        batch.mark_reported(index)
        return batch.error_of(index)

    def metadata(self) -> RecordMetadata:
        """Return the record's metadata; only once it was delivered."""
        batch, index = self.follow()
        offset, timestamp = batch.place_of(index, self._timestamp)
        topic, partition = batch.partition
        return RecordMetadata(topic, partition, offset, timestamp, self._key_size, self._value_size)

    def add_done_callback(self, callback: Callable[[RecordFuture], Any]) -> None:
        """Call `callback(future)` once the record is delivered or has failed.

        It is called in the event loop that is running when it is added, as with asyncio's futures; without
        one in the sender's thread, or at once.
        """
        batch, index = self.follow()
        batch.mark_reported(index)
        waiter = DoneCallback(self, callback)
        if not batch.when_done(waiter):
            waiter.call_soon()

    def remove_done_callback(self, callback: Callable[[RecordFuture], Any]) -> int:
        """Remove a callback that was not called yet; returns how many were removed."""
        waiter = DoneCallback(self, callback)
        batch, index, removed = self._batch, self._index, 0
        while True:
            removed += batch.forget_waiter(waiter)
            if batch.splits is None:
                return removed
            batch, index = batch.part_of(index)

    def cancelled(self) -> bool:
        """Always False, as a record that was accepted cannot be cancelled; used by `asyncio.wait`."""
        return False

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while not (followed := self.follow())[0].is_done:
            batch, index = followed
            loop = asyncio.get_running_loop()
            arrived: asyncio.Future[None] = loop.create_future()
            batch.mark_reported(index)
            if batch.when_done(partial(wake_future, loop, arrived)):
                if batch.home is not None and batch.home.hurry is not None:
                    batch.home.hurry()
                yield from arrived
        error = self._take_error()
        if error is not None:
            raise error
        return self.metadata()

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"<RecordFuture {self._batch.partition} {state}>"


class Watcher:
    """A callback that only observes: it does not mark a failure as reported, so `flush` still raises it."""

    def __call__(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Same as any Callback."""
        raise NotImplementedError


def call_back(callback: Callback, future: RecordFuture) -> None:
    """Call `callback` with the result of a completed record."""
    batch, index = future.follow()
    if not isinstance(callback, Watcher):
        batch.mark_reported(index)
    error = batch.error_of(index)
    metadata = future.metadata() if error is None else None
    guard(partial(callback, metadata, error))


def guard(callback: Callable[[], Any]) -> None:
    """Call user code; its errors are logged, since no caller could catch them.

    None of them may reach the sender, which has other callbacks to run: neither CancelledError nor SystemExit.
    """
    try:
        callback()
    except KeyboardInterrupt:  # not raised by the user's code
        raise
    except BaseException:
        logger.exception("the callback of a record failed")


def wake_future(loop: asyncio.AbstractEventLoop, arrived: asyncio.Future[None]) -> None:
    """Resume the task that awaits `arrived` in `loop`; from any thread."""
    if asyncio._get_running_loop() is loop:
        set_arrived(arrived)
    elif not loop.is_closed():
        loop.call_soon_threadsafe(set_arrived, arrived)


def set_arrived(arrived: asyncio.Future[None]) -> None:
    """Set the future, unless it was cancelled."""
    if not arrived.done():
        arrived.set_result(None)
