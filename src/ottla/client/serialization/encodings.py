"""Encodings of text by Python's names and by Java's, which write some of them in another way."""

from __future__ import annotations

import codecs
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE

from ottla.client.errors import SerializationError

_UTF_16 = "utf-16"
_UTF_32 = "utf-32"
#: How Java writes those that leave the order of bytes open: the mark before the text, and the encoding of the text.
_OPEN = {_UTF_16: (BOM_UTF16_BE, "utf-16-be"), _UTF_32: (b"", "utf-32-be")}
_MARKS = {
    _UTF_16: ((BOM_UTF16_BE, "utf-16-be"), (BOM_UTF16_LE, "utf-16-le")),
    _UTF_32: ((BOM_UTF32_BE, "utf-32-be"), (BOM_UTF32_LE, "utf-32-le")),
}


class TextEncoding:
    """One encoding. SerializationError that names it where there is none of that name.

    UTF-16 and UTF-32, which leave the order of bytes open, are written and read as Java does: big-endian unless a mark
    says otherwise, with a mark before UTF-16.
    """

    __slots__ = ("_before", "_marks", "_text_encoding", "name")

    def __init__(self, name: object, setting: str | None = None) -> None:
        told = f"{setting}={name}" if setting is not None else f"encoding {name!r}"
        try:
            if not isinstance(name, str):
                raise LookupError
            "".encode(name)  # codecs that are not of text say so here
            python_name = codecs.lookup(name).name
        except (LookupError, ValueError):
            raise SerializationError(
                f"{told}: there is no encoding of text called {name!r}; give one of Python's or Java's names, as UTF-8"
            ) from None
        self.name = name
        self._before, self._text_encoding = _OPEN.get(python_name, (b"", python_name))
        self._marks = _MARKS.get(python_name, ())

    def encode(self, text: str) -> bytes:
        """The bytes. SerializationError for a character that the encoding lacks."""
        try:
            return self._before + text.encode(self._text_encoding) if text or not self._before else b""
        except UnicodeEncodeError as error:
            lacking = text[error.start : error.start + 1]
            raise SerializationError(
                f"{lacking!r} at position {error.start} of a text cannot be written in {self.name} ({error.reason}); "
                "use UTF-8, or other text"
            ) from None

    def decode(self, data: bytes) -> str:
        """The text, with U+FFFD for what is not text in this encoding."""
        for mark, encoding in self._marks:
            if data.startswith(mark):
                return data[len(mark) :].decode(encoding, "replace")
        return data.decode(self._text_encoding, "replace")
