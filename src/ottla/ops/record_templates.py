"""Templates by which records are shown, with the letters and escapes of kcat's -f."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.client.errors import InvalidArgumentError
from ottla.inspection.texts import TextFormat, field_of
from ottla.records.consumed import ConsumerRecord

Bytes = bytes | None
Show = Callable[[ConsumerRecord[Bytes, Bytes]], bytes]

LETTERS: Final[Mapping[str, str]] = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "T": "timestamp in milliseconds",
    "k": "key",
    "s": "value",
    "h": "headers",
    "K": "key's size, -1 for null",
    "S": "value's size, -1 for null",
}
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_HEX_DIGITS: Final = 2


def template(text: str, null: bytes, key_format: TextFormat, value_format: TextFormat) -> Show:
    """Function that shows a record as `text` says, with `null` for a key, value or header that is null.

    Keys and values are their bytes with the formats `auto` and `text`. Raises InvalidArgumentError that names a letter
    or an escape which there is not.
    """
    pieces: list[bytes | Show] = []
    at = 0
    while at < len(text):
        char, at = text[at], at + 1
        if char == "%":
            pieces.append(_field(text[at : at + 1], null, key_format, value_format))
            at += 1
        elif char == "\\":
            piece, at = unescaped(text, at)
            pieces.append(piece)
        else:
            pieces.append(char.encode(errors="surrogateescape"))
    return lambda record: b"".join([each if isinstance(each, bytes) else each(record) for each in pieces])


def unescaped(text: str, at: int) -> tuple[bytes, int]:
    r"""Bytes of the escape after the backslash before `at` (`\n`, `\t`, `\r`, `\0`, `\\`, `\x1f`), and its end."""
    letter = text[at : at + 1]
    if letter in _ESCAPES:
        return _ESCAPES[letter], at + 1
    end = at + 1 + _HEX_DIGITS
    digits = text[at + 1 : end]
    if letter == "x" and len(digits) == _HEX_DIGITS and all(each in "0123456789abcdefABCDEF" for each in digits):
        return bytes.fromhex(digits), end
    raise InvalidArgumentError(rf"\{letter} is not an escape; there are \n, \t, \r, \0, \x1f for a byte, and \\")


def separator(text: str) -> bytes:
    r"""Bytes of a text with escapes (`\t`). Raises InvalidArgumentError."""
    found, at = b"", 0
    while at < len(text):
        char, at = text[at], at + 1
        piece = char.encode(errors="surrogateescape")
        if char == "\\":
            piece, at = unescaped(text, at)
        found += piece
    return found


def _field(letter: str, null: bytes, key_format: TextFormat, value_format: TextFormat) -> bytes | Show:
    def shown(data: Bytes, wanted: TextFormat) -> bytes:
        return null if data is None else as_text(data, wanted)

    fields: dict[str, bytes | Show] = {
        "%": b"%",
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp,
        "k": lambda record: shown(record.key, key_format),
        "s": lambda record: shown(record.value, value_format),
        "h": lambda record: b",".join(
            [name.encode() + b"=" + (null if value is None else value) for name, value in record.headers]
        ),
        "K": lambda record: b"%d" % record.serialized_key_size,
        "S": lambda record: b"%d" % record.serialized_value_size,
    }
    if letter in fields:
        return fields[letter]
    there_are = ", ".join(f"%{each} ({meaning})" for each, meaning in LETTERS.items())
    raise InvalidArgumentError(f"%{letter} is not a field of a record; there are {there_are}, and %%")


def as_text(data: bytes, wanted: TextFormat) -> bytes:
    """Bytes in the format: themselves with `auto` and `text`; what is not in the format is hexadecimal."""
    if wanted in (TextFormat.AUTO, TextFormat.TEXT):
        return data
    value: Any = field_of("", data, wanted)[1]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace")
