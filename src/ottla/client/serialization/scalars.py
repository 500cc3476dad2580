"""Numbers, booleans, UUIDs and void, in the formats of Java's serializers.

Source: Apache Kafka 3.9, `org.apache.kafka.common.serialization`; the golden tests compare the bytes.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, SupportsFloat, SupportsIndex
from uuid import UUID

from ottla.client.errors import SerializationError
from ottla.client.serialization.basic import StringDeserializer, StringSerializer
from ottla.client.serialization.interfaces import Configured, refuse, shown
from ottla.records.headers import Headers


class _NumberSerializer(Configured):
    _format: ClassVar[struct.Struct]
    _expected: ClassVar[str]
    #: Python's numbers, and compatible ones of other packages.
    _types: ClassVar[type] = SupportsIndex

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        """Return the number's bytes, big-endian."""
        if data is None:
            return None
        if isinstance(data, bool) or not isinstance(data, self._types):
            raise refuse(self, data, self._expected)
        try:
            return self._format.pack(data)
        except (struct.error, OverflowError):
            raise SerializationError(
                f"{type(self).__name__} takes {self._expected}; {shown(data)} is out of range"
            ) from None


class _NumberDeserializer(Configured):
    _format: ClassVar[struct.Struct]

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Return the number."""
        if data is None:
            return None
        if len(data) != self._format.size:
            raise SerializationError(
                f"{type(self).__name__} needs {self._format.size} bytes, not {len(data)}; were these written otherwise?"
            )
        return self._format.unpack(data)[0]


_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_FLOAT, _DOUBLE = struct.Struct(">f"), struct.Struct(">d")


class ShortSerializer(_NumberSerializer):
    """Integers in 2 bytes."""

    _format, _expected = _SHORT, "whole numbers from -32768 to 32767"


class ShortDeserializer(_NumberDeserializer):
    """Integers in 2 bytes."""

    _format = _SHORT


class IntegerSerializer(_NumberSerializer):
    """Integers in 4 bytes."""

    _format, _expected = _INT, "whole numbers from -2147483648 to 2147483647"


class IntegerDeserializer(_NumberDeserializer):
    """Integers in 4 bytes."""

    _format = _INT


class LongSerializer(_NumberSerializer):
    """Integers in 8 bytes."""

    _format, _expected = _LONG, "whole numbers from -9223372036854775808 to 9223372036854775807"


class LongDeserializer(_NumberDeserializer):
    """Integers in 8 bytes."""

    _format = _LONG


class FloatSerializer(_NumberSerializer):
    """Floats in 4 bytes (single precision), rounded."""

    _format, _expected, _types = _FLOAT, "numbers up to 3.4e38", SupportsFloat


class FloatDeserializer(_NumberDeserializer):
    """Floats in 4 bytes (single precision)."""

    _format = _FLOAT


class DoubleSerializer(_NumberSerializer):
    """Floats in 8 bytes (double precision)."""

    _format, _expected, _types = _DOUBLE, "numbers", SupportsFloat


class DoubleDeserializer(_NumberDeserializer):
    """Floats in 8 bytes (double precision)."""

    _format = _DOUBLE


class BooleanSerializer(Configured):
    """Booleans in one byte."""

    def serialize(self, topic: str, headers: Headers, data: bool | None) -> bytes | None:
        """Return the byte 1 or 0."""
        if data is None:
            return None
        if not isinstance(data, bool):
            raise refuse(self, data, "True or False")
        return b"\x01" if data else b"\x00"


class BooleanDeserializer(Configured):
    """Booleans in one byte."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> bool | None:
        """Return True or False."""
        if data is None:
            return None
        if data not in (b"\x00", b"\x01"):
            raise SerializationError(f"BooleanDeserializer needs one byte, 0 or 1, not {bytes(data[:16])!r}")
        return data == b"\x01"


class UUIDSerializer(StringSerializer):
    """UUIDs as text; the encoding is configured as for `StringSerializer`."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        """Return the bytes of the text."""
        if data is not None and not isinstance(data, UUID):
            raise refuse(self, data, "uuid.UUID")
        return super().serialize(topic, headers, None if data is None else str(data))


class UUIDDeserializer(StringDeserializer):
    """UUIDs as text; the encoding is configured as for `StringDeserializer`."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Return the UUID."""
        text = super().deserialize(topic, headers, data)
        try:
            return None if text is None else UUID(text)
        except ValueError:
            raise SerializationError(f"UUIDDeserializer: {text!r:.60} is not the text of a UUID") from None


class VoidSerializer(Configured):
    """Serializes anything to null."""

    def serialize(self, topic: str, headers: Headers, data: object) -> None:
        """Return None."""


class VoidDeserializer(Configured):
    """Deserializes null only; bytes are an error."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> None:
        """Return None."""
        if data is not None:
            raise SerializationError(f"VoidDeserializer takes no data, and there are {len(data)} bytes")
