"""kazoo with one thread, and without its output on the screen."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

log = logging.getLogger("ottla.zookeeper")

#: Messages of kazoo that only follow from others.
_FOLLOWING = ("Transition to CONNECTING", "Failed connecting to Zookeeper within the connection retry policy.")


class DirectHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo handler without callback threads: each callback runs directly, in the connection's thread.

    kazoo calls the callbacks of results directly while its handler is not running, and this one never is.
    """

    def start(self) -> None:
        """Do nothing: there is no thread to start."""

    def stop(self) -> None:
        """Do nothing: there is no thread to stop."""

    def dispatch_callback(self, callback: Any) -> None:
        """Call the callback of a watch."""
        callback.func(*callback.args)

    def spawn(self, func: Callable[..., object], *args: object, **kwargs: object) -> Any:
        """Start a thread that does not print its exception: kazoo has logged it by then."""

        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception:
                log.debug("a thread of kazoo's ended", exc_info=True)

        return super().spawn(run)


class KazooLogger(logging.Logger):
    """Logs kazoo's messages at debug level in our log, and keeps its warnings for the errors that follow from them."""

    def __init__(self) -> None:
        super().__init__("kazoo", logging.INFO)
        self.last_problem = ""

    def handle(self, record: logging.LogRecord) -> None:
        """Replace all handlers: kazoo's warnings would fill the screen while a server is down."""
        message = record.getMessage()
        if record.levelno >= logging.WARNING and message not in _FOLLOWING:
            self.last_problem = message.removeprefix("Connection dropped: ").removeprefix("socket connection error: ")
        log.debug("kazoo: %s", message, exc_info=record.exc_info)
