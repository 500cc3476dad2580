from __future__ import annotations

import asyncio

import pytest

from ottla.client.accumulator import Accumulator
from ottla.client.errors import BrokerError, ClientClosedError, DeliveryError, InvalidArgumentError, RecordTooLargeError
from ottla.client.sender import Sender, parse_acks, parse_compression
from ottla.client.settings import ProducerSettings
from ottla.records.batch import parse_batch_header
from ottla.records.compression import Compression
from ottla.records.record import Record
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import BatchIndexAndErrorMessage
from support.waiting import wait_until

SIZE = 100


def sending(work, **settings):
    """`work(sender, add)` with a sender that runs; `add(partition, *values)` appends records."""

    async def body(cluster):
        chosen = ProducerSettings(**{"linger_ms": 0, **settings})
        accumulator = Accumulator(chosen, cluster.clock)
        sender = Sender(cluster, chosen, accumulator)
        sender.start()

        def add(partition, *values):
            for value in values:
                accumulator.append(partition, Record(0, 1000, None, value), SIZE)
            sender.wake()

        sender.accumulator = accumulator
        try:
            return await work(sender, add)
        finally:
            await sender.close()

    return body


async def send_one_by_one(sender, add, partition, count):
    for at in range(count):
        add(partition, b"%d" % at)
        await asyncio.sleep(0)
    await sender.flush()


def values(fake, partition):
    return [record.value for record in fake.logs[partition].records()]


@pytest.mark.spec("P4")
def test_partitions_of_one_leader_share_a_request(fakes, with_cluster):
    partitions = fakes.topic("t", 0, 0, 1, 0)

    async def work(sender, add):
        for partition in partitions:
            sender.accumulator.append(partition, Record(0, 0, None, b"%d" % partition.partition), SIZE)
        await sender.flush()

    with_cluster(fakes, sending(work, linger_ms=1000))
    assert [values(fakes, partition) for partition in partitions] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    assert sorted(node for node, key, _ in fakes.requests if key == ApiKey.PRODUCE) == [0, 1]


def test_requests_have_a_limit(fake, with_cluster):
    partitions = fake.topic("t", *[0] * 10)

    async def work(sender, add):
        for partition in partitions:
            sender.accumulator.append(partition, Record(0, 0, None, b"x"), 300)
        await sender.flush()

    with_cluster(fake, sending(work, linger_ms=1000, max_request_size=1000))
    assert [len(request.topic_data[0].partition_data) for request in fake.asked(ApiKey.PRODUCE)] == [2] * 5


