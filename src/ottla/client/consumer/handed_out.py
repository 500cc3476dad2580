"""Records that were returned but do not count as read yet; the caller's next call makes them so. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import TYPE_CHECKING, Any

from ottla.client.model import TopicPartition
from ottla.records.consumed import ConsumerRecord

if TYPE_CHECKING:
    from ottla.client.consumer.completed_fetch import Records
    from ottla.client.consumer.fetch_collector import Move


class HandedOut:
    """Set `moves` as the last step of a call; call `settle` at the beginning of the next."""

    __slots__ = ("_iterating", "moves")

    def __init__(self) -> None:
        self.moves: dict[TopicPartition, Move] | None = None
        """How far the last call advanced the positions. If a call is interrupted before this is set, its records are
        returned again."""
        self._iterating: tuple[Iterator[ConsumerRecord[Any, Any]], Records, Move] | None = None

    def settle(self, *, stop_iteration: bool = True) -> None:
        """Apply the moves to the positions. A running iteration continues from its place, unless it is stopped."""
        moves = self.moves
        if moves is not None:
            for move in moves.values():  # repeated if this is interrupted, which is harmless
                move.settle()
            self.moves = None
        if self._iterating is not None:
            self._settle_iteration(stop=stop_iteration)

    def _settle_iteration(self, *, stop: bool) -> None:
        assert self._iterating is not None
        iterator, records, move = self._iterating
        left = length_hint(iterator)
        if left == 0:
            move.settle()
        elif left < len(records):
            last = records[len(records) - left - 1]
            read = move.position._replace(offset=last.offset + 1, offset_epoch=last.leader_epoch)
            move._replace(position=read).settle()
        if stop:
            self._iterating = None
            iterator.__setstate__(len(records))  # type: ignore[attr-defined]

    def iterate(self, records: Records, move: Move) -> Iterator[ConsumerRecord[Any, Any]]:
        """Return an iterator whose place is read only when a position is needed, so that iterating costs no more."""
        iterator = iter(records)
        self._iterating = iterator, records, move
        return iterator
