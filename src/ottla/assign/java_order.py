"""The orders in which Java compares strings and walks its hash maps.

Members are sorted, and topics reach a member's assignment, in these orders; whoever wants the same bytes as a Java
leader has to follow them. Source: the documentation of Java's `String.compareTo`, `String.hashCode` and `HashMap`.
"""

from __future__ import annotations

from collections.abc import Iterable

_SMALLEST_TABLE = 16
_WORD = 0xFFFFFFFF


def text_order(text: str) -> bytes:
    """A key that sorts strings as Java does: by UTF-16 units, where characters beyond U+FFFF come before U+E000."""
    return text.encode("utf-16-be", "surrogatepass")


def string_hash(text: str) -> int:
    """Java's `String.hashCode`, as an unsigned 32-bit number."""
    if text.isascii():
        units: Iterable[int] = text.encode("ascii")
    else:
        encoded = text_order(text)
        units = (high << 8 | low for high, low in zip(encoded[::2], encoded[1::2], strict=True))
    value = 0
    for unit in units:
        value = (31 * value + unit) & _WORD
    return value


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """The keys as a `HashMap` or `HashSet` gives them that was made empty and filled in the order of `keys`.

    Bins of eight keys and more, where Java turns to trees, take names chosen for it; they are not followed here.
    """
    distinct = list(dict.fromkeys(keys))
    table = _SMALLEST_TABLE
    while len(distinct) * 4 > table * 3:
        table *= 2

    def slot(key: str) -> int:
        value = string_hash(key)
        return (value ^ value >> 16) & (table - 1)

    return sorted(distinct, key=slot)
