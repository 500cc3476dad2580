"""Zig-zag varints of records: seven bits a byte, low ones first, the top bit says that more follow."""

from __future__ import annotations

from ottla.records.errors import BatchError

_INT32_MASK = 0xFFFFFFFF
_VARINT_BYTES = 5


def encode_varint(value: int) -> bytes:
    """`value`, a signed number of at most 64 bits, zig-zag encoded."""
    number = value << 1 if value >= 0 else (-value << 1) - 1
    if number < 0x80:
        return bytes((number,))
    output = bytearray()
    while number > 127:
        output.append(number & 127 | 128)
        number >>= 7
    output.append(number)
    return bytes(output)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, at most 32 bits and still zig-zag encoded, and the position after it.

    BatchError for more than five bytes, IndexError where the data ends.
    """
    number = shift = 0
    for at in range(position, position + _VARINT_BYTES):
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number & _INT32_MASK, at + 1
        shift += 7
    raise BatchError(f"a varint at byte {position} is longer than {_VARINT_BYTES} bytes")


ENCODED_COUNT = 1024
ENCODED = tuple(encode_varint(value) for value in range(ENCODED_COUNT))
"""The numbers from 0 on that records mostly need (sizes, deltas), encoded once."""
