from __future__ import annotations

import asyncio

from ottla.broker.slices import SLICE_MS, LoopSlices
from ottla.broker.zookeeper_offsets import POSITIONS_PER_TRANSACTION, OffsetZnodes
from ottla.env.clock import VirtualClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from ottla.zk.client import LocalClient
from ottla.zk.store import TreeStore

TRANSACTIONS = 20


def test_others_get_a_turn_between_the_transactions_of_a_large_commit() -> None:
    """The embedded server answers at once, without a turn of the loop."""

    async def scenario() -> None:
        clock = VirtualClock(1)

        class Costly(LocalClient):
            async def multi(self, operations):  # type: ignore[no-untyped-def]
                clock.advance(int(SLICE_MS))
                return await super().multi(operations)

        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        offsets = OffsetZnodes(Costly(TreeStore.open(MemoryDisk(), "/tree", clock), 5), LoopSlices(clock.monotonic_ms))
        task = asyncio.create_task(other())
        positions = [("t", index, 7) for index in range(TRANSACTIONS * POSITIONS_PER_TRANSACTION)]
        assert await offsets.commit("g", positions) == [ErrorCode.NONE] * len(positions)
        task.cancel()
        assert turns >= TRANSACTIONS - 1

    asyncio.run(scenario())
