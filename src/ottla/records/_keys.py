"""The table of keys, record by record: the source of `ottla.records._keys_native`. Use it through
`ottla.storage.offset_map`.

This is plain Python; the types that make it fast when it is compiled stand in `_keys_native.pxd`. Both must do the
same, so numbers that C would cut to 64 bits are cut here by hand.

A table has places of three 64-bit words: the two halves of a key's digest, and its newest offset plus one, 0 where the
place is free. The digest is SipHash-2-4 with 128 bits of result under a secret of the table's own, so that a writer of
keys cannot make two of them count as one. (https://www.aumasson.jp/siphash/siphash.pdf)
"""

from __future__ import annotations

from ottla.records.errors import BatchError

#: Bytes of a record with null key and value.
SMALLEST_RECORD = 7


def put_keys(
    table: memoryview,
    first_secret: int,
    second_secret: int,
    records: bytes,
    count: int,
    base_offset: int,
    start_offset: int,
) -> int:
    """Add the keys of `count` uncompressed records whose offsets are at least `start_offset`; returns how many are new.
    There must be more free slots than records. Raises BatchError where the records are malformed.
    """
    data = records
    words = table
    size = len(data)
    places = len(words) // 3
    mask = 0xFFFFFFFFFFFFFFFF
    v0, v1, v2, v3 = _first_state(first_secret, second_secret)
    at = added = 0
    for index in range(count):
        length, at = _varint(data, at, size)
        if length < 0 or length > size - at:
            raise BatchError(f"record {index} does not end within its batch")
        record_end = at + length
        at = _skip_varint(data, at + 1, record_end)
        offset_delta, at = _varint(data, at, record_end)
        key_size, at = _varint(data, at, record_end)
        if at > record_end or key_size > record_end - at or offset_delta < 0 or offset_delta > 0x7FFFFFFF:
            raise BatchError(f"record {index} is malformed")
        offset = base_offset + offset_delta
        if key_size >= 0 and offset >= start_offset:
            left, right = _digest(data, at, key_size, v0, v1, v2, v3, mask)
            place = _find(words, places, left, right)
            if not words[place * 3 + 2]:
                words[place * 3] = left
                words[place * 3 + 1] = right
                added += 1
            words[place * 3 + 2] = offset + 1
        at = record_end
    if at != size:
        raise BatchError(f"{count} records declared, but {size - at} bytes follow them")
    return added


def sieve(
    table: memoryview,
    first_secret: int,
    second_secret: int,
    records: bytes,
    count: int,
    base_offset: int,
    latest_offset: int,
    expired: bool,
) -> tuple[int, int, int, bytearray, list[int]]:
    """Which of `count` uncompressed records stay: those above `latest_offset`, and those that are not older than what
    the table knows of their key; of tombstones none where they are `expired`.

    Returns how many stay, how many of those are tombstones, the largest timestamp delta of those, a byte per record (1:
    it stays), and where the stretches of records that stay begin and end. Raises BatchError for malformed records.
    """
    data = records
    words = table
    size = len(data)
    if count < 0 or count > size // SMALLEST_RECORD:
        raise BatchError(f"{size} bytes cannot hold {count} records")
    places = len(words) // 3
    mask = 0xFFFFFFFFFFFFFFFF
    v0, v1, v2, v3 = _first_state(first_secret, second_secret)
    at = kept = tombstones = 0
    largest, stretch_end = -0x7FFFFFFFFFFFFFFF, -1
    stays = bytearray(count)
    flags = stays
    stretches: list[int] = []
    for index in range(count):
        start = at
        length, at = _varint(data, at, size)
        if length < 0 or length > size - at:
            raise BatchError(f"record {index} does not end within its batch")
        record_end = at + length
        timestamp_delta, at = _varint(data, at + 1, record_end)
        offset_delta, at = _varint(data, at, record_end)
        key_size, at = _varint(data, at, record_end)
        key_at = at
        at = _behind_key(at, key_size, record_end)
        value_size, at = _varint(data, at, record_end)
        if at > record_end or offset_delta < 0 or offset_delta > 0x7FFFFFFF:
            raise BatchError(f"record {index} is malformed")
        offset = base_offset + offset_delta
        stay = offset > latest_offset
        if not stay and key_size >= 0 and (value_size >= 0 or not expired):
            stay = offset + 1 >= _newest(words, places, data, key_at, key_size, v0, v1, v2, v3, mask)
        if stay:
            kept += 1
            flags[index] = 1
            if value_size < 0:
                tombstones += 1
            if timestamp_delta > largest:
                largest = timestamp_delta
            _take_stretch(stretches, start, record_end, start == stretch_end)
            stretch_end = record_end
        at = record_end
    if at != size:
        raise BatchError(f"{count} records declared, but {size - at} bytes follow them")
    return kept, tombstones, largest, stays, stretches


