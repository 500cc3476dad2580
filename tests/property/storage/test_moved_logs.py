"""Random moves between two disks: nothing is lost when the process is killed or the power goes, at any byte."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right

import pytest

from ottla.env.clock import VirtualClock
from ottla.testing.disk_memory import MemoryDisk, journal_bytes, replay
from ottla.testing.disk_power import every_moment, nothing_more
from support.moved_logs import ROOTS, MoveRun, MovingBroker, Promise, served
from support.storage_logs import NOW_MS

pytestmark = [pytest.mark.spec("L9"), pytest.mark.slow]

MOMENTS = 60


async def check(run: MoveRun, disk: MemoryDisk, promise: Promise) -> None:
    """Open what is left: one log with all that was promised. The move continues, and the log stays the same."""
    broker = MovingBroker(disk, VirtualClock(NOW_MS), epoch=1000)
    log = broker.log
    found = served(log)
    for offset, value in found.items():
        assert value in run.values[offset], offset
    if promise.end > promise.start:
        assert log.log_start_offset <= promise.start, (log, promise)
    assert found.keys() >= set(range(promise.start, promise.end)), (log, promise, sorted(found), broker.logs.notes)
    assert broker.directories() == [log.directory]
    end = log.log_end_offset
    await broker.settled()
    after = served(broker.log)
    # Where a loss of power took records out of the middle, the copy may have had them.
    assert found.items() <= after.items()
    assert broker.log.log_end_offset == end
    assert all(value in run.values[offset] for offset, value in after.items())
    assert broker.directories() == [broker.log.directory]
    await broker.close()
    assert not [name for root in ROOTS for name in disk.listdir(root) if name.endswith("-future")]


def promise_at(run: MoveRun, at: int) -> Promise:
    number = bisect_right(run.promises, at, key=lambda promise: promise.at)
    return run.promises[number - 1] if number else Promise(0)


@pytest.mark.parametrize("seed", range(15))
def test_random_moves(seed: int) -> None:
    run = MoveRun(seed)
    asyncio.run(run.play(150))
    assert run.moved


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_byte(seed: int) -> None:
    run = MoveRun(seed)
    asyncio.run(run.play(80))
    chosen = random.Random(seed)
    total = journal_bytes(run.journal)
    for at in sorted(chosen.sample(range(1, total), MOMENTS)):
        # What a killed process wrote is there, whatever was flushed.
        asyncio.run(check(run, replay(run.journal, at), promise_at(run, at)))


#: The last ones lost records while the files of truncated logs and the removal of markers were not synced.
@pytest.mark.parametrize("seed", [*range(4), 47, 57, 104, 111])
def test_the_power_goes_at_any_byte(seed: int) -> None:
    run = MoveRun(seed + 100)
    asyncio.run(run.play(80))
    chosen = random.Random(seed)
    wanted = set(chosen.sample(range(1, journal_bytes(run.journal)), MOMENTS))
    for at, power in every_moment(run.journal, wanted):
        promise = promise_at(run, at)
        asyncio.run(check(run, power.survivor(nothing_more), promise))
        asyncio.run(check(run, power.survivor(random.Random(at).randrange), promise))


def test_killed_after_each_change_of_one_move() -> None:
    """Every rename, marker and checkpoint of a move is a moment to be killed at."""
    run = MoveRun(0)

    async def one_move() -> None:
        run.broker = MovingBroker(run.disk, run.clock)
        for _ in range(12):
            run._append()
        run.broker.log.flush(run.clock.now_ms())
        run.acknowledged = run.broker.log.log_end_offset
        run._promise()
        other = next(root for root in ROOTS if not run.broker.log.directory.startswith(root))
        run.broker.move(other)
        await run.broker.settled()
        run._append()
        await run.broker.close()

    asyncio.run(one_move())
    begun = run.promises[-1].at
    count = 0
    for at in range(begun + 1, journal_bytes(run.journal), 7):
        asyncio.run(check(run, replay(run.journal, at), run.promises[-1]))
        count += 1
    for at, power in every_moment(run.journal, set(range(begun + 1, journal_bytes(run.journal), 13))):
        asyncio.run(check(run, power.survivor(nothing_more), run.promises[-1]))
        asyncio.run(check(run, power.survivor(random.Random(at).randrange), run.promises[-1]))
    assert count > 100
