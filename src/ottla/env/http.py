"""One exchange by HTTP, with limits of size and time, in a thread of its own: no event loop waits for it."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")

MAX_ANSWER_BYTES: Final = 1024 * 1024
MAX_SHOWN_CHARACTERS: Final = 200
"""Of what a server says."""
TIMEOUT_MS: Final = 10_000
"""For a connection, and for an answer, where the caller says nothing else."""


class HttpError(Exception):
    """No answer, or an answer that is an error; `status` is None without one. The message names no secret."""

    def __init__(self, message: str, status: int | None = None, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A GET, or with a body a POST. `context` is that of https; None for the system's authorities."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    connect_timeout_ms: int = TIMEOUT_MS
    read_timeout_ms: int = TIMEOUT_MS
    context: SSLContext | None = None
    max_bytes: int = MAX_ANSWER_BYTES
    """Of the answer."""

    @property
    def longest_s(self) -> float:
        """The longest that an exchange should take."""
        return (self.connect_timeout_ms + self.read_timeout_ms) / 1000 + 1


def exchange(request: HttpRequest) -> bytes:
    """The body of the answer; blocks. Raises HttpError."""
    try:
        url = urlsplit(request.url)
        connection: http.client.HTTPConnection
        host, timeout_s = url.hostname or "", request.connect_timeout_ms / 1000
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(host, url.port, timeout=timeout_s, context=request.context)
        else:
            connection = http.client.HTTPConnection(host, url.port, timeout=timeout_s)
    except (ValueError, http.client.HTTPException) as error:
        raise HttpError(f"the address cannot be used ({error})") from None
    overdue: threading.Timer | None = None
    is_cut = threading.Event()
    try:
        connection.connect()
        connection.sock.settimeout(request.read_timeout_ms / 1000)
        # A server that sends a byte now and then never reaches the socket's limit.
        overdue = threading.Timer(request.read_timeout_ms / 1000, _cut, (connection.sock, is_cut))
        overdue.daemon = True
        overdue.start()
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection.request("GET" if request.body is None else "POST", path, request.body, dict(request.headers))
        answer = connection.getresponse()
        body = answer.read(request.max_bytes + 1)
        if is_cut.is_set():  # what was cut off looks whole where its end is that of the connection
            raise TimeoutError
    except (OSError, http.client.HTTPException, ValueError) as error:
        late = isinstance(error, TimeoutError) or is_cut.is_set()
        why = "no whole answer in time" if late else str(error) or type(error).__name__
        raise HttpError(shown_text(why)) from None
    finally:
        if overdue is not None:
            overdue.cancel()
        connection.close()
    if len(body) > request.max_bytes:
        raise HttpError(f"the answer has more than {request.max_bytes} bytes")
    if not 200 <= answer.status < 300:
        raise HttpError(f"the answer is {answer.status} {shown_text(answer.reason)}", answer.status, body)
    return body


def shown_text(text: str) -> str:
    """The text of a server, as a message shows it."""
    return ascii(text)[1:-1][:MAX_SHOWN_CHARACTERS]


def _cut(sock: socket.socket, is_cut: threading.Event) -> None:
    is_cut.set()
    with suppress(OSError):  # it has ended itself
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def in_own_thread(work: Callable[[], T], limit_s: float) -> asyncio.Future[T]:
    """Do blocking work in a thread that no end of a process waits for; the result, or what it raised.

    After `limit_s` it is TimeoutError, whatever the thread does.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            outcome: tuple[T | None, Exception | None] = work(), None
        except StopIteration as error:  # which no future takes
            outcome = None, RuntimeError(f"{error!r} was raised")
        except Exception as error:
            outcome = None, error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(deliver, *outcome)

    limit = loop.call_later(limit_s, deliver, None, TimeoutError(f"no answer within {limit_s:.0f} s"))
    done.add_done_callback(lambda _: limit.cancel())
    threading.Thread(target=run, name="ottla-http", daemon=True).start()
    return done
