"""A program in a pseudo terminal: what it draws, and keys for it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pyte

LINES, COLUMNS = 50, 160
END_TIMEOUT_S = 60.0
_CONTROL = re.compile(r"\x1b\[[0-9;?>]*[a-zA-Z$]|\x1b[()][A-Z0-9]|\x1b[=>]")


def set_size(terminal: int, lines: int, columns: int) -> None:
    """Give a pseudo terminal's window this size."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


class Display:
    """The picture that a terminal makes of the bytes that it gets, read from its end in a thread."""

    def __init__(self, ours: int, lines: int, columns: int) -> None:
        self._ours = ours
        self.screen = pyte.Screen(columns, lines)
        self._drawn = bytearray()
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65_536)
            except OSError:  # the program has ended
                return
            with self._lock:
                self._drawn += data
                self._stream.feed(data)

    @property
    def drawn(self) -> bytes:
        """All bytes that the picture shows."""
        with self._lock:
            return bytes(self._drawn)

    @property
    def rows(self) -> list[str]:
        """The lines of the window, without what is empty at their right."""
        with self._lock:
            return [line.rstrip() for line in self.screen.display]

    def resize(self, lines: int, columns: int) -> None:
        """Show what comes in another window."""
        set_size(self._ours, lines, columns)
        with self._lock:
            self.screen.resize(lines, columns)

    def join(self) -> None:
        """Wait for the last byte; the program's end of the terminal is closed."""
        self._reader.join()


@contextmanager
def window(lines: int, columns: int) -> Iterator[tuple[TextIO, Display]]:
    """A terminal for output of this process; it has been drawn when the block is left."""
    ours, theirs = pty.openpty()
    set_size(ours, lines, columns)
    display = Display(ours, lines, columns)
    try:
        with open(theirs, "w", encoding="utf-8", buffering=1) as stream:
            yield stream, display
        display.join()
    finally:
        os.close(ours)


class Screen:
    """A program in a terminal of its own, and all that it has drawn."""

    def __init__(self, *command: str, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        set_size(self._ours, LINES, COLUMNS)
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )
        # Kept open where the settings of the terminal are read after the program's end.
        self._theirs = theirs
        self.display = Display(self._ours, LINES, COLUMNS)
        self._seen = 0

    @property
    def drawn(self) -> bytes:
        """All that was drawn since the last key or signal."""
        return self.display.drawn[self._seen :]

    @property
    def text(self) -> str:
        """Its text, one space between any two words."""
        return " ".join(_CONTROL.sub(" ", self.drawn.decode(errors="replace")).replace("│", " ").split())

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, and passes it on by the line: the usual mode of a shell."""
        modes: int = termios.tcgetattr(self._theirs)[3]
        return modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON

    def press(self, keys: str) -> None:
        """Type keys; what was drawn before is forgotten."""
        self._seen = len(self.display.drawn)
        os.write(self._ours, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        """Give the window another size. The program gets no signal: the terminal is not its controlling one."""
        self.display.resize(lines, columns)

    def signal(self, number: signal.Signals) -> None:
        """Send the program a signal; what was drawn before is forgotten."""
        self._seen = len(self.display.drawn)
        self._process.send_signal(number)

    def wait(self) -> int:
        """The program's exit code."""
        return self._process.wait(END_TIMEOUT_S)

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        os.close(self._theirs)
        self.display.join()
        os.close(self._ours)


@contextmanager
def drawn(*command: str, **environment: str) -> Iterator[Screen]:
    """The program while it runs."""
    screen = Screen(*command, **environment)
    try:
        yield screen
    finally:
        screen.close()
