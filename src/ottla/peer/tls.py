"""TLS of a client's connections: between the stream of the network and the receiver of a connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, Generic, TypeVar, cast

from ottla.env.futures import settle
from ottla.env.outgoing import Part, Receiver, Stream
from ottla.peer.errors import (
    AuthenticationError,
    BrokerHangsError,
    ClientError,
    ConnectionLostError,
    HandshakeFault,
    NotKafkaError,
)

BUFFER_BYTES: Final = 256 * 1024
"""Encrypted bytes that are received at once."""

_NOT_TLS: Final = frozenset(
    ("HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "WRONG_VERSION_NUMBER")
)
"""OpenSSL's reasons where the other side does not speak TLS."""
_UNTRUSTED: Final = frozenset((2, 18, 19, 20, 21))
_EXPIRED, _NOT_YET_VALID, _WRONG_NAMES = 10, 9, (62, 64)
"""OpenSSL's codes of what is wrong with a certificate."""
_CERTIFICATE_FAULTS: Final = {
    _EXPIRED: HandshakeFault.EXPIRED_CERTIFICATE,
    **dict.fromkeys(_UNTRUSTED, HandshakeFault.UNTRUSTED_CERTIFICATE),
    **dict.fromkeys(_WRONG_NAMES, HandshakeFault.WRONG_HOST_NAME),
}
_ALERT: Final = "_ALERT_"
_WANTED: Final = frozenset(("CERTIFICATE_REQUIRED", "NO_CERTIFICATE", "BAD_CERTIFICATE", "HANDSHAKE_FAILURE"))
"""Alerts of brokers that miss the client's certificate, by the version of TLS."""
_REFUSED: Final = frozenset(
    ("BAD_CERTIFICATE", "CERTIFICATE_REVOKED", "CERTIFICATE_UNKNOWN", "UNKNOWN_CA", "UNSUPPORTED_CERTIFICATE")
)
_NO_VERSION: Final = frozenset(("NO_PROTOCOLS_AVAILABLE", "UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW"))


class TlsSettings:
    """Settings of TLS by Kafka's names (`ssl.…`); the context that they make is made once, at the first connection."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)

    @cached_property
    def context(self) -> ssl.SSLContext:
        """The context of connections. Raises ottla.security.errors.SecurityError."""
        from ottla.security.contexts import client_context  # most clients have no TLS

        return client_context(self._settings)

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}  # a context cannot go to another process

    @property
    def has_certificate(self) -> bool:
        """Whether the client has a certificate to show."""
        return bool(self._settings.get("ssl.keystore.location") or self._settings.get("ssl.keystore.key"))


R = TypeVar("R", bound=Receiver)
Other = TypeVar("Other", bound=Receiver)


class TlsStream(Generic[R]):
    """A connection with TLS: a `Receiver` for the network, a `Stream` for the receiver that it is made with.

    Once the handshake has ended, the receiver gets what was decrypted. A broker that refuses the client's certificate
    says so by an alert, which with TLS 1.3 comes after the handshake; then the receiver's `disconnected` gets
    AuthenticationError.
    """

    def __init__(self, receiver: R, settings: TlsSettings, address: str, host: str) -> None:
        self.receiver = receiver
        #: Its result is None when the handshake has succeeded, else why it has not.
        self.shaken: asyncio.Future[ClientError | None] = asyncio.get_running_loop().create_future()
        self._settings = settings
        self._address = address
        self._host = host
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = host.partition("%")[0].rstrip(".")  # certificates have neither zones nor the dot of the root
        self._tls = settings.context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._stream: Stream
        self._is_shaken = False
        self._is_closed = False
        #: Why this side ended the connection.
        self._error: ClientError | None = None
        #: Written before the end of the handshake.
        self._held = bytearray()

    def another(self, receiver: Other) -> TlsStream[Other]:
        """A further connection with the same server."""
        return TlsStream(receiver, self._settings, self._address, self._host)

    @property
    def peer(self) -> tuple[str, int]:
        """See `Stream.peer`."""
        return self._stream.peer

    @property
    def unsent_bytes(self) -> int:
        """See `Stream.unsent_bytes`."""
        return len(self._held) + self._stream.unsent_bytes

    def write(self, parts: Sequence[Part]) -> None:
        """See `Stream.write`."""
        if self._is_closed:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if not self._is_shaken:
            self._held += data
            return
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()

    def report_when_sent(self) -> None:
        """See `Stream.report_when_sent`."""
        self._stream.report_when_sent()

    def abort(self) -> None:
        """See `Stream.abort`; the broker is notified where the socket takes that at once."""
        if not self._is_closed and self._is_shaken:
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._is_closed = True
        self._stream.abort()

    def connected(self, stream: Stream) -> None:
        """Begin the handshake."""
        self._stream = stream
        self.receiver.connected(self)
        self._continue()

    def get_buffer(self, sizehint: int, /) -> memoryview:
        """The buffer for the next encrypted bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int, /) -> None:
        """Take in encrypted bytes."""
        if not self._is_closed:
            self._incoming.write(self._buffer[:nbytes])
            self._continue()

    def writable(self) -> None:
        """The network has sent everything."""
        if self._is_shaken:
            self.receiver.writable()

    def disconnected(self, error: Exception | None) -> None:
        """The connection is gone."""
        self._is_closed = True
        lost = ConnectionLostError(f"{self._address} closed the connection during the TLS handshake", retriable=True)
        settle(self.shaken, self._error or lost)
        self.receiver.disconnected(self._error or error)

    def _continue(self) -> None:
        try:
            if not self._is_shaken:
                self._tls.do_handshake()
                self._is_shaken = True
                settle(self.shaken, None)
                if self._held:
                    self._tls.write(self._held)
                    self._held = bytearray()
            self._flush()
            self._decrypt()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()

    def _decrypt(self) -> None:
        """Pass on what has arrived, until OpenSSL wants more."""
        while not self._is_closed:
            buffer, filled = self.receiver.get_buffer(-1), 0
            try:
                while filled < len(buffer):
                    count = cast("int", self._tls.read(len(buffer) - filled, buffer[filled:]))
                    if not count:  # the broker has closed it in order
                        self._is_closed = True
                        break
                    filled += count
            finally:
                if filled:
                    self.receiver.buffer_updated(filled)
        if self._is_closed:
            self._stream.abort()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._stream.write([self._outgoing.read()])

    def _fail(self, error: ssl.SSLError) -> None:
        """End the connection; the alert that OpenSSL has written goes out first."""
        self._error = explained(error, self._address, self._host, has_certificate=self._settings.has_certificate)
        self._flush()
        self._is_closed = True
        self._stream.abort()


