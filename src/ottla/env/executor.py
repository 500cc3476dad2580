"""Disk threads: fsync, cold reads, recovery, removal of files. Nothing else leaves the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

#: Limit on jobs that wait for a disk thread; submitters have their own, much lower, limits.
MAX_WAITING_JOBS = 100_000


class NoThread(RuntimeError):
    """The job was refused: the disk threads are stopped, or too many jobs wait. Nothing was done."""


def pause_ms(length_ms: float) -> None:
    """Sleep in a disk thread that limits its own rate; never on the event loop."""
    time.sleep(length_ms / 1000.0)


def one_at_a_time() -> AbstractContextManager[bool]:
    """A lock: one thread holds it, the others wait."""
    return threading.Lock()


class Executor(Protocol):
    """Runs blocking work away from the loop."""

    def submit(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Run `work(*arguments)`; the future of the running loop has its result or exception."""
        ...

    def call(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work()`, then `done(result, error)` on the loop that called.

        Where the job is refused, `done` gets NoThread before this returns.
        """
        ...

    def run_all(self, works: Sequence[Callable[[], object]], own_threads: int = 0) -> list[Exception | None]:
        """Run all and wait for them; returns the exception of each that raised one. `own_threads` gives the number of
        threads started for this call alone.
        """
        ...

    def close(self) -> None:
        """Finish the submitted jobs and stop the threads; closing twice does nothing."""
        ...


class DiskExecutor:
    """A bounded number of threads, started when first needed."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        #: Jobs submitted and not finished yet.
        self.pending = 0

    def submit(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """See `Executor.submit`. Raises NoThread when closed or when far too many jobs wait."""
        if self._closed:
            raise NoThread("the disk threads are stopped")
        if self.pending >= MAX_WAITING_JOBS:
            raise NoThread(f"{self.pending} jobs wait for the disk threads")
        self.pending += 1
        job: Future[T] = self._threads_ready().submit(work, *arguments)
        future = asyncio.wrap_future(job)
        future.add_done_callback(self._finished)
        return future

    def _threads_ready(self) -> ThreadPoolExecutor:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="ottla-disk")
        return self._pool

    def _finished(self, future: asyncio.Future[Any]) -> None:
        self.pending -= 1

    def call(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """See `Executor.call`."""

        def deliver(future: asyncio.Future[T]) -> None:
            if future.cancelled():
                done(None, asyncio.CancelledError())
                return
            error = future.exception()
            done(None if error is not None else future.result(), error)

        try:
            future = self.submit(work)
        except NoThread as refused:
            done(None, refused)
            return
        future.add_done_callback(deliver)

    def run_all(self, works: Sequence[Callable[[], object]], own_threads: int = 0) -> list[Exception | None]:
        """See `Executor.run_all`."""
        if len(works) <= 1:
            return _run_here(works)
        if own_threads:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(own_threads, thread_name_prefix="ottla-disk-own") as pool:
                return list(pool.map(_outcome, works))
        return list(self._threads_ready().map(_outcome, works))

    def close(self) -> None:
        """See `Executor.close`."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


class InlineExecutor:
    """Runs jobs at once in the caller: for tests, the simulator and tools without a loop."""

    def submit(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """See `Executor.submit`; needs a running loop for its future."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def call(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """See `Executor.call`."""
        try:
            result = work()
        except Exception as error:
            done(None, error)
            return
        done(result, None)

    def run_all(self, works: Sequence[Callable[[], object]], own_threads: int = 0) -> list[Exception | None]:
        """See `Executor.run_all`."""
        return _run_here(works)

    def close(self) -> None:
        """Nothing to stop."""


def _outcome(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:
        return error
    return None


def _run_here(works: Sequence[Callable[[], object]]) -> list[Exception | None]:
    return [_outcome(work) for work in works]
