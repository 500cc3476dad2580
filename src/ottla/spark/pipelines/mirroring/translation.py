"""Offsets of a source's partition translated to offsets of its mirror, by what was synced: MirrorMaker 2's rule.

The result is never ahead of what it stands for: no record that the group has not consumed is skipped. It may be behind,
since not every record has a sync.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

MOST_SYNCS = 1_024
"""Syncs held per partition; beyond that they are thinned."""

_FINE_BITS = 2
"""A thinned history keeps 2 to this power of syncs in each doubling of the distance from its newest."""


class Sync(NamedTuple):
    """An offset of the source, and that of the same record at the target."""

    upstream: int
    downstream: int


class SyncHistory:
    """The syncs of one partition, upstream and downstream offsets both rising."""

    def __init__(self) -> None:
        self._syncs: list[Sync] = []

    def __len__(self) -> int:
        return len(self._syncs)

    @property
    def newest(self) -> Sync | None:
        """The last one added."""
        return self._syncs[-1] if self._syncs else None

    @property
    def syncs(self) -> tuple[Sync, ...]:
        """All that are held, oldest first."""
        return tuple(self._syncs)

    def add(self, sync: Sync) -> None:
        """Add the newest sync, and drop those that it contradicts: a batch was sent again, or a topic was recreated."""
        while self._syncs and (self.newest_upstream >= sync.upstream or self._syncs[-1].downstream >= sync.downstream):
            self._syncs.pop()
        self._syncs.append(sync)
        if len(self._syncs) > MOST_SYNCS:
            self._syncs = thinned(self._syncs)

    @property
    def newest_upstream(self) -> int:
        """The newest upstream offset; -1 without syncs."""
        return self._syncs[-1].upstream if self._syncs else -1

    def translate(self, upstream: int) -> int | None:
        """The offset of the target for a group that has consumed up to `upstream`; None if all syncs are later."""
        found = bisect_right(self._syncs, upstream, key=lambda sync: sync.upstream)
        if not found:
            return None
        nearest = self._syncs[found - 1]
        # How many of the records after the sync reached the target is not known, but they are behind it.
        return nearest.downstream + (upstream > nearest.upstream)


def thinned(syncs: list[Sync]) -> list[Sync]:
    """Some of the syncs, the closer to the newest the more; the oldest and the newest are among them."""
    newest = syncs[-1].upstream
    kept, last_bucket = [], -1
    for sync in syncs:
        bucket = _bucket(newest - sync.upstream)
        # The oldest of a bucket: it grows into the next one, where younger ones would be dropped on and on.
        if bucket != last_bucket:
            kept.append(sync)
        last_bucket = bucket
    return kept


def _bucket(distance: int) -> int:
    """A number that grows with the logarithm of the distance."""
    size = distance.bit_length()
    if size <= _FINE_BITS + 1:
        return distance
    shift = size - _FINE_BITS - 1
    return (shift << _FINE_BITS) + (distance >> shift)
