"""The server: listens, opens and ends sessions, sends what has become durable."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ottla.env.disk import DiskError
from ottla.env.network import NetworkError, listen
from ottla.net.reports import LimitedReports, call_later
from ottla.net.streams import PlainStream
from ottla.security.errors import SecurityError
from ottla.zk import wire
from ottla.zk.acl import X509_SCHEME, Identity
from ottla.zk.server import four_letter_words
from ottla.zk.server.connection import RECEIVED_PER_SLICE, ClientConnection
from ottla.zk.server.requests import Requests
from ottla.zk.sessions import PASSWORD_LENGTH, Session, SessionTable, first_session_id
from ottla.zk.tree import OpenSession

if TYPE_CHECKING:
    from ottla.env.clock import Clock
    from ottla.env.network import ListeningSocket, StreamSocket
    from ottla.env.randomness import Randomness
    from ottla.zk.server.zoo_cfg import SecureListener
    from ottla.zk.store import TreeStore

log = logging.getLogger("ottla.zk.server")

DEFAULT_PORT = 2181
#: Connections accepted in one slice.
ACCEPTS_PER_SLICE = 64
#: Pause when the process has no file descriptor left, seconds.
ACCEPT_PAUSE_S = 0.1
#: Limit of live sessions; each costs about 300 bytes.
MOST_SESSIONS = 1_000_000
#: Timeout for a connection to ask for a session.
SESSIONLESS_S = 10.0
#: Random bytes in a challenge of SASL.
NONCE_BYTES = 24
#: The client's timeout is an i32.
LONGEST_TIMEOUT_MS = 2**31 - 1
#: Shortest and longest interval between checks for expired sessions, seconds.
SHORTEST_LOOK_S = 0.01
LONGEST_LOOK_S = 1.0
#: A check that runs later than scheduled by this much expires no session; the next one does in any case.
HELD_UP_MS = 100.0
#: Maximum age of the data size that `mntr` reports.
COUNT_AGAIN_MS = 5_000.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """ZooKeeper's settings, by its names and with its defaults."""

    tick_time_ms: int = 2000
    min_session_timeout_ms: int = -1
    max_session_timeout_ms: int = -1
    #: Connections of one address; 0 for any number (`maxClientCnxns`, whose default there is 60).
    max_client_connections: int = 0
    #: Connections in all (`maxCnxns`).
    max_connections: int = 10_000

    def agreed_timeout_ms(self, wanted_ms: int) -> int:
        """The timeout of a session: what the client wants, within two and twenty ticks."""
        least = self.min_session_timeout_ms if self.min_session_timeout_ms > 0 else 2 * self.tick_time_ms
        most = self.max_session_timeout_ms if self.max_session_timeout_ms > 0 else 20 * self.tick_time_ms
        return min(max(least, min(wanted_ms, most)), LONGEST_TIMEOUT_MS)


