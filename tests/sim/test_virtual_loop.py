"""The event loop in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from ottla.sim.virtual_loop import VirtualTimeLoop, run_in_virtual_time
from ottla.sim.witness import Wrong


async def passes(seconds: float) -> None:
    """Time goes by."""
    await asyncio.sleep(seconds)  # sleep: in virtual time


def test_sleeping_takes_virtual_time_alone() -> None:
    loop = VirtualTimeLoop()
    seen: list[tuple[str, int]] = []

    async def sleeper(name: str, seconds: float) -> None:
        for _ in range(3):
            await passes(seconds)
            seen.append((name, loop.now_ms))

    async def all_of_them() -> None:
        await asyncio.gather(sleeper("a", 1), sleeper("b", 0.7), passes(7 * 86_400))

    run_in_virtual_time(all_of_them(), loop)
    assert seen == [("b", 700), ("a", 1000), ("b", 1400), ("a", 2000), ("b", 2100), ("a", 3000)]
    assert loop.now_ms == 7 * 86_400_000


def test_timeouts_come_in_virtual_time() -> None:
    async def waiting() -> None:
        async with asyncio.timeout(3_600):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_in_virtual_time(waiting(), VirtualTimeLoop())


def test_time_passes_for_who_waits_however_short() -> None:
    """A timer of the milliseconds that are left may be due by less than the clock can tell."""

    async def waiting() -> None:
        await passes(18.497)
        while loop.time() < 18.498:
            await passes(1e-15)

    loop = VirtualTimeLoop()
    loop.limit_turns(5_000)
    run_in_virtual_time(waiting(), loop)
    assert loop.time() == pytest.approx(18.498, abs=1e-4)


def test_a_run_without_an_end_is_ended_after_its_turns() -> None:
    async def spinning() -> None:
        while True:
            await passes(0)

    loop = VirtualTimeLoop()
    loop.limit_turns(100)
    with pytest.raises(Wrong, match=r"no end after 100 turns of the loop, 0\.000 s"):
        run_in_virtual_time(spinning(), loop)


def test_waiting_for_what_never_comes_is_found() -> None:
    async def waiting() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Wrong, match="nothing will ever happen"):
        run_in_virtual_time(waiting(), VirtualTimeLoop())
