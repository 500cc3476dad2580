"""The leader finder: works off the set of partitions whose leader is not known.

Source: Apache Kafka 0.8.2.2, `ConsumerFetcherManager.LeaderFinderThread`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.peer.cluster import Cluster
from ottla.zk.tree import ZkError
from ottla.zkconsumer.brokers import ZkBrokers

_log = logging.getLogger("ottla.zkconsumer")

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
