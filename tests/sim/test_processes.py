"""Processes of a simulation: paused ones do nothing and miss nothing, killed ones never run again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.sim.processes import ProcessLoop, SimulatedProcess, current_process


def play(script: Callable[[ProcessLoop], Coroutine[Any, Any, None]]) -> None:
    loop = ProcessLoop()
    loop.run_and_close(script(loop))


async def ticks(seen: list[float]) -> None:
    loop = asyncio.get_running_loop()
    try:
        while True:
            await asyncio.sleep(1.0)  # sleep: virtual
            seen.append(loop.time())
    finally:
        seen.append(-1.0)


def test_a_paused_process_goes_on_where_it_was() -> None:
    async def script(loop: ProcessLoop) -> None:
        seen: list[float] = []
        process = loop.process("one")
        process.start(ticks(seen))
        await asyncio.sleep(2.5)  # sleep: virtual
        process.pause()
        await asyncio.sleep(3.0)  # sleep: virtual
        assert seen == [1.0, 2.0]
        process.resume()
        await asyncio.sleep(1.5)  # sleep: virtual
        assert seen == [1.0, 2.0, 5.5, 6.5]

    play(script)


def test_a_killed_process_does_not_even_clean_up() -> None:
    seen: list[float] = []

    async def script(loop: ProcessLoop) -> None:
        process = loop.process("one")
        process.start(ticks(seen))
        await asyncio.sleep(1.5)  # sleep: virtual
        process.kill()
        process.resume()
        await asyncio.sleep(5.0)  # sleep: virtual
        gc.collect()
        assert seen == [1.0]
        assert not loop.failures

    play(script)
    assert seen == [1.0, -1.0], "its coroutines are closed after the end of the simulation"


def test_what_a_process_starts_belongs_to_it() -> None:
    async def script(loop: ProcessLoop) -> None:
        one, other = loop.process("one"), loop.process("other")
        found: list[SimulatedProcess | None] = []

        async def work() -> None:
            loop.call_soon(lambda: found.append(current_process()))
            loop.call_later(1.0, lambda: found.append(current_process()))
            await asyncio.create_task(nested())

        async def nested() -> None:
            found.append(current_process())

        await one.start(work())
        await asyncio.sleep(2.0)  # sleep: virtual
        assert found == [one, one, one]
        assert other.run(current_process) is other
        assert current_process() is None

    play(script)


def test_a_timer_that_is_cancelled_during_a_pause_does_not_run() -> None:
    async def script(loop: ProcessLoop) -> None:
        process = loop.process("one")
        seen: list[str] = []
        timer = process.run(loop.call_later, 1.0, seen.append, "timer")
        process.run(loop.call_later, 1.0, seen.append, "another")
        process.pause()
        await asyncio.sleep(2.0)  # sleep: virtual
        timer.cancel()
        process.resume()
        await asyncio.sleep(1.0)  # sleep: virtual
        assert seen == ["another"]

    play(script)


def test_failures_of_processes_are_kept() -> None:
    async def script(loop: ProcessLoop) -> None:
        process = loop.process("one")
        process.run(loop.call_soon, int, "x")
        await asyncio.sleep(1.0)  # sleep: virtual
        ((who, what),) = loop.failures
        assert who == "one"
        assert "ValueError" in what

    play(script)
