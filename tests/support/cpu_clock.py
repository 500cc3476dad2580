"""Measuring processor time: of another process, to the nanosecond, and of this one without its garbage collections."""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil

#: The lowest bits of a clock id: the scheduler's own account (CPUCLOCK_SCHED) of a process.
_CLOCK_OF_PROCESS: Final = 2


def process_cpu_seconds(pid: int) -> float:
    """Processor time of all threads so far, ended ones included, user and system together.

    Linux has a clock for each process (`clock_getcpuclockid`); elsewhere the time is as exact as psutil's. Raises
    OSError or psutil.Error if there is no such process.
    """
    if platform.system() == "Linux":
        return time.clock_gettime((~pid << 3) | _CLOCK_OF_PROCESS)
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect garbage now, and not meanwhile: a full collection takes the longer, the more tests a process has run."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
