"""XXH32, the checksum in the headers of lz4 frames. Source: https://github.com/Cyan4973/xxHash, xxhash_spec.md.

In plain Python: it is needed for a handful of bytes once per compressed message of format 0.
"""

from __future__ import annotations

import struct
from typing import Final

_MASK: Final = 0xFFFFFFFF
_PRIME_1: Final = 0x9E3779B1
_PRIME_2: Final = 0x85EBCA77
_PRIME_3: Final = 0xC2B2AE3D
_PRIME_4: Final = 0x27D4EB2F
_PRIME_5: Final = 0x165667B1
_STRIPE: Final = struct.Struct("<4I")
_LANE: Final = struct.Struct("<I")


def xxh32(data: bytes, seed: int = 0) -> int:
    """The hash of `data`, an unsigned number of 32 bits."""
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
