"""From a frame to its handler: request header, version check, and the refusals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.broker.connection_state import ConnectionState, DelayedOperation
from ottla.broker.context import API_VERSIONS, RequestContext
from ottla.broker.intercept import AnswerError, Delay, Disconnect, Drop, Throttle
from ottla.broker.request_figures import RequestFigures
from ottla.broker.served import SERVED
from ottla.broker.slices import start
from ottla.env.disk import DiskError
from ottla.net.connection import QueuedBytes, RequestSlices
from ottla.net.reports import LimitedReports, call_later
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import ErrorCode, TooManyElementsError, WireError
from ottla.wire.framing import RequestHeader, api_name, parse_request_header
from ottla.wire.hot import decode_heartbeat, read_usual_fetch, read_usual_produce
from ottla.wire.sliced import decode_in_slices
from ottla.zk.tree import ZkError

if TYPE_CHECKING:
    from ottla.broker.authorization import Access, Authorizer
    from ottla.broker.intercept import Intercept
    from ottla.broker.quotas.clients import Charge, ClientQuotas
    from ottla.broker.served import Handler
    from ottla.broker.services import BrokerServices
    from ottla.env.disk import DiskFile
    from ottla.net.connection import Connection, Principal

log = logging.getLogger("ottla.broker")

#: `sasl.server.max.receive.size` is that of other requests.
NO_LIMIT_OF_ITS_OWN = -1
#: Bytes read at a time when a cold range is brought into the page cache.
READ_AHEAD_CHUNK = 256 * 1024

#: First bytes of HTTP requests.
HTTP_METHODS = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "))

#: Hand-tuned decoders of the most frequent requests; they return None for unusual shapes.
HOT_DECODERS: dict[int, Callable[[memoryview, int, int], Any]] = {
    0: read_usual_produce,
    1: read_usual_fetch,
    12: decode_heartbeat,
}
#: Requests up to this size are decoded without slices; they have at most as many elements as bytes.
DECODED_AT_ONCE_BYTES = 4096
#: APIs allowed before authentication.
BEFORE_AUTHENTICATION = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
#: What a controller says of a whole cluster in one request, as Kafka's brokers need it: it has no part to ask for less.
OF_THE_WHOLE_CLUSTER = frozenset((ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA))
#: So many times the elements of a client's request are taken in those.
CLUSTER_ELEMENT_FACTOR = 10
#: Accesses passed to the authorizer at once.
ACCESSES_PER_SLICE = 64


class RunningWork(DelayedOperation):
    """The task of a request that is cancelled when its client disconnects."""

    __slots__ = ("task",)

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task

    def cancel(self) -> None:
        """Cancel the task: the client has disconnected."""
        self.task.cancel()


class Dispatcher:
    """Passes the frames of all connections to their handlers (`net.connection.Service`)."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._frame_limit = broker.config.get_int("socket.request.max.bytes")
        before_login = broker.config.get_int("sasl.server.max.receive.size")
        self._frame_limit_before_login = self._frame_limit if before_login == NO_LIMIT_OF_ITS_OWN else before_login
        self._element_limit = broker.config.get_int("ottla.request.max.elements")
        self.request_slices = RequestSlices()
        #: Counts the bytes of requests kept while they are worked on.
        self.queued = QueuedBytes(broker.config.get_long("queued.max.request.bytes"))
        self._handlers: dict[int, Handler] = {}
        #: Decides what clients may do; None permits everything.
        self.authorizer: Authorizer | None = None
        #: Called for every request before its handler (`ottla.broker.intercept`).
        self.intercept: Intercept | None = None
        #: The quotas of clients; None while there are none.
        self.quotas: ClientQuotas | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        #: By API key, for the metrics.
        self.requests = {key: RequestFigures(1 + served.max_version) for key, served in SERVED.items()}
        fetches = 1 + SERVED[ApiKey.FETCH].max_version
        #: Of the fetches of consumers, and of followers.
        self.fetches = (RequestFigures(fetches), RequestFigures(fetches))
        self.refused_frames = 0
        self._report_client = LimitedReports(log.warning, call_later)
        self._report_trouble = LimitedReports(log.error, call_later)
        self.cold_reads = 0

    def frame_limit(self, principal: Principal | None) -> int:
        """`socket.request.max.bytes`, before a login `sasl.server.max.receive.size`."""
        return self._frame_limit_before_login if principal is None else self._frame_limit

    def refuse_frame(self, connection: Connection, size: int) -> None:
        """Log a frame of invalid size; the connection is closed, as in Kafka."""
        self.refused_frames += 1
        is_own = connection.principal is None and self._frame_limit_before_login != self._frame_limit
        limit = "sasl.server.max.receive.size" if is_own else "socket.request.max.bytes"
        what = "negative" if size < 0 else f"larger than {limit}={connection.frame_limit}"
        self._report(connection, f"a request of {size} bytes is {what}{_protocol_guess(size)}")

    def read_ahead(self, file: DiskFile, position: int, length: int, done: Callable[[], None]) -> None:
        """Read a cold range in a disk thread, so that other clients do not wait for the disk."""
        self.cold_reads += 1
        self._broker.executor.call(lambda: _touch(file, position, length), lambda _result, _error: done())

    def make(self, work: Callable[[], bytes], done: Callable[[bytes | None, BaseException | None], None]) -> None:
        """Convert the next records of a response in a thread. An error is logged here; the connection closes itself."""

        def finished(piece: bytes | None, error: BaseException | None) -> None:
            if error is not None:
                log.error("closing a connection: the rest of its answer cannot be made: %s", error)
            done(piece, error)

        self._broker.conversions.run(work, finished)

    def connection_closed(self, connection: Connection) -> None:
        """Remove a closed connection and cancel its delayed operation."""
        state = connection.state
        if isinstance(state, ConnectionState):
            if state.pending is not None:
                state.pending.cancel()
            if state.login is not None:
                state.login.cancel()
        self._broker.connections.remove(connection)

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        """Parse and handle one request. Never raises: a bug in a handler is logged and closes the connection."""
        try:
            if connection.principal is None and self._took_raw_token(connection, frame):
                return
            header, offset = parse_request_header(frame)
            key, version = header.api_key, header.api_version
            handler = self._handlers.get(key)
            if (
                handler is None
                or not handler.min_version <= version <= handler.max_version
                or connection.state is None
                or connection.principal is None
            ):
                handler = self._admit(header, connection)
                if handler is None:
                    return
            hot = HOT_DECODERS.get(key)
            request = hot(frame, version, offset) if hot is not None else None
            if request is None and len(frame) > DECODED_AT_ONCE_BYTES:
                self._take_up_in_slices(connection, header, handler, frame, offset)
                return
            if request is None:
                # Trailing bytes are ignored, as in Kafka: librdkafka sends three bytes too many with Metadata 12.
                request, _ = decode_prefix(API[key].request, frame, version, offset)
        except WireError as error:
            self._cannot_read(connection, error)
            return
        except Exception:
            log.exception("a request of %s:%d could not be taken up", connection.peer_host, connection.peer_port)
            connection.close()
            return
        try:
            context = self._taken_up(connection, header)
            if self.quotas is not None:
                self._pass_charged(handler, context, request, len(frame))
            elif self.authorizer is not None or self.intercept is not None:
                self._pass_gates(handler, context, request)
            else:
                handler.handle(context, request)
        except DiskError as error:
            self.report_failure(connection, error)
            connection.close()
        except Exception:
            log.exception("a request of %s:%d failed", connection.peer_host, connection.peer_port)
            connection.close()

    def _took_raw_token(self, connection: Connection, frame: memoryview) -> bool:
        """Answer a frame that is a bare token of SASL; False if it is a request."""
        from ottla.broker.authentication import raw_login, take_raw_token  # few brokers have listeners with SASL

        login = raw_login(self._broker.authentication, connection, frame)
        if login is not None:
            take_raw_token(connection, login, bytes(frame))
        return login is not None

    def _taken_up(self, connection: Connection, header: RequestHeader) -> RequestContext:
        context = RequestContext(self._broker, connection, header)
        if self.requests[header.api_key].taken_up(header.api_version):
            context.begun_ms = self._broker.clock.monotonic_ms()
        return context

    def _admit(self, header: RequestHeader, connection: Connection) -> Handler | None:
        """The handler of an API's or a connection's first request; None if the request was refused here."""
        key = header.api_key
        handler = self._handlers.get(key)
        if handler is None and key in SERVED:
            handler = self._handlers[key] = SERVED[key].load()
        if handler is None or not handler.min_version <= header.api_version <= handler.max_version:
            self._refuse_version(header, connection)
            return None
        if connection.principal is None and key not in BEFORE_AUTHENTICATION:
            self._refuse_unauthenticated(header, connection)
            return None
        if connection.state is None:
            connection.state = ConnectionState()
        return handler

    def _cannot_read(self, connection: Connection, error: WireError) -> None:
        self._refuse(connection, f"its request cannot be read: {error}")

    # Large requests

    def _take_up_in_slices(
        self, connection: Connection, header: RequestHeader, handler: Handler, frame: memoryview, offset: int
    ) -> None:
        """Decode a request that may have very many elements in slices; its frame is kept until the response."""
        connection.keep_frame()
        context = self._taken_up(connection, header)
        charge = self._charge(context, len(frame))
        self.run(context, self._decode_and_handle(context, handler, frame, offset))
        if charge is not None:
            charge.end()

    async def _decode_and_handle(
        self, context: RequestContext, handler: Handler, frame: memoryview, offset: int
    ) -> None:
        header = context.header
        limit = self._element_limit * (CLUSTER_ELEMENT_FACTOR if header.api_key in OF_THE_WHOLE_CLUSTER else 1)
        decoding = decode_in_slices(API[header.api_key].request, frame, header.api_version, offset, limit)
        try:
            request, _ = await self._broker.slices.through(decoding)
        except TooManyElementsError as error:
            self._refuse_elements(context, error)
            return
        except WireError as error:
            self._cannot_read(context.connection, error)
            return
        self._pass_gates(handler, context, request)

    def _refuse_elements(self, context: RequestContext, error: TooManyElementsError) -> None:
        """Refuse a request with too many elements; if the response has no top-level error, the connection is closed."""
        self.refused_frames += 1
        key, version = context.header.api_key, context.api_version
        self._report_client(
            f"listener {context.connection.listener_name}",
            f"refusing a request of {context.client_host}: {API[key].name} ({key}) version {version}: {error}; ask for "
            "less at a time, or raise ottla.request.max.elements",
        )
        context.answer_error(ErrorCode.INVALID_REQUEST, None)

    # Quotas, authorization and faults

    def _pass_charged(self, handler: Handler, context: RequestContext, request: Any, size: int) -> None:
        """Have a request of a client count in its quotas; its time is counted until the handler returns."""
        charge = self._charge(context, size)
        self._pass_gates(handler, context, request)
        if charge is not None:
            charge.end()

    def _charge(self, context: RequestContext, size: int) -> Charge | None:
        if self.quotas is None or context.connection.principal is None:
            return None
        charge = context.charge = self.quotas.charge(context, size)
        charge.begin()
        return charge

    def _pass_gates(self, handler: Handler, context: RequestContext, request: Any) -> None:
        verdict = self.intercept(context, request) if self.intercept is not None else None
        if verdict is None:
            self._authorize(handler, context, request)
        elif isinstance(verdict, Throttle):
            context.throttle(verdict.throttle_ms)
            self._authorize(handler, context, request)
        elif isinstance(verdict, AnswerError):
            context.answer_error(verdict.error, request)
        elif isinstance(verdict, Drop):
            # Not finished: the connection handles no further request.
            log.debug("a request of %s is dropped", context.client_host)
        elif isinstance(verdict, Disconnect):
            context.disconnect()
        elif isinstance(verdict, Delay):
            context.connection.keep_frame()
            context.spawn(self._delayed(verdict.delay_ms, handler, context, request))
        else:
            from ottla.broker.changed_responses import changing

            self._authorize(handler, changing(context, verdict), request)

    async def _delayed(self, delay_ms: float, handler: Handler, context: RequestContext, request: Any) -> None:
        await asyncio.sleep(delay_ms / 1000)
        if not context.is_gone:
            self._authorize(handler, context, request)

    def _authorize(self, handler: Handler, context: RequestContext, request: Any) -> None:
        """Authorize the accesses that the handler declares, then call the handler; few are decided at once."""
        if self.authorizer is None:
            handler.handle(context, request)
            return
        accesses = iter(handler.accesses(context, request))
        few = list(islice(accesses, ACCESSES_PER_SLICE))
        peer_host, key = context.connection.peer_host, context.header.api_key
        permitted = set(self.authorizer.permitted(context.principal, peer_host, few, key))
        if len(few) < ACCESSES_PER_SLICE:
            context.permitted = permitted
            handler.handle(context, request)
        else:
            context.connection.keep_frame()
            context.run(self._authorize_rest(self.authorizer, handler, context, request, permitted, accesses))

    async def _authorize_rest(
        self,
        authorizer: Authorizer,
        handler: Handler,
        context: RequestContext,
        request: Any,
        permitted: set[Access],
        accesses: Iterator[Access],
    ) -> None:
        principal, host, key = context.principal, context.connection.peer_host, context.header.api_key
        while some := list(islice(accesses, ACCESSES_PER_SLICE)):
            permitted.update(authorizer.permitted(principal, host, some, key))
            await self._broker.slices.point()
        context.permitted = permitted
        handler.handle(context, request)

    # Refusals

    def _refuse_unauthenticated(self, header: RequestHeader, connection: Connection) -> None:
        """Close the connection of a client that sends requests before authentication, as Kafka does."""
        self._refuse(connection, f"it sent {api_name(header.api_key)} before it was authenticated")

    def _refuse_version(self, header: RequestHeader, connection: Connection) -> None:
        """Answer an unknown ApiVersions version in version 0 with our range; disconnect for all others (KIP-511)."""
        if header.api_key == API_VERSIONS:
            from ottla.broker.handlers.api_versions import unsupported_version

            connection.send_bytes(unsupported_version(header))
            return
        received = f"received request api key {header.api_key} with version {header.api_version}"
        self._refuse(connection, f"{received} which is not supported")

    def _refuse(self, connection: Connection, why: str) -> None:
        self.refused_frames += 1
        self._report(connection, why)
        connection.close()

    def _report(self, connection: Connection, why: str) -> None:
        """Log why a connection is closed."""
        message = f"closing the connection of {connection.peer_host}:{connection.peer_port}: {why}"
        self._report_client(f"listener {connection.listener_name}", message)

    def run(self, context: RequestContext, work: Coroutine[object, object, None]) -> None:
        """Run the first slice of `work` at once, the rest as a task that is cancelled when the connection closes."""
        self._broker.slices.begin()
        try:
            rest = start(work)
        except Exception as error:
            self._failed(context, error)
            return
        if rest is None:
            return
        client = context.client_state
        running = RunningWork(self.spawn(context, rest))
        client.pending = running

        def ended(_: asyncio.Task[None]) -> None:
            # A task cancelled before its first step does not close the coroutine that it was given.
            work.close()
            if client.pending is running:
                client.pending = None

        running.task.add_done_callback(ended)

    def spawn(self, context: RequestContext, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run `work` as a task; at most one per connection, since a connection has one request in work."""
        counted = work if context.charge is None else context.charge.timed(work)
        task = asyncio.get_running_loop().create_task(self._guard(context, counted))
        self._tasks[task] = None

        def ended(_: asyncio.Task[None]) -> None:
            work.close()
            self._tasks.pop(task, None)

        task.add_done_callback(ended)
        return task

    def report_failure(self, connection: Connection, error: Exception) -> None:
        """Log why a request failed that was in order."""
        message = f"a request of {connection.peer_host}:{connection.peer_port} failed: {error}"
        self._report_trouble(f"listener {connection.listener_name}", message)

    def _failed(self, context: RequestContext, error: Exception) -> None:
        """Log an exception in the work for a request, and answer the request with an error."""
        if isinstance(error, (DiskError, ZkError)):
            self.report_failure(context.connection, error)
        else:
            log.error("a request of %s failed", context.client_host, exc_info=error)
        is_of_storage = isinstance(error, DiskError)
        context.answer_error(ErrorCode.KAFKA_STORAGE_ERROR if is_of_storage else ErrorCode.UNKNOWN_SERVER_ERROR, None)

    async def _guard(self, context: RequestContext, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:
            self._failed(context, error)

    async def stop(self) -> None:
        """Cancel all running work."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _touch(file: DiskFile, position: int, length: int) -> None:
    """Read a range to bring it into the page cache. Errors occur again when the range is sent."""
    end = position + length
    while position < end:
        got = len(file.pread(min(READ_AHEAD_CHUNK, end - position), position))
        if got == 0:
            return
        position += got


def _protocol_guess(size: int) -> str:
    """A hint in the log for a client of the wrong protocol, by the first four bytes it sent."""
    if size < 0:
        return ""
    head = size.to_bytes(4, "big")
    if head[:2] == b"\x16\x03":
        return "; this looks like TLS sent to a plaintext listener: use security.protocol=PLAINTEXT in the client"
    if head in HTTP_METHODS:
        return "; this looks like HTTP: the Kafka protocol is spoken here"
    return ""