@pytest.mark.spec("P5")
@pytest.mark.parametrize(
    "fault",
    [
        "DROP",
        "DROP_AFTER",
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_retries_neither_lose_nor_double_nor_reorder(fake, with_cluster, faults, fault):
    [p] = fake.topic("t", 0)
    for _ in range(6):
        fake.faults[ApiKey.PRODUCE].extend([ErrorCode.NONE, faults.get(fault, fault), faults.get(fault, fault)])
    with_cluster(fake, sending(lambda sender, add: send_one_by_one(sender, add, p, 200), batch_size=300))
    assert values(fake, p) == [b"%d" % at for at in range(200)]


@pytest.mark.spec("P5")
def test_a_leader_that_moves_and_a_broker_that_comes_back(fakes, with_cluster):
    [p] = fakes.topic("t", 1)

    async def work(sender, add):
        add(p, b"1")
        await sender.flush()
        fakes.stop(1)
        add(p, b"2")
        fakes.leaders[p] = 2
        await sender.flush()

    with_cluster(fakes, sending(work))
    assert values(fakes, p) == [b"1", b"2"]


@pytest.mark.spec("P5")
def test_sequences_count_records_per_partition(fake, with_cluster):
    a, b = fake.topic("t", 0, 0)

    async def work(sender, add):
        for partition, count in ((a, 3), (b, 1), (a, 2), (b, 5), (a, 1)):
            sender.accumulator.append_batch(partition, [Record(0, 0, None, b"x")] * count, SIZE)
            await sender.flush()

    with_cluster(fake, sending(work))
    headers = [[parse_batch_header(batch) for batch in fake.logs[partition].batches] for partition in (a, b)]
    assert [[each.base_sequence for each in of_partition] for of_partition in headers] == [[0, 3, 5], [0, 1]]
    assert {each.producer_id for of_partition in headers for each in of_partition} == {1001}
    assert len(fake.asked(ApiKey.INIT_PRODUCER_ID)) == 1


def test_a_duplicate_that_the_broker_only_names_counts_as_there(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].append(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)

    async def work(sender, add):
        batch = sender.accumulator.append_batch(p, [Record(0, 7, None, b"x")], SIZE)
        return await sender.result(batch)

    assert with_cluster(fake, sending(work)).offset == -1


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_lost_sequence_begins_anew_under_another_producer_id(fake, with_cluster, code):
    [p] = fake.topic("t", 0)

    async def work(sender, add):
        add(p, b"1")
        await sender.flush()
        fake.logs[p].sequences.clear()
        fake.faults[ApiKey.PRODUCE].append(code)
        add(p, b"2")
        await sender.flush()
        add(p, b"3")
        await sender.flush()

    with_cluster(fake, sending(work))
    assert values(fake, p) == [b"1", b"2", b"3"]
    headers = [parse_batch_header(batch) for batch in fake.logs[p].batches]
    assert [(each.producer_id, each.base_sequence) for each in headers] == [(1001, 0), (1002, 0), (1002, 1)]


def test_after_a_batch_of_unknown_fate_the_producer_id_changes(fake, with_cluster, faults):
    [p] = fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].append(faults["DROP_AFTER"])

    async def work(sender, add):
        add(p, b"1")
        with pytest.raises(DeliveryError, match=r"1 records were not acknowledged: .*closed the connection"):
            await sender.flush()
        add(p, b"2")
        await sender.flush()

    with_cluster(fake, sending(work, delivery_timeout_ms=0))
    headers = [parse_batch_header(batch) for batch in fake.logs[p].batches]
    assert [(each.producer_id, each.base_sequence) for each in headers] == [(1001, 0), (1002, 0)]


def test_what_cannot_be_delivered_in_time_is_told_once(fake, with_cluster):
    fake.topic("t", 0)
    [p] = fake.topic("u", -1)

    async def work(sender, add):
        add(p, b"1", b"2")
        with pytest.raises(DeliveryError, match=r"2 records were not acknowledged: .*LEADER_NOT_AVAILABLE") as caught:
            await sender.flush()
        assert isinstance(caught.value.__cause__, BrokerError)
        assert not sender.has_failed
        await sender.flush()

    with_cluster(fake, sending(work, delivery_timeout_ms=50))


def test_what_is_refused_is_told_with_the_brokers_words(fake, with_cluster):
    [p] = fake.topic("t", 0)

    def refuse(request):
        answer = fake.on_produce(0, request, ErrorCode.INVALID_RECORD)
        told = answer.responses[0].partition_responses[0]
        told.error_message = "One or more records have been rejected"
        told.record_errors = [BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")]
        return answer

    fake.faults[ApiKey.PRODUCE].append(refuse)

    async def work(sender, add):
        add(p, b"1")
        await sender.flush()

    with pytest.raises(
        DeliveryError, match=r"t-0 at broker 0: One or more .*record 1 of the batch: no key.*INVALID_REC"
    ):
        with_cluster(fake, sending(work))


def test_a_failure_is_told_to_the_one_who_waits_and_not_again(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    async def work(sender, add):
        batch = sender.accumulator.append_batch(p, [Record(0, 7, None, b"x")], SIZE)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            await sender.result(batch)
        await sender.flush()

    with_cluster(fake, sending(work))


def too_large(fake, most):
    def answer(request):
        records = bytes(request.topic_data[0].partition_data[0].records)
        code = ErrorCode.MESSAGE_TOO_LARGE if parse_batch_header(records).records_count > most else None
        return fake.on_produce(0, request, code)

    return answer


def test_a_batch_that_is_too_large_is_split(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].extend([too_large(fake, 3)] * 40)

    async def work(sender, add):
        records = [Record(0, 1000, None, b"%d" % at) for at in range(20)]
        batch = sender.accumulator.append_batch(p, records, 20 * SIZE)
        add(p, b"behind it")
        return await sender.result(batch)

    where = with_cluster(fake, sending(work))
    assert where.offset == 0
    assert values(fake, p) == [*(b"%d" % at for at in range(20)), b"behind it"][: len(values(fake, p))]
    assert len(values(fake, p)) >= 20


def test_a_single_record_that_is_too_large(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].extend([too_large(fake, 0)] * 2)

    async def work(sender, add):
        add(p, b"1")
        with pytest.raises(DeliveryError, match=r"max.message.bytes of the topic") as caught:
            await sender.flush()
        assert isinstance(caught.value.__cause__, RecordTooLargeError)
        batch = sender.accumulator.append_batch(p, [Record(0, 0, None, b"2")], SIZE)
        with pytest.raises(RecordTooLargeError):
            await sender.result(batch)

    with_cluster(fake, sending(work))


@pytest.mark.spec("P4")
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(fake, with_cluster, acks):
    [p] = fake.topic("t", 0)

    async def work(sender, add):
        batch = sender.accumulator.append_batch(p, [Record(0, 1000, None, b"x")], SIZE)
        where = await sender.result(batch)
        await asyncio.to_thread(wait_until, lambda: fake.asked(ApiKey.PRODUCE), "the request")
        return where

    where = with_cluster(fake, sending(work, acks=acks))
    assert (where.topic, where.partition, where.timestamp) == ("t", 0, 1000)
    assert where.offset == (0 if acks else -1)
    [request] = fake.asked(ApiKey.PRODUCE)
    assert request.acks == acks
    assert len(fake.asked(ApiKey.INIT_PRODUCER_ID)) == (acks == -1)


@pytest.mark.spec("P4")
@pytest.mark.parametrize("codec", list(Compression))
def test_compression(fake, with_cluster, codec):
    [p] = fake.topic("t", 0)

    async def work(sender, add):
        add(p, *[b"the same again and again"] * 50)
        await sender.flush()

    with_cluster(fake, sending(work, compression_type=codec.name.lower()))
    assert {parse_batch_header(batch).compression for batch in fake.logs[p].batches} == {codec}
    assert values(fake, p) == [b"the same again and again"] * 50


def test_idempotence_can_be_switched_off_and_not_on_without_acks(fake, with_cluster):
    [p] = fake.topic("t", 0)

    async def work(sender, add):
        add(p, b"1")
        await sender.flush()

    with_cluster(fake, sending(work, enable_idempotence=False))
    assert parse_batch_header(fake.logs[p].batches[0]).producer_id == -1
    with pytest.raises(InvalidArgumentError, match="needs acks=all"):
        with_cluster(fake, sending(work, enable_idempotence=True, acks=1))


def test_closing_tells_those_who_wait(fake, with_cluster, faults):
    [p] = fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].append(faults["SILENT"])

    async def work(sender, add):
        batch = sender.accumulator.append_batch(p, [Record(0, 0, None, b"x")], SIZE)
        waiting = asyncio.create_task(sender.result(batch))
        await asyncio.to_thread(wait_until, lambda: fake.asked(ApiKey.PRODUCE), "the request")
        await sender.close()
        with pytest.raises(ClientClosedError):
            await waiting

    with_cluster(fake, sending(work))


def test_what_goes_wrong_unforeseen_is_told_too(fake, with_cluster):
    [p] = fake.topic("t", 0)

    async def work(sender, add):
        add(p, "text, which the producer would not let in")
        with pytest.raises(DeliveryError, match="cannot send records: TypeError"):
            await sender.flush()
        add(p, b"1")
        await sender.flush()

    with_cluster(fake, sending(work))
    assert values(fake, p) == [b"1"]


def test_words_for_settings():
    assert [parse_acks(acks) for acks in (0, "1", "all", -1, "-1")] == [0, 1, -1, -1, -1]
    assert parse_compression("zstd") == Compression.ZSTD
    with pytest.raises(InvalidArgumentError, match="acks is 2"):
        parse_acks(2)
    with pytest.raises(InvalidArgumentError, match="'brotli'; it can be one of none, gzip, snappy, lz4, zstd"):
        parse_compression("brotli")


@pytest.mark.spec("P5")
def test_a_batch_keeps_its_producer_id_while_others_get_a_new_one(fake, with_cluster, faults):
    a, b = fake.topic("t", 0, 0)
    fake.faults[ApiKey.PRODUCE].extend([faults["DROP_AFTER"], ErrorCode.TOPIC_AUTHORIZATION_FAILED])

    async def work(sender, add):
        add(a, b"1")
        await asyncio.to_thread(wait_until, lambda: fake.logs[a].batches, "the batch to be there, unacknowledged")
        add(b, b"refused")
        with pytest.raises(DeliveryError):
            await sender.flush()
        add(a, b"2")
        await sender.flush()

    with_cluster(fake, sending(work), retry_backoff_ms=300, retry_backoff_max_ms=300)
    assert values(fake, a) == [b"1", b"2"]
    headers = [parse_batch_header(batch) for batch in fake.logs[a].batches]
    assert [(each.producer_id, each.base_sequence) for each in headers] == [(1001, 0), (1002, 0)]
