"""A plaintext connection of the broker: frames in, parts out, on the loop's readiness callbacks.

The counterpart of Kafka's channel: it reads whole requests, has one of them in work at a time (Kafka mutes the channel
meanwhile), and sends responses in order. It must not block, copy record bytes, or let one client hold the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from ottla.env.disk import DiskError, FileSlice
from ottla.env.network import EventLoop, StreamSocket
from ottla.env.platforms import MORE_FOLLOWS
from ottla.net.buffers import SIZE_FIELD, BufferPool, ReceiveBuffer
from ottla.net.connection import ANONYMOUS, FRAME_LIMIT_BEFORE_AUTHENTICATION, MadePart, Part, Principal, RequestService
from ottla.net.gathering import gather, unsent

#: Bytes of requests and responses of one connection that may be handled in one slice.
REQUEST_BYTES_PER_SLICE = 4 * 1024 * 1024
#: Bytes of one response sent in one slice: the Java consumer's default for one partition (1 MiB), and the header.
SEND_BYTES_PER_SLICE = (1024 + 64) * 1024
#: The same for a range read from the disk: a consumer of old data can wait, and consumers of new records should not
#: notice it.
COLD_BYTES_PER_SLICE = 128 * 1024
#: Byte parts passed to the kernel in one call (its own limit is 1,024).
PARTS_PER_CALL = 512
#: While a request is in work, this many bytes of further ones may wait in the buffer before reading stops.
WAITING_BYTES_LIMIT = 64 * 1024

#: A response of up to this size waits for those to the requests that are here already, to be sent in one call.
HELD_RESPONSE_BYTES = 2048
#: A response of up to this size whose file ranges are in the page cache is read and sent in one call.
READ_RESPONSE_BYTES = 4096

NOT_KEPT = -1
_NOT_IN_MEMORY = (FileSlice, MadePart)


class PlaintextConnection:
    """One client's connection; the module's docstring has its rules, `Connection` those of the methods."""

    __slots__ = (
        "_answered",
        "_buffer",
        "_close_when_sent",
        "_done_muted",
        "_held",
        "_held_bytes",
        "_in_slice",
        "_in_work",
        "_kept_bytes",
        "_loop",
        "_moved_bytes",
        "_muted",
        "_outgoing",
        "_pool",
        "_reading",
        "_reading_ahead",
        "_scheduled",
        "_service",
        "_socket",
        "_waits_for_room",
        "_warm_bytes",
        "_was_cold",
        "_writing",
        "bytes_in",
        "bytes_out",
        "closed",
        "frame_limit",
        "gathers_ranges",
        "last_active_ms",
        "listener_name",
        "peer_host",
        "peer_port",
        "principal",
        "state",
    )

    def __init__(
        self,
        loop: EventLoop,
        stream: StreamSocket,
        service: RequestService,
        listener_name: str,
        pool: BufferPool,
        principal: Principal | None = ANONYMOUS,
    ) -> None:
        self._loop = loop
        self._socket = stream
        self._service = service
        self._pool = pool
        self._buffer = ReceiveBuffer(pool)
        self._outgoing: deque[Part] = deque()
        #: Responses of this slice to be sent together at its end at the latest.
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._in_work = False
        self._in_slice = False
        self._answered = False
        self._reading = True
        self._writing = False
        self._warm_bytes = 0
        #: Whether the range being sent had to be read from the disk first.
        self._was_cold = False
        self._reading_ahead = False
        self._scheduled = False
        self._close_when_sent = False
        #: Bytes of the frame in work if it is kept, else `NOT_KEPT`.
        self._kept_bytes = NOT_KEPT
        self._muted = False
        #: Whether the request in work was finished while the connection was muted.
        self._done_muted = False
        self._waits_for_room = False
        #: The client's identity; None until it is authenticated.
        self.principal = principal
        limit = service.frame_limit(principal)
        self.frame_limit = limit if principal is not None else min(limit, FRAME_LIMIT_BEFORE_AUTHENTICATION)
        self.listener_name = listener_name
        self.peer_host = stream.peer_host
        self.peer_port = stream.peer_port
        self.bytes_in = 0
        self.bytes_out = 0
        #: When a request arrived, or `idle_ms` last saw bytes received or sent.
        self.last_active_ms = 0.0
        self._moved_bytes = 0
        #: See `Connection.gathers_ranges`.
        self.gathers_ranges = False
        self.closed = False
        #: The broker's state for this connection (client software, principal).
        self.state: object = None
        loop.add_reader(stream.fd, self._on_readable)

    @property
    def unsent_parts(self) -> int:
        """Number of response parts not sent yet."""
        return len(self._outgoing)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses not sent yet."""
        parts = self._outgoing
        return sum(each.length if isinstance(each, _NOT_IN_MEMORY) else len(each) for each in parts)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in work, received or unsent."""
        return not self._in_work and not self._outgoing and not len(self._buffer)

    # Receiving

    def _on_readable(self) -> None:
        buffer = self._buffer
        try:
            received = buffer.fill(self._socket.recv_into)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if received == 0:
            self.close()
            return
        self.bytes_in += received
        if self._in_work or self._scheduled:
            self._limit_waiting()
        else:
            self._work()

    def _limit_waiting(self) -> None:
        """Stop reading if enough bytes wait behind the request in work."""
        buffer = self._buffer
        if not self._reading:
            return
        waiting = len(buffer)
        if self._kept_bytes > 0:
            waiting -= self._kept_bytes
        if waiting >= WAITING_BYTES_LIMIT or not buffer.has_room or self._muted:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._socket.fd)
            self._reading = False

    def _work(self) -> None:
        """Handle the complete frames within this slice's budget, and send what is left of the responses."""
        self._handle_frames()
        if self._held:
            self._send_held()

    def _handle_frames(self) -> None:
        """Handle the complete frames, one at a time, within this slice's budget."""
        buffer = self._buffer
        service = self._service
        requests_left = 1
        has_share = False
        bytes_left = REQUEST_BYTES_PER_SLICE
        while True:
            frame = buffer.next_frame(self.frame_limit)
            if frame is None:
                if not self._await_frame():
                    return
                break
            if requests_left <= 0 and not has_share:
                has_share = True
                requests_left = service.request_slices.share(self._loop) - 1
            if requests_left <= 0 or bytes_left <= 0:
                self._schedule()
                self._limit_waiting()
                return
            size = len(frame)
            requests_left -= 1
            sent_before = self.bytes_out + self._held_bytes
            self._in_work = self._in_slice = True
            service.handle_frame(self, frame)
            self._in_slice = False
            if self.closed:
                return
            bytes_left -= size + self.bytes_out + self._held_bytes - sent_before
            if self._kept_bytes != NOT_KEPT:
                self._keep(size)
                if self._in_work:
                    self._limit_waiting()
                    return
                self._let_go()
                more = len(buffer) > 0
            else:
                more = buffer.consume(size)
                if self._in_work:
                    self._limit_waiting()
                    return
            if self._close_when_sent:
                if not self._held:
                    self.close()
                return
            if not more:
                break
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._socket.fd, self._on_readable)

    def _await_frame(self) -> bool:
        """Make room for the rest of the next frame; False if it is refused, or has to wait until less is queued."""
        size = self._buffer.next_frame_size()
        if size is None:
            size = 0
        elif size < 0 or size > self.frame_limit:
            self._service.refuse_frame(self, size)
            self.close()
            return False
        elif self._service.queued.is_full:
            self._wait_for_room()
            return False
        self._buffer.make_room(size)
        return True

    def _wait_for_room(self) -> None:
        """Stop reading this request until the broker keeps fewer bytes of requests."""
        self._stop_reading()
        if not self._waits_for_room:
            self._waits_for_room = True
            self._service.queued.wait(self._room_again)

    def _room_again(self) -> None:
        self._waits_for_room = False
        self._schedule()

    # For handlers

    def authenticate(self, principal: Principal, frame_limit: int) -> None:
        """Set the authenticated principal and the size limit of its requests."""
        self.principal = principal
        self.frame_limit = frame_limit

    def keep_frame(self) -> None:
        """Keep the frame of the request in work until the request is finished."""
        if self._kept_bytes == NOT_KEPT:
            self._kept_bytes = 0

    def _keep(self, size: int) -> None:
        self._kept_bytes = size
        self._service.queued.add(size)

    def _let_go(self) -> None:
        """Release the kept frame of a finished request."""
        size, self._kept_bytes = self._kept_bytes, NOT_KEPT
        if size:
            self._buffer.consume(size)
            self._service.queued.remove(size)

    def mute_for(self, duration_ms: float) -> None:
        """Read nothing and take no further request for this time (KIP-219).

        The response to the request in work goes out at once.
        """
        if duration_ms <= 0 or self._muted or self.closed:
            return
        self._muted = True
        # The request in work counts as unfinished until the time is over.
        self._in_slice = False
        self._limit_waiting()
        self._loop.call_later(duration_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = False
        if self._done_muted:
            self._done_muted = False
            self.complete()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._scheduled = False
        if not self.closed and not self._in_work:
            self._work()

    # Responses

    def send(self, parts: Sequence[Part]) -> None:
        """Requests that follow wait until the client has received this response, so a client that does not read delays
        only itself.
        """
        if self.closed:
            _release(parts)
            return
        if not self._outgoing:
            short = _read_short(parts)
            if short is not None:
                self.send_bytes(short)
                return
            if self.gathers_ranges and not self._held:
                parts = self._send_gathered(parts)
        if self._held:
            self._outgoing.append(self._take_held())
        self._outgoing.extend(parts)
        self._flush()
        if self._outgoing:
            self._answered = True
        else:
            self.complete()

    def _send_gathered(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Send a response of several short file ranges in one call, as far as it goes; return what is left of it."""
        gathered = gather(parts, self._pool)
        if gathered is None:
            return parts
        buffer, length = gathered
        try:
            with memoryview(buffer) as view, view[:length] as data:
                sent = self._socket.send(data, 0)
        except OSError:  # what is wrong is met again, where the rest is sent
            sent = 0
        self._pool.give_back(buffer, lent=True)
        self.bytes_out += sent
        return unsent(parts, sent)

    def send_bytes(self, data: bytes) -> None:
        """Send a response of one part: a shorter path, which most responses take.

        If further requests have arrived, their responses are sent together with it (`HELD_RESPONSE_BYTES`).
        """
        if self.closed:
            return
        if self._in_slice and self._buffer.is_followed and len(data) <= HELD_RESPONSE_BYTES:
            self._held.append(data)
            self._held_bytes += len(data)
            self._in_work = False
            return
        if self._outgoing:
            self.send((data,))
            return
        if self._held:
            self._held.append(data)
            data = self._take_held()
        try:
            sent = self._socket.send(data, 0)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return
        self.bytes_out += sent
        if sent < len(data):
            self._outgoing.append(memoryview(data)[sent:])
            self._answered = True
            self._want_write()
        elif self._in_slice:
            self._in_work = False
        else:
            self.complete()

    def _take_held(self) -> bytes:
        data = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        return data

    def _send_held(self) -> None:
        """Send the held responses; if the client does not take them at once, further requests wait."""
        self._outgoing.append(self._take_held())
        self._flush()
        if self._outgoing and not self._in_work:
            self._in_work = self._answered = True
            self._limit_waiting()

    def complete(self) -> None:
        """Finish the request in work, answered or not (Produce with acks=0 has no response)."""
        self._in_work = False
        if self.closed or self._in_slice:
            return
        if self._kept_bytes != NOT_KEPT:
            self._let_go()
        if self._muted:
            self._in_work = self._done_muted = True
            return
        if self._close_when_sent:
            self.close()
        elif not self._reading or len(self._buffer):
            self._schedule()

    def close_when_sent(self) -> None:
        """Take no further request, and close once the response given to `send` is sent."""
        self._close_when_sent = True
        if not self._outgoing and not self._held:
            self.close()

    def _flush(self) -> None:
        """Send from the queue until it is empty, the client or the disk is slow, or this slice's budget is spent."""
        budget = COLD_BYTES_PER_SLICE if self._was_cold else SEND_BYTES_PER_SLICE
        outgoing = self._outgoing
        try:
            while outgoing and budget > 0 and not self._reading_ahead:
                part = outgoing[0]
                if isinstance(part, FileSlice):
                    sent = self._send_slice(part, min(part.length, budget))
                elif isinstance(part, MadePart):
                    self._make_more(part)
                    continue
                else:
                    sent = self._send_bytes()
                self.bytes_out += sent
                budget -= sent
                if self.closed:
                    return
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, DiskError):
            self.close()
            return
        if outgoing and not self._reading_ahead:
            self._want_write()
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket.fd)
        if not outgoing:
            if self._close_when_sent:
                self.close()
            elif self._answered:
                self._answered = False
                self.complete()

    def _send_bytes(self) -> int:
        """Send the byte parts at the head of the queue in one call; return the bytes sent."""
        outgoing = self._outgoing
        first = outgoing[0]
        if not isinstance(first, _NOT_IN_MEMORY) and (len(outgoing) == 1 or isinstance(outgoing[1], _NOT_IN_MEMORY)):
            sent = self._socket.send(first, MORE_FOLLOWS if len(outgoing) > 1 else 0)
            if sent == len(first):
                outgoing.popleft()
            else:
                outgoing[0] = memoryview(first)[sent:]
            return sent
        run: list[bytes | bytearray | memoryview] = []
        for part in outgoing:
            if isinstance(part, _NOT_IN_MEMORY) or len(run) == PARTS_PER_CALL:
                break
            run.append(part)
        flags = MORE_FOLLOWS if len(run) < len(outgoing) else 0
        sent = self._socket.sendmsg(run, (), flags)
        left = sent
        for data in run:
            if left < len(data):
                outgoing[0] = memoryview(data)[left:]
                break
            left -= len(data)
            outgoing.popleft()
        return sent

    def _send_slice(self, part: FileSlice, length: int) -> int:
        """Send from the file range at the head of the queue; return the bytes sent, 0 while the disk is read."""
        fd = part.file.fileno()
        if fd is None:
            sent = self._socket.send(part.file.pread(length, part.position), 0)
        else:
            if self._warm_bytes <= 0 and not self._prove_warm(part, min(part.length, SEND_BYTES_PER_SLICE)):
                return 0
            sent = self._send_file(fd, part.position, min(length, self._warm_bytes))
            self._warm_bytes -= sent
        if sent == 0:
            # The file is shorter than its range: this response is too far along to hold an error.
            self.close()
        elif sent == part.length:
            self._outgoing.popleft()
            self._warm_bytes = 0
            self._was_cold = False
            if part.release is not None:
                part.release()
        else:
            part.position += sent
            part.length -= sent
        return sent

    def _send_file(self, fd: int, position: int, length: int) -> int:
        """Send `length` bytes of a file, or as many as the socket takes; raise BlockingIOError if it takes none."""
        sendfile = self._socket.sendfile
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

    def _prove_warm(self, part: FileSlice, length: int) -> bool:
        """Whether the next `length` bytes are in the page cache; if not, have them read in a thread."""
        warm = part.file.is_warm(part.position, length)
        if warm or (warm is None and part.active):
            self._warm_bytes = length
            return True
        self._reading_ahead = True

        def done() -> None:
            self._reading_ahead = False
            self._warm_bytes = length
            self._was_cold = True
            if not self.closed:
                self._flush()

        self._service.read_ahead(part.file, part.position, length, done)
        return False

    def _make_more(self, part: MadePart) -> None:
        """Have the next piece of the part at the head of the queue made, and send it when it is ready."""
        self._reading_ahead = True
        here = True

        def done(piece: bytes | None, error: BaseException | None) -> None:
            self._reading_ahead = False
            part.end(len(piece or b""))
            if self.closed:
                return
            if not piece or error is not None:
                # The response's size is sent already, so it cannot hold an error any more.
                self.close()
                return
            if part.length <= 0:
                self._outgoing.popleft()
            self._outgoing.appendleft(piece)
            if not here:
                self._flush()

        part.begin()
        self._service.make(part.make, done)
        here = False

    def _want_write(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._socket.fd, self._flush)

    # Closing

    def shrink_if_idle(self) -> None:
        """Give back the large receive buffer of an idle connection."""
        if self.is_idle:
            self._buffer.shrink()

    def close_if_broken(self) -> None:
        """Either no reader is set now, or uvloop, which calls the reader once after a reset, did so while a request was
        unread. Requests that arrived before the client closed are still handled.
        """
        if self._socket.is_broken() or (not self._reading and not self._is_followed and self._socket.is_at_end()):
            self.close()

    @property
    def _is_followed(self) -> bool:
        """Whether bytes of further requests wait behind the one in work."""
        kept = SIZE_FIELD + self._kept_bytes if self._kept_bytes > 0 else 0
        return len(self._buffer) > kept

    def idle_ms(self, now_ms: float) -> float:
        """Time since the last request or, as far as calls of this method can see, since bytes were received or sent."""
        moved = self.bytes_in + self.bytes_out
        if moved != self._moved_bytes:
            self._moved_bytes = moved
            self.last_active_ms = now_ms
        return now_ms - self.last_active_ms

    def close_if_idle(self) -> None:
        """Close a connection that has no work, never sends the rest of a request, or does not receive its response
        (which may pin a deleted segment). A connection whose request is in work stays open.
        """
        if not self._in_work or self._outgoing:
            self.close()

    def close(self) -> None:
        """Close now: drop unsent parts and release their file ranges. A second call has no effect."""
        if self.closed:
            return
        if self._held:
            self._send_before_close()
        self.closed = True
        if self._reading:
            self._loop.remove_reader(self._socket.fd)
        if self._writing:
            self._loop.remove_writer(self._socket.fd)
        self._socket.close()
        _release(self._outgoing)
        self._outgoing.clear()
        if self._waits_for_room:
            self._service.queued.forget(self._room_again)
        if self._kept_bytes > 0:
            self._service.queued.remove(self._kept_bytes)
        # A handler, or a thread that works for it, may still read a kept frame.
        self._buffer.release(reuse=self._kept_bytes == NOT_KEPT)
        self._service.connection_closed(self)

    def _send_before_close(self) -> None:
        """Send the held responses as far as the socket takes them: the cause of the end came after their requests."""
        with suppress(OSError):
            self.bytes_out += self._socket.send(self._take_held(), 0)


def _read_short(parts: Sequence[Part]) -> bytes | None:
    """The bytes of a short response, its file ranges released; None if it is not short, or not all in memory."""
    left = READ_RESPONSE_BYTES
    pieces: list[bytes | bytearray | memoryview] = []
    for part in parts:
        if isinstance(part, FileSlice):
            left -= part.length
            if left < 0 or not part.file.is_warm(part.position, part.length):
                return None
            try:
                data = part.read()
            except DiskError:
                return None
            if len(data) < part.length:
                return None
            pieces.append(data)
        elif isinstance(part, MadePart) or len(part) > left:
            return None
        else:
            left -= len(part)
            pieces.append(part)
    _release(parts)
    return b"".join(pieces)


def _release(parts: Sequence[Part] | deque[Part]) -> None:
    for part in parts:
        release = part.release if isinstance(part, FileSlice | MadePart) else None
        if release is not None:
            release()
