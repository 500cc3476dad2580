from __future__ import annotations

import struct

import pytest

from ottla.client.consumer.completed_fetch import CompletedFetch, Decoding
from ottla.client.consumer.subscription_state import PartitionState
from ottla.client.errors import (
    CorruptBatchError,
    DeserializationOrigin,
    RecordDeserializationError,
    RecordTimestampError,
)
from ottla.client.model import TopicPartition
from ottla.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    RECORDS_COUNT_AT,
    TimestampType,
)
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.crc import crc32c
from ottla.records.message_set import encode_messages
from ottla.records.record import Record, encode_batch

P = TopicPartition("t", 0)
PRODUCER, OTHER = 7, 8


def batch(first, count, **options):
    records = [Record(0, 1000 + at, b"k%d" % at, b"%d" % at) for at in range(first, first + count)]
    return encode_batch(records, base_offset=first, leader_epoch=first // 10, **options)


def damaged(first, count):
    data = bytearray(batch(first, count))
    data[CRC_AT] ^= 1
    return bytes(data)


def written(first, count, producer):
    return batch(first, count, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)


def marker(offset, kind, producer):
    key, value = end_transaction_record(kind, 0)
    options = {"producer_id": producer, "producer_epoch": 0, "is_transactional": True, "is_control": True}
    return encode_batch([Record(0, 0, key, value)], base_offset=offset, **options)


def fetched(data, offset=0, aborted=(), **options):
    return CompletedFetch(P, PartitionState(), 0, offset, memoryview(data), Decoding(**options), aborted)


def drain(fetch, most=1000):
    found = []
    while not fetch.is_drained:
        found += [record.offset for record in fetch.take(most)]
    return found


def taken_rows(fetch, most):
    while not fetch.is_drained:
        yield from fetch.take_rows(most)


def rows(fetch, most=1000):
    return [offset for each in taken_rows(fetch, most) for offset in each.column(4).to_pylist()]


@pytest.mark.parametrize("take", [drain, rows])
@pytest.mark.parametrize("most", [1, 7, 10, 1000])
def test_all_records_from_the_offset_on(take, most):
    data = batch(0, 10) + batch(10, 10) + batch(25, 5)
    fetch = fetched(data, offset=5)
    assert take(fetch, most) == [*range(5, 20), *range(25, 30)]
    assert (fetch.position, fetch.end) == (30, 30)


def test_positions_and_epochs_go_with_the_records():
    fetch = fetched(batch(0, 10) + batch(10, 10))
    fetch.take(4)
    assert (fetch.position, fetch.epoch) == (4, 0)
    fetch.take(6)
    assert (fetch.position, fetch.epoch) == (10, 0)
    fetch.take(3)
    assert (fetch.position, fetch.epoch) == (13, 1)
    fetch.rewind(2)
    assert [record.offset for record in fetch.take(100)] == list(range(2, 10))


@pytest.mark.spec("C1")
@pytest.mark.parametrize("take", [drain, rows])
def test_aborted_transactions_are_left_out_and_passed_over(take):
    data = b"".join(
        [
            written(0, 3, PRODUCER),
            written(3, 3, OTHER),
            batch(6, 2),
            marker(8, ControlRecordType.ABORT, PRODUCER),
            written(9, 3, PRODUCER),
            marker(12, ControlRecordType.COMMIT, OTHER),
            marker(13, ControlRecordType.COMMIT, PRODUCER),
        ]
    )
    committed = fetched(data, aborted=[(0, PRODUCER)], read_committed=True)
    assert take(committed) == [3, 4, 5, 6, 7, 9, 10, 11]
    assert committed.position == 14
    assert take(fetched(data)) == [*range(8), 9, 10, 11]


def test_only_markers_move_the_position():
    fetch = fetched(marker(4, ControlRecordType.COMMIT, PRODUCER), offset=4, read_committed=True)
    assert fetch.take(10) == []
    assert fetch.is_drained
    assert fetch.position == 5


@pytest.mark.parametrize("take", [drain, rows])
def test_a_wrong_checksum(take):
    data = batch(0, 10) + damaged(10, 10)
    fetch = fetched(data)
    assert len(fetch.take(100)) == 10
    with pytest.raises(CorruptBatchError, match="seek to 20"):
        take(fetch)
    assert fetch.position == 10
    assert take(fetched(data, check_crcs=False)) == list(range(20))


def test_arrow_rows_before_a_wrong_checksum_are_handed_out():
    data = batch(0, 10) + batch(10, 10) + damaged(20, 10)
    fetch = fetched(data)
    assert fetch.take_rows(1000)[0].num_rows == 20
    with pytest.raises(CorruptBatchError, match="seek to 30"):
        fetch.take_rows(1000)


def timed(first, *times):
    return encode_batch([Record(0, ms, None, b"v") for ms in times], base_offset=first, leader_epoch=first // 10)


FAR = 1_764_412_345_678_000_000
"""What a producer writes that takes nanoseconds for milliseconds."""


@pytest.mark.spec("C1")
@pytest.mark.parametrize("most", [1, 3, 1000])
@pytest.mark.parametrize("first", [0, 2, 4])
def test_arrow_rows_end_before_a_timestamp_out_of_range_and_go_on_behind_it(first, most):
    fetch = fetched(timed(0, 1, 2, 3, 4) + timed(10, 5, FAR, 6) + timed(20, 7), offset=first)
    found = []
    with pytest.raises(
        RecordTimestampError, match="offset 11 of t-0 has the timestamp 1764412345678000000, "
    ) as raised:
        found.extend(offset for each in taken_rows(fetch, most) for offset in each.column(4).to_pylist())
    assert found == [*range(first, 4), 10]
    assert (fetch.position, fetch.epoch) == (11, 1)
    error = raised.value
    assert (error.partition, error.offset, error.timestamp) == (P, 11, FAR)
    assert "seek to 12" in str(error)
    with pytest.raises(RecordTimestampError):
        fetch.take_rows(most)
    fetch.rewind(12)
    assert rows(fetch, most) == [12, 20]


def test_a_timestamp_out_of_range_first_of_all():
    fetch = fetched(timed(0, FAR) + timed(1, 1))
    with pytest.raises(RecordTimestampError, match="offset 0 of t-0"):
        fetch.take_rows(10)
    assert fetch.position == 0


def test_records_have_any_timestamp():
    fetch = fetched(timed(0, 1, FAR, 2))
    assert fetch.take_rows(10)[0].num_rows == 1
    with pytest.raises(RecordTimestampError):
        fetch.take_rows(10)
    assert [(record.offset, record.timestamp) for record in fetch.take(10)] == [(1, FAR), (2, 2)]


def test_arrow_rows_where_a_deserializer_failed():
    def fails(topic, headers, data):
        raise ValueError("no")

    fetch = fetched(batch(0, 3), value=fails)
    with pytest.raises(RecordDeserializationError):
        fetch.take(10)
    assert rows(fetch) == [0, 1, 2]
    fetch = fetched(batch(0, 10), value=lambda topic, headers, data: 1 / (int(data) - 5))
    assert len(fetch.take(100)) == 5
    assert fetch.take_rows(2)[0].column(4).to_pylist() == [5, 6]
    assert [record.offset for record in fetch.take(100)] == [7, 8, 9]


def test_garbage():
    fetch = fetched(b"\x00" * 8)
    assert isinstance(fetch.error, CorruptBatchError)


@pytest.mark.spec("C1")
def test_a_deserializer_that_fails():
    def fails(topic, headers, data):
        if data == b"5":
            raise ValueError("five")
        return int(data)

    fetch = fetched(batch(0, 10), value=fails)
    assert [record.value for record in fetch.take(100)] == [0, 1, 2, 3, 4]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match="value of the record at offset 5 of t-0") as raised:
            fetch.take(100)
        assert (raised.value.partition, raised.value.offset, fetch.position) == (P, 5, 5)
    fetch.rewind(6)
    assert [record.value for record in fetch.take(100)] == [6, 7, 8, 9]


@pytest.mark.spec("C1")
@pytest.mark.parametrize("origin", DeserializationOrigin)
def test_a_record_that_cannot_be_deserialized_is_in_its_error(origin):
    """As it was read, for a dead-letter topic (KIP-1036)."""

    def fails(topic, headers, data):
        raise ValueError("no")

    record = Record(0, 1234, b"k", b"v", (("h", b"1"), ("h", None)))
    fetch = fetched(encode_batch([record], base_offset=7), 7, **{origin.value: fails})
    with pytest.raises(RecordDeserializationError) as raised:
        fetch.take(1)
    error = raised.value
    assert (error.origin, error.partition, error.offset) == (origin, P, 7)
    assert (error.key_buffer, error.value_buffer, list(error.headers)) == (b"k", b"v", [("h", b"1"), ("h", None)])
    assert (error.timestamp, error.timestamp_type) == (1234, TimestampType.CREATE_TIME)
    assert isinstance(error.__cause__, ValueError)


def test_null_is_none_in_the_error_of_a_record():
    def fails(topic, headers, data):
        raise ValueError("no")

    with pytest.raises(RecordDeserializationError) as raised:
        fetched(encode_batch([Record(0, 1, None, b"v")]), value=fails).take(1)
    assert (raised.value.key_buffer, raised.value.value_buffer) == (None, b"v")


def with_field(data, at, value):
    """The batch with other bytes in its header; the checksum is wrong afterwards."""
    return data[:at] + value + data[at + len(value) :]


def test_what_comes_before_a_damaged_frame_is_handed_out():
    good = batch(0, 10) + batch(10, 10)
    for damage in (
        with_field(batch(20, 10), LENGTH_AT, b"\xff\xff\xff\xf4"),
        with_field(batch(20, 10), LENGTH_AT, b"\x00\x00\x00\x0f"),
        with_field(batch(20, 10), MAGIC_AT, b"\x07"),
        with_field(batch(20, 10), LAST_OFFSET_DELTA_AT, b"\xff\xff\xff\xf0"),
    ):
        fetch = fetched(good + damage + batch(30, 10))
        assert drain(fetch) == list(range(20))
        assert (fetch.end, fetch.error) == (20, None)  # the next fetch begins with the damage
        assert isinstance(fetched(damage + batch(30, 10), offset=20).error, CorruptBatchError)


def test_what_comes_before_a_damaged_message_is_handed_out():
    def messages(first, count):
        return encode_messages([Record(at, 1000, None, b"%d" % at) for at in range(first, first + count)], 1)

    hurt = bytearray(messages(10, 1))
    hurt[-1] ^= 1
    for good in (messages(0, 10), batch(0, 10)):
        assert drain(fetched(good + bytes(hurt) + messages(11, 5))) == list(range(10))
    assert isinstance(fetched(bytes(hurt) + messages(11, 5), offset=10).error, CorruptBatchError)


@pytest.mark.parametrize("take", [drain, rows])
@pytest.mark.parametrize("damage", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_a_batch_with_a_damaged_count_is_not_passed_over(take, damage):
    fetch = fetched(batch(0, 10) + with_field(batch(10, 10), RECORDS_COUNT_AT, damage) + batch(20, 10))
    assert [record.offset for record in fetch.take(100)] == list(range(10))
    with pytest.raises(CorruptBatchError, match="batch at offset 10 of t-0 has a wrong checksum"):
        take(fetch)


@pytest.mark.parametrize("take", [drain, rows])
@pytest.mark.parametrize("check_crcs", [True, False])
def test_a_batch_with_a_negative_count_is_not_passed_over(take, check_crcs):
    negative = bytearray(with_field(batch(10, 10), RECORDS_COUNT_AT, b"\xff\xff\xff\xff"))
    struct.pack_into(">I", negative, CRC_AT, crc32c(memoryview(negative)[ATTRIBUTES_AT:]))
    fetch = fetched(batch(0, 10) + bytes(negative) + batch(20, 10), check_crcs=check_crcs)
    assert [record.offset for record in fetch.take(100)] == list(range(10))
    with pytest.raises(CorruptBatchError, match=r"batch at offset 10 of t-0 cannot be read .*-1 records"):
        take(fetch)


def test_a_batch_that_only_seems_to_be_a_control_batch_is_not_passed_over():
    fetch = fetched(batch(0, 10) + with_field(batch(10, 10), ATTRIBUTES_AT, b"\x00\x20"))
    assert [record.offset for record in fetch.take(100)] == list(range(10))
    with pytest.raises(CorruptBatchError, match="wrong checksum"):
        fetch.take(1)


@pytest.mark.spec("C1")
def test_what_comes_before_a_malformed_marker_is_handed_out():
    options = {"producer_id": PRODUCER, "producer_epoch": 0, "is_transactional": True, "is_control": True}
    malformed = encode_batch([Record(0, 0, b"", b"")], base_offset=20, **options)
    data = batch(0, 10) + written(10, 10, PRODUCER) + malformed + batch(21, 5)
    fetch = fetched(data, aborted=[(10, PRODUCER)], read_committed=True)
    assert drain(fetch) == list(range(10))
    assert fetch.end == 20
    fetch = fetched(malformed + batch(21, 5), offset=20, aborted=[(10, PRODUCER)], read_committed=True)
    assert isinstance(fetch.error, CorruptBatchError)
