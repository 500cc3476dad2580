"""The opaque bytes that consumers put into JoinGroup and SyncGroup: subscriptions and assignments.

The bytes start with the version as an int16 (not part of these declarations). Of a newer version, only the fields known
here are read: use `ottla.wire.codec.decode_prefix` with the highest version below.

Versions: 1 owned partitions (KIP-429); 2 generation (KIP-792); 3 rack (KIP-881).
"""

from __future__ import annotations

from ottla.wire.schema import BYTES, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class ConsumerProtocolSubscriptionTopicPartition(Struct):
    """Partitions of one topic that the member owns."""

    topic: str = field(STRING, since=1)
    partitions: list[int] = field(array(INT32), since=1)


@message(versions=(0, 3))
class ConsumerProtocolSubscription(Message):
    """A member's subscription, and the partitions that it owns."""

    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(BYTES, nullable_since=0, default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field(
        array(ConsumerProtocolSubscriptionTopicPartition), since=1, ignorable=True
    )
    generation_id: int = field(INT32, since=2, default=-1, ignorable=True)
    rack_id: str | None = field(STRING, since=3, nullable_since=3, default=None, ignorable=True)


@struct
class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@message(versions=(0, 3))
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = field(
        array(ConsumerProtocolAssignmentTopicPartition)
    )
    user_data: bytes | None = field(BYTES, nullable_since=0, default=None)
