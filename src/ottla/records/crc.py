"""CRC-32C (Castagnoli), the checksum of record batches v2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fastcrc.crc32 import iscsi

#: The checksum of data as an unsigned 32-bit number; a memoryview is read in place, without a copy.
crc32c: Final[Callable[[bytes | bytearray | memoryview], int]] = iscsi


def crc32c_on(before: int, data: bytes | bytearray | memoryview) -> int:
    """Continue the checksum `before` with `data`."""
    return iscsi(data, before)
