"""Long work on the event loop, cut into slices, so that one large request holds up nobody else.

Work that may be long is a coroutine that calls `point` between its steps (one topic, one group, a few hundred array
elements):

    async def _describe(context: RequestContext, names: Iterable[str]) -> None:
        slices = context.broker.slices
        for name in names:
            await slices.point()
            ...

`point` returns at once until `SLICE_MS` are used up; then it waits for another turn of the loop, in which sockets and
timers get their share. However many works are under way, one of them gets a slice in a turn, in the order in which
they asked. No step between two points may take longer than a few milliseconds.

How a coroutine is started decides what happens when its client goes away:

- `RequestContext.run` starts it at once, without a task: what ends within its first slice costs next to nothing. It is
  cancelled at a point when the connection closes: for work that may be left undone.
- `RequestContext.spawn` makes a task of it, which goes on without the client: for what must be finished once it was
  begun. Such work may look at `context.is_gone` where it can end early.

Both are cancelled when the broker stops.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: A work gives the loop back after this long.
SLICE_MS: Final = 5.0


class LoopSlices:
    """Shares one event loop between the long works of a broker. `monotonic_ms` is the broker's clock."""

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._ends_ms = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def begin(self) -> None:
        """Begin a slice now: for work that is started by an event of its own, such as a request's arrival."""
        self._ends_ms = self._monotonic_ms() + SLICE_MS

    @property
    def is_over(self) -> bool:
        """Whether the slice is used up, so that `point` would wait."""
        return self._monotonic_ms() >= self._ends_ms

    async def point(self) -> None:
        """Wait for the next slice where the present one is used up; else return at once."""
        if self._monotonic_ms() >= self._ends_ms:
            await self.pause()

    async def pause(self) -> None:
        """Wait for the next slice."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._schedule()
        await turn
        self.begin()

    async def through(self, steps: Generator[None, None, T]) -> T:
        """Run a generator that yields between its steps to its end; returns what it returns."""
        try:
            while True:
                next(steps)
                if self._monotonic_ms() >= self._ends_ms:
                    await self.pause()
        except StopIteration as end:
            result: T = end.value
            return result

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Give a slice to the work that has waited longest."""
        self._is_scheduled = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._schedule()


def start(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None] | None:
    """Run a coroutine up to the first thing that it has to wait for.

    Returns None where it has ended, else a coroutine with the rest of it, to be awaited by a task. What it raises
    comes out here.
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
    """Go on with a coroutine that waits already; a task takes what it waits for as if it had started it."""
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
