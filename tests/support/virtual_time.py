"""An event loop whose time passes only while nothing else is to be done: what sleeps for an hour takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Does not wait, but moves the loop's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        if not ready and timeout is not None and timeout > 0:
            self.elapsed_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Make it with `run_virtually`."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.elapsed_s


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work` on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
