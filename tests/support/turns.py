"""Counts the turns of the loop that others get while long work continues in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ottla.broker.slices import SLICE_MS, LoopSlices

#: The clock continues by so much at each look: after two a slice is used up.
LOOK_MS = SLICE_MS / 2


class Ticking:
    """Slices by a clock that continues with each look at it."""

    def __init__(self) -> None:
        self._now_ms = 0.0
        self.slices = LoopSlices(self._look)

    def _look(self) -> float:
        self._now_ms += LOOK_MS
        return self._now_ms


def turns(work: Coroutine[Any, Any, Any]) -> int:
    """How often others had a turn of the loop before the work ended."""

    async def counted() -> int:
        count, task = 0, asyncio.ensure_future(work)
        while not task.done():
            count += 1
            await asyncio.sleep(0)
        await task
        return count

    return asyncio.run(counted())
