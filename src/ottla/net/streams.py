"""Byte streams under a connection: what a listener makes of the sockets that it accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ottla.env.network import ByteCalls, EventLoop, StreamSocket

if TYPE_CHECKING:
    from ottla.env.tls import TlsSocket

Socket = TypeVar("Socket", bound="StreamSocket | TlsSocket")


class ByteStream(ByteCalls, Protocol):
    """A stream of bytes to and from a client, watched by the event loop.

    What did not go out must be sent again, the same bytes first.
    """

    def sendfile(self, fd: int, position: int, length: int) -> int:
        """Send bytes of a file, as many as the client takes at once; returns the bytes sent, 0 at the file's end."""

    def add_reader(self, callback: Callable[[], object]) -> None:
        """Call `callback` whenever there is something to receive."""

    def remove_reader(self) -> None:
        """Stop that."""

    def add_writer(self, callback: Callable[[], object]) -> None:
        """Call `callback` whenever bytes can be sent."""

    def remove_writer(self) -> None:
        """Stop that."""


class SocketStream(Generic[Socket]):
    """A stream over a socket that the event loop watches: the base of those with TLS and without."""

    __slots__ = ("_fd", "_loop", "_socket", "peer_host", "peer_port", "send", "sendmsg")

    def __init__(self, loop: EventLoop, socket: Socket) -> None:
        self._loop = loop
        self._socket = socket
        self._fd = socket.fd
        self.peer_host = socket.peer_host
        self.peer_port = socket.peer_port
        #: The socket's own methods, so that a call costs nothing more.
        self.send = socket.send
        self.sendmsg = socket.sendmsg

    def add_writer(self, callback: Callable[[], object]) -> None:
        """See `ByteStream.add_writer`."""
        self._loop.add_writer(self._fd, callback)

    def remove_writer(self) -> None:
        """See `ByteStream.remove_writer`."""
        self._loop.remove_writer(self._fd)

    def is_broken(self) -> bool:
        """See `ByteStream.is_broken`."""
        return self._socket.is_broken()

    def is_at_end(self) -> bool:
        """See `ByteStream.is_at_end`."""
        return self._socket.is_at_end()

    def close(self) -> None:
        """See `ByteStream.close`."""
        self._socket.close()


class PlainStream(SocketStream[StreamSocket]):
    """The bytes of a socket as they are."""

    __slots__ = ("_sendfile", "recv_into")

    def __init__(self, loop: EventLoop, socket: StreamSocket) -> None:
        super().__init__(loop, socket)
        self.recv_into = socket.recv_into
        self._sendfile = socket.sendfile

    def sendfile(self, fd: int, position: int, length: int) -> int:
        """See `ByteStream.sendfile`."""
        sendfile = self._sendfile
        at, left = position, length
        try:
            while left:
                sent = sendfile(fd, at, left)
                if sent == 0:
                    break
                at += sent
                left -= sent
        except (BlockingIOError, InterruptedError):
            if at == position:
                raise
        return at - position

    def add_reader(self, callback: Callable[[], object]) -> None:
        """See `ByteStream.add_reader`."""
        self._loop.add_reader(self._fd, callback)

    def remove_reader(self) -> None:
        """See `ByteStream.remove_reader`."""
        self._loop.remove_reader(self._fd)
