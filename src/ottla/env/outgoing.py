"""Connections to servers: the system's network, on asyncio's transports. The simulator has another `Network`.

The owner of a connection is its `Receiver`; what it sends goes through the connection's `Stream`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from typing import Any, Protocol, cast

#: A socket buffer as large as the system makes it.
SYSTEM_BUFFER_BYTES = -1

Part = bytes | bytearray | memoryview


class UnknownHostError(OSError):
    """The name of a host cannot be resolved."""


def reason_of(error: OSError) -> str:
    """The system's words for an error, without a Python class or a number."""
    return os.strerror(error.errno) if error.errno else str(error)


class Stream(Protocol):
    """An open connection to a server."""

    @property
    def peer(self) -> tuple[str, int]:
        """Address and port of the server; ("", 0) where the connection was gone at once."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and not sent yet."""
        ...

    def write(self, parts: Sequence[Part]) -> None:
        """Send all of this in order; what cannot be sent at once is kept and follows."""
        ...

    def report_when_sent(self) -> None:
        """From now on call the receiver's `writable` whenever nothing is left to send, not only after congestion."""
        ...

    def abort(self) -> None:
        """Close the connection without sending what is left; the receiver's `disconnected` follows."""
        ...


class Receiver(Protocol):
    """Owner of a connection; its methods are called in the event loop."""

    def connected(self, stream: Stream) -> None:
        """The connection is established."""
        ...

    def get_buffer(self, sizehint: int, /) -> memoryview:
        """The buffer for the next bytes; never empty."""
        ...

    def buffer_updated(self, nbytes: int, /) -> None:
        """`nbytes` bytes were written into the buffer."""
        ...

    def writable(self) -> None:
        """The write buffer has drained after congestion."""
        ...

    def disconnected(self, error: Exception | None) -> None:
        """The connection is gone; `error` is None where it was closed in order."""
        ...


class Network(Protocol):
    """Resolves names of hosts and opens connections."""

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of a host. Raises `UnknownHostError`."""
        ...

    async def canonical_names(self, host: str, port: int) -> list[str]:
        """The canonical name of each address of a host. Raises `OSError`."""
        ...

    async def connect(
        self,
        address: str,
        port: int,
        receiver: Receiver,
        *,
        send_buffer_bytes: int = SYSTEM_BUFFER_BYTES,
        receive_buffer_bytes: int = SYSTEM_BUFFER_BYTES,
    ) -> None:
        """Open a connection to an address; `receiver.connected` is called before this returns. Raises `OSError`."""
        ...


class SystemNetwork:
    """The machine's network."""

    __slots__ = ()

    async def addresses(self, host: str, port: int) -> list[str]:
        """See `Network.addresses`."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise UnknownHostError(getattr(error, "strerror", None) or str(error)) from error
        return [_literal(address) for *_, address in found]

    async def canonical_names(self, host: str, port: int) -> list[str]:
        """See `Network.canonical_names`."""
        loop = asyncio.get_running_loop()
        return [
            (await loop.getnameinfo((address, port), socket.NI_NUMERICSERV))[0]
            for address in await self.addresses(host, port)
        ]

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
        sizes = ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
        options = [(option, size) for option, size in sizes if size != SYSTEM_BUFFER_BYTES]
        await asyncio.get_running_loop().create_connection(lambda: TransportStream(receiver, options), address, port)


class TransportStream(asyncio.BufferedProtocol):
    """A `Stream` on a transport of asyncio, which calls it as its protocol."""

    def __init__(self, receiver: Receiver, socket_options: Sequence[tuple[int, int]] = ()) -> None:
        self._receiver = receiver
        self._options = socket_options
        # Received bytes go straight to the receiver, without a call in between.
        self.get_buffer = receiver.get_buffer  # type: ignore[assignment, method-assign]
        self.buffer_updated = receiver.buffer_updated  # type: ignore[assignment, method-assign]
        self._transport: asyncio.Transport
        #: Of the socket: valid until `connection_lost`.
        self._fileno = -1
        self.peer: tuple[str, int] = ("", 0)

    @property
    def unsent_bytes(self) -> int:
        """See `Stream.unsent_bytes`."""
        return self._transport.get_write_buffer_size()

    def write(self, parts: Sequence[Part]) -> None:
        """See `Stream.write`."""
        if not self._transport.get_write_buffer_size():
            parts = self._write_now(parts)
        if parts:
            # Not `writelines`: in Python 3.12 to 3.14 it may take data for a lost connection, whose descriptor it then
            # watches when another connection has it (CPython issue 136234), and it may not pause the protocol (127655).
            self._transport.write(b"".join(parts))

    def _write_now(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Write as much as the socket takes, in one call and without a copy (asyncio joins); what is left."""
        try:
            written = os.writev(self._fileno, parts)
        except (OSError, AttributeError):  # the transport will meet it, too; or the call is missing
            return parts
        if written == sum(map(len, parts)):
            return ()
        for number, part in enumerate(parts):
            if written < len(part):
                return [memoryview(part)[written:], *parts[number + 1 :]]
            written -= len(part)
        return ()

    def report_when_sent(self) -> None:
        """See `Stream.report_when_sent`."""
        self._transport.set_write_buffer_limits(high=0)

    def abort(self) -> None:
        """See `Stream.abort`."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio: the connection stands."""
        # Not every loop's transports are registered as asyncio's (uvloop's are not), but they have its methods.
        self._transport = cast("asyncio.Transport", transport)
        self.peer = (transport.get_extra_info("peername") or ("", 0))[:2]  # None where it is gone again
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fileno = connected.fileno()
        for option, size in self._options:
            connected.setsockopt(socket.SOL_SOCKET, option, size)
        self._receiver.connected(self)

    def resume_writing(self) -> None:
        """Asyncio: the transport's buffer has emptied."""
        self._receiver.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio: the connection is gone."""
        self._fileno = -1
        self._receiver.disconnected(exc)


def _literal(address: tuple[Any, ...]) -> str:
    """An address of getaddrinfo as text; one that holds on a single link only names that, too."""
    return f"{address[0]}%{address[3]}" if len(address) > 3 and address[3] else str(address[0])
