"""Kafka's acceptor: takes connections from listening sockets, within limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from ottla.env.network import EventLoop, ListeningSocket, NetworkError, StreamSocket
from ottla.net.buffers import BufferPool
from ottla.net.connection import Connect, Connection, RequestService
from ottla.net.plaintext import PlaintextConnection

#: Connections accepted per listener in one slice.
ACCEPTS_PER_SLICE = 64
#: Pause in accepting when the process is out of file descriptors, in seconds.
ACCEPT_PAUSE_S = 0.1
#: Limits that are raised are looked at again after this time.
LONGEST_PAUSE_S = 1.0
#: `max.connection.creation.rate` without a limit.
NO_RATE = 2**31 - 1
#: Unused creation rate of at most this time lets more connections come at once.
RATE_BURST_MS = 1000.0


class ConnectionSet:
    """All open connections, counted per address, under `max.connections` and `max.connections.per.ip`."""

    def __init__(self, limit: int, limit_per_host: int) -> None:
        self.limit = limit
        self.limit_per_host = limit_per_host
        #: Other limits for single addresses (`max.connections.per.ip.overrides`).
        self.limits_of_hosts: Mapping[str, int] = {}
        #: New connections a second (`max.connection.creation.rate`); more of them wait to be accepted.
        self.creation_rate = NO_RATE
        self._next_creation_ms = 0.0
        self._per_host: Counter[str] = Counter()
        #: In the order in which they were accepted.
        self._open: dict[Connection, None] = {}
        #: Connections that were ever added.
        self.accepted = 0
        self.refused = 0
        #: Bytes of closed connections.
        self._bytes_in = 0
        self._bytes_out = 0

    def __len__(self) -> int:
        return len(self._open)

    def admits(self, host: str) -> bool:
        """Whether one more connection from `host` is allowed; a refusal is counted."""
        limit_of_host = self.limits_of_hosts.get(host, self.limit_per_host)
        if len(self._open) < self.limit and self._per_host[host] < limit_of_host:
            return True
        self.refused += 1
        return False

    def wait_to_accept_ms(self, now_ms: float) -> float:
        """How long until one more connection may be accepted; after a quiet second, those of one may come at once."""
        return max(0.0, self._next_creation_ms - now_ms) if self.creation_rate < NO_RATE else 0.0

    def created(self, now_ms: float) -> None:
        """Note that a connection was accepted."""
        if self.creation_rate < NO_RATE:
            earliest_ms = max(self._next_creation_ms, now_ms - RATE_BURST_MS)
            self._next_creation_ms = earliest_ms + 1000 / max(1, self.creation_rate)

    def add(self, connection: Connection) -> None:
        """Count a new connection."""
        self.accepted += 1
        self._open[connection] = None
        self._per_host[connection.peer_host] += 1

    def remove(self, connection: Connection) -> None:
        """Forget a closed connection."""
        if connection in self._open:
            del self._open[connection]
            self._bytes_in += connection.bytes_in
            self._bytes_out += connection.bytes_out
            self._per_host[connection.peer_host] -= 1
            if not self._per_host[connection.peer_host]:
                del self._per_host[connection.peer_host]

    def bytes_in(self) -> int:
        """Bytes received on all connections, closed ones included."""
        return self._bytes_in + sum(connection.bytes_in for connection in self._open)

    def bytes_out(self) -> int:
        """Bytes sent on all connections, closed ones included."""
        return self._bytes_out + sum(connection.bytes_out for connection in self._open)

    def snapshot(self) -> list[Connection]:
        """A list of the open connections, safe to iterate while they are closed."""
        return list(self._open)


class Acceptor:
    """Accepts on one listener and makes a connection of each stream with `connect`."""

    def __init__(
        self,
        loop: EventLoop,
        listening: ListeningSocket,
        listener_name: str,
        service: RequestService,
        connections: ConnectionSet,
        report: Callable[[str], None],
        monotonic_ms: Callable[[], float],
        connect: Connect = PlaintextConnection,
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._listener_name = listener_name
        self._service = service
        self._connections = connections
        self._report = report
        self._monotonic_ms = monotonic_ms
        self._connect = connect
        self._pool = BufferPool()
        self._reported = False
        self._refusing = False
        self._closed = False
        loop.add_reader(listening.fd, self._on_acceptable)

    @property
    def port(self) -> int:
        """The port listened on, resolved if 0 was configured."""
        return self._listening.port

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_SLICE):
            wait_ms = self._connections.wait_to_accept_ms(self._monotonic_ms())
            if wait_ms:
                self._pause(wait_ms / 1000)
                return
            try:
                stream = self._listening.accept()
            except NetworkError as error:
                if not self._reported:
                    self._reported = True
                    self._report(str(error))
                # The socket stays readable: ask again later instead of spinning.
                self._pause(ACCEPT_PAUSE_S)
                return
            if stream is None:
                return
            self._connections.created(self._monotonic_ms())
            self._welcome(stream)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening.fd)
        self._loop.call_later(min(seconds, LONGEST_PAUSE_S), self._accept_again)

    def _accept_again(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening.fd, self._on_acceptable)

    def _welcome(self, stream: StreamSocket) -> None:
        if not self._connections.admits(stream.peer_host):
            stream.close()
            if not self._refusing:
                self._refusing = True
                self._report(
                    f"refusing connections, now from {stream.peer_host}: {len(self._connections)} are open; "
                    f"max.connections and the limit of open files (ulimit -n) allow {self._connections.limit}, "
                    f"max.connections.per.ip may allow one host fewer"
                )
            return
        self._refusing = False
        connection = self._connect(self._loop, stream, self._service, self._listener_name, self._pool)
        # Idle time counts from the last request; for a new connection it counts from its acceptance.
        connection.last_active_ms = self._monotonic_ms()
        self._connections.add(connection)

    def close(self) -> None:
        """Stop accepting."""
        self._closed = True
        self._loop.remove_reader(self._listening.fd)
        self._listening.close()
