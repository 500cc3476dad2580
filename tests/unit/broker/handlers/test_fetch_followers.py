"""A leader of ours between two Apache Kafka followers, played over TCP: raw Fetch 17 frames with replica state."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.replicas.partition import Partition
from ottla.broker.server import Broker, _session_cache
from ottla.cluster.isr import IsrProposal
from ottla.records.batch import split_batches
from ottla.wire.codec import decode, encode
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from support.waiting import until
from unit.broker.handlers.test_roles import (
    WAIT_S,
    ask_fetch,
    ask_produce,
    fetched,
    lead,
    produced,
    topic_of,
    with_broker,
)

pytestmark = pytest.mark.spec("R2")

FOLLOWERS = (2, 3)
#: Broker epochs of the followers, less their ids.
EPOCHS = 40


class Follower:
    """Sends what Apache Kafka's `ReplicaFetcherThread` sends: Fetch 17 with sessions, header version 2."""

    #: Added to its id, the broker epoch in its requests.
    epochs = EPOCHS

    def __init__(self, replica_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.replica_id = replica_id
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._session = (0, 0)

    @classmethod
    async def connect(cls, replica_id: int, broker: Broker) -> Follower:
        return cls(replica_id, *await asyncio.open_connection("127.0.0.1", broker.listening[0].port))

    async def more(self, broker: Broker, *, wait_ms: int = 0) -> PartitionData | None:
        """Fetch again without naming the partition; None where the session's answer leaves it out."""
        return await self._fetch(broker, [], wait_ms)

    async def fetch(
        self, broker: Broker, offset: int, *, wait_ms: int = 0, epoch: int = 1, last_epoch: int = -1
    ) -> PartitionData | None:
        """Fetch at an offset; None where the session's answer leaves the partition out."""
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        topics = [FetchTopic(topic_id=topic_of(broker).topic_id, partitions=[partition])]
        return await self._fetch(broker, topics, wait_ms)

    async def _fetch(self, broker: Broker, topics: list[FetchTopic], wait_ms: int) -> PartitionData | None:
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.replica_id, replica_epoch=self.epochs + self.replica_id),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=10 << 20,
            session_id=self._session[0],
            session_epoch=self._session[1],
            topics=topics,
        )
        self._correlation_id += 1
        client_id = f"broker-{self.replica_id}-fetcher-0".encode()
        head = struct.pack(">hhih", 1, 17, self._correlation_id, len(client_id)) + client_id + b"\0"
        frame = head + encode(request, 17)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", await self._reader.readexactly(4))[0]
        body = await asyncio.wait_for(self._reader.readexactly(size), WAIT_S)
        assert struct.unpack(">i", body[:4])[0] == self._correlation_id
        response: Any = decode(FetchResponse, body[5:], 17)
        assert response.error_code == 0
        self._session = (response.session_id, self._session[1] + 1)
        found = [each for topic in response.responses for each in topic.partitions]
        return found[0] if found else None

    async def position(self, broker: Broker, offset: int) -> int:
        """The high watermark in the answer to a fetch at an offset."""
        data = await self.fetch(broker, offset)
        assert data is not None
        return data.high_watermark

    def close(self) -> None:
        self._writer.close()


async def until_a_fetch_waits(partition: Partition) -> None:
    await until(
        lambda: any(each.session and each.session.waiting for each in partition.watched_by.values()), "a waiting fetch"
    )


def led(broker: Broker, isr: tuple[int, ...] = FOLLOWERS) -> Partition:
    broker.partitions.replication.is_alive = lambda _: True
    broker.partitions.replication.epoch_of = lambda broker_id: EPOCHS + broker_id
    return lead(broker, 1, FOLLOWERS, isr)


