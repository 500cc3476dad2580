"""One request on its way through the broker: who asks, and the one answer."""

from __future__ import annotations

import logging
import struct
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING

from ottla.wire.apis import API
from ottla.wire.codec import encode

if TYPE_CHECKING:
    from ottla.broker.server import Broker
    from ottla.net.connection import Part, PlaintextConnection
    from ottla.wire.framing import RequestHeader
    from ottla.wire.schema import Message

log = logging.getLogger("ottla.broker")

_PLAIN_HEAD = struct.Struct(">ii")
_FLEXIBLE_HEAD = struct.Struct(">iiB")
API_VERSIONS = 18


class ClientState:
    """What the broker keeps with a connection between requests."""

    __slots__ = ("pending", "software_name", "software_version")

    def __init__(self) -> None:
        self.software_name = ""
        self.software_version = ""
        #: The delayed operation that the connection's request in work waits for, cancelled when the client goes.
        self.pending: Pending | None = None


class Pending:
    """A delayed operation as its connection sees it."""

    __slots__ = ()

    def cancel(self) -> None:
        """The client is gone: forget the operation without an answer."""
        raise NotImplementedError


class RequestContext:
    """A request in work. Exactly one of the `reply…` methods is called for it, at once or later."""

    __slots__ = ("api_version", "broker", "connection", "header")

    def __init__(self, broker: Broker, connection: PlaintextConnection, header: RequestHeader) -> None:
        self.broker = broker
        self.connection = connection
        self.header = header
        self.api_version = header.api_version

    @property
    def client_id(self) -> str:
        """The client's name for itself, empty where it gave none."""
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        """The client's address, with the leading slash that Java's printing of addresses has and tools expect."""
        return "/" + self.connection.peer_host

    @property
    def listener_name(self) -> str:
        """The listener through which the request came; Metadata answers with that listener's endpoints."""
        return self.connection.listener_name

    @property
    def client_state(self) -> ClientState:
        """What the broker keeps with this connection."""
        state = self.connection.state
        assert isinstance(state, ClientState)
        return state

    def reply(self, response: Message) -> None:
        """Answer with a message, encoded for the request's version.

        One that cannot be encoded closes the connection: whoever answers late, from a timer or for another client,
        must neither fail over it nor leave this client waiting.
        """
        try:
            body = encode(response, self.api_version)
        except Exception:
            log.exception("closing the connection of %s: its answer cannot be written", self.client_host)
            self.disconnect()
            return
        self.reply_body(body)

    def reply_body(self, body: bytes) -> None:
        """Answer with a body that is encoded already."""
        self.connection.send_bytes(self._head(len(body)) + body)

    def reply_parts(self, parts: Sequence[Part], length: int) -> None:
        """Answer with a body in parts (bytes and file ranges) of `length` bytes together."""
        first = parts[0]
        if type(first) is bytes:
            self.connection.send((self._head(length) + first, *parts[1:]))
        else:
            self.connection.send((self._head(length), *parts))

    def no_reply(self) -> None:
        """Finish without an answer (Produce with acks=0)."""
        self.connection.complete()

    def disconnect(self) -> None:
        """Finish by closing the connection, as Kafka does where it cannot answer."""
        self.connection.close()

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed its connection, so that nobody takes the answer."""
        return self.connection.closed

    def run(self, work: Coroutine[object, object, None]) -> None:
        """Run work that may be long, in slices (`ottla.broker.slices`); it replies itself.

        What is short ends before this returns. The rest is cancelled when the client goes away. An exception is
        logged and answered.
        """
        self.broker.dispatcher.run(self, work)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run work as a task that goes on when the client goes away; it replies itself. An exception in it is logged
        and answered.
        """
        self.broker.dispatcher.spawn(self, work)

    def _head(self, body_length: int) -> bytes:
        header = self.header
        key = header.api_key
        if key != API_VERSIONS and self.api_version >= API[key].flexible_since:
            return _FLEXIBLE_HEAD.pack(body_length + 5, header.correlation_id, 0)
        return _PLAIN_HEAD.pack(body_length + 4, header.correlation_id)
