"""What a producer is given to send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.client.errors import InvalidArgumentError

K = TypeVar("K")
V = TypeVar("V")

SendHeaders = Sequence[tuple[str, bytes | None]]
EncodedHeaders = tuple[tuple[str, bytes | None], ...]

HEADER_OVERHEAD = 10
"""The most that the lengths of a header's name and content take."""


class ProducerRecord(NamedTuple, Generic[K, V]):
    """A record for a topic. `partition` None: the partitioner chooses; `timestamp` in milliseconds, None: now."""

    topic: str
    value: V | None = None
    key: K | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: SendHeaders = ()


def checked_headers(headers: SendHeaders) -> EncodedHeaders:
    """The headers as the codec takes them; InvalidArgumentError for what is no pair of a name and bytes or None."""
    for header in headers:
        match header:
            case (str(), bytes() | None):
                continue
        raise InvalidArgumentError(f"a header is a pair of a name (str) and bytes or None, not {header!r}")
    return tuple([(name, content) for name, content in headers])


def headers_size(headers: EncodedHeaders) -> int:
    """The most bytes that the headers can take in a batch, uncompressed."""
    return sum([HEADER_OVERHEAD + len(name.encode()) + len(content or b"") for name, content in headers])
