"""Sockets that listen, and those that they accept: the system's, or those of another `ServerNetwork` (simulated hosts).

Connections to servers are in `ottla.env.outgoing`.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.env.platforms import sendfile_to, sendmsg_of, take_address

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.env.tls import TlsSocket

LISTEN_BACKLOG = 1024
#: Send buffer of the system's default size.
SYSTEM_BUFFER = -1


class NetworkError(Exception):
    """A socket could not be opened; the message names the cause and the cure."""


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None:
        """Have it not called."""
        ...


class EventLoop(Protocol):
    """The event loop as connections use it (asyncio's and uvloop's both fit)."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object:
        """Call `callback` whenever the descriptor has something to read."""
        ...

    def remove_reader(self, fd: int, /) -> bool:
        """Stop that; says whether there was such a callback."""
        ...

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> object:
        """Call `callback` whenever the descriptor takes bytes."""
        ...

    def remove_writer(self, fd: int, /) -> bool:
        """Stop that; says whether there was such a callback."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        """Call `callback` once, `delay` seconds from now."""
        ...

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call `callback` in the next turn of the loop."""
        ...


class ByteCalls(Protocol):
    """The bytes of a connection, without blocking.

    All calls raise `BlockingIOError` when they would block and `OSError` when the connection is gone.
    """

    peer_host: str
    peer_port: int

    @property
    def recv_into(self) -> Callable[[memoryview], int]:
        """Receive into a buffer; returns the bytes received, 0 at the end."""
        ...

    @property
    def send(self) -> Callable[[bytes | bytearray | memoryview, int], int]:
        """Send (bytes, flags); returns the bytes sent."""
        ...

    @property
    def sendmsg(self) -> Callable[[Sequence[bytes | bytearray | memoryview], Sequence[object], int], int]:
        """Send (parts, ancillary data, flags); returns the bytes sent."""
        ...

    def is_broken(self) -> bool:
        """Whether the other side has reset the connection."""
        ...

    def is_at_end(self) -> bool:
        """Whether the other side has closed the connection, and everything that it sent is received."""
        ...

    def close(self) -> None:
        """Close it; closing twice does nothing."""
        ...


class StreamSocket(ByteCalls, Protocol):
    """A connected, non-blocking socket that a listening one accepted: its calls are those of the system's."""

    fd: int
    """What the event loop is to watch."""

    @property
    def sendfile(self) -> Callable[[int, int, int], int]:
        """Send from a file (descriptor, position, length); returns the bytes sent, 0 at the file's end."""
        ...

    def start_tls(self, context: SSLContext) -> TlsSocket:
        """The socket as the server's end of a TLS connection; this one must not be used afterwards."""
        ...


class ListeningSocket(Protocol):
    """A non-blocking socket that accepts connections."""

    fd: int
    """What the event loop is to watch."""
    host: str
    port: int

    def accept(self) -> StreamSocket | None:
        """The next waiting connection, or None where none waits.

        Raises `NetworkError` when the process is out of file descriptors.
        """
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class ServerNetwork(Protocol):
    """The network as servers need it."""

    def listen(
        self, host: str, port: int, backlog: int = LISTEN_BACKLOG, send_buffer_bytes: int = SYSTEM_BUFFER
    ) -> ListeningSocket:
        """Listen on `host` (a name or an address; empty means every interface) and `port` (0: any free one).

        Accepted connections inherit the send buffer. Raises `NetworkError` naming the cause: unknown host, port in
        use, no permission.
        """
        ...

    def canonical_host_name(self) -> str:
        """The machine's own fully qualified name, as Kafka announces it when nothing else is configured."""
        ...


class TcpSocket:
    """A connected, non-blocking TCP socket; what the system has of its methods is its own, without a wrapper."""

    __slots__ = ("_sock", "fd", "peer_host", "peer_port", "recv_into", "send", "sendfile", "sendmsg")

    def __init__(self, sock: socket.socket, peer_host: str, peer_port: int) -> None:
        self._sock = sock
        self.fd = sock.fileno()
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.recv_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[bytes | bytearray | memoryview, int], int] = sock.send
        self.sendmsg = sendmsg_of(sock)
        self.sendfile: Callable[[int, int, int], int] = sendfile_to(sock)

    def start_tls(self, context: SSLContext) -> TlsSocket:
        """See `StreamSocket.start_tls`."""
        from ottla.env.tls import TlsSocket

        return TlsSocket(self._sock, context, self.peer_host, self.peer_port)

    def is_broken(self) -> bool:
        """Whether the other side has reset the connection."""
        return self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def is_at_end(self) -> bool:
        """See `StreamSocket.is_at_end`."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the socket; closing twice does nothing."""
        self._sock.close()


class TcpListeningSocket:
    """A non-blocking TCP socket that accepts connections."""

    __slots__ = ("_sock", "fd", "host", "port")

    def __init__(self, sock: socket.socket, host: str) -> None:
        self._sock = sock
        self.fd = sock.fileno()
        self.host = host
        self.port: int = sock.getsockname()[1]

    def accept(self) -> StreamSocket | None:
        """The next waiting connection, or None where none waits.

        Raises `NetworkError` when the process is out of file descriptors.
        """
        try:
            sock, address = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise NetworkError(
                    f"cannot accept a connection: {error.strerror}; raise the limit of open files (ulimit -n)"
                ) from error
            return None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return TcpSocket(sock, address[0], address[1])

    def close(self) -> None:
        """Stop listening."""
        self._sock.close()


def listen(
    host: str, port: int, backlog: int = LISTEN_BACKLOG, send_buffer_bytes: int = SYSTEM_BUFFER
) -> ListeningSocket:
    """Listen on `host` (a name or an address; empty means every interface) and `port` (0: any free one).

    Accepted connections inherit the send buffer. A small one keeps what is sent in the processor's caches: on the
    loopback a client reads twice as fast from 100 KiB as from what the system would let it grow to.

    Raises `NetworkError` naming the cause: unknown host, port in use, no permission.
    """
    bind_host = host or "0.0.0.0"
    try:
        # As bytes: a text would first be encoded by IDNA, whose tables are large to load.
        name = bind_host.encode("ascii") if bind_host.isascii() else bind_host
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise NetworkError(f"cannot listen on {bind_host}:{port}: the host name does not resolve ({error})") from error
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        take_address(sock)
        if send_buffer_bytes != SYSTEM_BUFFER:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise NetworkError(f"cannot listen on {bind_host}:{port}: {_bind_problem(error)}") from error
    return TcpListeningSocket(sock, host)


def host_name() -> str:
    """The machine's own name, as it is set."""
    return socket.gethostname()


def canonical_host_name() -> str:
    """The machine's own fully qualified name, as Kafka announces it when nothing else is configured."""
    return socket.getfqdn()


def _bind_problem(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another program; stop it, or choose another port (0 takes any free one)"
    if error.errno == errno.EACCES:
        return "permission denied; ports below 1024 need privileges"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    return error.strerror or str(error)


class SystemServerNetwork:
    """The machine's network."""

    __slots__ = ()
    listen = staticmethod(listen)
    canonical_host_name = staticmethod(canonical_host_name)
