"""An asyncio event loop in virtual time: sleeping takes no real time, and runs are deterministic."""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from ottla.sim.witness import Wrong

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LEAST_DELAY_S = 1e-6
"""The shortest delay. The rest of a millisecond may be too short to change the time."""
FIRST_DESCRIPTOR = 1 << 30
"""Simulated descriptors begin here; the system's own are smaller."""


class _Readiness(NamedTuple):
    """Current readiness of a simulated descriptor."""

    is_readable: Callable[[], bool]
    is_writable: Callable[[], bool]


class _VirtualSelector(selectors.BaseSelector):
    """Watches simulated descriptors only; if none is ready, the timeout passes at once in virtual time."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.turns = 0
        self.most_turns: int | None = None
        self.descriptors: dict[int, _Readiness] = {}
        #: Descriptors that may be ready: all others are not.
        self.suspects: dict[int, None] = {}
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Register a descriptor; the loop's own self-pipe, which is never written to, is never ready."""
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[key.fd] = key
        self.suspects[key.fd] = None
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Remove a descriptor."""
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The ready descriptors; if none is, advance the time.

        Raises `Wrong` if there is nothing left to wait for, and after too many turns.
        """
        self.turns += 1
        if self.most_turns is not None and self.turns > self.most_turns:
            raise Wrong(f"no end after {self.most_turns} turns of the loop, {self.passed_s:.3f} s of virtual time")
        ready = self._ready()
        if ready:
            return ready
        if timeout is None:
            raise Wrong("everybody waits, and nothing will ever happen any more")
        self.passed_s += max(0.0, timeout)
        return []

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        found = []
        for fd in list(self.suspects):
            readiness = self.descriptors.get(fd)
            key = self._keys.get(fd)
            events = 0
            if readiness is not None and key is not None:
                if key.events & selectors.EVENT_READ and readiness.is_readable():
                    events |= selectors.EVENT_READ
                if key.events & selectors.EVENT_WRITE and readiness.is_writable():
                    events |= selectors.EVENT_WRITE
            if key is not None and events:
                found.append((key, events))
            else:
                del self.suspects[fd]
        return found

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """The registered descriptors."""
        return self._keys


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time advances to the next deadline only when nothing can be run."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        self._next_descriptor = FIRST_DESCRIPTOR
        #: Where callbacks of the simulation itself run, whoever causes them; None: in the context of the caller.
        self.outside: contextvars.Context | None = None
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._virtual.passed_s

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See `asyncio.loop.call_later`: later is later, however little."""
        if delay > 0:
            delay = max(delay, LEAST_DELAY_S)
        return self.call_at(self.time() + delay, callback, *args, context=context)

    @property
    def now_ms(self) -> int:
        """Milliseconds of virtual time since the loop was made."""
        return round(self._virtual.passed_s * 1000)

    @property
    def turns(self) -> int:
        """Turns of the loop so far."""
        return self._virtual.turns

    def limit_turns(self, most: int) -> None:
        """Raise `Wrong` in a run that takes more turns: what would never end has an end, and tells so."""
        self._virtual.most_turns = most

    def new_descriptor(self, is_readable: Callable[[], bool], is_writable: Callable[[], bool]) -> int:
        """A descriptor for `add_reader` and `add_writer` whose readiness is given by these functions."""
        self._next_descriptor += 1
        self._virtual.descriptors[self._next_descriptor] = _Readiness(is_readable, is_writable)
        return self._next_descriptor

    def look_at(self, fd: int) -> None:
        """Say that a descriptor may have become ready; otherwise it is not looked at."""
        self._virtual.suspects[fd] = None

    def look_at_all(self) -> None:
        """Say that any descriptor may have become ready."""
        self._virtual.suspects.update(dict.fromkeys(self._virtual.descriptors))

    def drop_descriptor(self, fd: int) -> None:
        """Close a descriptor; closing it twice does nothing."""
        self._virtual.descriptors.pop(fd, None)


class LoopClock:
    """The clock (`env.clock.Clock`) of a virtual loop; its wall clock begins at `start_ms`."""

    def __init__(self, loop: VirtualTimeLoop, start_ms: int) -> None:
        self._loop = loop
        self._start_ms = start_ms

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, in virtual time."""
        return self._start_ms + self._loop.now_ms

    def step(self, by_ms: int) -> None:
        """Set the wall clock forwards or back."""
        self._start_ms += by_ms

    def monotonic_ms(self) -> float:
        """Milliseconds since the loop was made, in virtual time."""
        return self._loop.time() * 1000.0


def run_in_virtual_time(work: Coroutine[Any, Any, T], loop: VirtualTimeLoop | None = None) -> T:
    """Run to the end in the loop, or in a new one, and close it. Remaining tasks are cancelled."""
    with asyncio.Runner(loop_factory=lambda: loop or VirtualTimeLoop()) as runner:
        return runner.run(work)
