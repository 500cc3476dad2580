"""A thread that runs the event loop of a test broker, and calls into it from other threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from ottla.testing.errors import TestBrokerError
from ottla.testing.movable_time import MovableTimeLoop

T = TypeVar("T")

#: Time for the loop's thread to end, in seconds.
END_TIMEOUT_S: Final = 10.0
#: Time for what is cancelled at the end to clean up, in seconds.
CANCEL_TIMEOUT_S: Final = 5.0


class LoopHost:
    """One event loop in a thread of its own, so that a test that blocks does not keep the broker from serving it.

    Only `submit`, `run`, `call`, `close` and `end_soon` may be used from other threads. The first three raise
    `TestBrokerError` once the loop ends, in its own thread where that would wait for itself, and in a forked process,
    which has no such thread.
    """

    def __init__(self, name: str) -> None:
        self.loop: Final = MovableTimeLoop()
        self._process = os.getpid()
        #: Held while work is handed over, so that none comes behind the end of the loop and is never answered.
        self._handing_over = threading.Lock()
        self._is_ending = False
        #: The work of `submit` that is not done.
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Tasks that the end of the loop cancelled, and not their callers.
        self._cut_off: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that has the thread."""
        return self._process != os.getpid()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` in the loop; the future has its result, or `TestBrokerError` where the loop ends before."""
        try:
            if self.is_forked:
                raise TestBrokerError(
                    f"the test broker runs in the process {self._process}, of which this one is a fork: use clients of "
                    "it here, or start a broker here"
                )
            with self._handing_over:
                if self._is_ending:
                    raise TestBrokerError("the test broker is stopped")
                return asyncio.run_coroutine_threadsafe(self._answered(work), self.loop)
        except TestBrokerError:
            work.close()
            raise

    async def _answered(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            if task in self._cut_off:
                raise TestBrokerError("the test broker was stopped in the meantime") from None
            raise
        finally:
            self._tasks.discard(task)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop, and wait for its result."""
        try:
            self.refuse_own_thread()
        except TestBrokerError:
            work.close()
            raise
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call `function(*args)` in the loop's thread, and wait for its result."""

        async def called() -> T:
            return function(*args)

        return self.run(called())

    def refuse_own_thread(self) -> None:
        """Raise `TestBrokerError` in the loop's own thread."""
        if threading.current_thread() is self._thread:
            raise TestBrokerError(
                "this call would wait for ever for the test broker's own thread, in which it was made: a function that "
                "a rule calls must not call what waits"
            )

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """End what was submitted, run `last`, then end the loop and its thread; closing twice does nothing.

        All that is done even where the caller is interrupted while it waits.
        """
        ended = self.end_soon(last)
        if ended is not None:
            ended.result()
            self._thread.join(END_TIMEOUT_S)

    def end_soon(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> Future[None] | None:
        """As `close`, without waiting for the end, which the future reports; None if it has begun before."""
        ended: Future[None] = Future()
        with self._handing_over:
            if self._is_ending:
                return None
            self._is_ending = True
            asyncio.run_coroutine_threadsafe(self._end(last, ended), self.loop)
        return ended

    async def _end(self, last: Callable[[], Coroutine[Any, Any, None]] | None, ended: Future[None]) -> None:
        try:
            await self._cancel(self._tasks)
            if last is not None:
                await last()
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)
        finally:
            self.loop.stop()

    def _serve(self) -> None:
        loop = self.loop
        try:
            loop.run_forever()
        finally:
            with self._handing_over:
                self._is_ending = True
            # Work that was handed over last becomes a task in the first turn, and begins in the second.
            for _ in range(2):
                loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(self._cancel(asyncio.all_tasks(loop)))
            loop.close()

    async def _cancel(self, tasks: set[asyncio.Task[Any]]) -> None:
        """Cancel tasks, and wait until they have cleaned up; those that do so already are left to it."""
        remaining = tasks - {asyncio.current_task()}
        for task in remaining:
            if not task.cancelling():
                self._cut_off.add(task)
                task.cancel()
        if remaining:
            await asyncio.wait(remaining, timeout=CANCEL_TIMEOUT_S)
