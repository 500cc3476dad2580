"""The orders in which Java compares strings and walks its hash maps, and Scala its own.

Members are sorted, and topics reach a member's assignment, in these orders, and keys the JSON of znodes; whoever wants
the same bytes as a Java leader has to follow them. Source: the documentation of Java's `String.compareTo`,
`String.hashCode`, `HashMap` and `ConcurrentHashMap`; what Scala 2.13's `mutable.HashMap` is seen to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice
from operator import itemgetter, mul

_SMALLEST_TABLE = 16
_WORD = 0xFFFFFFFF
#: Longer strings are hashed by `_long_hash`.
_SHORT_UNITS = 128
#: Keys that are hashed, and slots whose keys are sorted, in one step.
_PART = 512
_PLACE = itemgetter(0, 1)
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
    if len(text) > _SHORT_UNITS:
        return _long_hash(text_order(text))
    if text.isascii():
        units: bytes | list[int] = text.encode("ascii")
    else:
        encoded = text_order(text)
        units = [high << 8 | low for high, low in zip(encoded[::2], encoded[1::2], strict=True)]
    while len(_POWERS) < len(units):
        _POWERS.append(31 * _POWERS[-1] & _WORD)
    products: map[int] = map(mul, reversed(units), _POWERS)
    return sum(products) & _WORD


def _long_hash(encoded: bytes) -> int:
    """The same of a long string's UTF-16 units, six times as fast: it computes with all of them in one number.

    The number has a lane of 64 bits for each four units; of the lanes the first half is then added to the second, until
    one is left. Zeros in front change nothing.
    """
    lanes = 1 << (len(encoded) // 8).bit_length()
    number, unit = int.from_bytes(encoded), _lanes(lanes, 2)
    number = (
        (number >> 48 & unit) * 31**3 + (number >> 32 & unit) * 31**2 + (number >> 16 & unit) * 31 + (number & unit)
    )
    while lanes > 1:
        lanes //= 2
        factor = pow(31, 4 * lanes, _WORD + 1)
        number = (number >> 64 * lanes) * factor + (number & (1 << 64 * lanes) - 1) & _lanes(lanes, 4)
    return number & _WORD


@lru_cache(32)
def _lanes(count: int, width: int) -> int:
    """A number whose lanes have ones in their lowest `width` bytes."""
    return int.from_bytes((b"\0" * (8 - width) + b"\xff" * width) * count)


def partition_hash(topic_hash: int, partition: int) -> int:
    """`TopicPartition.hashCode` of a topic whose name has that hash, as an unsigned 32-bit number."""
    return (31 * (31 + partition) + topic_hash) & _WORD


def table_size(keys: int) -> int:
    """Capacity of a `HashMap` that was created empty and has held that many keys."""
    table = _SMALLEST_TABLE
    while keys * 4 > table * 3:
        table *= 2
    return table


def slot(hash_code: int, table: int) -> int:
    """The slot of a key with that hash in a table of that many slots."""
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


def properties_order(keys: Iterable[str]) -> list[str]:
    """The keys as `Properties` gives them that were made empty and filled in the order of `keys`."""
    slots: list[list[int]] = [[] for _ in range(_SMALLEST_TABLE)]
    distinct = list(dict.fromkeys(keys))
    hashes = [string_hash(key) for key in distinct]
    for number, hashed in enumerate(hashes):
        slots[slot(hashed, len(slots))].append(number)
        if (number + 1) * 4 >= len(slots) * 3:
            halves = [_parted(found, hashes, len(slots)) for found in slots]
            slots = [low for low, _ in halves] + [high for _, high in halves]
    return [distinct[number] for found in slots for number in found]


def _parted(found: list[int], hashes: list[int], size: int) -> tuple[list[int], list[int]]:
    """The keys of a slot of a `ConcurrentHashMap`, in its two slots of the table twice that size.

    The last keys that stay together stay in order; those before them come to the front, one after the other.
    """
    upper = [slot(hashes[number], 2 * size) >= size for number in found]
    kept = max((at for at in range(1, len(found)) if upper[at] != upper[at - 1]), default=0)
    halves: tuple[list[int], list[int]] = ([], [])
    for number, is_upper in zip(found[:kept], upper[:kept], strict=True):
        halves[is_upper].insert(0, number)
    if found:
        halves[upper[kept]].extend(found[kept:])
    return halves


def scala_map_order(keys: Iterable[str]) -> list[str]:
    """The keys as Scala's `mutable.HashMap` gives them; those that share a slot are in the order of their hashes.

    Its table grows before the key comes that would make it three quarters full.
    """
    distinct = dict.fromkeys(keys)
    return list(chain.from_iterable(scala_map_parts(distinct, len(distinct))))


def scala_map_parts(distinct: Iterable[str], keys: int) -> Iterator[list[str]]:
    """`scala_map_order` of `keys` keys in parts that take a millisecond or less each; first come empty ones."""
    table = table_size(keys + 1)
    found: list[list[tuple[int, int, str]]] = [[] for _ in range(0, table, _PART)]
    rest = iter(distinct)
    while part_of_keys := list(islice(rest, _PART)):
        for key in part_of_keys:
            hashed = string_hash(key)
            place = slot(hashed, table)
            found[place // _PART].append((place, hashed ^ hashed >> 16, key))
        yield []
    for part in found:
        part.sort(key=_PLACE)
        yield [key for _, _, key in part]
