"""Reading the offsets topic: known kinds, unknown kinds, damage. The bytes themselves: tests/golden/groups."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.groups.offsets import OffsetAndMetadata
from ottla.groups.records import (
    GroupRecord,
    MalformedRecord,
    OffsetRecord,
    UnknownRecord,
    decode_record,
    encode_record,
    java_string_hash,
    partition_of,
)

int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
names = st.text(max_size=40).filter(lambda text: text.isprintable())


@given(names, names, int32, int64, int32, names, int64, st.one_of(st.just(-1), st.integers(0, 2**63 - 1)))
def test_offsets_come_back(group, topic, partition, offset, epoch, metadata, timestamp, expires):
    if expires != -1:
        epoch = -1
    record = OffsetRecord(group, topic, partition, OffsetAndMetadata(offset, epoch, metadata, timestamp, expires))
    assert decode_record(*encode_record(record)) == record


def test_tombstones():
    for record in (OffsetRecord("g", "t", 1, None), GroupRecord("g", None)):
        key, value = encode_record(record)
        assert value is None
        assert decode_record(key, None) == record


@pytest.mark.parametrize("version", [3, 5, 10, 15])
def test_records_of_the_newer_protocols_are_left_alone(version: int):
    assert decode_record(version.to_bytes(2, "big") + b"\x00\x01g", b"anything") == UnknownRecord(version)


@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=60)))
def test_damage_is_told_and_nothing_else_happens(key: bytes, value: bytes | None):
    with contextlib.suppress(MalformedRecord):
        decode_record(key, value)


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


@pytest.mark.parametrize(
    ("text", "hashed"), [("", 0), ("a", 97), ("polygenelubricants", -(2**31)), ("\U0001f418", 1772411)]
)
def test_hash_of_java(text: str, hashed: int):
    assert java_string_hash(text) == hashed
    assert 0 <= partition_of(text, 50) < 50
