"""Messages as the JSON that Apache Kafka's converters read and write, and fillers that make messages to send."""

from __future__ import annotations

import base64
import random
import uuid
from typing import Any, Protocol

from ottla.wire.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    ArrayKind,
    Kind,
    Struct,
    StructKind,
)

LIMITS = {INT8: 2**7, INT16: 2**15, INT32: 2**31, INT64: 2**63}


class Source(Protocol):
    """Where a filler takes its values from."""

    lengths: tuple[int, int]

    def between(self, low: int, high: int) -> int: ...

    def null(self) -> bool: ...


class Counted:
    """One value after the other, the same for ever: for messages whose bytes are recorded."""

    lengths = (1, 1)

    def __init__(self) -> None:
        self._next = 0

    def between(self, low: int, high: int) -> int:
        self._next += 1
        return max(low, min(high, self._next))

    def null(self) -> bool:
        return False


class Random:
    """Any values, from a seed."""

    lengths = (0, 3)

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        return self._random.choice([low, high, self._random.randint(low, high), max(low, min(high, 1))])

    def null(self) -> bool:
        return self._random.random() < 0.25


def filled(cls: type[Struct], version: int, source: Source) -> Any:
    """A message with all fields that the version has, the others with their defaults."""
    made = cls()
    for f in cls.SCHEMA.fields:
        if f.present(version):
            null = f.nullable(version) and source.null()
            setattr(made, f.name, None if null else value_of(f.kind, version, source))
    return made


def value_of(kind: Kind, version: int, source: Source) -> Any:
    if isinstance(kind, StructKind):
        return filled(kind.struct, version, source)
    if isinstance(kind, ArrayKind):
        return [element_of(kind, version, source) for _ in range(source.between(*source.lengths))]
    if kind is BOOL:
        return bool(source.between(0, 1))
    if kind is FLOAT64:
        return source.between(-(10**6), 10**6) / 4
    if kind is UUID:
        return uuid.UUID(int=source.between(0, 2**128 - 1))
    if kind is STRING:
        return f"n{source.between(0, 10**6)}ä"
    if kind is BYTES:
        return bytes(str(source.between(0, 10**6)), "ascii")
    if kind is RECORDS:
        return bytes(source.between(0, 200))  # zeros: Kafka's JSON only tells their size
    return source.between(-LIMITS[kind], LIMITS[kind] - 1)


def element_of(kind: ArrayKind, version: int, source: Source) -> Any:
    if isinstance(kind.element, Kind):
        return value_of(kind.element, version, source)
    return filled(kind.element, version, source)


#: Names whose capitals do not follow from the words.
CAPITALS = {"is_kraft_controller": "isKRaftController"}


def camel_case(name: str) -> str:
    if name in CAPITALS:
        return CAPITALS[name]
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def to_json(message: Struct, version: int) -> dict[str, Any]:
    """The JSON of a message, with the fields of its version."""
    return {
        camel_case(f.name): _to_json(f.kind, getattr(message, f.name), version)
        for f in message.SCHEMA.fields
        if f.present(version)
    }


def _to_json(kind: Kind, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        element = kind.element
        if isinstance(element, Kind):
            return [_to_json(element, item, version) for item in value]
        return [to_json(item, version) for item in value]
    if isinstance(kind, StructKind):
        return to_json(value, version)
    if kind in (BYTES, RECORDS):
        return base64.b64encode(value).decode()
    if kind is UUID:
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return value


def from_json(cls: type[Struct], tree: dict[str, Any], version: int) -> Any:
    """The message of a JSON as Kafka writes it: what is not there has its default, of records there is the size."""
    made = cls()
    for f in cls.SCHEMA.fields:
        name = camel_case(f.name)
        if f.kind is RECORDS and f"{name}SizeInBytes" in tree:
            made.records = bytes(tree[f"{name}SizeInBytes"])  # type: ignore[attr-defined]
        elif name in tree:
            setattr(made, f.name, _from_json(f.kind, tree[name], version))
    return made


def _from_json(kind: Kind, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        element = kind.element
        if isinstance(element, Kind):
            return [_from_json(element, item, version) for item in value]
        return [from_json(element, item, version) for item in value]
    if isinstance(kind, StructKind):
        return from_json(kind.struct, value, version)
    if kind in (BYTES, RECORDS):
        return base64.b64decode(value)
    if kind is UUID:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(value + "=="))
    return value
