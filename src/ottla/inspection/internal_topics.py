"""The records of internal topics as fields: committed offsets, groups, transactions, evidence of rebalances.

Sources: `group-coordinator/src/main/resources/common/message/*.json` and
`transaction-coordinator/src/main/resources/common/message/TransactionLog{Key,Value}.json` of Apache Kafka.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Final

from ottla.assign.consumer_protocol import PROTOCOL_TYPE, Malformed, decode_assignment, decode_subscription
from ottla.groups.evidence import EVIDENCE_TOPIC
from ottla.groups.records import (
    GroupMetadataMember,
    GroupMetadataValue,
    GroupRecord,
    MalformedRecord,
    OffsetRecord,
    UnknownRecord,
    decode_record,
)
from ottla.inspection.texts import Decoder
from ottla.wire.codec import WireError, decode
from ottla.wire.schema import INT8, INT16, INT32, INT64, STRING, Message, Struct, array, field, message
from ottla.wire.schema import struct as wire_struct

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
_VERSION: Final = struct.Struct(">h")

#: Meaning of the key versions above 2: records of the newer group protocols.
_OTHER_KEYS: Final = {
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
}
_TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

_BY_TOPIC: Final = {
    OFFSETS_TOPIC: Decoder.OFFSETS,
    TRANSACTIONS_TOPIC: Decoder.TRANSACTIONS,
    EVIDENCE_TOPIC: Decoder.REBALANCES,
}


def decoder_for(topic: str | None) -> Decoder:
    """The decoder of the topic's own format, NONE for user topics."""
    return _BY_TOPIC.get(topic or "", Decoder.NONE)


@message(versions=(0, 0))
class TransactionLogKey(Message):
    """The transactional id."""

    transactional_id: str = field(STRING)


@wire_struct
class TransactionPartitions(Struct):
    """Partitions of a topic in the transaction."""

    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


@message(versions=(0, 1), flexible_since=1)
class TransactionLogValue(Message):
    """The state of a transactional id."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[TransactionPartitions] | None = field(array(TransactionPartitions), nullable_since=0)
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)


def decode_internal(decoder: Decoder, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """The fields of a record; only `problem` if it cannot be decoded."""
    try:
        return _DECODERS[decoder](key, value)
    except (MalformedRecord, WireError, struct.error, ValueError, RecursionError) as error:
        return {"problem": str(error) or type(error).__name__}


def _offsets(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    record = decode_record(key, value)
    if isinstance(record, UnknownRecord):
        return {"kind": _OTHER_KEYS.get(record.key_version, "unknown"), "key_version": record.key_version}
    if isinstance(record, OffsetRecord):
        fields: dict[str, Any] = {"kind": "offset", "group": record.group_id, "topic": record.topic}
        fields["partition"] = record.partition
        committed = record.value
        if committed is None:
            return fields | {"tombstone": True}
        fields |= {"committed_offset": committed.offset, "leader_epoch": committed.leader_epoch}
        fields |= {"metadata": committed.metadata, "commit_timestamp": committed.commit_timestamp_ms}
        if committed.expire_timestamp_ms >= 0:
            fields["expire_timestamp"] = committed.expire_timestamp_ms
        return fields
    return _group(record)


def _group(record: GroupRecord) -> dict[str, Any]:
    value = record.value
    if value is None:
        return {"kind": "group", "group": record.group_id, "tombstone": True}
    return {
        "kind": "group",
        "group": record.group_id,
        "protocol_type": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "state_timestamp": value.current_state_timestamp,
        "members": [_member(value, member) for member in value.members],
    }


def _member(group: GroupMetadataValue, member: GroupMetadataMember) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout,
        "session_timeout_ms": member.session_timeout,
    }
    subscription, assignment = bytes(member.subscription), bytes(member.assignment)
    if group.protocol_type == PROTOCOL_TYPE:
        wanted = decode_subscription(subscription)
        got = decode_assignment(assignment)
        if not isinstance(wanted, Malformed) and not isinstance(got, Malformed):
            partitions = {topic: list(numbers) for topic, numbers in got.partitions.items()}
            return fields | {"topics": list(wanted.topics), "assigned": partitions}
    return fields | {"subscription_hex": subscription.hex(), "assignment_hex": assignment.hex()}


def _transactions(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    if key is None or len(key) < _VERSION.size:
        raise MalformedRecord("a record of the transactions topic has no key")
    (version,) = _VERSION.unpack_from(key)
    if version:
        return {"kind": "unknown", "key_version": version}
    transactional_id = decode(TransactionLogKey, key, version, _VERSION.size).transactional_id
    fields: dict[str, Any] = {"kind": "transaction", "transactional_id": transactional_id}
    if value is None:
        return fields | {"tombstone": True}
    (version,) = _VERSION.unpack_from(value)
    read = decode(TransactionLogValue, value, version, _VERSION.size)
    status = read.transaction_status
    known = 0 <= status < len(_TRANSACTION_STATES)
    return fields | {
        "producer_id": read.producer_id,
        "producer_epoch": read.producer_epoch,
        "state": _TRANSACTION_STATES[status] if known else status,
        "timeout_ms": read.transaction_timeout_ms,
        "partitions": {each.topic: list(each.partition_ids) for each in read.transaction_partitions or ()},
        "last_update_timestamp": read.transaction_last_update_timestamp_ms,
        "start_timestamp": read.transaction_start_timestamp_ms,
    }


def _rebalances(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    fields = {"kind": "rebalance", "group": None if key is None else key.decode("utf-8", "replace")}
    return fields | {"evidence": None if value is None else json.loads(value)}


_DECODERS: Final[dict[Decoder, Callable[[bytes | None, bytes | None], dict[str, Any]]]] = {
    Decoder.OFFSETS: _offsets,
    Decoder.TRANSACTIONS: _transactions,
    Decoder.REBALANCES: _rebalances,
}
