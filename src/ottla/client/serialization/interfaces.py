"""What a serializer and a deserializer are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from ottla.client.errors import SerializationError
from ottla.records.headers import Headers

T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class Serializer(Protocol[T_contra]):
    """Makes bytes of keys or values. `configure` and `close` may be left out."""

    def serialize(self, topic: str, headers: Headers, data: T_contra | None, /) -> bytes | None:
        """The bytes of a key or value, None for null. Raises SerializationError where it cannot be."""


@runtime_checkable
class Deserializer(Protocol[T_co]):
    """Makes keys or values of bytes. `configure` and `close` may be left out."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None, /) -> T_co | None:
        """The key or value, None for null. Raises SerializationError where the bytes cannot be one."""


class Configured:
    """What all serializers and deserializers here can do, and mostly need not: be configured and closed."""

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Take what concerns this one from the settings of its client, by Kafka's names."""

    def close(self) -> None:
        """Give up what is held; nothing here."""


def refuse(what: object, data: object, expected: str) -> SerializationError:
    """The error for data of a type that `what` does not serialize."""
    return SerializationError(f"{type(what).__name__} takes {expected}, not {type(data).__name__}: {shown(data)}")


def shown(data: object) -> str:
    """The data for a message, not too long."""
    text = repr(data)
    return text if len(text) <= 40 else text[:37] + "..."
