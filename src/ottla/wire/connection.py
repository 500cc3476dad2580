"""Both ends of a connection without the connection: bytes in, frames or messages out, nothing waits.

A frame is an int32 size and as many bytes. `FrameReader` cuts what arrives into frames and refuses sizes that no
honest peer sends, before anything is allocated for them; `FrameReceiver` does so for what is received straight into
its buffers. `ServerProtocol` reads requests and writes responses in the
order of the requests; `ClientProtocol` numbers requests, matches responses by their correlation ids and agrees on
versions (KIP-35, KIP-511). Owners of sockets with buffers of their own use `frame_refusal` and `ottla.wire.framing`.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, NamedTuple

from ottla.wire import codec
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import (
    SIZE_BYTES,
    RequestHeader,
    encode_response_frame,
    parse_request_header,
    parse_response_header,
    request_frame_parts,
)
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.schema import Message

MAX_CORRELATION_ID = 0x7FFFFFFF
#: Bytes of one read; frames up to this size are cut from its buffer.
SMALL_FRAMES_BYTES = 64 * 1024
#: A buffer of up to this size is kept for the next large frame, and a larger one for a frame of a quarter of it.
KEPT_FRAME_BYTES = 1024 * 1024
LARGEST_KEPT = 4
#: Requests that a client may have sent without an answer to the first of them.
MAX_IN_FLIGHT = 1024

_SIZE = struct.Struct(">i")


class FrameRefusal(NamedTuple):
    """A size that is refused; the connection is of no use after it."""

    size: int
    message: str


def frame_refusal(size: int, limit: int) -> FrameRefusal | None:
    """Why a frame of this size is refused, in the words of Apache Kafka's NetworkReceive; None where it is not."""
    if size < 0:
        return FrameRefusal(size, f"Invalid receive (size = {size})")
    if size > limit:
        return FrameRefusal(size, f"Invalid receive (size = {size} larger than {limit})")
    return None


class FrameReader:
    """Cuts a stream of bytes into frames of at most `limit` bytes each.

    It holds what arrived of the frame that is not yet whole, and never more: a size is believed only as far as its
    bytes have come.
    """

    __slots__ = ("_held", "_limit", "refusal")

    def __init__(self, limit: int) -> None:
        self._held = bytearray()
        self._limit = limit
        #: Set when a size was refused: the next frame cannot be found.
        self.refusal: FrameRefusal | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._held)

    def feed(self, data: bytes | memoryview) -> list[bytes] | FrameRefusal:
        """The frames that are whole now, without their sizes.

        Frames in front of a refused size are still handed out (`refusal` is set by then); after that it is refused
        for good.
        """
        if self.refusal is not None:
            return self.refusal
        held = self._held
        held += data
        frames: list[bytes] = []
        position = 0
        while len(held) - position >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(held, position)
            self.refusal = frame_refusal(size, self._limit)
            if self.refusal is not None:
                held.clear()
                return frames or self.refusal
            end = position + SIZE_BYTES + size
            if end > len(held):
                break
            frames.append(bytes(memoryview(held)[position + SIZE_BYTES : end]))
            position = end
        del held[:position]
        return frames


