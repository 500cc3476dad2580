"""kazoo with one thread, and without its noise on the screen."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

log = logging.getLogger("ottla.zookeeper")

#: Complaints of kazoo that follow from others.
_FOLLOWING = ("Transition to CONNECTING", "Failed connecting to Zookeeper within the connection retry policy.")


class DirectHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo without its threads for callbacks: each is called where it comes up, in the thread of the connection.

    kazoo calls the callbacks of results at once while its handler does not run, and this one never does.
    """

    def start(self) -> None:
        """Nothing is to be started."""

    def stop(self) -> None:
        """Nothing was started."""

    def dispatch_callback(self, callback: Any) -> None:
        """Call the callback of a watch."""
        callback.func(*callback.args)

    def spawn(self, func: Callable[..., object], *args: object, **kwargs: object) -> Any:
        """A thread that does not write to the screen when it fails: kazoo has told its logger then."""

        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception:
                log.debug("a thread of kazoo's ended", exc_info=True)

        return super().spawn(run)


class KazooLogger(logging.Logger):
    """What kazoo says goes to our log as details, and its complaints are kept for the errors that follow from them."""

    def __init__(self) -> None:
        super().__init__("kazoo", logging.INFO)
        self.last_problem = ""

    def handle(self, record: logging.LogRecord) -> None:
        """Instead of any handler: kazoo's warnings would fill the screen while a server is away."""
        message = record.getMessage()
        if record.levelno >= logging.WARNING and message not in _FOLLOWING:
            self.last_problem = message.removeprefix("Connection dropped: ").removeprefix("socket connection error: ")
        log.debug("kazoo: %s", message, exc_info=record.exc_info)
