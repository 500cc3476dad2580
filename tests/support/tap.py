"""A tap between clients and a broker: it counts requests, and can hold them back or lose answers."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field

from support.ports import LOOPBACK

JOIN_GROUP = 11
SYNC_GROUP = 14
#: How long a request may be held back, so that a failing test ends.
LONGEST_HOLD_S = 30.0


@dataclass(frozen=True)
class TappedRequest:
    """What a request says of itself."""

    client_id: str
    api_key: int
    api_version: int
    correlation_id: int


@dataclass
class Hold:
    """A request of a kind, the next but `skip`, which waits on its way to the broker until it is released."""

    client_id: str
    api_key: int
    skip: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Until the request has come."""
        assert self.arrived.wait(LONGEST_HOLD_S), f"no request {self.api_key} of {self.client_id} came"

    def release(self) -> None:
        """Let it continue."""
        self.released.set()


class Tap:
    """Listens on `port` and passes everything on to `upstream`, a port on this machine.

    A broker that advertises the tap's port has all its clients here, but for those that ask it nothing about brokers.
    """

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._requests: list[TappedRequest] = []
        self._holds: list[Hold] = []
        self._losses: list[tuple[str, int]] = []
        self._sockets: set[socket.socket] = set()
        self._connections: set[threading.Thread] = set()
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def begin(self) -> None:
        """Forget what has passed, and what was asked for."""
        with self._lock:
            self._requests.clear()
            self._losses.clear()
            for hold in self._holds:
                hold.release()
            self._holds.clear()

    def count(self, client_id: str, api_key: int) -> int:
        """How many requests of a kind a client has sent."""
        with self._lock:
            return sum(one.client_id == client_id and one.api_key == api_key for one in self._requests)

    def versions(self, api_key: int) -> set[int]:
        """The versions in which a kind of request was sent."""
        with self._lock:
            return {one.api_version for one in self._requests if one.api_key == api_key}

    def hold(self, client_id: str, api_key: int, skip: int = 0) -> Hold:
        """Hold the next such request back, or one behind; what its connection sends later waits behind it."""
        hold = Hold(client_id, api_key, skip)
        with self._lock:
            self._holds.append(hold)
        return hold

    def lose_answer(self, client_id: str, api_key: int) -> None:
        """Break the connection in place of the next answer to such a request."""
        with self._lock:
            self._losses.append((client_id, api_key))

    def close(self) -> None:
        """End all connections and wait for the threads."""
        self.begin()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        with self._lock:
            connections = list(self._connections)
            for one in self._sockets:
                break_connection(one)
        for thread in connections:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection((LOOPBACK, self.upstream))
            except OSError:
                client.close()
                continue
            for one in (client, broker):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = threading.Thread(target=self._pass, args=(client, broker))
            with self._lock:
                self._sockets |= {client, broker}
                self._connections.add(connection)
            connection.start()

    def _pass(self, client: socket.socket, broker: socket.socket) -> None:
        """Pass requests and answers until one end is gone, then close both."""
        open_requests: dict[int, TappedRequest] = {}
        answers = threading.Thread(target=self._pass_answers, args=(client, broker, open_requests))
        answers.start()
        self._pass_requests(client, broker, open_requests)
        answers.join()
        with self._lock:
            self._sockets -= {client, broker}
            self._connections.remove(threading.current_thread())
        client.close()
        broker.close()

    def _pass_requests(
        self, client: socket.socket, broker: socket.socket, open_requests: dict[int, TappedRequest]
    ) -> None:
        with contextlib.suppress(OSError):
            while (frame := read_frame(client)) is not None:
                request = _parsed(frame)
                open_requests[request.correlation_id] = request
                with self._lock:
                    self._requests.append(request)
                    hold = self._hold_for(request)
                if hold is not None:
                    hold.arrived.set()
                    hold.released.wait(LONGEST_HOLD_S)
                broker.sendall(struct.pack(">i", len(frame)) + frame)
        break_connection(broker)

    def _hold_for(self, request: TappedRequest) -> Hold | None:
        for hold in self._holds:
            if (hold.client_id, hold.api_key) != (request.client_id, request.api_key):
                continue
            if hold.skip:
                hold.skip -= 1
                continue
            self._holds.remove(hold)
            return hold
        return None

    def _pass_answers(
        self, client: socket.socket, broker: socket.socket, open_requests: dict[int, TappedRequest]
    ) -> None:
        with contextlib.suppress(OSError):
            while (frame := read_frame(broker)) is not None:
                (correlation_id,) = struct.unpack_from(">i", frame)
                request = open_requests.pop(correlation_id)
                with self._lock:
                    loss = (request.client_id, request.api_key)
                    is_lost = loss in self._losses
                    if is_lost:
                        self._losses.remove(loss)
                if is_lost:
                    break
                client.sendall(struct.pack(">i", len(frame)) + frame)
        break_connection(client)
        break_connection(broker)


def _parsed(frame: bytes) -> TappedRequest:
    api_key, api_version, correlation_id, size = struct.unpack_from(">hhih", frame)
    client_id = frame[10 : 10 + max(size, 0)].decode()
    return TappedRequest(client_id, api_key, api_version, correlation_id)


def read_frame(connection: socket.socket) -> bytes | None:
    """The next frame without its size; None at the end of the stream."""
    head = _read(connection, 4)
    return None if head is None else _read(connection, struct.unpack(">i", head)[0])


def _read(connection: socket.socket, size: int) -> bytes | None:
    """Exactly this many bytes; None at the end of the stream."""
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def break_connection(connection: socket.socket) -> None:
    """End it both ways, so that whoever reads from it sees the end."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
