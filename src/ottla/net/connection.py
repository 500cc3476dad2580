"""The broker's interface to a connection, independent of its transport; `ottla.net.framed` has the connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.env.disk import DiskFile, FileSlice
from ottla.env.network import EventLoop

#: No limit on the bytes of kept requests, Kafka's default.
UNLIMITED: Final = -1
#: Requests of one connection that may be answered in one slice, while no other has several.
REQUESTS_PER_SLICE: Final = 64
#: Requests that all connections with several of them may have answered in one slice together; each has at least one. A
#: request of any other connection waits for this many at most.
SHARED_PER_SLICE: Final = 32


@dataclass(frozen=True, slots=True)
class Principal:
    """A client's identity (KafkaPrincipal): a type, nearly always `User`, and a name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


#: The principal of every client on a listener without authentication.
ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class MadePart:
    """Bytes of known length that a thread makes piece by piece, so that they are never all in memory.

    `make()` returns the next piece, at least one byte while any are left, and `length` bytes in all; it may block and
    raise. `release` is called once, on the loop: when everything was made, or when the part is dropped, but never
    while a thread is in `make`.
    """

    __slots__ = ("_at_work", "_dropped", "_release", "length", "make")

    def __init__(self, length: int, make: Callable[[], bytes], release: Callable[[], None]) -> None:
        #: Bytes not made yet.
        self.length = length
        self.make = make
        self._release = release
        self._at_work = False
        self._dropped = False

    def begin(self) -> None:
        """Note that a thread is about to call `make`."""
        self._at_work = True

    def end(self, made: int) -> None:
        """Note that `make` returned this many bytes."""
        self._at_work = False
        self.length -= made
        if self.length <= 0 or self._dropped:
            self._release()

    def release(self) -> None:
        """Drop the part."""
        if self._at_work:
            self._dropped = True
        elif self.length > 0:
            self.length = 0
            self._release()


Part = bytes | bytearray | memoryview | FileSlice | MadePart


class Connection(Protocol):
    """One client's connection: whole requests in, one in work at a time, responses out in order.

    The request in work is finished by exactly one call of `send`, `send_bytes` or `complete`, or by `close`.
    """

    listener_name: str
    peer_host: str
    peer_port: int
    #: The client's identity; on a listener with authentication, None before it is authenticated.
    principal: Principal | None
    #: The largest request accepted now, in bytes.
    frame_limit: int
    #: The broker's state for this connection.
    state: object
    #: When the last request arrived, on the broker's monotonic clock.
    last_active_ms: float
    #: Whether a response with several short file ranges is read and sent in one call, for followers (`gathering.py`).
    gathers_ranges: bool
    closed: bool
    bytes_in: int

    @property
    def bytes_out(self) -> int:
        """Bytes of responses sent."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses not sent yet."""

    def set_principal(self, principal: Principal | None) -> None:
        """Set who the client is, and the size limit of its requests; None for a login that has expired."""

    def keep_frame(self) -> None:
        """Keep the frame of the request in work until the request is finished.

        Without this its memory is reused when the handler returns. Kept frames count as queued bytes.
        """

    def mute_for(self, duration_ms: float) -> None:
        """Read nothing and take no further request for this time (KIP-219).

        Called before the request in work is answered; its response goes out at once.
        """

    def send(self, parts: Sequence[Part]) -> None:
        """Send the response to the request in work, its size field included, and then take up the next request.

        The bytes of the parts must not change afterwards. A `FileSlice` is released once, when sent or dropped, a
        `MadePart` by its own rules.
        """

    def send_bytes(self, data: bytes) -> None:
        """Send a response of one part; otherwise as `send`."""

    def complete(self) -> None:
        """Finish the request in work without a response (Produce with acks=0)."""

    def close_when_sent(self) -> None:
        """Take no further request, and close once the response given to `send` is sent."""

    def close(self) -> None:
        """Close now: drop unsent parts and release their file ranges. A second call has no effect."""

    def close_if_broken(self) -> None:
        """Close a connection that was reset, or whose client has gone, without notification by the event loop."""

    def idle_ms(self, now_ms: float) -> float:
        """Time since the last request or, as far as calls of this method can see, since bytes were received or sent."""

    def close_if_idle(self) -> None:
        """Close a connection with no work, or whose client stopped sending or receiving in the middle of a message."""

    def shrink_if_idle(self) -> None:
        """Give back the large receive buffer of an idle connection."""


class QueuedBytes:
    """Counts the bytes of requests that handlers keep, with a limit (`queued.max.request.bytes`).

    Above the limit, connections that are in the middle of a request stop reading. They are notified when there is room
    again, in the order in which they stopped.
    """

    __slots__ = ("_limit", "_waiting", "held")

    def __init__(self, limit: int = UNLIMITED) -> None:
        self._limit = limit
        #: Bytes kept now.
        self.held = 0
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached, so that reading has to stop."""
        return 0 <= self._limit <= self.held

    def add(self, size: int) -> None:
        """Count a kept request of `size` bytes."""
        self.held += size

    def remove(self, size: int) -> None:
        """Count a kept request as finished."""
        self.held -= size
        while self._waiting and not self.is_full:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when there is room again."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        """Remove a waiting callback; its connection is closed."""
        self._waiting.pop(resume, None)


class RequestSlices:
    """Shares the slices of the loop among the connections that have several requests waiting.

    One whose requests come one by one never asks, so that sharing costs it nothing.
    """

    __slots__ = ("_before", "_is_counting", "_now")

    def __init__(self) -> None:
        #: Connections that asked in the slice before, and in this one.
        self._before = 0
        self._now = 0
        self._is_counting = False

    def share(self, loop: EventLoop) -> int:
        """The number of requests that a connection may have answered in this slice; asked once in each."""
        if not self._is_counting:
            self._is_counting = True
            loop.call_soon(self._slice_over)
        self._now += 1
        busy = max(self._before, self._now)
        return REQUESTS_PER_SLICE if busy == 1 else max(1, SHARED_PER_SLICE // busy)

    def _slice_over(self) -> None:
        self._is_counting = False
        self._before, self._now = self._now, 0


class RequestService(Protocol):
    """The broker, as a connection needs it."""

    #: Counts the bytes of requests kept while they are worked on.
    queued: QueuedBytes
    request_slices: RequestSlices

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request. Its bytes are valid during the call or, if kept, until the response."""

    def frame_limit(self, principal: Principal | None) -> int:
        """The largest request accepted from this principal, in bytes; None is a client that has not logged in yet."""

    def refuse_frame(self, connection: Connection, size: int) -> None:
        """Called for a request over the size limit, before the connection is closed."""

    def read_ahead(self, file: DiskFile, position: int, length: int, done: Callable[[], None]) -> None:
        """Bring a cold range of a file into the page cache in a thread, then call `done` on the loop."""

    def make(self, work: Callable[[], bytes], done: Callable[[bytes | None, BaseException | None], None]) -> None:
        """Make the next piece of a response in a thread, then call `done(piece, error)` on the loop."""

    def connection_closed(self, connection: Connection) -> None:
        """Called once when the connection is closed, by either side."""
