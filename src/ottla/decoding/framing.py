"""The framing of schema registries: a byte 0, the schema's id in four bytes, and for Protobuf which message it is.

Source: Confluent's "wire format", which other registries write, too.
"""

from __future__ import annotations

from ottla.records.varint import encode_varint

MAGIC = 0
ID_LENGTH = 4
PREFIX_LENGTH = 1 + ID_LENGTH
#: Most levels of nested messages in a Protobuf file; a longer path is not one of message indexes.
MAX_INDEXES = 100
NO_FRAMING = "no framing of a schema registry: it does not begin with a byte 0 and a schema id"


def split_frame(data: bytes) -> tuple[int, bytes] | None:
    """The schema's id that a value begins with, and what is behind it; None where it has no framing."""
    if len(data) < PREFIX_LENGTH or data[0] != MAGIC:
        return None
    return int.from_bytes(data[1:PREFIX_LENGTH], "big"), data[PREFIX_LENGTH:]


def frame_head(schema_id: int) -> bytes:
    """The bytes before a value of a schema."""
    return bytes([MAGIC]) + schema_id.to_bytes(ID_LENGTH, "big")


def take_indexes(body: bytes) -> tuple[tuple[int, ...], int] | None:
    """The path to a message in its Protobuf file, and where the message begins; None where there is none.

    A single 0 stands for the first message of the file, the usual one.
    """
    count, at = _zigzag(body, 0)
    if count == 0:
        return (0,), at
    if count is None or not 0 < count <= MAX_INDEXES:
        return None
    path = []
    for _ in range(count):
        index, at = _zigzag(body, at)
        if index is None or index < 0:
            return None
        path.append(index)
    return tuple(path), at


def encode_indexes(path: tuple[int, ...]) -> bytes:
    """Bytes of a path of indexes."""
    if path == (0,):
        return b"\x00"
    return b"".join(map(encode_varint, (len(path), *path)))


def _zigzag(body: bytes, at: int) -> tuple[int | None, int]:
    value = shift = 0
    while at < len(body) and shift < 64:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return None, at
