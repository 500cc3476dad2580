"""One request on its way through the broker: its client, and its one response."""

from __future__ import annotations

import logging
import struct
from collections.abc import Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.authorization import SUPPORTED_BITS, Access
from ottla.broker.connection_state import ConnectionState
from ottla.broker.error_answers import error_response
from ottla.net.connection import ANONYMOUS
from ottla.wire.apis import API
from ottla.wire.codec import encode
from ottla.wire.sliced import encode_in_slices

if TYPE_CHECKING:
    from ottla.broker.quotas.clients import Charge
    from ottla.broker.request_figures import RequestFigures
    from ottla.broker.services import BrokerServices
    from ottla.cluster.acls import Operation, ResourceType
    from ottla.net.connection import Connection, Part, Principal
    from ottla.wire.errors import ErrorCode
    from ottla.wire.framing import RequestHeader
    from ottla.wire.schema import Message

log = logging.getLogger("ottla.broker")

_PLAIN_HEAD = struct.Struct(">ii")
_FLEXIBLE_HEAD = struct.Struct(">iiB")
API_VERSIONS = 18


class RequestContext:
    """A request in work. Exactly one of the `reply…` methods is called for it, now or later."""

    __slots__ = (
        "api_version",
        "begun_ms",
        "broker",
        "charge",
        "connection",
        "figures",
        "header",
        "permitted",
        "throttle_ms",
    )

    def __init__(self, broker: BrokerServices, connection: Connection, header: RequestHeader) -> None:
        self.broker = broker
        self.connection = connection
        self.header = header
        self.api_version = header.api_version
        #: The permitted part of the handler's `accesses`; None if everything is permitted.
        self.permitted: Collection[Access] | None = None
        #: The throttle time in the response (KIP-219).
        self.throttle_ms = 0
        #: What counts in the client's quotas, until the request is answered; None without quotas.
        self.charge: Charge | None = None
        #: When the request was taken up, if it is timed.
        self.begun_ms: float | None = None
        #: Further figures that its time belongs to: of the kind of fetch.
        self.figures: RequestFigures | None = None

    @property
    def principal(self) -> Principal:
        """The client's identity."""
        return self.connection.principal or self.client_state.expired or ANONYMOUS

    def permits(self, operation: Operation, resource_type: ResourceType, name: str | None) -> bool:
        """Whether the client has this access; the handler's `accesses` must have declared it."""
        permitted = self.permitted
        return permitted is None or Access(operation, resource_type, name) in permitted

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations on a resource that the client has, as responses have them (KIP-430): bits by their codes."""
        supported = SUPPORTED_BITS[resource_type]
        authorizer = self.broker.dispatcher.authorizer
        if authorizer is None:
            return supported
        return supported & authorizer.operations(self.principal, self.connection.peer_host, resource_type, name)

    def throttle(self, throttle_ms: int) -> None:
        """Report a throttle time to the client and mute its connection for it; call before the reply (KIP-219)."""
        self.throttle_ms = throttle_ms
        self.connection.mute_for(throttle_ms)

    @property
    def client_id(self) -> str:
        """The client id of the request, empty if it has none."""
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        """The client's address with a leading slash, as Java prints addresses and tools expect."""
        return "/" + self.connection.peer_host

    @property
    def listener_name(self) -> str:
        """The listener that received the request; Metadata returns that listener's endpoints."""
        return self.connection.listener_name

    @property
    def client_state(self) -> ConnectionState:
        """The broker's state for this connection."""
        state = self.connection.state
        assert isinstance(state, ConnectionState)
        return state

    def reply(self, response: Message) -> None:
        """Encode a short response in the request's version and send it at once.

        If it cannot be encoded, the connection is closed: a caller that replies late, from a timer or another client's
        request, must not fail because of it, and this client must not be left waiting.
        """
        if self.charge is not None:
            self.charge.answered(self)
        if self.throttle_ms:
            self._set_throttle_time(response)
        try:
            body = encode(response, self.api_version)
        except Exception as error:
            self._cannot_write(error)
            return
        self.reply_body(body)

    def reply_in_slices(self, response: Message) -> None:
        """Encode a response that may be long, whose arrays may be `mapped`, in slices, and send it.

        A short one is sent before this returns. Otherwise as `reply`.
        """
        self.run(self.replied(response))

    async def replied(self, response: Message) -> None:
        """As `reply_in_slices`, for work that runs in slices itself."""
        if self.charge is not None:
            self.charge.answered(self)
        if self.throttle_ms:
            self._set_throttle_time(response)
        try:
            parts, length = await self.broker.slices.through(encode_in_slices(response, self.api_version))
        except Exception as error:
            self._cannot_write(error)
            return
        self.reply_parts(parts, length)

    def _set_throttle_time(self, response: Any) -> None:
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = self.throttle_ms

    def _cannot_write(self, error: Exception) -> None:
        log.error("closing the connection of %s: its answer cannot be written", self.client_host, exc_info=error)
        self.disconnect()

    def reply_body(self, body: bytes) -> None:
        """Send a response body that is already encoded."""
        self.connection.send_bytes(self._head(len(body)) + body)

    def reply_parts(self, parts: Sequence[Part], length: int) -> None:
        """Send a response body in parts (bytes and file ranges) of `length` bytes in total."""
        first = parts[0]
        if type(first) is bytes:
            if len(parts) == 1:
                self.connection.send_bytes(self._head(length) + first)
            else:
                self.connection.send((self._head(length) + first, *parts[1:]))
        else:
            self.connection.send((self._head(length), *parts))

    def answer_error(self, error: ErrorCode, request: Message | None) -> None:
        """Reply with an error wherever the response has a field for one, for each part of the request if it is given.

        If the response has no such place, close the connection.
        """
        response = error_response(self.header.api_key, self.api_version, request, error)
        if response is None:
            self.disconnect()
        else:
            self.reply_in_slices(response)

    def no_reply(self) -> None:
        """Finish without a response (Produce with acks=0)."""
        self.connection.complete()

    def disconnect(self) -> None:
        """Finish by closing the connection, as Kafka does where a response cannot hold the error."""
        self.connection.close()

    @property
    def is_gone(self) -> bool:
        """Whether the client has disconnected, so that a response would be discarded."""
        return self.connection.closed

    def run(self, work: Coroutine[object, object, None]) -> None:
        """Run work that may be long, in slices (`ottla.broker.slices`); the work replies itself.

        Short work ends before this returns. The rest is cancelled when the client disconnects. An exception is
        logged and answered with an error.
        """
        self.broker.dispatcher.run(self, work)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run work as a task that continues if the client disconnects; the work replies itself.

        An exception is logged and answered with an error.
        """
        self.broker.dispatcher.spawn(self, work)

    def _head(self, body_length: int) -> bytes:
        header = self.header
        key = header.api_key
        if self.begun_ms is not None:
            self._timed(self.begun_ms)
        if key != API_VERSIONS and self.api_version >= API[key].flexible_since:
            return _FLEXIBLE_HEAD.pack(body_length + 5, header.correlation_id, 0)
        return _PLAIN_HEAD.pack(body_length + 4, header.correlation_id)

    def _timed(self, begun_ms: float) -> None:
        broker = self.broker
        time_ms = broker.clock.monotonic_ms() - begun_ms
        broker.dispatcher.requests[self.header.api_key].times_ms.append(time_ms)
        if self.figures is not None:
            self.figures.times_ms.append(time_ms)
