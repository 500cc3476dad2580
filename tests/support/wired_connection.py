"""A connection over a real socket pair, driven by a loop that the test turns by hand."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

from ottla.env.disk import DiskFile
from ottla.env.network import TcpSocket
from ottla.net.buffers import BufferPool
from ottla.net.connection import ANONYMOUS, Connection, Principal, QueuedBytes, RequestSlices
from ottla.net.framed import FramedConnection
from ottla.net.streams import PlainStream
from ottla.net.tls import TlsByteStream, TlsTerms, connect
from support.certificates import Issued, issue, the_authority


class HandTimer(NamedTuple):
    """One of the timers of a `HandLoop`."""

    timers: list[tuple[float, Callable[[], object]]]
    timer: tuple[float, Callable[[], object]]

    def cancel(self) -> None:
        if self.timer in self.timers:
            self.timers.remove(self.timer)


class HandLoop:
    """Readiness by `select`, one turn at a time."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], object]] = {}
        self.writers: dict[int, Callable[[], object]] = {}
        self.soon: list[Callable[[], object]] = []
        self.later: list[tuple[float, Callable[[], object]]] = []

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int, /) -> bool:
        return self.readers.pop(fd, None) is not None

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> None:
        self.writers[fd] = callback

    def remove_writer(self, fd: int, /) -> bool:
        return self.writers.pop(fd, None) is not None

    def call_soon(self, callback: Callable[[], object], /) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], object], /) -> HandTimer:
        self.later.append((delay, callback))
        return HandTimer(self.later, (delay, callback))

    def _ready(self) -> tuple[list[int], list[int]]:
        """The descriptors with something to read, and those that take bytes; `select` knows no numbers above 1,023."""
        poll = select.poll()
        for fd in {*self.readers, *self.writers}:
            poll.register(fd, select.POLLIN * (fd in self.readers) | select.POLLOUT * (fd in self.writers))
        ready = poll.poll(0)
        readable = [fd for fd, events in ready if fd in self.readers and events & ~select.POLLOUT]
        return readable, [fd for fd, events in ready if fd in self.writers and events & ~select.POLLIN]

    def turn(self) -> bool:
        """Run what is ready; says whether anything was."""
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()
        readable, writable = self._ready()
        for fd in readable:
            if fd in self.readers:
                self.readers[fd]()
        for fd in writable:
            if fd in self.writers:
                self.writers[fd]()
        return bool(soon or readable or writable)

    def settle(self, turns: int = 10_000) -> None:
        for _ in range(turns):
            if not self.turn():
                return
        raise AssertionError("the loop spins")


