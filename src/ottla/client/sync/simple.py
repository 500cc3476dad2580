"""The sync simple consumer: that of `ottla.client`, run in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic

from ottla.client.loop_thread import LoopThread
from ottla.client.simple import FetchedRecords
from ottla.client.simple import SimpleConsumer as AsyncSimpleConsumer
from ottla.client.sync.blocking import SyncClient, blocking
from ottla.records.type_variables import K, V


class SimpleConsumer(SyncClient, Generic[K, V]):
    """Reads partitions, one fetch per call. Any thread may use it.

    Settings, methods and errors are those of `ottla.client.SimpleConsumer`.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self._async: AsyncSimpleConsumer[K, V] = AsyncSimpleConsumer(config, **settings)
        self.config = self._async.config
        self._thread = LoopThread(f"{self.config.client_id}-simple-consumer", self._async.close)

    find_leader = blocking(AsyncSimpleConsumer.find_leader)
    earliest_or_latest_offset = blocking(AsyncSimpleConsumer.earliest_or_latest_offset)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int | None = None,
        *,
        min_bytes: int | None = None,
        max_wait_ms: int | None = None,
    ) -> FetchedRecords[K, V]:
        """As `ottla.client.SimpleConsumer.fetch`."""
        return self._run(
            self._async.fetch, topic, partition, offset, max_bytes, min_bytes=min_bytes, max_wait_ms=max_wait_ms
        )
