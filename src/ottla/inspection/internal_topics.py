"""The records of internal topics as fields: committed offsets, groups, transactions, evidence of rebalances.

They are declared in `ottla.groups.records` and `ottla.txn.records`.
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
from ottla.txn.records import UnreadableTransaction
from ottla.txn.records import decode_record as decode_transaction
from ottla.wire.codec import WireError

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"

#: Meaning of the key versions above 2: records of the newer group protocols.
_OTHER_KEYS: Final = {
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
}
_BY_TOPIC: Final = {
    OFFSETS_TOPIC: Decoder.OFFSETS,
    TRANSACTIONS_TOPIC: Decoder.TRANSACTIONS,
    EVIDENCE_TOPIC: Decoder.REBALANCES,
}


def decoder_for(topic: str | None) -> Decoder:
    """The decoder of the topic's own format, NONE for user topics."""
    return _BY_TOPIC.get(topic or "", Decoder.NONE)


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
    try:
        record = decode_transaction(key, value)
    except UnreadableTransaction as error:
        if error.unknown_key_version is None:
            raise
        return {"kind": "unknown", "key_version": error.unknown_key_version}
    fields: dict[str, Any] = {"kind": "transaction", "transactional_id": record.transactional_id}
    metadata = record.metadata
    if metadata is None:
        return fields | {"tombstone": True}
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        partitions.setdefault(topic, []).append(partition)
    return fields | {
        "producer_id": metadata.producer_id,
        "producer_epoch": metadata.producer_epoch,
        "state": metadata.state.value,
        "timeout_ms": metadata.timeout_ms,
        "partitions": partitions,
        "last_update_timestamp": metadata.last_update_ms,
        "start_timestamp": metadata.start_ms,
    }


def _rebalances(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    fields = {"kind": "rebalance", "group": None if key is None else key.decode("utf-8", "replace")}
    return fields | {"evidence": None if value is None else json.loads(value)}


_DECODERS: Final[dict[Decoder, Callable[[bytes | None, bytes | None], dict[str, Any]]]] = {
    Decoder.OFFSETS: _offsets,
    Decoder.TRANSACTIONS: _transactions,
    Decoder.REBALANCES: _rebalances,
}
