"""The live line of a pipeline that runs: rewritten in place on a terminal, a line a batch elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from ottla.cli.terminal import printable
from ottla.spark.pipelines.running.progress import RunHistory, live_line, sample
from ottla.spark.pipelines.settings.references import redacted

if TYPE_CHECKING:
    from ottla.spark.listening.queries import Query

_REWRITE = "\r\x1b[K"


class LiveOutput:
    """The output of live lines, and the history of the run. A thread of the listener calls `show`."""

    def __init__(self, stream: TextIO, secrets: tuple[str, ...], now_s: Callable[[], float] = time.time) -> None:
        self.history = RunHistory()
        self._stream = stream
        self._in_place = stream.isatty()
        self._secrets = secrets
        self._now_s = now_s
        self._lock = threading.Lock()
        self._is_open = False

    def show(self, query: Query) -> None:
        """Show the last batch of a query, and remember it."""
        if query.last is None:
            return
        now_s = self._now_s()
        with self._lock:
            line = printable(redacted(live_line(query, now_s), self._secrets))
            self.history.add(sample(query.last, now_s))
            if self._in_place:
                self._stream.write(_REWRITE + line)
                self._is_open = True
            elif query.last.rows:
                self._stream.write(line + "\n")
            self._stream.flush()

    def say(self, text: str) -> None:
        """A line of its own, below the live one."""
        self.end_line()
        self._stream.write(text + "\n")
        self._stream.flush()

    def end_line(self) -> None:
        """End the live line, so that what others write stands below it."""
        with self._lock:
            if self._is_open:
                self._stream.write("\n")
                self._stream.flush()
            self._is_open = False
