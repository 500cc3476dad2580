"""Several brokers in one process, with sessions of one metadata tree: registered, one of them the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from ottla.broker.control.coordination import Coordination
from ottla.broker.server import Broker
from ottla.cluster.controller_events import TopicCreated
from ottla.cluster.image import ImageDelta, PartitionImage, TopicDelta, TopicImage
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import GROUP_METADATA_TOPIC, TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.clock import SystemClock
from ottla.records.record import Record, encode_batch
from ottla.storage.log import CLIENT, AppendInfo
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from ottla.zk.client import ConnectionLossError, LocalClient, Watcher
from ottla.zk.layout import TopicAssignment, TopicZnode
from ottla.zk.store import TreeStore
from ottla.zk.tree import Delete

SESSION_TIMEOUT_MS = 6_000
WAIT_S = 60.0

pytestmark = pytest.mark.spec("Z3")


class Cluster:
    """Brokers by id; each start gets a session of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = TreeStore.open(MemoryDisk(), "/t", SystemClock())
        self.sessions = 1
        self.brokers: dict[int, Broker] = {}

    async def start(self, broker_id: int) -> Broker:
        self.sessions += 1
        zk = LocalClient(self.store, self.sessions)
        config = parse_broker_config(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(self.folder / str(broker_id)),
                "broker.id": str(broker_id),
                "offsets.topic.num.partitions": "3",
                "offsets.topic.replication.factor": "1",
            }
        )
        assert isinstance(config, BrokerConfig)
        broker = Broker(config, coordination=Coordination(zk, SESSION_TIMEOUT_MS, accepts_others=True))
        assert await broker.start() is None
        self.brokers[broker_id] = broker
        return broker

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    def controllers(self) -> list[int]:
        return [broker_id for broker_id, broker in self.brokers.items() if broker.control.is_controller]

    def hosted(self, topic: str) -> dict[int, list[int]]:
        return {broker_id: broker.partitions.indexes(topic) for broker_id, broker in self.brokers.items()}

    async def until(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not condition():  # noqa: ASYNC110 - several brokers, none of which signals it
                await asyncio.sleep(0.01)  # sleep: their watches have their turn

        await asyncio.wait_for(wait(), WAIT_S)


def run(tmp_path: Path, scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = Cluster(tmp_path)
        try:
            for broker_id in (1, 2, 3):
                await cluster.start(broker_id)
            await scenario(cluster)
        finally:
            for broker_id in list(cluster.brokers):
                await cluster.stop(broker_id)

    asyncio.run(whole())


def test_one_is_the_controller_and_each_serves_the_partitions_that_it_leads(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        assert cluster.controllers() == [1]
        await cluster.until(lambda: all(len(broker.image.brokers) == 3 for broker in cluster.brokers.values()))
        made = await cluster.brokers[1].control.admin.create_topic(TopicSpec("t", 6, 1))
        assert isinstance(made, TopicCreated)
        await cluster.until(lambda: all(len(indexes) == 2 for indexes in cluster.hosted("t").values()))
        await cluster.until(lambda: all("t" in broker.image.topics for broker in cluster.brokers.values()))
        for broker_id, indexes in cluster.hosted("t").items():
            states = cluster.brokers[broker_id].image.topics["t"].partitions
            assert [index for index, state in enumerate(states) if state.leader == broker_id] == indexes
        assert await cluster.brokers[1].control.admin.create_partitions("t", 9) is None
        await cluster.until(lambda: all(len(indexes) == 3 for indexes in cluster.hosted("t").values()))
        refused = await cluster.brokers[2].control.admin.create_topic(TopicSpec("u"))
        assert isinstance(refused, TopicRefusal)
        assert refused.error is ErrorCode.NOT_CONTROLLER
        assert await cluster.brokers[1].control.admin.delete_topic("t") is None
        await cluster.until(lambda: not any(cluster.hosted("t").values()))
        await cluster.until(lambda: not any((tmp_path / str(number) / "t-0").exists() for number in (1, 2, 3)))

    run(tmp_path, scenario)


def test_another_is_elected_when_the_controller_stops(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        control = cluster.brokers[1].control
        await cluster.until(lambda: len(control.image.brokers) == 3)
        assert isinstance(await control.admin.create_topic(TopicSpec("t", 3, 1)), TopicCreated)
        await cluster.until(lambda: all(cluster.hosted("t").values()))
        lost = cluster.hosted("t")[1]
        await cluster.stop(1)
        await cluster.until(lambda: len(cluster.controllers()) == 1)
        [controller] = cluster.controllers()
        elected = cluster.brokers[controller].control
        await cluster.until(lambda: elected.image.topics["t"].partitions[lost[0]].leader == -1)
        assert isinstance(await elected.admin.create_topic(TopicSpec("u", 2, 1)), TopicCreated)
        await cluster.until(lambda: all(cluster.hosted("u").values()))
        # It comes back, not as the controller, and leads what it led.
        await cluster.start(1)
        await cluster.until(lambda: all(cluster.hosted("t").values()))
        assert cluster.controllers() == [controller]
        await cluster.until(
            lambda: all(broker.image.topics["t"].partitions[lost[0]].leader == 1 for broker in cluster.brokers.values())
        )

    run(tmp_path, scenario)


def test_who_is_elected_takes_office_though_zookeeper_cannot_be_read_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed the controller in name, and nobody heard of its election, until its session ended."""
    losses = 3

    async def failing(zk: LocalClient, path: str, watch: Watcher | None = None) -> list[str]:
        nonlocal losses
        if path == TopicZnode.ROOT and watch is None and losses:
            losses -= 1
            raise ConnectionLossError(path, "the connection is lost")
        return await children(zk, path, watch)

    children = LocalClient.children

    async def scenario(cluster: Cluster) -> None:
        await cluster.until(lambda: all(len(broker.image.brokers) == 3 for broker in cluster.brokers.values()))
        monkeypatch.setattr(LocalClient, "children", failing)
        await cluster.stop(1)
        await cluster.until(lambda: len(cluster.controllers()) == 1)
        [controller] = cluster.controllers()
        await cluster.until(
            lambda: all(
                (broker.image.controller_id, sorted(broker.image.brokers)) == (controller, [2, 3])
                for broker in cluster.brokers.values()
            )
        )
        assert not losses
        elected = cluster.brokers[controller].control
        assert isinstance(await elected.admin.create_topic(TopicSpec("t", 2, 1)), TopicCreated)
        await cluster.until(lambda: all(cluster.hosted("t").values()))

    run(tmp_path, scenario)


def test_who_is_elected_forgets_topics_that_were_deleted_unheard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller before has deleted them, and died before it could say so."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.until(lambda: all(len(broker.image.brokers) == 3 for broker in cluster.brokers.values()))
        assert isinstance(await cluster.brokers[1].control.admin.create_topic(TopicSpec("t", 3, 3)), TopicCreated)
        # Also one that is there again, with another id.
        for broker_id in (2, 3):
            await cluster.until(lambda broker_id=broker_id: "t" in cluster.brokers[broker_id].image.topics)
            for name in ("ghost", "again"):
                states = tuple(PartitionImage(leader, 4, (1, 2, 3), (1, 2, 3)) for leader in (1, 2, 3))
                ghost = TopicImage(name, uuid4(), states, {}, False)
                cluster.brokers[broker_id].control.publisher.publish(ImageDelta((TopicDelta(None, ghost),)))
        zk = cluster.brokers[2].control.session.zk
        data = TopicZnode.encode(TopicAssignment.of(uuid4(), {0: [2], 1: [3]}))
        await zk.create(TopicZnode.path("again"), data)
        await cluster.stop(1)
        await cluster.until(lambda: len(cluster.controllers()) == 1)
        elected = cluster.brokers[cluster.controllers()[0]].control
        await cluster.until(lambda: "ghost" not in elected.image.topics)
        await cluster.until(lambda: len(elected.image.topics["again"].partitions) == 2)
        await cluster.until(lambda: [each.leader for each in elected.image.topics["again"].partitions] == [2, 3])
        await cluster.until(lambda: all(each.leader in (2, 3) for each in elected.image.topics["t"].partitions))

    run(tmp_path, scenario)
    assert "ghost" not in caplog.text


def test_a_topic_whose_znodes_somebody_removed_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.until(lambda: all(len(broker.image.brokers) == 3 for broker in cluster.brokers.values()))
        control = cluster.brokers[1].control
        for name in ("removed", "t"):
            assert isinstance(await control.admin.create_topic(TopicSpec(name, 3, 3)), TopicCreated)
        nodes = [TopicZnode.path("removed")]
        for path in nodes:
            nodes.extend(f"{path}/{child}" for child in await control.session.zk.children(path))
        await control.session.zk.multi([Delete(path) for path in reversed(nodes)])
        await cluster.stop(3)
        await cluster.until(lambda: all(each.leader in (1, 2) for each in control.image.topics["t"].partitions))
        # The brokers keep it, as those of Apache Kafka do.
        assert len(cluster.hosted("removed")[1]) == 3

    run(tmp_path, scenario)


def test_any_broker_makes_topics_on_demand_and_changes_settings(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.until(lambda: all(len(broker.image.brokers) == 3 for broker in cluster.brokers.values()))
        other = cluster.brokers[2].control
        announced = await other.admin.ensure_topic(GROUP_METADATA_TOPIC)
        assert announced is not None
        assert announced.error is ErrorCode.LEADER_NOT_AVAILABLE
        await cluster.until(lambda: all(cluster.hosted(GROUP_METADATA_TOPIC).values()))
        # UpdateMetadata comes after LeaderAndIsr, to one broker later than to another.
        await cluster.until(
            lambda: all(GROUP_METADATA_TOPIC in broker.image.topics for broker in cluster.brokers.values())
        )
        changed = await other.topic_configs.change(
            GROUP_METADATA_TOPIC, lambda _: {"retention.ms": "5"}, validate_only=False
        )
        assert changed is None
        await cluster.until(
            lambda: all(
                broker.image.topics[GROUP_METADATA_TOPIC].configs == {"retention.ms": "5"}
                for broker in cluster.brokers.values()
            )
        )
        ids = [await broker.control.producer_ids.next() for broker in cluster.brokers.values()]
        assert sorted(ids) == [0, 1000, 2000]

    run(tmp_path, scenario)


def test_brokers_that_make_a_topic_together_wait_for_its_leaders(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.until(lambda: all(len(broker.image.brokers) == 3 for broker in cluster.brokers.values()))
        controls = [broker.control for broker in cluster.brokers.values()]
        refusals = await asyncio.gather(*(each.admin.ensure_topic(GROUP_METADATA_TOPIC) for each in controls))
        assert {refusal.error for refusal in refusals if refusal is not None} == {ErrorCode.LEADER_NOT_AVAILABLE}
        await cluster.until(
            lambda: all(GROUP_METADATA_TOPIC in broker.image.topics for broker in cluster.brokers.values())
        )

    run(tmp_path, scenario)


def test_the_registration_before_is_remembered_of_other_brokers(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        members = {broker_id: broker.control.membership for broker_id, broker in cluster.brokers.items()}
        await cluster.until(lambda: all(len(member.brokers) == 3 for member in members.values()))
        before = members[1].brokers[3].epoch
        assert all(broker.former_epoch == -1 for broker in members[1].brokers.values())
        await cluster.stop(3)
        await cluster.until(lambda: all(3 not in members[broker_id].brokers for broker_id in (1, 2)))
        await cluster.start(3)
        await cluster.until(lambda: all(3 in members[broker_id].brokers for broker_id in (1, 2)))
        for broker_id in (1, 2):
            found = members[broker_id].brokers
            assert (found[3].former_epoch, found[1].former_epoch, found[2].former_epoch) == (before, -1, -1)
            assert found[3].epoch > before
        # Who was not there has seen nothing.
        assert cluster.brokers[3].control.membership.brokers[3].former_epoch == -1

    run(tmp_path, scenario)


def test_a_controller_that_shuts_down_copies_nothing_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fetches would have the leaders propose it for the ISRs that it has just left."""

    async def scenario(cluster: Cluster) -> None:
        control = cluster.brokers[1].control
        await cluster.until(lambda: all(len(broker.image.brokers) == 3 for broker in cluster.brokers.values()))
        spec = TopicSpec("t", assignments={0: (2, 1, 3), 1: (1, 2, 3)})
        assert isinstance(await control.admin.create_topic(spec), TopicCreated)

        def ends(broker_id: int) -> list[int]:
            partitions = [cluster.brokers[broker_id].partitions.get("t", index) for index in (0, 1)]
            return [each.log.log_end_offset if each is not None else -1 for each in partitions]

        def append(leader: int, index: int) -> None:
            partition = cluster.brokers[leader].partitions.get("t", index)
            assert partition is not None
            assert partition.leader is not None
            batch = memoryview(bytearray(encode_batch([Record(0, 1, b"k", b"v")])))
            assert isinstance(cluster.brokers[leader].partitions.append(partition, batch, CLIENT), AppendInfo)

        await cluster.until(lambda: all(ends(broker_id) == [0, 0] for broker_id in (1, 2, 3)))
        shut_down = control.shut_down_controlled

        async def shut_down_and_look() -> None:
            await shut_down()
            await cluster.until(lambda: cluster.brokers[2].image.topics["t"].partitions[1].leader == 2)
            for index in (0, 1):
                append(2, index)
            await cluster.until(lambda: ends(3) == [1, 1])
            assert ends(1) == [0, 0]

        monkeypatch.setattr(control, "shut_down_controlled", shut_down_and_look)
        await cluster.brokers[1].stop()
        del cluster.brokers[1]

    run(tmp_path, scenario)
