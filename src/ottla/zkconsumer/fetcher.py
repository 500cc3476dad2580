"""A fetcher: reads the partitions that one broker leads, chunk by chunk, into the queues of their streams.

Source: Apache Kafka 0.8.2.2, `AbstractFetcherThread` and `ConsumerFetcherThread`. There, a fetcher that meets a full
queue waits, and all other partitions of its broker wait with it. Here, partitions whose queue is full are left out of
the request. One response may bring several partitions of one queue, so a queue may exceed `queued.max.message.chunks`
by one chunk for each of them. While partitions are left out the broker is not asked to wait for records, since a queue
may have room at any moment; the fetcher waits instead, and is woken by the thread that made room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from ottla.client.consumer.completed_fetch import CompletedFetch, Decoding
from ottla.client.consumer.subscription_state import PartitionState
from ottla.client.errors import BrokerError, ClientError
from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.client.offsets import list_offsets
from ottla.peer.cluster import FETCH, Cluster
from ottla.peer.fetch import FetchLimits, fetch_without_session, partitions_in
from ottla.peer.fetch_session import NO_LEADER_EPOCH, WantedFetch
from ottla.peer.model import READ_UNCOMMITTED
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchResponse, PartitionData
from ottla.zkconsumer.chunk_queue import ChunkQueue, FetchedDataChunk
from ottla.zkconsumer.partition_info import PartitionTopicInfo

_log = logging.getLogger("ottla.zkconsumer")

MAX_FETCH_BYTES = 50 * 1024 * 1024
"""Limit on the bytes of one response; partitions take turns at its beginning."""


class FetcherSettings(NamedTuple):
    """Limits of a fetch; bytes are those of one partition."""

    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    reset: str
    """`smallest` or `largest`: where to begin without an offset, or with one out of range."""


class ConsumerFetcher:
    """Fetches until it has no partition left. `give_back` gets those that this broker does not lead (any more)."""

    def __init__(
        self,
        cluster: Cluster,
        node_id: int,
        number: int,
        settings: FetcherSettings,
        give_back: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._purpose = f"{FETCH}-{number}"
        self._settings = settings
        self._give_back = give_back
        self._partitions: dict[TopicPartition, PartitionTopicInfo] = {}
        self._changed = asyncio.Event()
        self._decoding = Decoding()
        self._has_fetched = False

    def add(self, infos: Mapping[TopicPartition, PartitionTopicInfo]) -> None:
        """Fetch these, too."""
        self._partitions.update(infos)
        self._changed.set()

    def room(self) -> None:
        """Some queue is not full any more."""
        self._changed.set()

    async def run(self) -> None:
        """Fetch until nothing is left."""
        while self._partitions:
            try:
                await self._round()
                self._has_fetched = True
            except ClientError as error:
                # Logged once: until the broker is back, every attempt of the leader finder fails here.
                level = logging.WARNING if self._has_fetched else logging.INFO
                _log.log(level, "broker %d is not fetched from: %s", self._node_id, error)
                self._leave(list(self._partitions))
            except Exception:
                _log.exception("the fetcher of broker %d broke", self._node_id)
                self._leave(list(self._partitions))

    async def _round(self) -> None:
        self._changed.clear()
        await self._find_offsets([each for each, info in self._partitions.items() if info.fetched_offset < 0])
        wanted = {each: info for each, info in self._partitions.items() if not info.queue.is_full}
        if not wanted:
            if self._partitions:
                await self._changed.wait()
            return
        # Where partitions are left out, the broker must not be waited for: their queues may have room any moment.
        waits = len(wanted) == len(self._partitions)
        brought = await self._fetch(wanted, self._settings.max_wait_ms if waits else 0)
        if not waits and not brought:
            try:
                async with asyncio.timeout(self._settings.max_wait_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def _fetch(self, wanted: Mapping[TopicPartition, PartitionTopicInfo], max_wait_ms: int) -> bool:
        """Send one request; returns whether it brought any records."""
        max_bytes, min_bytes = self._settings.max_bytes, self._settings.min_bytes
        fetches = {each: WantedFetch(info.fetched_offset, NO_LEADER_EPOCH, max_bytes) for each, info in wanted.items()}
        limits = FetchLimits(max(MAX_FETCH_BYTES, max_bytes), min_bytes, max_wait_ms)
        request = fetch_without_session(fetches, limits)
        try:
            answer: FetchResponse = await self._cluster.request(self._node_id, request, purpose=self._purpose)
        except asyncio.CancelledError:
            # The broker may still wait for records, and would answer the next fetch after that.
            self._cluster.disconnect(self._node_id, self._purpose)
            raise
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, "the fetch is refused")
        brought = False
        out_of_range: list[TopicPartition] = []
        for partition, data in partitions_in(answer):
            info = wanted.get(partition)
            if info is None or self._partitions.get(partition) is not info:
                continue
            if data.error_code == ErrorCode.NONE:
                info.refused = ErrorCode.NONE
                brought |= self._take(info, data)
            elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                out_of_range.append(partition)
            else:
                why = BrokerError(data.error_code, f"{partition} cannot be read from broker {self._node_id}")
                # Logged once: it is tried again as soon as the leader is found, which may be the same.
                is_news = not why.retriable and info.refused != data.error_code
                _log.log(logging.WARNING if is_news else logging.INFO, "%s; its leader is looked for", why)
                info.refused = ErrorCode.NONE if why.retriable else data.error_code
                self._leave([partition])
        await self._find_offsets(out_of_range)
        if answer.throttle_time_ms > 0:
            await asyncio.sleep(answer.throttle_time_ms / 1000)
        return brought

    def _take(self, info: PartitionTopicInfo, data: PartitionData) -> bool:
        if not data.records:
            return False
        partition = info.partition
        fetch = CompletedFetch(
            partition, PartitionState(), 0, info.fetched_offset, memoryview(data.records), self._decoding
        )
        assert isinstance(info.queue, ChunkQueue)
        info.queue.put(FetchedDataChunk(fetch, info))
        del self._partitions[partition]
        if fetch.error is not None:
            _log.error("%s is not fetched any more: %s", partition, fetch.error)
        else:
            info.fetched_offset = fetch.end
            self._partitions[partition] = info  # at the end, so that all get their turn
        return True

    async def _find_offsets(self, partitions: Collection[TopicPartition]) -> None:
        """Set the offset of partitions that have none, or one that is not in the log."""
        if not partitions:
            return
        at = EARLIEST if self._settings.reset == "smallest" else LATEST
        found, failed = await list_offsets(
            self._cluster, self._node_id, dict.fromkeys(partitions, at), READ_UNCOMMITTED
        )
        for partition, position in found.items():
            info = self._partitions.get(partition)
            if info is not None and position is not None:
                _log.info("%s is read from offset %d on (%s)", partition, position.offset, self._settings.reset)
                info.reset(position.offset)
        for error in failed.values():
            _log.info("%s; the leader is looked for", error)
        self._leave([*failed, *(each for each, position in found.items() if position is None)])

    def _leave(self, partitions: Collection[TopicPartition]) -> None:
        left = [each for each in partitions if self._partitions.pop(each, None) is not None]
        if left:
            self._give_back(left)
