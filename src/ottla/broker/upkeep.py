"""The broker's upkeep: once a second the background work on logs and partitions that is due, and on connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.slices import start
from ottla.env.clock import thread_cpu_s
from ottla.env.disk import DiskError

if TYPE_CHECKING:
    from ottla.broker.replicas.manager import ReplicaManager
    from ottla.broker.slices import LoopSlices
    from ottla.config.broker import BrokerConfig
    from ottla.env.clock import Clock
    from ottla.net.listener import ConnectionSet
    from ottla.storage.manager import LogManager

log = logging.getLogger("ottla.broker")

#: Interval of the background work on logs and connections, in seconds.
TICK_S = 1.0
#: A connection without requests for this long gives back a large receive buffer.
SHRINK_AFTER_MS = 5_000


class LoopLag:
    """How late the event loop is: the difference between when a timer was due and when it ran.

    The last and the largest lag, measured by the timer of the upkeep; 0 before the first measurement. `idle_share` is
    the part of the time between the last two measurements in which the loop's thread used no processor.
    """

    __slots__ = ("_before", "idle_share", "last_s", "max_s")

    def __init__(self) -> None:
        self.last_s = 0.0
        self.max_s = 0.0
        self.idle_share = 1.0
        self._before: tuple[float, float] | None = None

    def measured(self, due_s: float, now_s: float) -> None:
        """Record that a timer due at `due_s` ran at `now_s`, in seconds of the loop's clock."""
        self.last_s = max(0.0, now_s - due_s)
        self.max_s = max(self.max_s, self.last_s)

    def worked(self, cpu_s: float, now_s: float) -> None:
        """Record the processor time of the loop's thread so far, at `now_s`."""
        if self._before is not None and now_s > self._before[1]:
            used = (cpu_s - self._before[0]) / (now_s - self._before[1])
            self.idle_share = min(1.0, max(0.0, 1.0 - used))
        self._before = (cpu_s, now_s)


class BrokerUpkeep:
    """The timer of one broker, from `start` to `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        partitions: ReplicaManager,
        connections: ConnectionSet,
        slices: LoopSlices,
        clock: Clock,
    ) -> None:
        self.loop_lag = LoopLag()
        self._logs = logs
        self._partitions = partitions
        self._connections = connections
        self._slices = slices
        self._clock = clock
        self._idle_limit_ms = config.get_long("connections.max.idle.ms")
        #: Called at each tick.
        self.on_tick: Callable[[], None] = lambda: None
        self._tick: asyncio.TimerHandle | None = None
        #: What is left of the background work of a tick.
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the timer."""
        self._tick = asyncio.get_running_loop().call_later(TICK_S, self._on_tick)

    async def stop(self) -> None:
        """Stop the timer, and the background work of the last tick."""
        if self._tick is not None:
            self._tick.cancel()
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def _on_tick(self) -> None:
        loop = asyncio.get_running_loop()
        if self._tick is not None:
            self.loop_lag.measured(self._tick.when(), loop.time())
        self.loop_lag.worked(thread_cpu_s(), loop.time())
        self._tick = loop.call_later(TICK_S, self._on_tick)
        if self._work is None or self._work.done():
            self._slices.begin()
            rest = start(self._keep_up())
            self._work = None if rest is None else loop.create_task(rest)
        self.tend_connections(self._clock.monotonic_ms())
        self.on_tick()

    async def _keep_up(self) -> None:
        """The background work on logs and partitions that is due; with thousands of them it takes several slices."""
        try:
            await self._slices.through(self._logs.upkeep.maintain(self._clock.now_ms()))
        except DiskError as error:
            log.error("background work on the logs failed: %s", error)
        self.report_storage()
        await self._slices.through(self._partitions.maintain_in_slices())

    def tend_connections(self, now_ms: float) -> None:
        """Shrink the buffers of idle connections; close those idle for `connections.max.idle.ms`, and reset ones."""
        for connection in self._connections.snapshot():
            connection.close_if_broken()
            if connection.closed:
                continue
            idle_ms = connection.idle_ms(now_ms)
            if idle_ms > SHRINK_AFTER_MS:
                connection.shrink_if_idle()
            if 0 <= self._idle_limit_ms < idle_ms:
                connection.close_if_idle()

    def report_storage(self) -> None:
        """Log what the logs have noted for the operator."""
        for note in self._logs.notes:
            log.warning("%s", note)
        self._logs.notes.clear()
