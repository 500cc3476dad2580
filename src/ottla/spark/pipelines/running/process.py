"""Processes of this machine, as far as a runner's heartbeat needs them."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def host_name() -> str:
    """The name of this machine, as heartbeats have it."""
    return socket.gethostname()


def process_start(pid: int) -> str | None:
    """When a process of this machine started, as Linux counts it; it tells apart two that had one number.

    None where that is not known: on other systems, and of a process that is gone.
    """
    found = _stat(pid)
    return None if found is None else found[19]


def is_running(pid: int, start: str | None) -> bool:
    """Whether this machine has such a process, of any user, which is that of this `process_start` if both are known."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    found = _stat(pid)
    if found is None:
        return True
    has_ended = found[0] in ("Z", "X")  # Its parent has not asked yet how it ended.
    return not has_ended and start in (None, found[19])


def _stat(pid: int) -> list[str] | None:
    """The words of /proc/PID/stat after the name, which may hold any character: the state first, see proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
