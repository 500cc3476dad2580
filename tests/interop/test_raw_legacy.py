"""Produce 0-2 and Fetch 0-3, the versions of message sets, side by side with Apache Kafka.

What is produced was written by Apache Kafka's own classes (`tests/golden/records/message_sets.txt`).
"""

from __future__ import annotations

import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from interop.raw import batch
from interop.twin import Twin
from interop.wire_json import Json
from ottla.records.batch import MAGIC_AT, parse_batch_header
from ottla.records.message_set import check_message_crc, decode_message, parse_message_header
from ottla.records.record import Record, decode_batch

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


def produce(twin: Twin, topic: str, records: bytes | None, version: int, acks: int = -1, partition: int = 0) -> Json:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    answer = twin.ask("Produce", version, acks=acks, timeout_ms=20_000, topic_data=data)
    found: Json = answer["responses"][0]["partition_responses"][0]
    return found


def fetching(version: int, name: str, topic_id: Any, offset: int, max_bytes: int) -> Json:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    topic: Json = {"partitions": [partition]}
    topic |= {"topic": name} if version < 13 else {"topic_id": topic_id}
    body: Json = {"max_wait_ms": 0, "min_bytes": 0, "topics": [topic]}
    return body if version > 14 else {"replica_id": -1, **body}


def fetch(
    twin: Twin, version: int, name: str, topic_id: Any = None, offset: int = 0, max_bytes: int = 1 << 20
) -> tuple[bytes, bytes]:
    """The records of both, their answers otherwise being equal."""
    body = fetching(version, name, topic_id, offset, max_bytes)
    both = twin.ask_each("Fetch", version, **body)
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
def test_produce_of_every_kind_of_set(twin: Twin, unique: str, version: int, stamp: str) -> None:
    twin.create_topic(unique, message_timestamp_type=stamp)
    end = 0
    for name, data in sets().items():
        if name.startswith(("set-0-", "set-1-")) and "-create-" in name:
            answer = produce(twin, unique, data, version)
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
def test_refusals(twin: Twin, unique: str, version: int, what: str) -> None:
    settings = {"max_message_bytes": "2000"}
    if what == "without key":
        settings["cleanup_policy"] = "compact"
    if what == "too old":
        settings["message_timestamp_before_max_ms"] = "1000"
    twin.create_topic(unique, **settings)
    records, error = BAD[what]
    assert produce(twin, unique, records, version)["error_code"] == error


@pytest.mark.parametrize("version", range(3))
def test_acks_and_unknown_partitions(twin: Twin, unique: str, version: int) -> None:
    twin.create_topic(unique)
    assert produce(twin, unique, message(b"v"), version, acks=2)["error_code"] == INVALID_REQUIRED_ACKS
    assert produce(twin, unique, message(b"v"), version, acks=1)["error_code"] == NONE
    assert produce(twin, unique, message(b"v"), version, partition=7)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_compression(twin: Twin, unique: str, codec: str) -> None:
    ids = twin.create_topic(unique, compression_type=codec)
    for name, data in sets().items():
        if name.startswith(("set-0-", "set-1-")) and "-create-" in name:
            assert produce(twin, unique, data, 2)["error_code"] == NONE
    from interop.test_raw_data import produce as produce_batch

    for value in (b"one", bytes(50_000)):
        assert produce_batch(twin, unique, batch([value, b"two"]), 9)["error_code"] == NONE
    ours, theirs = fetch(twin, 12, unique, ids)
    assert decoded(ours) == decoded(theirs)
    assert len(decoded(ours)) == 46
