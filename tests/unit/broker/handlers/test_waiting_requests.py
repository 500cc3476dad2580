"""Requests that wait at a partition with followers: what they wait for, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.cold_reads import bring_in
from ottla.broker.handlers import delete_records, list_offsets, produce
from ottla.broker.replicas.partition import Partition
from ottla.broker.server import Broker
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record, encode_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from unit.broker.handlers.test_roles import (
    LONG_MS,
    OTHER,
    Asked,
    ask_fetch,
    ask_offset,
    ask_produce,
    asked,
    fetched,
    follow,
    lead,
    listed,
    produced,
    with_broker,
)

pytestmark = pytest.mark.spec("R2")

Change = Callable[[Broker], object]


def lead_again(broker: Broker) -> object:
    """Lead in another epoch."""
    return lead(broker, 2, (OTHER,), (OTHER,))


CHANGES: list[Change] = [
    lead_again,
    lambda broker: follow(broker, 2),
    lambda broker: (follow(broker, 2), lead(broker, 3)),
    lambda broker: broker.partitions.stop("t", 0),
]
IDS = ["epoch", "follower", "follower and leader again", "stopped"]


def led(broker: Broker) -> Partition:
    """Lead with a follower that is in sync and alive."""
    broker.partitions.replication.is_alive = lambda _: True
    return lead(broker, 1, (OTHER,), (OTHER,))


async def with_records(broker: Broker, count: int = 3) -> Partition:
    """Lead as `led` does, with records that the follower has, too."""
    partition = led(broker)
    for _ in range(count):
        assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
    partition.fetched(OTHER, count, 0, 0.0)
    assert partition.log.high_watermark == count
    return partition


@pytest.mark.parametrize("version", range(3, 12))
def test_an_acknowledgement_of_all_is_the_same_however_it_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    async def scenario(broker: Broker) -> None:
        partition = led(broker)
        answers = []
        for end in (1, 2):
            waiting = ask_produce(broker, version=version)
            waiting.throttle_ms = 7
            assert waiting.answer is None
            partition.fetched(OTHER, end, 0, 0.0)
            answers.append(await waiting.answered())
            # The second goes by the schema.
            monkeypatch.setattr(produce, "FIXED_ANSWER_SINCE", version + 1)
        short, by_schema = answers
        (one,), (other,) = (answer.responses[0].partition_responses for answer in answers)
        assert (one.error_code, one.base_offset, other.base_offset) == (0, 0, 1)
        other.base_offset = 0
        assert short == by_schema
        assert short.throttle_time_ms == 7

    with_broker(tmp_path, scenario)


def ask_delete(broker: Broker, offset: int, timeout_ms: int = LONG_MS) -> Asked:
    topics = [DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])]
    return asked(broker, delete_records, 21, 2, DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms))


async def deleted(context: Asked) -> tuple[int, int]:
    """Error and low watermark."""
    (found,) = (await context.answered()).topics[0].partitions
    return found.error_code, found.low_watermark


def test_records_are_deleted_once_the_followers_have_deleted_them(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partition = await with_records(broker)
        first, all_ = ask_delete(broker, 2), ask_delete(broker, -1)
        assert partition.log.log_start_offset == 3
        assert (first.answer, all_.answer) == (None, None)
        partition.fetched(OTHER, 3, 2, 1.0)
        assert await deleted(first) == (0, 2)
        assert all_.answer is None
        partition.fetched(OTHER, 3, 3, 2.0)
        assert await deleted(all_) == (0, 3)
        assert await deleted(ask_delete(broker, 1)) == (0, 3), "long done"

    with_broker(tmp_path, scenario)


def test_a_follower_that_is_not_alive_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await with_records(broker)
        waiting = ask_delete(broker, 3)
        assert waiting.answer is None
        broker.partitions.replication.is_alive = lambda _: False
        list(broker.partitions.check_lags())
        assert await deleted(waiting) == (0, 3)
        assert await deleted(ask_delete(broker, 3)) == (0, 3)

    with_broker(tmp_path, scenario)


def test_a_deletion_that_followers_do_not_follow_in_time_says_how_far_they_are(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partition = await with_records(broker)
        partition.fetched(OTHER, 3, 1, 1.0)
        assert await deleted(ask_delete(broker, 3, timeout_ms=1)) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        assert partition.log.log_start_offset == 3

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
def test_a_deletion_that_waits_ends_with_the_role_and_leader_epoch(tmp_path: Path, change: Change) -> None:
    async def scenario(broker: Broker) -> None:
        await with_records(broker)
        waiting = ask_delete(broker, 3)
        change(broker)
        partition = broker.partitions.get("t", 0)
        assert partition is not None
        if change is lead_again:
            assert waiting.answer is None, "the followers are to have the start all the same"
            partition.fetched(OTHER, 3, 3, 0.0)
            assert await deleted(waiting) == (0, 3)
        else:
            assert await deleted(waiting) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert waiting.client_state.pending is None

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
def test_produce_and_fetch_that_wait_end_with_the_role_and_leader_epoch(tmp_path: Path, change: Change) -> None:
    async def scenario(broker: Broker) -> None:
        led(broker)
        consumer, producer = ask_fetch(broker), ask_produce(broker)
        assert (consumer.answer, producer.answer) == (None, None)
        change(broker)
        assert await fetched(consumer) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        if change is lead_again:
            partition = broker.partitions.get("t", 0)
            assert partition is not None
            assert producer.answer is None, "its record is still in the log"
            partition.fetched(OTHER, 1, 0, 0.0)
        expected = ErrorCode.NONE if change is lead_again else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await produced(producer) is expected

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
def test_offsets_that_wait_for_the_disk_end_with_the_role_and_leader_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    async def scenario(broker: Broker) -> None:
        await with_records(broker)

        async def read_ahead(context: Any, ranges: Any) -> None:
            change(broker)
            await bring_in(context, [])

        monkeypatch.setattr(list_offsets, "bring_in", read_ahead)
        monkeypatch.setattr(list_offsets, "without_waiting", cold_once(list_offsets.without_waiting))
        assert await listed(ask_offset(broker, 1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_broker(tmp_path, scenario)


def cold_once(without_waiting: Any) -> Any:
    """The first look-up is said to need the disk."""
    calls: list[object] = []

    def wrapped(work: Any) -> Any:
        calls.append(work)
        return [object()] if len(calls) == 1 else without_waiting(work)

    return wrapped


def test_acks_of_all_time_out_where_the_isr_shrinks_below_the_minimum_after_the_append(tmp_path: Path) -> None:
    """As Apache Kafka 3.9 with ZooKeeper: the high watermark stands still, so that nothing but the time is left."""

    async def scenario(broker: Broker) -> None:
        partition = led(broker)
        waiting = ask_produce(broker, -1, timeout_ms=300)
        assert waiting.answer is None
        assert partition.leader is not None
        partition.leader.replicas.committed = partition.leader.replicas.maximal = frozenset((broker.id,))
        partition.fetched(OTHER, 1, 0, 1.0)
        assert partition.log.high_watermark == 0
        assert await produced(waiting) is ErrorCode.REQUEST_TIMED_OUT
        assert partition.log.log_end_offset == 1, "the record is there, and may be committed later"
        assert await produced(ask_produce(broker)) is ErrorCode.NOT_ENOUGH_REPLICAS

    with_broker(tmp_path, scenario, min_insync_replicas="2")


def test_an_offset_by_time_below_the_high_watermark_is_found_before_it_reaches_the_leader_epoch(tmp_path: Path) -> None:
    """As Apache Kafka's `fetchOffsetForTimestamp`: only what may be above is not known yet (KIP-207)."""

    async def scenario(broker: Broker) -> None:
        await with_records(broker)
        assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
        lead(broker, 2, (OTHER,), (OTHER,))
        found = (await ask_offset(broker, 1).answered()).topics[0].partitions[0]
        assert (found.error_code, found.offset) == (0, 0)
        for timestamp, version, error in (
            (2, 7, ErrorCode.OFFSET_NOT_AVAILABLE),
            (-1, 7, ErrorCode.OFFSET_NOT_AVAILABLE),
            (-1, 4, ErrorCode.LEADER_NOT_AVAILABLE),
            (-2, 7, ErrorCode.NONE),
        ):
            assert await listed(ask_offset(broker, timestamp, version)) is error

    with_broker(tmp_path, scenario)


