"""The formats of `ottla log dump`, and keys and values as text in them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

_INTEGER_BYTES: Final = (1, 2, 4, 8)


class TextFormat(StrEnum):
    """How bytes are shown."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    INTEGER = "integer"


class Decoder(StrEnum):
    """How keys and values of a topic's records are decoded."""

    AUTO = "auto"
    NONE = "none"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"
    REBALANCES = "rebalances"


class PlainText(bytes):
    """A text that is not JSON, even where it looks so."""


def field_of(name: str, data: bytes | None, wanted: TextFormat) -> tuple[str, Any]:
    """Name and value of the field that shows `data`: `NAME_hex` if it is not in the requested format."""
    if data is None:
        return name, None
    if wanted is TextFormat.BASE64:
        return f"{name}_base64", base64.b64encode(data).decode()
    if wanted is TextFormat.INTEGER and len(data) in _INTEGER_BYTES:
        return name, int.from_bytes(data, "big", signed=True)
    if wanted in (TextFormat.AUTO, TextFormat.TEXT):
        text = _text(data, printable=wanted is TextFormat.AUTO)
        if text is not None:
            return name, text
    if wanted is TextFormat.JSON:
        try:
            if isinstance(data, PlainText):
                raise ValueError("a text")
            return name, json.loads(data, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            text = _text(data, printable=not isinstance(data, PlainText))
            if text is not None:
                return name, text
    return f"{name}_hex", data.hex()


def header_rows(headers: Iterable[tuple[str, bytes | None]]) -> list[dict[str, Any]]:
    """Rows of a record's headers: `key`, and `value` or `value_hex`."""
    return [dict([("key", name), field_of("value", value, TextFormat.AUTO)]) for name, value in headers]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _text(data: bytes, printable: bool) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if printable and not all(character.isprintable() or character in "\t\r\n" for character in text):
        return None
    return text
