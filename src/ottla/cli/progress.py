"""How far a long command has come: a line on standard error that is written again and again, on a terminal only."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Final

#: The line is written at most that often, s.
EVERY_S: Final = 0.5
_CLEAR: Final = "\r\x1b[K"
#: A terminal that does not know its size says 0.
_COLUMNS_OF_UNKNOWN: Final = 80


class Progress:
    """Shows what `text` returns, from EVERY_S after the beginning on."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._is_on = sys.stderr is not None and sys.stderr.isatty()
        self._next_s = time.monotonic() + EVERY_S
        self._is_shown = False

    def switch_off(self) -> None:
        """Show nothing, where a person types at the same terminal."""
        self._is_on = False

    def show(self) -> None:
        """Write the line, if it is time."""
        if self._is_on and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + EVERY_S
            self._is_shown = True
            # One column stays free: a line that is wrapped could not be taken away.
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS_OF_UNKNOWN
            print(f"{_CLEAR}{self._text()[: columns - 1]}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away, before other output."""
        if self._is_shown:
            self._is_shown = False
            print(_CLEAR, end="", file=sys.stderr, flush=True)


def passed_of(passed: int, total: int) -> str:
    """Offsets that were passed, of all: `120 of 400 offsets (30%)`."""
    return f"{passed:,} of {total:,} offset{'' if total == 1 else 's'} ({100 * passed // total if total else 100}%)"
