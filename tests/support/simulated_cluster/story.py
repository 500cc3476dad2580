"""The events of a simulation, in the order of time: faults, elections, log messages of brokers and clients."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ottla.sim.processes import current_process
from ottla.sim.virtual_loop import VirtualTimeLoop

#: Lines that a story keeps: those of a run of some minutes.
MOST_LINES = 20_000


class StoryLine(NamedTuple):
    """Something that happened: when (seconds of virtual time), to whom, and what."""

    at_s: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:9.3f} {self.who:9} {self.what}"


class ClusterStory(logging.Handler):
    """Collects lines; as a handler it takes the log messages of brokers and clients, too."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__(logging.INFO)
        self._loop = loop
        self.lines: list[StoryLine] = []
        #: Log messages with an exception that nobody expected.
        self.bugs: list[StoryLine] = []

    def tell(self, who: str, what: str) -> None:
        """Add a line."""
        if len(self.lines) < MOST_LINES:
            self.lines.append(StoryLine(self._loop.time(), who, what))

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        process = current_process()
        who = "" if process is None else process.name
        self.tell(who, f"[{record.levelname.lower()}] {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            at = logging.Formatter().formatException(record.exc_info)
            self.bugs.append(StoryLine(self._loop.time(), who, f"{record.getMessage()}: {error!r}\n{at}"))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the log messages of ottla meanwhile, and let nobody else have them."""
        logger = logging.getLogger("ottla")
        before = logger.level, logger.propagate, logger.handlers
        logger.handlers, logger.propagate = [self], False
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.handlers = before[2]
            logger.propagate = before[1]
            logger.setLevel(before[0])

    def told(self, since_s: float = 0.0, until_s: float = float("inf")) -> str:
        """The lines between two moments, as a text."""
        return "\n".join(str(line) for line in self.lines if since_s <= line.at_s <= until_s)
