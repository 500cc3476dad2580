"""How findings name brokers and partitions."""

from __future__ import annotations

from collections.abc import Collection

MOST_NAMED = 5
"""Things that are named of many."""


def ids(several: Collection[object]) -> str:
    """The first few, with commas between: "1, 2 and 3 more"."""
    shown = ", ".join(str(each) for each in list(several)[:MOST_NAMED])
    more = len(several) - MOST_NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown


def named(noun: str, several: Collection[object], *, verb: bool = True) -> str:
    """The things with their noun, and "has" or "have": "broker 1 has", "brokers 1, 2 have"."""
    is_one = len(several) == 1
    text = f"{noun if is_one else f'{noun}s'} {ids(several)}"
    return f"{text} {'has' if is_one else 'have'}" if verb else text
