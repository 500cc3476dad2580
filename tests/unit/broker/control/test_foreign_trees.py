"""What a broker says of a tree that Apache Kafka uses in ways that ottla does not follow."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ottla.broker.control.coordination import Coordination
from ottla.broker.server import Broker, StartRefusal
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.clock import SystemClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import LocalClient
from ottla.zk.layout import BrokerIdZnode, ControllerZnode, KraftMigrationError
from ottla.zk.store import TreeStore
from support.waiting import until

pytestmark = pytest.mark.spec("Z3")

SESSION_TIMEOUT_MS = 6_000


def controller_of_kraft(epoch: int) -> bytes:
    """`/controller` as a controller of KRaft writes it in a migration (`KafkaZkClient.tryRegisterKRaftController…`)."""
    return json.dumps({"version": 2, "brokerid": 3000, "timestamp": "1", "kraftControllerEpoch": epoch}).encode()


class Tree:
    """A tree with a session of somebody else."""

    def __init__(self, folder: Path) -> None:
        self.store = TreeStore.open(MemoryDisk(), "/t", SystemClock())
        self.other = LocalClient(self.store, 1)
        config = parse_broker_config(
            {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), "broker.id": "1"}
        )
        assert isinstance(config, BrokerConfig)
        zk = LocalClient(self.store, 2)
        self.broker = Broker(config, coordination=Coordination(zk, SESSION_TIMEOUT_MS, accepts_others=True))


@pytest.mark.parametrize("epoch", [0, 12])
def test_a_cluster_in_migration_to_kraft_is_refused(tmp_path: Path, epoch: int) -> None:
    async def scenario() -> None:
        tree = Tree(tmp_path)
        await tree.other.create(ControllerZnode.PATH, controller_of_kraft(epoch), ephemeral=True)
        refusal = await tree.broker.start()
        assert isinstance(refusal, StartRefusal)
        assert refusal.message.startswith(f"/controller names controller 3000 of KRaft (kraftControllerEpoch={epoch})")
        assert await tree.other.exists(BrokerIdZnode.path(1)) is None, "it did not register"

    asyncio.run(scenario())


def test_a_migration_that_begins_stops_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        tree = Tree(tmp_path)
        problems: list[str] = []
        tree.broker.on_fatal = problems.append
        assert await tree.broker.start() is None
        try:
            await tree.other.delete(ControllerZnode.PATH)
            await tree.other.create(ControllerZnode.PATH, controller_of_kraft(5), ephemeral=True)
            await until(lambda: problems, "the broker's word")
            assert "is being migrated from ZooKeeper to KRaft" in problems[0]
        finally:
            await tree.broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("data", [b'{"version":1,"brokerid":4,"timestamp":"1"}', controller_of_kraft(-1)])
def test_a_controller_with_zookeeper(data: bytes) -> None:
    assert ControllerZnode.decode(data) in (4, 3000)
    with pytest.raises(KraftMigrationError):
        ControllerZnode.decode(controller_of_kraft(0))
