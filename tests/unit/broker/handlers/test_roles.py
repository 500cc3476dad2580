"""What the role of a replica is for requests: who may be asked what, and what ends when the role changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.context import RequestContext
from ottla.broker.fetches.requested import TOPIC_IDS_SINCE
from ottla.broker.handlers import delete_records, fetch, list_offsets, offset_for_leader_epoch, produce
from ottla.broker.replicas.partition import Partition
from ottla.broker.server import Broker
from ottla.cluster.image import PartitionImage, TopicImage
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.records.record import Record, encode_batch
from ottla.wire.codec import decode
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import RequestHeader
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from unit.broker.handlers.test_fetch import Client

pytestmark = pytest.mark.spec("R2")

LONG_MS = 60_000
OTHER = 99
WAIT_S = 60.0


RESPONSES: dict[int, Any] = {
    0: ProduceResponse,
    1: FetchResponse,
    2: ListOffsetsResponse,
    21: DeleteRecordsResponse,
    23: OffsetForLeaderEpochResponse,
}


class Asked(RequestContext):
    """A request whose answer is kept as a message."""

    answer: Any = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._answered = asyncio.Event()

    def reply_body(self, body: bytes) -> None:
        self.answer = decode(RESPONSES[self.header.api_key], body, self.api_version)
        self._answered.set()

    async def answered(self) -> Any:
        """The answer, once there is one: on a busy machine even a short one is made in slices."""
        await asyncio.wait_for(self._answered.wait(), WAIT_S)
        return self.answer

    def reply_parts(self, parts: Any, length: int) -> None:
        self.reply_body(b"".join(part if isinstance(part, bytes) else part.read() for part in parts))


def asked(broker: Broker, handler: Any, key: int, version: int, request: Any) -> Asked:
    stand_in: Any = Client()
    context = Asked(broker, stand_in, RequestHeader(key, version, 1, "c"))
    handler.handle(context, request)
    return context


def ask_produce(broker: Broker, acks: int = -1, version: int = 9, timeout_ms: int = LONG_MS) -> Asked:
    data = PartitionProduceData(index=0, records=memoryview(bytearray(encode_batch([Record(0, 1, b"k", b"v")]))))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    request = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=topics)
    return asked(broker, produce, 0, version, request)


def ask_fetch(
    broker: Broker,
    offset: int = 0,
    version: int = 12,
    min_bytes: int = 1,
    epoch: int = -1,
    max_wait_ms: int = LONG_MS,
    isolation_level: int = 0,
    rack: str = "",
    session: tuple[int, int] = (0, -1),
) -> Asked:
    partition = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    by_id = version >= TOPIC_IDS_SINCE
    topic_id = topic_of(broker).topic_id if by_id else UUID(int=0)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        isolation_level=isolation_level,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        rack_id=rack,
        topics=[FetchTopic(topic="" if by_id else "t", topic_id=topic_id, partitions=[partition])],
    )
    return asked(broker, fetch, 1, version, request)


def ask_offset(broker: Broker, timestamp: int, version: int = 7, replica_id: int = -1) -> Asked:
    partition = ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=-1, max_num_offsets=1 if version == 0 else 0
    )
    topics = [ListOffsetsTopic(name="t", partitions=[partition])]
    return asked(broker, list_offsets, 2, version, ListOffsetsRequest(replica_id=replica_id, topics=topics))


async def produced(context: Asked) -> ErrorCode:
    return ErrorCode((await context.answered()).responses[0].partition_responses[0].error_code)


async def fetched(context: Asked) -> ErrorCode:
    return ErrorCode((await context.answered()).responses[0].partitions[0].error_code)


async def listed(context: Asked) -> ErrorCode:
    return ErrorCode((await context.answered()).topics[0].partitions[0].error_code)


def topic_of(broker: Broker) -> TopicImage:
    return broker.image.topics["t"]


def follow(broker: Broker, epoch: int) -> Partition:
    replicas = (broker.id, OTHER)
    state = PartitionImage(OTHER, epoch, replicas, replicas)
    return broker.partitions.make_follower(topic_of(broker), 0, state, broker.control.topic_configs.log_config("t"))


def lead(broker: Broker, epoch: int, replicas: tuple[int, ...] = (), isr: tuple[int, ...] = ()) -> Partition:
    """Lead with these followers, of which those in `isr` are in sync; they have fetched nothing."""
    state = PartitionImage(broker.id, epoch, (broker.id, *replicas), (broker.id, *isr))
    return broker.partitions.make_leader(topic_of(broker), 0, state, broker.control.topic_configs.log_config("t"))


def with_broker(
    folder: Path,
    scenario: Callable[[Broker], Awaitable[None]],
    settings: Mapping[str, str] = MappingProxyType({}),
    **configs: str,
) -> None:
    """Run a scenario with a broker and a topic `t`; `configs` are the topic's."""

    async def run() -> None:
        config = parse_broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), **settings})
        assert isinstance(config, BrokerConfig), config
        broker = Broker(config)
        assert await broker.start() is None
        try:
            named = {name.replace("_", "."): value for name, value in configs.items()}
            await broker.control.admin.create_topic(TopicSpec("t", 1, 1, configs=named))
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(run())


