"""From a frame to its handler: the header, the version check, and what happens when either is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.context import API_VERSIONS, ClientState, Pending, RequestContext
from ottla.broker.served import SERVED
from ottla.broker.slices import start
from ottla.env.disk import DiskError
from ottla.wire.apis import API
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import RequestHeader, parse_request_header
from ottla.wire.hot import decode_fetch, decode_heartbeat, decode_produce
from ottla.zk.tree import ZkError

if TYPE_CHECKING:
    from ottla.broker.served import Handle
    from ottla.broker.server import Broker
    from ottla.env.disk import DiskFile
    from ottla.net.connection import PlaintextConnection

log = logging.getLogger("ottla.broker")

#: Bytes read at a time when a cold range is brought into the page cache.
READ_AHEAD_CHUNK = 256 * 1024

#: How a request of HTTP begins, whatever its method.
HTTP_METHODS = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "))

#: Hand-tuned decoders of the requests that come by the thousand.
HOT_DECODERS: dict[int, Callable[[memoryview, int, int], Any]] = {
    0: decode_produce,
    1: decode_fetch,
    12: decode_heartbeat,
}


class RunningWork(Pending):
    """The task of a request that is cancelled when its client goes away."""

    __slots__ = ("task",)

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task

    def cancel(self) -> None:
        """The client is gone."""
        self.task.cancel()


class Dispatcher:
    """Takes the frames of all connections to their handlers (`net.connection.Service`)."""

    def __init__(self, broker: Broker, frame_limit: int) -> None:
        self._broker = broker
        self._frame_limit = frame_limit
        self._handles: dict[int, Handle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Requests by API key, for the metrics.
        self.requests: dict[int, int] = dict.fromkeys(SERVED, 0)
        self.refused_frames = 0
        self.cold_reads = 0

    def frame_limit(self, connection: PlaintextConnection) -> int:
        """`socket.request.max.bytes`."""
        return self._frame_limit

    def refuse_frame(self, connection: PlaintextConnection, size: int) -> None:
        """A size that Kafka too answers by closing the connection."""
        self.refused_frames += 1
        what = "negative" if size < 0 else f"larger than socket.request.max.bytes={self._frame_limit}"
        log.warning(
            "closing the connection of %s:%d: a request of %d bytes is %s%s",
            connection.peer_host,
            connection.peer_port,
            size,
            what,
            _protocol_guess(size),
        )

    def read_ahead(self, file: DiskFile, position: int, length: int, done: Callable[[], None]) -> None:
        """Read a cold range in a disk thread, so that other clients do not wait for this one's disk."""
        self.cold_reads += 1
        self._broker.executor.call(lambda: _touch(file, position, length), lambda _result, _error: done())

    def make(self, work: Callable[[], bytes], done: Callable[[bytes | None, BaseException | None], None]) -> None:
        """Convert the next records of an answer in a thread. A failure is told here; the connection ends itself."""

        def told(piece: bytes | None, error: BaseException | None) -> None:
            if error is not None:
                log.error("closing a connection: the rest of its answer cannot be made: %s", error)
            done(piece, error)

        self._broker.conversions.run(work, told)

    def connection_closed(self, connection: PlaintextConnection) -> None:
        """Forget the connection and what it waited for."""
        state = connection.state
        if isinstance(state, ClientState) and state.pending is not None:
            state.pending.cancel()
        self._broker.connections.remove(connection)

    def handle_frame(self, connection: PlaintextConnection, frame: memoryview) -> None:
        """Parse and work on one request. Never raises: a bug in a handler is logged and closes the connection."""
        try:
            header, offset = parse_request_header(frame)
            handle = self._handle_for(header, connection)
            if handle is None:
                return
            key = header.api_key
            hot = HOT_DECODERS.get(key)
            if hot is not None:
                request = hot(frame, header.api_version, offset)
            else:
                # Whatever follows is ignored, as in Kafka: librdkafka sends three bytes too many with Metadata 12.
                request, _ = decode_prefix(API[key].request, frame, header.api_version, offset)
        except WireError as error:
            self.refused_frames += 1
            log.warning(
                "closing the connection of %s:%d: its request cannot be read: %s",
                connection.peer_host,
                connection.peer_port,
                error,
            )
            connection.close()
            return
        except Exception:
            log.exception("a request of %s:%d could not be taken up", connection.peer_host, connection.peer_port)
            connection.close()
            return
        self.requests[key] += 1
        connection.last_active_ms = self._broker.clock.monotonic_ms()
        try:
            handle(RequestContext(self._broker, connection, header), request)
        except DiskError as error:
            log.error("a request of %s:%d failed: %s", connection.peer_host, connection.peer_port, error)
            connection.close()
        except Exception:
            log.exception("a request of %s:%d failed", connection.peer_host, connection.peer_port)
            connection.close()

    def _handle_for(self, header: RequestHeader, connection: PlaintextConnection) -> Handle | None:
        """The request's handler; None where the request was refused here."""
        key = header.api_key
        served = SERVED.get(key)
        if served is None or not served.min_version <= header.api_version <= served.max_version:
            self._refuse_version(header, connection)
            return None
        if connection.state is None:
            connection.state = ClientState()
        handle = self._handles.get(key)
        if handle is None:
            handle = self._handles[key] = served.load()
        return handle

    def _refuse_version(self, header: RequestHeader, connection: PlaintextConnection) -> None:
        """ApiVersions from the future is told our range in version 0; everything else is disconnected (KIP-511)."""
        if header.api_key == API_VERSIONS:
            from ottla.broker.handlers.api_versions import unsupported_version

            connection.send_bytes(unsupported_version(header))
            return
        self.refused_frames += 1
        log.warning(
            "closing the connection of %s:%d: received request api key %d with version %d which is not supported",
            connection.peer_host,
            connection.peer_port,
            header.api_key,
            header.api_version,
        )
        connection.close()

    def run(self, context: RequestContext, work: Coroutine[object, object, None]) -> None:
        """Run `work` at once as far as its first slice goes, and the rest as a task that ends with the connection."""
        self._broker.slices.begin()
        try:
            rest = start(work)
        except Exception as error:
            _failed(context, error)
            return
        if rest is None:
            return
        client = context.client_state
        running = RunningWork(self.spawn(context, rest))
        client.pending = running

        def ended(_: asyncio.Task[None]) -> None:
            if client.pending is running:
                client.pending = None

        running.task.add_done_callback(ended)

    def spawn(self, context: RequestContext, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run `work` as a task; one per connection at most, since a connection has one request in work."""
        task = asyncio.get_running_loop().create_task(self._guard(context, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guard(self, context: RequestContext, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:
            _failed(context, error)

    async def stop(self) -> None:
        """Cancel what is in work."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _failed(context: RequestContext, error: Exception) -> None:
    """Log what work for a request raised, and answer it."""
    if isinstance(error, DiskError):
        log.error("a request of %s failed: %s", context.client_host, error)
        _fail(context, ErrorCode.KAFKA_STORAGE_ERROR)
    elif isinstance(error, ZkError):
        log.error("a request of %s failed: %s", context.client_host, error)
        _fail(context, ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        log.error("a request of %s failed", context.client_host, exc_info=error)
        _fail(context, ErrorCode.UNKNOWN_SERVER_ERROR)


def _fail(context: RequestContext, error: ErrorCode) -> None:
    """Answer with an error where the response as a whole can carry one, else close the connection."""
    response = API[context.header.api_key].response()
    if hasattr(response, "error_code"):
        response.error_code = int(error)
        context.reply(response)
    else:
        context.disconnect()


def _touch(file: DiskFile, position: int, length: int) -> None:
    """Read a range for its effect on the page cache. An error shows when the range is sent."""
    end = position + length
    while position < end:
        got = len(file.pread(min(READ_AHEAD_CHUNK, end - position), position))
        if got == 0:
            return
        position += got


def _protocol_guess(size: int) -> str:
    """What the first four bytes were, if not a size: a hint for whoever connected with the wrong protocol."""
    if size < 0:
        return ""
    head = size.to_bytes(4, "big")
    if head[:2] == b"\x16\x03":
        return "; this looks like TLS sent to a plaintext listener: use security.protocol=PLAINTEXT in the client"
    if head in HTTP_METHODS:
        return "; this looks like HTTP: the Kafka protocol is spoken here"
    return ""
