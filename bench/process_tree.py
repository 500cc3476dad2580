"""Processor time and memory of a process and all its descendants, read from Linux's /proc."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import psutil

#: A sample adds up the page tables of some gigabytes, which takes milliseconds.
SAMPLE_EVERY_S = 0.2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ProcessTree:
    """A process that runs, and those that it started."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)

    def cpu_seconds(self) -> float:
        """User and system time of all of them so far, and of those that ended and were waited for."""
        return sum(_cpu_seconds(pid) for pid in self.pids())

    def memory_bytes(self) -> dict[str, int]:
        """Memory by program, as the kernel's proportional set size: shared pages are divided among their users."""
        found: dict[str, int] = {}
        for pid in self.pids():
            program, size = _memory_bytes(pid)
            found[program] = found.get(program, 0) + size
        return found

    def pids(self) -> list[int]:
        """The processes, parents before their children."""
        return [self._root.pid, *(each.pid for each in self._root.children(recursive=True))]


class PeakMemory:
    """Watches a process tree in a thread from its creation to `stop`."""

    def __init__(self, tree: ProcessTree) -> None:
        self._tree = tree
        self._peak: dict[str, int] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while True:
            found = self._tree.memory_bytes()
            if sum(found.values()) > sum(self._peak.values()):
                self._peak = found
            if self._is_over.wait(SAMPLE_EVERY_S):
                return

    def stop(self) -> dict[str, int]:
        """Memory by program at the moment at which the sum was largest."""
        self._is_over.set()
        self._thread.join()
        return self._peak


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its ended children that it waited for; nothing if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    # After the name, which may contain anything: utime, stime, cutime, cstime are the fields 14 to 17.
    return sum(map(int, stat.rpartition(")")[2].split()[11:15])) / _TICKS_PER_S


def _memory_bytes(pid: int) -> tuple[str, int]:
    try:
        program = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:  # It has ended, or is just ending.
        return "", 0
    sizes = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return program, sum(sizes) * 1024
