"""One connection to a broker: requests out, responses in, matched by correlation id."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, NamedTuple

import ottla
from ottla.client.errors import (
    BrokerError,
    BrokerUnreachableError,
    ClientError,
    ClientTimeoutError,
    ConnectionLostError,
    NotKafkaError,
    ProtocolError,
    UnresolvableHostError,
)
from ottla.client.settings import ClientSettings
from ottla.client.versions import USED, Offered, choose_version, offered_versions
from ottla.wire import codec
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import RequestHeader, encode_request_frame, parse_response_header
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import Message

SIZE_BYTES = 4
READ_BUFFER_BYTES = 64 * 1024
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""No answer is larger; what says so does not speak Kafka's protocol."""
MAX_FIRST_RESPONSE_BYTES = 1024 * 1024
MAX_CORRELATION_ID = 0x7FFFFFFF
TLS_ALERT = b"\x15\x03"

_SIZE = struct.Struct(">i")


class _Pending(NamedTuple):
    future: asyncio.Future[memoryview]
    api_key: ApiKey
    version: int


class Connection(asyncio.BufferedProtocol):
    """A connection whose versions are agreed on; make one with `open_connection`.

    Answers are read straight into a buffer of their size, so record batches are not copied before they are decoded.
    """

    def __init__(self, address: str, settings: ClientSettings) -> None:
        self.address = address
        self.offered: Offered = {}
        self._settings = settings
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._scratch = bytearray(READ_BUFFER_BYTES)
        self._scratch_used = 0
        self._frame: bytearray | None = None
        self._frame_used = 0
        self._largest_response = MAX_FIRST_RESPONSE_BYTES
        self._closed_by: ClientError | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._closed_by is None and self._transport is not None

    async def request(self, message: Message, *, timeout_ms: int | None = None, awaits_response: bool = True) -> Any:
        """The answer to `message`, in the newest version that both sides know; None where none is awaited.

        Raises ClientTimeoutError after `timeout_ms` (the connection is closed then, as Kafka's clients do, since its
        later answers would come even later), ConnectionLostError, ProtocolError, UnsupportedVersionError.
        """
        api_key = ApiKey(message.SCHEMA.api_key)  # type: ignore[arg-type]
        return await self._exchange(
            message, api_key, choose_version(api_key, self.offered), timeout_ms, awaits_response
        )

    async def _exchange(
        self, message: Message, api_key: ApiKey, version: int, timeout_ms: int | None, awaits_response: bool = True
    ) -> Any:
        if self._closed_by is not None or self._transport is None:
            raise self._closed_by or ConnectionLostError(f"not connected to {self.address}", retriable=True)
        self._correlation_id = correlation_id = self._correlation_id % MAX_CORRELATION_ID + 1
        header = RequestHeader(api_key, version, correlation_id, self._settings.client_id)
        try:
            frame = encode_request_frame(header, codec.encode(message, version))
        except WireError as error:
            raise ProtocolError(f"{api_key.name} cannot be sent to {self.address}: {error}") from error
        if not awaits_response:
            self._transport.write(frame)
            return None
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = _Pending(future, api_key, version)
        self._transport.write(frame)
        timeout_ms = timeout_ms or self._settings.request_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await future
        except TimeoutError:
            late = ClientTimeoutError(
                f"{self.address} did not answer {api_key.name} within {timeout_ms} ms", retriable=True
            )
            self._close(late)
            raise late from None
        return self._decode(answer, api_key, version)

    def _decode(self, answer: memoryview, api_key: ApiKey, version: int) -> Any:
        try:
            _, position = parse_response_header(answer, api_key, version)
            return codec.decode(API[api_key].response, answer, version, position)
        except WireError as error:
            raise ProtocolError(f"{self.address} answered {api_key.name} with what cannot be read: {error}") from error

    async def agree_on_versions(self) -> None:
        """Learn what the broker serves (KIP-35); a broker that knows an older version of the question says so."""
        version = USED[ApiKey.API_VERSIONS][1]
        question = ApiVersionsRequest(client_software_name="ottla", client_software_version=ottla.__version__)
        timeout_ms = self._settings.socket_connection_setup_timeout_ms
        try:
            answer: ApiVersionsResponse = await self._exchange(question, ApiKey.API_VERSIONS, version, timeout_ms)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                served = offered_versions(answer.api_keys)
                version = choose_version(ApiKey.API_VERSIONS, served) if served else 0
                answer = await self._exchange(question, ApiKey.API_VERSIONS, version, timeout_ms)
        except (ClientTimeoutError, ConnectionLostError, ProtocolError) as error:
            raise NotKafkaError(
                f"{self.address} accepts connections but does not speak Kafka's protocol in plain text ({error}); "
                "check the port, and whether it is a TLS or SASL listener"
            ) from error
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, f"{self.address} refuses to tell its API versions")
        self.offered = offered_versions(answer.api_keys)
        self._largest_response = MAX_RESPONSE_BYTES

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._close(ConnectionLostError(f"the connection to {self.address} was closed by this client", retriable=True))

    def _close(self, reason: ClientError) -> None:
        if self._closed_by is None:
            self._closed_by = reason
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            if not waiting.future.done():
                waiting.future.set_exception(self._closed_by)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio: the connection stands."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio: the connection is gone."""
        why = f": {exc}" if exc is not None else ""
        self._close(ConnectionLostError(f"{self.address} closed the connection{why}", retriable=True))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Asyncio: where the next bytes go, the rest of a large answer or the buffer for small ones."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_used :]
        return memoryview(self._scratch)[self._scratch_used :]

    def buffer_updated(self, nbytes: int) -> None:
        """Asyncio: bytes have arrived there."""
        if self._frame is None:
            self._scratch_used += nbytes
            self._take_frames()
            return
        self._frame_used += nbytes
        if self._frame_used == len(self._frame):
            frame, self._frame = self._frame, None
            self._deliver(memoryview(frame))

    def _take_frames(self) -> None:
        """Hand out the whole frames in the scratch buffer; give one that is cut off a buffer of its own."""
        scratch, end, position = self._scratch, self._scratch_used, 0
        while end - position >= SIZE_BYTES and self._closed_by is None:
            (size,) = _SIZE.unpack_from(scratch, position)
            if not SIZE_BYTES <= size <= self._largest_response:
                self._close(self._not_kafka(bytes(scratch[position:end])))
                return
            start = position + SIZE_BYTES
            if end - start < size:
                self._frame = bytearray(size)
                self._frame_used = end - start
                self._frame[: end - start] = scratch[start:end]
                position = end
                break
            position = start + size
            self._deliver(memoryview(bytes(scratch[start:position])))
        scratch[: end - position] = scratch[position:end]
        self._scratch_used = end - position

    def _not_kafka(self, received: bytes) -> ClientError:
        if received.startswith(TLS_ALERT):
            return ProtocolError("it answered with a TLS alert: this is a TLS listener")
        if received.startswith(b"HTTP"):
            return ProtocolError("it answered in HTTP")
        return ProtocolError(f"{self.address} sent what is no answer, beginning with {received[:16]!r}")

    def _deliver(self, frame: memoryview) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame)
        waiting = self._pending.pop(correlation_id, None)
        if waiting is None:
            self._close(ProtocolError(f"{self.address} answered a request {correlation_id} that was not sent"))
        elif not waiting.future.done():
            waiting.future.set_result(frame)


async def open_connection(host: str, port: int, settings: ClientSettings) -> Connection:
    """Connect and agree on versions. Raises the subclasses of ConnectError."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    loop = asyncio.get_running_loop()
    timeout_ms = settings.socket_connection_setup_timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, connection = await loop.create_connection(lambda: Connection(address, settings), host, port)
    except TimeoutError:
        raise BrokerUnreachableError(
            f"{address} did not accept a connection within {timeout_ms} ms; check address, network and firewall"
        ) from None
    except (socket.gaierror, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnresolvableHostError(f"the host of {address} cannot be resolved ({reason}); check its name") from error
    except OSError as error:
        reason = error.strerror or error
        raise BrokerUnreachableError(
            f"cannot connect to {address} ({reason}); check that the broker runs and listens there"
        ) from error
    try:
        await connection.agree_on_versions()
    except BaseException:
        connection.close()
        raise
    return connection
