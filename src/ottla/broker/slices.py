"""Long work on the event loop, divided into slices, so that a large request does not block others.

Work that may be long is a coroutine that calls `point` after each piece of it (one topic, one group, a few hundred
array elements):

    async def _describe(context: RequestContext, names: Iterable[str]) -> None:
        slices = context.broker.slices
        for name in names:
            await slices.point()
            ...

`point` returns at once until `SLICE_MS` are used up; then it waits for another slice, before which sockets and timers
are served. However many coroutines are under way, one of them gets a slice each time, first come, first served. No
piece between two points may take longer than a few milliseconds.

How a coroutine is started decides what happens when its client disconnects:

- `RequestContext.run` starts it at once, without a task: work that ends within its first slice costs next to nothing.
  It is cancelled at a point when the connection closes: for work that may be left undone.
- `RequestContext.spawn` makes a task of it, which continues without the client: for work that must be finished once it
  was begun. Such work may check `context.is_gone` where it can end early.

Both are cancelled when the broker stops.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Sequence
from itertools import islice
from types import coroutine
from typing import Any, Final, TypeVar

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")

#: Length of a slice.
SLICE_MS: Final = 5.0
#: Items of a plain collection that are handled between two looks at the clock, some tens of microseconds.
ITEMS_PER_SLICE: Final = 256
#: Items of a request or response that are given out together: to decode and make one may take 10 microseconds.
CHUNK_ITEMS: Final = 32


class LoopSlices:
    """Shares one event loop between long-running work of a broker. `monotonic_ms` is the broker's clock."""

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._ends_ms = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def begin(self) -> None:
        """Begin a slice now: for work started by an event of its own, such as a request's arrival."""
        self._ends_ms = self._monotonic_ms() + SLICE_MS

    @property
    def is_over(self) -> bool:
        """Whether the slice is used up, so that `point` would wait."""
        return self._monotonic_ms() >= self._ends_ms

    async def point(self) -> None:
        """Wait for the next slice if the present one is used up; otherwise return at once."""
        if self._monotonic_ms() >= self._ends_ms:
            await self.pause()

    async def pause(self) -> None:
        """Wait for the next slice."""
        slice_: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(slice_)
        self._schedule()
        await slice_
        self.begin()

    async def chunks(self, items: Iterable[T]) -> AsyncIterator[Sequence[T]]:
        """The items, `CHUNK_ITEMS` at a time, with a `point` before the first of them and after each chunk.

        They are only iterated: a long array of a request can do no more (`ottla.wire.sliced.LazyArray`).
        """
        await self.point()
        rest = iter(items)
        while chunk := list(islice(rest, CHUNK_ITEMS)):
            yield chunk
            await self.point()

    async def through(self, work: Generator[None, None, T]) -> T:
        """Run a generator that yields after each piece of its work to its end; return its result."""
        try:
            while True:
                next(work)
                if self._monotonic_ms() >= self._ends_ms:
                    await self.pause()
        except StopIteration as end:
            result: T = end.value
            return result

    async def distinct(self, items: list[K], value: V) -> dict[K, V]:
        """Empty a long list; returns its items without repetitions, in their order, each with `value`."""
        found: dict[K, V] = {}
        items.reverse()
        while items:
            found.update(dict.fromkeys(reversed(items[-ITEMS_PER_SLICE:]), value))
            del items[-ITEMS_PER_SLICE:]
            await self.point()
        return found

    async def empty(self, remembered: set[Any] | list[Any] | dict[Any, Any]) -> None:
        """Empty a large collection: to free hundreds of thousands of objects at once takes tens of milliseconds."""
        pop = remembered.popitem if isinstance(remembered, dict) else remembered.pop
        while remembered:
            pop()
            if self._monotonic_ms() >= self._ends_ms:
                await self.pause()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Give a slice to the work that has waited longest."""
        self._is_scheduled = False
        while self._waiting:
            slice_ = self._waiting.popleft()
            if not slice_.done():
                slice_.set_result(None)
                break
        if self._waiting:
            self._schedule()


def start(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None] | None:
    """Run a coroutine up to the first point at which it waits.

    Returns None if it has ended, otherwise a coroutine with the rest of it, to be awaited by a task. Raises what the
    coroutine raises.
    """
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return _rest(work, awaited)


async def _rest(work: Coroutine[Any, Any, None], awaited: object) -> None:
    await _resumed(work, awaited)


@coroutine
def _resumed(work: Coroutine[Any, Any, None], awaited: object) -> Generator[object, Any, None]:
    """Continue a coroutine that is suspended on `awaited`: the task that drives this one waits for it."""
    try:
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                awaited = work.throw(error)
            else:
                awaited = work.send(sent)
    except StopIteration:
        return
