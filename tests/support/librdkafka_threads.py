"""Whether a client of librdkafka is deadlocked: its main thread, which runs once a second at least, does not run.

librdkafka 2.16 takes two locks in one order when a broker has left the metadata, and in the other one when the answer
to OffsetForLeaderEpoch is lost (its issue 5476). Then a consumer is silent for good, and no broker can help it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from support.waiting import wait_until

T = TypeVar("T")

#: A main thread that has not run for so long will not run again.
DEADLOCKED_S = 20.0
TASKS = Path("/proc/self/task")
NAME = "rdk:main"
SWITCHES = "voluntary_ctxt_switches"

#: Clients are made one after the other, so that each new main thread belongs to the client just made.
_making = threading.Lock()


class MainThread:
    """The main thread of one client."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._switches = -1
        self._since_s = 0.0

    def is_deadlocked(self, now_s: float | None = None) -> bool:
        """Whether it has not run since the first of several calls, for long. False where that cannot be seen."""
        switches = self.switches()
        at_s = time.monotonic() if now_s is None else now_s
        if switches is None:
            return False
        if switches != self._switches:
            self._switches, self._since_s = switches, at_s
        return at_s - self._since_s >= DEADLOCKED_S

    def switches(self) -> int | None:
        """How often it has given up the processor; None if it has ended, or is not known."""
        if self.folder is None:
            return None
        try:
            lines = (self.folder / "status").read_text().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) for line in lines if line.startswith(SWITCHES)), None)


def with_main_thread(make: Callable[[], T]) -> tuple[T, MainThread]:
    """Make a client of librdkafka; it, and its main thread."""
    with _making:
        before = _main_threads()
        client = make()
        new = _new_main_threads(before)
    return client, MainThread(new.pop() if len(new) == 1 else None)


def _new_main_threads(before: set[Path]) -> set[Path]:
    """Those that were not there before: a thread names itself, which on a busy machine may take a moment."""
    if not TASKS.exists():
        return set()
    return wait_until(lambda: _main_threads() - before, "the main thread of a client of librdkafka")


def _main_threads() -> set[Path]:
    found = set()
    for folder in TASKS.iterdir() if TASKS.exists() else ():
        try:
            if (folder / "comm").read_text().strip() == NAME:
                found.add(folder)
        except OSError:
            continue
    return found
