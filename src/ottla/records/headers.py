"""The headers of a record: names and values, in the order in which they were given."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.records.errors import BatchError
from ottla.records.varint import encode_varint, read_varint

Headers = tuple[tuple[str, bytes | None], ...]


def read_headers(data: bytes, position: int, record_end: int) -> Headers:
    """The headers whose count stands at `position`, of a record that ends at `record_end`; BatchError if malformed."""
    try:
        headers, end = decode_headers(data, position, record_end)
    except IndexError:
        raise BatchError("the records end within a field") from None
    if end != record_end:
        raise BatchError(f"a record says it ends at byte {record_end}, but its fields end at {end}")
    return headers


def decode_headers(data: bytes, position: int, record_end: int) -> tuple[Headers, int]:
    """As `read_headers`, with the place behind them; IndexError where the data ends."""
    number, position = read_varint(data, position)
    count = (number >> 1) ^ -(number & 1)
    if not 0 <= count <= (record_end - position) // 2:
        raise BatchError(f"found invalid number of record headers {count}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        number, position = read_varint(data, position)
        if number & 1:
            raise BatchError("found invalid negative header key size")
        end = position + (number >> 1)
        key = data[position:end].decode("utf-8", "replace")
        number, position = read_varint(data, end)
        if number & 1:
            headers.append((key, None))
        else:
            end = position + (number >> 1)
            headers.append((key, data[position:end]))
            position = end
    return tuple(headers), position


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The headers as they lie in a record, with their count before them."""
    parts = [encode_varint(len(headers))]
    for key, value in headers:
        encoded_key = key.encode("utf-8")
        parts += (encode_varint(len(encoded_key)), encoded_key)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(value)), value)
    return b"".join(parts)
