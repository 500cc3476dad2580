"""The opaque bytes that consumers put into JoinGroup and SyncGroup, read and written.

The bytes begin with an int16, the version; the fields follow (`ottla.wire.messages.consumer_protocol`). Of a newer
version, only the fields known here are read. Some older clients announce version 1 and leave out its fields: bytes that
end exactly behind the fields of version 0 are taken as that.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ottla.assign.java_order import text_order
from ottla.wire.codec import WireError, decode_prefix, encode
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

PROTOCOL_TYPE = "consumer"
"""The protocol type of groups whose members are consumers; others (Connect, Schema Registry) have their own bytes."""

HIGHEST_VERSION = 3
NO_GENERATION = -1

_VERSION = _INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ONE = struct.Struct(">ii")
"""Single-partition array, the common case with many topics."""
_NULL = _INT32.pack(-1)

Partitions = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Malformed:
    """Malformed bytes; `message` says what is wrong."""

    message: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's subscription and what it owns; `generation_id` is -1 and `rack_id` None in versions without them."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None
    owned_partitions: Partitions
    generation_id: int
    rack_id: str | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's assignment."""

    version: int
    partitions: Partitions
    user_data: bytes | None


def decode_subscription(data: bytes) -> Subscription | Malformed:
    """Decode a member's subscription; Malformed where it cannot be read."""
    version = _version(data)
    if isinstance(version, Malformed):
        return version
    try:
        read, _ = decode_prefix(ConsumerProtocolSubscription, data, min(version, HIGHEST_VERSION), _VERSION.size)
    except WireError as error:
        try:
            read, end = decode_prefix(ConsumerProtocolSubscription, data, 0, _VERSION.size)
        except WireError:
            return Malformed(str(error))
        if end != len(data):
            return Malformed(str(error))
    owned: Partitions = {}
    for entry in read.owned_partitions:
        owned[entry.topic] = owned.get(entry.topic, ()) + tuple(entry.partitions)
    generation_id = max(read.generation_id, NO_GENERATION)
    return Subscription(version, tuple(read.topics), read.user_data, owned, generation_id, read.rack_id or None)


def decode_assignment(data: bytes) -> Assignment | Malformed:
    """Decode a member's assignment; no bytes mean no partitions."""
    if not data:
        return Assignment(0, {}, None)
    version = _version(data)
    if isinstance(version, Malformed):
        return version
    try:
        read, _ = decode_prefix(ConsumerProtocolAssignment, data, min(version, HIGHEST_VERSION), _VERSION.size)
    except WireError as error:
        return Malformed(str(error))
    partitions: Partitions = {}
    for entry in read.assigned_partitions:
        partitions[entry.topic] = partitions.get(entry.topic, ()) + tuple(entry.partitions)
    return Assignment(version, partitions, read.user_data)


def encode_subscription(
    topics: Iterable[str],
    user_data: bytes | None = None,
    version: int = 0,
    *,
    owned_partitions: Mapping[str, Collection[int]] | None = None,
    generation_id: int = NO_GENERATION,
    rack_id: str | None = None,
) -> bytes:
    """A subscription; what its version has no field for is left out.

    Topics and partitions are sorted, and owned topics without partitions left out, as by Java's consumer: who joins
    again with the same subscription sends the same bytes; others would begin a rebalance.
    """
    owned = owned_partitions or {}
    body = ConsumerProtocolSubscription(
        topics=sorted(topics, key=text_order),
        user_data=user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=sorted(owned[topic]))
            for topic in sorted(owned, key=text_order)
            if owned[topic]
        ],
        generation_id=generation_id,
        rack_id=rack_id,
    )
    return _VERSION.pack(version) + encode(body, version)


def encode_assignment(
    partitions: Mapping[str, Collection[int]], user_data: bytes | None = None, version: int = 0
) -> bytes:
    """An assignment of `partitions`, by topic, in their order."""
    return _assignment_bytes(partitions, user_data, version, {})


def encode_assignments(assignments: Mapping[str, Assignment]) -> dict[str, bytes]:
    """A whole group's assignments, by member id; faster than one by one, as members have topics in common."""
    names: dict[str, bytes] = {}
    return {
        member_id: _assignment_bytes(one.partitions, one.user_data, one.version, names)
        for member_id, one in assignments.items()
    }


def _assignment_bytes(
    partitions: Mapping[str, Collection[int]], user_data: bytes | None, version: int, names: dict[str, bytes]
) -> bytes:
    """Write as the generated codec does, several times as fast: a leader has to write a million partitions.

    `names` holds topics that were written before. Input that cannot be written is left to that codec, which says why.
    """
    try:
        parts = [_VERSION.pack(version), _INT32.pack(len(partitions))]
        for topic, indexes in partitions.items():
            if topic not in names:
                name = topic.encode()
                names[topic] = _INT16.pack(len(name)) + name
            parts.append(names[topic])
            count = len(indexes)
            parts.append(_ONE.pack(1, *indexes) if count == 1 else struct.pack(f">{count + 1}i", count, *indexes))
        parts += (_NULL,) if user_data is None else (_INT32.pack(len(user_data)), user_data)
        if 0 <= version <= HIGHEST_VERSION:
            return b"".join(parts)
    except (struct.error, UnicodeEncodeError):
        pass
    entries = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(indexes))
        for topic, indexes in partitions.items()
    ]
    return _VERSION.pack(version) + encode(
        ConsumerProtocolAssignment(assigned_partitions=entries, user_data=user_data), version
    )


def _version(data: bytes) -> int | Malformed:
    if len(data) < _VERSION.size:
        return Malformed(f"{len(data)} bytes are too few to hold the version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        return Malformed(f"version {version} does not exist")
    return version
