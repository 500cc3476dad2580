"""An in-memory network in virtual time: hosts by name, connections that deliver bytes in order after a seeded latency.

A server gets sockets that its event loop watches (`VirtualTimeLoop` watches them instead of a system's selector), a
client an `env.outgoing.Network`. Sent bytes arrive after `latency_ms`; there is no loss, and a closed connection ends
at the other side after the bytes sent before.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ottla.env.futures import settle
from ottla.env.network import LISTEN_BACKLOG, SYSTEM_BUFFER, NetworkError
from ottla.env.outgoing import SYSTEM_BUFFER_BYTES, Part, Receiver, UnknownHostError
from ottla.sim.virtual_loop import VirtualTimeLoop

SEND_BUFFER_BYTES = 256 * 1024
"""Bytes in flight that one end of a connection may have before it has to wait."""
FIRST_FREE_PORT = 32_768
FIRST_CLIENT_PORT = 50_000
REFUSED = "connection refused"


class Arrival(NamedTuple):
    """A chunk of bytes that has arrived at the other end of a connection; an empty one is the end of the connection."""

    at_s: float
    source: str
    target: str
    port: int
    data: bytes


class SimulatedNetwork:
    """All hosts; a latency is drawn from `latency_ms` for each chunk. Each host has its own view: see `host`."""

    def __init__(self, loop: VirtualTimeLoop, seed: int, latency_ms: tuple[float, float] = (0.1, 2.0)) -> None:
        self.loop = loop
        self._chance = random.Random(seed)
        self._latency_ms = latency_ms
        self._hosts: set[str] = set()
        self.listening: dict[tuple[str, int], SimulatedListeningSocket] = {}
        self._next_port = FIRST_CLIENT_PORT
        #: All arrivals: when (seconds), from which host to which, and the bytes; None: not recorded.
        self.history: list[Arrival] | None = None

    def host(self, name: str) -> SimulatedHost:
        """The network as seen by a process on this host."""
        self._hosts.add(name)
        return SimulatedHost(self, name)

    def knows(self, name: str) -> bool:
        """Whether a host of this name exists."""
        return name in self._hosts

    def latency_s(self) -> float:
        """The latency of the next chunk."""
        return self._chance.uniform(*self._latency_ms) / 1000

    def client_port(self) -> int:
        """A port for the client's end of a connection."""
        self._next_port += 1
        return self._next_port


class SimulatedHost:
    """One host: `ServerNetwork` of its servers and `Network` of its clients."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self._network = network
        self._name = name

    # As `env.network.ServerNetwork`

    def listen(
        self, host: str, port: int, backlog: int = LISTEN_BACKLOG, send_buffer_bytes: int = SYSTEM_BUFFER
    ) -> SimulatedListeningSocket:
        """See `ServerNetwork.listen`; a host can listen under its own name only, or on every interface."""
        network = self._network
        if host not in ("", self._name):
            raise NetworkError(f"cannot listen on {host}:{port}: this host is {self._name}")
        port = port or next(
            p for p in range(FIRST_FREE_PORT, FIRST_CLIENT_PORT) if (self._name, p) not in network.listening
        )
        if (self._name, port) in network.listening:
            raise NetworkError(f"cannot listen on {self._name}:{port}: the port is in use by another program")
        return SimulatedListeningSocket(network, self._name, port)

    def canonical_host_name(self) -> str:
        """See `ServerNetwork.canonical_host_name`."""
        return self._name

    # As `env.outgoing.Network`

    async def addresses(self, host: str, port: int) -> list[str]:
        """See `Network.addresses`; a host's address is its name."""
        if not self._network.knows(host):
            raise UnknownHostError(f"there is no host {host}")
        return [host]

    async def canonical_names(self, host: str, port: int) -> list[str]:
        """See `Network.canonical_names`."""
        return await self.addresses(host, port)

    async def connect(
        self,
        address: str,
        port: int,
        receiver: Receiver,
        *,
        send_buffer_bytes: int = SYSTEM_BUFFER_BYTES,
        receive_buffer_bytes: int = SYSTEM_BUFFER_BYTES,
    ) -> None:
        """See `Network.connect`."""
        network = self._network
        loop = network.loop
        answered = loop.create_future()
        loop.call_later(network.latency_s(), settle, answered, None)
        await answered
        listening = network.listening.get((address, port))
        if listening is None:
            raise ConnectionRefusedError(REFUSED)
        stream = SimulatedStream(network, receiver, (address, port))
        socket = SimulatedSocket(network, self._name, network.client_port(), stream)
        stream.attach(socket)
        listening.offer(socket)
        receiver.connected(stream)


class SimulatedListeningSocket:
    """A listening port with its backlog; `env.network.ListeningSocket`."""

    def __init__(self, network: SimulatedNetwork, host: str, port: int) -> None:
        self._network = network
        self._waiting: deque[SimulatedSocket] = deque()
        self.host = host
        self.port = port
        self.fd = network.loop.new_descriptor(lambda: bool(self._waiting), lambda: False)
        network.listening[host, port] = self

    def offer(self, socket: SimulatedSocket) -> None:
        """Add a client's connection to the backlog."""
        self._waiting.append(socket)

    def accept(self) -> SimulatedSocket | None:
        """See `ListeningSocket.accept`."""
        return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        """See `ListeningSocket.close`; connections in the backlog are refused."""
        self._network.listening.pop((self.host, self.port), None)
        while self._waiting:
            self._waiting.popleft().close()
        self._network.loop.drop_descriptor(self.fd)


