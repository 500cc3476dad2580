"""Processes of this machine, as far as a runner's heartbeat needs them."""

from __future__ import annotations

import os
import socket


def host_name() -> str:
    """The name of this machine, as heartbeats have it."""
    return socket.gethostname()


def process_exists(pid: int) -> bool:
    """Whether this machine has such a process, of any user."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