class FrameReceiver:
    """As `FrameReader`, for large frames: bytes are received where they stay (`asyncio.BufferedProtocol`).

    A frame that does not fit into `SMALL_FRAMES_BYTES` gets a buffer of its own, of the size that it says it has (the
    system gives memory as it is written to); the frame is that buffer, and nothing is copied. If the large frame before
    it is not in use any more, it gets that one's buffer: clearing a new one takes as long as receiving.
    """

    __slots__ = ("_at", "_frame", "_kept", "_limit", "_small", "refusal")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._small = bytearray(SMALL_FRAMES_BYTES)
        #: The large frame that is under way.
        self._frame: memoryview | None = None
        #: The buffer of the last large frame.
        self._kept = bytearray()
        #: Bytes received in the current buffer.
        self._at = 0
        #: Set when a size was refused: the next frame cannot be found.
        self.refusal: FrameRefusal | None = None

    def get_buffer(self) -> memoryview:
        """The buffer for the next bytes, never empty; valid until `received`."""
        frame = self._frame
        return frame[self._at :] if frame is not None else memoryview(self._small)[self._at :]

    def received(self, count: int) -> list[bytes | memoryview] | FrameRefusal:
        """Take in `count` bytes; return the frames that are whole now. Refuses as `FrameReader.feed` does."""
        if self.refusal is not None:
            return self.refusal
        self._at += count
        if self._frame is None:
            return self._cut()
        if self._at < len(self._frame):
            return []
        frame, self._frame, self._at = self._frame, None, 0
        return [frame]

    def _buffer(self, size: int) -> memoryview:
        """The buffer for a frame of this size: the last one's if that is of a fitting size and not in use."""
        kept = self._kept
        if not size <= len(kept) <= max(KEPT_FRAME_BYTES, LARGEST_KEPT * size) or _is_in_use(kept):
            kept = self._kept = bytearray(size)
        return memoryview(kept)[:size]

    def _cut(self) -> list[bytes | memoryview] | FrameRefusal:
        """The small frames; begins a large one, or leaves what is not whole at the beginning."""
        frames: list[bytes | memoryview] = []
        position, end = 0, self._at
        with memoryview(self._small) as arrived:
            while end - position >= SIZE_BYTES:
                (size,) = _SIZE.unpack_from(arrived, position)
                self.refusal = frame_refusal(size, self._limit)
                if self.refusal is not None:
                    return frames or self.refusal
                begin = position + SIZE_BYTES
                if begin + size > end:
                    if SIZE_BYTES + size > len(arrived):
                        self._frame = self._buffer(size)
                        self._frame[: end - begin] = arrived[begin:end]
                        self._at = end - begin
                        return frames
                    break
                frames.append(bytes(arrived[begin : begin + size]))
                position = begin + size
            if position < end:
                arrived[: end - position] = arrived[position:end]
        self._at = end - position
        return frames


def _is_in_use(buffer: bytearray) -> bool:
    """Whether there is a view of the buffer: it cannot change its size then."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False


class Request(NamedTuple):
    """A request as a server gets it. `message` is None where its API or version is not declared here."""

    header: RequestHeader
    message: Any


class ServerProtocol:
    """The server's end: requests in, responses out in the same order."""

    __slots__ = ("_reader", "_unanswered")

    def __init__(self, max_request_bytes: int) -> None:
        self._reader = FrameReader(max_request_bytes)
        self._unanswered: deque[RequestHeader] = deque()

    def receive(self, data: bytes | memoryview) -> list[Request] | FrameRefusal:
        """The requests that are whole now. Raises WireError for one that cannot be read."""
        frames = self._reader.feed(data)
        if isinstance(frames, FrameRefusal):
            return frames
        return [self._request(frame) for frame in frames]

    def _request(self, frame: bytes) -> Request:
        header, offset = parse_request_header(frame)
        self._unanswered.append(header)
        api = API[header.api_key]
        if not api.min_version <= header.api_version <= api.max_version:
            return Request(header, None)
        return Request(header, codec.decode(api.request, frame, header.api_version, offset))

    def respond(self, message: Message) -> bytes:
        """The frame that answers the oldest request.

        An ApiVersions request of an undeclared version is answered in version 0, which every client reads (KIP-511).
        """
        header = self._unanswered.popleft()
        version = header.api_version
        if header.api_key == ApiKey.API_VERSIONS and version > API[header.api_key].max_version:
            version = 0
        return encode_response_frame(header.api_key, version, header.correlation_id, codec.encode(message, version))

    def skip(self) -> None:
        """Leave the oldest request without an answer, as Produce with acks 0 wants it."""
        self._unanswered.popleft()


class VersionRefusal(NamedTuple):
    """Why a request cannot be sent to this server."""

    error: ErrorCode
    message: str


class Response(NamedTuple):
    """An answer with the request it belongs to."""

    correlation_id: int
    api_key: int
    version: int
    message: Any


class Undecoded(NamedTuple):
    """The frame of a response that its receiver decodes, and where the message in it begins."""

    frame: bytes
    offset: int


