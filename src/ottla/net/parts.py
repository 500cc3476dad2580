"""A part of a response that is made while it is sent."""

from __future__ import annotations

from collections.abc import Callable


class MadePart:
    """Bytes of known length that a thread makes piece by piece, so that they are never all in memory.

    `make()` returns the next piece, at least one byte while any are left, and `length` bytes in all; it may block and
    raise. `release` is called once, on the loop: when everything was made, or when the part is dropped, but never
    while a thread is in `make`.
    """

    __slots__ = ("_at_work", "_dropped", "_release", "length", "make")

    def __init__(self, length: int, make: Callable[[], bytes], release: Callable[[], None]) -> None:
        #: Bytes not made yet.
        self.length = length
        self.make = make
        self._release = release
        self._at_work = False
        self._dropped = False

    def begin(self) -> None:
        """Note that a thread is about to call `make`."""
        self._at_work = True

    def end(self, made: int) -> None:
        """Note that `make` returned this many bytes."""
        self._at_work = False
        self.length -= made
        if self.length <= 0 or self._dropped:
            self._release()

    def release(self) -> None:
        """Drop the part."""
        if self._at_work:
            self._dropped = True
        elif self.length > 0:
            self.length = 0
            self._release()