async def shake_hands(stream: TlsStream[Any], address: str, timeout_ms: int) -> None:
    """Wait for the end of the handshake. Raises AuthenticationError, NotKafkaError, BrokerHangsError."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            error = await stream.shaken
    except TimeoutError:
        raise BrokerHangsError(
            f"{address} accepts connections but does not finish the TLS handshake within {timeout_ms} ms; check that "
            "the port is a listener for TLS, and whether the broker is overloaded or stopped",
            retriable=True,
        ) from None
    if isinstance(error, ConnectionLostError):
        raise NotKafkaError(f"{error}; check that the port is a listener for TLS", retriable=True) from error
    if error is not None:
        raise error


def explained(error: ssl.SSLError, address: str, host: str, *, has_certificate: bool) -> ClientError:
    """The error for a user: the cause, and the cure."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(_bad_certificate(error, address, host)).because(
            _CERTIFICATE_FAULTS.get(error.verify_code)
        )
    reason = error.reason or ""
    if reason in _NOT_TLS:
        return ConnectionLostError(f"{address} does not speak TLS", retriable=True)
    alert = reason.partition(_ALERT)[2]
    words = (alert or reason or str(error)).replace("_", " ").lower()
    fault = None
    if alert in _WANTED and not has_certificate:
        fault = HandshakeFault.CLIENT_CERTIFICATE_MISSING
        why = (
            "wants a certificate of this client, which has none; set ssl.keystore.location to a store with its key and "
            "certificate (or ssl.keystore.key and ssl.keystore.certificate.chain)"
        )
    elif alert in _REFUSED:
        fault = HandshakeFault.CLIENT_CERTIFICATE_REFUSED
        why = (
            f"refuses the certificate of this client ({words}); have it signed by an authority that the broker trusts "
            "(its ssl.truststore.location)"
        )
    elif alert == "CERTIFICATE_EXPIRED":
        fault = HandshakeFault.EXPIRED_CERTIFICATE
        why = "says that the certificate of this client has expired; renew the certificate in ssl.keystore.location"
    elif alert == "PROTOCOL_VERSION" or reason in _NO_VERSION:
        why = "and this client have no version of TLS in common; compare ssl.enabled.protocols on both sides"
    else:
        why = f"breaks off TLS ({words}); compare ssl.enabled.protocols and ssl.cipher.suites on both sides"
    return AuthenticationError(f"{address} {why}").because(fault)


def _bad_certificate(error: ssl.SSLCertVerificationError, address: str, host: str) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return f"the certificate of {address}, or of its authority, has expired; renew it on the broker"
    if code == _NOT_YET_VALID:
        return f"the certificate of {address} is not valid yet; compare the clocks of client and broker"
    if code in _UNTRUSTED:
        return (
            f"the certificate of {address} is not signed by an authority that this client trusts; set "
            "ssl.truststore.location to a store with the authority's certificate (or ssl.truststore.certificates)"
        )
    if code in _WRONG_NAMES:
        return (
            f"the certificate of {address} is not for the name {host}; connect by a name that it has, or issue it for "
            "this name too"
        )
    return f"the certificate of {address} is refused ({error.verify_message}); issue it again"
