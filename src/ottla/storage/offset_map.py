"""The newest offset of each key of a stretch of log, within a bound of memory.

Kafka keeps 16 bytes of MD5 and an offset per key in one buffer, 24 bytes in all. Here it is a dict, which is faster by
far than anything else that Python can do per key, but takes more: what an entry takes is counted, so that
`log.cleaner.dedupe.buffer.size` holds, and a round of cleaning covers fewer keys. Keys are kept as they are, so that
two of them never count as one; only long ones are replaced by a digest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Final

#: Longer keys are kept as a digest, which is longer than any key that is kept as it is.
LONGEST_KEPT_KEY: Final = 32
_DIGEST_BYTES: Final = LONGEST_KEPT_KEY + 1
#: What CPython takes per entry: its share of the dict at the moment when that grows (20 bytes for each of 2^k places,
#: two thirds of them used, and twice as many in the new one), the offset, the head of the bytes object and its padding.
ENTRY_BYTES: Final = 90 + 32 + 33 + 8

Keys = Sequence[bytes | None]


class OffsetMap:
    """Keys and the newest offset of each. `latest_offset` is the last one that was taken in, -1 before."""

    __slots__ = ("_bytes_limit", "_offsets", "keys_bytes", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = 1.0) -> None:
        self._bytes_limit = int(memory_bytes * load_factor)
        self._offsets: dict[bytes, int] = {}
        #: About how many bytes the kept keys have.
        self.keys_bytes = 0
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory it takes."""
        return len(self._offsets) * ENTRY_BYTES + self.keys_bytes

    def has_room(self, keys: Keys) -> bool:
        """Whether as many keys more fit in; an empty map takes any one batch, so that cleaning goes on."""
        if not self._offsets:
            return True
        return self.memory_bytes + len(keys) * (ENTRY_BYTES + LONGEST_KEPT_KEY) <= self._bytes_limit

    def put(self, keys: Keys, offsets: Sequence[int]) -> None:
        """Take in the keys, in the order of their offsets; None is no key."""
        table = self._offsets
        before = len(table)
        kept = _kept(keys)
        table.update(zip(kept, offsets, strict=True))  # type: ignore[arg-type]
        table.pop(None, None)  # type: ignore[call-overload]
        new = len(table) - before
        if new > 0:
            self.keys_bytes += new * sum(map(len, filter(None, kept))) // len(kept) + 1

    def finder(self) -> Callable[[Keys], list[int]]:
        """A function that gives the newest offset of each of the keys, -1 for one that is not known."""
        get = self._offsets.get

        def find(keys: Keys) -> list[int]:
            return list(map(get, _kept(keys), repeat(-1)))  # type: ignore[arg-type]

        return find


def _kept(keys: Keys) -> Keys:
    """The keys as they are kept: long ones as their digests."""
    try:
        longest = max(map(len, keys), default=0)  # type: ignore[arg-type]
    except TypeError:
        longest = max((len(key) for key in keys if key is not None), default=0)
    if longest <= LONGEST_KEPT_KEY:
        return keys
    return [
        blake2b(key, digest_size=_DIGEST_BYTES).digest() if key is not None and len(key) > LONGEST_KEPT_KEY else key
        for key in keys
    ]
