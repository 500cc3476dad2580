"""The records of `__consumer_offsets` against those that Apache Kafka's own classes write.

`records.txt` is what `OffsetsTopicRecords.java` prints; record it again with `OTTLA_RECORD=1`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.broker.coordinators.shard_router import partition_of
from ottla.groups.records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
    StoredOffset,
    decode_record,
    encode_record,
    group_key,
    offset_key,
    offset_value,
)
from ottla.wire.codec import decode, encode
from ottla.wire.schema import Message
from support.java import java_tool

HERE = Path(__file__).parent
RECORDED = HERE / "records.txt"

pytestmark = pytest.mark.spec("G12")


def recorded() -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in RECORDED.read_text().splitlines())


def member(version: int, member_id: str, instance: str | None, assignment: bytes) -> GroupMetadataMember:
    return GroupMetadataMember(
        member_id=member_id,
        group_instance_id=instance if version >= 3 else None,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout=300_000 if version >= 1 else -1,
        session_timeout=45_000,
        subscription=b"\x00\x01\x02",
        assignment=assignment,
    )


def expected() -> dict[str, tuple[Message, int]]:
    made: dict[str, tuple[Message, int]] = {}
    for version in (0, 1):
        made[f"offset-key-v{version}"] = (OffsetCommitKey(group="group", topic="tøpic", partition=7), version)
    made["group-key-v2"] = (GroupMetadataKey(group="group"), 2)
    for version in range(5):
        made[f"offset-value-v{version}"] = (
            OffsetCommitValue(
                offset=1234567890123,
                leader_epoch=5 if version >= 3 else -1,
                metadata="where I am",
                commit_timestamp=1700000000000,
                expire_timestamp=1700000086400 if version == 1 else -1,
            ),
            version,
        )
        made[f"group-value-v{version}"] = (
            GroupMetadataValue(
                protocol_type="consumer",
                generation=9,
                protocol="range",
                leader="a-1",
                current_state_timestamp=1700000000001 if version >= 2 else -1,
                members=[member(version, "a-1", None, b"\x03"), member(version, "b-2", "instance", b"")],
            ),
            version,
        )
        made[f"empty-group-value-v{version}"] = (
            GroupMetadataValue(protocol_type="consumer", generation=10, protocol=None, leader=None),
            version,
        )
    return made


@pytest.mark.parametrize("name", sorted(expected()))
def test_every_version_is_read_and_written_as_apache_kafka_does(name: str):
    message, version = expected()[name]
    data = bytes.fromhex(recorded()[name])
    assert int.from_bytes(data[:2], "big") == version
    assert encode(message, version) == data[2:]
    assert decode(type(message), data, version, 2) == message


def test_what_is_written_today():
    known = recorded()
    assert offset_key("g", "t", 0).hex() == known["written-offset-key"]
    assert offset_value(StoredOffset(42, 3, "", 1000)).hex() == known["written-offset-value"]
    expiring = StoredOffset(42, -1, "m", 1000, 2000)
    assert offset_value(expiring).hex() == known["written-offset-value-with-expiry"]
    assert group_key("g").hex() == known["written-group-key"]
    value, _ = expected()["group-value-v3"]
    assert isinstance(value, GroupMetadataValue)
    key, written = encode_record(GroupRecord("group", value))
    assert (key.hex(), written and written.hex()) == (known["group-key-v2"], known["group-value-v3"])


@pytest.mark.parametrize("version", range(5))
def test_values_of_every_version_are_loaded(version: int):
    known = recorded()
    key = bytes.fromhex(known["offset-key-v1"])
    loaded = decode_record(key, bytes.fromhex(known[f"offset-value-v{version}"]))
    expires = 1700000086400 if version == 1 else -1
    committed = StoredOffset(1234567890123, 5 if version >= 3 else -1, "where I am", 1700000000000, expires)
    assert loaded == OffsetRecord("group", "tøpic", 7, committed)
    group = decode_record(bytes.fromhex(known["group-key-v2"]), bytes.fromhex(known[f"group-value-v{version}"]))
    assert group == GroupRecord("group", expected()[f"group-value-v{version}"][0])  # type: ignore[arg-type]


def test_partition_of_a_group():
    partitions = {name: number for name, number in recorded().items() if name.startswith("partition of ")}
    assert len(partitions) == 6
    for name, number in partitions.items():
        group = bytes.fromhex(name.removeprefix("partition of ")).decode()
        assert partition_of(group, 50) == int(number), group


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_the_recorded_bytes_are_those_of_apache_kafka():
    printed = java_tool(str(HERE / "OffsetsTopicRecords.java")).stdout
    if os.environ.get("OTTLA_RECORD"):
        RECORDED.write_text(printed)
    assert printed == RECORDED.read_text()
