"""Records of MirrorMaker 2's own topics: OffsetSync, Checkpoint and Heartbeat of Apache Kafka's connect-mirror.

A text is its length in two bytes and its UTF-8 bytes, a number is big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ottla.client.model import TopicPartition

VERSION = 0
"""Of the values of checkpoints and heartbeats."""

_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_OFFSETS = struct.Struct(">qq")
_VERSIONED_OFFSETS = struct.Struct(">hqq")
_BEAT = struct.Struct(">hq")


class MirrorRecordError(ValueError):
    """A record that is none of MirrorMaker 2's."""


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """The record at `upstream_offset` of a partition of the source was written at `downstream_offset` of the target."""

    partition: TopicPartition
    upstream_offset: int
    downstream_offset: int

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _text(self.partition.topic) + _PARTITION.pack(self.partition.partition)

    @property
    def value(self) -> bytes:
        """The record's value."""
        return _OFFSETS.pack(self.upstream_offset, self.downstream_offset)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> OffsetSync:
        """Out of a record. Raises MirrorRecordError."""
        texts, partition = _decode_key(key, 1)
        upstream, downstream = _unpacked(_OFFSETS, value)
        return cls(TopicPartition(texts[0], partition), upstream, downstream)


@dataclass(frozen=True, slots=True)
class GroupCheckpoint:
    """A group's committed offset translated: `partition` is the target's."""

    group: str
    partition: TopicPartition
    upstream_offset: int
    downstream_offset: int
    metadata: str

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _text(self.group) + _text(self.partition.topic) + _PARTITION.pack(self.partition.partition)

    @property
    def value(self) -> bytes:
        """The record's value."""
        return _VERSIONED_OFFSETS.pack(VERSION, self.upstream_offset, self.downstream_offset) + _text(self.metadata)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> GroupCheckpoint:
        """Out of a record. Raises MirrorRecordError."""
        (group, topic), partition = _decode_key(key, 2)
        size = _VERSIONED_OFFSETS.size
        version, upstream, downstream = _unpacked(_VERSIONED_OFFSETS, None if value is None else value[:size])
        if version != VERSION:
            raise MirrorRecordError(f"a checkpoint of version {version}; known is {VERSION}")
        metadata, _ = _read_text(value or b"", size)
        return cls(group, TopicPartition(topic, partition), upstream, downstream, metadata)


@dataclass(frozen=True, slots=True)
class MirrorHeartbeat:
    """The mirror from `source_alias` to `target_alias` ran at `timestamp_ms`."""

    source_alias: str
    target_alias: str
    timestamp_ms: int

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _text(self.source_alias) + _text(self.target_alias)

    @property
    def value(self) -> bytes:
        """The record's value."""
        return _BEAT.pack(VERSION, self.timestamp_ms)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    try:
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size < 0 or at + size > len(data):
            raise MirrorRecordError(f"a text of {size} bytes in {len(data) - at}")
        return data[at : at + size].decode(), at + size
    except (struct.error, UnicodeDecodeError) as problem:
        raise MirrorRecordError(f"no text at byte {at}: {problem}") from None


def _decode_key(key: bytes | None, texts: int) -> tuple[list[str], int]:
    found, at = [], 0
    for _ in range(texts):
        text, at = _read_text(key or b"", at)
        found.append(text)
    (partition,) = _unpacked(_PARTITION, (key or b"")[at:])
    return found, partition


def _unpacked(form: struct.Struct, data: bytes | None) -> tuple[int, ...]:
    try:
        return form.unpack(data or b"")
    except struct.error as problem:
        raise MirrorRecordError(str(problem)) from None
