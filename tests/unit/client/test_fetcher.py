from __future__ import annotations

import pytest

from ottla.client.errors import BrokerError, ClientTimeoutError, CorruptBatchError, OffsetOutOfRange
from ottla.client.fetcher import RangeFetcher
from ottla.peer.model import READ_COMMITTED
from ottla.records.batch import LENGTH_AT, MAGIC_AT, RECORDS_COUNT_AT, parse_batch_header, split_batches
from ottla.records.compression import Compression
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.message_set import encode_messages
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import AbortedTransaction
from support.fake_cluster import DROP
from support.waiting import until


def read(partition, start, end, **options):
    async def work(cluster):
        fetcher = RangeFetcher(cluster, partition, start, end, **options)
        offsets = []
        try:
            while (fetched := await fetcher.next()) is not None:
                for header in fetched.headers:
                    offsets += [record.offset for record in decode_batch(fetched.buffer, header)]
        finally:
            await fetcher.close()
        return offsets

    return work


def test_whole_batches_of_the_range(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.fill(p, 100, compression=Compression.LZ4)
    assert with_cluster(fake, read(p, 0, 100)) == list(range(100))
    assert with_cluster(fake, read(p, 15, 20)) == list(range(10, 20))
    assert with_cluster(fake, read(p, 15, 21)) == list(range(10, 30))
    assert with_cluster(fake, read(p, 20, 20)) == []
    assert with_cluster(fake, read(p, 30, 20)) == []


def test_many_small_answers(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.fill(p, 500, size=100)
    size = len(fake.logs[p].batches[0])
    assert with_cluster(fake, read(p, 0, 500, fetch_max_bytes=size + 100)) == list(range(500))
    requests = fake.requests_of(ApiKey.FETCH)
    assert len(requests) == 50
    assert {each.topics[0].partitions[0].partition_max_bytes for each in requests} == {size + 100}


@pytest.mark.spec("R2")
def test_a_range_is_read_from_the_follower_in_the_rack(fakes, with_cluster):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 30)
    fakes.nearest[p, "here"] = 1
    fakes.visible_ends[1, p] = 30
    nodes = []
    original = fakes.on_fetch

    def fetch(node, request, code):
        nodes.append((node, request.rack_id))
        return original(node, request, code)

    fakes.on_fetch = fetch
    assert with_cluster(fakes, read(p, 0, 30, rack="here", fetch_max_bytes=10)) == list(range(30))
    assert nodes == [(0, "here"), (1, ""), (1, ""), (1, "")]


@pytest.mark.spec("R2")
@pytest.mark.parametrize("trouble", ["dead", "behind", "no replica"])
def test_a_range_is_read_from_the_leader_after_trouble_with_the_follower(fakes, with_cluster, trouble):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 30)
    fakes.nearest[p, "here"] = 1
    if trouble == "behind":
        fakes.visible_ends[1, p] = 10
    if trouble == "dead":
        original = fakes.on_fetch
        fakes.on_fetch = lambda node, request, code: DROP if node == 1 else original(node, request, code)
    assert with_cluster(fakes, read(p, 20, 30, rack="here", fetch_max_bytes=10)) == list(range(20, 30))


