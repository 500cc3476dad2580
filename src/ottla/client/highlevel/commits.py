"""Commits and fetches of offsets with the retries that the settings say. Pure: time is `sleep`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from ottla.client.errors import ClientError
from ottla.client.highlevel.offset_stores import OffsetStore
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.zk.tree import ZkError

_log = logging.getLogger("ottla.client.highlevel")


class OffsetsNotCommittedError(ClientError):
    """Offsets were not committed, so that what was consumed will be read again; the cause is the last attempt's."""


class Commits:
    """The offsets of one consumer's group, wherever they are kept."""

    def __init__(
        self, store: OffsetStore, max_retries: int, backoff_ms: int, sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        self._store = store
        self._max_retries = max_retries
        self._backoff_s = backoff_ms / 1000
        self._sleep = sleep

    async def fetch(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset of each partition, -1 where none is kept; tried until the coordinator answers. `ZkError`s."""
        while True:
            try:
                return await self._store.fetch(partitions)
            except ClientError as error:
                _log.warning("offsets cannot be fetched, and are asked for again: %s", error)
            await self._sleep(self._backoff_s)

    async def commit(self, offsets: Mapping[TopicPartition, int], *, retry_on_failure: bool = True) -> None:
        """Keep these, tried `offsets.commit.max.retries` times more where it fails. OffsetsNotCommittedError."""
        with_metadata = {each: OffsetAndMetadata(offset) for each, offset in offsets.items()}
        await self.commit_all(with_metadata, retry_on_failure=retry_on_failure)

    async def commit_all(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, retry_on_failure: bool = True
    ) -> None:
        """As `commit`, with metadata for each partition."""
        if not offsets:
            return
        retries = self._max_retries if retry_on_failure else 0
        while True:
            try:
                await self._store.commit(offsets)
                return
            except (ClientError, ZkError) as error:
                if retries == 0:
                    raise OffsetsNotCommittedError(f"offsets are not committed: {error}", retriable=True) from error
                _log.info("offsets are committed again after a failure: %s", error)
            retries -= 1
            await self._sleep(self._backoff_s)
