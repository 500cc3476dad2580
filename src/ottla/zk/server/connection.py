"""One client's connection: requests in, responses and events out in order, none of them sent before it is durable.

All requests that have arrived are handled in one slice and answered with one write. A change takes effect in
the tree at once; everything that reveals it (the response, an event, or another client's read) waits in the outgoing
queue of its connection until the flush that makes the change durable has ended, and so does everything behind it.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ottla.zk import wire
from ottla.zk.acl import IP_SCHEME, READ, Identity, may_do
from ottla.zk.watches import GuardedEvent, RemoteWatcher, WatchEvent

if TYPE_CHECKING:
    from ottla.env.network import EventLoop
    from ottla.net.streams import ByteStream
    from ottla.security.sasl import ServerExchange
    from ottla.zk.sessions import Session
    from ottla.zk.store import TreeStore

log = logging.getLogger("ottla.zk.server")

#: Bytes received from one connection in one slice.
RECEIVED_PER_SLICE = 64 * 1024
#: A client with more than this many bytes of unread or unflushed responses is not read from until it has received them.
MOST_QUEUED_BYTES = 4 * 1024 * 1024
#: Only `MOST_LONG_QUEUES` clients at a time may have more than this queued; others are not read from above it.
MODEST_QUEUED_BYTES = 64 * 1024
MOST_LONG_QUEUES = 64
#: A client that does not read, while its watches keep firing, is disconnected at this many queued bytes.
MOST_UNREAD_BYTES = 64 * 1024 * 1024
#: Timeout for a client to receive its last responses, seconds.
LAST_ANSWERS_S = 10.0

_SIZE = struct.Struct(">i")
_SIZE_BYTES = 4


class ZkService(Protocol):
    """The server interface that a connection uses."""

    store: TreeStore
    #: Receive buffer, shared by all connections, which use it in turn.
    scratch: memoryview
    #: The connections with more than `MODEST_QUEUED_BYTES` queued.
    long_queues: set[ClientConnection]

    def begin_slice(self, connection: ClientConnection) -> None:
        """Called when bytes have arrived."""
        ...

    def handle(self, connection: ClientConnection, data: bytes, start: int, end: int) -> None:
        """Handle the frame `data[start:end]`."""
        ...

    def answer_to_word(self, word: bytes) -> bytes | None:
        """The response to a four-letter word, None if it is none."""
        ...

    def heard_of(self, connection: ClientConnection) -> None:
        """Called when the client has shown that it is alive."""
        ...

    def has_output(self, connection: ClientConnection) -> None:
        """Called when there is something to send, which `end_slice` does."""
        ...

    def holds_back(self, connection: ClientConnection) -> None:
        """Called when something waits for a flush."""
        ...

    def end_slice(self) -> None:
        """Send what is ready."""
        ...

    def refused(self, connection: ClientConnection, why: str) -> None:
        """Called when the connection is closed because of a client error."""
        ...

    def connection_closed(self, connection: ClientConnection) -> None:
        """Called once."""
        ...


class ClientConnection(RemoteWatcher):
    """One client's connection; see the module docstring."""

    __slots__ = (
        "_close_when_sent",
        "_held",
        "_loop",
        "_partial",
        "_paused",
        "_queued_bytes",
        "_ready",
        "_service",
        "_stream",
        "_unsent",
        "_wanted",
        "closed",
        "identities",
        "peer_host",
        "peer_port",
        "received",
        "received_at_ms",
        "sasl",
        "sent",
        "session",
        "zxid",
    )

    def __init__(self, loop: EventLoop, stream: ByteStream, service: ZkService) -> None:
        self._loop = loop
        self._stream = stream
        self._service = service
        #: The received part of an incomplete frame, and the size at which to parse it again.
        self._partial = bytearray()
        self._wanted = _SIZE_BYTES
        self._paused = False
        #: Responses and events with the transaction that must be flushed first, in order.
        self._held: deque[tuple[int, bytes]] = deque()
        self._ready: list[bytes] = []
        self._unsent: memoryview | None = None
        self._queued_bytes = 0
        self._close_when_sent = False
        self.peer_host = stream.peer_host
        self.peer_port = stream.peer_port
        self.identities: tuple[Identity, ...] = (Identity(IP_SCHEME, stream.peer_host),)
        #: The login by SASL that is under way.
        self.sasl: ServerExchange | None = None
        self.session: Session | None = None
        #: The highest zxid in the queued responses and events.
        self.zxid = 0
        self.received = 0
        self.sent = 0
        self.received_at_ms = 0.0
        self.closed = False
        stream.add_reader(self._on_readable)

    # Receiving

    def _on_readable(self) -> None:
        service = self._service
        scratch = service.scratch
        try:
            count = self._stream.recv_into(scratch)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if count == 0:
            self.close()
            return
        data = scratch[:count].tobytes()
        if self._partial:
            self._partial += data
            if len(self._partial) < self._wanted:
                return
            data = bytes(self._partial)
        self._work_slice(data)

    def _work_slice(self, data: bytes) -> None:
        self._service.begin_slice(self)
        try:
            self._work(data)
        except Exception:
            # A bug of ours, which must not end the server or affect other clients.
            log.exception("a request of %s:%d could not be worked on", self.peer_host, self.peer_port)
            self.close()
        finally:
            self._service.end_slice()

    def _work(self, data: bytes) -> None:
        """Handle all complete frames; keep the rest."""
        service = self._service
        position, end = 0, len(data)
        wanted = _SIZE_BYTES
        while end - position >= _SIZE_BYTES and not self._paused:
            (size,) = _SIZE.unpack_from(data, position)
            if not 0 <= size <= wire.JUTE_MAX_BUFFER:
                self._refuse_frame(data[position : position + _SIZE_BYTES], size)
                return
            stop = position + _SIZE_BYTES + size
            if stop > end:
                wanted += size
                break
            self.received += 1
            service.handle(self, data, position + _SIZE_BYTES, stop)
            if self.closed or self._close_when_sent:
                return
            position = stop
            if self._queued_bytes > MODEST_QUEUED_BYTES and self._has_too_much_queued():
                self._pause()
        self._wanted = wanted
        if position < end or self._partial:
            self._partial = bytearray(data[position:]) if position else bytearray(data)

    def _refuse_frame(self, head: bytes, size: int) -> None:
        answer = self._service.answer_to_word(head) if self.session is None else None
        if answer is not None:
            self.put(answer, 0)
            self.close_when_sent()
            return
        self._service.refused(self, f"a frame of {size} bytes; the most are {wire.JUTE_MAX_BUFFER} (jute.maxbuffer)")
        self.close()

    def _has_too_much_queued(self) -> bool:
        long_queues = self._service.long_queues
        if self._queued_bytes <= MODEST_QUEUED_BYTES:
            long_queues.discard(self)
            return False
        if self not in long_queues:
            if len(long_queues) >= MOST_LONG_QUEUES:
                return True
            long_queues.add(self)
        return self._queued_bytes > MOST_QUEUED_BYTES

    def _pause(self) -> None:
        self._paused = True
        self._stream.remove_reader()

    def _resume(self) -> None:
        """Handle waiting requests, now that the client has received its responses."""
        if self.closed or self._close_when_sent or not self._paused or self._has_too_much_queued():
            return
        self._paused = False
        self._stream.add_reader(self._on_readable)
        if self._partial:
            self._work_slice(bytes(self._partial))

    # Answering

    def zxid_after(self, zxid: int) -> int:
        """The zxid for a response that depends on the transaction `zxid`, never less than in an earlier response."""
        forced = self._service.store.forced_zxid
        if zxid < forced:
            zxid = forced
        if zxid > self.zxid:
            self.zxid = zxid
        return self.zxid

    def put(self, payload: bytes, zxid: int) -> None:
        """Send this once the transaction `zxid` is flushed and everything queued before is sent."""
        self._queued_bytes += len(payload)
        if self._held or zxid > self._service.store.forced_zxid:
            self._held.append((zxid, payload))
            self._service.holds_back(self)
        else:
            self._ready.append(payload)
            self._service.has_output(self)

    def answer(self, xid: int, zxid: int, error: int = 0, body: bytes = b"") -> None:
        """Queue the response to a request; it depends on the transaction `zxid`."""
        zxid = self.zxid_after(zxid)
        self.put(wire.reply(xid, zxid, error, body), zxid)

    def notice(self, event: WatchEvent, zxid: int) -> None:
        """See `RemoteWatcher.notice`."""
        if not self.closed and (not isinstance(event, GuardedEvent) or may_do(event.acl, READ, self.identities)):
            self.put(wire.event(event), zxid)
            if self._queued_bytes > MOST_UNREAD_BYTES:
                self._service.refused(self, f"{self._queued_bytes} bytes of events that it does not read")
                self.close()

    def release(self, forced_zxid: int) -> bool:
        """Release what waited for transactions up to this one; returns whether nothing is held back any more."""
        held = self._held
        while held and held[0][0] <= forced_zxid:
            self._ready.append(held.popleft()[1])
        if self._ready:
            self._service.has_output(self)
        return not held

    def send(self) -> None:
        """Send what is ready."""
        if self.closed or self._unsent is not None or not self._ready:
            return
        ready = self._ready
        self.sent += len(ready)
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        ready.clear()
        self._send(memoryview(data))

    def _send(self, data: memoryview | bytes) -> None:
        try:
            sent = self._stream.send(data, 0)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return
        self._queued_bytes -= sent
        if sent < len(data):
            if self._unsent is None:
                self._stream.add_writer(self._on_writable)
            self._unsent = memoryview(data)[sent:]
            return
        if self._unsent is not None:
            self._unsent = None
            self._stream.remove_writer()
            self._service.long_queues.discard(self)
        if self._close_when_sent and not self._ready and not self._held:
            self.close()
        elif self._paused:
            self._loop.call_soon(self._resume)

    def _on_writable(self) -> None:
        assert self._unsent is not None
        # A client whose requests, pings included, wait because it receives so much is nevertheless alive.
        self._service.heard_of(self)
        self._send(self._unsent)
        self.send()

    # Ending

    def close_when_sent(self) -> None:
        """Accept no more requests, and close once the queue is sent or the timeout for that passes."""
        if self._close_when_sent or self.closed:
            return
        self._close_when_sent = True
        self._partial.clear()
        self._loop.call_later(LAST_ANSWERS_S, self.close)
        if not self._paused:
            self._pause()
        if not self._ready and not self._held and self._unsent is None:
            self.close()

    def close_without_session(self) -> None:
        """Close a connection whose client has not asked for a session yet."""
        if self.session is None:
            self.close()

    def close(self) -> None:
        """Close now; unsent data is dropped. Closing twice does nothing."""
        if self.closed:
            return
        self.closed = True
        if not self._paused:
            self._stream.remove_reader()
        if self._unsent is not None:
            self._stream.remove_writer()
        self._stream.close()
        self._held.clear()
        self._ready.clear()
        self._service.connection_closed(self)
