"""A tap that writes down every frame brokers send each other: who to whom, in which order, and what came back."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass

from support.ports import LOOPBACK
from support.tap import break_connection, read_frame


@dataclass(slots=True)
class Exchange:
    """A request that passed a tap, and its response once that has passed, too. Frames are without their sizes.

    `asked` and `answered` are places in the order of all frames of the recording; `answered` is 0 until then.
    """

    asked: int
    at_ms: int
    #: Of the recording, from 1 on.
    connection: int
    #: The client id of the request: a broker's own id, or `broker-2-fetcher-0`.
    sender: str
    receiver: int
    api_key: int
    api_version: int
    correlation_id: int
    request: bytes
    answered: int = 0
    answered_at_ms: int = 0
    response: bytes = b""


class Recording:
    """What all taps of a cluster saw, in one order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = []
        self._last = 0
        self._connections = 0

    def exchanges(self) -> list[Exchange]:
        """All so far, in the order in which they were asked."""
        with self._lock:
            return list(self._exchanges)

    def taken(self) -> list[Exchange]:
        """All since the last call. Those that are unanswered stay, and may be completed later."""
        with self._lock:
            found, self._exchanges = self._exchanges, []
            return found

    def connected(self) -> int:
        """The number of a new connection."""
        with self._lock:
            self._connections += 1
            return self._connections

    def asked(self, connection: int, receiver: int, frame: bytes) -> Exchange:
        """A request has come."""
        api_key, api_version, correlation_id, length = struct.unpack_from(">hhih", frame)
        sender = frame[10 : 10 + max(length, 0)].decode()
        with self._lock:
            self._last += 1
            exchange = Exchange(
                asked=self._last,
                at_ms=time.time_ns() // 1_000_000,
                connection=connection,
                sender=sender,
                receiver=receiver,
                api_key=api_key,
                api_version=api_version,
                correlation_id=correlation_id,
                request=frame,
            )
            self._exchanges.append(exchange)
            return exchange

    def answered(self, exchange: Exchange, frame: bytes) -> None:
        """Its response has come."""
        with self._lock:
            self._last += 1
            exchange.answered = self._last
            exchange.answered_at_ms = time.time_ns() // 1_000_000
            exchange.response = frame


class RecordingTap:
    """Listens on `port` and passes everything on to broker `receiver`, which listens on `upstream` of this machine."""

    def __init__(self, recording: Recording, receiver: int, upstream: int) -> None:
        self.recording = recording
        self.receiver = receiver
        self.upstream = upstream
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._threads: set[threading.Thread] = set()
        self._accepting = threading.Thread(target=self._accept, name=f"tap of {receiver}")
        self._accepting.start()

    def close(self) -> None:
        """End all connections and wait for the threads."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        with self._lock:
            threads = list(self._threads)
            for one in self._open:
                break_connection(one)
        for thread in threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._lead, args=(client,))
            with self._lock:
                self._threads.add(thread)
            thread.start()

    def _lead(self, client: socket.socket) -> None:
        """One connection, from its beginning to its end."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._ended, threading.current_thread())
            stack.enter_context(client)
            try:
                broker = stack.enter_context(socket.create_connection((LOOPBACK, self.upstream)))
            except OSError:
                return
            for one in (client, broker):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if self._closed:
                    return
                self._open |= {client, broker}
            stack.callback(self._forget, client, broker)
            pending: dict[int, Exchange] = {}
            answers = threading.Thread(target=self._pass_answers, args=(client, broker, pending))
            answers.start()
            self._pass_requests(client, broker, pending)
            answers.join()

    def _ended(self, thread: threading.Thread) -> None:
        with self._lock:
            self._threads.discard(thread)

    def _forget(self, client: socket.socket, broker: socket.socket) -> None:
        with self._lock:
            self._open -= {client, broker}

    def _pass_requests(self, client: socket.socket, broker: socket.socket, pending: dict[int, Exchange]) -> None:
        connection = self.recording.connected()
        with contextlib.suppress(OSError):
            while (frame := read_frame(client)) is not None:
                exchange = self.recording.asked(connection, self.receiver, frame)
                pending[exchange.correlation_id] = exchange
                broker.sendall(struct.pack(">i", len(frame)) + frame)
        break_connection(broker)

    def _pass_answers(self, client: socket.socket, broker: socket.socket, pending: dict[int, Exchange]) -> None:
        with contextlib.suppress(OSError):
            while (frame := read_frame(broker)) is not None:
                (correlation_id,) = struct.unpack_from(">i", frame)
                self.recording.answered(pending.pop(correlation_id), frame)
                client.sendall(struct.pack(">i", len(frame)) + frame)
        break_connection(client)
        break_connection(broker)
