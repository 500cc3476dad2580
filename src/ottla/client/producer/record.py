"""What a producer is given to send."""

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
"""The most that the lengths of a header's name and content take."""


class ProducerRecord(NamedTuple, Generic[K, V]):
    """A record for a topic. `partition` None: the partitioner chooses; `timestamp` in milliseconds, None: now."""

    topic: str
    value: V | None = None
    key: K | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: SendHeaders = ()


def topic_name(topic: Any) -> str:
    """A topic that is no plain str, but may be of a class derived from it. InvalidArgumentError for anything else."""
    if isinstance(topic, str):
        return str(topic.value) if isinstance(topic, Enum) else str(topic)
    raise InvalidArgumentError(
        f"a topic is text (str), not {topic!r:.80}; send takes a topic and a value, or a ProducerRecord"
    )


def fields_of(record: Any) -> tuple[Any, ...]:
    """The six fields of a ProducerRecord, or of a tuple that stands for one. InvalidArgumentError for anything else."""
    if len(record) != len(ProducerRecord._fields):
        fields = ", ".join(ProducerRecord._fields)
        raise InvalidArgumentError(f"send takes a ProducerRecord({fields}) in place of a topic, not {record!r:.80}")
    if record[0].__class__ is str:
        return tuple(record)
    return (topic_name(record[0]), *record[1:])


def checked_headers(headers: SendHeaders) -> EncodedHeaders:
    """The headers as the codec takes them; InvalidArgumentError for what is no pair of a name and bytes or None."""
    if isinstance(headers, Iterator):  # a record that has to wait is looked at twice, and the second time it is empty
        raise InvalidArgumentError(f"headers are a list of pairs, not {headers!r:.80}, which can be read once only")
    for header in several("headers", headers):
        match header:
            case (str(), bytes() | None):
                continue
        raise InvalidArgumentError(f"a header is a pair of a name (str) and bytes or None, not {header!r}")
    return tuple([(name, content) for name, content in headers])


def headers_size(headers: EncodedHeaders) -> int:
    """The most bytes that the headers can take in a batch, uncompressed."""
    return sum([HEADER_OVERHEAD + len(name.encode()) + len(content or b"") for name, content in headers])
