"""TLS over the network in memory: the shipped `TlsSocket`, with OpenSSL between buffers under it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

from ottla.env.tls import TlsSocket

if TYPE_CHECKING:
    from socket import socket

    from support.simulated_cluster.network import SimulatedSocket

T = TypeVar("T")

HEAD_BYTES = 5


def tls_socket(socket_under: SimulatedSocket, context: ssl.SSLContext) -> TlsSocket:
    """The server's end of a connection with TLS."""
    made = SslInMemory(socket_under, context)
    # It is the socket, and the context that makes the one with TLS of it.
    return TlsSocket(cast("socket", made), cast("ssl.SSLContext", made), socket_under.peer_host, socket_under.peer_port)


class SslInMemory:
    """An `ssl.SSLSocket` over a simulated socket, as far as `TlsSocket` uses it.

    As OpenSSL does, it takes no more from the socket than the record that it needs, and wants bytes that were encrypted
    and did not go out once more.
    """

    def __init__(self, socket: SimulatedSocket, context: ssl.SSLContext) -> None:
        self._socket = socket
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        #: The head of the record that arrives, as far as it is there, and then what is missing of the record.
        self._head = bytearray()
        self._missing = 0
        #: Encrypted, and not sent yet; and what of it `send` was offered.
        self._unsent = bytearray()
        self._offered = b""

    # As a socket, before TLS

    def fileno(self) -> int:
        return self._socket.fd

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Peek at the first byte where there are flags, else receive decrypted bytes."""
        if flags:
            return self._socket.peek()
        return self._do(lambda: self._tls.read(size))

    def getsockopt(self, level: int, option: int) -> int:
        return 0

    # As a context

    def wrap_socket(self, sock: object, *, server_side: bool, do_handshake_on_connect: bool) -> SslInMemory:
        assert server_side
        assert not do_handshake_on_connect
        return self

    # As a socket with TLS

    def do_handshake(self) -> None:
        self._do(self._tls.do_handshake)
        if not self._flush():
            raise ssl.SSLWantWriteError

    def getpeercert(self, binary_form: bool) -> bytes | None:
        return self._tls.getpeercert(binary_form=True)

    def pending(self) -> int:
        return self._tls.pending()

    def recv_into(self, buffer: memoryview) -> int:
        try:
            return self._do(lambda: cast("int", self._tls.read(len(buffer), buffer)))
        except ssl.SSLEOFError:
            return 0

    def send(self, data: bytes | bytearray | memoryview) -> int:
        if not self._offered:
            self._offered = bytes(data)
            self._tls.write(data)
        if not self._flush():
            raise ssl.SSLWantWriteError
        assert self._offered == data, "other bytes than before"
        sent, self._offered = len(self._offered), b""
        return sent

    def unwrap(self) -> None:
        with suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self._flush()

    def close(self) -> None:
        self._socket.close()

    def _do(self, operation: Callable[[], T]) -> T:
        """Do what may need more than has arrived. Raises SSLWantReadError."""
        while True:
            try:
                return operation()
            except ssl.SSLWantReadError:
                self._flush()
                if not self._feed():
                    raise

    def _feed(self) -> bool:
        """Take the next piece of a record, or the end; False where nothing has arrived."""
        piece = memoryview(bytearray(self._missing or HEAD_BYTES - len(self._head)))
        try:
            count = self._socket.recv_into(piece)
        except BlockingIOError:
            return False
        if not count:
            self._incoming.write_eof()
            return True
        self._incoming.write(piece[:count])
        if self._missing:
            self._missing -= count
            return True
        self._head += piece[:count]
        if len(self._head) == HEAD_BYTES:
            self._missing = int.from_bytes(self._head[3:])
            self._head.clear()
        return True

    def _flush(self) -> bool:
        """Send what is encrypted; False where not all of it goes out."""
        self._unsent += self._outgoing.read()
        while self._unsent:
            try:
                del self._unsent[: self._socket.send(self._unsent, 0)]
            except BlockingIOError:
                return False
        return True
