"""Transactions of one broker and of three, on virtual time: requests one by one, and what readers see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.server import Broker
from ottla.records.record import Record, encode_batch
from ottla.txn.metadata import TopicPartition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from support.transactional_requests import GROUP, ONE_EACH, Requests, TransactionalProducer, offsets_partition
from support.virtual_cluster import START_MS, VirtualCluster

pytestmark = [pytest.mark.spec("X1"), pytest.mark.spec("X2")]

NONE = ErrorCode.NONE
READ_UNCOMMITTED = 0
Story = Callable[[VirtualCluster, Requests], Awaitable[None]]


def play(story: Story, brokers: int = 1, **settings: str) -> None:
    async def whole(cluster: VirtualCluster) -> None:
        for broker_id in range(brokers):
            await cluster.start(broker_id, **ONE_EACH, **settings)
        await cluster.until(lambda: cluster.controller() >= 0, "a controller")
        await cluster.until(
            lambda: all(len(each.image.brokers) == brokers for each in cluster.brokers.values()), "all brokers"
        )
        requests = Requests(cluster)
        try:
            await requests.make_topic("t", 3)
            await story(cluster, requests)
        finally:
            requests.close()

    VirtualCluster(7).run(whole)


async def producer(requests: Requests, name: str = "x", timeout_ms: int = 60_000) -> TransactionalProducer:
    made = TransactionalProducer(requests, name, timeout_ms)
    await made.init()
    return made


@pytest.mark.parametrize("brokers", [1, 3])
def test_readers_see_whole_transactions_once_they_are_committed(brokers: int) -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        writer = await producer(requests)
        for round_, is_commit in enumerate((True, False, True)):
            value = b"%d" % round_
            assert await writer.add("t", 0, 1, 2) is NONE
            for index in range(3):
                assert await writer.produce("t", index, value, value) is NONE
                before = 3 * round_
                assert await requests.end_offset("t", index) == before
                assert await requests.end_offset("t", index, READ_UNCOMMITTED) == before + 2
            assert await writer.end(is_commit=is_commit) is NONE
            await writer.until_complete()
        for index in range(3):
            assert await requests.read("t", index) == ([b"0", b"0", b"2", b"2"], [writer.producer_id])
            assert (await requests.read("t", index, READ_UNCOMMITTED))[0] == [b"0", b"0", b"1", b"1", b"2", b"2"]
            assert await requests.end_offset("t", index) == 9

    play(story, brokers)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("brokers", [1, 3])
def test_offsets_of_a_group_are_in_force_with_the_commit(brokers: int, is_commit: bool) -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        writer = await producer(requests)
        assert await writer.send_offset("g", "t", 0, 5) is NONE
        assert await requests.committed("g", "t", 0) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await writer.end(is_commit=is_commit) is NONE
        await writer.until_complete()
        assert await requests.committed("g", "t", 0) == (5 if is_commit else -1)

    play(story, brokers)


def test_a_zombie_is_fenced_everywhere() -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        zombie = await producer(requests)
        assert await zombie.add("t", 0, 1) is NONE
        assert await zombie.produce("t", 0, b"zombie") is NONE
        heir = await producer(requests)
        assert (heir.producer_id, heir.epoch) == (zombie.producer_id, zombie.epoch + 2)
        assert await requests.read("t", 0) == ([], [zombie.producer_id]), "InitProducerId has aborted the transaction"
        assert await zombie.produce("t", 0, b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.produce("t", 2, b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.add("t", 0) is ErrorCode.PRODUCER_FENCED
        assert await zombie.end(is_commit=True) is ErrorCode.PRODUCER_FENCED
        assert await zombie.send_offset("g", "t", 0, 1, adds=False) is ErrorCode.INVALID_PRODUCER_EPOCH

    play(story)


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        slow = await producer(requests, timeout_ms=5_000)
        assert await slow.add("t", 0) is NONE
        assert await slow.produce("t", 0, b"late") is NONE
        await asyncio.sleep(6)  # sleep: virtual
        assert await slow.state() == "CompleteAbort"
        assert await slow.end(is_commit=True) is ErrorCode.PRODUCER_FENCED
        assert await requests.read("t", 0) == ([], [slow.producer_id])

    play(story)


@pytest.mark.parametrize(
    ("version", "error"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
@pytest.mark.parametrize("brokers", [1, 3])
def test_a_write_outside_of_the_transaction_is_refused(brokers: int, version: int, error: ErrorCode) -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        writer = await producer(requests)
        assert await writer.add("t", 0) is NONE
        assert await writer.produce("t", 1, b"v", version=version) is error
        assert await writer.send_offset("g", "t", 0, 1, adds=False) is ErrorCode.TRANSACTION_ABORTABLE
        assert await writer.produce("t", 0, b"v", version=version) is NONE
        assert await writer.end(is_commit=True) is NONE
        await writer.until_complete()
        assert await writer.produce("t", 0, b"after", version=version) is error
        assert (await requests.read("t", 0))[0] == [b"v"]
        assert await requests.end_offset("t", 1, READ_UNCOMMITTED) == 0

    play(story, brokers)


def test_without_verification_the_first_write_begins_the_transaction() -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        writer = await producer(requests)
        assert await writer.produce("t", 1, b"v") is NONE
        assert await requests.end_offset("t", 1) == 0

    play(story, **{"transaction.partition.verification.enable": "false"})


def during_verification(broker: Broker, happens: Callable[[], None]) -> list[TopicPartition]:
    """Have something happen between the coordinator's first answer and the write; returns what is verified."""
    verifier = broker.transactions.verifier
    verify, asked = verifier.verify, []

    async def verify_late(name: str, *producer: Any, **options: Any) -> dict[TopicPartition, ErrorCode]:
        answer = await verify(name, *producer, **options)
        if not asked:
            happens()
        asked.extend(answer)
        return answer

    verifier.verify = verify_late  # type: ignore[method-assign]
    return asked


