"""The orders in which Java compares strings and walks its hash maps.

Members are sorted, and topics reach a member's assignment, in these orders; whoever wants the same bytes as a Java
leader has to follow them. Source: the documentation of Java's `String.compareTo`, `String.hashCode` and `HashMap`.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import mul

_SMALLEST_TABLE = 16
_WORD = 0xFFFFFFFF
#: Powers of 31, the factors of a string's units from the last one on; longer strings add to them.
_POWERS: list[int] = [1]


def text_order(text: str) -> bytes:
    """A key that sorts strings as Java does: by UTF-16 units, where characters beyond U+FFFF come before U+E000."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_texts(texts: Iterable[str]) -> list[str]:
    """The strings as Java sorts them."""
    listed = list(texts)
    return sorted(listed) if all(map(str.isascii, listed)) else sorted(listed, key=text_order)


def string_hash(text: str) -> int:
    """Java's `String.hashCode`, as an unsigned 32-bit number."""
    if text.isascii():
        units: bytes | list[int] = text.encode("ascii")
    else:
        encoded = text_order(text)
        units = [high << 8 | low for high, low in zip(encoded[::2], encoded[1::2], strict=True)]
    while len(_POWERS) < len(units):
        _POWERS.append(31 * _POWERS[-1] & _WORD)
    products: map[int] = map(mul, reversed(units), _POWERS)
    return sum(products) & _WORD


def partition_hash(topic_hash: int, partition: int) -> int:
    """`TopicPartition.hashCode` of a topic whose name has that hash, as an unsigned 32-bit number."""
    return (31 * (31 + partition) + topic_hash) & _WORD


def table_size(keys: int) -> int:
    """How many slots a `HashMap` has that was made empty and has held that many keys."""
    table = _SMALLEST_TABLE
    while keys * 4 > table * 3:
        table *= 2
    return table


def slot(hash_code: int, table: int) -> int:
    """Where a key of that hash is in a table of that many slots."""
    return (hash_code ^ hash_code >> 16) & (table - 1)


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """The keys as a `HashMap` or `HashSet` gives them that was made empty and filled in the order of `keys`.

    Bins of eight keys and more, where Java turns to trees, take names chosen for it; they are not followed here.
    """
    distinct = list(dict.fromkeys(keys))
    table = table_size(len(distinct))
    return sorted(distinct, key=lambda key: slot(string_hash(key), table))


def computed_map_order(keys: Iterable[str]) -> list[str]:
    """The keys as a `HashMap` gives them that was filled by `computeIfAbsent`.

    That puts a new key before those in its slot, and lets the table grow one key later.
    """
    newest_first = list(dict.fromkeys(keys))[::-1]
    table = table_size(len(newest_first) - 1)
    return sorted(newest_first, key=lambda key: slot(string_hash(key), table))
