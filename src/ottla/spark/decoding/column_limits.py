"""Limits of a column: a short schema that names its types again and again can be deeper or larger than any column."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

#: Levels of a column: Arrow passes at most 64 between processes. A map takes two of them.
MAX_COLUMN_LEVELS = 60
#: Types within a column, a named one counted wherever it is used: 20 records can name 1,000,000 fields.
MAX_COLUMN_TYPES = 10_000

_Type = TypeVar("_Type", bound=Hashable)


def why_too_large(of: _Type, inner: Callable[[_Type], tuple[int, Iterable[_Type]]]) -> str:
    """Why a type is too large for a column; empty if it is not. Visits each type once.

    `inner` returns the levels that a type adds, and the types in it. A type within itself counts once.
    """
    known: dict[_Type, tuple[int, int]] = {}

    def extent(each: _Type, level: int) -> tuple[int, int]:
        """The levels and the types of a type that is at a level. Raises _TooDeep."""
        if level > MAX_COLUMN_LEVELS:
            raise _TooDeep
        if each not in known:
            known[each] = 0, 1
            own, types = inner(each)
            below = [extent(one, level + own) for one in types]
            levels = own + max((levels for levels, _ in below), default=0)
            known[each] = levels, 1 + sum(count for _, count in below)
        if level + known[each][0] > MAX_COLUMN_LEVELS:
            raise _TooDeep
        return known[each]

    try:
        _, count = extent(of, 0)
    except _TooDeep:
        return f"types are nested too deep: a column has at most {MAX_COLUMN_LEVELS} levels"
    if count > MAX_COLUMN_TYPES:
        return f"written out it has {count:,} types: a column has at most {MAX_COLUMN_TYPES:,}"
    return ""


class _TooDeep(Exception):
    pass
