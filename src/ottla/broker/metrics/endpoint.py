"""The HTTP endpoint for metrics and health, nothing else, off unless `ottla.metrics.port` is set.

It runs on the broker's loop, where values are read in slices; a thread formats the text. One request per connection.
It answers from the bind on: `/health/live` always, `/metrics` once the broker has started.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import TimerHandle
from collections.abc import Callable, Coroutine, Generator
from functools import partial

from ottla.broker.metrics.registry import MetricReading, MetricsRegistry, text_of
from ottla.broker.slices import LoopSlices
from ottla.config.broker import BrokerConfig
from ottla.env.executor import Executor
from ottla.env.network import EventLoop, ListeningSocket, NetworkError, ServerNetwork, Timer
from ottla.net.listener import ACCEPT_PAUSE_S
from ottla.net.reports import LimitedReports
from ottla.net.streams import PlainStream
from ottla.net.tls import TlsByteStream, TlsTerms
from ottla.records.extras import MissingExtraError, require_extra

log = logging.getLogger("ottla.broker")

MOST_CONNECTIONS = 16
"""Most connections at a time; further ones are closed at once."""
MOST_REQUEST_BYTES = 16 * 1024
TIMEOUT_S = 10.0
"""Longest duration of a connection."""
HEAD_END = b"\r\n\r\n"
TLS_LISTENER = "ottla.metrics.tls.listener"
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
PATH = "/metrics"
LIVE, READY = "/health/live", "/health/ready"


def listen_for_scrapes(config: BrokerConfig, network: ServerNetwork) -> ListeningSocket | None:
    """Bind `ottla.metrics.host` and `ottla.metrics.port`; None if the port is -1.

    Raises NetworkError if that fails, or if the package that formats the metrics is missing.
    """
    port = config.get_int("ottla.metrics.port")
    if port < 0:
        return None
    try:
        require_extra("the metrics endpoint", "metrics", "prometheus_client")
    except MissingExtraError as error:
        raise NetworkError(f"ottla.metrics.port: {error}") from None
    try:
        return network.listen(config.get_string("ottla.metrics.host"), port)
    except NetworkError as error:
        raise NetworkError(f"ottla.metrics.port: {error}") from error


class MetricsEndpoint:
    """Answers scrapes and questions for the broker's health on a listening socket, until `close`.

    With `tls` it speaks HTTPS as that listener speaks TLS.
    """

    def __init__(
        self,
        loop: EventLoop,
        listening: ListeningSocket,
        slices: LoopSlices,
        executor: Executor,
        tls: TlsTerms | None = None,
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._slices = slices
        self._executor = executor
        self._tls = tls
        #: The metrics; None while the broker starts.
        self.registry: MetricsRegistry | None = None
        #: Why the broker is not ready, found in pieces of work; empty if it is.
        self.not_ready: Callable[[], Generator[None, None, list[str]]] = partial(
            because, "the broker starts: it opens its logs and joins the cluster"
        )
        self._open: set[_Scrape] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._report = partial(LimitedReports(log.warning, loop.call_later), "the metrics")
        #: Set while no connection could be accepted.
        self._accepting_again: Timer | None = None
        self._accept()

    @property
    def port(self) -> int:
        """The port listened on, resolved if 0 was configured."""
        return self._listening.port

    def close(self) -> None:
        """Stop, and close all connections."""
        if self._accepting_again is not None:
            self._accepting_again.cancel()
        self._loop.remove_reader(self._listening.fd)
        self._listening.close()
        for task in self._work:
            task.cancel()
        for scrape in list(self._open):
            scrape.close()

    def _accept(self) -> None:
        self._accepting_again = None
        self._loop.add_reader(self._listening.fd, self._on_acceptable)

    def _on_acceptable(self) -> None:
        try:
            socket = self._listening.accept()
        except NetworkError as error:
            self._report(f"metrics: {error}")
            # The socket stays readable: ask again later instead of spinning.
            self._loop.remove_reader(self._listening.fd)
            self._accepting_again = self._loop.call_later(ACCEPT_PAUSE_S, self._accept)
            return
        if socket is None:
            return
        if len(self._open) >= MOST_CONNECTIONS:
            socket.close()
        elif self._tls is None:
            self._open.add(_Scrape(self._loop, PlainStream(self._loop, socket), self._answer, self._open.discard))
        else:
            secured = TlsByteStream(self._loop, socket.start_tls(self._tls.context))
            scrape = _Scrape(self._loop, secured, self._answer, self._open.discard)
            self._open.add(scrape)
            secured.begin(lambda certificate: None, partial(self._refuse, scrape))

    def _refuse(self, scrape: _Scrape, cause: str) -> None:
        """Close a connection whose TLS handshake failed."""
        if cause:
            self._report(f"metrics: a TLS handshake failed: {cause}")
        scrape.close()

    def _answer(self, request: bytes, done: Callable[[bytes], None]) -> None:
        """Call `done` with the response, at once or when the text is formatted."""
        method, _, rest = request.partition(b"\r\n")[0].partition(b" ")
        path = rest.split(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            done(_response("405 Method Not Allowed", b"only GET is served\n", allow="GET, HEAD"))
            return
        if path == LIVE.encode():
            done(_health([], method))
        elif path == READY.encode():
            self._spawn(self._look_whether_ready(method, done))
        elif path != PATH.encode():
            done(_response("404 Not Found", f"the metrics are at {PATH}, the health at {LIVE} and {READY}\n".encode()))
        elif self.registry is None:
            done(_response("503 Service Unavailable", b"the broker starts\n"))
        else:
            self._spawn(self._scrape(self.registry, method, done))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _look_whether_ready(self, method: bytes, done: Callable[[bytes], None]) -> None:
        done(_health(await self._slices.through(self.not_ready()), method))

    async def _scrape(self, registry: MetricsRegistry, method: bytes, done: Callable[[bytes], None]) -> None:
        readings: list[MetricReading] = []
        for reading in registry.read():
            if reading is not None:
                readings.append(reading)
            await self._slices.point()

        def made(text: bytes | None, error: BaseException | None) -> None:
            if text is None:
                log.error("the metrics cannot be written: %s", error)
                done(_response("500 Internal Server Error", b"see the broker's log\n"))
                return
            response = _response("200 OK", text, TEXT_FORMAT)
            done(response[: -len(text)] if method == b"HEAD" and text else response)

        self._executor.call(lambda: text_of(readings), made)


class _Scrape:
    """One connection: reads a request's head, sends the response, closes."""

    def __init__(
        self,
        loop: EventLoop,
        stream: PlainStream | TlsByteStream,
        answer: Callable[[bytes, Callable[[bytes], None]], None],
        closed: Callable[[_Scrape], None],
    ) -> None:
        self._stream = stream
        self._answer = answer
        self._on_closed = closed
        self._received = bytearray()
        self._unsent = b""
        self._is_closed = False
        self._timer: TimerHandle = loop.call_later(TIMEOUT_S, self.close)  # type: ignore[assignment]
        stream.add_reader(self._on_readable)

    def _on_readable(self) -> None:
        room = bytearray(MOST_REQUEST_BYTES)
        try:
            count = self._stream.recv_into(memoryview(room))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        self._received += room[:count]
        if HEAD_END in self._received:
            self._stream.remove_reader()
            self._answer(bytes(self._received), self._send)
        elif count == 0 or len(self._received) >= MOST_REQUEST_BYTES:
            self.close()

    def _send(self, response: bytes) -> None:
        if not self._is_closed:
            self._unsent = response
            self._stream.add_writer(self._on_writable)

    def _on_writable(self) -> None:
        try:
            sent = self._stream.send(self._unsent, 0)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self.close()

    def close(self) -> None:
        """Close the connection; a second call has no effect."""
        if not self._is_closed:
            self._is_closed = True
            self._timer.cancel()
            self._stream.remove_reader()
            self._stream.remove_writer()
            self._stream.close()
            self._on_closed(self)


def because(reason: str) -> Generator[None, None, list[str]]:
    """The one reason why the broker is not ready."""
    yield
    return [reason]


def _health(reasons: list[str], method: bytes) -> bytes:
    status = "503 Service Unavailable" if reasons else "200 OK"
    response = _response(status, "".join(f"{each}\n" for each in reasons or ("ok",)).encode())
    return response.partition(HEAD_END)[0] + HEAD_END if method == b"HEAD" else response


def _response(status: str, body: bytes, content_type: str = "text/plain; charset=utf-8", allow: str = "") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close"]
    if allow:
        head.append(f"Allow: {allow}")
    return "\r\n".join(head).encode() + HEAD_END + body
