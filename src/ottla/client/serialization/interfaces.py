"""Interfaces of serializers and deserializers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from ottla.client.errors import SerializationError
from ottla.records.headers import Headers

T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class Serializer(Protocol[T_contra]):
    """Converts keys or values to bytes. `configure` and `close` are optional."""

    def serialize(self, topic: str, headers: Headers, data: T_contra | None, /) -> bytes | None:
        """Return the bytes of a key or value, None for null. Raises SerializationError."""


@runtime_checkable
class Deserializer(Protocol[T_co]):
    """Converts bytes to keys or values. `configure` and `close` are optional."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None, /) -> T_co | None:
        """Return the key or value, None for null. Raises SerializationError for invalid bytes."""


class Configured:
    """Base of all serializers and deserializers here, with empty `configure` and `close`."""

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Read settings of the client, by Kafka's names; nothing here."""

    def close(self) -> None:
        """Release resources; nothing here."""


def refuse(what: object, data: object, expected: str) -> SerializationError:
    """Return the error for data of an unsupported type."""
    return SerializationError(f"{type(what).__name__} takes {expected}, not {type(data).__name__}: {shown(data)}")


def shown(data: object) -> str:
    """Format the data for a message, truncated."""
    text = repr(data)
    return text if len(text) <= 40 else text[:37] + "..."