class ClientProtocol:
    """The client's end: requests out, responses in, matched and decoded."""

    __slots__ = ("_in_flight", "_next_id", "_receiver", "client_id", "versions")

    def __init__(self, client_id: str, max_response_bytes: int) -> None:
        self.client_id = client_id
        #: Per API the versions that the server offers; empty until `agree`.
        self.versions: dict[int, tuple[int, int]] = {}
        self._receiver = FrameReceiver(max_response_bytes)
        #: Correlation id, API key, version, and whether the receiver decodes the response.
        self._in_flight: deque[tuple[int, int, int, bool]] = deque()
        self._next_id = 0

    def agree(self, offered: ApiVersionsResponse) -> None:
        """Take over what the server offers."""
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in offered.api_keys}

    def version_for(self, api_key: int, lowest: int = 0) -> int | VersionRefusal:
        """The newest version that both ends know, not below `lowest`."""
        api = API[api_key]
        if api_key not in self.versions:
            return VersionRefusal(
                ErrorCode.UNSUPPORTED_VERSION, f"the server does not offer {api.name} (key {int(api_key)})"
            )
        first, last = self.versions[api_key]
        version = min(last, api.max_version)
        if version < max(first, api.min_version, lowest):
            return VersionRefusal(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the server offers {api.name} in versions {first} to {last}, "
                f"needed is one of {max(lowest, api.min_version)} to {api.max_version}",
            )
        return version

    def request(self, message: Message, version: int, *, answered: bool = True) -> bytes:
        """The frame of a request. Raises WireError when the version cannot express it or too many are in flight."""
        return b"".join(self.request_parts(message, version, answered=answered))

    def request_parts(
        self,
        message: Message,
        version: int,
        *,
        answered: bool = True,
        body: list[Any] | None = None,
        is_left_undecoded: bool = False,
    ) -> list[bytes | memoryview]:
        """As `request`, not joined: records are in the list as they were given. `body` is the message, if encoded.

        With `is_left_undecoded` the response comes as `Undecoded`.
        """
        api_key = message.SCHEMA.api_key
        if api_key is None:
            raise WireError(f"{message.SCHEMA.name} is not a request")
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            raise WireError(f"{MAX_IN_FLIGHT} requests are in flight already")
        if body is None:
            body = codec.encode_parts(message, version)
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & MAX_CORRELATION_ID
        if answered:
            self._in_flight.append((correlation_id, api_key, version, is_left_undecoded))
        return request_frame_parts(RequestHeader(api_key, version, correlation_id, self.client_id), body)

    def get_buffer(self) -> memoryview:
        """The buffer for the next bytes; valid until `received`."""
        return self._receiver.get_buffer()

    def received(self, count: int) -> list[Response] | FrameRefusal:
        """Take in `count` bytes; return the responses that are whole now.

        Raises WireError for one that cannot be read or was not requested.
        """
        frames = self._receiver.received(count)
        if isinstance(frames, FrameRefusal):
            return frames
        return [self._response(frame) for frame in frames]

    def _response(self, frame: bytes | memoryview) -> Response:
        if not self._in_flight:
            raise WireError("a response came without a request")
        expected, api_key, version, is_left_undecoded = self._in_flight.popleft()
        correlation_id, offset = parse_response_header(frame, api_key, version)
        if correlation_id != expected:
            raise WireError(f"a response has correlation id {correlation_id}, the next in order is {expected}")
        if is_left_undecoded:
            return Response(expected, api_key, version, Undecoded(bytes(frame), offset))
        if api_key == ApiKey.API_VERSIONS:
            return Response(expected, api_key, version, decode_api_versions_response(frame, version, offset))
        return Response(expected, api_key, version, codec.decode(API[api_key].response, frame, version, offset))


def decode_api_versions_response(data: bytes | memoryview, version: int, offset: int = 0) -> ApiVersionsResponse:
    """An answer to ApiVersions, which is of version 0 where the server does not know the version asked for (KIP-511).

    Its error code is then UNSUPPORTED_VERSION, and `api_keys` may have the server's range for ApiVersions. Raises
    WireError when the answer is neither.
    """
    try:
        return codec.decode(ApiVersionsResponse, data, version, offset)
    except WireError:
        answer = codec.decode(ApiVersionsResponse, data, 0, offset)
        if answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        return answer
