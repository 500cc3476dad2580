"""Commits and fetches of offsets with the retries that the settings say. They have no clock: time is `sleep`.

One attempt to commit is made at a time, each with what is owned and consumed by then. So a commit that takes long, or
is made again, puts no partition back behind what its owner of that time has committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from ottla.client.errors import BrokerError, ClientError
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.zk.tree import ZkError
from ottla.zkconsumer.offset_stores import OffsetStore

_log = logging.getLogger("ottla.zkconsumer")


class OffsetsNotCommittedError(ClientError):
    """Offsets were not committed, so that what was consumed will be read again; the cause is the last attempt's."""


class OffsetCommits:
    """The offsets of one consumer's group, wherever they are kept."""

    def __init__(
        self, store: OffsetStore, max_retries: int, backoff_ms: int, sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        self._store = store
        self._max_retries = max_retries
        self._backoff_s = backoff_ms / 1000
        self._sleep = sleep
        #: Held by each attempt to commit; who holds it changes what is owned.
        self.standing_still = asyncio.Lock()

    async def fetch(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset of each partition, -1 where none is kept; tried until the coordinator answers.

        Raises `ZkError`s, and the BrokerErrors that another attempt would not cure.
        """
        while True:
            try:
                return await self._store.fetch(partitions)
            except ClientError as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    raise
                _log.warning("offsets cannot be fetched, and are asked for again: %s", error)
            await self._sleep(self._backoff_s)

    async def commit(
        self, consumed: Callable[[], Mapping[TopicPartition, int]], *, retry_on_failure: bool = True
    ) -> None:
        """Commit what `consumed()` returns at each attempt, with up to `offsets.commit.max.retries` retries.

        Raises OffsetsNotCommittedError.
        """

        async def attempt() -> None:
            offsets = {each: OffsetAndMetadata(offset) for each, offset in consumed().items()}
            if offsets:
                await self._store.commit(offsets, changed_only=True)

        await self._tried(attempt, retry_on_failure)

    async def commit_all(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, retry_on_failure: bool = True
    ) -> None:
        """As `commit`, with offsets and metadata that the application named: they are written whatever is there."""
        if offsets:
            await self._tried(lambda: self._store.commit(offsets), retry_on_failure)

    async def _tried(self, attempt: Callable[[], Awaitable[None]], retry_on_failure: bool) -> None:
        retries = self._max_retries if retry_on_failure else 0
        while True:
            try:
                async with self.standing_still:
                    await attempt()
                return
            except (ClientError, ZkError) as error:
                if retries == 0:
                    raise OffsetsNotCommittedError(f"offsets are not committed: {error}", retriable=True) from error
                _log.info("offsets are committed again after a failure: %s", error)
            retries -= 1
            await self._sleep(self._backoff_s)
