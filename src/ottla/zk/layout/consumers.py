"""`/consumers/<group>/…`: groups of the older consumer: members, partition owners, positions.

Source: `ZkUtils`, `TopicCount` and `ZookeeperConsumerConnector` of Apache Kafka 0.8.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

from ottla.zk.layout.codec import ZnodeDataError, expected, load

SubscriptionPattern: TypeAlias = Literal["static", "white_list", "black_list"]
"""Whether a consumer lists its topics, or takes all that match a regular expression, or all that do not."""

_PATTERNS: tuple[SubscriptionPattern, ...] = get_args(SubscriptionPattern)


class ConsumerGroupZnode:
    """`/consumers/<group>`: the parent of all nodes of a group of older consumers."""

    ROOT = "/consumers"

    @staticmethod
    def path(group: str) -> str:
        """The group's node."""
        return f"/consumers/{group}"


#: A 64-bit number as text; text with more digits is not parsed.
_DECIMAL = re.compile(rb"[+-]?[0-9]{1,19}")


class ConsumerOffsetZnode:
    """`/consumers/<group>/offsets/<topic>/<partition>`: a position of the older consumer, as decimal text."""

    @staticmethod
    def group_path(group: str) -> str:
        """The parent of the topics that the group has positions in."""
        return f"{ConsumerGroupZnode.path(group)}/offsets"

    @staticmethod
    def topic_path(group: str, topic: str) -> str:
        """The parent of the group's positions in a topic."""
        return f"{ConsumerOffsetZnode.group_path(group)}/{topic}"

    @staticmethod
    def path(group: str, topic: str, partition: int) -> str:
        """The position's node."""
        return f"{ConsumerOffsetZnode.topic_path(group, topic)}/{partition}"

    @staticmethod
    def encode(offset: int) -> bytes:
        """Decimal text."""
        return b"%d" % offset

    @staticmethod
    def decode(path: str, data: bytes | None) -> int:
        """Raises `ZnodeDataError`."""
        if data is None or not _DECIMAL.fullmatch(data) or not -(2**63) <= (offset := int(data)) < 2**63:
            raise ZnodeDataError(f"{path} holds no offset: {data!r}")
        return offset


class ConsumerRegistration(NamedTuple):
    """The data with which a consumer registers: its threads by topic, or by the regular expression of its filter."""

    subscription: Mapping[str, int]
    pattern: SubscriptionPattern = "static"
    timestamp_ms: int = 0


#: Characters that Kafka's consumer escapes in filter expressions, and their escapes.
_ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r'["\\/\x00-\x1f\x7f-\x9f]')


def _json_string(text: str) -> str:
    escaped = _ESCAPED.sub(lambda match: _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}", text)
    return f'"{escaped}"'


class ConsumerIdZnode:
    """`/consumers/<group>/ids/<consumer>`, ephemeral: a live consumer of the group (version 1)."""

    @staticmethod
    def group_path(group: str) -> str:
        """The parent of the group's consumers."""
        return f"{ConsumerGroupZnode.path(group)}/ids"

    @staticmethod
    def path(group: str, consumer: str) -> str:
        """The consumer's registration."""
        return f"{ConsumerIdZnode.group_path(group)}/{consumer}"

    @staticmethod
    def encode(registration: ConsumerRegistration) -> bytes:
        """The JSON as Kafka's consumer writes it."""
        subscription = ",".join(f"{_json_string(name)}:{count}" for name, count in registration.subscription.items())
        return (
            f'{{"version":1,"subscription":{{{subscription}}},"pattern":"{registration.pattern}",'
            f'"timestamp":"{registration.timestamp_ms}"}}'
        ).encode()

    @staticmethod
    def decode(path: str, data: bytes | None) -> ConsumerRegistration:
        """Raises `ZnodeDataError`."""
        value = load(path, data)
        with expected(path, "is not a consumer's registration"):
            subscription = {str(name): int(count) for name, count in value["subscription"].items()}
            timestamp_ms = int(value.get("timestamp", 0))
            pattern = next((known for known in _PATTERNS if known == value["pattern"]), None)
        if pattern is None:
            raise ZnodeDataError(f"{path} has a subscription of an unknown kind: {value['pattern']!r}")
        return ConsumerRegistration(subscription, pattern, timestamp_ms)


class PartitionOwnerZnode:
    """`/consumers/<group>/owners/<topic>/<partition>`, ephemeral: the thread that consumes a partition.

    Its data is the thread's id, `<consumer>-<number of the thread>`. Some descriptions call the parent `owner`; Apache
    Kafka 0.8.2.2, its tools included, reads and writes `owners` only.
    """

    @staticmethod
    def group_path(group: str) -> str:
        """The parent of the topics that the group owns partitions of."""
        return f"{ConsumerGroupZnode.path(group)}/owners"

    @staticmethod
    def topic_path(group: str, topic: str) -> str:
        """The parent of a topic's owners."""
        return f"{PartitionOwnerZnode.group_path(group)}/{topic}"

    @staticmethod
    def path(group: str, topic: str, partition: int) -> str:
        """The owner of the partition."""
        return f"{PartitionOwnerZnode.topic_path(group, topic)}/{partition}"

    @staticmethod
    def encode(thread_id: str) -> bytes:
        """The thread's id as bytes."""
        return thread_id.encode()

    @staticmethod
    def decode(path: str, data: bytes | None) -> str:
        """The thread's id. Raises `ZnodeDataError`."""
        try:
            thread_id = (data or b"").decode()
        except UnicodeDecodeError as error:
            raise ZnodeDataError(f"{path} names no owner: {error}") from error
        if not thread_id:
            raise ZnodeDataError(f"{path} names no owner")
        return thread_id
