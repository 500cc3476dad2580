"""Long work is cut into slices: others get their turn, one work a turn, and what is short never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from ottla.broker.slices import CHUNK_ITEMS, ITEMS_PER_SLICE, SLICE_MS, LoopSlices, start
from ottla.env.clock import VirtualClock

STEP_MS = 1


class Work:
    """Steps of one millisecond each, in virtual time."""

    def __init__(self, slices: LoopSlices, clock: VirtualClock, name: str, seen: list[str]) -> None:
        self.slices = slices
        self.clock = clock
        self.name = name
        self.seen = seen

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await self.slices.point()
            self.clock.advance(STEP_MS)
            self.seen.append(self.name)


def test_short_work_ends_at_once_without_a_loop() -> None:
    clock = VirtualClock()
    slices = LoopSlices(clock.monotonic_ms)
    seen: list[str] = []
    slices.begin()
    assert start(Work(slices, clock, "a", seen).run(int(SLICE_MS))) is None
    assert seen == ["a"] * int(SLICE_MS)


def test_works_take_turns_and_others_come_between() -> None:
    clock = VirtualClock()
    slices = LoopSlices(clock.monotonic_ms)
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tasks = []
        for name in "ab":
            slices.begin()
            rest = start(Work(slices, clock, name, seen).run(12))
            assert rest is not None
            tasks.append(loop.create_task(rest))
        while not all(task.done() for task in tasks):
            seen.append("|")
            await asyncio.sleep(0)

    asyncio.run(main())
    runs = [run for run in "".join(seen).split("|") if run]
    assert "".join(runs).count("a") == "".join(runs).count("b") == 12
    assert runs[1:] == ["aaaaa", "bbbbb", "aa", "bb"], "one slice of one work in a turn"


def test_the_rest_can_be_cancelled_and_ends_the_coroutine() -> None:
    clock = VirtualClock()
    slices = LoopSlices(clock.monotonic_ms)
    ended: list[str] = []

    async def endless() -> None:
        try:
            while True:
                clock.advance(STEP_MS)
                await slices.point()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def main() -> None:
        slices.begin()
        rest = start(endless())
        assert rest is not None
        task = asyncio.get_running_loop().create_task(rest)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["cancelled"]


def test_what_a_started_work_raises_comes_out_at_once_or_later() -> None:
    clock = VirtualClock()
    slices = LoopSlices(clock.monotonic_ms)

    async def fails(steps: int) -> None:
        for _ in range(steps):
            await slices.point()
            clock.advance(STEP_MS)
        raise KeyError("broken")

    async def main() -> None:
        slices.begin()
        with pytest.raises(KeyError):
            start(fails(1))
        rest = start(fails(20))
        assert rest is not None
        with pytest.raises(KeyError):
            await rest

    asyncio.run(main())


def test_a_generator_is_run_through_and_gives_its_result() -> None:
    clock = VirtualClock()
    slices = LoopSlices(clock.monotonic_ms)

    def steps() -> Generator[None, None, str]:
        for _ in range(20):
            clock.advance(STEP_MS)
            yield
        return "done"

    async def main() -> None:
        others = 0
        task = asyncio.get_running_loop().create_task(slices.through(steps()))
        while not task.done():
            others += 1
            await asyncio.sleep(0)
        assert task.result() == "done"
        assert others >= 20 / SLICE_MS

    asyncio.run(main())


def test_what_is_remembered_is_freed_in_slices() -> None:
    class Slow:
        def __del__(self) -> None:
            clock.advance(STEP_MS)

    clock = VirtualClock()
    slices = LoopSlices(clock.monotonic_ms)
    remembered = [Slow() for _ in range(3 * int(SLICE_MS))]
    turns = 0

    async def scenario() -> None:
        nonlocal turns
        emptying = asyncio.ensure_future(slices.empty(remembered))
        slices.begin()
        while not emptying.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert not remembered
    assert turns > 3


def test_repetitions_are_left_out_in_slices() -> None:
    clock = VirtualClock()
    slices = LoopSlices(clock.monotonic_ms)
    items = [number % 700 for number in range(3 * ITEMS_PER_SLICE)]
    found: dict[int, str] = {}
    looks = 0

    class Counting(LoopSlices):
        async def point(self) -> None:
            nonlocal looks
            looks += 1

    async def scenario() -> None:
        found.update(await Counting(clock.monotonic_ms).distinct(items, "new"))
        assert await slices.distinct([], "new") == {}

    asyncio.run(scenario())
    assert list(found) == list(range(700))
    assert set(found.values()) == {"new"}
    assert looks == 3
    assert not items, "freed meanwhile"


@pytest.mark.parametrize("count", [0, 1, CHUNK_ITEMS, CHUNK_ITEMS + 1, 3 * CHUNK_ITEMS])
def test_parts_are_all_items_in_order(count: int) -> None:
    async def scenario() -> list[int]:
        slices = LoopSlices(lambda: 0.0)
        return [item async for part in slices.chunks(iter(range(count))) for item in part]

    assert asyncio.run(scenario()) == list(range(count))
