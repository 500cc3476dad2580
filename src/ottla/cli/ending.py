"""How commands end: with an exit code, and with one line on standard error for what was wrong outside."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from ottla.cli.terminal import printable

EXIT_FAILED = 2
EXIT_INTERRUPTED = 130


def end(command: str, work: Callable[[], int], problems: tuple[type[Exception], ...]) -> NoReturn:
    """Run a command's work and end the process with its code; `problems` are told in a line: EXIT_FAILED."""
    if sys.stdout is None:
        refuse(command, "standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = work()
        sys.stdout.flush()
    except problems as problem:
        _flush()
        refuse(command, str(problem))
    except BrokenPipeError:
        # Whoever read has seen enough.
        _drop_output()
        code = 0
    except OSError as error:
        # What fails at the source is among `problems`: this is where the output goes. Half a report must not pass for
        # a whole one.
        _drop_output()
        refuse(command, f"cannot write the output: {error.strerror}")
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)


def refuse(command: str, message: str) -> NoReturn:
    """End the process: the command cannot do it, `message` says why."""
    print(f"{command}: {printable(message)}", file=sys.stderr)
    sys.exit(EXIT_FAILED)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Let go of what is still buffered, so that it does not fail once more at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
