"""Produce 0-2 and Fetch 0-3, the versions of message sets, side by side with Apache Kafka.

What is produced was written by Apache Kafka's own classes (`tests/golden/records/message_sets.txt`).
"""

from __future__ import annotations

import re
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from interop.both_brokers import BrokerPair, made, topic_id_when_usable
from interop.raw import RawConnection, batch
from interop.wire_json import Json
from ottla.records.batch import MAGIC_AT, parse_batch_header
from ottla.records.message_set import check_message_crc, decode_message, parse_message_header
from ottla.records.record import Record, decode_batch, encode_batch
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.spec("L7")]

SETS = Path(__file__).parents[1] / "golden" / "records" / "message_sets.txt"
NONE = 0
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
UNSUPPORTED_VERSION = 35
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
INVALID_RECORD = 87


@cache
def sets() -> dict[str, bytes]:
    lines = (line.split(" ") for line in SETS.read_text().splitlines())
    return {name: bytes.fromhex(content) for name, content in lines}


def message(value: bytes | None, *, magic: int = 1, key: bytes | None = b"k", timestamp: int = 7, **more: int) -> bytes:
    body = struct.pack(">bb", magic, more.get("attributes", 0))
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    crc = more.get("crc", zlib.crc32(body))
    return struct.pack(">qiI", more.get("offset", 0), len(body) + 4, crc) + body


def produce(
    pair: BrokerPair, topic: str, records: bytes | None, version: int, acks: int = -1, partition: int = 0
) -> Json:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    answer = pair.check_alike("Produce", version, acks=acks, timeout_ms=20_000, topic_data=data)
    found: Json = answer["responses"][0]["partition_responses"][0]
    return found


def produce_batch(pair: BrokerPair, topic: str, records: bytes) -> None:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    answer = pair.check_alike("Produce", 9, transactional_id=None, acks=-1, timeout_ms=20_000, topic_data=data)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == NONE


def fetching(version: int, name: str, topic_id: Any, offset: int, max_bytes: int) -> Json:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    topic: Json = {"partitions": [partition]}
    topic |= {"topic": name} if version < 13 else {"topic_id": topic_id}
    body: Json = {"max_wait_ms": 0, "min_bytes": 0, "topics": [topic]}
    return body if version > 14 else {"replica_id": -1, **body}


def check_fetch(
    pair: BrokerPair, version: int, name: str, topic_id: Any = None, offset: int = 0, max_bytes: int = 1 << 20
) -> tuple[Any, Any]:
    """The records of both, their answers otherwise being equal."""
    body = fetching(version, name, topic_id, offset, max_bytes)
    both = pair.ask_each("Fetch", version, **body)
    ours, theirs = (one["responses"][0]["partitions"][0] for one in (both.ours, both.theirs))
    found = ours["records"], theirs["records"]
    for one in (ours, theirs):
        one["records"] = None
    assert {**ours, "records": None} == {**theirs, "records": None}
    return found


def decoded(data: bytes) -> list[tuple[int, list[Record]]]:
    """Each batch or message that is whole: its format and compression, and its records."""
    found = []
    position = 0
    while len(data) - position > MAGIC_AT:
        length = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        one = data[position : position + length]
        if len(one) < length:
            break
        if one[MAGIC_AT] == 2:
            header = parse_batch_header(one)
            found.append((header.attributes, decode_batch(one, header)))
        else:
            message = parse_message_header(one)
            assert check_message_crc(one, message)
            found.append((message.attributes, decode_message(one, message, 1 << 24)))
        position += length
    return found


@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("version", range(3))
def test_produce_of_every_kind_of_set(pair: BrokerPair, unique: str, version: int, stamp: str) -> None:
    pair.create_topic(unique, message_timestamp_type=stamp)
    end = 0
    for name, data in sets().items():
        if name.startswith(("set-0-", "set-1-")) and "-create-" in name:
            answer = produce(pair, unique, data, version)
            assert (answer["error_code"], answer["base_offset"]) == (NONE, end), name
            end += 3
    assert end == 3 * 44