def digest(key: bytes, first_secret: int, second_secret: int) -> tuple[int, int]:
    """The two 64-bit halves of a key's digest."""
    mask = 0xFFFFFFFFFFFFFFFF
    v0, v1, v2, v3 = _first_state(first_secret, second_secret)
    return _digest(key, 0, len(key), v0, v1, v2, v3, mask)


def _newest(
    words: memoryview, places: int, data: bytes, at: int, size: int, v0: int, v1: int, v2: int, v3: int, mask: int
) -> int:
    """The newest offset known for the key of `size` bytes at `at`, plus one; 0 for an unknown key."""
    left, right = _digest(data, at, size, v0, v1, v2, v3, mask)
    place = _find(words, places, left, right)
    newest: int = words[place * 3 + 2]
    return newest


def _take_stretch(stretches: list[int], start: int, end: int, goes_on: bool) -> None:
    """Keep the record from `start` to `end`: a new range, or part of the last one where it follows it."""
    if goes_on:
        stretches[len(stretches) - 1] = end
    else:
        stretches.extend((start, end))


def _behind_key(at: int, key_size: int, end: int) -> int:
    if key_size <= 0:
        return at
    return at + key_size if key_size <= end - at else end


def _first_state(first_secret: int, second_secret: int) -> tuple[int, int, int, int]:
    """The state of SipHash before the first word."""
    return (
        first_secret ^ 0x736F6D6570736575,
        second_secret ^ 0x646F72616E646F6D ^ 0xEE,
        first_secret ^ 0x6C7967656E657261,
        second_secret ^ 0x7465646279746573,
    )


def _find(words: memoryview, places: int, left: int, right: int) -> int:
    """The slot of a digest, or the free slot where it belongs; there must be a free one."""
    place = left % places
    while words[place * 3 + 2] and (words[place * 3] != left or words[place * 3 + 1] != right):
        place += 1
        if place == places:
            place = 0
    return place


def _digest(data: bytes, at: int, size: int, v0: int, v1: int, v2: int, v3: int, mask: int) -> tuple[int, int]:
    """SipHash-2-4-128 of `size` bytes at `at` from the state that the secret gives; `mask` is 64 ones, for sums."""
    end = at + size
    while end - at >= 8:
        word = _word(data, at, 8)
        v0, v1, v2, v3 = _rounds(v0, v1, v2, v3 ^ word, 2, mask)
        v0 ^= word
        at += 8
    word = _word(data, at, end - at) | _length_byte(size)
    v0, v1, v2, v3 = _rounds(v0, v1, v2, v3 ^ word, 2, mask)
    v0, v1, v2, v3 = _rounds(v0 ^ word, v1, v2 ^ 0xEE, v3, 4, mask)
    left = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _rounds(v0, v1 ^ 0xDD, v2, v3, 4, mask)
    return left, v0 ^ v1 ^ v2 ^ v3


def _word(data: bytes, at: int, size: int) -> int:
    """The number in `size` bytes at `at`, the lowest first."""
    word = 0
    for index in range(size):
        byte = data[at + index]
        word |= byte << (8 * index)
    return word


def _length_byte(size: int) -> int:
    low = size & 0xFF
    return low << 56


def _rounds(v0: int, v1: int, v2: int, v3: int, count: int, mask: int) -> tuple[int, int, int, int]:
    for _ in range(count):
        v0 = (v0 + v1) & mask
        v1 = ((v1 << 13) & mask) | (v1 >> 51)
        v1 ^= v0
        v0 = ((v0 << 32) & mask) | (v0 >> 32)
        v2 = (v2 + v3) & mask
        v3 = ((v3 << 16) & mask) | (v3 >> 48)
        v3 ^= v2
        v0 = (v0 + v3) & mask
        v3 = ((v3 << 21) & mask) | (v3 >> 43)
        v3 ^= v0
        v2 = (v2 + v1) & mask
        v1 = ((v1 << 17) & mask) | (v1 >> 47)
        v1 ^= v2
        v2 = ((v2 << 32) & mask) | (v2 >> 32)
    return v0, v1, v2, v3


def _varint(data: bytes, at: int, size: int) -> tuple[int, int]:
    """The signed number at `at`, at most ten bytes, and where it ends; beyond the data that is `size` + 1."""
    number = shift = 0
    while at < size and shift < 70:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    return 0, size + 1


def _skip_varint(data: bytes, at: int, size: int) -> int:
    while at < size:
        byte = data[at]
        at += 1
        if byte < 128:
            return at
    return size + 1
