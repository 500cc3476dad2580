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

LINES, COLUMNS = 50, 160
END_TIMEOUT_S = 60.0
_CONTROL = re.compile(r"\x1b\[[0-9;?>]*[a-zA-Z$]|\x1b[()][A-Z0-9]|\x1b[=>]")


class Screen:
    """A program in a terminal of its own, and all that it has drawn."""

    def __init__(self, *command: str, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(LINES, COLUMNS)
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
        self._drawn, self._seen = bytearray(), 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65_536)
            except OSError:  # the program has ended
                return
            self._drawn += data

    @property
    def drawn(self) -> bytes:
        """All that was drawn since the last key or signal."""
        return bytes(self._drawn[self._seen :])

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
        self._seen = len(self._drawn)
        os.write(self._ours, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        """Give the window another size. The program gets no signal: the terminal is not its controlling one."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def signal(self, number: signal.Signals) -> None:
        """Send the program a signal; what was drawn before is forgotten."""
        self._seen = len(self._drawn)
        self._process.send_signal(number)

    def wait(self) -> int:
        """The program's exit code."""
        return self._process.wait(END_TIMEOUT_S)

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        os.close(self._theirs)
        self._reader.join()
        os.close(self._ours)


@contextmanager
def drawn(*command: str, **environment: str) -> Iterator[Screen]:
    """The program while it runs."""
    screen = Screen(*command, **environment)
    try:
        yield screen
    finally:
        screen.close()
