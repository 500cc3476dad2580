"""`ottla serve` with a clock that can be stepped and a disk that can be slow or full, as a process, for tests.

    python faulty_broker.py SOCKET serve OPTION…

Orders come as lines over the unix socket SOCKET: `clock MS` (the wall clock runs so much ahead), `slow S` (each write
to a log takes so long), `full` (nothing can be written any more), `well`. Each is answered with a line: how many writes
were held up, and how many were refused, since the start.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

ORDER_TIMEOUT_S = 120.0
LONGEST_ORDER_BYTES = 100


def order(path: Path, text: str) -> tuple[int, int]:
    """Give a running process an order; how many of its writes were held up and refused so far."""
    with _connected(path) as connection:
        connection.sendall(f"{text}\n".encode())
        held_up, refused = connection.makefile().readline().split()
    return int(held_up), int(refused)


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection, _near(path) as near:
        connection.settimeout(ORDER_TIMEOUT_S)
        connection.connect(near)
        yield connection


@contextlib.contextmanager
def _near(path: Path) -> Iterator[str]:
    """A short path to it: addresses of unix sockets have some hundred characters only."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def main() -> None:
    """Run the broker."""
    from ottla.broker import server
    from ottla.cli.entry import main as serve
    from ottla.env.clock import SystemClock
    from ottla.env.disk import RealDisk
    from ottla.testing.disk_faulty import FaultyDisk

    class SteppedClock(SystemClock):
        """The machine's clocks, the wall clock ahead of it."""

        __slots__ = ("ahead_ms",)

        def __init__(self) -> None:
            self.ahead_ms = 0

        def now_ms(self) -> int:
            return super().now_ms() + self.ahead_ms

    class OrderedDisk(FaultyDisk):
        """A disk whose writes take long, or fail."""

        def __init__(self) -> None:
            super().__init__(RealDisk())
            self.write_s = 0.0
            self.held_up = 0
            self.refused = 0

        def take(self, length: int, path: str) -> None:
            if self.write_s and path.endswith(".log"):
                self.held_up += 1
                time.sleep(self.write_s)  # sleep: the disk that is asked for
            try:
                super().take(length, path)
            except Exception:
                self.refused += 1
                raise

    clock, disk = SteppedClock(), OrderedDisk()

    def carry_out(words: list[str]) -> None:
        match words:
            case ["clock", ahead_ms]:
                clock.ahead_ms = int(ahead_ms)
            case ["slow", write_s]:
                disk.write_s = float(write_s)
            case ["full"]:
                disk.capacity = 0
            case ["well"]:
                disk.write_s, clock.ahead_ms = 0.0, 0
                disk.heal()

    def obey(listening: socket.socket) -> None:
        while True:
            connection, _ = listening.accept()
            with connection:
                carry_out(connection.makefile().readline(LONGEST_ORDER_BYTES).split())
                connection.sendall(f"{disk.held_up} {disk.refused}\n".encode())

    path = Path(sys.argv.pop(1))
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    with _near(path) as near:
        listening.bind(near)
    listening.listen()
    threading.Thread(target=obey, args=(listening,), daemon=True).start()
    server.Broker = partial(server.Broker, clock=clock, disk=disk)  # type: ignore[misc, assignment]
    serve()


if __name__ == "__main__":
    main()
