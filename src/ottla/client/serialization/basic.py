"""Serializers for bytes and text, and functions as serializers."""

from __future__ import annotations

import codecs
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ottla.client.errors import SerializationError
from ottla.client.serialization.interfaces import Configured, refuse, shown
from ottla.records.headers import Headers

_UTF_16 = "utf-16"
_UTF_32 = "utf-32"
#: Encodings without a fixed byte order, as Java writes them: byte order mark, and encoding of the text.
_OPEN = {_UTF_16: (BOM_UTF16_BE, "utf-16-be"), _UTF_32: (b"", "utf-32-be")}
_MARKS = {
    _UTF_16: ((BOM_UTF16_BE, "utf-16-be"), (BOM_UTF16_LE, "utf-16-le")),
    _UTF_32: ((BOM_UTF32_BE, "utf-32-be"), (BOM_UTF32_LE, "utf-32-le")),
}


class TextEncoding:
    """A text encoding by one of Python's or Java's names. Raises SerializationError for an unknown name.

    UTF-16 and UTF-32, whose byte order is not fixed, are written and read as in Java: big-endian unless a byte order
    mark says otherwise, with a mark before UTF-16.
    """

    __slots__ = ("_before", "_marks", "_text_encoding", "name")

    def __init__(self, name: object, setting: str | None = None) -> None:
        text = f"{setting}={name}" if setting is not None else f"encoding {name!r}"
        try:
            if not isinstance(name, str):
                raise LookupError
            "".encode(name)  # raises for codecs that are not text encodings
            python_name = codecs.lookup(name).name
        except (LookupError, ValueError):
            raise SerializationError(
                f"{text}: there is no encoding of text called {name!r}; give one of Python's or Java's names, as UTF-8"
            ) from None
        self.name = name
        self._before, self._text_encoding = _OPEN.get(python_name, (b"", python_name))
        self._marks = _MARKS.get(python_name, ())

    def encode(self, text: str) -> bytes:
        """Encode the text. Raises SerializationError for a character that the encoding lacks."""
        try:
            return self._before + text.encode(self._text_encoding) if text or not self._before else b""
        except UnicodeEncodeError as error:
            lacking = text[error.start : error.start + 1]
            raise SerializationError(
                f"{lacking!r} at position {error.start} of a text cannot be written in {self.name} ({error.reason}); "
                "use UTF-8, or other text"
            ) from None

    def decode(self, data: bytes) -> str:
        """Decode the text; invalid bytes become U+FFFD."""
        for mark, encoding in self._marks:
            if data.startswith(mark):
                return data[len(mark) :].decode(encoding, "replace")
        return data.decode(self._text_encoding, "replace")


class BytesSerializer(Configured):
    """Passes bytes through; `bytearray` and `memoryview` are copied."""

    def serialize(self, topic: str, headers: Headers, data: bytes | bytearray | memoryview | None) -> bytes | None:
        """Return the bytes."""
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        raise SerializationError(
            f"keys and values are bytes where no serializer is set, not {type(data).__name__}: {shown(data)}; encode "
            "them, or set key.serializer and value.serializer, to StringSerializer for text"
        )


class BytesDeserializer(Configured):
    """Passes bytes through."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> bytes | None:
        """Return the bytes."""
        return data


class ByteBufferSerializer(BytesSerializer):
    """Any buffer, copied to bytes."""


class ByteBufferDeserializer(Configured):
    """Returns a memoryview of the bytes."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> memoryview | None:
        """Return the view."""
        return None if data is None else memoryview(data)


class _Text(Configured):
    """Base of all serializers of text: the encoding, UTF-8 by default."""

    #: Suffix of the setting names for the encoding.
    _encoding_settings: ClassVar[str]

    def __init__(self, encoding: str = "UTF-8") -> None:
        self._encoding = TextEncoding(encoding)

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Set the encoding: of keys or values, else of both, else unchanged. SerializationError for an unknown one."""
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
        """Encode the text. Raises SerializationError for a character that the encoding lacks (Java writes a `?`)."""
        if data is None:
            return None
        if not isinstance(data, str):
            raise refuse(self, data, "text")
        return self._encoding.encode(data)


class StringDeserializer(_Text):
    """Text, in `key.deserializer.encoding` or `value.deserializer.encoding`, else `deserializer.encoding`, or UTF-8."""

    _encoding_settings = "deserializer.encoding"

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> str | None:
        """Decode the text; invalid bytes become U+FFFD, as in Java."""
        return None if data is None else self._encoding.decode(data)


class CallableSerializer(Configured):
    """A function of one argument as a serializer; not called for None."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        """Return the function's result."""
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
    """A function of one argument as a deserializer; not called for None."""

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self.function = function

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Return the function's result."""
        return None if data is None else self.function(data)
