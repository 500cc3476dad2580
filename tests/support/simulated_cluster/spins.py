"""Finds processes that spin: busy without anything to do, until a timer or another process ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.sim.processes import ProcessLoop, SimulatedProcess

#: How long it is watched at a time, seconds, and the callbacks of a process meanwhile from which on it spins. Busy ones
#: run up to 2,000, one that looks around each millisecond 5,000 or 10,000.
WATCHED_S: Final = 5.0
SPINS_FROM: Final = 3_000


async def watch_for_spins(loop: ProcessLoop, report: Callable[[str], None]) -> None:
    """Report each process that spins, for as long as this task runs."""
    before: dict[SimulatedProcess, int] = {}
    while True:
        await asyncio.sleep(WATCHED_S)
        for process in loop.processes:
            run = process.callbacks - before.get(process, 0)
            if run >= SPINS_FROM:
                began_s = max(0.0, loop.time() - WATCHED_S)
                report(f"{process.name} spins: {run} callbacks from {began_s:.0f} s to {loop.time():.0f} s")
            before[process] = process.callbacks
