"""The four ways to compress the records of a batch, in the framings that Kafka's Java clients read and write.

gzip is RFC 1952; snappy is written in the framing of snappy-java ("xerial": a header of 16 bytes, then blocks with
their lengths) and read in that or bare; lz4 is the lz4 frame format with independent blocks, since Java's reader takes
no linked ones; in messages of format 0 its header has a checksum that is wrong, and old clients insist on it (KIP-57);
zstd is RFC 8478 (KIP-110).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from ottla.records.errors import BatchError, ExpansionError, MissingLibraryError


class MissingLibrary:
    """Stand-in for a library that cannot be imported; its use raises an error that names the cure."""

    def __init__(self, reason: str) -> None:
        self.problem = (
            f"compression needs the package cramjam, which cannot be imported here ({reason}); install it (pip install "
            "cramjam), or do without compression"
        )

    def __getattr__(self, name: str) -> Any:
        raise MissingLibraryError(self.problem)


try:
    import cramjam
except ImportError as missing:
    cramjam = MissingLibrary(str(missing))  # type: ignore[assignment]

Bytes = bytes | bytearray | memoryview

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_SIZE = 32 * 1024
"""Bytes of data in one block, snappy-java's default."""

SNAPPY_MAX_RATIO = 64
"""A snappy copy yields at most 64 bytes and takes two at least: no honest length exceeds this many times the input."""
FIRST_GUESS_RATIO = 4
"""How many times its size compressed data is first assumed to have; four times more at each further try."""
SMALLEST_GUESS = 64 * 1024

LZ4_FAST_LEVEL = 1
"""The fast mode of lz4, the default of Java's clients; levels from 3 on are slow."""
_LZ4_MAGIC_BYTES = 4
_LZ4_FLAGS_AT = 4
_LZ4_HAS_SIZE = 0x08
_LZ4_HAS_DICTIONARY = 0x01


