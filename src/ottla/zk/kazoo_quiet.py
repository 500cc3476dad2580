"""kazoo with one thread, quick waits for its socket, and without its output on the screen."""

from __future__ import annotations

import logging
import math
import select
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kazoo.handlers.threading import SequentialThreadingHandler

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger("ottla.zookeeper")

#: Messages of kazoo that only follow from others.
_FOLLOWING = ("Transition to CONNECTING", "Failed connecting to Zookeeper within the connection retry policy.")


class DirectHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo handler without callback threads: each callback runs directly, in the connection's thread.

    kazoo calls the callbacks of results directly while its handler is not running, and this one never is.
    """

    def __init__(self, tls: SSLContext | None = None) -> None:
        super().__init__()
        self._tls = tls

    def create_connection(self, *, hostname: str | None, timeout: float, **options: Any) -> Any:
        """Connect, and do the handshake of TLS where it is used. Raises OSError."""
        connection = super().create_connection(hostname=hostname, timeout=timeout, **options)
        if self._tls is None:
            return connection
        try:
            connection.settimeout(timeout)
            return self._tls.wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise

    def start(self) -> None:
        """Do nothing: it has no thread."""

    def stop(self) -> None:
        """Do nothing: it has no thread."""

    def dispatch_callback(self, callback: Any) -> None:
        """Call the callback of a watch."""
        callback.func(*callback.args)

    def select(
        self, to_read: Sequence[Any], to_write: Sequence[Any], to_except: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait until one of these sockets is ready, as kazoo wants to know; `timeout` in seconds, None: no end.

        A socket must be in one of the lists only, and `to_except` is ignored. kazoo waits some five times for each
        request, each time with an epoll object that it makes. This takes one system call for each of them. What TLS has
        decrypted already is ready.
        """
        if self._tls is not None:
            decrypted = [each for each in to_read if hasattr(each, "pending") and each.pending()]
            if decrypted:
                return decrypted, [], []
        if not hasattr(select, "poll"):
            found: tuple[list[Any], list[Any], list[Any]] = super().select(to_read, to_write, to_except, timeout)
            return found
        poller = select.poll()
        for each in to_read:
            poller.register(each, select.POLLIN)
        for each in to_write:
            poller.register(each, select.POLLOUT)
        ready = {fd for fd, _ in poller.poll(None if timeout is None else math.ceil(max(0.0, timeout) * 1000))}
        readable, writable = ([each for each in sockets if each.fileno() in ready] for sockets in (to_read, to_write))
        return readable, writable, []

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
