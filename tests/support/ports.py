"""Free TCP ports on the loopback address."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port that was free a moment ago; prefer port 0 wherever the server can tell which port it got."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def accepts_connections(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether somebody listens on `host:port`."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError:
        return False
    return True
