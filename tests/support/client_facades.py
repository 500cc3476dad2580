"""One test body for both kinds of client: those with an event loop and those without.

    def test_something(facade):
        with facade.consumer(bootstrap_servers=…) as consumer:
            consumer.assign([...])
            for record in consumer: ...

`facade` is a fixture of two parameters. The asyncio clients are driven by a loop in a thread, so that their background
work continues between calls. Callbacks (listeners, commit callbacks) run in that loop; plain methods of the client
may be called there through the same object, coroutines may not.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

CALL_TIMEOUT_S = 60.0


class Driven:
    """An asyncio client as if it were a blocking one: each call is run in the loop and waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread, make: Callable[[], Any]) -> None:
        self._loop = loop
        self._thread = thread
        self.client = self._run(make)

    def _run(self, call: Callable[[], Any]) -> Any:
        if threading.current_thread() is self._thread:
            return call()

        async def whole() -> Any:
            result = call()
            return await result if inspect.isawaitable(result) else result

        future = asyncio.run_coroutine_threadsafe(whole(), self._loop)
        try:
            return future.result(CALL_TIMEOUT_S)
        except BaseException:
            future.cancel()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._run(self.client.close)

    def __iter__(self) -> Iterator[Any]:
        return self._iterate(lambda: aiter(self.client))

    def _iterate(self, make: Callable[[], Any]) -> Iterator[Any]:
        iterator = self._run(make)
        try:
            while True:
                try:
                    yield self._run(lambda: anext(iterator))
                except StopAsyncIteration:
                    return
        finally:
            # Who stops early leaves it to the loop to close the iterator, which may be stopped before it does.
            if self._loop.is_running() and hasattr(iterator, "aclose"):
                self._run(iterator.aclose)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if not callable(found):
            return found
        if inspect.isasyncgenfunction(found):
            return lambda *args, **options: self._iterate(lambda: found(*args, **options))
        return lambda *args, **options: self._run(lambda: found(*args, **options))


class Facade:
    """Makes clients of one kind; `close` stops the loop, if there is one."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return self.kind

    @property
    def is_async(self) -> bool:
        """Whether its clients are those with an event loop."""
        return self.kind == "asyncio"

    def _make(self, name: str, *args: Any, **settings: Any) -> Any:
        import ottla.client
        import ottla.client.sync

        if not self.is_async:
            return getattr(ottla.client.sync, name)(*args, **settings)
        if self._loop is None or self._thread is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="facade", daemon=True)
            self._thread.start()
        return Driven(self._loop, self._thread, lambda: getattr(ottla.client, name)(*args, **settings))

    def consumer(self, *args: Any, **settings: Any) -> Any:
        """A `Consumer`."""
        return self._make("Consumer", *args, **settings)

    def producer(self, *args: Any, **settings: Any) -> Any:
        """A `Producer`."""
        return self._make("Producer", *args, **settings)

    def admin(self, *args: Any, **settings: Any) -> Any:
        """An `Admin`."""
        return self._make("Admin", *args, **settings)

    def simple_consumer(self, *args: Any, **settings: Any) -> Any:
        """A `SimpleConsumer`."""
        return self._make("SimpleConsumer", *args, **settings)

    def close(self) -> None:
        """Stop the loop; clients are closed before."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(60)
            self._loop.close()


FACADES = ("sync", "asyncio")
