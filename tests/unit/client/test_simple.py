"""The simple consumer over fake brokers: leaders that move, brokers that are down, records that cannot be read."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client import SimpleConsumer
from ottla.client.errors import (
    BrokerError,
    BrokerUnreachableError,
    InvalidArgumentError,
    OffsetOutOfRange,
    RecordDeserializationError,
    UnknownTopicError,
)
from ottla.client.model import EARLIEST, LATEST
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("C9")

FAST = {"retry.backoff.ms": 1, "fetch.max.wait.ms": 10, "default.api.timeout.ms": 30_000, "request.timeout.ms": 15_000}


def with_consumer(servers: str, work, **settings):
    async def whole():
        async with SimpleConsumer({**FAST, "bootstrap.servers": servers}, **settings) as consumer:
            return await work(consumer)

    return asyncio.run(whole())


def test_a_record_is_read_as_often_as_one_likes(fake):
    [p] = fake.topic("t", 0)
    fake.fill(p, 30)

    async def work(consumer):
        return [await consumer.fetch("t", 0, 10, max_bytes=1) for _ in range(3)]

    for fetched in with_consumer(fake.bootstrap, work):
        assert fetched.records[0].offset == 10
        assert fetched.next_offset == fetched.records[-1].offset + 1
        assert (fetched.high_watermark, fetched.leader) == (30, 0)


def test_a_leader_is_found_and_found_again(fakes):
    [p] = fakes.topic("t", 1)
    fakes.fill(p, 10)

    async def work(consumer):
        before = await consumer.find_leader("t", 0)
        first = await consumer.fetch("t", 0, 0)
        fakes.leaders[p] = 2
        second = await consumer.fetch("t", 0, 0)
        return before, first, second, await consumer.find_leader("t", 0)

    before, first, second, after = with_consumer(fakes.bootstrap, work)
    assert (before.leader.node_id, first.leader, second.leader, after.leader.node_id) == (1, 1, 2, 2)
    assert [node.node_id for node in before.replicas] == [0]
    assert [record.offset for record in second.records] == list(range(10))


def test_the_first_broker_of_the_list_that_lives_is_asked(fake):
    [p] = fake.topic("t", 0)
    fake.fill(p, 1)

    async def work(consumer):
        return (await consumer.find_leader("t", 0)).leader.node_id

    assert with_consumer(f"127.0.0.1:1,{fake.bootstrap}", work) == 0
    with pytest.raises(BrokerUnreachableError, match="check that the broker runs"):
        with_consumer("127.0.0.1:1", work)


@pytest.mark.parametrize(("at", "offset"), [(EARLIEST, 0), (LATEST, 30)])
def test_earliest_and_latest(fake, at, offset):
    [p] = fake.topic("t", 0)
    fake.fill(p, 30)
    assert with_consumer(fake.bootstrap, lambda consumer: consumer.earliest_or_latest_offset("t", 0, at)) == offset


def test_offsets_that_are_not_there(fake):
    [p] = fake.topic("t", 0)
    fake.fill(p, 30)
    with pytest.raises(
        OffsetOutOfRange, match=r"offset 31 of t-0 is not written yet.* it has offsets 0 to 30"
    ) as raised:
        with_consumer(fake.bootstrap, lambda consumer: consumer.fetch("t", 0, 31))
    assert (raised.value.earliest, raised.value.latest) == (0, 30)
    end = with_consumer(fake.bootstrap, lambda consumer: consumer.fetch("t", 0, 30))
    assert (end.records, end.next_offset) == ([], 30)


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (lambda c: c.fetch("t", 0, -1), InvalidArgumentError, r"the offset of t-0 .* is a whole number from 0"),
        (lambda c: c.fetch("t", 7, 0), BrokerError, "t has no partition 7"),
        (lambda c: c.find_leader("none", 0), UnknownTopicError, "topic none does not exist"),
        (lambda c: c.earliest_or_latest_offset("t", 0, -3), InvalidArgumentError, "or a timestamp in ms"),
    ],
)
def test_what_cannot_be_asked(fake, work, error, message):
    fake.topic("t", 0)
    with pytest.raises(error, match=message):
        with_consumer(fake.bootstrap, work, metadata_max_age_ms=100)


@pytest.mark.parametrize("fault", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE])
def test_what_passes_is_tried_again(fake, fault):
    [p] = fake.topic("t", 0)
    fake.fill(p, 10)
    fake.faults[ApiKey.FETCH].append(fault)
    assert len(with_consumer(fake.bootstrap, lambda consumer: consumer.fetch("t", 0, 0)).records) == 10


def test_deserializers_and_what_they_refuse(fake):
    [p] = fake.topic("t", 0)
    fake.fill(p, 10)

    def odd(data: bytes) -> int:
        if data.endswith(b"7"):
            raise ValueError("a seven")
        return len(data)

    async def work(consumer):
        return await consumer.fetch("t", 0, 0)

    fetched = with_consumer(fake.bootstrap, work, key_deserializer=odd)
    assert fetched.next_offset == 7
    with pytest.raises(RecordDeserializationError, match="at offset 7 of t-0"):
        with_consumer(fake.bootstrap, lambda consumer: consumer.fetch("t", 0, 7), key_deserializer=odd)


def test_deserializers_are_closed_once(fake):
    closed = []

    class Closing:
        def deserialize(self, topic, headers, data):
            return data

        def close(self):
            closed.append(self)

    async def work():
        consumer = SimpleConsumer(bootstrap_servers=fake.bootstrap, value_deserializer=Closing())
        await consumer.close()
        await consumer.close()

    asyncio.run(work())
    assert len(closed) == 1
