"""A broker that starts while answers of ZooKeeper get lost: each change may be done or not, and the start goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.broker.control.coordination import Coordination
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.clock import SystemClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import ConnectionLossError, LocalClient
from ottla.zk.store import TreeStore
from ottla.zk.tree import Operation, Result

SESSION_TIMEOUT_MS = 6_000
#: The changes of a first start: the cluster's id, the nodes that every cluster has, the registration.
CHANGES = 3


class Unsteady(LocalClient):
    """A session whose change number `lost` gets no answer; `is_done` says whether it is made."""

    def __init__(self, store: TreeStore, session_id: int, lost: int, *, is_done: bool) -> None:
        super().__init__(store, session_id)
        self.lost = lost
        self.is_done = is_done
        self.changes: list[list[str]] = []

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        self.changes.append([operation.path for operation in operations])
        if len(self.changes) - 1 != self.lost:
            return await super().multi(operations)
        if self.is_done:
            await super().multi(operations)
        raise ConnectionLossError(operations[0].path)


@pytest.mark.spec("Z3")
@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("lost", range(CHANGES))
def test_each_change_of_a_start_bears_a_lost_answer(tmp_path: Path, lost: int, is_done: bool) -> None:
    async def scenario() -> None:
        store = TreeStore.open(MemoryDisk(), "/t", SystemClock())
        zk = Unsteady(store, 2, lost, is_done=is_done)
        config = parse_broker_config(
            {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "broker.id": "7"}
        )
        assert isinstance(config, BrokerConfig)
        broker = Broker(config, coordination=Coordination(zk, SESSION_TIMEOUT_MS, accepts_others=True))
        try:
            assert await broker.start() is None
            assert broker.control.is_controller
            assert len(zk.changes) >= CHANGES
            assert zk.changes[lost], "the change was asked for"
            assert store.tree.get("/brokers/ids/7").stat().ephemeral_owner == 2
            assert store.tree.get("/controller_epoch").data == b"1"
        finally:
            await broker.stop()

    asyncio.run(scenario())
