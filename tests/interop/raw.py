"""A client that speaks the protocol by hand, one frame at a time, and can therefore misbehave at will."""

from __future__ import annotations

import struct
from typing import Any

import fastcrc

from interop.wire_json import Definitions, Json, within
from support.framed_socket import TIMEOUT_S, FramedSocket

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7


class RawConnection(FramedSocket):
    """One socket to `bootstrap`; requests are dicts, see `wire_json`."""

    def __init__(self, bootstrap: str, definitions: Definitions, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        super().__init__(host, int(port), timeout_s)
        self.definitions = definitions
        self.correlation_id = 0

    def encode(self, api: str, version: int, body: Json, client_id: str | None = "raw") -> bytes:
        """The frame of a request, its length first; the correlation id is the next one."""
        message = self.definitions.message(f"{api}Request")
        self.correlation_id += 1
        values = {"request_api_key": message.api_key, "request_api_version": version, "client_id": client_id}
        header = self.definitions.encode(
            "RequestHeader",
            self._request_header_version(api, version),
            {**values, "correlation_id": self.correlation_id},
        )
        return framed(header + self.definitions.encode(message.name, version, body))

    def _request_header_version(self, api: str, version: int) -> int:
        message = self.definitions.message(f"{api}Request")
        if message.api_key == CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if within(version, message.flexible) else 1

    def send(self, api: str, version: int, **body: Any) -> int:
        """Send a request and give its correlation id."""
        self.send_bytes(self.encode(api, version, body))
        return self.correlation_id

    def receive(self, api: str, version: int) -> Json:
        """The next answer, which must belong to the last request sent."""
        frame = self.receive_frame()
        flexible = within(version, self.definitions.message(f"{api}Request").flexible) and api != "ApiVersions"
        (correlation_id,) = struct.unpack_from(">i", frame)
        assert correlation_id == self.correlation_id, "the answer belongs to another request"
        start = 4
        if flexible:
            assert frame[4] == 0, "no tags are defined for response headers"
            start = 5
        return self.definitions.decode(f"{api}Response", version, frame[start:])

    def request(self, api: str, version: int, **body: Any) -> Json:
        """Send a request and wait for its answer."""
        self.send(api, version, **body)
        return self.receive(api, version)


def framed(data: bytes) -> bytes:
    """A frame: its length in four bytes, then the data."""
    return struct.pack(">i", len(data)) + data


def zigzag(value: int) -> bytes:
    """A signed varint as records use it."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def record(key: bytes | None, value: bytes | None, offset_delta: int, timestamp_delta: int = 0) -> bytes:
    """One record of a batch, its length first."""
    body = b"\0" + zigzag(timestamp_delta) + zigzag(offset_delta)
    for part in (key, value):
        body += zigzag(-1) if part is None else zigzag(len(part)) + part
    body += zigzag(0)
    return zigzag(len(body)) + body


def batch(
    values: list[bytes | None],
    *,
    timestamp: int = 1_700_000_000_000,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    magic: int = 2,
    crc: int | None = None,
    base_offset: int = 0,
) -> bytes:
    """A record batch of format 2 with keyless records, uncompressed; `crc` in place of the right one."""
    body = struct.pack(
        ">hiqqqhii",
        attributes,
        len(values) - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(values),
    )
    body += b"".join(record(None, value, delta) for delta, value in enumerate(values))
    right = fastcrc.crc32.iscsi(body)
    head = struct.pack(">ibI", -1, magic, right if crc is None else crc)
    return struct.pack(">qi", base_offset, len(head) + len(body)) + head + body


def values_of(records: bytes | None) -> list[bytes | None]:
    """The values of uncompressed batches, in order."""
    found: list[bytes | None] = []
    position = 0
    data = records or b""
    while position + 61 <= len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        if position + 12 + size > len(data):
            break
        (count,) = struct.unpack_from(">i", data, position + 57)
        at = position + 61
        for _ in range(count):
            length, at = _unzigzag(data, at)
            end = at + length
            found.append(_value_at(data, at))
            at = end
        position += 12 + size
    return found


def _value_at(data: bytes, at: int) -> bytes | None:
    at += 1
    for _ in range(2):
        _, at = _unzigzag(data, at)
    key_size, at = _unzigzag(data, at)
    at += max(key_size, 0)
    size, at = _unzigzag(data, at)
    return None if size < 0 else data[at : at + size]


def _unzigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), at