def led_anew(broker: Broker, topic: str, index: int) -> None:
    """The broker loses a role and gets it back."""
    partition = broker.partitions.get(topic, index)
    assert partition is not None
    partition.end_role(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition.lead(broker.image.topics[topic].partitions[index], partition.log.log_end_offset)


def test_offsets_are_verified_anew_after_a_change_of_role() -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        writer = await producer(requests)
        await requests.coordinator("g", GROUP)
        group = offsets_partition(cluster, "g")
        broker = cluster.brokers[0]
        asked = during_verification(broker, lambda: led_anew(broker, *group))
        assert await writer.send_offset("g", "t", 0, 5) is NONE
        assert asked == [group, group]

    play(story)


def test_a_batch_for_a_partition_that_was_not_led_when_it_came_is_sent_again() -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        writer = await producer(requests)
        assert await writer.add("t", 0, 1) is NONE
        broker = cluster.brokers[0]
        during_verification(broker, lambda: led_anew(broker, "t", 1))
        later = broker.partitions.get("t", 1)
        assert later is not None
        later.end_role(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        batch = encode_batch(
            [Record(0, START_MS, None, b"v")],
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = [PartitionProduceData(index=index, records=batch) for index in (0, 1)]
        topics = [TopicProduceData(name="t", partition_data=data)]
        answer = await requests.ask(
            0, ProduceRequest(transactional_id="x", acks=-1, timeout_ms=30_000, topic_data=topics)
        )
        errors = [each.error_code for each in answer.responses[0].partition_responses]
        assert errors == [NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert await writer.produce("t", 1, b"v") is NONE

    play(story)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_broker_continues_after_a_restart_what_it_had_begun(is_commit: bool) -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        writer = await producer(requests)
        assert await writer.add("t", 0) is NONE
        assert await writer.produce("t", 0, b"before") is NONE
        assert await writer.send_offset("g", "t", 0, 5) is NONE
        requests.close()
        await cluster.stop(0)
        await cluster.start(0, **ONE_EACH)
        await cluster.until(cluster.all_partitions_have_leaders, "leaders")
        assert await requests.end_offset("t", 0) == 0
        assert await writer.state() == "Ongoing"
        assert await writer.produce("t", 0, b"after") is NONE
        assert await writer.end(is_commit=is_commit) is NONE
        await writer.until_complete()
        assert (await requests.read("t", 0))[0] == ([b"before", b"after"] if is_commit else [])
        assert await requests.committed("g", "t", 0) == (5 if is_commit else -1)

    play(story)


def test_markers_of_an_older_coordinator_and_of_an_older_producer_are_refused() -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        writer = await producer(requests)
        group = offsets_partition(cluster, "g")
        assert await writer.add("t", 0) is NONE
        assert await writer.send_offset("g", "t", 0, 5) is NONE
        assert await writer.produce("t", 0, b"v") is NONE

        async def mark(producer_epoch: int, coordinator_epoch: int) -> list[int]:
            topics = [
                WritableTxnMarkerTopic(name=name, partition_indexes=[at]) for name, at in (("t", 0), group, ("u", 0))
            ]
            marker = WritableTxnMarker(
                producer_id=writer.producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=topics,
                coordinator_epoch=coordinator_epoch,
            )
            answer = await requests.ask(0, WriteTxnMarkersRequest(markers=[marker]))
            return [each.partitions[0].error_code for each in answer.markers[0].topics]

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await mark(writer.epoch, 9) == [NONE, NONE, unknown]
        fenced, old = ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
        assert await mark(writer.epoch, 8) == [fenced, fenced, unknown]
        assert await mark(writer.epoch - 1, 9) == [old, old, unknown]
        requests.close()
        await cluster.stop(0)
        await cluster.start(0, **ONE_EACH)
        await cluster.until(cluster.all_partitions_have_leaders, "leaders")
        await requests.coordinator("g", 0)
        assert await mark(writer.epoch, 8) == [fenced, fenced, unknown], "kept in the snapshot"

    play(story)


def test_a_write_is_verified_while_a_marker_waits_at_the_same_broker() -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        here, there = requests.leader("t", 0), requests.leader("t", 1)
        writers = {await each.coordinator(): each for each in [await producer(requests, f"x{n}") for n in range(20)]}
        markers, waiting = cluster.brokers[there].transactions.markers, []
        markers.write = lambda *_: waiting.append(True)  # type: ignore[method-assign]
        assert await writers[here].add("t", 1) is NONE
        assert await writers[here].end(is_commit=True) is NONE
        await cluster.until(lambda: bool(waiting), "a marker that is not answered")
        assert await writers[there].add("t", 0) is NONE
        assert await asyncio.wait_for(writers[there].produce("t", 0, b"v"), 5) is NONE

    play(story, 3)


def test_transactions_are_listed_by_their_coordinators() -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        writers = [await producer(requests, f"x{number}") for number in range(6)]
        for writer in writers[:3]:
            assert await writer.add("t", 0) is NONE
        found: dict[str, str] = {}
        for broker_id in range(3):
            found |= await requests.transactions(broker_id)
        assert found == {f"x{number}": "Ongoing" if number < 3 else "Empty" for number in range(6)}

    play(story, 3)


def test_markers_wait_for_a_leader_that_is_away_through_a_restart_of_the_coordinator() -> None:
    async def story(cluster: VirtualCluster, requests: Requests) -> None:
        leader = requests.leader("t", 0)
        for number in range(20):
            writer = await producer(requests, f"x{number}")
            coordinator = await writer.coordinator()
            if coordinator != leader:
                break
        assert coordinator != leader
        assert await writer.add("t", 0) is NONE
        assert await writer.produce("t", 0, b"v") is NONE
        await cluster.stop(leader)
        assert await writer.end(is_commit=True) is NONE
        await asyncio.sleep(2)  # sleep: virtual
        assert await writer.state() == "PrepareCommit"
        requests.close()
        await cluster.stop(coordinator)
        await cluster.start(coordinator, **ONE_EACH)
        await cluster.until(lambda: cluster.controller() >= 0, "a controller")
        await asyncio.sleep(2)  # sleep: virtual
        assert await writer.state() == "PrepareCommit"
        requests.close()
        await cluster.start(leader, **ONE_EACH)
        await cluster.until(cluster.all_partitions_have_leaders, "leaders")
        await writer.until_complete()
        assert await requests.read("t", 0) == ([b"v"], [])
        assert await requests.end_offset("t", 0) == 2

    play(story, 3)
