"""Headers and frames: what stands around a message on a connection.

A frame is an int32 size and as many bytes: a header, then the body. Requests have header version 1 (API key, version,
correlation id, client id) or 2 (the same and tagged fields), responses 0 (correlation id) or 1 (and tagged fields);
the version follows from the API's own version. Header version 0 of requests, without a client id, is that of
ControlledShutdown version 0 alone. https://kafka.apache.org/protocol#protocol_messages
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import WireError
from ottla.wire.strings import MAX_STRING_LENGTH, too_long

_FIXED = struct.Struct(">hhih")  # API key, API version, correlation id, length of the client id
_SIZE_AND_FIXED = struct.Struct(">ihhih")
_KEY_VERSION_ID = struct.Struct(">hhi")
_SIZE_AND_ID = struct.Struct(">ii")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")

SIZE_BYTES = 4
JOINED_BYTES = 4096
"""Up to this size a request is written from one piece of memory, which takes less time than from many."""
MAX_VARINT_BYTES = 5
TAGGED_FIELDS_LIMIT = 1000
"""More tagged fields are not read in one place (KIP-482); Kafka's own messages have at most a handful."""
NO_TAGS = b"\x00"


class RequestHeader:
    """A request header. `client_id` is empty where the client sent none or null, as in Apache Kafka."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str = "") -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RequestHeader):
            return NotImplemented
        return (self.api_key, self.api_version, self.correlation_id, self.client_id) == (
            other.api_key,
            other.api_version,
            other.correlation_id,
            other.client_id,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def parse_request_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """The header at the start of a frame (without its size), and where the body starts.

    The header of an unknown version is read as that of the newest version, so that an ApiVersions request from the
    future can be answered (KIP-511). Raises WireError when the header is malformed or the API is not declared; Apache
    Kafka closes the connection then.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame)
    except struct.error as error:
        raise WireError(f"a request of {len(frame)} bytes is too short for a request header") from error
    api = API.get(api_key)
    if api is None:
        raise WireError(f"unknown API: {api_name(api_key)}, version {api_version}")
    position = _FIXED.size
    client_id = ""
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and not api_version:
        return RequestHeader(api_key, api_version, correlation_id), _KEY_VERSION_ID.size
    if length > 0:
        end = position + length
        if end > len(frame):
            raise WireError(f"the client id of {length} bytes goes beyond the request of {len(frame)}")
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"the client id is not UTF-8: {error}") from error
        position = end
    elif length < -1:
        raise WireError(f"the client id has the negative length {length}")
    if api_version >= api.flexible_since:
        if position < len(frame) and not frame[position]:  # no fields, as ever
            position += 1
        else:
            position = skip_tagged_fields(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def encode_request_header(header: RequestHeader) -> bytes:
    """The bytes of a request header in the version that its API's version demands."""
    return b"".join(request_frame_parts(header, ()))[SIZE_BYTES:]


def encode_request_frame(header: RequestHeader, body: bytes) -> bytes:
    """A whole request as it is sent: size, header, body."""
    return b"".join(request_frame_parts(header, [body]))


def request_frame_parts(header: RequestHeader, body: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """As `encode_request_frame`, not joined where it is large: records are not copied.

    Raises WireError where the client id is too long.
    """
    if header.api_key == ApiKey.CONTROLLED_SHUTDOWN and not header.api_version:
        head = _KEY_VERSION_ID.pack(header.api_key, header.api_version, header.correlation_id)
        return [b"".join((_INT32.pack(len(head) + sum(map(len, body))), head, *body))]
    client_id = header.client_id.encode()
    if header.api_version >= API[header.api_key].flexible_since:
        client_id += NO_TAGS
        tags_size = 1
    else:
        tags_size = 0
    size = _FIXED.size + len(client_id) + sum(map(len, body))
    length = len(client_id) - tags_size
    if length > MAX_STRING_LENGTH:
        raise WireError(f"the client id {too_long(header.client_id)}")
    head = _SIZE_AND_FIXED.pack(size, header.api_key, header.api_version, header.correlation_id, length)
    if size <= JOINED_BYTES:
        return [b"".join((head, client_id, *body))]
    return [head, client_id, *body]


def response_header_size(api_key: int, api_version: int) -> int:
    """Bytes of the response header that `encode_response_header` makes."""
    return _INT32.size + API[api_key].response_header_version(api_version)


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The bytes of a response header."""
    if API[api_key].response_header_version(api_version):
        return _INT32.pack(correlation_id) + NO_TAGS
    return _INT32.pack(correlation_id)


def encode_response_frame(api_key: int, api_version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole response as it is sent: size, header, body."""
    if API[api_key].response_header_version(api_version):
        return b"".join((_SIZE_AND_ID.pack(5 + len(body), correlation_id), NO_TAGS, body))
    return _SIZE_AND_ID.pack(4 + len(body), correlation_id) + body


def parse_response_header(frame: bytes | memoryview, api_key: int, api_version: int) -> tuple[int, int]:
    """The correlation id at the start of a response frame (without its size), and where the body starts.

    Raises WireError when the frame is too short or the tagged fields are malformed.
    """
    if len(frame) < _INT32.size:
        raise WireError(f"a response of {len(frame)} bytes is too short for a response header")
    (correlation_id,) = _INT32.unpack_from(frame)
    position = _INT32.size
    if API[api_key].response_header_version(api_version):
        if position < len(frame) and not frame[position]:  # no fields, as ever
            return correlation_id, position + 1
        position = skip_tagged_fields(frame, position)
    return correlation_id, position


def api_name(api_key: int) -> str:
    """An API's name for people: known name or number, for logs and error messages."""
    try:
        return f"{ApiKey(api_key).name} ({api_key})"
    except ValueError:
        return f"API key {api_key}"


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint and the position after it. Raises WireError when it does not end."""
    value = 0
    for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
        if position >= len(data):
            raise WireError("a varint goes beyond the end of the data")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise WireError(f"a varint is longer than {MAX_VARINT_BYTES} bytes")


def skip_tagged_fields(data: bytes | memoryview, position: int) -> int:
    """The position after a section of unread tagged fields (KIP-482)."""
    count, position = read_varint(data, position)
    if count > TAGGED_FIELDS_LIMIT or 2 * count > len(data) - position:
        raise WireError(
            f"{count} tagged fields in {len(data) - position} bytes, at most {TAGGED_FIELDS_LIMIT} are read"
        )
    for _ in range(count):
        _, position = read_varint(data, position)
        size, position = read_varint(data, position)
        position += size
        if position > len(data):
            raise WireError("a tagged field goes beyond the end of the data")
    return position
