"""All replica fetchers of a broker: which of them copies which partition (Kafka's `ReplicaFetcherManager`)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.replicas.fetching.fetcher import FetcherSurroundings, ReplicaFetcher

if TYPE_CHECKING:
    from ottla.broker.replicas.fetching.machine import PartitionKey
    from ottla.broker.replicas.partition import Partition
    from ottla.wire.errors import ErrorCode


class ReplicaFetcherManager:
    """The fetchers by leader and number; `count` is how many there are for each leader (`num.replica.fetchers`)."""

    def __init__(self, surroundings: FetcherSurroundings, count: Callable[[], int]) -> None:
        self._surroundings = surroundings
        self._count = count
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._by_partition: dict[PartitionKey, ReplicaFetcher] = {}
        self._is_stopped = False

    def follow(self, partition: Partition, leader_id: int) -> None:
        """Copy the partition from this leader, in its present leader epoch; from no other any more."""
        if self._is_stopped:
            return
        key = (partition.topic, partition.index)
        number = (zlib.crc32(partition.topic.encode()) + partition.index) % max(1, self._count())
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, number] = ReplicaFetcher(leader_id, number, self._surroundings)
        former = self._by_partition.get(key)
        if former is not None and former is not fetcher:
            former.forget(key)
        self._by_partition[key] = fetcher
        fetcher.follow(partition)

    def forget(self, topic: str, index: int) -> None:
        """Copy the partition no more; no effect if it is not copied."""
        fetcher = self._by_partition.pop((topic, index), None)
        if fetcher is not None:
            fetcher.forget((topic, index))

    def spread(self) -> None:
        """Divide the partitions among as many fetchers as there are to be now."""
        for key, fetcher in list(self._by_partition.items()):
            partition = self._surroundings.replicas.get(*key)
            if partition is not None:
                self.follow(partition, fetcher.leader_id)

    @property
    def failed(self) -> dict[PartitionKey, ErrorCode]:
        """The partitions that are not copied until they get a new role, and why."""
        return {key: error for fetcher in self._fetchers.values() for key, error in fetcher.machine.failed.items()}

    @property
    def largest_lag(self) -> int:
        """The largest lag of a partition, in records."""
        return max((fetcher.machine.largest_lag for fetcher in self._fetchers.values()), default=0)

    @property
    def bytes_in(self) -> int:
        """Bytes of batches copied so far."""
        return sum(fetcher.bytes_in for fetcher in self._fetchers.values())

    async def stop(self) -> None:
        """End all fetchers."""
        self._is_stopped = True
        await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers.values()))