class RecordingService:
    """Keeps frames; answers at once with what `answer` gives, or leaves the request in work."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.answer: Callable[[bytes], list[object] | None] = lambda frame: [frame]
        self.refused: list[int] = []
        self.closed = 0
        self.limit, self.limit_before_login = 1 << 20, 1 << 16
        self.queued = QueuedBytes()
        self.request_slices = RequestSlices()
        self.read_ahead_calls: list[tuple[int, int, Callable[[], None]]] = []
        self.making: list[tuple[Callable[[], bytes], Callable[[bytes | None, BaseException | None], None]]] = []

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        data = bytes(frame)
        self.frames.append(data)
        parts = self.answer(data)
        if parts is not None:
            connection.send(parts)  # type: ignore[arg-type]

    def frame_limit(self, principal: Principal | None) -> int:
        return self.limit_before_login if principal is None else self.limit

    def refuse_frame(self, connection: Connection, size: int) -> None:
        self.refused.append(size)

    def read_ahead(self, file: DiskFile, position: int, length: int, done: Callable[[], None]) -> None:
        self.read_ahead_calls.append((position, length, done))

    def make(self, work: Callable[[], bytes], done: Callable[[bytes | None, BaseException | None], None]) -> None:
        self.making.append((work, done))

    def make_next(self) -> None:
        """Do what was asked to be made first, as a thread would."""
        work, done = self.making.pop(0)
        try:
            piece = work()
        except OSError as error:
            done(None, error)
            return
        done(piece, None)

    def connection_closed(self, connection: Connection) -> None:
        self.closed += 1


class TlsClient:
    """The client's end of a TLS connection over a non-blocking socket, with the calls of a socket."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.tls = context.wrap_socket(sock, do_handshake_on_connect=False, server_hostname="localhost")

    def shake_hands(self) -> bool:
        """Continue the handshake; whether it is done."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def send(self, data: bytes | memoryview) -> int:
        try:
            return self.tls.send(data)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def sendall(self, data: bytes) -> None:
        sent = 0
        while sent < len(data):
            sent += self.send(memoryview(data)[sent : sent + 16384])

    def recv(self, size: int) -> bytes:
        try:
            return self.tls.recv(size)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self.tls.unwrap()
        self.tls.close()


class Wired:
    """A connection to a service, in TLS with the contexts `tls` of server and client.

    `beside` another one it has the same loop and service.
    """

    def __init__(self, beside: Wired | None = None, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None) -> None:
        self.client: Any
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.setblocking(False)
        self.loop: HandLoop = HandLoop() if beside is None else beside.loop
        self.service: RecordingService = RecordingService() if beside is None else beside.service
        self.server = ours
        self.pool = BufferPool()
        accepted = TcpSocket(ours, "127.0.0.1", 1)
        self.stream: PlainStream | TlsByteStream
        #: What the handshake reported.
        self.reports: list[str] = []
        if tls is None:
            self.stream = PlainStream(self.loop, accepted)
            self.connection = FramedConnection(self.loop, self.stream, self.service, "PLAINTEXT", self.pool)
            return
        self.server = ours.dup()  # of the same connection; TLS takes the other
        terms = TlsTerms(tls[0], principal_of)
        self.connection = connect(self.loop, accepted, self.service, "SSL", self.pool, terms, self.reports.append)
        assert isinstance(self.connection._stream, TlsByteStream)
        self.stream = self.connection._stream
        self.client = TlsClient(self.client, tls[1])

    @classmethod
    def of(cls, kind: str) -> Wired:
        """A connection that is ready for requests: `plain` or `tls`."""
        wired = cls(tls=contexts() if kind == "tls" else None)
        if kind == "tls":
            wired.shake_hands()
        return wired

    def shake_hands(self) -> None:
        """Go through the handshake."""
        while not self.client.shake_hands() or self.connection.principal is None:
            assert self.loop.turn() or not self.connection.closed, self.reports

    def close(self) -> None:
        self.connection.close()
        self.client.close()
        self.server.close()

    def send(self, *payloads: bytes) -> None:
        self.client.sendall(b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads))

    def received(self) -> bytes:
        data = b""
        while True:
            self.loop.settle()
            try:
                piece = self.client.recv(1 << 20)
            except BlockingIOError:
                if self.loop.turn():  # part of a TLS record came
                    continue
                return data
            if not piece:
                return data
            data += piece


def principal_of(certificate: bytes | None) -> Principal | str:
    """By the certificate's length, which tells one from none."""
    return ANONYMOUS if certificate is None else Principal("User", str(len(certificate)))


class ShortResponses:
    """Answers through `send_bytes`: each frame with itself, `big…` by parts, `later…` not at all; counts the calls."""

    def __init__(self, wired: Wired, times: int = 1) -> None:
        self._connection = wired.connection
        self._times = times
        wired.service.answer = self._answer
        self.calls = 0
        stream = wired.stream
        for name in ("send", "sendmsg"):
            setattr(stream, name, self._counted(getattr(stream, name)))

    def _counted(self, call: Callable[..., int]) -> Callable[..., int]:
        def counted(*arguments: object) -> int:
            self.calls += 1
            return call(*arguments)

        return counted

    def _answer(self, frame: bytes) -> list[object] | None:
        if frame.startswith(b"big"):
            return [frame, b"+", b"parts"]
        if not frame.startswith(b"later"):
            self._connection.send_bytes(frame * self._times)
        return None


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's, which trusts it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_keys(server, issue(the_authority(), "localhost"))
    return server, client_context()


def client_context(shown: Issued | None = None, trusted: Issued | None = None) -> ssl.SSLContext:
    """The context of a client that trusts the authority, or another one, and shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=(trusted or the_authority()).certificate_pem)
    if shown is not None:
        load_keys(context, shown)
    return context


def load_keys(context: ssl.SSLContext, issued: Issued) -> None:
    """Give a context a key; `ssl` takes it from files only."""
    with NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(issued.key_pem() + issued.chain_pem)
        file.flush()
        context.load_cert_chain(file.name)
