"""Which partition a record goes to: Java's hash of the key, or the sticky choice for records without one (KIP-794)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash, unsigned, as `org.apache.kafka.common.utils.Utils.murmur2` has it."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = (int.from_bytes(data[at : at + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> _R)) * _M) & _MASK
        hashed = ((hashed * _M) & _MASK) ^ k
    if whole != length:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = (hashed * _M) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * _M) & _MASK
    return hashed ^ (hashed >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key, the same as the Java producer's default."""
    return (murmur2(key) & _POSITIVE) % partition_count


class StickyPartitioner:
    """For records without a key: stay with a partition until a batch's worth of bytes went there, then take another.

    The next one is chosen at random among those available, never the same twice where there is a choice.
    """

    def __init__(self, batch_size: int, random: Random | None = None) -> None:
        self._batch_size = batch_size
        self._random = random or Random()
        self._current: dict[str, tuple[int, int]] = {}

    def partition(self, topic: str, available: Sequence[int], size: int) -> int:
        """The partition of a record of about `size` bytes; `available` are the partitions that have a leader."""
        chosen, used = self._current.get(topic, (-1, 0))
        if used >= self._batch_size or chosen not in available:
            others = [partition for partition in available if partition != chosen]
            chosen, used = self._random.choice(others or list(available)), 0
        self._current[topic] = (chosen, used + size)
        return chosen
