"""One connection to a broker: sends requests and matches responses by correlation id."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.env.environment import Environment
from ottla.env.outgoing import Stream, UnknownHostError, reason_of
from ottla.peer.diagnosis import HTTP_ANSWER, Found, diagnose, refusal_in_tls, sasl_mechanisms
from ottla.peer.errors import (
    BrokerHangsError,
    BrokerUnreachableError,
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
    ConnectError,
    ConnectionLostError,
    ConnectTimeoutError,
    HandshakeFault,
    NotKafkaError,
    ProtocolError,
    SecurityMismatchError,
    UnresolvableHostError,
)
from ottla.peer.handshakes import CHECK_PORT, HANDSHAKES, too_old
from ottla.peer.hosts import connect_to_host
from ottla.peer.settings import ConnectionSettings
from ottla.peer.tls import TlsStream
from ottla.peer.versions import Offered, choose_version
from ottla.wire.apis import API, ApiKey
from ottla.wire.connection import ClientProtocol, FrameRefusal, Undecoded
from ottla.wire.errors import WireError
from ottla.wire.framing import api_name
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.wire.messages.api_versions import ApiVersionsResponse
    from ottla.wire.sliced import Sliced

T = TypeVar("T")

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""Largest response that is accepted; a larger size means that the server does not speak Kafka's protocol."""
MAX_FIRST_RESPONSE_BYTES = 1024 * 1024
MAX_REQUESTS_AT_ONCE = 256
"""Requests in flight; further callers of `request` wait."""
TLS_ALERT = b"\x15\x03"


class Through(Protocol):
    """Encodes or decodes in slices."""

    async def __call__(self, work: Sliced[T]) -> T:
        """The result of the work."""
        ...


class _DirectAnswer:
    """Takes the place of a future in the queue of expected responses, and calls back at once."""

    __slots__ = ("_answered",)

    def __init__(self, answered: Callable[[Any, ClientError | None], None]) -> None:
        self._answered = answered

    def done(self) -> bool:
        return False

    def set_result(self, answer: Any) -> None:
        self._answered(answer, None)

    def set_exception(self, error: ClientError) -> None:
        self._answered(None, error)


