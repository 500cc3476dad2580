"""Records as passed to a producer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple

from ottla.client.errors import InvalidArgumentError
from ottla.peer.arguments import several
from ottla.records.type_variables import K, V

SendHeaders = Sequence[tuple[str, bytes | None]]
EncodedHeaders = tuple[tuple[str, bytes | None], ...]

HEADER_OVERHEAD = 10
"""Upper bound of the size of a header's two length fields."""


class ProducerRecord(NamedTuple, Generic[K, V]):
    """A record for a topic. `partition` None: chosen by the partitioner; `timestamp` in milliseconds, None: now."""

    topic: str
    value: V | None = None
    key: K | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: SendHeaders = ()


def topic_name(topic: Any) -> str:
    """Check a topic that is not a plain str; subclasses are accepted. Raises InvalidArgumentError for anything else."""
    if isinstance(topic, str):
        return str(topic.value) if isinstance(topic, Enum) else str(topic)
    raise InvalidArgumentError(
        f"a topic is text (str), not {topic!r:.80}; send takes a topic and a value, or a ProducerRecord"
    )


def fields_of(record: Any) -> tuple[Any, ...]:
    """Return the six fields of a ProducerRecord, or of an equivalent tuple. Else raises InvalidArgumentError."""
    if len(record) != len(ProducerRecord._fields):
        fields = ", ".join(ProducerRecord._fields)
        raise InvalidArgumentError(f"send takes a ProducerRecord({fields}) in place of a topic, not {record!r:.80}")
    if record[0].__class__ is str:
        return tuple(record)
    return (topic_name(record[0]), *record[1:])


def checked_headers(headers: SendHeaders) -> EncodedHeaders:
    """Return the headers as the codec takes them. Raises InvalidArgumentError unless they are (name, bytes or None)."""
    if isinstance(headers, Iterator):  # a record that has to wait is read twice, and an iterator would be empty then
        raise InvalidArgumentError(f"headers are a list of pairs, not {headers!r:.80}, which can be read once only")
    for header in several("headers", headers):
        match header:
            case (str(), bytes() | None):
                continue
        raise InvalidArgumentError(f"a header is a pair of a name (str) and bytes or None, not {header!r}")
    return tuple([(name, content) for name, content in headers])


def headers_size(headers: EncodedHeaders) -> int:
    """Upper bound of the headers' size in a batch, uncompressed."""
    return sum([HEADER_OVERHEAD + len(name.encode()) + len(content or b"") for name, content in headers])
