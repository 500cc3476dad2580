"""The newest offset of each key in a range of the log, within a memory limit.

There are two kinds of map. A `TableMap` is like Kafka's: 24 bytes per key in one buffer, a digest of 16 and the offset.
It needs compiled code (`ottla.records.keys`). Without that, a `DictMap` is by far the fastest that Python can do per
key, but uses more memory for each: the memory of an entry is counted, so that `log.cleaner.dedupe.buffer.size` holds,
and a round of cleaning covers fewer keys.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise, repeat
from mmap import mmap
from typing import Final, NamedTuple, Protocol

from ottla.records import keys as keys_of_records
from ottla.records import walk
from ottla.records.record import decode_columns
from ottla.records.varint import read_varint
from ottla.records.walked import KeyScan

#: Longer keys are stored as a digest, which is longer than any key that is stored as it is.
LONGEST_PLAIN_KEY: Final = 32
_DIGEST_BYTES: Final = LONGEST_PLAIN_KEY + 1
#: What CPython needs per entry: its share of the dict while that grows (20 bytes for each of 2^k slots, two thirds of
#: them used, and twice as many in the new one), the offset, the bytes object's header and padding.
ENTRY_BYTES: Final = 90 + 32 + 33 + 8
#: Size of a slot of a table: a digest of 16 bytes, an offset of 8.
PLACE_BYTES: Final = 24

#: The setting may be any number, as in Apache Kafka; a map with no usable slots would clean nothing.
LEAST_LOAD_FACTOR: Final = 0.01

Keys = Sequence[bytes | None]


class Sieved(NamedTuple):
    """Which of a batch's records are kept."""

    #: How many are kept, and how many of those are tombstones.
    retained: int
    tombstones: int
    #: The largest timestamp delta of those kept; undefined if none is.
    largest_delta: int
    #: For each record 1 if it is kept, 0 otherwise.
    stays: bytes | bytearray
    #: Begin and end of each run of kept records, in order, in bytes of the uncompressed records.
    stretches: Sequence[int]


class OffsetMap(Protocol):
    """Keys and the newest offset of each, from uncompressed records of format 2. Not thread-safe."""

    latest_offset: int
    """The last offset added, -1 before."""

    def __len__(self) -> int: ...

    @property
    def memory_bytes(self) -> int:
        """Estimated memory, in bytes."""
        ...

    def has_room(self, count: int) -> bool:
        """Whether this many more keys fit; an empty map accepts any one batch, so that cleaning makes progress."""

    def put(self, records: bytes, count: int, base_offset: int, start_offset: int) -> None:
        """Add the keys of the records whose offsets are at least `start_offset`. Raises BatchError."""

    def sieve(self, records: bytes, count: int, base_offset: int, expired: bool) -> Sieved:
        """Which records to keep: those above `latest_offset` and the newest of each key; if `expired`, no tombstones.

        Raises BatchError.
        """


def new_map(memory_bytes: int, load_factor: float, most_keys: int, secret: tuple[int, int]) -> OffsetMap:
    """A map for at most `most_keys` keys; `secret` is two unpredictable random numbers of 64 bits."""
    load_factor = min(1.0, max(LEAST_LOAD_FACTOR, load_factor))
    if keys_of_records.COMPILED:
        return TableMap(memory_bytes, load_factor, most_keys, secret)
    return DictMap(memory_bytes, load_factor)


