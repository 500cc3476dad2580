"""The records of `__consumer_offsets`, byte for byte Apache Kafka's.

Key and value begin with a version as int16. Key versions 0 and 1 are a committed offset, 2 is a group's metadata; other
keys (those of the newer group protocols) are left alone. A record without value is a tombstone. Values are written in
the version that Apache Kafka 3.9 writes, the highest that is not flexible (3; 1 for an offset with an expiry of its
own), and read in all.

Source: `group-coordinator/src/main/resources/common/message/{OffsetCommit,GroupMetadata}{Key,Value}.json`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ottla.groups.offsets import NO_EXPIRY, OffsetAndMetadata
from ottla.wire.codec import WireError, decode, encode
from ottla.wire.schema import BYTES, INT32, INT64, STRING, Message, Struct, array, field, message
from ottla.wire.schema import struct as wire_struct

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
HIGHEST_VALUE_VERSION = 4

_VERSION = struct.Struct(">h")


@message(versions=(0, 1))
class OffsetCommitKey(Message):
    """Which partition of which group an offset is committed for."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


@message(versions=(0, 4), flexible_since=4)
class OffsetCommitValue(Message):
    """A committed offset."""

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, since=3, default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, since=1, until=1, default=-1, ignorable=True)


@message(versions=(2, 2))
class GroupMetadataKey(Message):
    """Which group."""

    group: str = field(STRING)


@wire_struct
class GroupMetadataMember(Struct):
    """A member of a generation, with what it subscribed to and what it got."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, since=1, default=-1, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


@message(versions=(0, 4), flexible_since=4)
class GroupMetadataValue(Message):
    """A generation of a group."""

    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable_since=0)
    leader: str | None = field(STRING, nullable_since=0)
    current_state_timestamp: int = field(INT64, since=2, default=-1, ignorable=True)
    members: list[GroupMetadataMember] = field(array(GroupMetadataMember))


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """An offset committed, or, where `value` is None, removed."""

    group_id: str
    topic: str
    partition: int
    value: OffsetAndMetadata | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A generation of a group, or, where `value` is None, the end of the group."""

    group_id: str
    value: GroupMetadataValue | None


LogRecord = OffsetRecord | GroupRecord


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a kind that this version does not know, with the version of its key; it is skipped."""

    key_version: int


class MalformedRecord(ValueError):
    """A record of a known kind whose bytes cannot be read; the message says which."""


def encode_record(record: LogRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they are appended."""
    if isinstance(record, OffsetRecord):
        return (
            offset_key(record.group_id, record.topic, record.partition),
            None if record.value is None else offset_value(record.value),
        )
    return group_key(record.group_id), None if record.value is None else group_value(record.value)


def decode_record(key: bytes | None, value: bytes | None) -> LogRecord | UnknownRecord:
    """A record as it lies in the log; MalformedRecord where it cannot be read."""
    if key is None or len(key) < _VERSION.size:
        raise MalformedRecord("a record of the offsets topic has no key")
    version: int = _VERSION.unpack_from(key)[0]
    try:
        if version in (0, OFFSET_KEY_VERSION):
            offset_of = decode(OffsetCommitKey, key, version, _VERSION.size)
            committed = None if value is None else _decode_offset_value(value)
            return OffsetRecord(offset_of.group, offset_of.topic, offset_of.partition, committed)
        if version == GROUP_KEY_VERSION:
            group_of = decode(GroupMetadataKey, key, version, _VERSION.size)
            return GroupRecord(group_of.group, None if value is None else _decode_group_value(value))
    except WireError as error:
        raise MalformedRecord(str(error)) from error
    return UnknownRecord(version)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Key of a committed offset."""
    body = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return _VERSION.pack(OFFSET_KEY_VERSION) + encode(body, OFFSET_KEY_VERSION)


def offset_value(committed: OffsetAndMetadata) -> bytes:
    """Value of a committed offset."""
    expires = committed.expire_timestamp_ms != NO_EXPIRY
    version = OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_VALUE_VERSION
    body = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    return _VERSION.pack(version) + encode(body, version)


def group_key(group_id: str) -> bytes:
    """Key of a group's metadata."""
    return _VERSION.pack(GROUP_KEY_VERSION) + encode(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION)


def group_value(value: GroupMetadataValue) -> bytes:
    """Value of a group's metadata."""
    return _VERSION.pack(GROUP_VALUE_VERSION) + encode(value, GROUP_VALUE_VERSION)


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, as a signed int32."""
    result = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        result = (31 * result + (high << 8 | low)) & 0xFFFFFFFF
    return result - (1 << 32) if result >= 1 << 31 else result


def partition_of(group_id: str, partitions: int) -> int:
    """The partition of the offsets topic that holds a group, as Apache Kafka computes it (`Utils.abs`)."""
    hashed = java_string_hash(group_id)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


def _decode_offset_value(value: bytes) -> OffsetAndMetadata:
    version = _value_version(value)
    read = decode(OffsetCommitValue, value, version, _VERSION.size)
    return OffsetAndMetadata(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp
    )


def _decode_group_value(value: bytes) -> GroupMetadataValue:
    return decode(GroupMetadataValue, value, _value_version(value), _VERSION.size)


def _value_version(value: bytes) -> int:
    if len(value) < _VERSION.size:
        raise MalformedRecord(f"a value of {len(value)} bytes has no version")
    version: int = _VERSION.unpack_from(value)[0]
    if not 0 <= version <= HIGHEST_VALUE_VERSION:
        raise MalformedRecord(f"a value of version {version} is newer than the highest known, {HIGHEST_VALUE_VERSION}")
    return version
