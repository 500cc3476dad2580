"""A terminal session: one shell, commands one after the other, and what they print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from support.waiting import wait_until

#: A command may take so long; Spark and packages of other languages are slow to start.
COMMAND_TIMEOUT_S: Final = 480.0
#: What a command in the background prints may come so late.
BACKGROUND_TIMEOUT_S: Final = 120.0
END_TIMEOUT_S: Final = 20.0


class Terminal:
    """A shell in a directory, with an environment that holds nothing of this machine but what is given."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._seen = 0
        self._commands = 0

    def _read(self) -> None:
        assert self._shell.stdout is not None
        while data := os.read(self._shell.stdout.fileno(), 65_536):
            self._written += data

    def run(self, command: str, expected: str) -> tuple[str, int]:
        """What the command prints, and its exit code; waits for `expected` where something in the background prints."""
        self._commands += 1
        mark = f"<end of command {self._commands}: "
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{command}\nprintf '%s%s>\\n' '{mark}' $?\n".encode())
        self._shell.stdin.flush()
        end = re.compile(re.escape(mark) + r"(\d+)>\n")
        ended = wait_until(
            lambda: end.search(self._new()),
            lambda: f"the end of {command!r}; it printed {self._new()!r}",
            COMMAND_TIMEOUT_S,
        )
        assert ended is not None
        if command.rstrip().endswith("&"):
            with suppress(AssertionError):  # the caller shows what came instead
                wait_until(lambda: matches(expected, end.sub("", self._new())), "the output", BACKGROUND_TIMEOUT_S)
        data = bytes(self._written[self._seen :])
        self._seen += len(data)
        return end.sub("", data.decode(errors="replace")), int(ended[1])

    def _new(self) -> str:
        return bytes(self._written[self._seen :]).decode(errors="replace")

    def close(self) -> None:
        """End the shell and all that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._shell.pid, number)
                self._shell.wait(END_TIMEOUT_S if number == signal.SIGTERM else None)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self._reader.join(END_TIMEOUT_S)
        for pipe in (self._shell.stdin, self._shell.stdout):
            if pipe is not None:
                pipe.close()


def matches(expected: str, printed: str) -> bool:
    """Whether the output is what a page shows.

    `…` stands for any text within a line, a line of it alone for any lines. What differs from run to run counts as
    equal: times of day, timestamps in milliseconds, durations.
    """
    lines = [re.escape(_settled(line)).replace("…", "[^\n]*") + "\n" for line in expected.strip("\n").splitlines()]
    # Whole lines only, so that the ways to match a long text do not multiply.
    pattern = "".join("(?:[^\n]*\n)*?" if line == "[^\n]*\n" else line for line in lines)
    settled = "".join(f"{line}\n" for line in _settled(printed.strip("\n")).splitlines())
    return re.fullmatch(pattern, settled) is not None


_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?"), "<time>"),
    (re.compile(r"\b1\d{12}\b"), "<milliseconds>"),
    # In each unit that a command takes for it: "12 ms", "4.2 s", "1.2 min", "1.5 h", "1m 05s", "1h 02m", "2d 03h".
    (
        re.compile(r"\b(?:\d+m \d\ds|\d+h \d\dm|\d+d \d\dh|(?:\d+,)*\d+(?:\.\d+)? ?(?:ms|s|min)|\d+\.\d h)\b"),
        "<duration>",
    ),
    # pytest says one of a minute or more twice.
    (re.compile(r"<duration> \(\d+:\d\d:\d\d\)"), "<duration>"),
)


def _settled(text: str) -> str:
    text = "\n".join(line.rstrip() for line in text.splitlines())
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return text
