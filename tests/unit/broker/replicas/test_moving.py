"""Moves between log directories where something else has changed them."""

from __future__ import annotations

import asyncio

import pytest

from ottla.env.clock import VirtualClock
from ottla.records.record import Record
from ottla.storage.log_directory import LogDirectory
from ottla.testing.disk_memory import MemoryDisk
from support.moved_logs import NAME, ROOTS, MovingBroker
from support.storage_logs import NOW_MS

pytestmark = pytest.mark.spec("L9")


def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    for root in ROOTS:
        disk.mkdirs(root.rpartition("/")[0])
    return disk


def test_a_future_log_in_the_directory_of_its_source_is_removed() -> None:
    """The source's disk was replaced by an empty one, and the partition begun anew beside the future log."""
    disk = new_disk()
    clock = VirtualClock(NOW_MS)

    async def play() -> None:
        broker = MovingBroker(disk, clock)
        broker.append([Record(0, NOW_MS, b"k", b"v")])
        broker.move(ROOTS[1])
        await broker.settled()
        broker.move(ROOTS[0])
        await broker.close()
        disk.remove_tree(f"{ROOTS[1]}/{NAME}")
        broker = MovingBroker(disk, clock)
        await broker.settled()
        assert broker.log.directory == f"{ROOTS[0]}/{NAME}"
        broker.append([Record(0, NOW_MS, b"k", b"again")])
        await broker.close()
        assert not [name for root in ROOTS for name in disk.listdir(root) if name.endswith("-future")]

    asyncio.run(play())


def test_a_move_takes_a_turn_of_the_loop_for_each_checkpoint() -> None:
    """With the partitions of a large broker each of them takes tens of milliseconds."""
    turns = 0
    taken: list[tuple[int, str]] = []

    async def play() -> None:
        nonlocal turns
        broker = MovingBroker(new_disk(), VirtualClock(NOW_MS))
        checkpoints = broker.logs.checkpoints
        data = checkpoints._data

        def noted(name: str, log_dir: LogDirectory) -> bytes:
            taken.append((turns, name))
            return data(name, log_dir)

        checkpoints._data = noted  # type: ignore[method-assign]
        broker.append([Record(0, NOW_MS, b"k", b"v")])
        broker.move(ROOTS[1])
        while len(broker.logs.placement.futures) or broker.mover._active:
            turns += 1
            await asyncio.sleep(0)
        assert broker.mover.moved == 1
        await broker.close()

    asyncio.run(play())
    moving = [turn for turn, _ in taken if 0 < turn < turns]
    assert len(moving) > 3
    assert len(set(moving)) == len(moving), taken
