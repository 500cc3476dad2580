"""Which flushes the loop waits for, and which ones a thread gets."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TypeVar

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.disk import DiskError
from ottla.env.executor import InlineExecutor
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.store import QUICK_MS, FlushPace, TreeStore
from ottla.zk.tree import Create, Set

T = TypeVar("T")

pytestmark = [pytest.mark.spec("Z2")]

SESSION, OTHER = 1 << 40, (1 << 40) + 1
#: More flushes than a pace needs to know a quick disk.
SOME = 20


class CountingExecutor(InlineExecutor):
    """Counts what it is given."""

    submitted = 0

    def call(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        self.submitted += 1
        super().call(work, done)


class Listener:
    def __init__(self) -> None:
        self.forced_zxid = 0
        self.failures: list[DiskError] = []

    def forced(self, zxid: int) -> None:
        self.forced_zxid = zxid

    def failed(self, error: DiskError) -> None:
        self.failures.append(error)


class Served:
    """A store whose disk is as quick as the virtual clock says: that takes no time."""

    def __init__(self, waits_for_disk: bool = True) -> None:
        self.disk, self.executor, self.listener = FaultyDisk(MemoryDisk()), CountingExecutor(), Listener()
        self.store = TreeStore.open(
            self.disk, "/t", VirtualClock(1), self.executor, flush_on_ack=True, waits_for_disk=waits_for_disk
        )
        self.store.listen(self.listener)
        self.store.execute([Create("/a")], SESSION)

    async def write(self, transactions: int = 1) -> int:
        """Change something; returns how many flushes a thread was given for that."""
        before = self.executor.submitted
        for _ in range(transactions):
            self.store.execute([Set("/a", b"")], SESSION)
        await asyncio.sleep(0)
        assert self.store.forced_zxid == self.store.tree.last_zxid == self.listener.forced_zxid
        return self.executor.submitted - before


def test_a_pace_trusts_a_disk_that_has_been_quick_for_a_while_and_forgets_a_slow_one() -> None:
    pace = FlushPace()
    assert not pace.is_waited_for(others_ask=False), "nobody knows this disk"
    for _ in range(SOME):
        pace.took(QUICK_MS / 4)
    assert pace.is_waited_for(others_ask=False)
    assert not pace.is_waited_for(others_ask=True)
    pace.took(1000.0)
    assert not pace.is_waited_for(others_ask=False)
    for _ in range(10 * SOME):
        pace.took(QUICK_MS * 1.1)
    assert not pace.is_waited_for(others_ask=False)
    for _ in range(SOME):
        pace.took(QUICK_MS / 4)
    assert pace.is_waited_for(others_ask=False)


def test_a_quick_flush_is_waited_for_unless_others_ask() -> None:
    async def body() -> None:
        served = Served()
        assert await served.write() == 1
        for _ in range(SOME):
            await served.write()
        assert await served.write() == 0
        assert await served.write(100) == 0
        served.store.requesting_sessions |= {SESSION}
        assert await served.write() == 0, "the one that writes"
        served.store.requesting_sessions |= {SESSION, OTHER}
        assert await served.write() == 1, "somebody reads"
        assert await served.write() == 0, "and has gone"
        served.store.requesting_sessions |= {OTHER}
        assert await served.write(100) == 1

    asyncio.run(body())


def test_without_leave_every_flush_goes_to_a_thread() -> None:
    async def body() -> None:
        served = Served(waits_for_disk=False)
        for _ in range(SOME):
            assert await served.write() == 1

    asyncio.run(body())


def test_a_flush_that_was_waited_for_and_fails_ends_it_as_any_other() -> None:
    async def body() -> None:
        served = Served()
        for _ in range(SOME):
            await served.write()
        submitted = served.executor.submitted
        served.disk.fail("flush", times=1)
        served.store.execute([Set("/a", b"lost")], SESSION)
        await asyncio.sleep(0)
        assert served.executor.submitted == submitted
        assert served.listener.forced_zxid < served.store.tree.last_zxid
        assert [failure.errno for failure in served.listener.failures] == [errno.EIO]
        with pytest.raises(DiskError):
            served.store.execute([Set("/a", b"refused")], SESSION)

    asyncio.run(body())
