"""All replica fetchers of a broker: which of them copies which partition (Kafka's `ReplicaFetcherManager`)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.replicas.fetching.fetcher import FetcherContext, ReplicaFetcher
from ottla.broker.replicas.fetching.machine import PartitionKey
from ottla.broker.replicas.partition import Partition
from ottla.wire.errors import ErrorCode


class FetcherPlace(NamedTuple):
    """Which fetcher: of which leader, which of several, and whether for partitions that are far behind."""

    leader_id: int
    number: int
    catches_up: bool


class ReplicaFetcherManager:
    """The fetchers by leader and number; `count` is how many there are for each leader (`num.replica.fetchers`).

    Partitions that are not in sync and far behind have fetchers of their own: producers wait for the others, and a
    response with gigabytes to come would hold up what was written just now.
    """

    def __init__(self, context: FetcherContext, count: Callable[[], int]) -> None:
        self._context = context
        self._count = count
        self._fetchers: dict[FetcherPlace, ReplicaFetcher] = {}
        self._by_partition: dict[PartitionKey, ReplicaFetcher] = {}
        self._is_stopped = False

    def follow(self, partition: Partition, leader_id: int) -> None:
        """Copy the partition from this leader, in its present leader epoch; from no other any more."""
        self._follow(partition, leader_id, catches_up=False)

    def _follow(self, partition: Partition, leader_id: int, *, catches_up: bool) -> None:
        if self._is_stopped:
            return
        key = (partition.topic, partition.index)
        number = (zlib.crc32(partition.topic.encode()) + partition.index) % max(1, self._count())
        place = FetcherPlace(leader_id, number, catches_up)
        fetcher = self._fetchers.get(place)
        if fetcher is None:
            fetcher = self._fetchers[place] = ReplicaFetcher(leader_id, number, self._context, catches_up, self._moved)
        former = self._by_partition.get(key)
        if former is not None and former is not fetcher:
            former.forget(key)
        self._by_partition[key] = fetcher
        fetcher.follow(partition)

    def _moved(self, fetcher: ReplicaFetcher, partition: Partition) -> None:
        """Have a partition copied by the other kind of fetcher: it is far behind, or has caught up."""
        if self._by_partition.get((partition.topic, partition.index)) is not fetcher:
            return  # it has another role by now
        if fetcher.catches_up or not self._context.is_in_sync(partition):
            self._follow(partition, fetcher.leader_id, catches_up=not fetcher.catches_up)

    def forget(self, topic: str, index: int) -> None:
        """Copy the partition no more; no effect if it is not copied."""
        fetcher = self._by_partition.pop((topic, index), None)
        if fetcher is not None:
            fetcher.forget((topic, index))

    def spread(self) -> None:
        """Divide the partitions among the present number of fetchers."""
        for key, fetcher in list(self._by_partition.items()):
            partition = self._context.replicas.get(*key)
            if partition is not None:
                self._follow(partition, fetcher.leader_id, catches_up=fetcher.catches_up)

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
