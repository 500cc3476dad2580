"""Faults of brokers and of the way to them: nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from ottla.client import Producer as AsyncProducer
from ottla.client.errors import BrokerError, ClientError, ClientTimeoutError, DeliveryError, RecordTooLargeError
from ottla.records.batch import parse_batch_header
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from support.quick_settings import QUICK_PRODUCER
from support.virtual_fakes import VirtualFakeCluster
from support.waiting import wait_until


def producing(fake, work, **settings):
    """The result of `work(producer)`."""

    async def body(**environment):
        async with AsyncProducer(
            bootstrap_servers=fake.bootstrap, **{**QUICK_PRODUCER, **settings}, **environment
        ) as producer:
            return await work(producer)

    if isinstance(fake, VirtualFakeCluster):
        return fake.run_to_end(body(environment=fake.environment))
    return asyncio.run(body())


def values(fake, partition):
    return [record.value for record in fake.logs[partition].records()]


async def send_numbers(producer, count, partition=0, pause=7):
    """Numbers from 0 to `count`, with a turn of the loop now and then; their futures."""
    futures = []
    for at in range(count):
        futures.append(await producer.send("t", b"%d" % at, partition=partition))
        if at % pause == 0:
            await asyncio.sleep(0)
    return futures


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # sleep: the fakes run in another thread


async def send_large(producer, count=100):
    for _ in range(count):
        await producer.send("t", bytes(400))


async def send_and_wait(producer, count=200):
    return [(await future).offset for future in await send_numbers(producer, count)]


RETRIED = [
    "DROP",
    "DROP_AFTER",
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
]


@pytest.mark.spec("P5")
@pytest.mark.parametrize("fault", RETRIED)
def test_retries_neither_lose_nor_double_nor_reorder(fake, faults, fault):
    [p] = fake.topic("t", 0)
    for _ in range(6):
        fake.faults[ApiKey.PRODUCE].extend([ErrorCode.NONE, faults.get(fault, fault), faults.get(fault, fault)])
    offsets = producing(fake, send_and_wait, batch_size=300)
    assert values(fake, p) == [b"%d" % at for at in range(200)]
    assert offsets == list(range(200))


@pytest.mark.spec("P5")
@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 300))])
def test_any_mix_of_faults_on_many_partitions(fakes, faults, seed):
    rng = random.Random(seed)
    partitions = fakes.topic("t", 0, 1, 2, 0, 1)
    kinds = [faults.get(each, each) for each in RETRIED]
    fakes.faults[ApiKey.PRODUCE].extend(rng.choice([ErrorCode.NONE, *kinds]) for _ in range(60))

    async def work(producer):
        for at in range(1000):
            await producer.send("t", b"%d" % at, partition=at % 5)
            if rng.random() < 0.1:
                await asyncio.sleep(rng.choice([0, 0, 0.001]))  # sleep: it makes the mix
            if rng.random() < 0.005:
                fakes.leaders[partitions[rng.randrange(5)]] = rng.randrange(3)
        await producer.flush()

    producing(fakes, work, batch_size=300, delivery_timeout_ms=30_000)
    for number, partition in enumerate(partitions):
        assert values(fakes, partition) == [b"%d" % at for at in range(number, 1000, 5)]


@pytest.mark.spec("P5")
def test_an_answer_that_does_not_come_in_time_is_a_fault_like_others(fake, faults):
    [p] = fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].extend([faults["SILENT"], ErrorCode.NONE])
    producing(fake, send_and_wait, batch_size=300, request_timeout_ms=200)
    assert values(fake, p) == [b"%d" % at for at in range(200)]


@pytest.mark.spec("P5")
def test_up_to_five_requests_are_on_their_way_and_numbered_without_gaps(virtual_fake, faults):
    [p] = virtual_fake.topic("t", 0)

    async def work(producer):
        await (await producer.send("t", b"first"))
        virtual_fake.faults[ApiKey.PRODUCE].extend([faults["SILENT"]] * 5)
        futures = await send_numbers(producer, 100)
        await until(lambda: len(virtual_fake.requests_of(ApiKey.PRODUCE)) == 6)
        await asyncio.sleep(0.05)  # sleep: virtual; no further request comes
        assert len(virtual_fake.requests_of(ApiKey.PRODUCE)) == 6
        await asyncio.gather(*futures)

    producing(virtual_fake, work, batch_size=200, request_timeout_ms=2000)
    headers = [parse_batch_header(batch) for batch in virtual_fake.logs[p].batches]
    assert headers[0].base_sequence == 0
    assert all(after.base_sequence == before.last_sequence + 1 for before, after in pairwise(headers))
    assert values(virtual_fake, p) == [b"first", *(b"%d" % at for at in range(100))]


@pytest.mark.spec("P5")
def test_a_broker_that_forgot_the_producer_makes_the_epoch_rise(fake):
    [p] = fake.topic("t", 0)

    async def work(producer):
        await (await producer.send("t", b"first", partition=0))
        fake.faults[ApiKey.PRODUCE].append(ErrorCode.UNKNOWN_PRODUCER_ID)
        return await send_and_wait(producer, 50)

    producing(fake, work, batch_size=200)
    headers = [parse_batch_header(batch) for batch in fake.logs[p].batches]
    assert {each.producer_id for each in headers} == {1001}
    assert sorted({each.producer_epoch for each in headers}) == [0, 1]
    assert next(each.base_sequence for each in headers if each.producer_epoch == 1) == 0
    assert values(fake, p) == [b"first", *(b"%d" % at for at in range(50))]


@pytest.mark.spec("P5")
def test_a_batch_that_is_refused_does_not_stop_those_behind_it(fake):
    [p] = fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].extend([ErrorCode.NONE, ErrorCode.INVALID_REQUIRED_ACKS])

    async def work(producer):
        futures = await send_numbers(producer, 100)
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        [queues] = producer._delegate.accumulator.topics.values()
        assert [queue.in_flight for queue in queues.queues] == [0]
        return outcomes

    results = producing(fake, work, batch_size=200)
    refused = [at for at, result in enumerate(results) if isinstance(result, BrokerError)]
    assert refused
    assert values(fake, p) == [b"%d" % at for at in range(100) if at not in refused]


@pytest.mark.spec("P5")
def test_too_large_batches_are_split_until_they_fit(fake):
    [p] = fake.topic("t", 0)

    def bounded(request):
        [topic] = request.topic_data
        [data] = topic.partition_data
        too_large = parse_batch_header(data.records).records_count > 3
        return fake.on_produce(0, request, ErrorCode.MESSAGE_TOO_LARGE if too_large else None)

    fake.faults[ApiKey.PRODUCE].extend([bounded] * 200)
    told = []

    async def work(producer):
        futures = [
            await producer.send("t", b"%d" % at, callback=lambda m, e: told.append(m.offset)) for at in range(60)
        ]
        return [(await future).offset for future in futures]

    assert producing(fake, work, linger_ms=20) == list(range(60))
    assert values(fake, p) == [b"%d" % at for at in range(60)]
    assert told == list(range(60))


@pytest.mark.spec("P5")
def test_one_record_that_the_topic_does_not_take(fake):
    fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].append(ErrorCode.MESSAGE_TOO_LARGE)

    async def work(producer):
        with pytest.raises(RecordTooLargeError, match=r"max.message.bytes"):
            await (await producer.send("t", b"large"))
        assert (await (await producer.send("t", b"next"))).offset == 0

    producing(fake, work)


@pytest.mark.slow
@pytest.mark.spec("P5")
def test_when_the_time_is_up_the_error_says_why(fake):
    fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 1000)
    told = []

    async def work(producer):
        future = await producer.send("t", b"v", callback=lambda *both: told.append(both))
        with pytest.raises(
            ClientTimeoutError, match=r"delivery.timeout.ms \(1500\), after \d+ attempts: .*NOT_ENOUGH_REPLICAS"
        ):
            await future
        assert isinstance(told[0][1], ClientTimeoutError)
        fake.faults[ApiKey.PRODUCE].clear()
        taken = await (await producer.send("t", b"w"))
        assert taken.offset in (0, 1), "the first may have been on its way again when its time was up"

    producing(fake, work, delivery_timeout_ms=1500, request_timeout_ms=1500)


@pytest.mark.spec("P5")
def test_single_records_that_the_broker_refuses_are_distinguished(fake):
    fake.topic("t", 0)

    def refuse(request):
        answer = fake.on_produce(0, request, ErrorCode.INVALID_RECORD)
        [told] = answer.responses[0].partition_responses
        told.record_errors = [BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="it has no key")]
        return answer

    fake.faults[ApiKey.PRODUCE].append(refuse)

    async def work(producer):
        futures = [await producer.send("t", b"%d" % at) for at in range(3)]
        flushing = asyncio.create_task(producer.flush())
        errors = await asyncio.gather(*futures, return_exceptions=True)
        await flushing
        return [str(error) for error in errors]

    first, second, third = producing(fake, work, linger_ms=40_000)
    assert "it has no key" in second
    assert "another record" in first
    assert first == third


@pytest.mark.spec("P1", "P5")
def test_flush_reports_records_that_nobody_has_seen(fake):
    fake.topic("t", 0)

    async def work(producer):
        fake.faults[ApiKey.PRODUCE].append(ErrorCode.INVALID_REQUIRED_ACKS)
        futures = [await producer.send("t", b"%d" % at) for at in range(4)]
        futures[0].add_done_callback(lambda future: None)
        with pytest.raises(DeliveryError, match=r"3 records were not acknowledged \(3 of t-0\)") as told:
            await producer.flush()
        assert told.value.count == 3
        assert isinstance(told.value.causes[0], BrokerError)
        await producer.flush()

    producing(fake, work, linger_ms=40_000)


@pytest.mark.spec("P1")
def test_close_gives_up_what_is_not_acknowledged_in_time(fake, faults):
    fake.topic("t", 0)
    told = []

    async def work(producer):
        await (await producer.send("t", b"through"))
        fake.faults[ApiKey.PRODUCE].extend([faults["SILENT"]] * 10)
        futures = [await producer.send("t", b"%d" % at, callback=lambda *both: told.append(both)) for at in range(5)]
        with pytest.raises(DeliveryError, match="5 records") as left:
            await producer.close(timeout_ms=100)
        assert left.value.count == 5
        assert all(isinstance(future.exception(), ClientError) for future in futures)
        assert len(told) == 5

    producing(fake, work)


@pytest.mark.spec("P4")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(fake, acks):
    [p] = fake.topic("t", 0)

    async def work(producer):
        return [(await future).offset for future in await send_numbers(producer, 100)]

    offsets = producing(fake, work, acks=acks)
    assert offsets == ([-1] * 100 if acks == 0 else list(range(100)))
    wait_until(lambda: len(values(fake, p)) == 100, "all to arrive, of which with acks=0 nobody tells")
    assert {request.acks for request in fake.requests_of(ApiKey.PRODUCE)} == {0: {0}, 1: {1}, "all": {-1}}[acks]


@pytest.mark.spec("P4")
def test_one_request_at_a_time_keeps_the_order_without_idempotence(fake, faults):
    [p] = fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].extend([ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, faults["DROP"]] * 5)
    settings = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1, "batch_size": 300}
    producing(fake, send_and_wait, **settings)
    assert values(fake, p) == [b"%d" % at for at in range(200)]
    assert parse_batch_header(fake.logs[p].batches[0]).producer_id == -1


@pytest.mark.spec("P4")
def test_requests_have_a_limit(fake):
    fake.topic("t", *[0] * 10)

    async def work(producer):
        for partition in range(10):
            await producer.send("t", bytes(300), partition=partition)

    producing(fake, work, linger_ms=40_000, max_request_size=1300)
    assert {len(request.topic_data[0].partition_data) for request in fake.requests_of(ApiKey.PRODUCE)} == {2}


@pytest.mark.slow
@pytest.mark.spec("P4")
def test_a_full_buffer_makes_send_wait_and_then_fail(fake, faults):
    fake.topic("t", 0)

    async def work(producer):
        await (await producer.send("t", b"through"))
        fake.faults[ApiKey.PRODUCE].extend([faults["SILENT"]] * 5)
        with pytest.raises(ClientTimeoutError, match=r"buffer.memory \(5000 bytes\)"):
            await send_large(producer)
        await asyncio.sleep(0)

    producing(fake, work, batch_size=1000, buffer_memory=5000, max_block_ms=1000, request_timeout_ms=1000)


@pytest.mark.spec("P4")
def test_a_full_buffer_is_waited_for(fake):
    [p] = fake.topic("t", 0)
    producing(fake, send_and_wait, batch_size=300, buffer_memory=700)
    assert values(fake, p) == [b"%d" % at for at in range(200)]


@pytest.mark.spec("P5")
def test_the_leader_that_an_error_names_is_sent_to_at_once(fakes):
    """KIP-951: without the pause before another attempt, and without asking for metadata first."""
    [p] = fakes.topic("t", 0)
    fakes.leader_epochs[p] = 3
    on_metadata, requests = fakes.on_metadata, []

    def metadata(node, request, code):
        answer = on_metadata(node, request, code)
        requests.append(request)
        if len(requests) > 2:  # the topic was asked for; from now on the metadata are old
            for topic in answer.topics:
                topic.partitions[0].leader_id, topic.partitions[0].leader_epoch = 0, 3
        return answer

    fakes.on_metadata = metadata

    def moved(request):
        fakes.leaders[p], fakes.leader_epochs[p] = 1, 4
        refused = PartitionProduceResponse(
            index=0,
            error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            base_offset=-1,
            record_errors=[],
            current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=4),
        )
        host, port = fakes.advertised[1]
        return ProduceResponse(
            responses=[TopicProduceResponse(name="t", partition_responses=[refused])],
            node_endpoints=[NodeEndpoint(node_id=1, host=host, port=port, rack=None)],
        )

    async def work(producer):
        fakes.faults[ApiKey.PRODUCE].append(moved)
        return (await (await producer.send("t", b"v", partition=0))).offset

    assert producing(fakes, work, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000, delivery_timeout_ms=30_000) == 0
    assert [node for node, key, _ in fakes.requests if key == ApiKey.PRODUCE] == [0, 1]