def test_a_batch_larger_than_an_answer_comes_whole(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.fill(p, 20, size=5000)
    assert with_cluster(fake, read(p, 0, 20, fetch_max_bytes=10)) == list(range(20))


def test_the_next_answer_is_on_its_way_while_one_is_worked_on(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.fill(p, 20)

    async def work(cluster):
        fetcher = RangeFetcher(cluster, p, 0, 20, fetch_max_bytes=10)
        await fetcher.next()
        await until(lambda: len(fake.requests_of(ApiKey.FETCH)) == 2, "the next request")
        await fetcher.close()

    with_cluster(fake, work)


def test_gaps_and_control_batches_are_passed_over(fake, with_cluster):
    [p] = fake.topic("t", 0)
    log = fake.logs[p]
    kept = [Record(3, 0, None, b"a"), Record(8, 0, None, b"b")]
    log.batches = [
        encode_batch(kept, base_offset=0, keep_offsets=True),
        encode_batch([Record(0, 0, bytes(4), bytes(6))], base_offset=9, is_transactional=True, is_control=True),
        encode_batch([Record(50, 0, None, b"c")], base_offset=50),
        encode_batch([Record(60, 0, bytes(4), bytes(6))], base_offset=60, is_control=True),
    ]
    log.end = 61
    assert with_cluster(fake, read(p, 0, 61)) == [3, 8, 50]
    assert with_cluster(fake, read(p, 9, 10)) == []
    assert with_cluster(fake, read(p, 10, 50)) == []


def test_aborted_transactions_are_left_out_of_a_read_committed_range(fake, with_cluster):
    [p] = fake.topic("t", 0)
    log = fake.logs[p]

    def batch(offset, producer_id):
        return encode_batch(
            [Record(offset, 0, None, b"v")], base_offset=offset, producer_id=producer_id, is_transactional=True
        )

    def marker(offset, producer_id, kind):
        key, value = end_transaction_record(kind, 0)
        return encode_batch(
            [Record(offset, 0, key, value)],
            base_offset=offset,
            producer_id=producer_id,
            is_transactional=True,
            is_control=True,
        )

    log.batches = [
        batch(0, 1),
        batch(1, 2),
        marker(2, 1, ControlRecordType.ABORT),
        batch(3, 1),
        marker(4, 2, ControlRecordType.COMMIT),
        marker(5, 1, ControlRecordType.COMMIT),
    ]
    log.end = 6

    def with_aborted(request):
        answer = fake.on_fetch(0, request, None)
        answer.responses[0].partitions[0].aborted_transactions = [AbortedTransaction(producer_id=1, first_offset=0)]
        return answer

    fake.faults[ApiKey.FETCH].append(with_aborted)
    assert with_cluster(fake, read(p, 0, 6, isolation_level=READ_COMMITTED)) == [1, 3]
    assert fake.requests_of(ApiKey.FETCH)[-1].isolation_level == READ_COMMITTED
    assert with_cluster(fake, read(p, 0, 6)) == [0, 1, 3]


def test_checksums_are_not_looked_at_where_that_is_asked(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.fill(p, 10)
    damaged = bytearray(fake.logs[p].batches[0])
    damaged[17] ^= 1  # the checksum itself
    fake.logs[p].batches[0] = bytes(damaged)
    with pytest.raises(CorruptBatchError):
        with_cluster(fake, read(p, 0, 10))
    assert with_cluster(fake, read(p, 0, 10, check_crcs=False)) == list(range(10))


def test_batches_before_the_position_are_left_out(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.fill(p, 30)
    whole = b"".join(fake.logs[p].batches)

    def all_of_it(request):
        answer = fake.on_fetch(0, request, None)
        answer.responses[0].partitions[0].records = whole
        return answer

    fake.faults[ApiKey.FETCH].append(all_of_it)
    assert with_cluster(fake, read(p, 20, 30)) == list(range(20, 30))


@pytest.mark.parametrize(
    "fault",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        "DROP",
        "DROP_AFTER",
    ],
)
def test_failures_on_the_way_are_retried(fake, with_cluster, faults, fault):
    [p] = fake.topic("t", 0)
    fake.fill(p, 50)
    for _ in range(3):
        fake.faults[ApiKey.FETCH].extend([ErrorCode.NONE, faults.get(fault, fault)])
    assert with_cluster(fake, read(p, 0, 50, fetch_max_bytes=10)) == list(range(50))


def test_a_leader_that_moves_is_followed(fakes, with_cluster):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 50)

    def move(request):
        answer = fakes.on_fetch(0, request, None)
        fakes.leaders[p] = 2
        return answer

    fakes.faults[ApiKey.FETCH].append(move)
    assert with_cluster(fakes, read(p, 0, 50, fetch_max_bytes=10)) == list(range(50))
    assert {node for node, key, _ in fakes.requests if key == ApiKey.FETCH} == {0, 2}


def test_a_broker_that_comes_back(fakes, with_cluster):
    [p] = fakes.topic("t", 1)
    fakes.fill(p, 50)

    async def work(cluster):
        fetcher = RangeFetcher(cluster, p, 0, 50, fetch_max_bytes=10)
        offsets = []
        while (fetched := await fetcher.next()) is not None:
            offsets += [header.base_offset for header in fetched.headers]
            if offsets[-1] == 20:
                fakes.stop(1)
                fakes.start(1)
        return offsets

    assert with_cluster(fakes, work) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize(
    ("start", "told"), [(5, "was deleted.*start at 30 to read"), (200, "is not written yet.*start at 100 at")]
)
def test_an_offset_out_of_range(fake, with_cluster, start, told):
    [p] = fake.topic("t", 0)
    fake.fill(p, 100)
    fake.logs[p].start = 30
    with pytest.raises(OffsetOutOfRange, match=told) as caught:
        with_cluster(fake, read(p, start, 300))
    assert (caught.value.offset, caught.value.earliest, caught.value.latest) == (start, 30, 100)
    assert not caught.value.retriable


def test_an_end_that_is_never_written(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.fill(p, 10)
    settings = {"default_api_timeout_ms": 5000, "request_timeout_ms": 5000}
    with pytest.raises(ClientTimeoutError, match="t-0 had no records from offset 10 up to 20"):
        with_cluster(fake, read(p, 0, 20), **settings)


def damage(fake, change):
    [p] = fake.topic("t", 0)
    fake.fill(p, 10)

    def damaged(request):
        answer = fake.on_fetch(0, request, None)
        records = bytearray(answer.responses[0].partitions[0].records)
        answer.responses[0].partitions[0].records = change(records)
        return answer

    fake.faults[ApiKey.FETCH].append(damaged)
    return p


def flip(records):
    records[-1] ^= 1
    return bytes(records)


def old_format(records):
    records[16] = 1
    return bytes(records)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (flip, "batch at offset 0 has a wrong checksum"),
        (old_format, "the message at offset 0 has a wrong checksum"),
        (lambda records: bytes(records[:40]), "without a whole batch"),
    ],
)
def test_damage_is_reported(fake, with_cluster, change, told):
    p = damage(fake, change)
    with pytest.raises(CorruptBatchError, match=told):
        with_cluster(fake, read(p, 0, 10))


@pytest.mark.spec("L7")
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_segments_are_read(fake, with_cluster, magic):
    written = []

    def as_messages(records):
        written.extend(record for header in split_batches(records) for record in decode_batch(records, header))
        return encode_messages(written, magic, compression=Compression.GZIP)

    p = damage(fake, as_messages)

    async def work(cluster):
        fetcher = RangeFetcher(cluster, p, 0, 10)
        try:
            fetched = await fetcher.next()
        finally:
            await fetcher.close()
        return [record for header in fetched.headers for record in decode_batch(fetched.buffer, header)]

    got = with_cluster(fake, work)
    assert [(one.offset, one.key, one.value) for one in got] == [(one.offset, one.key, one.value) for one in written]
    assert {one.timestamp for one in got} == ({-1} if magic == 0 else {one.timestamp for one in written})


def test_an_error_that_stays(fake, with_cluster):
    [p] = fake.topic("t", 0)
    fake.faults[ApiKey.FETCH].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match=r"t-0 cannot be read from broker 0: .*TOPIC_AUTHORIZATION_FAILED"):
        with_cluster(fake, read(p, 0, 10))


def test_the_header_of_the_fake_is_right(fake):
    [p] = fake.topic("t", 0)
    fake.fill(p, 20)
    assert [parse_batch_header(batch).base_offset for batch in fake.logs[p].batches] == [0, 10]


@pytest.mark.parametrize("field", [LENGTH_AT, MAGIC_AT, RECORDS_COUNT_AT])
def test_what_comes_before_damage_is_given_first(fake, with_cluster, field):
    [p] = fake.topic("t", 0)
    fake.fill(p, 30)

    def damaged(request):
        answer = fake.on_fetch(0, request, None)
        [partition] = answer.responses[0].partitions
        records = bytearray(partition.records)
        second = next(each for each in split_batches(records) if each.base_offset == 10)
        records[second.position + field] = 0xFF
        partition.records = bytes(records)
        return answer

    async def work(cluster):
        fetcher = RangeFetcher(cluster, p, 0, 30)
        fetched = await fetcher.next()
        assert [header.base_offset for header in fetched.headers] == [0]
        with pytest.raises(CorruptBatchError, match="from offset 10"):
            await fetcher.next()
        await fetcher.close()

    fake.faults[ApiKey.FETCH].extend([damaged, damaged])
    with_cluster(fake, work)
