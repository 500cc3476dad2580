"""Waiting for a condition, never for luck."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

#: For what takes a moment on a quiet machine: a busy one has held processes up for more than a minute.
WAIT_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.01


def wait_until(
    condition: Callable[[], T],
    what: str | Callable[[], str],
    timeout_s: float = WAIT_TIMEOUT_S,
    interval_s: float = POLL_INTERVAL_S,
) -> T:
    """The first true value of `condition`; an AssertionError naming `what` was waited for after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            name = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {timeout_s:g} s in vain for {name}")
        time.sleep(interval_s)


async def until(condition: Callable[[], object], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
    """Let the event loop run until the condition holds; an AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain for {what}"
        await asyncio.sleep(POLL_INTERVAL_S)


def wait_until_ended(pid: int, timeout_s: float = WAIT_TIMEOUT_S) -> None:
    """Until the child process has ended, which somebody has to wait for afterwards, as always."""
    wait_until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), f"process {pid}", timeout_s)


class Stopwatch:
    """How long something took, without the time in which the machine had no core left for it.

    So a limit of a second holds on a busy machine as it does on a quiet one. Counted are the threads of this process
    and of the processes named (Linux; elsewhere nothing is taken off). Threads that wait at the same time count each.
    """

    def __init__(self, *pids: int) -> None:
        self._pids = (os.getpid(), *pids)
        self._kept_waiting_s = self._without_core_s()
        self._began_at = time.monotonic()

    def seconds(self) -> float:
        """Since it was made. Processes that have ended since must not have been waited for yet."""
        elapsed_s = time.monotonic() - self._began_at
        return max(0.0, elapsed_s - max(0.0, self._without_core_s() - self._kept_waiting_s))

    def _without_core_s(self) -> float:
        nanoseconds = 0
        for pid in self._pids:
            folder = Path(f"/proc/{pid}/task")
            for thread in os.listdir(folder) if folder.exists() else ():
                with suppress(OSError, IndexError):  # the thread has ended
                    nanoseconds += int((folder / thread / "schedstat").read_text().split()[1])
        return nanoseconds / 1e9
