"""A connection as the broker sees it, whatever carries its bytes.

There are several kinds: plaintext sockets (`ottla.net.plaintext`), TLS, and simulated ones. Listeners get a function
that makes the kind they need of a stream (`Connect`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.env.disk import DiskFile, FileSlice
from ottla.env.network import EventLoop, StreamSocket
from ottla.net.buffers import BufferPool
from ottla.net.parts import MadePart
from ottla.net.queued import QueuedBytes

Part = bytes | bytearray | memoryview | FileSlice | MadePart

#: The largest request in bytes from a client that is not authenticated yet (Kafka's `sasl.server.max.receive.size`).
FRAME_LIMIT_BEFORE_AUTHENTICATION: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a client is (KafkaPrincipal): a type, nearly always `User`, and a name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


#: Everybody on a listener without authentication.
ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class Connection(Protocol):
    """One client's connection: whole requests in, one in work at a time, answers out in order.

    The request in work is finished by exactly one call of `send`, `send_bytes` or `complete`, or by `close`.
    """

    listener_name: str
    peer_host: str
    peer_port: int
    #: Who the client is; None before it is authenticated, on a listener that asks for it.
    principal: Principal | None
    #: The largest request in bytes that is accepted now.
    frame_limit: int
    #: What the broker keeps with this connection.
    state: object
    #: When a request came last, on the broker's monotonic clock.
    last_active_ms: float
    closed: bool
    bytes_in: int
    bytes_out: int

    def authenticate(self, principal: Principal, frame_limit: int) -> None:
        """The client is who it says: larger requests are accepted from now on."""
        ...

    def keep_frame(self) -> None:
        """Keep the frame of the request in work as it is until the request is finished.

        Without this its memory is used again when the handler returns. What is kept counts as queued bytes.
        """
        ...

    def mute_for(self, duration_ms: float) -> None:
        """Take up no further request, and read nothing, for so long (KIP-219). Called before the request in work is
        answered; the answer goes out at once.
        """
        ...

    def send(self, parts: Sequence[Part]) -> None:
        """Send the answer to the request in work, its size field included, and then take up the next request.

        The bytes of the parts must not change afterwards. A `FileSlice` is released once, when sent or dropped, a
        `MadePart` by its own rules.
        """
        ...

    def send_bytes(self, data: bytes) -> None:
        """The same for an answer of one part."""
        ...

    def complete(self) -> None:
        """The request in work is done without an answer (Produce with acks=0)."""
        ...

    def close_when_sent(self) -> None:
        """Take no further request, and close once the answer given to `send` is sent."""
        ...

    def close(self) -> None:
        """Close now; what was not sent is dropped and its file ranges released. Closing twice does nothing."""
        ...

    def close_if_broken(self) -> None:
        """Close a connection that was reset without the loop telling."""
        ...

    def idle_ms(self, now_ms: float) -> float:
        """For how long no request has come and, as far as calls of this can tell, no byte was received or sent."""
        ...

    def close_if_idle(self) -> None:
        """Close a connection that has nothing to do, or whose client sends or takes no more in the middle."""
        ...

    def shrink_if_idle(self) -> None:
        """Give back a large receive buffer of a connection that has nothing to do."""
        ...


class Service(Protocol):
    """What a connection needs of the broker that owns it."""

    #: The bytes of requests that are kept while they are worked on.
    queued: QueuedBytes

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        """Work on one request; its bytes are valid during the call, or until the answer if they are kept."""
        ...

    def frame_limit(self, principal: Principal | None) -> int:
        """The largest request in bytes that is accepted from such a client (`socket.request.max.bytes`)."""
        ...

    def refuse_frame(self, connection: Connection, size: int) -> None:
        """Called for a request whose size is not accepted, before the connection is closed."""
        ...

    def read_ahead(self, file: DiskFile, position: int, length: int, done: Callable[[], None]) -> None:
        """Bring a cold range of a file into the page cache, away from the loop, then call `done` on the loop."""
        ...

    def make(self, work: Callable[[], bytes], done: Callable[[bytes | None, BaseException | None], None]) -> None:
        """Make the next piece of an answer away from the loop, then call `done(piece, error)` on the loop."""
        ...

    def connection_closed(self, connection: Connection) -> None:
        """Called once when the connection is gone, whoever closed it."""
        ...


#: Makes a connection of an accepted stream; the text is the listener's name.
Connect = Callable[[EventLoop, StreamSocket, Service, str, BufferPool], Connection]
