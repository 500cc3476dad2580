"""Large requests of every API and version that the broker serves, made from the declarations.

A *path* leads from a request through arrays of structs to the array with many elements: `("topics", "partitions")`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.broker.served import SERVED
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import encode
from ottla.wire.framing import RequestHeader, encode_request_frame
from ottla.wire.schema import ArrayKind, Field, Kind, Message, Struct, StructKind

#: The longest string that Kafka takes, in bytes.
LONGEST_STRING = 32_767

ArrayPath = tuple[str, ...]

#: What these fields must hold so that a request is served and not refused for another reason.
VALUES: dict[str, Any] = {
    "acks": 1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "group_instance_id": None,
    "isolation_level": 1,
    "key_type": 0,
    "member_id": "",
    "num_partitions": 1,
    "protocol_type": "consumer",
    "rebalance_timeout_ms": 1_000,
    "replica_id": -1,
    "replication_factor": 1,
    "session_timeout_ms": 6_000,
    "timeout_ms": 5_000,
    "transactional_id": None,
}


def versions(key: int) -> list[int]:
    """The oldest and newest served version of an API, of those with and without flexible encoding."""
    first, last, _ = SERVED[key]
    flexible = API[key].flexible_since
    return sorted({first, last, *(v for v in (flexible - 1, flexible) if first <= v <= last)})


def array_paths(cls: type[Struct], version: int) -> Iterator[ArrayPath]:
    """The paths to all arrays of a message or struct in a version, outer ones first."""
    for field in cls.SCHEMA.fields:
        if not field.present(version):
            continue
        if isinstance(field.kind, ArrayKind):
            yield (field.name,)
            if not isinstance(field.kind.element, Kind):
                for rest in array_paths(field.kind.element, version):
                    yield (field.name, *rest)


def shapes() -> Iterator[tuple[int, int, ArrayPath]]:
    """API key, version and path, for all of them."""
    for key in SERVED:
        for version in versions(key):
            for path in array_paths(API[key].request, version):
                yield key, version, path


class RequestMaker:
    """Makes requests of one version. Every name begins with `name`, and strings are filled up to `string_bytes`.

    With `same` all elements name the same thing; otherwise each has a number of its own.
    """

    def __init__(
        self,
        version: int,
        name: str,
        *,
        same: bool = False,
        string_bytes: int = 0,
        data: bytes = b"b",
        records: bytes = b"\0" * 12,
    ) -> None:
        self._version = version
        self._name = name
        self._same = same
        self._string_bytes = string_bytes
        self._data = data
        self._records = records
        self._number = 0

    def frame(self, key: int, path: ArrayPath, counts: Sequence[int]) -> bytes:
        """A whole frame, its size included; the arrays along the path have this many elements."""
        cls = API[key].request
        message = self._struct(cls, path, counts)
        if key == ApiKey.FETCH:
            message.max_wait_ms = 10
        header = RequestHeader(key, self._version, 7, "large")
        assert isinstance(message, Message)
        return encode_request_frame(header, encode(message, self._version))

    def _struct(self, cls: type[Struct], path: ArrayPath, counts: Sequence[int]) -> Any:
        values: dict[str, Any] = {}
        for field in cls.SCHEMA.fields:
            if not field.present(self._version):
                continue
            if path and field.name == path[0]:
                values[field.name] = self._array(field, path[1:], counts)
            elif isinstance(field.kind, ArrayKind):
                values[field.name] = [] if not field.nullable(self._version) else None
            elif field.tag is None:
                values[field.name] = self._field(field)
        return cls(**values)

    def _array(self, field: Field, path: ArrayPath, counts: Sequence[int]) -> list[Any]:
        assert isinstance(field.kind, ArrayKind)
        element = field.kind.element
        made = []
        for _ in range(counts[0]):
            self._number += not self._same
            made.append(self._value(element) if isinstance(element, Kind) else self._struct(element, path, counts[1:]))
        return made

    def _field(self, field: Field) -> Any:
        value = VALUES.get(field.name, self)
        if value is self or (value is None and not field.nullable(self._version)):
            return self._value(field.kind)
        return value

    def _value(self, kind: Kind) -> Any:
        if isinstance(kind, StructKind):
            return self._struct(kind.struct, (), ())
        if kind.name == "string":
            return f"{self._name}{self._number}".ljust(self._string_bytes, "x")
        if kind.name == "uuid":
            return uuid.UUID(int=self._number + 1)
        if kind.name == "records":
            return self._records
        if kind.name == "bool":
            return False
        if kind.name == "bytes":
            return self._data
        if kind.name == "int32":
            return self._number
        return 2 if kind.name in ("int8", "int16") else kind.default
