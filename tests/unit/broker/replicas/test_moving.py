"""Moves between log directories where something else has changed them."""

from __future__ import annotations

import asyncio

import pytest

from ottla.env.clock import VirtualClock
from ottla.records.record import Record
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
