"""The server's end of a TLS connection as a non-blocking stream of bytes, with the calls of a `StreamSocket`."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Final

#: Bytes encrypted in one call: those of one TLS record.
RECORD_BYTES: Final = 16 * 1024
#: Bytes received or sent in one call of `recv_into` or `send`, so that one client does not hold the loop.
BYTES_PER_CALL: Final = 1024 * 1024
#: First byte of each TLS handshake.
HANDSHAKE_RECORD: Final = 0x16

_Bytes = bytes | bytearray | memoryview


class Handshake(Enum):
    """The state of a handshake."""

    DONE = auto()
    WAITS_TO_RECEIVE = auto()
    WAITS_TO_SEND = auto()


class NotTlsError(OSError):
    """The client's first byte does not begin a handshake."""


class TlsSocket:
    """A `StreamSocket` that speaks TLS once `handshake` has returned `DONE`.

    OpenSSL has encrypted what `send` offers even where the system takes none of it, and wants the same bytes again.
    They are kept, go out first in the next call, and count as sent when the caller offers them again. So the caller may
    divide its bytes differently then; flags have no meaning here.
    """

    __slots__ = (
        "_ahead",
        "_context",
        "_credit",
        "_first",
        "_has_ended",
        "_plain",
        "_tls",
        "fd",
        "peer_host",
        "peer_port",
    )

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, peer_host: str, peer_port: int) -> None:
        self._plain: socket.socket | None = sock
        self._context = context
        self._tls: ssl.SSLSocket
        #: Encrypted bytes that the system has not taken, and bytes it took before the caller offered them again.
        self._ahead = b""
        self._credit = 0
        #: A byte that `is_at_end` received.
        self._first = b""
        #: Whether the client has ended TLS behind the bytes that were received last; its socket may stay open.
        self._has_ended = False
        self.fd = sock.fileno()
        self.peer_host = peer_host
        self.peer_port = peer_port

    def handshake(self) -> Handshake:
        """Continue the handshake. Raises OSError where it fails: ssl.SSLError, NotTlsError, or ConnectionError."""
        try:
            if self._plain is not None:
                self._begin(self._plain)
            self._tls.do_handshake()
        except (ssl.SSLWantReadError, BlockingIOError, InterruptedError):
            return Handshake.WAITS_TO_RECEIVE
        except ssl.SSLWantWriteError:
            return Handshake.WAITS_TO_SEND
        return Handshake.DONE

    def _begin(self, sock: socket.socket) -> None:
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            first = b""
        if not first:
            raise ConnectionAbortedError("the client has closed the connection")
        if first[0] != HANDSHAKE_RECORD:
            raise NotTlsError("the client does not begin with a handshake")
        self._tls = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._plain = None

    @property
    def client_certificate(self) -> bytes | None:
        """The client's certificate in DER; None where it showed none."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def has_pending(self) -> bool:
        """Whether there are decrypted bytes, or their end, which the system does not announce."""
        return bool(self._first) or self._has_ended or self._tls.pending() > 0

    def recv_into(self, buffer: memoryview) -> int:
        """See `StreamSocket`. Records that have arrived are decrypted until the buffer is full."""
        received, limit = 0, min(len(buffer), BYTES_PER_CALL)
        if self._first:
            buffer[:1], self._first = self._first, b""
            received = 1
        tls = self._tls
        try:
            while received < limit:
                count = tls.recv_into(buffer[received:limit])
                received += count
                # After a short record, more has seldom come; the loop calls again if so.
                self._has_ended = count == 0 < received
                if count == 0 or (count < RECORD_BYTES // 2 and not tls.pending()):
                    break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not received:
                raise BlockingIOError from None
        return received

    def send(self, data: _Bytes, flags: int = 0) -> int:
        """See `StreamSocket`; the flags have no effect."""
        tls = self._tls
        sent = 0
        try:
            if self._ahead:
                self._credit = tls.send(self._ahead)
                self._ahead = b""
            if self._credit:
                sent = self._take_credit(len(data))
            limit = min(len(data), BYTES_PER_CALL)
            while sent < limit:
                piece = data if len(data) <= RECORD_BYTES and not sent else memoryview(data)[sent : sent + RECORD_BYTES]
                try:
                    sent += tls.send(piece)
                except ssl.SSLWantWriteError:
                    self._ahead = bytes(piece)
                    raise
        except ssl.SSLWantWriteError:
            if not sent:
                raise BlockingIOError from None
        return sent

    def _take_credit(self, most: int) -> int:
        taken = min(self._credit, most)
        self._credit -= taken
        return taken

    def sendmsg(self, parts: Sequence[_Bytes], ancillary: Sequence[object] = (), flags: int = 0) -> int:
        """See `StreamSocket`. Short parts are joined to one record."""
        if len(parts[0]) >= RECORD_BYTES:
            return self.send(parts[0])
        record = bytearray()
        for part in parts:
            record += memoryview(part)[: RECORD_BYTES - len(record)]
            if len(record) == RECORD_BYTES:
                break
        return self.send(record)

    def sendfile(self, fd: int, position: int, length: int) -> int:
        """See `StreamSocket`. A record is read when the one before it is sent, so that nothing is read twice."""
        sent = 0
        try:
            while sent < length:
                if self._credit:
                    sent += self._take_credit(length - sent)
                    continue
                piece = os.pread(fd, min(length - sent, RECORD_BYTES), position + sent)
                if not piece:
                    break
                sent += self.send(piece)
        except BlockingIOError:
            if not sent:
                raise
        return sent

    def is_broken(self) -> bool:
        """See `StreamSocket`."""
        sock = self._plain or self._tls
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def is_at_end(self) -> bool:
        """See `StreamSocket`."""
        if self._plain is not None:
            return False
        if self._has_ended:
            return True
        if self.has_pending:
            return False
        try:
            self._first = self._tls.recv(1)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            return True
        return not self._first

    def close(self) -> None:
        """See `StreamSocket`; the client is notified, so that it knows that nothing is missing."""
        if self._plain is not None:
            self._plain.close()
            return
        with suppress(OSError, ValueError):
            self._tls.unwrap()
        self._tls.close()