def test_the_leader_alone_is_written_to_and_asked_for_offsets(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await produced(ask_produce(broker)) is ErrorCode.NONE
        follow(broker, 1)
        for acks in (-1, 1):
            assert await produced(ask_produce(broker, acks)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        for version, timestamp in ((7, -1), (7, -2), (7, 0), (0, -1)):
            assert await listed(ask_offset(broker, timestamp, version)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        wanted = DeleteRecordsPartition(partition_index=0, offset=-1)
        topics = [DeleteRecordsTopic(name="t", partitions=[wanted])]
        deleted = asked(broker, delete_records, 21, 2, DeleteRecordsRequest(topics=topics, timeout_ms=LONG_MS))
        assert (await deleted.answered()).topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        epoch = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
        epochs = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[epoch])]
        )
        ended = asked(broker, offset_for_leader_epoch, 23, 4, epochs)
        assert (await ended.answered()).topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_broker(tmp_path, scenario)


def test_consumers_read_from_followers_up_to_what_is_committed_there(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        for _ in range(3):
            await ask_produce(broker).answered()
        partition = follow(broker, 1)
        partition.log.high_watermark = 0
        partition.learn_high_watermark(2)
        assert await fetched(ask_fetch(broker, version=10)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = (await ask_fetch(broker).answered()).responses[0].partitions[0]
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 2)
        assert ask_fetch(broker, 2).answer is None, "between its high watermark and its end there is nothing yet"
        assert await fetched(ask_fetch(broker, 4)) is ErrorCode.OFFSET_OUT_OF_RANGE

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("change", ["epoch", "follower", "follower and leader again"])
def test_requests_that_wait_end_with_the_role_and_leader_epoch(tmp_path: Path, change: str) -> None:
    async def scenario(broker: Broker) -> None:
        lead(broker, 1, (OTHER,), (OTHER,))
        waiting_fetch = ask_fetch(broker)
        waiting_produce = ask_produce(broker)
        assert (waiting_fetch.answer, waiting_produce.answer) == (None, None)
        if change == "epoch":
            lead(broker, 2, (OTHER,), (OTHER,))
        else:
            follow(broker, 2)
            if change != "follower":
                lead(broker, 3)
        assert await fetched(waiting_fetch) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        if change == "epoch":
            # The records are still in the leader's log: a second attempt would write them twice.
            assert waiting_produce.answer is None
            partition = broker.partitions.get("t", 0)
            assert partition is not None
            partition.fetched(OTHER, partition.log.log_end_offset, 0, 0)
        expected = ErrorCode.NONE if change == "epoch" else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await produced(waiting_produce) is expected
        assert waiting_fetch.client_state.pending is None

    with_broker(tmp_path, scenario)


def test_a_small_isr_refuses_acks_of_all(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        lead(broker, 1, (OTHER,))
        assert await produced(ask_produce(broker)) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
        partition = broker.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.high_watermark == 0, "and what others take is not committed"
        assert (partition.traffic.appends, partition.traffic.failed_appends) == (2, 1)

    with_broker(tmp_path, scenario, min_insync_replicas="2")


def test_the_effective_minimum_is_never_more_than_there_are_replicas(tmp_path: Path) -> None:
    """As Apache Kafka from 3.8 on: a topic with one replica takes acks=all, whatever min.insync.replicas says."""

    async def scenario(broker: Broker) -> None:
        assert await produced(ask_produce(broker)) is ErrorCode.NONE

    with_broker(tmp_path, scenario, min_insync_replicas="2")


def test_the_end_is_not_reported_before_the_high_watermark_has_reached_the_leader_epoch(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        lead(broker, 1, (OTHER,))
        await ask_produce(broker, 1).answered()
        lead(broker, 2, (OTHER,))
        for timestamp in (-1, 0, -3):
            assert await listed(ask_offset(broker, timestamp)) is ErrorCode.OFFSET_NOT_AVAILABLE
        assert await listed(ask_offset(broker, -1, 4)) is ErrorCode.LEADER_NOT_AVAILABLE
        assert await listed(ask_offset(broker, -2)) is ErrorCode.NONE

    with_broker(tmp_path, scenario, min_insync_replicas="2")


@pytest.mark.parametrize("replica_id", [OTHER, -2])
def test_brokers_and_debuggers_see_the_log_end(tmp_path: Path, replica_id: int) -> None:
    """As Apache Kafka (`isolationLevelOpt` of `KafkaApis`): a consumer sees what is committed."""

    async def scenario(broker: Broker) -> None:
        lead(broker, 1, (OTHER,))
        await ask_produce(broker, 1).answered()
        assert (await ask_offset(broker, -1).answered()).topics[0].partitions[0].offset == 0
        assert (await ask_offset(broker, -1, 0).answered()).topics[0].partitions[0].old_style_offsets == [0]
        for version, field in ((7, "offset"), (0, "old_style_offsets")):
            (found,) = (await ask_offset(broker, -1, version, replica_id).answered()).topics[0].partitions
            assert getattr(found, field) in (1, [1])
        lead(broker, 2, (OTHER,))
        assert await listed(ask_offset(broker, -1)) is ErrorCode.OFFSET_NOT_AVAILABLE
        assert await listed(ask_offset(broker, -1, 7, replica_id)) is ErrorCode.NONE
        follow(broker, 3)
        expected = ErrorCode.NONE if replica_id == -2 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await listed(ask_offset(broker, -1, 7, replica_id)) is expected

    with_broker(tmp_path, scenario, min_insync_replicas="2")
