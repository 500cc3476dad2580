"""An asyncio event loop in virtual time: sleeping takes none, and a run is the same each time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from ottla.sim.witness import Wrong

T = TypeVar("T")


class _NothingReady(selectors.BaseSelector):
    """Waits for no file: the time that it is asked to wait passes at once."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """The loop's own pipe, which nobody writes to."""
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[key.fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget it."""
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let the time pass. Raises `Wrong` where nothing is left to wait for."""
        if timeout is None:
            raise Wrong("everybody waits, and nothing will ever happen any more")
        self.passed_s += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """What is registered."""
        return self._keys


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything can be done, and goes on to the next deadline when nothing can."""

    def __init__(self) -> None:
        self._nothing = _NothingReady()
        super().__init__(self._nothing)

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._nothing.passed_s

    @property
    def now_ms(self) -> int:
        """Milliseconds of virtual time since the loop was made."""
        return round(self._nothing.passed_s * 1000)


def run_in_virtual_time(work: Coroutine[Any, Any, T], loop: VirtualTimeLoop | None = None) -> T:
    """Run to the end in the loop, or in one of its own, and close it. Tasks that are still there are cancelled."""
    with asyncio.Runner(loop_factory=lambda: loop or VirtualTimeLoop()) as runner:
        return runner.run(work)
