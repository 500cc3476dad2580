"""What the compiled modules take from C, for their sources where they run as plain Python.

`cython` itself may be missing then: a source imports this module in its place.
"""

from __future__ import annotations

from typing import Any

compiled = False
"""Of a source that is compiled, Cython makes this True."""


def copy_bytes(into: bytearray, at: int, data: bytes, start: int, size: int) -> None:
    """Copy `size` bytes of `data` from `start` on to place `at`; the caller has seen that both have them."""
    into[at : at + size] = data[start : start + size]


def copy_octets(into: bytearray, at: int, data: Any, start: int, size: int) -> None:
    """As `copy_bytes`, out of any buffer of octets."""
    into[at : at + size] = data[start : start + size]


def octets_of(data: Any, at: int, size: int) -> bytes:
    """`size` bytes of `data` from place `at` on; the caller has seen that it has them."""
    return bytes(data[at : at + size])


def resize(data: bytearray, size: int) -> None:
    """Make room for bytes that are written next."""
    data.extend(bytes(size - len(data)))


def tuple_of(kind: Any, fields: tuple[Any, ...]) -> Any:
    """A tuple of a named kind with these fields."""
    return tuple.__new__(kind, fields)