class _Pipe:
    """One direction of a connection, from one host to another: chunks arrive in order, each after its latency.

    `port` is the client's.
    """

    def __init__(self, network: SimulatedNetwork, source: str, target: str, port: int) -> None:
        self._network = network
        self._ends = (source, target, port)
        self._last_arrival_s = 0.0
        self.in_flight_bytes = 0

    def send(self, data: bytes, arrived: _End) -> None:
        """Call `arrived.take(data)` when the chunk arrives; an empty one is the end."""
        loop = self._network.loop
        self.in_flight_bytes += len(data)
        # Chunks due at the same moment must stay in order, which the loop's timer heap does not guarantee.
        self._last_arrival_s = max(loop.time() + self._network.latency_s(), self._last_arrival_s + 1e-9)
        loop.call_at(self._last_arrival_s, self._deliver, data, arrived)

    def _deliver(self, data: bytes, arrived: _End) -> None:
        self.in_flight_bytes -= len(data)
        network = self._network
        if network.history is not None:
            network.history.append(Arrival(network.loop.time(), *self._ends, data))
        arrived.take(data)


class _End:
    """The receiving end of a pipe."""

    def take(self, data: bytes) -> None:
        """Handle received bytes; none at all: the other side has closed."""
        raise NotImplementedError


class SimulatedSocket(_End):
    """The server's end of a connection: `env.network.StreamSocket`."""

    def __init__(self, network: SimulatedNetwork, peer_host: str, peer_port: int, stream: SimulatedStream) -> None:
        self._network = network
        self._stream = stream
        self._pipe = _Pipe(network, stream.peer[0], peer_host, peer_port)
        self._received = bytearray()
        self._ended = False
        self._closed = False
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.fd = network.loop.new_descriptor(
            lambda: bool(self._received) or self._ended, lambda: self._pipe.in_flight_bytes < SEND_BUFFER_BYTES
        )

    def take(self, data: bytes) -> None:
        """See `_End.take`."""
        if data:
            self._received += data
        else:
            self._ended = True

    def recv_into(self, buffer: memoryview) -> int:
        """See `StreamSocket`."""
        if self._closed:
            raise ConnectionResetError("the socket is closed")
        if not self._received:
            if self._ended:
                return 0
            raise BlockingIOError
        length = min(len(buffer), len(self._received))
        buffer[:length] = self._received[:length]
        del self._received[:length]
        return length

    def send(self, data: Part, flags: int) -> int:
        """See `StreamSocket`."""
        return self.sendmsg((data,), (), flags)

    def sendmsg(self, parts: Sequence[Part], ancillary: Sequence[object], flags: int) -> int:
        """See `StreamSocket`."""
        if self._closed or self._ended:
            raise BrokenPipeError("the other side has closed the connection")
        room = SEND_BUFFER_BYTES - self._pipe.in_flight_bytes
        if room <= 0:
            raise BlockingIOError
        data = b"".join(parts)[:room]
        if data:
            self._pipe.send(data, self._stream)
        return len(data)

    def sendfile(self, fd: int, position: int, length: int) -> int:
        """See `StreamSocket`; disks of the simulator have no descriptors."""
        raise AssertionError("a file in memory has no descriptor")

    def is_broken(self) -> bool:
        """See `StreamSocket`."""
        return False

    def is_at_end(self) -> bool:
        """See `StreamSocket`."""
        return self._ended and not self._received

    def close(self) -> None:
        """See `StreamSocket`."""
        if not self._closed:
            self._closed = True
            self._pipe.send(b"", self._stream)
            self._network.loop.drop_descriptor(self.fd)


class SimulatedStream(_End):
    """The client's end of a connection: `env.outgoing.Stream`. Writes are never blocked."""

    def __init__(self, network: SimulatedNetwork, receiver: Receiver, peer: tuple[str, int]) -> None:
        self._network = network
        self._receiver = receiver
        self._pipe: _Pipe
        self._socket: SimulatedSocket
        self._closed = False
        self.peer = peer
        self.unsent_bytes = 0

    def attach(self, socket: SimulatedSocket) -> None:
        """Connect it to the other end."""
        self._socket = socket
        self._pipe = _Pipe(self._network, socket.peer_host, self.peer[0], socket.peer_port)

    def write(self, parts: Sequence[Part]) -> None:
        """See `Stream.write`."""
        if not self._closed:
            self._pipe.send(b"".join(parts), self._socket)

    def report_when_sent(self) -> None:
        """See `Stream.report_when_sent`; nothing is ever left to send."""

    def abort(self) -> None:
        """See `Stream.abort`."""
        if not self._closed:
            self._closed = True
            self._pipe.send(b"", self._socket)
            self._network.loop.call_soon(self._receiver.disconnected, None)

    def take(self, data: bytes) -> None:
        """See `_End.take`."""
        if self._closed:
            return
        if not data:
            self._closed = True
            self._pipe.send(b"", self._socket)
            self._receiver.disconnected(None)
            return
        left = memoryview(data)
        while left and not self._closed:
            room = self._receiver.get_buffer(-1)
            length = min(len(room), len(left))
            room[:length] = left[:length]
            self._receiver.buffer_updated(length)
            left = left[length:]