BAD = {
    "wrong checksum": (message(b"v", crc=5), CORRUPT_MESSAGE),
    "size too small": (struct.pack(">qi", 0, 13) + message(b"v")[12:], CORRUPT_MESSAGE),
    "size negative": (struct.pack(">qi", 0, -1) + message(b"v")[12:], CORRUPT_MESSAGE),
    "format unknown": (message(b"v", magic=3), CORRUPT_MESSAGE),
    "cut off": (message(b"v")[:-1], NONE),
    "nothing": (b"", NONE),
    "garbage behind it": (message(b"v") + b"\xff" * 12, CORRUPT_MESSAGE),
    "zeros behind it": (message(b"v") + bytes(16), CORRUPT_MESSAGE),
    "an unknown format cut off behind it": (message(b"v") + message(bytes(99), magic=7)[:40], CORRUPT_MESSAGE),
    "a piece of the next behind it": (message(b"v") + message(b"v")[:14], NONE),
    "formats mixed": (message(b"v") + message(b"v", magic=0), INVALID_RECORD),
    "batch of format 2": (batch([b"v"]), NONE),
    "two batches of format 2": (batch([b"v"]) * 2, INVALID_RECORD),
    "too large": (message(bytes(3000)), MESSAGE_TOO_LARGE),
    "too large together": (message(bytes(900)) * 4, MESSAGE_TOO_LARGE),
    "without key": (message(b"v") + message(b"v", key=None), INVALID_RECORD),
    "too old": (message(b"v", timestamp=1), INVALID_TIMESTAMP),
    "stamped by the producer": (message(b"v", attributes=8, timestamp=-1), INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("what", BAD)
def test_refusals(pair: BrokerPair, unique: str, version: int, what: str) -> None:
    settings = {"max_message_bytes": "2000"}
    if what == "without key":
        settings["cleanup_policy"] = "compact"
    if what == "too old":
        settings["message_timestamp_before_max_ms"] = "1000"
    pair.create_topic(unique, **settings)
    records, error = BAD[what]
    assert produce(pair, unique, records, version)["error_code"] == error


@pytest.mark.parametrize("version", range(3))
def test_acks_and_unknown_partitions(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    assert produce(pair, unique, message(b"v"), version, acks=2)["error_code"] == INVALID_REQUIRED_ACKS
    assert produce(pair, unique, message(b"v"), version, acks=1)["error_code"] == NONE
    assert produce(pair, unique, message(b"v"), version, partition=7)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_compression(pair: BrokerPair, unique: str, codec: str) -> None:
    ids = pair.create_topic(unique, compression_type=codec)
    for name, data in sets().items():
        if name.startswith(("set-0-", "set-1-")) and "-create-" in name:
            assert produce(pair, unique, data, 2)["error_code"] == NONE
    for value in (b"one", bytes(50_000)):
        produce_batch(pair, unique, batch([value, b"two"]))
    ours, theirs = check_fetch(pair, 12, unique, ids)
    assert decoded(ours) == decoded(theirs)
    assert len(decoded(ours)) == 46


def filled(pair: BrokerPair, unique: str, **settings: str) -> Any:
    """A topic on both with batches of all kinds but zstd, each with headers and without keys somewhere."""
    ids = pair.create_topic(unique, **settings)
    for name, data in sets().items():
        if name.startswith("set-2-") and "zstd" not in name and "-create-" in name:
            produce_batch(pair, unique, at_zero(data))
    return ids


def at_zero(data: bytes) -> bytes:
    """The batch as a client sends it: offsets without gaps from 0 on."""
    header = parse_batch_header(data)
    records = decode_batch(data, header)
    return encode_batch(records, compression=header.compression)


@pytest.mark.parametrize("version", range(18))
def test_fetch_in_every_version(pair: BrokerPair, unique: str, version: int) -> None:
    ids = filled(pair, unique)
    for offset in (0, 1, 10, 30, 83):
        found, expected = (decoded(one) for one in check_fetch(pair, version, unique, ids, offset=offset))
        # Compressed by another library, messages may be a little larger, and the last then lies beyond the limit.
        assert len(expected) - (version < 4) <= len(found) <= len(expected) + (version < 4)
        shorter = min(len(found), len(expected))
        assert found[:shorter] == expected[:shorter]
        if offset == 0 and version > 3:
            assert len(found) == 28
    assert check_fetch(pair, version, unique, ids, offset=84) == (b"", b"")


@pytest.mark.parametrize("version", range(4))
def test_uncompressed_messages_are_kafkas_bytes(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    for number in range(40):
        produce_batch(pair, unique, batch([b"x" * (number * 97), None, b""]))
    for offset in (0, 7, 119):
        ours, theirs = check_fetch(pair, version, unique, offset=offset)
        assert ours == theirs, offset
        for max_bytes in (20_000, 4_000):
            # We stop at the last indexed batch, where Apache Kafka cuts one off.
            ours, theirs = check_fetch(pair, version, unique, offset=offset, max_bytes=max_bytes)
            assert len(ours) <= len(theirs)
            assert decoded(ours) == decoded(theirs)[: len(decoded(ours))]


@pytest.mark.parametrize("version", range(4))
def test_messages_larger_than_asked_for(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    produce_batch(pair, unique, batch([bytes(5000)]))
    for max_bytes in (1, 61, 1000, 5000):
        ours, theirs = check_fetch(pair, version, unique, max_bytes=max_bytes)
        assert ours == theirs, max_bytes
        assert len(decoded(ours)) == (version == 3)


@pytest.mark.parametrize("version", range(4))
def test_what_cannot_be_converted(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique, message_downconversion_enable="false")
    pair.create_topic(f"{unique}-z", compression_type="zstd")
    pair.create_topic(f"{unique}-m")
    produce_batch(pair, f"{unique}-m", batch([b"first"]))
    produce_batch(pair, f"{unique}-m", at_zero(sets()["set-2-zstd-create-plain"]))
    for name in (unique, f"{unique}-z"):
        produce_batch(pair, name, batch([b"v"]))
        assert check_fetch(pair, version, name) == (None, None)
    assert check_fetch(pair, version, f"{unique}-m", offset=1) == (None, None)
    ours, theirs = check_fetch(pair, version, f"{unique}-m")
    assert len(ours) == len(theirs)
    assert check_fetch(pair, version, f"{unique}-m", offset=9) == (b"", b"")


@pytest.mark.parametrize("version", range(4, 10))
def test_zstd_is_for_new_clients(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique, compression_type="zstd")
    produce_batch(pair, unique, batch([b"v"]))
    assert check_fetch(pair, version, unique) == (None, None)


@pytest.mark.parametrize("version", range(4))
def test_messages_with_the_brokers_time(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique, message_timestamp_type="LogAppendTime")
    for codec in ("none", "gzip", "lz4"):
        produce_batch(pair, unique, at_zero(sets()[f"set-2-{codec}-create-plain"]))
    ours, theirs = (decoded(one) for one in check_fetch(pair, version, unique))
    # The last message may be cut off, see above.
    kinds = [(kind, len(records)) for kind, records in ours], [(kind, len(records)) for kind, records in theirs]
    assert len(kinds[1]) - 1 <= len(kinds[0]) <= len(kinds[1])
    assert kinds[0] == kinds[1][: len(kinds[0])]
    times = {record.timestamp for _, records in ours for record in records}
    assert times == {-1} if version < 2 else min(times) > 1_700_000_100_000


@pytest.mark.parametrize("version", range(2))
def test_list_offsets_of_old_clients(pair: BrokerPair, unique: str, version: int) -> None:
    ids = filled(pair, unique)
    assert ids
    for timestamp in (-1, -2, 0, 1_700_000_000_985, 1_700_000_001_000, 1_700_000_099_000):
        partition = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": 10}
        pair.check_alike("ListOffsets", version, replica_id=-1, topics=[{"name": unique, "partitions": [partition]}])


REFUSED_RECORDS = {
    "stamped": ({"message_timestamp_type": "LogAppendTime"}, batch([b"a", b"b", b"c"], attributes=8)),
    "too old": ({"message_timestamp_before_max_ms": "1000"}, batch([b"a", b"b"])),
    "too new": ({"message_timestamp_after_max_ms": "1000"}, batch([b"a", b"b"], timestamp=9_000_000_000_000)),
    "without key": ({"cleanup_policy": "compact"}, batch([b"a", b"b", b"c", b"d", b"e"])),
    "both": ({"cleanup_policy": "compact", "message_timestamp_before_max_ms": "1000"}, batch([b"a", b"b"])),
    "large": ({"cleanup_policy": "compact"}, batch([bytes(9000), b"b"])),
    "two batches": ({"cleanup_policy": "compact"}, batch([b"a"]) * 2),
}


@pytest.mark.parametrize("what", REFUSED_RECORDS)
@pytest.mark.parametrize("version", [7, 8, 11])
def test_records_that_are_refused_one_by_one(pair: BrokerPair, unique: str, what: str, version: int) -> None:
    settings, records = REFUSED_RECORDS[what]
    pair.create_topic(unique, **settings)
    data = [{"name": unique, "partition_data": [{"index": 0, "records": records}]}]
    both = pair.ask_each("Produce", version, transactional_id=None, acks=-1, timeout_ms=20_000, topic_data=data)
    ours, theirs = (one["responses"][0]["partition_responses"][0] for one in (both.ours, both.theirs))
    assert without_times(ours) == without_times(theirs)
    assert ours["error_code"] in (INVALID_TIMESTAMP, INVALID_RECORD)


def without_times(answer: Json) -> Json:
    """An answer whose texts do not tell the present time."""
    errors = [
        {**one, "batch_index_error_message": re.sub(r"\[-?\d+, -?\d+\]", "…", one["batch_index_error_message"])}
        for one in answer.get("record_errors", ())
    ]
    return {**answer, "record_errors": errors}


@pytest.mark.spec("L6")
def test_old_clients_that_do_not_read_cost_little(ottla_only: OttlaServer, connect: Any, unique: str) -> None:
    """An answer to an old fetch is made as it is taken: what many are owed does not pile up in memory."""
    raw: RawConnection = connect(ottla_only)
    wait_until(lambda: made(raw, {"name": unique, "num_partitions": 1, "replication_factor": 1}), "the topic")
    topic_id_when_usable(raw, unique)
    records = encode_batch([Record(at, 7, None, bytes(2000)) for at in range(400)])
    data = [{"name": unique, "partition_data": [{"index": 0, "records": records}]}]
    for _ in range(40):
        raw.request("Produce", 9, transactional_id=None, acks=1, timeout_ms=20_000, topic_data=data)
    before = ottla_only.server.memory_bytes()
    slow = [connect(ottla_only) for _ in range(12)]
    for one in slow:
        one.send("Fetch", 1, **fetching(1, unique, None, 0, 32 << 20))
    # When this one is answered, all the others were begun.
    answer = raw.request("Fetch", 1, **fetching(1, unique, None, 0, 32 << 20))
    assert len(answer["responses"][0]["partitions"][0]["records"]) > 30_000_000
    grown = ottla_only.server.memory_bytes() - before
    assert grown < 120_000_000, f"{len(slow)} answers of 32 MB cost {grown} bytes"
    assert len(slow[3].receive_frame()) > 30_000_000
