"""The machine that a benchmark ran on, and what else ran there meanwhile."""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from pathlib import Path

import psutil

GIB = 1024**3


def describe() -> str:
    """Processor, memory, system and Python in one line."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    model = found[1] if found else platform.processor() or platform.machine()
    memory = psutil.virtual_memory().total / GIB
    return (
        f"{os.cpu_count()} × {model}, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


class Bystanders:
    """How much of the machine other people's processes used, which spoils figures."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._busy = _busy_s()
        self._ours = _own_s()

    def share(self) -> float:
        """Their share of all processors' time since the beginning. Ask when all own child processes have ended."""
        others = (_busy_s() - self._busy) - (_own_s() - self._ours)
        return max(0.0, others) / ((time.monotonic() - self._begun) * (os.cpu_count() or 1))


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times)) - float(times.idle) - float(getattr(times, "iowait", 0.0))


def _own_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
