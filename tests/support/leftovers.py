"""Processes that a test run has started and not ended, wherever they hang in the tree of processes, and open files."""

from __future__ import annotations

import gc
import os

import psutil

#: In the environment of all that a run starts: the ids of the runs that it is part of, the innermost last.
RUN_VARIABLE = "OTTLA_TEST_RUN"
#: Helpers of Python's own that end with the interpreter.
OWN_CHILDREN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
#: Files and sockets that a process may have open between two files of tests: select() takes no number above 1,023.
MOST_OPEN_FILES = 300


def leftover_files() -> int:
    """The number of files and sockets that are open, garbage not counted, if there are too many, else 0."""
    if len(os.listdir("/dev/fd")) <= MOST_OPEN_FILES:
        return 0
    gc.collect()
    found = len(os.listdir("/dev/fd"))
    return found if found > MOST_OPEN_FILES else 0


def mark_this_run() -> str:
    """Give everything that this process starts from now on the mark of a run of its own, and give that mark."""
    mark = str(os.getpid())
    os.environ[RUN_VARIABLE] = f"{os.environ.get(RUN_VARIABLE, '')} {mark}".strip()
    return mark


def leftover_children() -> list[psutil.Process]:
    """What this process and its children have started and not ended."""
    return [child for child in psutil.Process().children(recursive=True) if _is_leftover(child)]


def leftovers_of_run(mark: str) -> list[psutil.Process]:
    """What the run has started and not ended, orphans too; not this process."""
    found = leftover_children()
    known = {os.getpid(), *(process.pid for process in found)}
    for process in psutil.process_iter():
        if process.pid not in known and mark in _runs_of(process) and _is_leftover(process):
            found.append(process)
    return found


def end_all(processes: list[psutil.Process]) -> list[str]:
    """Kill them; a line for each that says what it was."""
    lines = []
    for process in processes:
        try:
            lines.append(f"left running: {process.pid} {' '.join(process.cmdline())[:200]}")
            process.kill()
        except psutil.NoSuchProcess:
            continue
    return lines


def _runs_of(process: psutil.Process) -> list[str]:
    try:
        return process.environ().get(RUN_VARIABLE, "").split()
    except psutil.Error:
        return []


def _is_leftover(process: psutil.Process) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        command = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
    return not any(own in command for own in OWN_CHILDREN)