def test_records_are_committed_once_both_followers_have_fetched_past_them(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partition = led(broker)
        two, three = [await Follower.connect(replica, broker) for replica in FOLLOWERS]
        await two.fetch(broker, 0)
        await three.fetch(broker, 0)
        late = asyncio.create_task(two.fetch(broker, 0, wait_ms=60_000))
        await until_a_fetch_waits(partition)
        acknowledged, consumer = ask_produce(broker), ask_fetch(broker)
        data = await late
        assert data is not None
        assert len(bytes(data.records or b"")) > 0, (
            "a follower reads beyond the high watermark, as soon as there is more"
        )
        assert (data.high_watermark, partition.log.high_watermark) == (0, 0)
        await two.fetch(broker, 1)
        assert (acknowledged.answer, consumer.answer, partition.log.high_watermark) == (None, None, 0)
        assert await three.position(broker, 1) == 1
        assert await produced(acknowledged) is ErrorCode.NONE
        assert await fetched(consumer) is ErrorCode.NONE
        assert await two.position(broker, 1) == 1, "the other one learns it with its next fetch"
        for follower in (two, three):
            follower.close()

    with_broker(tmp_path, scenario, min_insync_replicas="2")


def test_a_follower_that_has_caught_up_is_proposed_for_the_isr(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        proposals: list[IsrProposal] = []
        broker.partitions.replication.propose = lambda _, proposal: proposals.append(proposal)
        partition = led(broker, (2,))
        assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
        two, three = [await Follower.connect(replica, broker) for replica in FOLLOWERS]
        await two.fetch(broker, 1)
        assert partition.log.high_watermark == 1
        await three.fetch(broker, 0)
        assert not proposals
        await three.fetch(broker, 1)
        assert [proposal.isr for proposal in proposals] == [(broker.id, *FOLLOWERS)]
        for follower in (two, three):
            follower.close()

    with_broker(tmp_path, scenario)


def test_a_follower_that_consumers_read_hears_of_the_high_watermark_at_once(tmp_path: Path) -> None:
    """KIP-392: in Apache Kafka it hears of it with the next records, or when its fetch has waited long enough."""

    async def scenario(broker: Broker) -> None:
        partition = led(broker)
        two, three = [await Follower.connect(replica, broker) for replica in FOLLOWERS]
        for follower in (two, three):
            await follower.fetch(broker, 0)
        assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
        assert partition.leader is not None
        partition.leader.is_read_at(3, broker.clock.monotonic_ms())
        late = asyncio.create_task(three.fetch(broker, 1, wait_ms=60_000))
        await until_a_fetch_waits(partition)
        assert await two.position(broker, 1) == 1
        data = await asyncio.wait_for(late, 20)
        assert data is not None
        assert (data.high_watermark, bytes(data.records or b"")) == (1, b"")
        waits = asyncio.create_task(three.more(broker, wait_ms=60_000))
        await until_a_fetch_waits(partition)
        assert not waits.done(), "and once only"
        waits.cancel()
        for follower in (two, three):
            follower.close()

    with_broker(tmp_path, scenario)


def test_only_what_changed_is_read_for_a_follower(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partition = led(broker)
        two = await Follower.connect(2, broker)
        await two.fetch(broker, 0)
        assert await two.more(broker) is None
        assert partition.leader is not None
        known = partition.leader.replicas.followers[2]
        (watching,) = partition.watched_by.values()
        session = watching.session
        assert session is not None
        assert session.due == {}, "the follower has everything, and knows it"
        before_ms = known.last_fetch_ms
        assert await two.more(broker) is None
        assert known.last_fetch_ms == before_ms, "it was not looked at"
        last_ms = session.last_used_ms
        assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
        assert (known.last_fetch_ms, known.last_caught_up_ms) == (last_ms, last_ms), (
            "until the append it had everything"
        )
        assert session.due == {watching: None}
        data = await two.more(broker)
        assert data is not None
        assert data.records
        await two.fetch(broker, 1)
        await two.more(broker)
        assert session.due == {}
        for change in (partition.changed, lambda: partition.end_role(ErrorCode.NOT_LEADER_OR_FOLLOWER)):
            change()
            assert session.due == {watching: None}
            await two.more(broker)
        assert partition.watched_by == {}
        two.close()

    with_broker(tmp_path, scenario)


def test_a_waiting_follower_gets_what_other_requests_append_meanwhile(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partition = led(broker)
        two = await Follower.connect(2, broker)
        await two.fetch(broker, 0)
        late = asyncio.create_task(two.more(broker, wait_ms=60_000))
        await until_a_fetch_waits(partition)
        for _ in range(3):
            ask_produce(broker, 1)
        data = await late
        assert data is not None
        assert len(split_batches(memoryview(data.records))) == 3
        await two.fetch(broker, 3)
        assert partition.leader is not None
        assert partition.leader.replicas.followers[2].end_offset == 3
        two.close()

    with_broker(tmp_path, scenario)


def test_what_a_leader_refuses_to_followers(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partition = led(broker)
        assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
        two, stranger = await Follower.connect(2, broker), await Follower.connect(9, broker)
        assert partition.leader is not None
        known = partition.leader.replicas.followers[2]
        for offset, epoch, error in (
            (0, 0, ErrorCode.FENCED_LEADER_EPOCH),
            (0, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (2, 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ):
            refused = await two.fetch(broker, offset, epoch=epoch)
            assert refused is not None
            assert (refused.error_code, known.end_offset) == (error, -1)
        data = await two.fetch(broker, 1, last_epoch=0)
        assert data is not None
        assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 0, 0)
        assert known.end_offset == -1, "a fetch that has diverged is no progress"
        refused = await stranger.fetch(broker, 0)
        assert refused is not None
        assert refused.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        for follower in (two, stranger):
            follower.close()

    with_broker(tmp_path, scenario)


def test_a_follower_joins_only_under_its_present_registration(tmp_path: Path) -> None:
    """KIP-903: what it had before it was restarted, it may have lost."""

    async def scenario(broker: Broker) -> None:
        proposals: list[IsrProposal] = []
        broker.partitions.replication.propose = lambda _, proposal: proposals.append(proposal)
        led(broker, (2,))
        registered: dict[int, int | None] = {2: EPOCHS + 2, 3: EPOCHS + 4}
        broker.partitions.replication.epoch_of = registered.get
        three = await Follower.connect(3, broker)
        refused = await three.fetch(broker, 0)
        assert refused is not None
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was sent before the restart"
        registered[3] = None
        await three.fetch(broker, 0)
        assert not proposals, "its registration is gone"
        registered[3] = EPOCHS + 2
        await three.fetch(broker, 0)
        assert not proposals, "it fetches under a registration that is not known here yet"
        registered[3] = EPOCHS + 3
        await three.fetch(broker, 0)
        assert [proposal.isr for proposal in proposals] == [(broker.id, *FOLLOWERS)]
        assert proposals[0].broker_epochs == {3: EPOCHS + 3}, "the others have not fetched yet"
        three.close()

    with_broker(tmp_path, scenario)


def test_a_follower_of_a_version_without_broker_epochs_joins(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        proposals: list[IsrProposal] = []
        broker.partitions.replication.propose = lambda _, proposal: proposals.append(proposal)
        partition = led(broker, (2,))
        partition.fetched(3, 0, 0, 0.0)
        assert [proposal.isr for proposal in proposals] == [(broker.id, *FOLLOWERS)]
        assert not proposals[0].broker_epochs

    with_broker(tmp_path, scenario)


def test_sessions_of_followers_and_of_consumers_do_not_take_each_others_place(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        led(broker)
        broker.fetch_sessions = full = _session_cache(broker)
        while full.create(True, [], 0) is not None and len(full) < 1_000:
            pass
        two = await Follower.connect(2, broker)
        await two.fetch(broker, 0)
        assert (len(broker.follower_sessions), len(full), full.evictions) == (1, 1_000, 0)
        assert await two.fetch(broker, 0) is None, "its session has the partition as it is"
        two.close()

    with_broker(tmp_path, scenario)
