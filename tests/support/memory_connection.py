"""A client's connection to a broker of this process, without a socket: bytes in, bytes out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ottla.broker.server import Broker
from ottla.net.buffers import BufferPool
from ottla.net.connection import ANONYMOUS, Principal
from ottla.net.framed import FramedConnection

Bytes = bytes | bytearray | memoryview
#: Turns of the loop after which a request that is not answered waits for a timer, or for another request.
TURNS = 50


class MemoryStream:
    """The broker's side of the bytes (`net.streams.ByteStream`)."""

    def __init__(self) -> None:
        self.peer_host, self.peer_port = "1.2.3.4", 9
        self.incoming = bytearray()
        self.sent = bytearray()
        #: Whether the client takes what the broker sends.
        self.takes = True
        self._reader: Callable[[], object] | None = None
        self._writer: Callable[[], object] | None = None

    def feed(self, data: Bytes) -> None:
        """Let bytes of the client arrive, as far as the broker reads."""
        self.incoming += data
        while self.incoming and self._reader is not None:
            self._reader()

    def take(self) -> None:
        """Let the client receive again."""
        self.takes = True
        while self._writer is not None:
            self._writer()

    def recv_into(self, buffer: memoryview) -> int:
        if not self.incoming:
            raise BlockingIOError
        count = min(len(buffer), len(self.incoming))
        buffer[:count] = self.incoming[:count]
        del self.incoming[:count]
        return count

    def send(self, data: Bytes, flags: int = 0) -> int:
        if not self.takes:
            raise BlockingIOError
        self.sent += data
        return len(data)

    def sendmsg(self, parts: Sequence[Bytes], ancillary: Sequence[object] = (), flags: int = 0) -> int:
        return self.send(b"".join(parts), flags)

    def sendfile(self, fd: int, position: int, length: int) -> int:
        raise NotImplementedError("the disks of these brokers are in memory")

    def add_reader(self, callback: Callable[[], object]) -> None:
        self._reader = callback
        if self.incoming:
            asyncio.get_running_loop().call_soon(self.feed, b"")

    def remove_reader(self) -> None:
        self._reader = None

    def add_writer(self, callback: Callable[[], object]) -> None:
        self._writer = callback

    def remove_writer(self) -> None:
        self._writer = None

    def is_broken(self) -> bool:
        return False

    def is_at_end(self) -> bool:
        return False

    def close(self) -> None:
        self._reader = self._writer = None


class MemoryClient:
    """A client of a listener; without a principal it has to log in."""

    def __init__(
        self, broker: Broker, listener_name: str = "PLAINTEXT", principal: Principal | None = ANONYMOUS
    ) -> None:
        self.stream = MemoryStream()
        self.connection = FramedConnection(
            asyncio.get_running_loop(), self.stream, broker.dispatcher, listener_name, BufferPool(), principal
        )
        broker.connections.add(self.connection)

    @property
    def is_settled(self) -> bool:
        """Whether the connection is closed, or everything is answered."""
        return self.connection.closed or self.connection.is_idle

    async def settle(self, turns: int = TURNS) -> bool:
        """Let the broker work; whether it has done everything."""
        for _ in range(turns):
            if self.is_settled:
                return True
            await asyncio.sleep(0)
        return self.is_settled

    def frames(self) -> list[bytes]:
        """The answers that came since the last call."""
        found, sent = [], self.stream.sent
        while len(sent) >= 4 and len(sent) >= (end := 4 + int.from_bytes(sent[:4], "big")):
            found.append(bytes(sent[4:end]))
            del sent[:end]
        return found
