"""The application's rebalance listener, called in a thread of its own: it may block, and call the connector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from ottla.client.errors import ClientError
from ottla.env.futures import settle
from ottla.env.threads import Thread
from ottla.zkconsumer.rebalancer import GlobalAssignment, Owned


class ConsumerRebalanceListener:
    """Override the methods you need. One thread per connector calls them, and the rebalance waits for them. An
    exception makes the attempt fail; it is repeated after `rebalance.backoff.ms`.
    """

    def before_releasing_partitions(self, partition_ownership: Owned) -> None:
        """The fetchers are stopped, and the streams empty: this is the moment to finish, and to commit offsets."""

    def before_starting_fetchers(self, consumer_id: str, global_partition_assignment: GlobalAssignment) -> None:
        """The consumer owns its part of what the group's threads own; nothing of it was fetched yet."""


_Call = tuple[Callable[[], None], "asyncio.Future[None]", asyncio.AbstractEventLoop]


class ListenerThread:
    """`RebalanceHooks` for a loop, over a listener in a thread."""

    def __init__(self, listener: Any, name: str) -> None:
        self._listener = listener
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: Thread | None = None

    async def before_releasing_partitions(self, owned: Owned) -> None:
        """See `RebalanceHooks`."""
        await self._call("before_releasing_partitions", owned)

    async def before_starting_fetchers(self, consumer: str, assignment: GlobalAssignment) -> None:
        """See `RebalanceHooks`."""
        await self._call("before_starting_fetchers", consumer, assignment)

    def stop(self) -> None:
        """Let the thread end when the call under way has, without waiting for it."""
        self._calls.put(None)

    async def _call(self, name: str, *args: object) -> None:
        method = getattr(self._listener, name, None)
        if method is None:
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if self._thread is None:
            self._thread = Thread(target=_serve, args=(self._calls,), name=self._name, daemon=True)
            self._thread.start()
        self._calls.put((lambda: method(*args), done, loop))
        await done


def _serve(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        work, done, loop = call
        error: Exception | None = None
        try:
            work()
        except StopIteration as raised:  # which a future does not take
            error = _raised(raised)
        except Exception as raised:
            error = raised
        except BaseException as raised:  # sys.exit(), say: the rebalance would wait for ever
            error = _raised(raised)
        with suppress(RuntimeError):  # the connector was shut down meanwhile
            loop.call_soon_threadsafe(settle, done, None, error)


def _raised(error: BaseException) -> ClientError:
    return ClientError(f"the rebalance listener raised {error!r}")
