"""The records of `__consumer_offsets`, byte for byte Apache Kafka's.

Key and value begin with a version as int16. Key versions 0 and 1 are a committed offset, 2 is a group's metadata; other
keys (those of the newer group protocols) are ignored. A record without value is a tombstone. Values are written in the
version that Apache Kafka 3.9 writes, the highest that is not flexible (3; 1 for an offset with its own expiry time),
and read in all.

Source: `group-coordinator/src/main/resources/common/message/{OffsetCommit,GroupMetadata}{Key,Value}.json`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from ottla.wire.codec import WireError, decode, encode
from ottla.wire.schema import BYTES, INT32, INT64, STRING, Message, Struct, array, field, message
from ottla.wire.schema import struct as wire_struct

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
HIGHEST_VALUE_VERSION = 4

NO_EXPIRY = -1

_VERSION = struct.Struct(">h")
#: The parts of key version 1 and value version 3 of an offset, which nearly all records use, coded inline.
_KEY_HEAD = struct.Struct(">hh")
_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_VALUE_HEAD = struct.Struct(">hqih")
_TIMESTAMP = struct.Struct(">q")


@message(versions=(0, 1))
class OffsetCommitKey(Message):
    """Group and partition of a committed offset."""

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
    """The group id."""

    group: str = field(STRING)


@wire_struct
class GroupMetadataMember(Struct):
    """A member of a generation, with its subscription and assignment."""

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


class StoredOffset(NamedTuple):
    """A committed offset. Times are milliseconds since the Unix epoch, `expire_timestamp_ms` is -1 without."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """An offset committed or, with `value` None, deleted."""

    group_id: str
    topic: str
    partition: int
    value: StoredOffset | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A generation of a group or, with `value` None, the end of the group."""

    group_id: str
    value: GroupMetadataValue | None


LogRecord = OffsetRecord | GroupRecord


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of an unknown kind, with the version of its key; it is skipped."""

    key_version: int


class MalformedRecord(ValueError):
    """A record of a known kind that cannot be parsed; the message says which."""


def encode_record(record: LogRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they are appended."""
    if isinstance(record, OffsetRecord):
        return (
            offset_key(record.group_id, record.topic, record.partition),
            None if record.value is None else offset_value(record.value),
        )
    return group_key(record.group_id), None if record.value is None else group_value(record.value)


def decode_record(key: bytes | None, value: bytes | None) -> LogRecord | UnknownRecord:
    """Decode a record of the log; raises MalformedRecord if it cannot be parsed."""
    if key is None or len(key) < _VERSION.size:
        raise MalformedRecord("a record of the offsets topic has no key")
    version: int = _VERSION.unpack_from(key)[0]
    try:
        if version in (0, OFFSET_KEY_VERSION):
            group_id, topic, partition = _decode_offset_key(key)
            return OffsetRecord(group_id, topic, partition, None if value is None else _decode_offset_value(value))
        if version == GROUP_KEY_VERSION:
            group_of = decode(GroupMetadataKey, key, version, _VERSION.size)
            return GroupRecord(group_of.group, None if value is None else _decode_group_value(value))
    except WireError as error:
        raise MalformedRecord(str(error)) from error
    return UnknownRecord(version)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Key of a committed offset."""
    group, name = group_id.encode(), topic.encode()
    head = _KEY_HEAD.pack(OFFSET_KEY_VERSION, len(group))
    return head + group + _LENGTH.pack(len(name)) + name + _PARTITION.pack(partition)


def offset_value(committed: StoredOffset) -> bytes:
    """Value of a committed offset."""
    if committed.expire_timestamp_ms == NO_EXPIRY:
        metadata = committed.metadata.encode()
        head = _VALUE_HEAD.pack(OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch, len(metadata))
        return head + metadata + _TIMESTAMP.pack(committed.commit_timestamp_ms)
    body = OffsetCommitValue(
        offset=committed.offset,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    return _VERSION.pack(OFFSET_VALUE_VERSION_WITH_EXPIRY) + encode(body, OFFSET_VALUE_VERSION_WITH_EXPIRY)


def group_key(group_id: str) -> bytes:
    """Key of a group's metadata."""
    return _VERSION.pack(GROUP_KEY_VERSION) + encode(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION)


def group_value(value: GroupMetadataValue) -> bytes:
    """Value of a group's metadata."""
    return _VERSION.pack(GROUP_VALUE_VERSION) + encode(value, GROUP_VALUE_VERSION)


def _decode_offset_key(key: bytes) -> tuple[str, str, int]:
    try:
        group_end = _KEY_HEAD.size + _KEY_HEAD.unpack_from(key)[1]
        topic_at = group_end + _LENGTH.size
        topic_end = topic_at + _LENGTH.unpack_from(key, group_end)[0]
        if _KEY_HEAD.size <= group_end < topic_at <= topic_end == len(key) - _PARTITION.size:
            group_id, topic = key[_KEY_HEAD.size : group_end].decode(), key[topic_at:topic_end].decode()
            return group_id, topic, _PARTITION.unpack_from(key, topic_end)[0]
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRecord(f"the key of a committed offset cannot be read: {error}") from error
    raise MalformedRecord(f"the lengths in the key of a committed offset do not fit its {len(key)} bytes")


def _decode_offset_value(value: bytes) -> StoredOffset:
    version = _value_version(value)
    if version == OFFSET_VALUE_VERSION:
        return _decode_offset_value_today(value)
    read = decode(OffsetCommitValue, value, version, _VERSION.size)
    return StoredOffset(read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp)


def _decode_offset_value_today(value: bytes) -> StoredOffset:
    try:
        _, offset, leader_epoch, length = _VALUE_HEAD.unpack_from(value)
        end = _VALUE_HEAD.size + length
        if _VALUE_HEAD.size <= end == len(value) - _TIMESTAMP.size:
            metadata = value[_VALUE_HEAD.size : end].decode()
            return StoredOffset(offset, leader_epoch, metadata, _TIMESTAMP.unpack_from(value, end)[0])
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRecord(f"a committed offset cannot be read: {error}") from error
    raise MalformedRecord(f"the length in a committed offset does not fit its {len(value)} bytes")


def _decode_group_value(value: bytes) -> GroupMetadataValue:
    return decode(GroupMetadataValue, value, _value_version(value), _VERSION.size)


def _value_version(value: bytes) -> int:
    if len(value) < _VERSION.size:
        raise MalformedRecord(f"a value of {len(value)} bytes has no version")
    version: int = _VERSION.unpack_from(value)[0]
    if not 0 <= version <= HIGHEST_VALUE_VERSION:
        raise MalformedRecord(f"a value of version {version} is newer than the highest known, {HIGHEST_VALUE_VERSION}")
    return version
