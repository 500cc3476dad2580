"""The sticky assignor: eager; members state in their user data what they owned.

The user data is an array of topics with their partitions and, since version 1, the generation (int32). Which of the
two it is shows when it is read: what ends before the generation is the older one.

Source: Apache Kafka 3.9, `org.apache.kafka.clients.consumer.StickyAssignor`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ottla.assign.assignor import GroupMetadata
from ottla.assign.consumer_protocol import Assignment, Partitions, Subscription
from ottla.assign.java_order import computed_map_order
from ottla.assign.sticky_base import AbstractStickyAssignor
from ottla.assign.sticky_partitions import NO_GENERATION, MemberData

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_BYTES = _INT32.size


class StickyAssignor(AbstractStickyAssignor):
    """Wire name "sticky"; all members revoke all they have before they join, and get most of it again."""

    name = "sticky"

    def __init__(self) -> None:
        self._had: Partitions | None = None
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """The member's last assignment and its generation; None before the first assignment."""
        return None if self._had is None else encode_user_data(self._had, self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Remember what this member got."""
        self._had = assignment.partitions
        self._generation = metadata.generation_id

    def member_data(self, subscription: Subscription) -> MemberData:
        """The content of the member's user data; no partitions where there is none."""
        if not subscription.user_data:
            return MemberData({}, None)
        return decode_user_data(subscription.user_data)


def encode_user_data(had: Partitions, generation: int) -> bytes:
    """User data of version 1; topics in the order in which Java writes them."""
    parts = [_INT32.pack(len(had))]
    for topic in computed_map_order(had):
        name, indexes = topic.encode(), had[topic]
        parts += (_INT16.pack(len(name)), name, struct.pack(f">{len(indexes) + 1}i", len(indexes), *indexes))
    parts.append(_INT32.pack(generation))
    return b"".join(parts)


def decode_user_data(data: bytes) -> MemberData:
    """Read user data of version 0 or 1; what cannot be read is as if the member had nothing, of generation -1."""
    try:
        partitions, end = _decode_partitions(data)
    except (struct.error, ValueError):
        return MemberData({}, NO_GENERATION)
    if len(data) - end < _INT32_BYTES:
        return MemberData(partitions, None)
    return MemberData(partitions, _INT32.unpack_from(data, end)[0])


def _decode_partitions(data: bytes) -> tuple[Partitions, int]:
    """The partitions and where they end; ValueError or struct.error where that is beyond the data."""
    int16, int32, size = _INT16.unpack_from, _INT32.unpack_from, len(data)
    partitions: Partitions = {}
    topics = int32(data)[0]
    at = _INT32_BYTES
    if not 0 <= topics <= size:
        raise ValueError(f"{topics} topics in {size} bytes")
    for _ in range(topics):
        begin = at + _INT16.size
        end = begin + int16(data, at)[0]
        if end < begin or end > size:
            raise ValueError(f"a name that ends at {end} of {size} bytes")
        topic = data[begin:end].decode(errors="replace")
        count = int32(data, end)[0]
        at = end + _INT32_BYTES
        if not 0 <= count <= (size - at) // _INT32_BYTES:
            raise ValueError(f"{count} partitions in {size - at} bytes")
        indexes: tuple[int, ...] = int32(data, at) if count == 1 else struct.unpack_from(f">{count}i", data, at)
        partitions[topic] = partitions[topic] + indexes if topic in partitions else indexes
        at += count * _INT32_BYTES
    return partitions, at
