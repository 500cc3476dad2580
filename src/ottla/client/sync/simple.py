"""The sync simple consumer: that of `ottla.client`, run in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Generic, Self

from ottla.client.loop_thread import LoopThread
from ottla.client.model import LATEST
from ottla.client.simple import FetchedRecords, PartitionLeader
from ottla.client.simple import SimpleConsumer as AsyncSimpleConsumer
from ottla.records.type_variables import K, V


class SimpleConsumer(Generic[K, V]):
    """Reads partitions, one fetch per call. Any thread may use it.

    Settings, methods and errors are those of `ottla.client.SimpleConsumer`.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self._async: AsyncSimpleConsumer[K, V] = AsyncSimpleConsumer(config, **settings)
        self.config = self._async.config
        self._thread = LoopThread(f"{self.config.client_id}-simple-consumer", self._async.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """As `ottla.client.SimpleConsumer.close`."""
        self._thread.finish()

    def find_leader(self, topic: str, partition: int) -> PartitionLeader:
        """As `ottla.client.SimpleConsumer.find_leader`."""
        return self._thread.run(self._async.find_leader, topic, partition)

    def earliest_or_latest_offset(self, topic: str, partition: int, at: int = LATEST) -> int:
        """As `ottla.client.SimpleConsumer.earliest_or_latest_offset`."""
        return self._thread.run(self._async.earliest_or_latest_offset, topic, partition, at)

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
        return self._thread.run(
            self._async.fetch, topic, partition, offset, max_bytes, min_bytes=min_bytes, max_wait_ms=max_wait_ms
        )
