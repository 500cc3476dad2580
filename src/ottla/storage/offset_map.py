"""The newest offset of each key of a stretch of log, within a bound of memory.

There are two kinds of map. A `TableMap` is one as Kafka's: 24 bytes a key in one buffer, a digest of 16 and the offset.
It needs compiled code (`ottla.records.keys`). Without that, a `DictMap` is faster by far than anything else that Python
can do per key, but takes more memory for each: what an entry takes is counted, so that
`log.cleaner.dedupe.buffer.size` holds, and a round of cleaning covers fewer keys.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import pairwise, repeat
from mmap import mmap
from typing import Final, NamedTuple, Protocol

from ottla.records import keys as keys_of_records
from ottla.storage.key_scan import scan_keys

#: A dict keeps longer keys as a digest, which is longer than any key that is kept as it is.
LONGEST_KEPT_KEY: Final = 32
_DIGEST_BYTES: Final = LONGEST_KEPT_KEY + 1
#: What CPython takes per entry: its share of the dict at the moment when that grows (20 bytes for each of 2^k places,
#: two thirds of them used, and twice as many in the new one), the offset, the head of the bytes object and its padding.
ENTRY_BYTES: Final = 90 + 32 + 33 + 8
#: What a place of a table takes: a digest of 16 bytes, an offset of 8.
PLACE_BYTES: Final = 24

#: The setting may be any number, as in Apache Kafka; a map that is never filled would clean nothing.
LEAST_LOAD_FACTOR: Final = 0.01

Keys = Sequence[bytes | None]


class Sieved(NamedTuple):
    """Which of a batch's records stay."""

    #: How many stay, and how many of those are tombstones.
    kept: int
    tombstones: int
    #: The largest timestamp delta of those that stay; of no meaning where none does.
    largest_delta: int
    #: For each record 1 where it stays, 0 else.
    stays: bytes | bytearray
    #: Begin and end of each stretch of records that stay, one after the other, in bytes of the uncompressed records.
    stretches: Sequence[int]