class TableMap:
    """A hash table in one buffer."""

    __slots__ = ("_limit", "_secret", "_table", "_used", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float, most_keys: int, secret: tuple[int, int]) -> None:
        self._secret = secret
        self._used = 0
        self.latest_offset = -1
        places = max(2, min(memory_bytes // PLACE_BYTES, int(most_keys / load_factor) + 2))
        self._limit = self._make(places, load_factor)

    def _make(self, places: int, load_factor: float) -> int:
        # The system allocates zeroed pages on first write; a bytearray would be filled at once.
        self._table = memoryview(mmap(-1, places * PLACE_BYTES)).cast("Q")
        # One slot stays free, so that a probe ends.
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
        #: Estimated size of the stored keys, in bytes.
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
        return self.memory_bytes + count * (ENTRY_BYTES + LONGEST_PLAIN_KEY) <= self._bytes_limit

    def put(self, records: bytes, count: int, base_offset: int, start_offset: int) -> None:
        """See `OffsetMap`."""
        scan = _scan_keys(records, count)
        keys: Keys = scan.keys
        offsets = _offsets(base_offset, scan.offset_deltas)
        if offsets and offsets[0] < start_offset:
            later = [(key, offset) for key, offset in zip(keys, offsets, strict=True) if offset >= start_offset]
            keys, offsets = [key for key, _ in later], [offset for _, offset in later]
        table = self._offsets
        before = len(table)
        stored = _hash_long_keys(keys)
        table.update(zip(stored, offsets, strict=True))  # type: ignore[arg-type]
        table.pop(None, None)  # type: ignore[call-overload]
        new = len(table) - before
        if new > 0:
            self.keys_bytes += new * sum(map(len, filter(None, stored))) // len(stored) + 1

    def finder(self) -> Callable[[Keys], list[int]]:
        """A function that returns the newest offset of each of the keys, -1 for unknown ones."""
        get = self._offsets.get

        def find(keys: Keys) -> list[int]:
            return list(map(get, _hash_long_keys(keys), repeat(-1)))  # type: ignore[arg-type]

        return find

    def sieve(self, records: bytes, count: int, base_offset: int, expired: bool) -> Sieved:
        """See `OffsetMap`."""
        scan = _scan_keys(records, count)
        has_values = scan.has_values
        stays = bytes(self._stays(base_offset, scan.offset_deltas, scan.keys, has_values, expired))
        retained = stays.count(1)
        tombstones = 0
        if False in has_values:
            tombstones = sum(stay and not has_value for stay, has_value in zip(stays, has_values, strict=True))
        if retained == count:
            return Sieved(retained, tombstones, max(scan.timestamp_deltas, default=0), stays, (0, len(records)))
        deltas = [delta for stay, delta in zip(stays, scan.timestamp_deltas, strict=True) if stay]
        bounds = pairwise((0, *scan.ends))
        stretches = [bound for stay, pair in zip(stays, bounds, strict=True) if stay for bound in pair]
        return Sieved(retained, tombstones, max(deltas, default=0), stays, stretches)

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


def _scan_keys(records: bytes, count: int) -> KeyScan:
    """The columns that compaction needs, with the end of each record, of `count` uncompressed records.

    The records must fill `records` to the last byte, else BatchError.
    """
    if walk.COMPILED:
        return walk.scan_keys(records, count)
    # In plain Python this is faster than the walk.
    columns = decode_columns(records, count)
    ends: list[int] = []
    end = 0
    for _ in range(count):
        number, end = read_varint(records, end)
        end += number >> 1
        ends.append(end)
    has_values = [value is not None for value in columns.values]
    return KeyScan(columns.offset_deltas, columns.timestamp_deltas, columns.keys, has_values, ends)


def _offsets(base_offset: int, offset_deltas: Sequence[int]) -> Sequence[int]:
    """The records' offsets, from their deltas to the batch's base offset."""
    count = len(offset_deltas)
    if offset_deltas and offset_deltas[-1] - offset_deltas[0] == count - 1:
        # They increase, so none is left out.
        return range(base_offset + offset_deltas[0], base_offset + offset_deltas[0] + count)
    return [base_offset + delta for delta in offset_deltas]


def _hash_long_keys(keys: Keys) -> Keys:
    """The keys as the dict stores them: long ones as digests."""
    try:
        longest = max(map(len, keys), default=0)  # type: ignore[arg-type]
    except TypeError:
        longest = max((len(key) for key in keys if key is not None), default=0)
    if longest <= LONGEST_PLAIN_KEY:
        return keys
    from hashlib import blake2b  # here: it takes OpenSSL with it, and few brokers see such keys

    return [
        blake2b(key, digest_size=_DIGEST_BYTES).digest() if key is not None and len(key) > LONGEST_PLAIN_KEY else key
        for key in keys
    ]
