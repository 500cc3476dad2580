"""How much each broker should have of something, and how far it is from that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Bounds(NamedTuple):
    """The even share of each broker, and the least and most that count as even; `unit` is the mean share."""

    share: Mapping[int, float]
    low: Mapping[int, float]
    high: Mapping[int, float]
    unit: float

    def excess(self, broker: int, value: float) -> float:
        """The amount above the bounds; 0 or less where there is none."""
        return value - self.high[broker]

    def deficit(self, broker: int, value: float) -> float:
        """The amount below the bounds; 0 or less where there is none."""
        return self.low[broker] - value

    def violation(self, broker: int, value: float) -> float:
        """How far out of the bounds a broker is, in mean shares; 0 within them."""
        return max(0.0, value - self.high[broker], self.low[broker] - value) / self.unit


def even_bounds(
    total: float,
    brokers: Sequence[int],
    tolerance: float,
    *,
    weights: Mapping[int, float] | None = None,
    room: Mapping[int, float] | None = None,
    is_whole: bool = False,
) -> Bounds:
    """The bounds for `total`, divided by weight (equally without) and by what each broker can take.

    `is_whole` is for things that cannot be divided: the bounds are then the next whole numbers outside.
    """
    share = _shares(total, brokers, weights or dict.fromkeys(brokers, 1.0), room or {})
    low = {each: share[each] * (1 - tolerance) for each in brokers}
    high = {each: min(share[each] * (1 + tolerance), (room or {}).get(each, math.inf)) for each in brokers}
    if is_whole:
        low = {each: float(math.floor(value)) for each, value in low.items()}
        high = {each: float(math.ceil(value)) for each, value in high.items()}
    return Bounds(share, low, high, max(total / max(1, len(brokers)), 1.0))


def _shares(
    total: float, brokers: Sequence[int], weights: Mapping[int, float], room: Mapping[int, float]
) -> dict[int, float]:
    """The shares of `total`; what a broker cannot take goes to the others. Each round fills at least one more."""
    share: dict[int, float] = {}
    open_ones, rest = list(brokers), total
    while open_ones:
        weight = sum(weights[each] for each in open_ones) or 1.0
        now = {each: rest * weights[each] / weight for each in open_ones}
        full = [each for each in open_ones if now[each] > room.get(each, math.inf)]
        if not full or len(full) == len(open_ones):
            share |= now
            break
        for each in full:
            share[each] = room[each]
            rest -= room[each]
        open_ones = [each for each in open_ones if each not in full]
    return share
