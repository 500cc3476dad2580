"""A client's connection: frames in (`buffers.py`), responses out (`responses.py`), over a byte stream (`streams.py`).

The counterpart of Kafka's channel: it reads whole requests, has one of them in work at a time (Kafka mutes the channel
meanwhile), and sends responses in order. It must not block, copy record bytes, or let one client hold the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.net.buffers import SIZE_FIELD, BufferPool, ReceiveBuffer
from ottla.net.connection import ANONYMOUS, Part, Principal, RequestService
from ottla.net.responses import ResponseQueue, read_short, release

if TYPE_CHECKING:
    from ottla.env.network import EventLoop, Timer
    from ottla.net.streams import ByteStream

#: Bytes of requests and responses of one connection that may be handled in one slice.
REQUEST_BYTES_PER_SLICE = 4 * 1024 * 1024
#: While a request is in work, this many bytes of further ones may wait in the buffer before reading stops.
WAITING_BYTES_LIMIT = 64 * 1024

#: A response of up to this size waits for those to the requests that are here already, to be sent in one call.
HELD_RESPONSE_BYTES = 2048
NOT_KEPT = -1


class FramedConnection:
    """One client's connection; the module's docstring has its rules, `Connection` those of the methods."""

    __slots__ = (
        "_answered",
        "_buffer",
        "_close_when_sent",
        "_done_muted",
        "_in_slice",
        "_in_work",
        "_kept_bytes",
        "_loop",
        "_moved_bytes",
        "_mute_timer",
        "_reading",
        "_responses",
        "_scheduled",
        "_service",
        "_stream",
        "_waits_for_room",
        "bytes_in",
        "closed",
        "frame_limit",
        "gathers_ranges",
        "last_active_ms",
        "listener_name",
        "login_timer",
        "peer_host",
        "peer_port",
        "principal",
        "state",
    )

    def __init__(
        self,
        loop: EventLoop,
        stream: ByteStream,
        service: RequestService,
        listener_name: str,
        pool: BufferPool,
        principal: Principal | None = ANONYMOUS,
    ) -> None:
        self._loop = loop
        self._stream = stream
        self._service = service
        self._buffer = ReceiveBuffer(pool)
        self._responses = ResponseQueue(stream, service, pool, self._all_sent, self.close)
        self._in_work = False
        self._in_slice = False
        self._answered = False
        self._reading = True
        self._scheduled = False
        self._close_when_sent = False
        #: Bytes of the frame in work if it is kept, else `NOT_KEPT`.
        self._kept_bytes = NOT_KEPT
        #: Ends the time for which the connection is muted.
        self._mute_timer: Timer | None = None
        #: Whether the request in work was finished while the connection was muted.
        self._done_muted = False
        self._waits_for_room = False
        #: The client's identity; None until it is authenticated.
        self.principal = principal
        self.frame_limit = service.frame_limit(principal)
        self.listener_name = listener_name
        self.peer_host = stream.peer_host
        self.peer_port = stream.peer_port
        self.bytes_in = 0
        #: When a request arrived, or `idle_ms` last saw bytes received or sent.
        self.last_active_ms = 0.0
        self._moved_bytes = 0
        #: See `Connection.gathers_ranges`.
        self.gathers_ranges = False
        self.closed = False
        #: The broker's state for this connection (client software, principal).
        self.state: object = None
        #: Ends the time to authenticate, where that is limited; cancelled by `authenticate` and `close`.
        self.login_timer: Timer | None = None
        stream.add_reader(self._on_readable)

    @property
    def bytes_out(self) -> int:
        """Bytes of responses sent."""
        return self._responses.bytes_out

    @property
    def unsent_parts(self) -> int:
        """Number of response parts not sent yet."""
        return len(self._responses.parts)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses not sent yet."""
        return self._responses.unsent_bytes

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in work, received or unsent."""
        return not self._in_work and not self._responses.parts and not len(self._buffer)

    # Receiving

    def _on_readable(self) -> None:
        buffer = self._buffer
        try:
            received = buffer.fill(self._stream.recv_into)
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
        if waiting >= WAITING_BYTES_LIMIT or not buffer.has_room or self._mute_timer is not None:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading:
            self._stream.remove_reader()
            self._reading = False

    def _work(self) -> None:
        """Handle the complete frames within this slice's budget, and send what is left of the responses."""
        self._handle_frames()
        if self._responses.held:
            self._send_held()

    def _handle_frames(self) -> None:
        """Handle the complete frames, one at a time, within this slice's budget."""
        buffer = self._buffer
        service = self._service
        responses = self._responses
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
            sent_before = responses.bytes_out + responses.held_bytes
            self._in_work = self._in_slice = True
            service.handle_frame(self, frame)
            self._in_slice = False
            if self.closed:
                return
            bytes_left -= size + responses.bytes_out + responses.held_bytes - sent_before
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
                if not responses.held:
                    self.close()
                return
            if not more:
                break
        if not self._reading:
            self._reading = True
            self._stream.add_reader(self._on_readable)

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

    def set_principal(self, principal: Principal | None) -> None:
        """Set who the client is, and the size limit of its requests; None for a login that has expired."""
        self.principal = principal
        self.frame_limit = self._service.frame_limit(principal)
        self._end_login_time()

    def _end_login_time(self) -> None:
        if self.login_timer is not None:
            self.login_timer.cancel()
            self.login_timer = None

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
        if duration_ms <= 0 or self._mute_timer is not None or self.closed:
            return
        # The request in work counts as unfinished until the time is over.
        self._in_slice = False
        self._mute_timer = self._loop.call_later(duration_ms / 1000, self._unmute)
        self._limit_waiting()

    def _unmute(self) -> None:
        self._mute_timer = None
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
            release(parts)
            return
        responses = self._responses
        if not responses.parts:
            short = read_short(parts)
            if short is not None:
                self.send_bytes(short)
                return
        if responses.send(parts, gathers_ranges=self.gathers_ranges):
            self.complete()
        else:
            self._answered = True

    def send_bytes(self, data: bytes) -> None:
        """Send a response of one part: a shorter path, which most responses take.

        If further requests have arrived, their responses are sent together with it (`HELD_RESPONSE_BYTES`).
        """
        if self.closed:
            return
        if self._in_slice and self._buffer.is_followed and len(data) <= HELD_RESPONSE_BYTES:
            self._responses.hold(data)
            self._in_work = False
        elif not self._responses.send_bytes(data):
            self._answered = True
        elif self._in_slice:
            self._in_work = False
        else:
            self.complete()

    def _send_held(self) -> None:
        """Send the held responses; if the client does not take them at once, further requests wait."""
        if not self._responses.send_held() and not self._in_work:
            self._in_work = self._answered = True
            self._limit_waiting()

    def _all_sent(self) -> None:
        if self._close_when_sent:
            self.close()
        elif self._answered:
            self._answered = False
            self.complete()

    def complete(self) -> None:
        """Finish the request in work, answered or not (Produce with acks=0 has no response)."""
        self._in_work = False
        if self.closed or self._in_slice:
            return
        if self._kept_bytes != NOT_KEPT:
            self._let_go()
        if self._mute_timer is not None:
            self._in_work = self._done_muted = True
            return
        if self._close_when_sent:
            self.close()
        elif not self._reading or len(self._buffer):
            self._schedule()

    def close_when_sent(self) -> None:
        """Take no further request, and close once the response given to `send` is sent."""
        self._close_when_sent = True
        if not self._responses.parts and not self._responses.held:
            self.close()

    # Closing

    def shrink_if_idle(self) -> None:
        """Give back the large receive buffer of an idle connection."""
        if self.is_idle:
            self._buffer.shrink()

    def close_if_broken(self) -> None:
        """Either no reader is set now, or uvloop, which calls the reader once after a reset, did so while a request was
        unread. Requests that arrived before the client closed are still handled.
        """
        if self._stream.is_broken() or (not self._reading and not self._is_followed and self._stream.is_at_end()):
            self.close()

    @property
    def _is_followed(self) -> bool:
        """Whether bytes of further requests wait behind the one in work."""
        kept = SIZE_FIELD + self._kept_bytes if self._kept_bytes > 0 else 0
        return len(self._buffer) > kept

    def idle_ms(self, now_ms: float) -> float:
        """Time since the last request or, as far as calls of this method can see, since bytes were received or sent."""
        moved = self.bytes_in + self._responses.bytes_out
        if moved != self._moved_bytes:
            self._moved_bytes = moved
            self.last_active_ms = now_ms
        return now_ms - self.last_active_ms

    def close_if_idle(self) -> None:
        """Close a connection that has no work, never sends the rest of a request, or does not receive its response
        (which may pin a deleted segment), or that is muted. A connection whose request is in work stays open.
        """
        if not self._in_work or self._done_muted or self._responses.parts:
            self.close()

    def close(self) -> None:
        """Close now: drop unsent parts and release their file ranges. A second call has no effect."""
        if self.closed:
            return
        if self._responses.held:
            self._responses.send_before_close()
        self.closed = True
        self._end_login_time()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None
        if self._reading:
            self._stream.remove_reader()
        self._responses.close()
        if self._waits_for_room:
            self._service.queued.forget(self._room_again)
        if self._kept_bytes > 0:
            self._service.queued.remove(self._kept_bytes)
        # A handler, or a thread that works for it, may still read a kept frame.
        self._buffer.release(reuse=self._kept_bytes == NOT_KEPT)
        self._service.connection_closed(self)
