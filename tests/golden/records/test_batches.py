"""Our record batches against Apache Kafka's classes: recorded bytes, and the classes themselves where Java is there.

`batches.txt` is what `RecordBatches.java write` prints.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.records.batch import (
    BatchHeader,
    TimestampType,
    check_crc,
    parse_batch_header,
    patch_batch,
    patch_max_timestamp,
    split_batches,
)
from ottla.records.compression import Compression
from ottla.records.control import (
    ControlRecordType,
    TransactionMarker,
    control_record_type,
    coordinator_epoch,
    end_transaction_batch,
)
from ottla.records.record import Record, decode_batch, encode_batch
from support.java import java_command
from support.processes import run_tool

PROGRAM = Path(__file__).with_name("RecordBatches.java")
RECORDED = Path(__file__).with_name("batches.txt")
T = 1_700_000_000_000
LEADER_EPOCH = 9
CODECS = list(Compression)


def recorded() -> dict[str, bytes]:
    lines = (line.split(" ") for line in RECORDED.read_text().splitlines())
    return {name: bytes.fromhex(content) for name, content in lines}


def mixed(base_offset: int) -> list[Record]:
    headers = (("trace", b"1"), ("größe", None), ("", b""))
    return [
        Record(base_offset, T, b"key", b"value"),
        Record(base_offset + 1, T - 100_000, None, b"earlier than the first"),
        Record(base_offset + 2, T + 5, b"tombstone", None),
        Record(base_offset + 3, T + 6, None, None),
        Record(base_offset + 4, T + 3_000_000_000, b"", b"", headers),
    ]


def many(base_offset: int) -> list[Record]:
    return [
        Record(base_offset + i, T + i * 7, b"key-%d" % i, b"the value of record " * (1 + i % 20) + b"%d" % i)
        for i in range(300)
    ]


def decoded(batch: bytes) -> tuple[BatchHeader, list[Record]]:
    [header] = split_batches(batch)
    assert check_crc(batch, header)
    return header, decode_batch(batch, header)


@pytest.mark.spec("L7")
@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_kafka_compressed(codec: Compression) -> None:
    header, records = decoded(recorded()[f"mixed-{codec.name.lower()}"])
    assert records == mixed(5)
    assert (header.compression, header.timestamp_type) == (codec, TimestampType.CREATE_TIME)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (5, 9, LEADER_EPOCH)
    assert header.max_timestamp == T + 3_000_000_000


@pytest.mark.spec("L7")
@pytest.mark.parametrize("codec", CODECS[1:])
def test_we_read_many_records_that_kafka_compressed(codec: Compression) -> None:
    _, records = decoded(recorded()[f"many-{codec.name.lower()}"])
    assert records == many(1000)


def test_our_bytes_are_kafkas() -> None:
    batches = recorded()
    ours = encode_batch(mixed(0), base_offset=5, leader_epoch=LEADER_EPOCH)
    assert ours == batches["mixed-none"]
    identity = {"producer_id": 4001, "producer_epoch": 3, "leader_epoch": LEADER_EPOCH, "base_offset": 7}
    assert encode_batch(mixed(0), base_sequence=0x7FFFFFFF, **identity) == batches["idempotent"]
    assert encode_batch(mixed(0), base_sequence=12, is_transactional=True, **identity) == batches["transactional"]
    gaps = [Record(103, T, b"a", b"1"), Record(104, T, b"b", b"2"), Record(900, T + 70_000, b"c", b"3")]
    assert decoded(batches["gaps"])[1] == gaps


def test_patching_gives_kafkas_bytes() -> None:
    ours = bytearray(encode_batch(mixed(0)))
    patch_batch(ours, 0, 0, LEADER_EPOCH)
    patch_max_timestamp(ours, 0, T + 99, TimestampType.LOG_APPEND_TIME)
    assert bytes(ours) == recorded()["append-time"]


def test_append_time_is_the_time_of_every_record() -> None:
    header, records = decoded(recorded()["append-time"])
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in records} == {T + 99}


def test_sequences_wrap_as_kafkas_do() -> None:
    header, _ = decoded(recorded()["idempotent"])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4001, 3, 0x7FFFFFFF)
    assert header.last_sequence == 3
    assert not header.is_transactional
    assert decoded(recorded()["transactional"])[0].is_transactional


@pytest.mark.parametrize("kind", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_transaction_markers(kind: ControlRecordType) -> None:
    batch = recorded()[f"marker-{kind.name.lower()}"]
    header, [record] = decoded(batch)
    assert header.is_control
    assert header.is_transactional
    assert control_record_type(record.key) == kind
    assert coordinator_epoch(record.value) == 17
    marker = TransactionMarker(4001, 3, 17, kind is ControlRecordType.COMMIT)
    ours = bytearray(end_transaction_batch(marker, T))
    patch_batch(ours, 0, 42, LEADER_EPOCH)
    assert batch == bytes(ours)


def test_a_batch_emptied_by_compaction() -> None:
    header, records = decoded(recorded()["empty"])
    assert records == []
    assert (header.base_offset, header.last_offset, header.base_sequence, header.last_sequence) == (20, 24, 8, 12)


def oracle(*arguments: str, stdin: str = "") -> list[str]:
    return run_tool(java_command(str(PROGRAM), *arguments), stdin=stdin).stdout.splitlines()


@pytest.mark.needs_kafka
def test_the_recorded_bytes_are_still_kafkas() -> None:
    told = dict(line.split(" ") for line in oracle("write"))
    assert {name: bytes.fromhex(content) for name, content in told.items()} == recorded()


@pytest.mark.needs_kafka
@pytest.mark.spec("L7")
def test_kafka_reads_what_we_write() -> None:
    batches = [
        encode_batch(records, base_offset=50, compression=codec, leader_epoch=LEADER_EPOCH)
        for codec in CODECS
        for records in (mixed(50), many(50))
    ]
    batches += [
        encode_batch(mixed(50), base_offset=50, compression=codec, compression_level=level)
        for codec, level in ((Compression.GZIP, 1), (Compression.LZ4, 9), (Compression.ZSTD, 10))
    ]
    batches.append(encode_batch([Record(50, T, b"k", bytes(1_000_000))], base_offset=50, compression=Compression.LZ4))
    gaps = [Record(103, T, b"a", b"1"), Record(900, T + 70_000, b"c", b"3")]
    batches.append(encode_batch(gaps, base_offset=100, keep_offsets=True))
    told = oracle("read", stdin="\n".join(batch.hex() for batch in batches))
    assert told == [as_kafka_prints(batch) for batch in batches]


def as_kafka_prints(batch: bytes) -> str:
    header = parse_batch_header(batch)
    kind = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
    told = [
        f"batch {header.base_offset} {header.last_offset} {header.partition_leader_epoch} "
        f"{header.compression.name.lower()} {kind[header.timestamp_type]} {header.max_timestamp} {header.producer_id} "
        f"{header.producer_epoch} {header.base_sequence} {str(header.is_transactional).lower()} "
        f"{str(header.is_control).lower()}"
    ]
    for record in decode_batch(batch, header):
        key = "-" if record.key is None else f"k{record.key.hex()}"
        value = "-" if record.value is None else f"v{record.value.hex()}"
        headers = [f"{name.encode().hex()}={'-' if h is None else 'h' + h.hex()}" for name, h in record.headers]
        told.append(" ".join([f"{record.offset} {record.timestamp} {key} {value}", *headers]))
    return ";".join(told)
