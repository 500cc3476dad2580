"""What was handed out and is not counted as read yet: it is when the caller is back for more. Pure."""

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
    """Set `moves` as the very last step of a call; `settle` at the beginning of the next."""

    __slots__ = ("_iterating", "moves")

    def __init__(self) -> None:
        self.moves: dict[TopicPartition, Move] | None = None
        """How far a call read by what it gave. Whatever interrupts the call before it is set, the records are given
        again."""
        self._iterating: tuple[Iterator[ConsumerRecord[Any, Any]], Records, Move] | None = None

    def settle(self, *, stop_iteration: bool = True) -> None:
        """Make positions of it. An iteration that is under way goes on behind its place, unless it is stopped."""
        moves = self.moves
        if moves is not None:
            for move in moves.values():  # again, if this is interrupted: that does no harm
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
        """An iterator whose place is asked for when a position is needed, so that the loop over it costs nothing."""
        iterator = iter(records)
        self._iterating = iterator, records, move
        return iterator
