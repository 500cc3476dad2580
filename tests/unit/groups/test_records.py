"""Reading the offsets topic: known kinds, unknown kinds, damage. The bytes themselves: tests/golden/groups."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.groups.records import (
    GroupRecord,
    MalformedRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
    StoredOffset,
    UnknownRecord,
    decode_record,
    encode_record,
    offset_key,
    offset_value,
)
from ottla.wire.codec import decode, encode

int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
names = st.text(max_size=40).filter(lambda text: text.isprintable())


def test_versions_leave_out_what_they_have_no_field_for():
    value = OffsetCommitValue(offset=7, leader_epoch=3, metadata="m", commit_timestamp=5, expire_timestamp=9)
    kept = [(found.leader_epoch, found.expire_timestamp) for found in (decode_as(value, each) for each in range(5))]
    assert kept == [(-1, -1), (-1, 9), (-1, -1), (3, -1), (3, -1)]


def decode_as(value, version):
    return decode(OffsetCommitValue, encode(value, version), version)


@given(names, names, int32, int64, int32, names, int64, st.one_of(st.just(-1), st.integers(0, 2**63 - 1)))
def test_offsets_come_back(group, topic, partition, offset, epoch, metadata, timestamp, expires):
    if expires != -1:
        epoch = -1
    record = OffsetRecord(group, topic, partition, StoredOffset(offset, epoch, metadata, timestamp, expires))
    assert decode_record(*encode_record(record)) == record


@given(names, names, int32, int64, int32, names, int64)
def test_what_is_written_in_line_is_what_is_declared(group, topic, partition, offset, epoch, metadata, timestamp):
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    assert offset_key(group, topic, partition) == b"\x00\x01" + encode(key, 1)
    value = OffsetCommitValue(offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=timestamp)
    committed = StoredOffset(offset, epoch, metadata, timestamp)
    assert offset_value(committed) == b"\x00\x03" + encode(value, 3)
    for version in (0, 2, 3, 4):
        read = decode_record(b"\x00\x00" + encode(key, 0), version.to_bytes(2, "big") + encode(value, version))
        expected = committed if version >= 3 else committed._replace(leader_epoch=-1)
        assert read == OffsetRecord(group, topic, partition, expected)


@given(st.data())
def test_cut_or_lengthened_records_are_refused(data):
    key, value = encode_record(OffsetRecord("group", "topic", 1, StoredOffset(1, 1, "metadata", 1)))
    assert value is not None
    cut = data.draw(st.integers(2, len(key) - 1))
    with pytest.raises(MalformedRecord):
        decode_record(key[:cut], value)
    with pytest.raises(MalformedRecord):
        decode_record(key, value[: data.draw(st.integers(0, len(value) - 1))])
    for longer in ((key + b"x", value), (key, value + b"x")):
        with pytest.raises(MalformedRecord):
            decode_record(*longer)


def test_tombstones():
    for record in (OffsetRecord("g", "t", 1, None), GroupRecord("g", None)):
        key, value = encode_record(record)
        assert value is None
        assert decode_record(key, None) == record


@pytest.mark.parametrize("version", [3, 5, 10, 15])
def test_records_of_the_newer_protocols_are_left_alone(version: int):
    assert decode_record(version.to_bytes(2, "big") + b"\x00\x01g", b"anything") == UnknownRecord(version)


@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=60)))
def test_damage_is_reported_and_nothing_else_happens(key: bytes, value: bytes | None):
    with contextlib.suppress(MalformedRecord):
        assert isinstance(decode_record(key, value), OffsetRecord | GroupRecord | UnknownRecord)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        (None, None, "no key"),
        (b"\x00", None, "no key"),
        (b"\x00\x02\x00\x01g", b"\x00", "no version"),
        (b"\x00\x02\x00\x01g", b"\x00\x05", "version 5 is newer than the highest known, 4"),
        (b"\x00\x02\x00\x01g", b"\xff\xff", "version -1"),
    ],
)
def test_what_is_wrong(key: bytes | None, value: bytes | None, what: str):
    with pytest.raises(MalformedRecord, match=what):
        decode_record(key, value)
