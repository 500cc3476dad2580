"""Functions that the compiled modules take from C, for their sources where they run as plain Python.

`cython` itself may be missing then: a source imports this module instead.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Any

_INT = Struct("=i")
_LONG = Struct("=q")
_DOUBLE = Struct("=d")
_NOT_PLAIN = re.compile(rb'["\\\x00-\x1f]')

compiled = False
"""Of a source that is compiled, Cython makes this True."""


def copy_bytes(into: bytearray, at: int, data: bytes, start: int, size: int) -> None:
    """Copy `size` bytes of `data` from `start` on to place `at`; the caller has seen that both have them."""
    into[at : at + size] = data[start : start + size]


def copy_octets(into: bytearray, at: int, data: Any, start: int, size: int) -> None:
    """As `copy_bytes`, out of any buffer of octets."""
    into[at : at + size] = data[start : start + size]


def octets_from(data: Any) -> Any:
    """The data as a pointer, whose size is unknown when compiled."""
    return data


def octets_of(data: Any, at: int, size: int) -> bytes:
    """`size` bytes of `data` from place `at` on; the caller has seen that it has them."""
    return bytes(data[at : at + size])


def text_of(data: Any, at: int, size: int) -> str:
    """The same as text; what is no UTF-8 is shown with replacements."""
    return octets_of(data, at, size).decode("utf-8", "replace")


def resize(buffer: bytearray, size: int) -> None:
    """Extend the buffer; the added bytes are undefined."""
    buffer.extend(bytes(size - len(buffer)))


def put_int(into: bytearray, index: int, number: int) -> None:
    """Set one of numbers of 32 bits."""
    _INT.pack_into(into, 4 * index, number)


def put_long(into: bytearray, index: int, number: int) -> None:
    """Set one of numbers of 64 bits."""
    _LONG.pack_into(into, 8 * index, number)


def record_of(kind: Any, is_plain: bool, *fields: Any) -> Any:
    """A tuple of a named kind with these fields; plain where they are nothing but bytes, strings and numbers."""
    return tuple.__new__(kind, fields)


def put_double(into: bytearray, index: int, number: float) -> None:
    """Set one of numbers with a fraction, of 64 bits."""
    _DOUBLE.pack_into(into, 8 * index, number)


def double_of(data: Any, at: int, size: int) -> float:
    """The number that characters say; infinite where it is too large."""
    return float(bytes(data[at : at + size]))


def text_end(data: Any, at: int, end: int) -> int:
    """The place of the first quote, backslash or control character from `at` on; `end` where there is none."""
    found = _NOT_PLAIN.search(bytes(data[at:end]))
    return end if found is None else at + found.start()


def is_same(word: bytes, data: Any, at: int, size: int) -> bool:
    """Whether `size` octets of `data` from place `at` on are the word."""
    return bytes(data[at : at + size]) == word
