"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from ottla.client.errors import ClientClosedError

T = TypeVar("T")
P = ParamSpec("P")

STOP_TIMEOUT_S = 5.0


class LoopThread:
    """Runs coroutines for other threads. Threads do not survive a fork, so a child process needs its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._process = os.getpid()
        self._closed = False
        self._thread.start()

    def run(self, work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **options: P.kwargs) -> T:
        """The result of `work(*args)`, run in the loop; the caller waits. ClientClosedError where there is no loop."""
        self.check()
        future = asyncio.run_coroutine_threadsafe(work(*args, **options), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, work: Callable[[], None]) -> None:
        """Run `work()` in the loop soon; the caller does not wait."""
        self.check()
        self._loop.call_soon_threadsafe(work)

    def check(self) -> None:
        """ClientClosedError where nothing can be run any more."""
        if self._closed:
            raise ClientClosedError("the client is closed")
        if os.getpid() != self._process:
            raise ClientClosedError("this client was opened in another process; open one in each process that needs it")

    def close(self) -> None:
        """Stop the loop and the thread; in a forked child there is nothing to stop."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()
