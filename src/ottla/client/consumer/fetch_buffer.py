"""What was fetched ahead and is not handed out yet.

An event loop adds to it while another thread may take out: what they both touch is held by a lock for moments.
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
"""One that is worked on, and the one after it."""


class _Tail(NamedTuple):
    """Where the next fetch of a partition goes on, as long as nobody seeks."""

    state: PartitionState
    seeks: int
    offset: int
    epoch: int


class FetchBuffer:
    """Completed fetches in the order of their arrival; false where all are released.

    It is full at `max_bytes`, but takes in what was under way. A caller may be interrupted (KeyboardInterrupt) anywhere
    in it: what there is room for is counted when it is asked, never kept beside the fetches.
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
        """Bytes of the answers that are not drained yet."""
        return sum(fetch.size_bytes for fetch in self.fetches() if not fetch.released)

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be fetched for now."""
        return self.size_bytes >= self._max_bytes

    def without_room(self) -> set[TopicPartition]:
        """Partitions that may not be fetched ahead."""
        counts = Counter(fetch.partition for fetch in self.fetches() if not fetch.released)
        return {partition for partition, count in counts.items() if count >= MAX_FETCHES_PER_PARTITION}

    def next_fetch(self, partition: TopicPartition, state: PartitionState) -> FetchPosition | None:
        """From where to fetch: behind what is here, else from the position."""
        tail = self._tails.get(partition)
        position = state.position
        if position is None or tail is None or tail.state is not state or tail.seeks != state.seeks:
            return position
        return FetchPosition(tail.offset, tail.epoch, position.current_leader)

    def add(self, fetch: CompletedFetch) -> bool:
        """Take in an answer; False where it is not wanted any more."""
        with self._lock:
            at = self.next_fetch(fetch.partition, fetch.state)
            if fetch.seeks != fetch.state.seeks or at is None or at.offset != fetch.fetch_offset:
                return False
            self._fetches.append(fetch)
            self._tails[fetch.partition] = _Tail(fetch.state, fetch.seeks, fetch.end, fetch.end_epoch)
            return True

    def fetches(self) -> list[CompletedFetch]:
        """What is here, oldest first."""
        return list(self._fetches)

    def release(self, fetch: CompletedFetch) -> None:
        """All of it was taken out, so there is room for another; it stays until the caller is back for more."""
        fetch.released = True

    def reclaim(self, fetch: CompletedFetch) -> None:
        """Its records are to be taken out again."""
        fetch.released = False

    def remove(self, fetch: CompletedFetch) -> None:
        """What was taken out of it has arrived, or all of it is void."""
        with self._lock:
            if fetch in self._fetches:
                self._fetches.remove(fetch)

    def shed(self) -> None:
        """Make room: what is here of partitions that are not read now (paused ones) is fetched again when it is wanted.

        Otherwise they could keep all others from being fetched.
        """
        for partition in {fetch.partition for fetch in self.fetches() if not fetch.state.is_fetchable}:
            self.drop(partition)

    def drop(self, partition: TopicPartition) -> None:
        """All of the partition is void: fetch from its position."""
        with self._lock:
            self._tails.pop(partition, None)
            for fetch in [each for each in self._fetches if each.partition == partition]:
                self._fetches.remove(fetch)

    def retain(self, assigned: Mapping[TopicPartition, PartitionState]) -> None:
        """Forget everything of partitions that are not assigned (any more), or anew."""
        with self._lock:
            for fetch in [each for each in self._fetches if assigned.get(each.partition) is not each.state]:
                self._fetches.remove(fetch)
            self._tails = {each: tail for each, tail in self._tails.items() if assigned.get(each) is tail.state}
