"""The turns of logs to be flushed: each once in an interval, and not all at the same time."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.executor import InlineExecutor
from ottla.storage.flush_queue import FlushTurns
from ottla.storage.log import PartitionLog
from ottla.storage.manager import LogManager
from ottla.storage.upkeep import StorageSettings
from ottla.testing.disk_memory import MemoryDisk
from support.storage_logs import NOW_MS, append, log_config

pytestmark = pytest.mark.spec("L6")

INTERVAL_MS = 5000


class Folder:
    """Stands for a log."""

    def __init__(self, number: int) -> None:
        self.directory = f"/logs/t-{number}"


def test_flushes_of_an_interval_are_spread_over_it() -> None:
    clock = VirtualClock(NOW_MS)
    settings = StorageSettings(flush_interval_ms=INTERVAL_MS)
    manager = LogManager(MemoryDisk(), clock, InlineExecutor(), ["/logs"], lambda _: log_config(), settings)
    assert manager.open() is None
    logs = [manager.create("t", None, number) for number in range(100)]
    for _ in range(2):
        for log in logs:
            append(log)
        flushed: list[PartitionLog] = []
        for _ in range(5):
            clock.advance(1000)
            list(manager.upkeep.maintain(clock.now_ms()))
            now = [log for log in logs if log.recovery_point == log.log_end_offset and log not in flushed]
            assert 5 <= len(now) <= 40, "about a fifth of them each second"
            flushed += now
        assert len(flushed) == len(logs)
    manager.close()


@pytest.mark.parametrize("steps", [[1] * 5000, [4999, 1], [1700, 1700, 1600], [37] * 135 + [5]])
def test_each_log_has_one_turn_in_an_interval_whatever_the_steps(steps: list[int]) -> None:
    assert sum(steps) == INTERVAL_MS
    logs: list[Any] = [Folder(number) for number in range(50)]
    turns, now_ms = FlushTurns(INTERVAL_MS, NOW_MS), NOW_MS
    taken: list[PartitionLog] = []
    for step in steps:
        now_ms += step
        taken += filter(turns.begin(now_ms), logs)
    assert len(taken) == len(set(map(id, taken))) == len(logs)
    assert list(filter(turns.begin(now_ms), logs)) == [], "no time has passed"
    assert len(list(filter(turns.begin(now_ms + 12_345), logs))) == len(logs), "once, however late"
    assert len(list(filter(turns.begin(now_ms - 1), logs))) == len(logs), "the wall clock was set back"
