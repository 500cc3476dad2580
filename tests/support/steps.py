"""Generators that work in steps."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def result_of(steps: Generator[None, None, T]) -> T:
    """What such a generator returns at its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