class OffsetMap(Protocol):
    """Keys and the newest offset of each, taken from uncompressed records of format 2. Not for two threads at once."""

    latest_offset: int
    """The last offset that was taken in, -1 before."""

    def __len__(self) -> int:
        """How many keys there are."""
        ...

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory it takes."""
        ...

    def has_room(self, count: int) -> bool:
        """Whether so many keys more fit in; an empty map takes any one batch, so that cleaning goes on."""
        ...

    def put(self, records: bytes, count: int, base_offset: int, start_offset: int) -> None:
        """Take in the keys of those records whose offsets are at least `start_offset`. Raises BatchError."""
        ...

    def sieve(self, records: bytes, count: int, base_offset: int, expired: bool) -> Sieved:
        """Which records stay: those above `latest_offset` and the newest of each key, but no tombstone when `expired`.

        Raises BatchError.
        """
        ...


def new_map(memory_bytes: int, load_factor: float, most_keys: int, secret: tuple[int, int]) -> OffsetMap:
    """A map for at most `most_keys` keys; `secret` is two random numbers of 64 bits that nobody can guess."""
    load_factor = min(1.0, max(LEAST_LOAD_FACTOR, load_factor))
    if keys_of_records.COMPILED:
        return TableMap(memory_bytes, load_factor, most_keys, secret)
    return DictMap(memory_bytes, load_factor)


class TableMap:
    """A table in one buffer."""

    __slots__ = ("_limit", "_secret", "_table", "_used", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float, most_keys: int, secret: tuple[int, int]) -> None:
        self._secret = secret
        self._used = 0
        self.latest_offset = -1
        places = max(2, min(memory_bytes // PLACE_BYTES, int(most_keys / load_factor) + 2))
        self._limit = self._make(places, load_factor)

    def _make(self, places: int, load_factor: float) -> int:
        # The system gives the pages, all zero, as they are written to; a bytearray would be filled at once.
        self._table = memoryview(mmap(-1, places * PLACE_BYTES)).cast("Q")
        # One place stays free, so that a search ends.
        return min(int(places * load_factor), places - 1)

    def __len__(self) -> int:
        return self._used

    @property
    def memory_bytes(self) -> int:
        """See `OffsetMap`."""
        return self._table.nbytes

    def has_room(self, count: int) -> bool:
        """See `OffsetMap`."""
        return not self._used or self._used + count <= self._limit

    def put(self, records: bytes, count: int, base_offset: int, start_offset: int) -> None:
        """See `OffsetMap`."""
        if count > self._limit and not self._used:
            self._limit = self._make(2 * count, 1.0)
        self._used += keys_of_records.put_keys(self._table, *self._secret, records, count, base_offset, start_offset)

    def sieve(self, records: bytes, count: int, base_offset: int, expired: bool) -> Sieved:
        """See `OffsetMap`."""
        return Sieved(
            *keys_of_records.sieve(self._table, *self._secret, records, count, base_offset, self.latest_offset, expired)
        )


class DictMap:
    """A dict that counts its memory."""

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
        """See `OffsetMap`."""
        return len(self._offsets) * ENTRY_BYTES + self.keys_bytes

    def has_room(self, count: int) -> bool:
        """See `OffsetMap`."""
        if not self._offsets:
            return True
        return self.memory_bytes + count * (ENTRY_BYTES + LONGEST_KEPT_KEY) <= self._bytes_limit

    def put(self, records: bytes, count: int, base_offset: int, start_offset: int) -> None:
        """See `OffsetMap`."""
        scan = scan_keys(records, count)
        keys: Keys = scan.keys
        offsets = _offsets(base_offset, scan.offset_deltas)
        if offsets and offsets[0] < start_offset:
            later = [(key, offset) for key, offset in zip(keys, offsets, strict=True) if offset >= start_offset]
            keys, offsets = [key for key, _ in later], [offset for _, offset in later]
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

    def sieve(self, records: bytes, count: int, base_offset: int, expired: bool) -> Sieved:
        """See `OffsetMap`."""
        scan = scan_keys(records, count)
        has_values = scan.has_values
        stays = bytes(self._stays(base_offset, scan.offset_deltas, scan.keys, has_values, expired))
        kept = stays.count(1)
        tombstones = 0
        if False in has_values:
            tombstones = sum(stay and not has_value for stay, has_value in zip(stays, has_values, strict=True))
        if kept == count:
            return Sieved(kept, tombstones, max(scan.timestamp_deltas, default=0), stays, (0, len(records)))
        deltas = [delta for stay, delta in zip(stays, scan.timestamp_deltas, strict=True) if stay]
        bounds = pairwise((0, *scan.ends))
        stretches = [bound for stay, pair in zip(stays, bounds, strict=True) if stay for bound in pair]
        return Sieved(kept, tombstones, max(deltas, default=0), stays, stretches)

    def _stays(
        self, base_offset: int, offset_deltas: Sequence[int], keys: Keys, has_values: Sequence[bool], expired: bool
    ) -> Sequence[bool]:
        latest = self.latest_offset
        if base_offset > latest:
            return [True] * len(keys)
        newest = self.finder()(keys)
        offsets = _offsets(base_offset, offset_deltas)
        if offsets and offsets[-1] <= latest and None not in keys and not (expired and False in has_values):
            return list(map(operator.le, newest, offsets))
        return [
            offset > latest or (key is not None and found <= offset and (has_value or not expired))
            for offset, key, found, has_value in zip(offsets, keys, newest, has_values, strict=True)
        ]


def _offsets(base_offset: int, offset_deltas: Sequence[int]) -> Sequence[int]:
    """The records' offsets, from their distances to the batch's base offset."""
    count = len(offset_deltas)
    if offset_deltas and offset_deltas[-1] - offset_deltas[0] == count - 1:
        # They rise, so none is left out.
        return range(base_offset + offset_deltas[0], base_offset + offset_deltas[0] + count)
    return [base_offset + delta for delta in offset_deltas]


def _kept(keys: Keys) -> Keys:
    """The keys as a dict keeps them: long ones as their digests."""
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
