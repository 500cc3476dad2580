"""Whatever the records: what is written is read again, and damage is refused, never anything but a BatchError."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import TimestampType, check_crc, parse_batch_header, split_batches
from ottla.records.compression import Compression, compress, decompress
from ottla.records.errors import BatchError
from ottla.records.record import Record, batch_payload, decode_batch, decode_columns, encode_batch
from ottla.records.varint import encode_varint
from support.random_cases import cases

LIMIT = 1024 * 1024
INT16 = st.integers(-1, 2**15 - 1)
INT31 = st.integers(-1, 2**31 - 1)
TIMES = st.integers(-(2**61), 2**61) | st.integers(1_600_000_000_000, 1_800_000_000_000)
BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=20), BYTES), max_size=5).map(tuple)
CODECS = st.sampled_from(list(Compression))
RECORDS = st.lists(
    st.builds(Record, offset=st.just(0), timestamp=TIMES, key=BYTES, value=BYTES, headers=HEADERS),
    min_size=1,
    max_size=80,
)


@given(
    records=RECORDS,
    base_offset=st.integers(0, 2**62),
    codec=CODECS,
    producer=st.tuples(INT31, INT16, INT31),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_round_trip(records, base_offset, codec, producer, flags):
    data = encode_batch(
        records,
        base_offset=base_offset,
        compression=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=flags[0],
        is_control=flags[1],
    )
    [header] = split_batches(data)
    assert check_crc(data, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert (header.is_transactional, header.is_control) == flags
    assert header.last_offset == base_offset + len(records) - 1
    assert header.max_timestamp == max(record.timestamp for record in records)
    for at, record in enumerate(records):
        record.offset = base_offset + at
    assert decode_batch(data, header) == records


@given(records=RECORDS, gaps=st.lists(st.integers(1, 100_000), min_size=80, max_size=80), codec=CODECS)
def test_gaps_survive(records, gaps, codec):
    offset = 0
    for record, gap in zip(records, gaps, strict=False):
        offset += gap
        record.offset = offset
    data = encode_batch(records, base_offset=1, keep_offsets=True, compression=codec)
    assert decode_batch(data, parse_batch_header(data)) == records


@given(records=RECORDS, append_time=st.integers(0, 2**62))
def test_append_time(records, append_time):
    records[-1].timestamp = max(append_time, *(record.timestamp for record in records))
    data = encode_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {r.timestamp for r in decode_batch(data, parse_batch_header(data))} == {records[-1].timestamp}


@settings(max_examples=cases(300))
@given(records=RECORDS, data=st.data())
def test_damaged_records_are_read_or_refused(records, data):
    whole = encode_batch(records)
    payload = bytearray(batch_payload(whole, parse_batch_header(whole)))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        columns = decode_columns(bytes(payload), len(records))
    except BatchError:
        return
    assert len(columns.values) == len(records)


@settings(max_examples=cases(300))
@given(st.binary(max_size=200), st.integers(-5, 50))
def test_noise_is_read_or_refused(noise, count):
    with contextlib.suppress(BatchError):
        assert len(decode_columns(noise, count).values) == count
    with contextlib.suppress(BatchError):
        assert bool(split_batches(noise)) == bool(noise)


@settings(max_examples=cases(200))
@given(codec=CODECS, payload=st.binary(min_size=1, max_size=2000), data=st.data())
def test_damaged_compression_is_read_or_refused(codec, payload, data):
    packed = bytearray(compress(codec, payload))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(BatchError):
        assert len(decompress(codec, packed, LIMIT)) <= LIMIT


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(value):
    encoded = encode_varint(value)
    assert len(encoded) <= 10
    record = b"\x00" + encoded + b"\x00\x01\x01\x00"
    assert decode_columns(encode_varint(len(record)) + record, 1).timestamp_deltas == [value]
