"""Requests with very many elements, of every API and version that has arrays, made from the declarations."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from ottla.broker.served import SERVED
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import encode
from ottla.wire.framing import RequestHeader, encode_request_frame
from ottla.wire.schema import ArrayKind, Field, Kind, Message, Struct, StructKind

#: Where the elements are: in the first array of the request, or in an array of one element of that.
OUTER, INNER = "outer", "inner"


def shapes() -> Iterator[tuple[int, int, str]]:
    """API key, version and shape: the first and last version of each served API, and its first flexible one."""
    for key, served in SERVED.items():
        versions = {served.min_version, served.max_version, min(API[key].flexible_since, served.max_version)}
        for version in sorted(versions):
            first = first_array(API[key].request, version)
            if first is None:
                continue
            yield key, version, OUTER
            kind = first.kind
            assert isinstance(kind, ArrayKind)
            if not isinstance(kind.element, Kind) and first_array(kind.element, version) is not None:
                yield key, version, INNER


def first_array(cls: type[Struct], version: int) -> Field | None:
    """The first array of a message or struct in a version."""
    for field in cls.SCHEMA.fields:
        if field.present(version) and field.tag is None and isinstance(field.kind, ArrayKind):
            return field
    return None


class Maker:
    """Makes requests with `count` different elements; every name begins with `name`."""

    def __init__(self, version: int, count: int, name: str, *, same: bool = False) -> None:
        self._version = version
        self._count = count
        self._name = name
        self._same = same
        self._number = 0

    def request(self, key: int, shape: str) -> bytes:
        """A whole frame, its size included."""
        cls = API[key].request
        message = self._struct(cls, (self._count,) if shape == OUTER else (1, self._count))
        if key == ApiKey.FETCH:
            message.max_wait_ms = 10
        header = RequestHeader(key, self._version, 7, "large")
        assert isinstance(message, Message)
        return encode_request_frame(header, encode(message, self._version))

    def _struct(self, cls: type[Struct], counts: tuple[int, ...]) -> Any:
        values: dict[str, Any] = {}
        array = first_array(cls, self._version)
        for field in cls.SCHEMA.fields:
            if not field.present(self._version):
                continue
            if field is array:
                values[field.name] = self._array(field, counts)
            elif isinstance(field.kind, ArrayKind):
                values[field.name] = [] if not field.nullable(self._version) else None
            elif field.tag is None:
                values[field.name] = self._value(field.kind)
        return cls(**values)

    def _array(self, field: Field, counts: tuple[int, ...]) -> list[Any]:
        assert isinstance(field.kind, ArrayKind)
        element = field.kind.element
        count, rest = (counts[0], counts[1:]) if counts else (0, ())
        made = []
        for _ in range(count):
            self._number += not self._same
            made.append(self._value(element) if isinstance(element, Kind) else self._struct(element, rest))
        return made

    def _value(self, kind: Kind) -> Any:
        if isinstance(kind, StructKind):
            return self._struct(kind.struct, ())
        if kind.name == "string":
            return f"{self._name}{self._number}"
        if kind.name == "uuid":
            return uuid.UUID(int=self._number + 1)
        if kind.name == "records":
            return b"\0" * 12
        if kind.name == "bool":
            return False
        if kind.name == "bytes":
            return b"b"
        if kind.name == "int32":
            return self._number
        return 2 if kind.name in ("int8", "int16") else kind.default
