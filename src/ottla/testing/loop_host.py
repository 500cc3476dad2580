"""A thread that runs the event loop of a test broker, and calls into it from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ottla.testing.movable_time import MovableTimeLoop

T = TypeVar("T")

#: Time for the loop's thread to end, in seconds.
END_TIMEOUT_S = 10.0


class LoopHost:
    """One event loop in a thread of its own, so that a test that blocks does not keep the broker from serving it."""

    def __init__(self, name: str) -> None:
        made: Future[MovableTimeLoop] = Future()
        self._thread = threading.Thread(target=_serve, args=(made,), name=name, daemon=True)
        self._thread.start()
        #: The loop; only `submit`, `run` and `call` may be used from other threads.
        self.loop = made.result()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` in the loop; the future has its result. RuntimeError where the loop has ended."""
        if self.loop.is_closed():
            work.close()
            raise RuntimeError("the test broker is stopped")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop, and wait for its result. RuntimeError in the loop's own thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "this call would wait for ever for the test broker's own thread, in which it was made: a function that "
                "a rule calls must not call what waits"
            )
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

    def close(self) -> None:
        """End the loop and its thread; closing twice does nothing."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(END_TIMEOUT_S)


def _serve(made: Future[MovableTimeLoop]) -> None:
    try:
        loop = MovableTimeLoop()
    except BaseException as error:
        made.set_exception(error)
        return
    made.set_result(loop)
    try:
        loop.run_forever()
        remaining = asyncio.all_tasks(loop)
        for task in remaining:
            task.cancel()
        if remaining:
            loop.run_until_complete(asyncio.wait(remaining, timeout=1.0))
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
