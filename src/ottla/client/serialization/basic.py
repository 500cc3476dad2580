"""Bytes and text as they are, and functions as serializers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ottla.client.errors import SerializationError
from ottla.client.serialization.encodings import TextEncoding
from ottla.client.serialization.interfaces import Configured, refuse, shown
from ottla.records.headers import Headers


class BytesSerializer(Configured):
    """Bytes as they are; `bytearray` and `memoryview` are copied."""

    def serialize(self, topic: str, headers: Headers, data: bytes | bytearray | memoryview | None) -> bytes | None:
        """The bytes."""
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        raise SerializationError(
            f"keys and values are bytes where no serializer is set, not {type(data).__name__}: {shown(data)}; encode "
            "them, or set key.serializer and value.serializer, to StringSerializer for text"
        )


class BytesDeserializer(Configured):
    """Bytes as they are."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> bytes | None:
        """The bytes."""
        return data


class ByteBufferSerializer(BytesSerializer):
    """Any buffer, as bytes."""


class ByteBufferDeserializer(Configured):
    """A view of the bytes."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> memoryview | None:
        """The view."""
        return None if data is None else memoryview(data)


class _Text(Configured):
    """Whatever is written as text: its encoding, UTF-8 unless set otherwise."""

    #: The end of the names of the settings that tell the encoding.
    _encoding_settings: ClassVar[str]

    def __init__(self, encoding: str = "UTF-8") -> None:
        self._encoding = TextEncoding(encoding)

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Take the encoding: of keys or values, else of both, else it stays. SerializationError for an unknown one."""
        settings = self._encoding_settings
        for name in (f"{'key' if is_key else 'value'}.{settings}", settings):
            encoding = config.get(name)
            if encoding is not None:
                self._encoding = TextEncoding(encoding, name)
                return


class StringSerializer(_Text):
    """Text, in `key.serializer.encoding` or `value.serializer.encoding`, else `serializer.encoding`, else UTF-8."""

    _encoding_settings = "serializer.encoding"

    def serialize(self, topic: str, headers: Headers, data: str | None) -> bytes | None:
        """The text's bytes. A character that the encoding lacks is a SerializationError (Java writes a `?`)."""
        if data is None:
            return None
        if not isinstance(data, str):
            raise refuse(self, data, "text")
        return self._encoding.encode(data)


class StringDeserializer(_Text):
    """Text, in `key.deserializer.encoding` or `value.deserializer.encoding`, else `deserializer.encoding`, or UTF-8."""

    _encoding_settings = "deserializer.encoding"

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> str | None:
        """The text; what is not text in that encoding becomes U+FFFD, as in Java."""
        return None if data is None else self._encoding.decode(data)


class CallableSerializer(Configured):
    """A function of one argument as a serializer; it is not asked for None."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        """What the function gives."""
        if data is None:
            return None
        made = self.function(data)
        if made is None or type(made) is bytes:
            return made
        if isinstance(made, bytes | bytearray | memoryview):
            return bytes(made)
        name = getattr(self.function, "__qualname__", repr(self.function))
        raise SerializationError(f"the serializer {name} gave {type(made).__name__} and not bytes: {shown(made)}")


class CallableDeserializer(Configured):
    """A function of one argument as a deserializer; it is not asked for None."""

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self.function = function

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """What the function gives."""
        return None if data is None else self.function(data)
