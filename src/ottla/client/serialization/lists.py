"""Lists, in the format of Java's ListSerializer (KIP-466)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from ottla.client.errors import SerializationError
from ottla.client.serialization import scalars
from ottla.client.serialization.interfaces import Configured, Deserializer, Serializer, refuse
from ottla.records.headers import Headers

_INT = struct.Struct(">i")
_FIXED_SIZES: dict[type, int] = {
    scalars.ShortSerializer: 2, scalars.IntegerSerializer: 4, scalars.FloatSerializer: 4, scalars.LongSerializer: 8,
    scalars.DoubleSerializer: 8, scalars.UUIDSerializer: 36,
    scalars.ShortDeserializer: 2, scalars.IntegerDeserializer: 4, scalars.FloatDeserializer: 4,
    scalars.LongDeserializer: 8, scalars.DoubleDeserializer: 8, scalars.UUIDDeserializer: 36,
}  # fmt: skip
_CONSTANT_SIZE, _VARIABLE_SIZE = 0, 1
_NULL_SIZE = -1


class ListSerializer(Configured):
    """Lists of elements for an inner serializer; as it needs that one, it is given as an object."""

    def __init__(self, inner: Serializer[Any]) -> None:
        self.inner = inner

    def serialize(self, topic: str, headers: Headers, data: Iterable[Any] | None) -> bytes | None:
        """Fixed-size elements: 0, the indices of nulls, count, elements; else 1, count, each element after its size."""
        if data is None:
            return None
        if isinstance(data, str | bytes) or not isinstance(data, Iterable):
            raise refuse(self, data, "lists")
        elements = list(data)
        encoded = [None if element is None else self.inner.serialize(topic, headers, element) for element in elements]
        if type(self.inner) in _FIXED_SIZES:
            nulls = [index for index, element in enumerate(encoded) if element is None]
            head = struct.pack(f">bi{len(nulls)}ii", _CONSTANT_SIZE, len(nulls), *nulls, len(encoded))
            return head + b"".join(element for element in encoded if element is not None)
        parts = [struct.pack(">bi", _VARIABLE_SIZE, len(encoded))]
        for element in encoded:
            parts.append(_INT.pack(_NULL_SIZE if element is None else len(element)))
            parts.append(element or b"")
        return b"".join(parts)


class ListDeserializer(Configured):
    """Lists of elements of an inner deserializer; as it needs that one, it is given as an object."""

    def __init__(self, inner: Deserializer[Any]) -> None:
        self.inner = inner

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> list[Any] | None:
        """Return the list."""
        if data is None:
            return None
        try:
            return self._list(topic, headers, bytes(data))
        except (struct.error, IndexError):
            raise SerializationError(f"ListDeserializer: the {len(data)} bytes are not those of a list") from None

    def _list(self, topic: str, headers: Headers, data: bytes) -> list[Any]:
        strategy, at, nulls = data[0], 1, set[int]()
        fixed_size = _FIXED_SIZES.get(type(self.inner))
        if strategy == _CONSTANT_SIZE and fixed_size is not None:
            (null_count,) = _INT.unpack_from(data, at)
            nulls = set(struct.unpack_from(f">{null_count}i", data, at + 4))
            at += 4 + 4 * null_count
        elif strategy != _VARIABLE_SIZE:
            raise SerializationError(f"ListDeserializer: elements are not those of {type(self.inner).__name__}")
        (count,) = _INT.unpack_from(data, at)
        at += _INT.size
        elements: list[Any] = []
        for index in range(count):
            if strategy == _CONSTANT_SIZE:
                size = _NULL_SIZE if index in nulls else fixed_size or 0
            else:
                (size,) = _INT.unpack_from(data, at)
                at += _INT.size
            if size == _NULL_SIZE:
                elements.append(None)
                continue
            if size < 0 or at + size > len(data):
                raise IndexError(at)
            elements.append(self.inner.deserialize(topic, headers, data[at : at + size]))
            at += size
        return elements