class ZooKeeperServer:
    """Serves a store's tree to other processes. Store and sessions outlive a stop."""

    def __init__(
        self,
        store: TreeStore,
        clock: Clock,
        randomness: Randomness,
        host: str = "127.0.0.1",
        port: int | None = DEFAULT_PORT,
        settings: ServerSettings | None = None,
        on_failure: Callable[[DiskError], None] = lambda error: None,
        users: Mapping[str, str] | None = None,
        secure: SecureListener | None = None,
    ) -> None:
        self.store = store
        self.scratch = memoryview(bytearray(RECEIVED_PER_SLICE))
        self.long_queues: set[ClientConnection] = set()
        self.settings = settings or ServerSettings()
        self.sessions = SessionTable()
        self._clock = clock
        self._host = host
        self._wanted_port = port
        self._on_failure = on_failure
        self._randomness = randomness
        #: Passwords of those who may log in by SASL.
        self._users = users or {}
        self._secret = randomness.uuid().bytes
        self._next_session_id = 0
        self._listening: ListeningSocket | None = None
        self._secure = secure
        self._listening_for_tls: ListeningSocket | None = None
        self._stopped = False
        self._report = partial(LimitedReports(log.warning, call_later), "ZooKeeper's clients")
        self._connections: dict[ClientConnection, None] = {}
        self._per_host: Counter[str] = Counter()
        self._by_session: dict[int, ClientConnection] = {}
        #: Connections with something to send, and those with something that waits for a flush.
        self._with_output: dict[ClientConnection, None] = {}
        self._holding: dict[ClientConnection, None] = {}
        self._in_slice = False
        self._timer: asyncio.TimerHandle | None = None
        self._look_due_ms = 0.0
        self._looks_again = False
        self._received = 0
        self._sent = 0
        #: When the size of paths and data was last counted, and the size.
        self._counted_data = (-COUNT_AGAIN_MS, 0)

    @property
    def port(self) -> int:
        """The port without TLS that it listens on."""
        assert self._listening is not None, "it was not started, or has none"
        return self._listening.port

    @property
    def secure_port(self) -> int | None:
        """The port for TLS, None where there is none."""
        return None if self._listening_for_tls is None else self._listening_for_tls.port

    async def start(self) -> None:
        """Listen, and restore the store's sessions: each gets its whole timeout.

        Raises `NetworkError` if the port is not available, `DiskError` if the store cannot be written.
        """
        self._loop = asyncio.get_running_loop()
        try:
            if self._wanted_port is not None:
                self._listening = listen(self._host, self._wanted_port)
            if self._secure is not None:
                self._listening_for_tls = listen(self._secure.host, self._secure.port)
            self.store.listen(self)
        except (DiskError, NetworkError):
            self._close_listening()
            raise
        self._requests = Requests(
            self.store,
            self._loop.call_soon,
            self._session_ended,
            self._users,
            lambda: self._randomness.secret_bytes(NONCE_BYTES).hex(),
            self.refused,
        )
        now_ms = self._clock.monotonic_ms()
        for session_id, session in self.store.tree.sessions.items():
            self.sessions.open(session_id, session.password, session.timeout_ms, now_ms)
        newest = max(self.store.tree.sessions, default=0)
        self._next_session_id = max(newest + 1, first_session_id(self._clock.now_ms()))
        self._accept_again()
        self._look_later()

    async def stop(self) -> None:
        """Close all connections. Sessions continue when the store is served again."""
        listening = [each for each in (self._listening, self._listening_for_tls) if each is not None]
        if not listening:
            return
        self._stopped = True
        for each in listening:
            self._loop.remove_reader(each.fd)
        self._close_listening()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._connections):
            connection.close()
        self.store.listen(None)

    def _close_listening(self) -> None:
        for listening in (self._listening, self._listening_for_tls):
            if listening is not None:
                listening.close()

    # Connections

    def _accept(self, listening: ListeningSocket) -> None:
        for _ in range(ACCEPTS_PER_SLICE):
            try:
                socket = listening.accept()
            except NetworkError as error:
                self._report(str(error))
                self._loop.remove_reader(listening.fd)
                self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again)
                return
            if socket is None:
                return
            limit = self.settings.max_client_connections
            if len(self._connections) >= self.settings.max_connections or 0 < limit <= self._per_host[socket.peer_host]:
                self._report(f"too many connections: one from {socket.peer_host} is refused")
                socket.close()
                continue
            connection = self._connection(socket, is_secure=listening is self._listening_for_tls)
            self._connections[connection] = None
            self._per_host[socket.peer_host] += 1
            self._loop.call_later(SESSIONLESS_S, connection.close_without_session)

    def _connection(self, socket: StreamSocket, *, is_secure: bool) -> ClientConnection:
        if not is_secure:
            return ClientConnection(self._loop, PlainStream(self._loop, socket), self)
        from ottla.net.tls import TlsByteStream
        from ottla.security.principal import principal_name

        assert self._secure is not None
        stream = TlsByteStream(self._loop, socket.start_tls(self._secure.context()))
        connection = ClientConnection(self._loop, stream, self)

        def established(certificate: bytes | None) -> None:
            if certificate is not None:
                try:
                    identity = Identity(X509_SCHEME, principal_name(certificate))
                except SecurityError as error:
                    failed(str(error))
                    return
                connection.identities = (*connection.identities, identity)

        def failed(cause: str) -> None:
            if cause:
                self.refused(connection, f"its TLS handshake failed: {cause}")
            connection.close()

        stream.begin(established, failed)
        return connection

    def _accept_again(self) -> None:
        for listening in (self._listening, self._listening_for_tls):
            if listening is not None and not self._stopped:
                self._loop.add_reader(listening.fd, partial(self._accept, listening))

    def begin_slice(self, connection: ClientConnection) -> None:
        """See `Service.begin_slice`."""
        self._in_slice = True
        session = connection.session
        if session is not None:
            self.store.requesting_sessions.add(session.id)
            session.touch(self._clock.monotonic_ms())

    def heard_of(self, connection: ClientConnection) -> None:
        """See `Service.heard_of`."""
        if connection.session is not None:
            connection.session.touch(self._clock.monotonic_ms())

    def has_output(self, connection: ClientConnection) -> None:
        """See `Service.has_output`."""
        if not self._in_slice and not self._with_output:
            # A change of this process, outside any connection's slice.
            self._loop.call_soon(self.end_slice)
        self._with_output[connection] = None

    def holds_back(self, connection: ClientConnection) -> None:
        """See `Service.holds_back`."""
        self._holding[connection] = None

    def end_slice(self) -> None:
        """See `Service.end_slice`."""
        waiting = self._with_output
        while waiting:
            self._with_output = {}
            for connection in waiting:
                connection.send()
            waiting = self._with_output
        self._in_slice = False

    def refused(self, connection: ClientConnection, why: str) -> None:
        """See `Service.refused`."""
        self._report(f"{connection.peer_host}:{connection.peer_port} is cut off: {why}")

    def connection_closed(self, connection: ClientConnection) -> None:
        """See `Service.connection_closed`."""
        del self._connections[connection]
        self._per_host[connection.peer_host] -= 1
        if not self._per_host[connection.peer_host]:
            del self._per_host[connection.peer_host]
        self._holding.pop(connection, None)
        self.long_queues.discard(connection)
        self.store.watches.drop(connection)
        self._received += connection.received
        self._sent += connection.sent
        session = connection.session
        if session is not None and self._by_session.get(session.id) is connection:
            del self._by_session[session.id]

    # Store listener

    def forced(self, zxid: int) -> None:
        """See `StoreListener.forced`."""
        self._in_slice = True
        for connection in list(self._holding):
            if connection.release(zxid):
                del self._holding[connection]
        self.end_slice()

    def failed(self, error: DiskError) -> None:
        """See `StoreListener.failed`: no more responses or events are sent."""
        for connection in list(self._connections):
            connection.close()
        self._on_failure(error)

    # Sessions

    def handle(self, connection: ClientConnection, data: bytes, start: int, end: int) -> None:
        """See `Service.handle`."""
        if connection.session is not None:
            self._requests.handle(connection, data, start, end)
            return
        try:
            request = wire.connect_request(data, start, end)
        except wire.JuteError as error:
            self.refused(connection, f"no ZooKeeper client ({error})")
            connection.close()
            return
        forced = self.store.forced_zxid
        if request.last_zxid_seen > forced:
            self.refused(
                connection,
                f"it has seen transaction 0x{request.last_zxid_seen:x}, and the last one here is 0x{forced:x}: it "
                "comes from another server, or from before the data here was restored or lost",
            )
            connection.close()
            return
        timeout_ms = self.settings.agreed_timeout_ms(request.timeout_ms)
        try:
            session = self._session_for(request, timeout_ms)
        except DiskError as error:
            self.refused(connection, f"its session cannot be written ({error})")
            connection.close()
            return
        if session is None:
            connection.put(wire.connect_response(0, 0, bytes(PASSWORD_LENGTH), request.read_only), 0)
            connection.close_when_sent()
            return
        former = self._by_session.get(session.id)
        if former is not None:
            former.close()
        connection.session = session
        self._by_session[session.id] = connection
        opened = wire.connect_response(session.timeout_ms, session.id, session.password, request.read_only)
        connection.put(opened, connection.zxid_after(self.store.tree.last_zxid))

    def _session_for(self, request: wire.ConnectRequest, timeout_ms: int) -> Session | None:
        """The requested session; None if it has ended. Raises `DiskError`."""
        now_ms = self._clock.monotonic_ms()
        if request.session_id:
            return self.sessions.reconnect(request.session_id, request.password, timeout_ms, now_ms)
        if len(self.sessions) >= MOST_SESSIONS:
            self._report(f"{len(self.sessions)} sessions live: no more are opened")
            return None
        session_id = self._next_session_id
        self._next_session_id += 1
        password = hashlib.blake2b(
            session_id.to_bytes(8, "big"), digest_size=PASSWORD_LENGTH, key=self._secret
        ).digest()
        self.store.execute([OpenSession(session_id, password, timeout_ms)], session_id)
        session = self.sessions.open(session_id, password, timeout_ms, now_ms)
        if self._timer is None:
            self._look_later()
        return session

    def _session_ended(self, connection: ClientConnection, session_id: int) -> None:
        """Handle a session closed by its client."""
        self.sessions.close(session_id)
        self._by_session.pop(session_id, None)

    def _look_later(self) -> None:
        at_ms = self.sessions.next_look_ms()
        if at_ms is None:
            self._timer = None
            return
        now_ms = self._clock.monotonic_ms()
        delay_s = min(max((at_ms - now_ms) / 1000.0, SHORTEST_LOOK_S), LONGEST_LOOK_S)
        self._look_due_ms = now_ms + 1000.0 * delay_s
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        # If the loop was blocked, requests that arrived meanwhile are read first.
        was_held_up = self._clock.monotonic_ms() > self._look_due_ms + HELD_UP_MS
        if not was_held_up or self._looks_again:
            self.expire_sessions()
        self._looks_again = was_held_up
        self._look_later()

    def expire_sessions(self) -> None:
        """End the sessions whose timeout has passed."""
        self._in_slice = True
        for session in self.sessions.expired(self._clock.monotonic_ms()):
            try:
                done = self.store.expire_session(session.id)
            except DiskError as error:
                log.error("the end of session 0x%x cannot be written (%s); it is tried again", session.id, error)
                self.sessions.put_off(session, self._clock.monotonic_ms())
                continue
            log.info("session 0x%x has expired after %d ms", session.id, session.timeout_ms)
            self.sessions.close(session.id)
            self._requests.notify(done)
            connection = self._by_session.get(session.id)
            if connection is not None:
                connection.close()
        self.end_slice()

    # Four-letter words

    def answer_to_word(self, word: bytes) -> bytes | None:
        """See `Service.answer_to_word`."""
        try:
            known = word.decode("ascii")
        except UnicodeDecodeError:
            return None
        answer = four_letter_words.answer(known, self._stats)
        return None if answer is None else answer.encode()

    def _stats(self) -> four_letter_words.ServerStats:
        tree, watches = self.store.tree, self.store.watches
        return four_letter_words.ServerStats(
            connections=len(self._connections),
            outstanding=len(self._holding),
            zxid=self.store.forced_zxid,
            nodes=len(tree.nodes),
            settings={
                "clientPort": -1 if self._listening is None else self.port,
                "secureClientPort": -1 if self.secure_port is None else self.secure_port,
                "tickTime": self.settings.tick_time_ms,
                "maxClientCnxns": self.settings.max_client_connections,
                "minSessionTimeout": self.settings.agreed_timeout_ms(0),
                "maxSessionTimeout": self.settings.agreed_timeout_ms(2**31),
            },
            traffic=self._traffic,
            data_bytes=self._data_bytes,
            watches=lambda: watches.count,
            watched_paths=lambda: len({path for paths in watches.watchers().values() for path in paths}),
            sessions=lambda: {session.id: session.timeout_ms for session in self.sessions},
            ephemerals=tree.ephemerals,
            clients=lambda: [_connection_stats(connection) for connection in self._connections],
        )

    def _traffic(self) -> tuple[int, int]:
        received = self._received + sum(each.received for each in self._connections)
        return received, self._sent + sum(each.sent for each in self._connections)

    def _data_bytes(self) -> int:
        """Size of paths and data, at most some seconds old, since counting visits every node."""
        now_ms = self._clock.monotonic_ms()
        counted_at_ms, size = self._counted_data
        if now_ms >= counted_at_ms + COUNT_AGAIN_MS:
            size = sum(len(path) + len(node.data or b"") for path, node in self.store.tree.nodes.items())
            self._counted_data = now_ms, size
        return size


def _connection_stats(connection: ClientConnection) -> four_letter_words.ConnectionStats:
    session = connection.session
    return four_letter_words.ConnectionStats(
        connection.peer_host,
        connection.peer_port,
        connection.received,
        connection.sent,
        session.id if session is not None else 0,
        session.timeout_ms if session is not None else 0,
    )