def test_a_consumer_waits_for_as_many_bytes_as_it_asks_for(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partition = led(broker)
        assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
        size = partition.log.segments[0].size
        consumer = ask_fetch(broker, min_bytes=2 * size)
        partition.fetched(OTHER, 1, 0, 1.0)
        assert consumer.answer is None
        for _ in range(2):
            assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
        assert consumer.answer is None, "appended, and not visible yet"
        partition.fetched(OTHER, 2, 0, 2.0)
        assert await fetched(consumer) is ErrorCode.NONE
        assert len(consumer.answer.responses[0].partitions[0].records) == 2 * size

    with_broker(tmp_path, scenario)


# -- on a follower


def appended(broker: Broker, partition: Partition, *batches: bytes | memoryview) -> None:
    """Append as the follower's fetcher does, with offsets of the leader."""
    for batch in batches:
        broker.partitions.append_fetched(partition, memoryview(bytearray(batch)))


def batch_at(offset: int, producer_id: int = -1) -> bytes:
    options: dict[str, Any] = {}
    if producer_id >= 0:
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    return encode_batch([Record(0, 1, b"k", b"v")], base_offset=offset, leader_epoch=1, **options)


def abort_at(offset: int, producer_id: int) -> bytes:
    key, value = end_transaction_record(ControlRecordType.ABORT, 0)
    return encode_batch(
        [Record(0, 1, key, value)],
        base_offset=offset,
        leader_epoch=1,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


def test_a_consumer_that_waits_at_a_follower_gets_what_becomes_committed(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partition = follow(broker, 1)
        consumer = ask_fetch(broker)
        appended(broker, partition, batch_at(0), batch_at(1))
        assert consumer.answer is None
        partition.learn_high_watermark(1)
        (data,) = (await consumer.answered()).responses[0].partitions
        assert (data.error_code, data.high_watermark, len(data.records)) == (0, 1, len(batch_at(0)))

    with_broker(tmp_path, scenario)


def test_a_follower_tells_consumers_of_committed_transactions_from_its_own_log(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partition = follow(broker, 1)
        appended(broker, partition, batch_at(0, 7), abort_at(1, 7), batch_at(2))
        partition.learn_high_watermark(1)
        waiting = ask_fetch(broker, isolation_level=1)
        assert waiting.answer is None, "the transaction is open as far as is known to be committed"
        partition.learn_high_watermark(3)
        (data,) = (await waiting.answered()).responses[0].partitions
        assert (data.high_watermark, data.last_stable_offset) == (3, 3)
        assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions] == [(7, 0)]
        assert len(data.records) == partition.log.segments[0].size

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("offset", "version", "error"),
    [
        (1, 11, ErrorCode.NONE),
        (2, 11, ErrorCode.NONE),
        (3, 11, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 10, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (3, 10, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_a_follower_answers_beyond_its_high_watermark(
    tmp_path: Path, offset: int, version: int, error: ErrorCode
) -> None:
    async def scenario(broker: Broker) -> None:
        partition = follow(broker, 1)
        appended(broker, partition, batch_at(0), batch_at(1))
        partition.learn_high_watermark(1)
        assert partition.log.log_end_offset == 2
        answer = await asyncio.wait_for(ask_fetch(broker, offset, version, max_wait_ms=0).answered(), 60)
        (data,) = answer.responses[0].partitions
        assert (data.error_code, len(data.records or b"")) == (error, 0)

    with_broker(tmp_path, scenario)
