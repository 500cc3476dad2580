"""Text encodings by Python's and Java's names; Java writes some of them differently."""

from __future__ import annotations

import codecs
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE

from ottla.client.errors import SerializationError

_UTF_16 = "utf-16"
_UTF_32 = "utf-32"
#: Encodings without a fixed byte order, as Java writes them: byte order mark, and encoding of the text.
_OPEN = {_UTF_16: (BOM_UTF16_BE, "utf-16-be"), _UTF_32: (b"", "utf-32-be")}
_MARKS = {
    _UTF_16: ((BOM_UTF16_BE, "utf-16-be"), (BOM_UTF16_LE, "utf-16-le")),
    _UTF_32: ((BOM_UTF32_BE, "utf-32-be"), (BOM_UTF32_LE, "utf-32-le")),
}


class TextEncoding:
    """One encoding. Raises SerializationError for an unknown name.

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
