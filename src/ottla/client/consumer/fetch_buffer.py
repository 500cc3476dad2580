"""Fetched data that was not returned to the caller yet.

An event loop adds to it while another thread may take out; a lock, held only briefly, guards what both change.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.consumer.completed_fetch import CompletedFetch
from ottla.client.consumer.subscription_state import FetchPosition, PartitionState
from ottla.client.model import TopicPartition
from ottla.env.threads import Lock

MAX_FETCHES_PER_PARTITION = 2
"""The one in use, and the one after it."""


class _Tail(NamedTuple):
    """The position of a partition's next fetch, valid until a seek."""

    state: PartitionState
    seeks: int
    offset: int
    epoch: int


class FetchBuffer:
    """Completed fetches in order of arrival; falsy when all are released.

    At `max_bytes` it is full, but responses to requests in flight are still added. Callers may be interrupted
    (KeyboardInterrupt) anywhere in it, so the free room is computed on each call, not kept in a counter.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._fetches: deque[CompletedFetch] = deque()
        self._tails: dict[TopicPartition, _Tail] = {}
        self._lock = Lock()

    def __bool__(self) -> bool:
        return any(not fetch.released for fetch in self.fetches())

    @property
    def size_bytes(self) -> int:
        """Bytes of the responses that are not drained yet."""
        return sum(fetch.size_bytes for fetch in self.fetches() if not fetch.released)

    @property
    def is_full(self) -> bool:
        """Whether fetching should pause."""
        return self.size_bytes >= self._max_bytes

    def without_room(self) -> set[TopicPartition]:
        """Partitions that must not be fetched ahead now."""
        counts = Counter(fetch.partition for fetch in self.fetches() if not fetch.released)
        return {partition for partition, count in counts.items() if count >= MAX_FETCHES_PER_PARTITION}

    def next_fetch(self, partition: TopicPartition, state: PartitionState) -> FetchPosition | None:
        """The position to fetch from: after the buffered data, else the partition's own."""
        tail = self._tails.get(partition)
        position = state.position
        if position is None or tail is None or tail.state is not state or tail.seeks != state.seeks:
            return position
        return FetchPosition(tail.offset, tail.epoch, position.current_leader)

    def add(self, fetch: CompletedFetch) -> bool:
        """Add a response; False if it is obsolete."""
        with self._lock:
            at = self.next_fetch(fetch.partition, fetch.state)
            if fetch.seeks != fetch.state.seeks or at is None or at.offset != fetch.fetch_offset:
                return False
            self._fetches.append(fetch)
            self._tails[fetch.partition] = _Tail(fetch.state, fetch.seeks, fetch.end, fetch.end_epoch)
            return True

    def fetches(self) -> list[CompletedFetch]:
        """The completed fetches, oldest first."""
        return list(self._fetches)

    def release(self, fetch: CompletedFetch) -> None:
        """Release the room of a fetch that was taken out; it stays in the buffer until the caller's next call."""
        fetch.released = True

    def reclaim(self, fetch: CompletedFetch) -> None:
        """Mark it unreleased: its records must be taken out again."""
        fetch.released = False

    def remove(self, fetch: CompletedFetch) -> None:
        """Remove a fetch whose records were all returned, or that is obsolete."""
        with self._lock:
            if fetch in self._fetches:
                self._fetches.remove(fetch)

    def put_last(self, partition: TopicPartition) -> None:
        """Let the data of all other partitions come before that of this one."""
        with self._lock:
            self._fetches = deque(sorted(self._fetches, key=lambda fetch: fetch.partition == partition))

    def shed(self) -> None:
        """Make room: drop data of partitions that are not read now (paused), which is fetched again when needed.

        Otherwise it could keep all other partitions from being fetched.
        """
        for partition in {fetch.partition for fetch in self.fetches() if not fetch.state.is_fetchable}:
            self.drop(partition)

    def drop(self, partition: TopicPartition) -> None:
        """Drop all data of the partition: fetch from its position."""
        with self._lock:
            self._tails.pop(partition, None)
            for fetch in [each for each in self._fetches if each.partition == partition]:
                self._fetches.remove(fetch)

    def retain(self, assigned: Mapping[TopicPartition, PartitionState]) -> None:
        """Drop all data of partitions that are not assigned (any more), or were assigned again."""
        with self._lock:
            for fetch in [each for each in self._fetches if assigned.get(each.partition) is not each.state]:
                self._fetches.remove(fetch)
            self._tails = {each: tail for each, tail in self._tails.items() if assigned.get(each) is tail.state}
