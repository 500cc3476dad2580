"""Free TCP ports on the loopback address."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST_PORT = 10_000
#: Where the system does not say from which port on it chooses those of outgoing connections.
USUAL_RANGE_START = 32_768
ATTEMPTS = 1000

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_chance = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """A port that was free a moment ago; prefer port 0 wherever the server can tell which port it got.

    It is none that the system gives to outgoing connections, so that a server that was killed finds it free again, and
    none that was given before. The workers of a parallel run share the ports out among themselves.
    """
    workers, worker = _place_among_workers()
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else USUAL_RANGE_START
    for _ in range(ATTEMPTS):
        port = _chance.randrange(LOWEST_PORT + worker, max(end, LOWEST_PORT + ATTEMPTS), workers)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise RuntimeError(f"no free port below {end} in {ATTEMPTS} attempts")


def _place_among_workers() -> tuple[int, int]:
    """How many workers pytest-xdist has, and which of them this process belongs to."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    # One that takes the place of a crashed worker has a number above theirs.
    return workers, int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def accepts_connections(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether somebody listens on `host:port`."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError:
        return False
    return True
