"""Producer ids: allocated in blocks of 1,000, as in Kafka, and handed out one by one.

A cluster of one takes its blocks from the znode; where there may be several brokers the controller allocates them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.zk.layout import ProducerIdBlock


class ProducerIdsUnavailableError(Exception):
    """The controller has not allocated producer ids; a retry may succeed."""


class ProducerIds:
    """Hands out unique producer ids; `allocate` returns the next block."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._block: range = range(0)
        self._filling = asyncio.Lock()

    async def next(self) -> int:
        """The next id. Raises `DiskError`, `ZkError`, or `ProducerIdsUnavailableError`."""
        while (producer_id := self.take()) is None:
            await self.fill()
        return producer_id

    def take(self) -> int | None:
        """The next id; None if a block has to be allocated first (`fill`)."""
        if not self._block:
            return None
        producer_id = self._block[0]
        self._block = self._block[1:]
        return producer_id

    async def fill(self) -> None:
        """Allocate a block if the last one is used up. Raises as `next`."""
        async with self._filling:
            if not self._block:
                block = await self._allocate()
                self._block = range(block.first, block.last + 1)