class Compression(IntEnum):
    """The codecs with their numbers in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def library_problem() -> str | None:
    """Why nothing can be compressed or expanded here; None where it can."""
    return cramjam.problem if isinstance(cramjam, MissingLibrary) else None


def compress(codec: Compression, data: Bytes, level: int | None = None, *, broken_lz4: bool = False) -> bytes:
    """`data` compressed; `level` is the codec's own scale, None for the default of Java's clients (snappy has none).

    With `broken_lz4` the header of lz4 gets the wrong checksum that messages of format 0 have.
    """
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec == Compression.SNAPPY:
        return _compress_xerial(data)
    if codec == Compression.LZ4:
        encoder = cramjam.lz4.Compressor(
            level=LZ4_FAST_LEVEL if level is None else level, content_checksum=False, block_linked=False
        )
        encoder.compress(bytes(data))  # it takes nothing but bytes
        framed = bytes(encoder.finish())
        return with_header_checksum(framed, broken=True) if broken_lz4 else framed
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    return bytes(data)


def decompress(codec: Compression, data: Bytes, limit: int, *, broken_lz4: bool = False) -> bytes | memoryview:
    """`data` expanded, at most `limit` bytes of it. With `broken_lz4` the checksum of an lz4 header may be anything.

    Raises BatchError where the data is malformed or would grow beyond the limit.
    """
    if codec == Compression.NONE:
        return _within(limit, memoryview(data))
    if not len(data):
        raise BatchError(f"{codec.name.lower()} data is empty")
    if codec == Compression.SNAPPY:
        return _decompress_snappy(memoryview(data), limit)
    if codec == Compression.GZIP:
        return _expand(cramjam.gzip.decompress_into, codec, data, limit)
    if codec == Compression.LZ4:
        whole = with_header_checksum(bytes(data), broken=False) if broken_lz4 else data
        return _expand(cramjam.lz4.decompress_into, codec, whole, limit)
    return _expand(cramjam.zstd.decompress_into, codec, data, limit)


def _within(limit: int, data: memoryview) -> memoryview:
    if len(data) > limit:
        raise ExpansionError(f"records of {len(data)} bytes exceed the limit of {limit}")
    return data


def _expand(
    decompress_into: Callable[[Bytes, bytearray], int], codec: Compression, data: Bytes, limit: int
) -> memoryview:
    """Decompress into a buffer that starts at a guess and grows up to the limit: only snappy states its size."""
    size = min(limit, max(len(data) * FIRST_GUESS_RATIO, SMALLEST_GUESS))
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
            return memoryview(output)[:written]
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise BatchError(f"malformed {codec.name.lower()} data: {error}") from None
            if size >= limit:
                raise ExpansionError(f"{codec.name.lower()} data expands beyond the limit of {limit} bytes") from None
        size = min(limit, size * 4)


def _compress_xerial(data: Bytes) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_SIZE]))
        parts.append(struct.pack(">i", len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _expand_snappy_block(data, 0, limit)
    position, expanded = len(XERIAL_HEADER), 0
    if len(data) < position:
        raise BatchError("snappy data ends within its header")
    blocks: list[bytes] = []
    while position < len(data):
        if data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)  # streams may be put one after the other; snappy-java reads on
            continue
        if len(data) - position < 4:
            raise BatchError("snappy data ends within the length of a block")
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 < size <= len(data) - position:
            raise BatchError(f"snappy block of {size} bytes, where {len(data) - position} are left")
        block = _expand_snappy_block(data[position : position + size], expanded, limit)
        blocks.append(block)
        expanded += len(block)
        position += size
    return b"".join(blocks)


def _expand_snappy_block(block: memoryview, already: int, limit: int) -> bytes:
    """The content of one block, where `already` bytes came before it."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if already + size > limit:
            raise ExpansionError(f"snappy data expands beyond the limit of {limit} bytes")
        if size > len(block) * SNAPPY_MAX_RATIO:
            raise BatchError(f"snappy block of {len(block)} bytes claims to hold {size}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise BatchError(f"malformed snappy data: {error}") from None


def with_header_checksum(frame: bytes, *, broken: bool) -> bytes:
    """The lz4 frame with the checksum of its header recomputed: right, or broken as in messages of format 0.

    The right one covers the header without the four bytes of the format's magic number, the broken one covers those
    too. A frame too short to have a header is given back as it is.
    """
    if len(frame) <= _LZ4_FLAGS_AT:
        return frame
    flags = frame[_LZ4_FLAGS_AT]
    at = _LZ4_FLAGS_AT + 2 + (8 if flags & _LZ4_HAS_SIZE else 0) + (4 if flags & _LZ4_HAS_DICTIONARY else 0)
    if len(frame) <= at:
        return frame
    checksum = xxh32(frame[0 if broken else _LZ4_MAGIC_BYTES : at]) >> 8 & 0xFF
    return frame[:at] + bytes((checksum,)) + frame[at + 1 :]


_MASK: Final = 0xFFFFFFFF
_PRIME_1: Final = 0x9E3779B1
_PRIME_2: Final = 0x85EBCA77
_PRIME_3: Final = 0xC2B2AE3D
_PRIME_4: Final = 0x27D4EB2F
_PRIME_5: Final = 0x165667B1
_STRIPE: Final = struct.Struct("<4I")
_LANE: Final = struct.Struct("<I")


def xxh32(data: bytes, seed: int = 0) -> int:
    """XXH32, the checksum in the headers of lz4 frames: an unsigned number of 32 bits.

    In plain Python: it is needed for a handful of bytes once per compressed message of format 0. Source:
    https://github.com/Cyan4973/xxHash, xxhash_spec.md.
    """
    position, end = 0, len(data)
    if end >= _STRIPE.size:
        lanes = [seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2, seed, seed - _PRIME_1]
        while end - position >= _STRIPE.size:
            words = _STRIPE.unpack_from(data, position)
            lanes = [_rotated(lane + word * _PRIME_2, 13) * _PRIME_1 for lane, word in zip(lanes, words, strict=True)]
            position += _STRIPE.size
        total = sum(_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = seed + _PRIME_5
    total += end
    while end - position >= _LANE.size:
        total = _rotated(total + _LANE.unpack_from(data, position)[0] * _PRIME_3, 17) * _PRIME_4
        position += _LANE.size
    for byte in data[position:]:
        total = _rotated(total + byte * _PRIME_5, 11) * _PRIME_1
    total &= _MASK
    total = (total ^ total >> 15) * _PRIME_2 & _MASK
    total = (total ^ total >> 13) * _PRIME_3 & _MASK
    return total ^ total >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK
