"""A broker that is not the controller, told what to do as Apache Kafka's controller tells it: frames over TCP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.cluster.image import RoleChange
from ottla.config.topic import LogConfig
from ottla.groups.coordinator import CoordinatorState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaTopicV1
from ottla.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from ottla.zk.layout import LeaderAndIsr, PartitionStateZnode
from support.controlled_broker import CONTROLLER, TOPIC_ID, ControlledBroker, run_controlled
from support.storage_logs import batch
from support.waiting import until

T0, T1 = ("t", 0), ("t", 1)
OTHER_ID = UUID(int=0xB)
WHOLE = ("", -1)

pytestmark = pytest.mark.spec("R1")


def coordinates(test: ControlledBroker) -> bool:
    return test.broker.groups.coordinator_state("any") is CoordinatorState.READY


def is_led(test: ControlledBroker, key: tuple[str, int]) -> bool:
    partition = test.broker.partitions.get(*key)
    return partition is not None and partition.leader is not None


def names(found: dict[tuple[str, int], int]) -> dict[tuple[str, int], str]:
    return {key: ErrorCode(code).name for key, code in found.items()}


def test_it_joins_and_then_does_what_it_is_told(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        control, partitions = test.broker.control, test.broker.partitions
        assert not control.is_controller
        assert (control.image.topics, dict(control.image.brokers)) == ({}, {})
        await test.configure("t", retention_ms="5000")
        assert await test.update_metadata({}) == 0
        assert sorted(control.image.brokers) == [1, 2]
        assert control.image.brokers[2].rack == "r2"
        assert control.image.controller_id == CONTROLLER
        states = {T0: (1, 0, [1, 2]), T1: (2, 0, [2, 1])}
        assert await test.lead_or_follow(states, is_new=True) == {T0: 0, T1: 0}
        assert control.image.topics == {}, "what clients are told comes with UpdateMetadata"
        led, followed = partitions.get(*T0), partitions.get(*T1)
        assert led is not None
        assert led.leader is not None
        assert led.log.topic_id == TOPIC_ID
        assert followed is not None
        assert followed.leader is None
        assert followed.leader_epoch == 0
        assert led.log.config.retention_ms == 5000
        assert await test.update_metadata(states) == 0
        topic = control.image.topics["t"]
        assert (topic.topic_id, topic.configs) == (TOPIC_ID, {"retention.ms": "5000"})
        assert [state.leader for state in topic.partitions] == [1, 2]
        # The leaders change places.
        states = {T0: (2, 1, [1, 2]), T1: (1, 1, [2, 1])}
        assert await test.lead_or_follow(states) == {T0: 0, T1: 0}
        assert led.leader is None
        assert followed.leader is not None
        assert await test.update_metadata(states) == 0
        assert [state.leader for state in control.image.topics["t"].partitions] == [2, 1]

    run_controlled(tmp_path, scenario)


def test_it_leads_before_it_follows_so_that_others_can_fetch_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(test: ControlledBroker) -> None:
        taken: list[tuple[int, str]] = []
        give = test.broker.control_requests.hosting._give

        def noted(change: RoleChange, config: LogConfig) -> None:
            taken.append((change.partition, change.action.name))
            give(change, config)

        monkeypatch.setattr(test.broker.control_requests.hosting, "_give", noted)
        assert await test.update_metadata({}) == 0  # the live brokers
        states = {("t", index): (1 if index % 2 else 2, 0, [1, 2]) for index in range(6)}
        found = await test.lead_or_follow(states, is_new=True)
        assert found == dict.fromkeys(states, 0)
        assert list(found) == list(states), "the answer has the order of the request"
        assert taken == [(index, "LEAD") for index in (1, 3, 5)] + [(index, "FOLLOW") for index in (0, 2, 4)]

    run_controlled(tmp_path, scenario)


def test_topics_that_the_controller_has_not_mentioned_yet_are_not_said_to_be_missing(tmp_path: Path) -> None:
    """A producer of librdkafka fails for good at UNKNOWN_TOPIC_OR_PARTITION of a topic that it knew."""

    async def scenario(test: ControlledBroker) -> None:
        def errors(response: Any) -> dict[str, str]:
            return {topic.name: ErrorCode(topic.error_code).name for topic in response.topics}

        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="t"), MetadataRequestTopic(name="u")], allow_auto_topic_creation=False
        )
        every = MetadataRequest(topics=None)
        # The broker comes back to a cluster that has a topic.
        await test.zk.create("/brokers/topics/t", b"{}")
        await test.restart()
        # A controller that was just elected sends the live brokers first. Before, nothing is answered.
        assert await test.update_metadata({}) == 0
        for _ in range(2):
            assert errors(await test.ask(request, 12)) == {
                "t": "LEADER_NOT_AVAILABLE",
                "u": "UNKNOWN_TOPIC_OR_PARTITION",
            }
            assert errors(await test.ask(every, 12)) == {"t": "LEADER_NOT_AVAILABLE"}
        assert await test.update_metadata({T0: (2, 0, [2, 1])}) == 0
        assert errors(await test.ask(request, 12)) == {"t": "NONE", "u": "UNKNOWN_TOPIC_OR_PARTITION"}
        assert errors(await test.ask(every, 12)) == {"t": "NONE"}
        # Once it is deleted, it is missing.
        assert await test.update_metadata({T0: (-2, 1, [2, 1])}) == 0
        assert errors(await test.ask(request, 12))["t"] == "UNKNOWN_TOPIC_OR_PARTITION"

    run_controlled(tmp_path, scenario)


def test_stale_requests_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(test: ControlledBroker) -> None:
        state = {T0: (1, 3, [1, 2])}
        assert await test.update_metadata({}) == 0
        assert names(await test.lead_or_follow(state, is_new=True)) == {T0: "NONE"}
        assert names(await test.lead_or_follow(state)) == {T0: "STALE_CONTROLLER_EPOCH"}
        later = {T0: (2, 4, [1, 2])}
        stale = "STALE_BROKER_EPOCH"
        epoch = test.broker_epoch - 1
        assert names(await test.lead_or_follow(later, broker_epoch=epoch)) == {WHOLE: stale, T0: stale}
        assert names(await test.stop_replicas({T0: -2}, is_deletion=True, broker_epoch=epoch)) == {WHOLE: stale}
        assert ErrorCode(await test.update_metadata(later, broker_epoch=epoch)).name == stale
        test.epoch = 5
        assert await test.update_metadata({}) == 0
        stale = "STALE_CONTROLLER_EPOCH"
        assert names(await test.lead_or_follow(later, controller_epoch=4)) == {WHOLE: stale, T0: stale}
        assert names(await test.stop_replicas({T0: -2}, is_deletion=True, controller_epoch=4)) == {WHOLE: stale}
        assert ErrorCode(await test.update_metadata(later, controller_epoch=4)).name == stale
        kraft = {"controller_epoch": 9, "is_kraft_controller": True}
        assert names(await test.lead_or_follow(later, **kraft))[WHOLE] == "INVALID_REQUEST"
        partition = test.broker.partitions.get(*T0)
        assert partition is not None
        assert partition.leader is not None
        assert partition.leader_epoch == 3
        assert names(await test.lead_or_follow(later, topic_id=OTHER_ID)) == {T0: "INCONSISTENT_TOPIC_ID"}

    run_controlled(tmp_path, scenario)
    assert "is refused: STALE_BROKER_EPOCH" in caplog.text
    assert "cluster that is being moved to KRaft is not supported" in caplog.text


def test_partitions_are_stopped_and_deleted(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        partitions = test.broker.partitions
        assert await test.update_metadata({}) == 0
        states = {T0: (1, 3, [1, 2]), T1: (2, 3, [2, 1])}
        assert await test.lead_or_follow(states, is_new=True) == {T0: 0, T1: 0}
        assert await test.update_metadata(states) == 0
        assert names(await test.stop_replicas({T0: 2, T1: 3}, is_deletion=False)) == {
            T0: "FENCED_LEADER_EPOCH",
            T1: "NONE",
        }
        assert (tmp_path / "d0" / "t-1").exists()
        # As Kafka deletes a topic: clients are told, replicas stop, replicas go.
        assert await test.update_metadata({key: (-2, 0, state[2]) for key, state in states.items()}) == 0
        assert test.broker.image.topics == {}
        assert await test.stop_replicas({T0: -2, T1: -2}, is_deletion=False) == {T0: 0, T1: 0}
        assert await test.stop_replicas({T0: -2, T1: -2, ("u", 7): -2}, is_deletion=True) == {
            T0: 0,
            T1: 0,
            ("u", 7): 0,
        }
        assert partitions.get(*T0) is None
        assert not (tmp_path / "d0" / "t-0").exists()
        # A topic of the same name is another one.
        assert await test.lead_or_follow({T0: (1, 0, [1])}, is_new=True, topic_id=OTHER_ID) == {T0: 0}

    run_controlled(tmp_path, scenario)


def producing(key: tuple[str, int]) -> ProduceRequest:
    data = PartitionProduceData(index=key[1], records=batch(1))
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=key[0], partition_data=[data])])


def test_a_topic_that_is_being_deleted_takes_and_gives_no_records(tmp_path: Path) -> None:
    """UpdateMetadata says that it is deleted; a StopReplica may come much later."""

    async def scenario(test: ControlledBroker) -> None:
        async def produced() -> str:
            response = await test.ask(producing(T0), 9)
            return ErrorCode(response.responses[0].partition_responses[0].error_code).name

        async def fetched() -> str:
            topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1_000)])
            response = await test.ask(FetchRequest(max_bytes=1_000, topics=[topic]), 12)
            return ErrorCode(response.responses[0].partitions[0].error_code).name

        async def deleted() -> str:
            topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
            response = await test.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), 2)
            return ErrorCode(response.topics[0].partitions[0].error_code).name

        assert await test.update_metadata({}) == 0
        states = {T0: (1, 3, [1, 2]), T1: (2, 3, [2, 1])}
        assert await test.lead_or_follow(states, is_new=True) == {T0: 0, T1: 0}
        assert await test.update_metadata(states) == 0
        assert [await produced(), await fetched()] == ["NONE"] * 2
        deletion = {key: (-2, 0, state[2]) for key, state in states.items()}
        assert await test.update_metadata(deletion, topic_id=OTHER_ID) == 0
        assert await produced() == "NONE", "another topic of that name is deleted"
        assert await test.update_metadata(deletion) == 0
        assert [await produced(), await fetched(), await deleted()] == ["UNKNOWN_TOPIC_OR_PARTITION"] * 3
        assert (tmp_path / "d0" / "t-0").exists(), "whether a log is deleted is for a StopReplica to say"

    run_controlled(tmp_path, scenario)


def test_a_follower_describes_the_producers_of_its_own_log(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        assert await test.update_metadata({}) == 0
        states = {T0: (1, 3, [1, 2]), T1: (2, 3, [2, 1])}
        assert await test.lead_or_follow(states, is_new=True) == {T0: 0, T1: 0}
        assert await test.update_metadata(states) == 0
        followed = test.broker.partitions.get(*T1)
        assert followed is not None
        records = batch(1, producer_id=7, producer_epoch=1, base_sequence=0)
        test.broker.partitions.append_fetched(followed, memoryview(bytearray(records)))
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1, 2])])
        response = await test.ask(request, 0)
        found = [
            (ErrorCode(each.error_code).name, [one.producer_id for one in each.active_producers])
            for each in response.topics[0].partitions
        ]
        assert found == [("NONE", []), ("NONE", [7]), ("UNKNOWN_TOPIC_OR_PARTITION", [])]

    run_controlled(tmp_path, scenario)


def test_replicas_that_were_moved_away_while_it_was_gone_are_served_no_more(tmp_path: Path) -> None:
    """No StopReplica reached it then, and no LeaderAndIsr names it now: only the metadata say so."""

    async def scenario(test: ControlledBroker) -> None:
        partitions, offsets = test.broker.partitions, ("__consumer_offsets", 0)
        assert await test.update_metadata({}) == 0
        states = {T0: (1, 3, [1, 2]), T1: (2, 3, [2, 1]), offsets: (1, 3, [1, 2])}
        assert await test.lead_or_follow(states, is_new=True) == dict.fromkeys(states, 0)
        assert await test.update_metadata(states) == 0
        await until(lambda: coordinates(test), "it coordinates groups")
        # Metadata that are older than its roles, or say the same, change nothing.
        for leader_epoch in (2, 3):
            assert await test.update_metadata(dict.fromkeys(states, (2, leader_epoch, [2, 3]))) == 0
            assert {key for key in states if is_led(test, key)} == {T0, offsets}
        moved = dict.fromkeys(states, (2, 4, [2, 3]))
        assert await test.update_metadata(moved) == 0
        assert not any(is_led(test, key) for key in states)
        await until(lambda: not coordinates(test), "it coordinates no groups")
        assert (tmp_path / "d0" / "t-0").exists(), "whether a log is deleted is for a StopReplica to say"
        assert await test.stop_replicas(dict.fromkeys(states, 4), is_deletion=True) == dict.fromkeys(states, 0)
        assert not (tmp_path / "d0" / "t-0").exists()
        # It may get a replica again.
        assert await test.lead_or_follow({T0: (1, 5, [1, 2])}, is_new=True) == {T0: 0}
        assert is_led(test, T0)
        assert partitions.get(*T1) is None

    run_controlled(tmp_path, scenario)


def test_a_topic_made_anew_without_it_ends_its_role_in_the_former_one(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        assert await test.update_metadata({}) == 0
        assert await test.lead_or_follow({T0: (1, 3, [1, 2])}, is_new=True) == {T0: 0}
        assert await test.update_metadata({T0: (-2, 9, [2, 3])}, topic_id=OTHER_ID) == 0
        assert is_led(test, T0), "another topic is deleted"
        assert await test.update_metadata({T0: (2, 0, [2, 3])}, topic_id=OTHER_ID) == 0
        assert not is_led(test, T0)
        assert (tmp_path / "d0" / "t-0").exists()

    run_controlled(tmp_path, scenario)


def test_after_a_restart_logs_wait_for_the_controller(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(test: ControlledBroker) -> None:
        states = {(name, 0): (1, 7, [1, 2]) for name in ("kept", "stray", "deleted")}
        assert await test.update_metadata({}) == 0
        assert set((await test.lead_or_follow(states, is_new=True)).values()) == {0}
        former = test.broker_epoch
        await test.restart()
        assert test.broker_epoch > former
        broker = test.broker
        assert list(broker.partitions) == []
        assert broker.logs.unclaimed == set(states)
        checkpoint = tmp_path / "d0" / "replication-offset-checkpoint"
        broker.logs.checkpoints.write()
        assert all(f"{name} 0 0" in checkpoint.read_text() for name, _ in states), "entries not heard of stay"
        assert await test.update_metadata({}) == 0
        # The same leader epoch as before: in memory it begins at -1.
        assert await test.lead_or_follow({("kept", 0): (1, 7, [1, 2])}) == {("kept", 0): 0}
        assert broker.logs.unclaimed == {("stray", 0), ("deleted", 0)}
        # Of a log that is lost the broker does not say that it is all there was.
        lost = {("lost", 0): (1, 7, [1]), ("copied", 0): (2, 7, [1, 2])}
        assert names(await test.lead_or_follow(lost)) == {("lost", 0): "KAFKA_STORAGE_ERROR", ("copied", 0): "NONE"}
        assert await test.stop_replicas({("deleted", 0): -2}, is_deletion=True) == {("deleted", 0): 0}
        assert not (tmp_path / "d0" / "deleted-0").exists()
        assert (tmp_path / "d0" / "stray-0").exists()

    run_controlled(tmp_path, scenario)
    assert "2 partition directories are stray" in caplog.text
    assert "deleted-0, stray-0" in caplog.text
    assert "lost-0 is refused to the controller" in caplog.text


def test_a_partition_without_a_leader_names_no_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(test: ControlledBroker) -> None:
        assert await test.update_metadata({}) == 0
        states = {T0: (-1, 3, [1, 2]), T1: (9, 3, [1, 9])}
        assert await test.lead_or_follow(states, is_new=True) == {T0: 0, T1: 0}

    run_controlled(tmp_path, scenario)
    waiting = [message for message in caplog.messages if "waits for a leader" in message]
    assert waiting == ["t-0 waits for a leader: it has none", "t-1 waits for a leader: broker 9 is not alive"]


def test_retention_leaves_logs_alone_whose_settings_nobody_has_told(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        assert await test.update_metadata({}) == 0
        assert await test.lead_or_follow({T0: (1, 0, [1])}, is_new=True) == {T0: 0}
        await test.restart()
        logs = test.broker.logs
        looked: list[str] = []
        logs.upkeep._delete_old_segments = lambda log, now_ms: looked.append(log.name)  # type: ignore[method-assign,assignment]
        list(logs.upkeep.apply_retention(0))
        assert looked == []
        assert await test.lead_or_follow({T0: (1, 0, [1])}) == {T0: 0}
        list(logs.upkeep.apply_retention(0))
        assert looked == ["t-0"]

    run_controlled(tmp_path, scenario)


def test_the_controller_is_told_of_a_failed_log_directory(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        assert await test.update_metadata({}) == 0
        states = {T0: (1, 0, [1, 2]), T1: (1, 0, [1, 2])}
        assert await test.lead_or_follow(states, is_new=True) == {T0: 0, T1: 0}
        log = test.broker.logs.get(*T0)
        assert log is not None
        gone = [(one.topic, one.partition) for state in test.broker.logs.contents() for one in state.logs if one is log]
        test.broker._log_dir_failed(gone, False)
        root = "/log_dir_event_notification"
        while not await test.zk.children(root):  # noqa: ASYNC110 - the broker writes it in a task
            await asyncio.sleep(0)
        (name,) = await test.zk.children(root)
        data, _ = await test.zk.get(f"{root}/{name}")
        assert data == b'{"version":1,"broker":1,"event":1}'
        # As Kafka's controller asks then: which replicas are still online?
        assert names(await test.lead_or_follow(states)) == {T0: "KAFKA_STORAGE_ERROR", T1: "STALE_CONTROLLER_EPOCH"}
        assert names(await test.stop_replicas({T0: -2}, is_deletion=True)) == {T0: "KAFKA_STORAGE_ERROR"}

    run_controlled(tmp_path, scenario, log_dirs=2)


def test_first_versions(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        head = {"controller_id": CONTROLLER, "controller_epoch": 1}
        live = [UpdateMetadataBroker(id=1, v0_host="h", v0_port=9)]
        state = {"partition_index": 0, "controller_epoch": 1, "leader": 1, "leader_epoch": 0, "isr": [1]}
        told = UpdateMetadataPartitionState(topic_name="t", replicas=[1], **state)
        update = UpdateMetadataRequest(**head, ungrouped_partition_states=[told], live_brokers=live)
        assert (await test.ask(update, 0)).error_code == 0
        assert test.broker.image.brokers[1].endpoint("PLAINTEXT") is not None
        role = LeaderAndIsrPartitionState(topic_name="t", replicas=[1], is_new=True, **state)
        response = await test.ask(LeaderAndIsrRequest(**head, ungrouped_partition_states=[role]), 1)
        assert [(one.topic_name, one.error_code) for one in response.partition_errors] == [("t", 0)]
        partition = test.broker.partitions.get(*T0)
        assert partition is not None
        assert partition.log.topic_id is None
        # The id comes later, in the same leader epoch.
        assert await test.lead_or_follow({T0: (1, 0, [1])}) == {T0: 0}
        assert partition.log.topic_id == TOPIC_ID
        assert test.broker.partitions.get_by_id(TOPIC_ID, 0) is partition
        stop = StopReplicaRequest(
            **head, delete_partitions=True, topics=[StopReplicaTopicV1(name="t", partition_indexes=[0])]
        )
        response = await test.ask(stop, 1)
        assert [(one.topic_name, one.error_code) for one in response.partition_errors] == [("t", 0)]
        assert test.broker.partitions.get(*T0) is None

    run_controlled(tmp_path, scenario)


def test_what_was_made_while_it_was_registered_has_lost_nothing(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        # The controller wrote the state and died; the next one does not know that no broker has heard of it.
        state = PartitionStateZnode.encode(LeaderAndIsr(1, 0, (1, 2), 1))
        await test.zk.create(PartitionStateZnode.path(*T0), state, make_parents=True)
        assert await test.update_metadata({}) == 0
        assert names(await test.lead_or_follow({T0: (1, 0, [1, 2])})) == {T0: "NONE"}
        led = test.broker.partitions.get(*T0)
        assert led is not None
        assert led.leader is not None
        # One that was made before it registered must have a log, also to wait for a leader.
        await test.zk.create(PartitionStateZnode.path(*T1), state, make_parents=True)
        await test.restart()
        assert await test.update_metadata({}) == 0
        lost = {T1: "KAFKA_STORAGE_ERROR"}
        assert names(await test.lead_or_follow({T0: (1, 1, [1, 2])})) == {T0: "NONE"}
        assert names(await test.lead_or_follow({T1: (-1, 1, [1, 2])})) == lost
        assert names(await test.lead_or_follow({T1: (1, 2, [1, 2])})) == lost
        assert test.broker.partitions.get(*T1) is None
        # Where another one leads it is copied.
        assert names(await test.lead_or_follow({T1: (2, 3, [2, 1])})) == {T1: "NONE"}

    run_controlled(tmp_path, scenario)
