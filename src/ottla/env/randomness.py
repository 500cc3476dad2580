"""Randomness: the system's, or a seeded one that a test or the simulator repeats."""

from __future__ import annotations

import random
from uuid import UUID


class Randomness:
    """Random numbers and ids; the same `seed` gives the same ones again."""

    __slots__ = ("_random", "_secrets")

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._secrets = random.SystemRandom() if seed is None else self._random

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1."""
        return self._random.randrange(bound)

    def between(self, low: float, high: float) -> float:
        """A number between `low` and `high`, both included."""
        return self._random.uniform(low, high)

    def bits(self, count: int) -> int:
        """A number of `count` random bits."""
        return self._random.getrandbits(count)

    def secret_bytes(self, count: int) -> bytes:
        """Random bytes that cannot be foreseen, from the operating system; by the seed where there is one."""
        return self._secrets.randbytes(count)

    def uuid(self) -> UUID:
        """A random (version 4) UUID."""
        return UUID(int=self._random.getrandbits(128), version=4)
