from __future__ import annotations

import multiprocessing
import threading

import pyarrow
import pytest

from ottla.client.errors import (
    ClientClosedError,
    CorruptBatchError,
    InvalidArgumentError,
    OffsetOutOfRange,
    RecordTimestampError,
    UnknownTopicError,
)
from ottla.client.model import EARLIEST, LATEST
from ottla.client.sync import Client
from ottla.records.batch import ATTRIBUTES_AT, CRC_AT
from ottla.records.compression import Compression
from ottla.records.crc import crc32c
from ottla.records.record import Record, encode_batch
from support.quick_settings import QUICK_CLIENT


@pytest.fixture
def client(fake):
    with Client(fake.bootstrap, client_id="test", **QUICK_CLIENT) as client:
        yield client


def test_topics(fake, client):
    client.create_topic("clicks", 2)
    client.create_topic("views")
    assert client.topics() == ["clicks", "views"]
    assert client.topics("c.*") == ["clicks"]
    assert client.partitions(["clicks", "views"]) == {"clicks": [0, 1], "views": [0]}
    client.delete_topic("views")
    with pytest.raises(UnknownTopicError):
        client.partitions(["views"])


def test_offsets_and_groups(fake, client):
    a, b = fake.topic("t", 0, 0)
    fake.fill(a, 30)
    assert client.offsets_at([a, b], LATEST) == {a: 30, b: 0}
    assert client.offsets_at([a, b], EARLIEST) == {a: 0, b: 0}
    assert client.offsets_at([a, b], 1007) == {a: 7, b: -1}
    client.commit("g", {a: 7}, "why")
    assert client.committed("g", [a, b]) == {a: 7, b: -1}


@pytest.mark.parametrize(("start", "end"), [(0, 100), (0, 0), (5, 6), (95, 100), (13, 87)])
def test_read_range(fake, client, start, end):
    [p] = fake.topic("t", 0)
    fake.fill(p, 100, compression=Compression.ZSTD)
    records = [record for batch in client.read_range(p, start, end, fetch_max_bytes=300) for record in batch]
    assert [record.offset for record in records] == list(range(start, end))
    assert [record.key for record in records] == [b"k%d" % at for at in range(start, end)]


@pytest.mark.parametrize(("start", "end"), [(0, 100), (0, 0), (5, 6), (13, 87)])
def test_read_range_arrow(fake, client, start, end):
    [p] = fake.topic("t", 0)
    fake.fill(p, 100)
    batches = list(client.read_range_arrow(p, start, end, rows_per_batch=30, include_headers=True))
    assert all(batch.num_rows <= 30 for batch in batches)
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(start, end))
    assert all(batch.schema.field("headers").type == pyarrow.list_(HEADER) for batch in batches)


HEADER = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])


def test_reading_is_given_up_halfway(fake, client):
    [p] = fake.topic("t", 0)
    fake.fill(p, 100)
    reading = client.read_range(p, 0, 100, fetch_max_bytes=10)
    assert next(reading)[0].offset == 0
    reading.close()
    assert client.offsets_at([p], LATEST) == {p: 100}


def test_reading_out_of_range(fake, client):
    [p] = fake.topic("t", 0)
    fake.fill(p, 100)
    fake.logs[p].start = 40
    with pytest.raises(OffsetOutOfRange) as caught:
        list(client.read_range_arrow(p, 0, 100))
    assert caught.value.earliest == 40


def test_records_that_cannot_be_read(fake, client):
    [p] = fake.topic("t", 0)
    fake.logs[p].append(corrupt(encode_batch([Record(0, 0, None, b"x")])))
    for read in (client.read_range, client.read_range_arrow):
        with pytest.raises(CorruptBatchError, match="the batch at offset 0 of t-0 cannot be read"):
            list(read(p, 0, 1))


def corrupt(data):
    """The batch with more records than there are, and a checksum that says that this is right."""
    broken = bytearray(data)
    broken[60] += 9
    broken[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(broken)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(broken)


def offsets_until(error, batches):
    """The offsets of the rows that come before an error, and the error."""
    found = []
    with pytest.raises(error) as raised:
        found.extend(offset for batch in batches for offset in batch.column("offset").to_pylist())
    return found, raised.value


@pytest.mark.parametrize("rows_per_batch", [7, 1000])
@pytest.mark.parametrize("fetch_max_bytes", [10, 1 << 20])
@pytest.mark.parametrize("damage", ["records", "checksum"])
def test_rows_before_a_damaged_batch_come_first(fake, client, rows_per_batch, fetch_max_bytes, damage):
    [p] = fake.topic("t", 0)
    fake.fill(p, 40)
    batches = fake.logs[p].batches
    batches[2] = corrupt(batches[2]) if damage == "records" else batches[2][:-1] + b"?"
    range_rows = client.read_range_arrow(p, 5, 40, rows_per_batch, fetch_max_bytes)
    found, error = offsets_until(CorruptBatchError, range_rows)
    assert found == list(range(5, 20))
    assert "the batch at offset 20" in str(error)
    assert "t-0" in str(error)
    assert "read from offset 30 on to leave it out" in str(error)


@pytest.mark.parametrize("rows_per_batch", [2, 1000])
def test_rows_before_a_timestamp_out_of_range_come_first(fake, client, rows_per_batch):
    [p] = fake.topic("t", 0)
    fake.fill(p, 10)
    fake.logs[p].append(encode_batch([Record(0, ms, None, b"v") for ms in (1, 2**62, 3)]))
    fake.fill(p, 10)
    found, error = offsets_until(RecordTimestampError, client.read_range_arrow(p, 0, 23, rows_per_batch))
    assert found == list(range(11))
    assert (error.partition, error.offset, error.timestamp) == (p, 11, 2**62)
    assert "the record at offset 11 of t-0" in str(error)
    rest = [each for batch in client.read_range_arrow(p, 12, 23) for each in batch.column("offset").to_pylist()]
    assert rest == list(range(12, 23))
    [whole] = client.read_range_arrow(p, 0, 23, timestamp_unit=None)
    assert whole.num_rows == 23
    assert "timestamp" not in whole.schema.names


def test_refused_arguments():
    with pytest.raises(InvalidArgumentError):
        Client("nonsense")


def test_closed_clients_say_so(fake):
    client = Client(fake.bootstrap, **QUICK_CLIENT)
    client.close()
    client.close()
    with pytest.raises(ClientClosedError):
        client.topics()
    assert not any(thread.name == "ottla-client" for thread in threading.enumerate())


def read_in_child(bootstrap, partition, answers):
    with Client(bootstrap, **QUICK_CLIENT) as client:
        answers.put(sum(len(records) for records in client.read_range(partition, 0, 100)))


def test_forked_workers_open_their_own(fake, client):
    [p] = fake.topic("t", 0)
    fake.fill(p, 100)
    assert client.offsets_at([p], LATEST) == {p: 100}
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    workers = [context.Process(target=read_in_child, args=(fake.bootstrap, p, answers)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert [answers.get(timeout=60) for _ in workers] == [100, 100]
    for worker in workers:
        worker.join(60)
    assert client.offsets_at([p], EARLIEST) == {p: 0}
