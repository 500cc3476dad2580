"""Producer ids: allocated from the znode in blocks of 1,000, as in Kafka, and handed out one by one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.broker.control.znodes import take_producer_ids

if TYPE_CHECKING:
    from ottla.zk.client import ZkClient


class ProducerIds:
    """Hands out unique producer ids. `highest_in_logs` is the highest id found in the broker's logs, -1 for none."""

    def __init__(self, zk: ZkClient, broker_id: int, highest_in_logs: int = -1) -> None:
        self._zk = zk
        self._broker_id = broker_id
        self._highest_in_logs = highest_in_logs
        self._block: range = range(0)
        self._taking = asyncio.Lock()

    async def next(self) -> int:
        """The next id. Raises `DiskError`, `ZkError`."""
        async with self._taking:
            if not self._block:
                block = await take_producer_ids(self._zk, self._broker_id, self._highest_in_logs)
                self._block = range(block.first, block.last + 1)
            producer_id = self._block[0]
            self._block = self._block[1:]
            return producer_id
