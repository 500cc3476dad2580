"""What the compiled modules take from C, for their sources where they run as plain Python.

`cython` itself may be missing then: a source imports this module in its place.
"""

from __future__ import annotations

compiled = False
"""Of a source that is compiled, Cython makes this True."""


def copy_bytes(into: bytearray, at: int, data: bytes, start: int, size: int) -> None:
    """Copy `size` bytes of `data` from `start` on to place `at`; the caller has seen that both have them."""
    into[at : at + size] = data[start : start + size]
