"""Selects the fetched data that `poll` returns: of partitions that are assigned and not paused, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.client.consumer.completed_fetch import CompletedFetch, Records
from ottla.client.consumer.fetch_buffer import FetchBuffer
from ottla.client.consumer.subscription_state import (
    FetchPosition,
    OffsetReset,
    PartitionState,
    SubscriptionState,
)
from ottla.client.errors import BrokerError, ClientError
from ottla.client.model import TopicPartition
from ottla.records.consumed import ConsumerRecord
from ottla.wire.errors import ErrorCode

log = logging.getLogger(__name__)

T = TypeVar("T")


class Move(NamedTuple):
    """How far the returned records advance a partition; `settle` makes that its position."""

    state: PartitionState
    seeks: int
    position: FetchPosition

    def settle(self) -> None:
        """Set the position, unless seek was called meanwhile."""
        if self.state.seeks == self.seeks:
            self.state.position = self.position


class Collected(NamedTuple, Generic[T]):
    """Records per partition, the moves of their positions, the number of records, and whether fetches were finished,
    so that there is room for others.
    """

    gathered: dict[TopicPartition, list[T]]
    moves: dict[TopicPartition, Move]
    records: int
    drained: bool


class FetchCollector:
    """Takes records or Arrow rows out of the buffer."""

    def __init__(self, subscriptions: SubscriptionState, buffer: FetchBuffer) -> None:
        self._subscriptions = subscriptions
        self._buffer = buffer

    def collect(
        self,
        most: int,
        take: Callable[[CompletedFetch, int], tuple[list[T], int]],
        *,
        most_partitions: int = 0,
        once: bool = False,
    ) -> Collected[T]:
        """Call `take(fetch, most)`, which returns records and their number, per fetch until there are `most` records.

        With `once`, stop after the first `take` with a result. Raises an error of a partition (OffsetOutOfRange,
        CorruptBatchError, …) if no records come before it; else those are returned first.
        """
        gathered: dict[TopicPartition, list[T]] = {}
        moves: dict[TopicPartition, Move] = {}
        drained = False
        wanted = most
        for fetch in self._buffer.fetches():
            if most <= 0 or (most_partitions and len(gathered) >= most_partitions):
                break
            if not self._ready(fetch, moves):
                continue
            if fetch.error is not None and gathered:
                break  # a reset now would skip the gathered records, if this call is interrupted
            try:
                while most > 0 and not fetch.is_drained:
                    self._raise_error(fetch)
                    fetch.torn = True
                    taken, count = take(fetch, most)
                    fetch.torn = False
                    moves[fetch.partition] = self._moved(fetch)
                    if count:
                        most -= count
                        if (before := gathered.get(fetch.partition)) is None:
                            gathered[fetch.partition] = taken
                        else:
                            before.extend(taken)
                        if once:
                            wanted, most = count, 0
            except ClientError:
                fetch.torn = False
                if gathered:
                    break
                self._buffer.put_last(fetch.partition)  # or no other partition would be read until a seek
                # Positions before the error are kept.
                for move in moves.values():
                    move.settle()
                raise
            if fetch.is_drained:
                drained = True
                self._buffer.release(fetch)
        return Collected(gathered, moves, wanted - most, drained)

    def _moved(self, fetch: CompletedFetch) -> Move:
        known = fetch.state.position
        leader = known.current_leader if known is not None else FetchPosition(0).current_leader
        return Move(fetch.state, fetch.seeks, FetchPosition(fetch.position, fetch.epoch, leader))

    def _ready(self, fetch: CompletedFetch, moves: dict[TopicPartition, Move]) -> bool:
        """Whether records of the fetch may be returned now; drops it if obsolete."""
        state = self._subscriptions.state_or_none(fetch.partition)
        if state is not fetch.state or state.seeks != fetch.seeks or state.position is None:
            self._buffer.remove(fetch)
            return False
        if not state.is_fetchable:
            return False
        moved = moves.get(fetch.partition)
        at = (moved.position if moved is not None else state.position).offset
        if at == fetch.position and not fetch.torn:
            if fetch.released and moved is None:
                self._buffer.remove(fetch)
            return not fetch.released
        if fetch.released and at >= fetch.end:
            self._buffer.remove(fetch)  # the call that drained it took the next fetch of the partition, too
            return False
        if not fetch.fetch_offset <= at < fetch.end:
            self._buffer.drop(fetch.partition)
            return False
        # An interrupted call took records out and returned none, or an iteration was left early. Reclaimed first: this
        # call may be interrupted, too, and a fetch that is released and stands at the position is removed.
        self._buffer.reclaim(fetch)
        fetch.rewind(at)
        return True

    def _raise_error(self, fetch: CompletedFetch) -> None:
        """Raise the error of the fetch, or reset the position if auto.offset.reset allows that."""
        error = fetch.error
        if error is None:
            return
        out_of_range = isinstance(error, BrokerError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE
        if out_of_range and self._subscriptions.default_reset is not OffsetReset.NONE:
            log.info("offset %d of %s is out of range: the position is reset", fetch.position, fetch.partition)
            self._subscriptions.request_reset(fetch.partition)
            fetch.error = None
            fetch.position = fetch.end
            return
        # It is fetched again after the caller has handled the error.
        self._buffer.drop(fetch.partition)
        raise error


class HandedOut:
    """Records that were returned but do not count as read yet; the caller's next call makes them so.

    Set `moves` as the last step of a call; call `settle` at the beginning of the next.
    """

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
