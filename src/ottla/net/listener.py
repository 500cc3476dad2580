"""Kafka's acceptor: takes connections from listening sockets, within limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.env.network import EventLoop, ListeningSocket, NetworkError, StreamSocket, Timer
from ottla.net.buffers import BufferPool
from ottla.net.connection import ANONYMOUS, Connection, Principal, RequestService
from ottla.net.framed import FramedConnection
from ottla.net.reports import LimitedReports
from ottla.net.streams import PlainStream

if TYPE_CHECKING:
    from ottla.net.tls import TlsTerms

#: Connections accepted per listener in one slice.
ACCEPTS_PER_SLICE = 64
#: Pause in accepting when the process is out of file descriptors, in seconds.
ACCEPT_PAUSE_S = 0.1
#: A client of a listener with SASL must log in within this time, its TLS handshake included.
LOGIN_LIMIT_S: Final = 30.0
#: Connections of a listener that are kept unserved for a while; more are closed at once.
MOST_UNSERVED: Final = 1_000
#: Limits that are raised are looked at again after this time.
LONGEST_PAUSE_S = 1.0
#: `max.connection.creation.rate` without a limit.
NO_RATE = 2**31 - 1
#: Unused creation rate of at most this time lets more connections come at once.
RATE_BURST_MS = 1000.0


class CreationRate:
    """A limit of new connections a second (`max.connection.creation.rate`); more of them wait to be accepted."""

    def __init__(self) -> None:
        self.limit = NO_RATE
        self._next_ms = 0.0

    def wait_ms(self, now_ms: float) -> float:
        """How long until one more connection may be accepted; after a quiet second, those of one may come at once."""
        return max(0.0, self._next_ms - now_ms) if self.limit < NO_RATE else 0.0

    def created(self, now_ms: float) -> None:
        """Note that a connection was accepted."""
        if self.limit < NO_RATE:
            self._next_ms = max(self._next_ms, now_ms - RATE_BURST_MS) + 1000 / max(1, self.limit)


class ConnectionSet:
    """All open connections, counted per address and listener, under `max.connections` and `max.connections.per.ip`."""

    def __init__(self, limit: int, limit_per_host: int) -> None:
        self.limit = limit
        self.limit_per_host = limit_per_host
        #: Other limits for single addresses (`max.connections.per.ip.overrides`).
        self.limits_of_hosts: Mapping[str, int] = {}
        #: Limits of listeners (`listener.name.NAME.max.connections`).
        self.limits_of_listeners: dict[str, int] = {}
        #: Of all listeners together, and of each.
        self.creation_rate = CreationRate()
        self.creation_rates: dict[str, CreationRate] = {}
        #: How long a new connection of an address is kept unserved before it is closed, since it had too many of late;
        #: 0 for one that is served. None while no address has a limit.
        self.wait_of_host_ms: Callable[[str], float] | None = None
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
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

    def admits(self, host: str, listener_name: str) -> bool:
        """Whether one more connection from `host` to this listener is allowed; a refusal is counted."""
        if (
            len(self._open) < self.limit
            and self._per_host[host] < self.limits_of_hosts.get(host, self.limit_per_host)
            and self._per_listener[listener_name] < self.limits_of_listeners.get(listener_name, self.limit)
        ):
            return True
        self.refused += 1
        return False

    def wait_to_accept_ms(self, now_ms: float, listener_name: str) -> float:
        """How long until one more connection to this listener may be accepted."""
        return max(rate.wait_ms(now_ms) for rate in self._rates(listener_name))

    def created(self, now_ms: float, listener_name: str) -> None:
        """Note that a connection was accepted."""
        for rate in self._rates(listener_name):
            rate.created(now_ms)

    def _rates(self, listener_name: str) -> list[CreationRate]:
        own = self.creation_rates.get(listener_name)
        return [self.creation_rate] if own is None else [self.creation_rate, own]

    def add(self, connection: Connection) -> None:
        """Count a new connection."""
        self.accepted += 1
        self._open[connection] = None
        self._per_host[connection.peer_host] += 1
        self._per_listener[connection.listener_name] += 1

    def remove(self, connection: Connection) -> None:
        """Forget a closed connection."""
        if connection in self._open:
            del self._open[connection]
            self._bytes_in += connection.bytes_in
            self._bytes_out += connection.bytes_out
            self._per_listener[connection.listener_name] -= 1
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
    """Accepts on one listener and makes a connection of each socket.

    Clients are `principal`, None until they have authenticated by SASL.
    """

    def __init__(
        self,
        loop: EventLoop,
        listening: ListeningSocket,
        listener_name: str,
        service: RequestService,
        connections: ConnectionSet,
        report: Callable[[str], None],
        monotonic_ms: Callable[[], float],
        tls: TlsTerms | None = None,
        principal: Principal | None = ANONYMOUS,
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._listener_name = listener_name
        self._service = service
        self._connections = connections
        self._report = report
        #: Of single clients.
        self._client_reports = partial(LimitedReports(report, loop.call_later), f"listener {listener_name}")
        self._monotonic_ms = monotonic_ms
        #: How the listener speaks TLS; None if it does not.
        self._tls = tls
        self._principal = principal
        self._pool = BufferPool()
        self._reported = False
        self._refusing = False
        self._closed = False
        #: Connections that are closed later.
        self._unserved: dict[StreamSocket, Timer] = {}
        loop.add_reader(listening.fd, self._on_acceptable)

    @property
    def port(self) -> int:
        """The port listened on, resolved if 0 was configured."""
        return self._listening.port

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_SLICE):
            wait_ms = self._connections.wait_to_accept_ms(self._monotonic_ms(), self._listener_name)
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
            self._connections.created(self._monotonic_ms(), self._listener_name)
            self._welcome(stream)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening.fd)
        self._loop.call_later(min(seconds, LONGEST_PAUSE_S), self._accept_again)

    def _accept_again(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening.fd, self._on_acceptable)

    def _welcome(self, stream: StreamSocket) -> None:
        if not self._connections.admits(stream.peer_host, self._listener_name):
            stream.close()
            if not self._refusing:
                self._refusing = True
                self._client_reports(
                    f"refusing connections, now from {stream.peer_host}: {len(self._connections)} are open; "
                    f"max.connections and the limit of open files (ulimit -n) allow {self._connections.limit}, "
                    f"max.connections.per.ip and listener {self._listener_name}'s own limit may allow fewer"
                )
            return
        self._refusing = False
        if self._connections.wait_of_host_ms is not None:
            wait_ms = self._connections.wait_of_host_ms(stream.peer_host)
            if wait_ms:
                self._close_later(stream, wait_ms)
                return
        connection = self._connect(stream)
        # Idle time counts from the last request; for a new connection it counts from its acceptance.
        connection.last_active_ms = self._monotonic_ms()
        self._connections.add(connection)
        if self._principal is None:
            connection.login_timer = self._loop.call_later(LOGIN_LIMIT_S, partial(self._login_too_slow, connection))

    def _close_later(self, stream: StreamSocket, wait_ms: float) -> None:
        """Keep a connection unserved, so that its client does not come again at once, as Apache Kafka does."""
        unserved = len(self._unserved)
        # These take file descriptors, too.
        if unserved >= MOST_UNSERVED or unserved + len(self._connections) >= self._connections.limit:
            stream.close()
            return
        self._unserved[stream] = self._loop.call_later(wait_ms / 1000, partial(self._close_unserved, stream))

    def _close_unserved(self, stream: StreamSocket) -> None:
        del self._unserved[stream]
        stream.close()

    def _login_too_slow(self, connection: Connection) -> None:
        self._client_reports(
            f"closing the connection of {connection.peer_host}:{connection.peer_port} at listener "
            f"{self._listener_name}: it has not logged in within {LOGIN_LIMIT_S:.0f} s",
        )
        connection.close()

    def _connect(self, stream: StreamSocket) -> FramedConnection:
        loop, service, name, pool = self._loop, self._service, self._listener_name, self._pool
        if self._tls is None:
            return FramedConnection(loop, PlainStream(loop, stream), service, name, pool, self._principal)
        from ottla.net import tls  # a broker without TLS does not load it

        return tls.connect(loop, stream, service, name, pool, self._tls, self._client_reports)

    def close(self) -> None:
        """Stop accepting."""
        self._closed = True
        for stream, timer in self._unserved.items():
            timer.cancel()
            stream.close()
        self._unserved.clear()
        self._loop.remove_reader(self._listening.fd)
        self._listening.close()
