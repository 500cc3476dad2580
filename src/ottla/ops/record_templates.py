"""Templates by which records are shown, with the letters and escapes of kcat's -f."""

from __future__ import annotations

import json
import re
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
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "0": "\0"}
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)


def template(text: str, null: bytes, key_format: TextFormat, value_format: TextFormat) -> Show:
    """Function that shows a record as `text` says, with `null` for a key, value or header that is null.

    Keys and values are their bytes with the formats `auto` and `text`. Raises InvalidArgumentError that names a letter
    or an escape which there is not.
    """
    texts_and_letters = re.split("%(.?)", text, flags=re.DOTALL)
    pieces = [
        _field(each, null, key_format, value_format) if at % 2 else separator(each)
        for at, each in enumerate(texts_and_letters)
    ]
    return lambda record: b"".join([each if isinstance(each, bytes) else each(record) for each in pieces])


def separator(text: str) -> bytes:
    r"""Bytes of a text with escapes: `\n`, `\t`, `\r`, `\0`, `\\`, `\x1f`. Raises InvalidArgumentError."""
    return _ESCAPE.sub(_unescaped, text).encode(errors="surrogateescape")


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > 1:
        return bytes.fromhex(escape[1:]).decode(errors="surrogateescape")
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    raise InvalidArgumentError(rf"\{escape} is not an escape; there are \n, \t, \r, \0, \x1f for a byte, and \\")


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
    return text.encode(errors="backslashreplace")
