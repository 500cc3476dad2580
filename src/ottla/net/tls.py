"""Connections of a TLS listener: the handshake, then frames and responses as on any other (`framed.py`)."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.env.tls import Handshake, NotTlsError, TlsSocket
from ottla.net.framed import FramedConnection
from ottla.net.streams import SocketStream

if TYPE_CHECKING:
    from ottla.env.network import EventLoop, StreamSocket, Timer
    from ottla.net.buffers import BufferPool
    from ottla.net.connection import Principal, RequestService

#: A client must finish its handshake within this time.
HANDSHAKE_LIMIT_S: Final = 10.0

_NO_TRUST = "the client does not trust this broker's certificate; check its trust store and the host name"
#: What failures of a handshake mean, by OpenSSL's reason.
_CAUSES: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "the client shows no certificate; give it a key store, or set ssl.client.auth to requested or none"
    ),
    "TLSV1_ALERT_UNKNOWN_CA": _NO_TRUST,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _NO_TRUST,
    "SSLV3_ALERT_BAD_CERTIFICATE": _NO_TRUST,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that this broker's certificate has expired; renew it",
    "NO_SHARED_CIPHER": "client and broker share no cipher suite; see ssl.cipher.suites and the key's algorithm",
    "UNSUPPORTED_PROTOCOL": "the client speaks no version of TLS that ssl.enabled.protocols has",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client speaks no version of TLS that ssl.enabled.protocols has",
}


class TlsByteStream(SocketStream[TlsSocket]):
    """The bytes inside of a TLS connection: `streams.ByteStream`. What is watched begins with the handshake."""

    __slots__ = (
        "_again",
        "_established",
        "_failed",
        "_is_open",
        "_reader",
        "_timer",
        "_writing",
        "sendfile",
    )

    def __init__(self, loop: EventLoop, socket: TlsSocket) -> None:
        super().__init__(loop, socket)
        self._reader: Callable[[], object] | None = None
        #: Whether the reader will be called for decrypted bytes.
        self._again = False
        #: Whether the handshake is done.
        self._is_open = False
        #: Set during the handshake.
        self._established: Callable[[bytes | None], None] | None = None
        self._failed: Callable[[str], None] | None = None
        self._timer: Timer | None = None
        self._writing = False
        self.sendfile = socket.sendfile

    # The handshake

    def begin(self, established: Callable[[bytes | None], None], failed: Callable[[str], None]) -> None:
        """Start the handshake; one of the callbacks gets the client's certificate (DER) or the cause of the failure."""
        self._established, self._failed = established, failed
        self._timer = self._loop.call_later(HANDSHAKE_LIMIT_S, self._too_slow)
        self._loop.add_reader(self._fd, self._shake_hands)

    def _shake_hands(self) -> None:
        try:
            state = self._socket.handshake()
        except OSError as error:
            self._fail(cause_of(error))
            return
        if self._writing != (state is Handshake.WAITS_TO_SEND):
            self._writing = not self._writing
            if self._writing:
                self._loop.add_writer(self._fd, self._shake_hands)
            else:
                self._loop.remove_writer(self._fd)
        if state is Handshake.DONE:
            established = self._established
            self._end_handshake()
            self._is_open = True
            if self._reader is not None:
                self.add_reader(self._reader)
            assert established is not None, "the handshake has begun"
            established(self._socket.client_certificate)

    def _too_slow(self) -> None:
        self._fail(f"it was not finished within {HANDSHAKE_LIMIT_S:.0f} s")

    def _fail(self, cause: str) -> None:
        failed = self._failed
        self._end_handshake()
        if failed is not None:
            failed(cause)

    def _end_handshake(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = self._established = self._failed = None
        self._loop.remove_reader(self._fd)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    # See `ByteStream`

    def recv_into(self, buffer: memoryview) -> int:
        """Receive into a buffer. Decrypted bytes that do not fit are announced to the reader in the next slice."""
        received = self._socket.recv_into(buffer)
        self._announce_pending()
        return received

    def add_reader(self, callback: Callable[[], object]) -> None:
        """Call `callback` whenever there is something to receive, after the handshake."""
        self._reader = callback
        if self._is_open:
            self._loop.add_reader(self._fd, callback)
            self._announce_pending()

    def _announce_pending(self) -> None:
        if not self._again and self._socket.has_pending:
            self._again = True
            self._loop.call_soon(self._read_pending)

    def _read_pending(self) -> None:
        self._again = False
        if self._reader is not None:
            self._reader()

    def remove_reader(self) -> None:
        """Stop that."""
        self._reader = None
        if self._is_open:
            self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Close the stream; closing twice does nothing."""
        self._reader = None
        self._end_handshake()
        super().close()


@dataclass(slots=True)
class TlsTerms:
    """How a listener speaks TLS; `context` may be replaced, for connections from then on."""

    context: ssl.SSLContext
    principal_of: Callable[[bytes | None], Principal | str | None]
    """The principal of a client with this certificate (DER), or why it has none; None where SASL follows."""
    expires_ms: int = 0
    """When the listener's certificate expires."""


def connect(
    loop: EventLoop,
    socket: StreamSocket,
    service: RequestService,
    listener_name: str,
    pool: BufferPool,
    terms: TlsTerms,
    report: Callable[[str], None],
) -> FramedConnection:
    """A connection that has no principal until its handshake is done; a failed one is reported, and closed."""
    stream = TlsByteStream(loop, socket.start_tls(terms.context))
    connection = FramedConnection(loop, stream, service, listener_name, pool, principal=None)

    def established(certificate: bytes | None) -> None:
        principal = terms.principal_of(certificate)
        if isinstance(principal, str):
            failed(principal)
        elif principal is not None:
            connection.set_principal(principal)

    def failed(cause: str) -> None:
        if cause:
            report(
                f"closing the connection of {connection.peer_host}:{connection.peer_port} at listener {listener_name}: "
                f"its TLS handshake failed: {cause}"
            )
        connection.close()

    stream.begin(established, failed)
    return connection


def cause_of(error: OSError) -> str:
    """The cause of a failed handshake, for the log; empty where a client only came and went, as health checks do."""
    if isinstance(error, NotTlsError):
        return "the client does not speak TLS; set its security.protocol to SSL, or have it use a listener without TLS"
    if not isinstance(error, ssl.SSLError):
        return "" if isinstance(error, ConnectionAbortedError) else f"the client has gone ({error.strerror or error})"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}; check ssl.truststore.* of this broker"
    if isinstance(error, ssl.SSLEOFError):
        return "the client has gone; it may not trust this broker's certificate"
    reason = error.reason or ""
    return _CAUSES.get(reason) or (reason.replace("_", " ").lower() or str(error))
