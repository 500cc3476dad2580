"""A broker that is elected controller while its disk is full serves what it can, and the rest when there is room."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from ottla.broker.control.coordination import Coordination
from ottla.broker.server import Broker
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.clock import SystemClock
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from ottla.zk.client import LocalClient
from ottla.zk.layout import TopicAssignment, TopicZnode
from ottla.zk.store import TreeStore
from support.waiting import until

SESSION_TIMEOUT_MS = 6_000


class OneBroker:
    """A broker on a disk that may be full, beside a tree that is elsewhere."""

    def __init__(self) -> None:
        self.disk = FaultyDisk(MemoryDisk())
        self.store = TreeStore.open(MemoryDisk(), "/t", SystemClock())
        self.sessions = 1
        self.broker: Broker

    async def start(self) -> None:
        self.sessions += 1
        config = parse_broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/d", "broker.id": "1"})
        assert isinstance(config, BrokerConfig)
        coordination = Coordination(LocalClient(self.store, self.sessions), SESSION_TIMEOUT_MS, accepts_others=True)
        self.broker = Broker(config, disk=self.disk, coordination=coordination)
        assert await self.broker.start() is None

    def is_led(self, topic: str) -> bool:
        partition = self.broker.partitions.get(topic, 0)
        return partition is not None and partition.leader is not None


@pytest.mark.spec("R1")
def test_what_has_no_room_is_put_off_and_the_rest_is_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Topics were made while it was down: of these it has no logs. Others it has."""
    monkeypatch.setattr("ottla.broker.control.offline_notices.HOST_AGAIN_S", 0.01)

    async def scenario() -> None:
        one = OneBroker()
        await one.start()
        assert not isinstance(await one.broker.control.admin.create_topic(TopicSpec("old")), TopicRefusal)
        await one.broker.stop()
        zk = LocalClient(one.store, 99)
        for name in ("a-made-meanwhile", "z-made-meanwhile"):
            await zk.create(TopicZnode.path(name), TopicZnode.encode(TopicAssignment.of(None, {0: [1]})))
        for made in ("*made-meanwhile*", "*asked-for*"):
            one.disk.fail("*", made, errno.ENOSPC)
        await one.start()
        try:
            assert set(one.broker.image.topics) == {"old", "a-made-meanwhile", "z-made-meanwhile"}
            assert one.is_led("old")
            assert not one.is_led("a-made-meanwhile")
            refused = await one.broker.control.admin.create_topic(TopicSpec("asked-for"))
            assert isinstance(refused, TopicRefusal)
            assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR, "a new topic is refused, as it can be"
            one.disk.heal()
            await until(lambda: one.is_led("a-made-meanwhile") and one.is_led("z-made-meanwhile"), "there is room")
        finally:
            await one.broker.stop()
        assert "a-made-meanwhile-0 cannot be hosted" in caplog.text

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
