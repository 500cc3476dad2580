"""The headers of a record: names and values, in the order in which they were given."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.records.varint import encode_varint

Headers = tuple[tuple[str, bytes | None], ...]


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
