"""The fetchers of a consumer: one for each broker, times `num.consumer.fetchers`.

A partition waits with the leader finder until its leader is known, goes to a fetcher of that broker, and comes back
when the broker does not lead it any more; its queue and its offsets stay with it.

Source: Apache Kafka 0.8.2.2, `AbstractFetcherManager` and `ConsumerFetcherManager` with its `LeaderFinderThread`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

from ottla.assign.java_order import string_hash
from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.peer.cluster import Cluster
from ottla.zk.tree import ZkError
from ottla.zkconsumer.brokers import ZkBrokers
from ottla.zkconsumer.chunk_queue import ChunkQueue
from ottla.zkconsumer.fetcher import ConsumerFetcher, FetcherSettings
from ottla.zkconsumer.partition_info import PartitionTopicInfo

_log = logging.getLogger("ottla.zkconsumer")

_JAVA_INT = 1 << 32


def fetcher_number(partition: TopicPartition, fetchers: int) -> int:
    """Which of a broker's fetchers reads the partition, as Kafka reckons it."""
    signed = (31 * string_hash(partition.topic) + partition.partition) & (_JAVA_INT - 1)
    if signed >= _JAVA_INT // 2:
        signed -= _JAVA_INT
    return (0 if signed == -_JAVA_INT // 2 else abs(signed)) % fetchers


Found = Callable[[Cluster, dict[TopicPartition, int]], None]
"""Called with the cluster and the node id of each leader that was found."""


class LeaderFinder:
    """Looks for leaders as long as there are partitions without one, with a pause between two looks."""

    def __init__(self, brokers: ZkBrokers, backoff_ms: int, found: Found) -> None:
        self._brokers = brokers
        self._backoff_s = backoff_ms / 1000
        self._found = found
        self._some = asyncio.Event()
        self.no_leader: set[TopicPartition] = set()
        #: The last failure; logged only when it changes, as the attempt is repeated very soon.
        self._problem = ""

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Look for their leaders."""
        self.no_leader.update(partitions)
        self._some.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._some.wait()
            self._some.clear()
            try:
                await self._look()
                self._problem = ""
            except (ClientError, ZkError) as error:
                level = logging.INFO if str(error) == self._problem else logging.WARNING
                _log.log(level, "leaders are not known of %s: %s", _some_of(self.no_leader), error)
                self._problem = str(error)
            except Exception:
                _log.exception("the search for leaders broke, and continues")
            await asyncio.sleep(self._backoff_s)
            if self.no_leader:
                self._some.set()

    async def _look(self) -> None:
        cluster = await self._brokers.refresh()
        topics = sorted({each.topic for each in self.no_leader})
        metadata = await cluster.refresh(topics)
        leaders = {each: metadata.leader(*each) for each in self.no_leader}
        known = {each: leader for each, leader in leaders.items() if leader is not None and leader in metadata.nodes}
        self.no_leader -= known.keys()
        self._found(cluster, known)


def _some_of(partitions: Collection[TopicPartition]) -> str:
    first = ", ".join(map(str, sorted(partitions)[:3]))
    return f"{first} and {len(partitions) - 3} more" if len(partitions) > 3 else first


class FetcherManager:
    """`FetchControl` over brokers. Use it from one event loop."""

    def __init__(
        self, brokers: ZkBrokers, settings: FetcherSettings, fetchers: int, refresh_leader_backoff_ms: int
    ) -> None:
        self._brokers = brokers
        self._settings = settings
        self._fetchers_per_broker = fetchers
        self._backoff_ms = refresh_leader_backoff_ms
        self._queues: list[ChunkQueue] = []
        self._infos: Mapping[TopicPartition, PartitionTopicInfo] = {}
        self._finder: LeaderFinder | None = None
        self._fetchers: dict[tuple[int, int], ConsumerFetcher] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add_queues(self, queues: Iterable[ChunkQueue]) -> None:
        """The queues of the consumer's streams."""
        loop = asyncio.get_running_loop()

        def on_room() -> None:
            with suppress(RuntimeError):  # the loop is closed: nothing is fetched any more
                loop.call_soon_threadsafe(self._room)

        for queue in queues:
            queue.on_room = on_room
            self._queues.append(queue)

    async def stop(self) -> None:
        """See `FetchControl.stop`."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                _log.error("a fetcher failed", exc_info=ended)
        self._fetchers.clear()
        self._finder = None
        for queue in self._queues:
            await queue.clear()

    def start(self, assignments: Mapping[TopicPartition, PartitionTopicInfo]) -> None:
        """See `FetchControl.start`."""
        self._infos = dict(assignments)
        self._finder = finder = LeaderFinder(self._brokers, self._backoff_ms, self._found)
        self._spawn(finder.run())
        finder.add(self._infos)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        return task

    def _found(self, cluster: Cluster, leaders: Mapping[TopicPartition, int]) -> None:
        by_fetcher: dict[tuple[int, int], dict[TopicPartition, PartitionTopicInfo]] = {}
        for partition, leader in leaders.items():
            key = (leader, fetcher_number(partition, self._fetchers_per_broker))
            by_fetcher.setdefault(key, {})[partition] = self._infos[partition]
        for key, infos in by_fetcher.items():
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                fetcher = ConsumerFetcher(cluster, *key, self._settings, self._give_back)
                fetcher.add(infos)
                self._fetchers[key] = fetcher
                self._spawn(self._run(key, fetcher))
            else:
                fetcher.add(infos)

    async def _run(self, key: tuple[int, int], fetcher: ConsumerFetcher) -> None:
        await fetcher.run()
        # Nothing may come in between: who adds a partition must find a fetcher that runs, or none.
        if self._fetchers.get(key) is fetcher:
            del self._fetchers[key]
        current = asyncio.current_task()
        if current is not None:
            self._tasks.discard(current)

    def _give_back(self, partitions: Collection[TopicPartition]) -> None:
        if self._finder is not None:
            self._finder.add(partitions)

    def _room(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.room()