class PeerConnection:
    """A connection with negotiated API versions; made by `open_connection`."""

    def __init__(self, address: str, settings: ConnectionSettings, environment: Environment) -> None:
        self.address = address
        #: Where the connection has TLS.
        self.tls: TlsStream[PeerConnection] | None = None
        self._settings = settings
        self.sasl = settings.sasl
        self.randomness = environment.randomness
        self._network = environment.network
        self._monotonic_ms = environment.clock.monotonic_ms
        self.now_ms = environment.clock.now_ms
        self._protocol = ClientProtocol(settings.client_id, MAX_FIRST_RESPONSE_BYTES)
        self._stream: Stream | None = None
        self._waiting: deque[asyncio.Future[Any] | _DirectAnswer] = deque()
        #: Of those whose callers were cancelled: when the connection is closed if the broker has not answered by then.
        self._cancelled: dict[asyncio.Future[Any] | _DirectAnswer, asyncio.TimerHandle] = {}
        #: Callbacks of requests without a response, called once they are sent.
        self._unsent: list[Callable[[Any, ClientError | None], None]] = []
        self._turns = asyncio.Semaphore(MAX_REQUESTS_AT_ONCE)
        self._closed_by: ClientError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Version by API key of the requests that were submitted.
        self._chosen: dict[int, int] = {}
        #: Whether a response has arrived since the version negotiation.
        self._was_used = False
        #: Whether the broker closed the connection, and not this client.
        self._hung_up = False
        #: Time of the last bytes sent or received, by the monotonic clock.
        self.used_at_ms = self._monotonic_ms()
        #: Requests held back while the session is renewed, in order; None at other times.
        self._held: list[Callable[[], None]] | None = None
        #: Renews the session; the first request after it is due begins it.
        self._renew: Callable[[], Awaitable[None]] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._renewal_timer: asyncio.TimerHandle | None = None
        #: Called when the send buffer has drained after it was full.
        self.on_writable: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._closed_by is None and self._stream is not None

    @property
    def is_waiting(self) -> bool:
        """Whether a response is outstanding."""
        return bool(self._waiting or self._unsent)

    @property
    def owes_answer(self) -> bool:
        """Whether a response is outstanding whose caller no longer waits: the broker may hang."""
        return any(each.done() for each in self._waiting)

    @property
    def unsent_bytes(self) -> int:
        """Bytes in the send buffer."""
        return 0 if self._stream is None else self._stream.unsent_bytes

    @property
    def offered(self) -> Offered:
        """Oldest and newest version that the broker serves, by API key."""
        return self._protocol.versions

    async def request(
        self,
        message: Message,
        *,
        timeout_ms: int | None = None,
        awaits_response: bool = True,
        versions: tuple[int, int] | None = None,
        through: Through | None = None,
    ) -> Any:
        """Send a request in the newest version that both sides know and return the response; None if none is awaited.

        `versions` are the oldest and the newest that can express the message, where it is not all of them. `through`
        encodes a large message in slices, and decodes its response: long arrays of that can only be iterated
        (`ottla.wire.sliced`).

        Raises ClientTimeoutError after `timeout_ms` (the connection is closed then, as Kafka's clients do, since its
        later answers would come even later), ConnectionLostError, ProtocolError, UnsupportedVersionError.
        """
        if self._held is not None:
            await self._renewed()
        version = choose_version(ApiKey(message.SCHEMA.api_key or 0), self.offered, versions)
        body = None if through is None else await self._encoded(message, version, through)
        async with self._turns:
            answer = await self._exchange(message, version, timeout_ms, awaits_response, body)
        return answer if through is None else await self._decoded(answer, message, version, through)

    def submit(
        self,
        message: Message,
        answered: Callable[[Any, ClientError | None], None],
        *,
        awaits_response: bool = True,
        versions: tuple[int, int] | None = None,
    ) -> None:
        """Send a message; `answered(answer, error)` is called once, with an answer of None where none is awaited.

        Where none is, it is called when the socket has taken the message, which before would be lost with the
        connection; where the message cannot be sent, at once. `versions` are as in `request`. It has no timeout: see
        `close_because` and `late`.
        """
        if self._held is not None:
            self._hold(lambda: self.submit(message, answered, awaits_response=awaits_response, versions=versions))
            return
        try:
            api_key = message.SCHEMA.api_key or 0
            version = self._chosen.get(api_key, -1) if versions is None else -1
            if version < 0:
                version = choose_version(ApiKey(api_key), self.offered, versions)
                if versions is None:
                    self._chosen[api_key] = version
            self._write(self._frame(message, version, answered=awaits_response))
        except ClientError as error:
            answered(None, error)
            return
        if awaits_response:
            self._waiting.append(_DirectAnswer(answered))
        elif self.unsent_bytes:
            self._unsent.append(answered)
            self._check_open().report_when_sent()  # to `writable`
        else:
            answered(None, None)

    def close_because(self, reason: ClientError) -> None:
        """Close the connection; requests in flight fail with this error."""
        self._close(reason)

    async def request_together(self, messages: Sequence[Message], versions: tuple[int, int] | None = None) -> list[Any]:
        """Send several requests with one write and return their responses.

        Raises what `request` raises, for the first that fails.
        """
        if self._held is not None:
            await self._renewed()
        chosen = [choose_version(ApiKey(message.SCHEMA.api_key or 0), self.offered, versions) for message in messages]
        async with self._turns:
            return await self._exchange_together(messages, chosen)

    async def exchange(self, message: Message, timeout_ms: int, version: int | None = None) -> Any:
        """As `request`, for handshakes, which are not held back; `version` where none is agreed on yet."""
        if version is None:
            version = choose_version(ApiKey(message.SCHEMA.api_key or 0), self.offered)
        return await self._exchange(message, version, timeout_ms)

    def renew_after(self, delay_ms: float, renew: Callable[[], Awaitable[None]]) -> None:
        """Have `renew` run before the first request after this time; requests are held back meanwhile."""
        self._renew = renew
        loop = asyncio.get_running_loop()
        self._renewal_timer = loop.call_later(delay_ms / 1000, self._renewal_due)

    def _renewal_due(self) -> None:
        if self.is_open and self._held is None:
            self._held = []

    def _hold(self, send: Callable[[], None]) -> None:
        """Hold a request back until the session is renewed, which begins now if it has not."""
        assert self._held is not None
        self._held.append(send)
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew_and_release())

    async def _renew_and_release(self) -> None:
        try:
            if self._renew is not None:
                await self._renew()
        finally:
            held, self._held, self._renewing = self._held or [], None, None
            for send in held:
                send()

    async def _renewed(self) -> None:
        released = asyncio.get_running_loop().create_future()
        self._hold(lambda: None if released.done() else released.set_result(None))
        await released

    async def _exchange_together(self, messages: Sequence[Message], chosen: Sequence[int]) -> list[Any]:
        try:
            frames = [self._frame(message, version) for message, version in zip(messages, chosen, strict=True)]
        except ProtocolError as error:
            self._close(error)  # answers to the frames before it are expected, but these were never sent
            raise
        self._write([part for frame in frames for part in frame])
        answers = await asyncio.gather(
            *(self._answer(self._expect_answer(), message, None) for message in messages), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def _encoded(self, message: Message, version: int, through: Through) -> list[Any]:
        from ottla.wire.sliced import encode_in_slices  # clients have no such requests

        try:
            parts, _ = await through(encode_in_slices(message, version))
        except WireError as error:
            raise self._unsendable(message, error) from error
        return parts

    async def _decoded(self, answer: Undecoded, message: Message, version: int, through: Through) -> Any:
        from ottla.wire.sliced import decode_in_slices

        frame, offset = answer
        response = API[ApiKey(message.SCHEMA.api_key or 0)].response
        try:
            decoded, end = await through(decode_in_slices(response, memoryview(frame), version, offset, len(frame)))
            if end != len(frame):
                raise WireError(f"{response.SCHEMA.name} is followed by {len(frame) - end} bytes too many")
        except WireError as error:
            unreadable = self._unreadable(error)
            self._close(unreadable)
            raise unreadable from error
        return decoded

    def _unreadable(self, error: WireError) -> ProtocolError:
        return ProtocolError(f"the answer of {self.address} cannot be read: {error}")

    async def _exchange(
        self,
        message: Message,
        version: int,
        timeout_ms: int | None,
        awaits_response: bool = True,
        body: list[Any] | None = None,
    ) -> Any:
        self._write(self._frame(message, version, answered=awaits_response, body=body))
        if not awaits_response:
            return None
        return await self._answer(self._expect_answer(), message, timeout_ms)

    def _frame(
        self, message: Message, version: int, *, answered: bool = True, body: list[Any] | None = None
    ) -> list[bytes | memoryview]:
        self._check_open()
        try:
            is_large = body is not None
            return self._protocol.request_parts(
                message, version, answered=answered, body=body, is_left_undecoded=is_large
            )
        except WireError as error:
            raise self._unsendable(message, error) from error

    def _unsendable(self, message: Message, error: WireError) -> ProtocolError:
        return ProtocolError(f"{api_name(message.SCHEMA.api_key or 0)} cannot be sent to {self.address}: {error}")

    def _check_open(self) -> Stream:
        if self._closed_by is not None or self._stream is None:
            raise self._closed_by or ConnectionLostError(f"not connected to {self.address}", retriable=True)
        return self._stream

    def _write(self, parts: list[bytes | memoryview]) -> None:
        self.used_at_ms = self._monotonic_ms()
        self._check_open().write(parts)

    def _expect_answer(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    async def _answer(self, future: asyncio.Future[Any], message: Message, timeout_ms: int | None) -> Any:
        timeout_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        begun_ms = self._monotonic_ms()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except ConnectionLostError as error:
            await self._check_login(error)
            raise
        except ClientTimeoutError:  # that of another request
            raise
        except TimeoutError:
            late = self.late(message, timeout_ms)
            self._close(late)
            raise late from None
        except asyncio.CancelledError:
            # The caller no longer waits, but a broker that does not answer must not keep the connection from others.
            if self._closed_by is None and any(each is future for each in self._waiting):
                until_late_s = (timeout_ms - (self._monotonic_ms() - begun_ms)) / 1000
                loop = asyncio.get_running_loop()
                self._cancelled[future] = loop.call_later(until_late_s, self._close_as_late, message, timeout_ms)
            raise

    def _close_as_late(self, message: Message, timeout_ms: int) -> None:
        self._close(self.late(message, timeout_ms))

    def late(self, message: Message, timeout_ms: int) -> ClientTimeoutError:
        """The error of a request that was not answered in time."""
        name = api_name(message.SCHEMA.api_key or 0)
        return ClientTimeoutError(f"{self.address} did not answer {name} within {timeout_ms} ms", retriable=True)

    async def _check_login(self, lost: ConnectionLostError) -> None:
        """Raise SecurityMismatchError if the broker closed the connection because it requires SASL authentication."""
        if (
            self.sasl is not None
            or self._was_used
            or not self._hung_up
            or not self.offered
            or ApiKey.SASL_HANDSHAKE not in self.offered
        ):
            return
        mechanisms = (
            None if self._stream is None else await sasl_mechanisms(self._network, *self._stream.peer, self.tls)
        )
        if mechanisms is not None:
            raise SecurityMismatchError(
                f"{self.address} is a listener with SASL: it wants a login ({', '.join(mechanisms)}), and this client "
                "has none; set security.protocol, sasl.mechanism, sasl.username and sasl.password"
            ).because(HandshakeFault.LOGIN_WANTED) from lost

    def agree(self, answer: ApiVersionsResponse) -> None:
        """Use these versions from now on."""
        self._protocol = ClientProtocol(self._settings.client_id, MAX_RESPONSE_BYTES)
        self._protocol.agree(answer)

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._close(ConnectionLostError(f"the connection to {self.address} was closed by this client", retriable=True))

    def abandon(self) -> None:
        """As `close`, for clients that are garbage-collected: from any thread, also after the loop was closed."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.close)

    def _close(self, reason: ClientError) -> None:
        if self._closed_by is None:
            self._closed_by = reason
        waiting, self._waiting = self._waiting, deque()
        cancelled, self._cancelled = self._cancelled, {}
        for timer in cancelled.values():
            timer.cancel()
        if self._renewal_timer is not None:
            self._renewal_timer.cancel()
        if self._loop is not None and self._loop.is_closed():
            return  # no caller waits any more, and asyncio closes sockets by itself
        if self._stream is not None:
            self._stream.abort()
        future: asyncio.Future[Any] | _DirectAnswer
        for future in waiting:
            if not future.done():
                future.set_exception(self._closed_by)
        unsent, self._unsent = self._unsent, []
        for answered in unsent:
            answered(None, self._closed_by)

    def connected(self, stream: Stream) -> None:
        """The connection stands."""
        self._stream = stream
        self.tls = stream if isinstance(stream, TlsStream) else None
        self._loop = asyncio.get_running_loop()

    def writable(self) -> None:
        """Complete the requests without answers: they are sent."""
        unsent, self._unsent = self._unsent, []
        for answered in unsent:
            answered(None, None)
        if self.on_writable is not None:
            self.on_writable()

    def disconnected(self, error: Exception | None) -> None:
        """The connection is gone."""
        why = f": {error}" if error is not None else ""
        self._hung_up = self._closed_by is None
        if isinstance(error, ClientError) and not self._was_used:
            self._close(error)
        self._close(ConnectionLostError(f"{self.address} closed the connection{why}", retriable=True))

    def get_buffer(self, sizehint: int, /) -> memoryview:
        """The buffer for the next bytes."""
        return self._protocol.get_buffer()

    def buffer_updated(self, nbytes: int, /) -> None:
        """Take in `nbytes` received bytes."""
        self.used_at_ms = self._monotonic_ms()
        try:
            answers = self._protocol.received(nbytes)
        except WireError as error:
            self._close(self._unreadable(error))
            return
        if isinstance(answers, FrameRefusal):
            self._close(_foreign_server(self.address, answers))
            return
        if answers and self.offered:
            self._was_used = True
        for answer in answers:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(answer.message)
            elif (timer := self._cancelled.pop(future, None)) is not None:
                timer.cancel()


def _foreign_server(address: str, refusal: FrameRefusal) -> ClientError:
    """Error for a server that is not a broker, by the four bytes that were read as the size of a frame."""
    beginning = struct.pack(">i", refusal.size)
    if beginning.startswith(TLS_ALERT):
        return _wants_tls(address)
    if beginning == HTTP_ANSWER:
        return ProtocolError(f"{address} answered in HTTP: it is a web server or a proxy, no broker")
    return ProtocolError(f"the answer of {address} cannot be read: {refusal.message}")


def _wants_tls(address: str) -> SecurityMismatchError:
    return SecurityMismatchError(
        f"{address} is a listener for TLS, and this client speaks plain text; set security.protocol=SSL, or connect "
        "to a PLAINTEXT listener"
    ).because(HandshakeFault.TLS_WANTED)


async def _explained(
    environment: Environment, host: str, port: int, address: str, tls: TlsStream[PeerConnection] | None
) -> ConnectError | None:
    """Diagnosis of a first contact that failed; None if it finds nothing known."""
    found = await diagnose(environment.network, host, port)
    if found is Found.TLS:
        return _wants_tls(address) if tls is None else await refusal_in_tls(environment.network, host, port, tls)
    if found is Found.PLAIN_TEXT and tls is not None:
        return SecurityMismatchError(
            f"{address} is a listener for plain text, and this client speaks TLS; set security.protocol=PLAINTEXT, or "
            "connect to the listener for TLS"
        ).because(HandshakeFault.TLS_NOT_SPOKEN)
    if found is Found.OLD_BROKER:
        return too_old(address, "it hangs up on ApiVersions")
    whats = {
        Found.WEB_SERVER: f"a web server or a proxy (it answers in HTTP), no broker; {CHECK_PORT}",
        Found.ZOOKEEPER: "a ZooKeeper, no broker; give addresses of brokers, which listen on 9092 by default",
    }
    if found in whats:
        error = NotKafkaError(f"{address} is {whats[found]}")
        error.found = found
        return error
    return None


async def open_connection(
    host: str,
    port: int,
    settings: ConnectionSettings,
    environment: Environment,
    setup_timeout_ms: int | None = None,
    *,
    look_twice: bool = True,
    hang_up_explained: bool = True,
) -> PeerConnection:
    """Connect and agree on versions, each within `setup_timeout_ms`. Raises the subclasses of ConnectError.

    All addresses of the host are tried in turn, each for its share of the time. Where it does not answer, or hangs up
    and `hang_up_explained`, further attempts find out why, if `look_twice`.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    timeout_ms = setup_timeout_ms or settings.socket_connection_setup_timeout_ms

    def receiver() -> PeerConnection | TlsStream[PeerConnection]:
        connection = PeerConnection(address, settings, environment)
        return connection if settings.tls is None else TlsStream(connection, settings.tls, address, host)

    try:
        async with asyncio.timeout(timeout_ms / 1000):
            made = await connect_to_host(
                environment.network,
                host,
                port,
                receiver,
                timeout_ms / 1000,
                send_buffer_bytes=settings.send_buffer_bytes,
                receive_buffer_bytes=settings.receive_buffer_bytes,
            )
    except TimeoutError:
        raise ConnectTimeoutError(
            f"{address} did not accept a connection within {timeout_ms} ms; check address, network and firewall"
        ) from None
    except UnknownHostError as error:
        raise UnresolvableHostError(f"the host of {address} cannot be resolved ({error}); check its name") from error
    except RuntimeError as error:  # asyncio.run is over, and a client is still in use
        raise ClientClosedError(
            f"no connection to {address} can be opened any more ({error}); close clients"
        ) from error
    except OSError as error:
        raise BrokerUnreachableError(
            f"cannot connect to {address} ({reason_of(error)}); check that the broker runs and listens there"
        ) from error
    connection = made.receiver if isinstance(made, TlsStream) else made
    try:
        for handshake in HANDSHAKES:
            await handshake(connection, timeout_ms)
    except BaseException as error:
        connection.close()
        looked_at = (BrokerHangsError, NotKafkaError) if hang_up_explained else (BrokerHangsError,)
        if isinstance(error, looked_at) and error.retriable and look_twice:
            explained = await _explained(environment, host, port, address, connection.tls)
            if explained is not None:
                raise explained from error
            if isinstance(error, NotKafkaError):
                error.found = Found.NOTHING
        raise
    return connection
