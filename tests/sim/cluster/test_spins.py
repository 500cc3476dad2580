"""Processes of a simulation that spin are named."""

from __future__ import annotations

import asyncio

from ottla.sim.processes import ProcessLoop
from support.simulated_cluster.spins import watch_for_spins


def test_a_process_that_looks_around_each_millisecond_is_named_once_for_each_time() -> None:
    async def look_around(every_s: float, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(every_s)  # sleep: virtual

    async def story() -> None:
        watching = loop.create_task(watch_for_spins(loop, found.append))
        idle = loop.process("idle").start(look_around(0.1, 200))
        loop.process("busy").start(look_around(0.001, 6_000))
        await idle
        watching.cancel()

    loop = ProcessLoop()
    found: list[str] = []
    loop.run_and_close(story())
    (spinning,) = found
    assert spinning.startswith("busy spins: ")
    assert spinning.endswith(" callbacks from 0 s to 5 s")
