"""aiokafka: asyncio, with a protocol layer of its own that speaks older versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

from support.brokers import RunningBroker

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
TIMEOUT_S = 60.0


class Clients:
    """Makes clients of one broker, all stopped in the end."""

    def __init__(self, broker: RunningBroker, group: str, stack: AsyncExitStack) -> None:
        self.bootstrap = broker.bootstrap
        self.group = group
        self.stack = stack

    async def _started(self, client: Any) -> Any:
        await client.start()
        self.stack.push_async_callback(client.close if hasattr(client, "close") else client.stop)
        return client

    async def producer(self, **config: Any) -> AIOKafkaProducer:
        return await self._started(AIOKafkaProducer(bootstrap_servers=self.bootstrap, **config))

    async def admin(self) -> AIOKafkaAdminClient:
        return await self._started(AIOKafkaAdminClient(bootstrap_servers=self.bootstrap))

    async def consumer(self, *topics: str, **config: Any) -> AIOKafkaConsumer:
        settings: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 30_000,
            "metadata_max_age_ms": 1000,
        }
        return await self._started(AIOKafkaConsumer(*topics, **settings | config))

    async def topic(self, partitions: int = 1, **config: str) -> str:
        configs = {name.replace("_", "."): value for name, value in config.items()}
        admin = await self.admin()
        await admin.create_topics([NewTopic(self.group, partitions, 1, topic_configs=configs)])
        return self.group


@pytest.fixture
def run(broker: RunningBroker, unique: str) -> Callable[[Callable[[Clients], Coroutine[Any, Any, None]]], None]:
    """Runs a coroutine function with `Clients` in a loop of its own."""

    @asynccontextmanager
    async def clients() -> AsyncIterator[Clients]:
        async with AsyncExitStack() as stack:
            yield Clients(broker, unique, stack)

    def runner(body: Callable[[Clients], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with clients() as made:
                await body(made)

        asyncio.run(main())

    return runner


async def read(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(found) < count:
            batches = await consumer.getmany(timeout_ms=100, max_records=count - len(found))
            for records in batches.values():
                found += records
    return found


async def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    try:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110  the client has no event to wait for
                await asyncio.sleep(0.02)  # sleep: between two looks at the condition
    except TimeoutError:
        raise AssertionError(f"waited in vain for {what()}") from None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.spec("L2", "L7")
def test_all_parts_of_a_record_survive(run: Any, codec: str | None) -> None:
    sent: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", (("a", b"1"), ("a", b""), ("ü", b"2"))),
        (b"no value", None, ()),
        (b"k", b"v" * 10_000, ()),
    ]

    async def body(clients: Clients) -> None:
        topic = await clients.topic()
        producer = await clients.producer(compression_type=codec)
        for number, (key, value, headers) in enumerate(sent):
            await producer.send_and_wait(
                topic, value, key, partition=0, timestamp_ms=1000 + number, headers=list(headers)
            )
        consumer = await clients.consumer(topic)
        got = await read(consumer, len(sent))
        assert [(one.key, one.value, tuple(one.headers)) for one in got] == sent
        assert [(one.offset, one.timestamp) for one in got] == [(n, 1000 + n) for n in range(len(sent))]

    run(body)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acknowledgements(run: Any, acks: Any) -> None:
    async def body(clients: Clients) -> None:
        topic = await clients.topic()
        producer = await clients.producer(acks=acks)
        sent = [await producer.send(topic, b"%d" % number, partition=0) for number in range(50)]
        await producer.flush()
        if acks != 0:
            assert [(await one).offset for one in sent] == list(range(50))
        got = await read(await clients.consumer(topic), 50)
        assert [one.value for one in got] == [b"%d" % number for number in range(50)]

    run(body)


@pytest.mark.spec("P5")
def test_an_idempotent_producer_keeps_order(run: Any) -> None:
    async def body(clients: Clients) -> None:
        topic = await clients.topic(3)
        producer = await clients.producer(enable_idempotence=True, max_batch_size=500)
        for number in range(1500):
            await producer.send(topic, b"%d" % number, partition=number % 3)
        await producer.flush()
        numbers: dict[int, list[int]] = {0: [], 1: [], 2: []}
        for one in await read(await clients.consumer(topic), 1500):
            numbers[one.partition].append(int(one.value))
        assert numbers == {partition: list(range(partition, 1500, 3)) for partition in range(3)}

    run(body)


def test_a_record_too_big_is_refused(run: Any) -> None:
    async def body(clients: Clients) -> None:
        topic = await clients.topic(max_message_bytes="10000")
        producer = await clients.producer()
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 20_000)

    run(body)


def owned(consumer: AIOKafkaConsumer) -> set[int]:
    return {one.partition for one in consumer.assignment()}


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.spec("C6", "A1", "A2", "A3")
def test_members_come_and_go(run: Any, assignor: str) -> None:
    async def settle(members: list[AIOKafkaConsumer], sizes: list[int]) -> None:
        def settled() -> bool:
            sets = [owned(member) for member in members]
            union: set[int] = set().union(*sets)
            return sum(map(len, sets)) == len(union) == 3 and sorted(map(len, sets), reverse=True) == sizes

        await until(settled, lambda: f"{sizes}: {[owned(member) for member in members]}")

    async def body(clients: Clients) -> None:
        topic = await clients.topic(3)
        members: list[AIOKafkaConsumer] = []
        for sizes in ([3], [2, 1], [1, 1, 1]):
            members.append(await clients.consumer(topic, partition_assignment_strategy=[ASSIGNORS[assignor]]))
            await settle(members, sizes)
        producer = await clients.producer()
        for number in range(30):
            await producer.send_and_wait(topic, b"%d" % number, partition=number % 3)
        for member in members:
            assert len(await read(member, 10)) == 10
        await members.pop(0).stop()
        await settle(members, [2, 1])

    run(body)


@pytest.mark.spec("C3", "C1")
def test_offsets_are_committed_sought_and_listed(run: Any) -> None:
    async def body(clients: Clients) -> None:
        topic = await clients.topic()
        partition = TopicPartition(topic, 0)
        producer = await clients.producer()
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number, timestamp_ms=1000 * (number + 1))
        first = await clients.consumer(topic)
        await read(first, 6)
        await first.commit({partition: (6, "half way")})
        await first.stop()
        second = await clients.consumer(topic)
        assert (await read(second, 1))[0].value == b"6"
        assert await second.committed(partition) == 6
        second.seek(partition, 2)
        assert (await read(second, 1))[0].value == b"2"
        assert await second.beginning_offsets([partition]) == {partition: 0}
        assert await second.end_offsets([partition]) == {partition: 10}
        assert (await second.offsets_for_times({partition: 3500}))[partition].offset == 3

    run(body)


def test_topics_are_administered(run: Any) -> None:
    async def body(clients: Clients) -> None:
        topic = await clients.topic(2, retention_ms="60000")
        admin = await clients.admin()
        answer = await admin.create_topics([NewTopic(topic, 2, 1)])
        assert answer.topic_errors[0][1] == TopicAlreadyExistsError.errno
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        configs = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        assert "60000" in str(configs)
        await admin.create_partitions({topic: NewPartitions(4)})
        assert len((await admin.describe_topics([topic]))[0]["partitions"]) == 4
        assert (await admin.describe_cluster())["brokers"][0]["node_id"] == 1
        await admin.delete_topics([topic])

    run(body)


@pytest.mark.spec("G2")
def test_groups_are_described(run: Any) -> None:
    async def body(clients: Clients) -> None:
        topic = await clients.topic()
        await (await clients.producer()).send_and_wait(topic, b"x")
        consumer = await clients.consumer(topic)
        await read(consumer, 1)
        await consumer.commit()
        admin = await clients.admin()
        assert clients.group in {name for name, _ in await admin.list_consumer_groups()}
        (described,) = await admin.describe_consumer_groups([clients.group])
        assert "Stable" in str(described)
        offsets = await admin.list_consumer_group_offsets(clients.group)
        assert {key: value.offset for key, value in offsets.items()} == {TopicPartition(topic, 0): 1}

    run(body)


@pytest.mark.spec("P6", "X1")
def test_transactions(run: Any) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.topic()
        producer = await clients.producer(transactional_id=clients.group)
        for value, is_commit in ((b"a", True), (b"b", False), (b"c", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value)
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): ord(value)}, clients.group)
            await (producer.commit_transaction if is_commit else producer.abort_transaction)()
        consumer = await clients.consumer(topic, isolation_level="read_committed")
        assert await consumer.committed(TopicPartition(topic, 0)) == ord("c")
        await consumer.seek_to_beginning()
        found = [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(2)]
        assert found == [b"a", b"c"]

    run(scenario)
