"""An in-memory network in virtual time: hosts by name, connections that deliver bytes in order after a seeded latency.

A server gets sockets that its event loop watches (`VirtualTimeLoop` watches them instead of a system's selector), a
client an `env.outgoing.Network`. Sent bytes arrive after `latency_ms`; there is no loss, and a closed connection ends
at the other side after the bytes sent before.

Faults: `block` stops all bytes in one direction, which wait as TCP's do that are sent again and again; `delays` slows a
host down; `reset` breaks connections; `end_host` closes those of a killed process, and `power_off` those of a host that
says nothing any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from ottla.env.futures import settle
from ottla.env.network import LISTEN_BACKLOG, SYSTEM_BUFFER, NetworkError
from ottla.env.outgoing import SYSTEM_BUFFER_BYTES, Part, Receiver, UnknownHostError
from ottla.sim.processes import SimulatedProcess, current_process
from ottla.sim.virtual_loop import VirtualTimeLoop
from support.simulated_cluster.tls import tls_socket

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.env.tls import TlsSocket

SEND_BUFFER_BYTES = 256 * 1024
"""Bytes in flight that one end of a connection may have before it has to wait."""
FIRST_FREE_PORT = 32_768
FIRST_CLIENT_PORT = 50_000
REFUSED = "connection refused"
RESET = "connection reset by peer"


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
        #: Other latencies of messages from or to a host.
        self.delays: dict[str, tuple[float, float]] = {}
        #: Open connections, by the client's port.
        self._connections: dict[int, SimulatedStream] = {}
        #: All that were opened, as far as clients still have them.
        self._streams: WeakSet[SimulatedStream] = WeakSet()
        self._blocked: set[tuple[str, str]] = set()
        #: Hosts without power: nobody there refuses a connection.
        self._dark: set[str] = set()
        self._unblocked: list[asyncio.Future[None]] = []
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

    def latency_s(self, source: str = "", target: str = "") -> float:
        """The latency of the next chunk between these hosts."""
        between_ms = self._latency_ms
        if self.delays:
            between_ms = self.delays.get(source) or self.delays.get(target) or between_ms
        return self._chance.uniform(*between_ms) / 1000

    # Faults

    def block(self, source: str, target: str) -> None:
        """Let nothing pass from one host to another until `unblock`."""
        self._blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        """Let bytes pass again; those that were sent meanwhile arrive now."""
        self._blocked.discard((source, target))
        for stream in list(self._connections.values()):
            for pipe in stream.pipes:
                if pipe.leads(source, target):
                    pipe.go_on()
        waiting, self._unblocked = self._unblocked, []
        for each in waiting:
            settle(each, None)

    def passes(self, source: str, target: str) -> bool:
        """Whether bytes pass from one host to another."""
        return (source, target) not in self._blocked

    async def way_is_open(self, source: str, target: str) -> None:
        """Wait until two hosts can reach each other in both directions."""
        while not self.passes(source, target) or not self.passes(target, source) or target in self._dark:
            waiting = self.loop.create_future()
            self._unblocked.append(waiting)
            await waiting

    def connections_of(self, host: str) -> list[SimulatedStream]:
        """The open connections of a host, the oldest first."""
        return [each for each in self._connections.values() if host in (each.own_host, each.peer[0])]

    def reset(self, stream: SimulatedStream) -> None:
        """Break a connection; both sides notice it."""
        stream.reset()

    def end_host(self, host: str) -> None:
        """The process on this host has ended, and the system closes what it had open."""
        self._stop_listening(host)
        for each in self.connections_of(host):
            each.end_of(host)

    def power_off(self, host: str) -> None:
        """The host is gone without a word: the others wait for answers until `power_on`."""
        self._dark.add(host)
        self._stop_listening(host)
        for each in self.connections_of(host):
            each.go_dark(host)

    def power_on(self, host: str) -> None:
        """The host is back, and does not know the connections that it had."""
        self._dark.discard(host)
        for each in self.connections_of(host):
            each.reset()
        waiting, self._unblocked = self._unblocked, []
        for waiter in waiting:
            settle(waiter, None)

    def _stop_listening(self, host: str) -> None:
        for listening in [each for (name, _), each in self.listening.items() if name == host]:
            listening.close()

    def end(self) -> None:
        """The simulation is over, and its loop closed: clients that it drops find their connections closed."""
        for stream in self._streams:
            stream.drop()

    def opened(self, port: int, stream: SimulatedStream) -> None:
        """Note an open connection."""
        self._connections[port] = stream
        self._streams.add(stream)

    def closed(self, port: int) -> None:
        """Note that both sides of a connection are closed."""
        self._connections.pop(port, None)

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
        loop.call_later(network.latency_s(self._name, address), settle, answered, None)
        await answered
        await network.way_is_open(self._name, address)
        listening = network.listening.get((address, port))
        if listening is None:
            raise ConnectionRefusedError(REFUSED)
        stream = SimulatedStream(network, receiver, (address, port))
        socket = SimulatedSocket(network, self._name, network.client_port(), stream, listening.process)
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
        process = self.process = current_process()
        self.fd = network.loop.new_descriptor(
            lambda: bool(self._waiting) and (process is None or process.is_running), lambda: False
        )
        network.listening[host, port] = self

    def offer(self, socket: SimulatedSocket) -> None:
        """Add a client's connection to the backlog."""
        self._waiting.append(socket)
        self._network.loop.look_at(self.fd)

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

    def __init__(
        self,
        network: SimulatedNetwork,
        source: str,
        target: str,
        port: int,
        has_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._network = network
        self._ends = (source, target, port)
        #: Called when bytes have arrived.
        self._has_room = has_room
        self._last_arrival_s = 0.0
        self._chunks: deque[tuple[bytes, _End]] = deque()
        #: How many of the chunks would have arrived by now.
        self._due = 0
        self.in_flight_bytes = 0

    def leads(self, source: str, target: str) -> bool:
        """Whether this is the direction."""
        return self._ends[:2] == (source, target)

    def send(self, data: bytes, arrived: _End) -> None:
        """Call `arrived.take(data)` when the chunk arrives; an empty one is the end."""
        loop = self._network.loop
        self.in_flight_bytes += len(data)
        self._chunks.append((data, arrived))
        # Chunks due at the same moment must stay in order, which the loop's timer heap does not guarantee.
        latency_s = self._network.latency_s(*self._ends[:2])
        self._last_arrival_s = max(loop.time() + latency_s, self._last_arrival_s + 1e-9)
        loop.call_at(self._last_arrival_s, self._chunk_is_due, context=loop.outside)

    def _chunk_is_due(self) -> None:
        self._due += 1
        self._deliver()

    def go_on(self) -> None:
        """Deliver what waited while the way was blocked."""
        if self._due:
            loop = self._network.loop
            loop.call_later(self._network.latency_s(*self._ends[:2]), self._deliver, context=loop.outside)

    def drop(self) -> None:
        """Forget what is on its way."""
        self._chunks.clear()
        self._due = self.in_flight_bytes = 0
        self._has_room()

    def _deliver(self) -> None:
        network = self._network
        while self._due and self._chunks and network.passes(*self._ends[:2]):
            self._due -= 1
            data, arrived = self._chunks.popleft()
            self.in_flight_bytes -= len(data)
            self._has_room()
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

    def __init__(
        self,
        network: SimulatedNetwork,
        peer_host: str,
        peer_port: int,
        stream: SimulatedStream,
        process: SimulatedProcess | None,
    ) -> None:
        self._network = network
        self._stream = stream
        self._process = process
        self.pipe = _Pipe(network, stream.peer[0], peer_host, peer_port, self.has_room)
        self._received = bytearray()
        self._ended = False
        self.is_closed = False
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.fd = network.loop.new_descriptor(self._is_readable, self._is_writable)

    def _is_readable(self) -> bool:
        has_something = self._ended or bool(self._received)
        return has_something and (self._process is None or self._process.is_running)

    def _is_writable(self) -> bool:
        has_room = self.pipe.in_flight_bytes < SEND_BUFFER_BYTES
        return has_room and (self._process is None or self._process.is_running)

    def take(self, data: bytes) -> None:
        """See `_End.take`."""
        if data:
            self._received += data
        else:
            self._ended = True
        self._network.loop.look_at(self.fd)

    def has_room(self) -> None:
        """Bytes that were on their way have arrived."""
        self._network.loop.look_at(self.fd)

    def recv_into(self, buffer: memoryview) -> int:
        """See `StreamSocket`."""
        if self.is_closed:
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
        if self.is_closed or self._ended:
            raise BrokenPipeError("the other side has closed the connection")
        room = SEND_BUFFER_BYTES - self.pipe.in_flight_bytes
        if room <= 0:
            raise BlockingIOError
        data = b"".join(parts)[:room]
        if data:
            self.pipe.send(data, self._stream)
        return len(data)

    def sendfile(self, fd: int, position: int, length: int) -> int:
        """See `StreamSocket`; disks of the simulator have no descriptors."""
        raise AssertionError("a file in memory has no descriptor")

    def start_tls(self, context: SSLContext) -> TlsSocket:
        """See `StreamSocket`."""
        return tls_socket(self, context)

    def peek(self) -> bytes:
        """The first byte that was received; empty at the end. Raises BlockingIOError where there is none yet."""
        if not self._received and not self._ended:
            raise BlockingIOError
        return bytes(self._received[:1])

    def is_broken(self) -> bool:
        """See `StreamSocket`."""
        return False

    def is_at_end(self) -> bool:
        """See `StreamSocket`."""
        return self._ended and not self._received

    def close(self) -> None:
        """See `StreamSocket`."""
        if not self.is_closed:
            self.is_closed = True
            self.pipe.send(b"", self._stream)
            self._network.loop.drop_descriptor(self.fd)
            self._stream.note_closed()

    def vanish(self) -> None:
        """Close the socket without a word to the other side."""
        self.is_closed = True
        self._network.loop.drop_descriptor(self.fd)


class SimulatedStream(_End):
    """The client's end of a connection: `env.outgoing.Stream`. Writes are never blocked."""

    def __init__(self, network: SimulatedNetwork, receiver: Receiver, peer: tuple[str, int]) -> None:
        self._network = network
        self._receiver = receiver
        self._context = contextvars.copy_context()
        self._pipe: _Pipe
        self._socket: SimulatedSocket
        self._closed = False
        self.peer = peer
        self.unsent_bytes = 0

    def attach(self, socket: SimulatedSocket) -> None:
        """Connect it to the other end."""
        self._socket = socket
        self._pipe = _Pipe(self._network, socket.peer_host, self.peer[0], socket.peer_port)
        self._network.opened(socket.peer_port, self)

    @property
    def own_host(self) -> str:
        """The client's host."""
        return self._socket.peer_host

    @property
    def pipes(self) -> tuple[_Pipe, _Pipe]:
        """Both directions."""
        return self._pipe, self._socket.pipe

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
            self.note_closed()
            self._network.loop.call_soon(self._receiver.disconnected, None, context=self._context)

    def drop(self) -> None:
        """The simulation is over: nothing is sent any more."""
        self._closed = True
        self._receiver.disconnected(None)

    def note_closed(self) -> None:
        """One of the ends was closed."""
        if self._closed and self._socket.is_closed:
            self._network.closed(self._socket.peer_port)

    def reset(self) -> None:
        """Break the connection: what is on its way is lost, and both sides notice."""
        for pipe in self.pipes:
            pipe.drop()
        self._socket.take(b"")
        if not self._closed:
            self._closed = True
            error = ConnectionResetError(RESET)
            self._network.loop.call_soon(self._receiver.disconnected, error, context=self._context)
        self._network.closed(self._socket.peer_port)

    def end_of(self, host: str) -> None:
        """The process on one of the hosts has ended: its end is closed."""
        if host == self.own_host and not self._closed:
            self._closed = True
            self._pipe.send(b"", self._socket)
        if host == self.peer[0]:
            self._socket.close()
        self.note_closed()

    def go_dark(self, host: str) -> None:
        """One of the hosts has lost its power: its end is gone, and what is on its way there."""
        for pipe in self.pipes:
            pipe.drop()
        if host == self.own_host:
            self._closed = True
        if host == self.peer[0]:
            self._socket.vanish()

    def take(self, data: bytes) -> None:
        """See `_End.take`."""
        self._network.loop.call_soon(self._arrived, data, context=self._context)

    def _arrived(self, data: bytes) -> None:
        if self._closed:
            return
        if not data:
            self._closed = True
            self._pipe.send(b"", self._socket)
            self.note_closed()
            self._receiver.disconnected(None)
            return
        left = memoryview(data)
        while left and not self._closed:
            room = self._receiver.get_buffer(-1)
            length = min(len(room), len(left))
            room[:length] = left[:length]
            self._receiver.buffer_updated(length)
            left = left[length:]
