"""A plaintext connection over a real socket pair, driven by a loop that the test turns by hand."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

from ottla.env.disk import DiskFile
from ottla.env.network import TcpSocket
from ottla.net.buffers import BufferPool
from ottla.net.connection import Connection, Principal, QueuedBytes, RequestSlices
from ottla.net.plaintext import PlaintextConnection


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

    def call_later(self, delay: float, callback: Callable[[], object], /) -> None:
        self.later.append((delay, callback))

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
        self.limit = 1 << 20
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
        return self.limit

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


class Wired:
    """A connection to a service; `beside` another one it has the same loop and service."""

    def __init__(self, beside: Wired | None = None) -> None:
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.setblocking(False)
        self.loop: HandLoop = HandLoop() if beside is None else beside.loop
        self.service: RecordingService = RecordingService() if beside is None else beside.service
        self.connection = PlaintextConnection(
            self.loop, TcpSocket(ours, "127.0.0.1", 1), self.service, "PLAINTEXT", BufferPool()
        )

    def send(self, *payloads: bytes) -> None:
        self.client.sendall(b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads))

    def received(self) -> bytes:
        data = b""
        while True:
            self.loop.settle()
            try:
                piece = self.client.recv(1 << 20)
            except BlockingIOError:
                return data
            if not piece:
                return data
            data += piece


class ShortResponses:
    """Answers through `send_bytes`: each frame with itself, `big…` by parts, `later…` not at all; counts the calls."""

    def __init__(self, wired: Wired, times: int = 1) -> None:
        self._connection = wired.connection
        self._times = times
        wired.service.answer = self._answer
        self.calls = 0
        stream = wired.connection._socket
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
