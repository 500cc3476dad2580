"""Hand-tuned coding of the messages that a broker handles by the thousand: produce, fetch, heartbeat.

A function here covers the one shape that clients send nearly always, and leaves everything else, malformed input
included, to `ottla.wire.codec`; it agrees with the codec on every input (tests hold them together). Against the
compiled codec they take 40 to 60 percent of the time. OffsetCommit is not here: most of its time goes into the
objects of its partitions, and a loop by hand was no faster than the compiled one.

Records are never copied: decoded, they are slices of the frame; encoded, they are parts of their own, which may be
anything with a `length` (a slice of a file, sent without passing through Python).
"""

from __future__ import annotations

import struct
from typing import Any

from ottla.wire import codec
from ottla.wire.apis import API, ApiKey
from ottla.wire.compile import read_uuid, records_length, string_varint, varint
from ottla.wire.errors import WireError
from ottla.wire.framing import read_varint
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.schema import ZERO_UUID

PRODUCE_FLEXIBLE_SINCE = API[ApiKey.PRODUCE].flexible_since
PRODUCE_TRANSACTIONS_SINCE = 3
PRODUCE_LOG_START_SINCE = 5
PRODUCE_RECORD_ERRORS_SINCE = 8
FETCH_TOPIC_IDS_SINCE = 13
FETCH_REPLICA_STATE_SINCE = 15
HEARTBEAT_FLEXIBLE_SINCE = API[ApiKey.HEARTBEAT].flexible_since
HEARTBEAT_INSTANCE_ID_SINCE = 3

#: Parts of bytes up to this size are joined, larger ones are sent as they are.
JOINED_BYTES = 2048
#: Topics, and partitions of a topic, from which on a response is not encoded by hand: their number has two bytes.
MANY_FETCHED = 127

# Null transactional id, acks, timeout, one topic, length of its name; then one partition, its index, size of records.
_PRODUCE_HEAD = struct.Struct(">hhiih").unpack_from
_PRODUCE_PARTITION = struct.Struct(">iii").unpack_from
_COMPACT_PRODUCE_HEAD = struct.Struct(">BhiBB").unpack_from
_COMPACT_PRODUCE_PARTITION = struct.Struct(">BiB").unpack_from
_NO_TAGS_THRICE = b"\0\0\0"

_PRODUCED_HEAD = struct.Struct(">ih").pack
_COMPACT_PRODUCED_HEAD = struct.Struct(">BB").pack
# Index, error code, offset, log append time, log start offset; then record errors, message, ..., throttle time.
_PRODUCED = struct.Struct(">iihqqqi").pack
_PRODUCED_NO_ERRORS = struct.Struct(">iihqqqihi").pack
_COMPACT_PRODUCED = struct.Struct(">BihqqqBBxxix").pack

# A fetch request for one partition of one topic id has a fixed width; before version 15 the replica id is in front.
_FETCH_ONE = struct.Struct(">iiibiiB16sBiiqiqiBBBBB")
_FETCH_NONE = struct.Struct(">iiibiiBBBB")
_REPLICA_ID = struct.Struct(">i")

# Throttle time, error, session, one topic id, one partition up to the size of its records.
_FETCHED = struct.Struct(">ihiB16sBihqqqBi").pack
# The same of several: the first four, and those of one partition.
_FETCHED_HEAD = struct.Struct(">ihiB").pack
_FETCHED_PARTITION = struct.Struct(">ihqqqBi").pack
_BYTE = struct.Struct("B").pack

_INT16 = struct.Struct(">h").unpack_from
_HEARTBEAT = struct.Struct(">ih").unpack_from
_COMPACT_HEARTBEAT = struct.Struct(">iB").unpack_from

_new: Any = object.__new__


def decode_produce(frame: memoryview, version: int, offset: int) -> ProduceRequest:
    """A produce request. Raises WireError when it is malformed.

    `records` are slices of the frame, writable if it is. Fast for one partition without a transaction.
    """
    return read_usual_produce(frame, version, offset) or codec.decode(ProduceRequest, frame, version, offset)


def read_usual_produce(frame: memoryview, version: int, offset: int) -> ProduceRequest | None:
    """A produce request for one partition without a transaction; None for any other, and for a malformed one."""
    try:
        if version >= PRODUCE_FLEXIBLE_SINCE:
            no_id, acks, timeout_ms, topics, name_length = _COMPACT_PRODUCE_HEAD(frame, offset)
            start = offset + 9
            stop = start + name_length - 1
            partitions, index, length = _COMPACT_PRODUCE_PARTITION(frame, stop)
            begin = stop + 6
            if length > 127:
                length, begin = read_varint(frame, begin - 1)
            end = begin + length - 1
            usual = no_id == 0 and topics == partitions == 2 and 0 < name_length < 128 and length > 0
            usual = usual and end + 3 == len(frame) and not (frame[end] or frame[end + 1] or frame[end + 2])
        elif version >= PRODUCE_TRANSACTIONS_SINCE:
            no_id, acks, timeout_ms, topics, name_length = _PRODUCE_HEAD(frame, offset)
            start = offset + 14
            stop = start + name_length
            partitions, index, length = _PRODUCE_PARTITION(frame, stop)
            begin = stop + 12
            end = begin + length
            usual = no_id == -1 and topics == partitions == 1 and name_length >= 0 and length >= 0 and end == len(frame)
        else:
            usual = False
        if not usual:
            return None
        name = str(frame[start:stop], "utf-8")
    except (struct.error, WireError, UnicodeDecodeError):
        return None
    partition = _new(PartitionProduceData)
    partition.index = index
    partition.records = frame[begin:end]
    partition.unknown_tagged_fields = None
    topic = _new(TopicProduceData)
    topic.name = name
    topic.partition_data = [partition]
    topic.unknown_tagged_fields = None
    request: ProduceRequest = _new(ProduceRequest)
    request.transactional_id = None
    request.acks = acks
    request.timeout_ms = timeout_ms
    request.topic_data = [topic]
    request.unknown_tagged_fields = None
    return request


def encode_produce_response(response: ProduceResponse, version: int) -> bytes:
    """The body of a produce response. Raises WireError as the codec does.

    Fast from version 5 on for one partition without a message.
    """
    if len(response.responses) == 1 and not response.node_endpoints and not response.unknown_tagged_fields:
        (topic,) = response.responses
        if len(topic.partition_responses) == 1 and not topic.unknown_tagged_fields:
            (one,) = topic.partition_responses
            leader = one.current_leader
            if (
                version >= PRODUCE_LOG_START_SINCE
                and one.error_message is None
                and not one.record_errors
                and leader.leader_id == leader.leader_epoch == -1
                and not leader.unknown_tagged_fields
                and not one.unknown_tagged_fields
            ):
                try:
                    return encode_produced(
                        topic.name,
                        one.index,
                        one.error_code,
                        one.base_offset,
                        one.log_append_time_ms,
                        one.log_start_offset,
                        version,
                        response.throttle_time_ms,
                    )
                except (struct.error, AttributeError, UnicodeEncodeError, WireError):
                    pass
    return codec.encode(response, version)


def encode_produced(
    topic: str,
    index: int,
    error_code: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    version: int,
    throttle_time_ms: int = 0,
) -> bytes:
    """The body of a produce response of version 5 or later for one partition without a message."""
    name = topic.encode()
    if version < PRODUCE_FLEXIBLE_SINCE:
        fixed = (index, error_code, base_offset, log_append_time_ms, log_start_offset)
        head = _PRODUCED_HEAD(1, len(name)) + name
        if version < PRODUCE_RECORD_ERRORS_SINCE:
            return head + _PRODUCED(1, *fixed, throttle_time_ms)
        return head + _PRODUCED_NO_ERRORS(1, *fixed, 0, -1, throttle_time_ms)
    size = len(name) + 1
    head = _COMPACT_PRODUCED_HEAD(2, size) if size < 128 else b"\2" + string_varint(size)
    return (
        head
        + name
        + _COMPACT_PRODUCED(
            2, index, error_code, base_offset, log_append_time_ms, log_start_offset, 1, 0, throttle_time_ms
        )
    )


def decode_fetch(frame: memoryview, version: int, offset: int) -> FetchRequest:
    """A fetch request. Raises WireError when it is malformed.

    Fast from version 13 on for one partition (what a session sends when one has moved on) or none (no change).
    """
    return read_usual_fetch(frame, version, offset) or codec.decode(FetchRequest, frame, version, offset)


def read_usual_fetch(frame: memoryview, version: int, offset: int) -> FetchRequest | None:
    """A fetch request of version 13 or later for one partition or none; None for any other, and for a malformed one."""
    if version < FETCH_TOPIC_IDS_SINCE:
        return None
    replica_id, at = -1, offset
    left = len(frame) - offset
    if version < FETCH_REPLICA_STATE_SINCE:
        at += 4
        left -= 4
    if left == _FETCH_ONE.size:
        wait, low, high, isolation, session, epoch, topics, topic_id, *one = _FETCH_ONE.unpack_from(frame, at)
        partitions, index, leader_epoch, fetch_offset, last_epoch, log_start, limit, *ends = one
        usual = topics == partitions == 2 and ends == [0, 0, 1, 1, 0]
    elif left == _FETCH_NONE.size:
        wait, low, high, isolation, session, epoch, *ends = _FETCH_NONE.unpack_from(frame, at)
        usual = ends == [1, 1, 1, 0]
    else:
        usual = False
    if not usual:
        return None
    if at != offset:
        (replica_id,) = _REPLICA_ID.unpack_from(frame, offset)
    request: FetchRequest = _new(FetchRequest)
    request.cluster_id = None
    request.replica_id = replica_id
    state = request.replica_state = _new(ReplicaState)
    state.replica_id = state.replica_epoch = -1
    state.unknown_tagged_fields = None
    request.max_wait_ms = wait
    request.min_bytes = low
    request.max_bytes = high
    request.isolation_level = isolation
    request.session_id = session
    request.session_epoch = epoch
    request.forgotten_topics_data = []
    request.rack_id = ""
    request.unknown_tagged_fields = None
    if left == _FETCH_NONE.size:
        request.topics = []
        return request
    partition = _new(FetchPartition)
    partition.partition = index
    partition.current_leader_epoch = leader_epoch
    partition.fetch_offset = fetch_offset
    partition.last_fetched_epoch = last_epoch
    partition.log_start_offset = log_start
    partition.partition_max_bytes = limit
    partition.replica_directory_id = ZERO_UUID
    partition.unknown_tagged_fields = None
    topic = _new(FetchTopic)
    topic.topic = ""
    topic.topic_id = read_uuid(topic_id)
    topic.partitions = [partition]
    topic.unknown_tagged_fields = None
    request.topics = [topic]
    return request


def encode_fetch_response(response: FetchResponse, version: int) -> tuple[list[Any], int]:
    """The body of a fetch response as parts, the records being parts of their own, and its length in bytes.

    Records may be bytes, a memoryview or anything with a `length` in bytes; small bytes are joined with their
    surroundings. Raises WireError as the codec does. Fast from version 13 on for one partition, and for a few.
    """
    if version >= FETCH_TOPIC_IDS_SINCE:
        usual = _encode_fetched(response) if len(response.responses) == 1 else None
        if usual is None and type(response.responses) is list and len(response.responses) < MANY_FETCHED:
            usual = _encode_several(response)
        if usual is not None:
            return usual
    total = 0
    parts: list[Any] = []
    small: list[bytes] = []
    for part in codec.encode_parts(response, version):
        total += records_length(part)
        if type(part) is bytes and len(part) <= JOINED_BYTES:
            small.append(part)
        else:
            if small:
                parts.append(b"".join(small))
                small = []
            parts.append(part)
    if small:
        parts.append(b"".join(small))
    return parts, total


def _is_usual(one: Any) -> bool:
    """Whether a partition's answer has nothing that is seldom there."""
    diverging, leader, snapshot = one.diverging_epoch, one.current_leader, one.snapshot_id
    return not (
        one.records is None
        or one.aborted_transactions
        or not (diverging.epoch == diverging.end_offset == leader.leader_id == leader.leader_epoch == -1)
        or not (snapshot.end_offset == snapshot.epoch == -1)
        or diverging.unknown_tagged_fields
        or leader.unknown_tagged_fields
        or snapshot.unknown_tagged_fields
        or one.unknown_tagged_fields
    )


def _encode_several(response: FetchResponse) -> tuple[list[Any], int] | None:
    """The parts of a response with a few usual partitions, as followers get them; None for any other."""
    if response.node_endpoints or response.unknown_tagged_fields:
        return None
    parts: list[Any] = []
    total = 0
    try:
        small = [
            _FETCHED_HEAD(
                response.throttle_time_ms, response.error_code, response.session_id, len(response.responses) + 1
            )
        ]
        for topic in response.responses:
            if (
                type(topic.partitions) is not list
                or len(topic.partitions) >= MANY_FETCHED
                or topic.unknown_tagged_fields
            ):
                return None
            small.append(topic.topic_id.bytes)
            small.append(_BYTE(len(topic.partitions) + 1))
            for one in topic.partitions:
                if not _is_usual(one):
                    return None
                records = one.records
                length = records_length(records)
                small.append(
                    _FETCHED_PARTITION(
                        one.partition_index,
                        one.error_code,
                        one.high_watermark,
                        one.last_stable_offset,
                        one.log_start_offset,
                        0 if one.aborted_transactions is None else 1,
                        one.preferred_read_replica,
                    )
                )
                small.append(varint(length + 1))
                if type(records) is bytes and length <= JOINED_BYTES:
                    small.append(records)
                else:
                    head = b"".join(small)
                    parts += (head, records)
                    total += len(head) + length
                    small = []
                small.append(b"\0")
            small.append(b"\0")
    except (struct.error, AttributeError):
        return None
    small.append(b"\0")
    tail = b"".join(small)
    parts.append(tail)
    return parts, total + len(tail)


def _encode_fetched(response: FetchResponse) -> tuple[list[Any], int] | None:
    """The parts of a response with the usual single partition, None for any other.

    They are the same in all versions from 13 on: what later ones added is tagged and not usual.
    """
    (topic,) = response.responses
    if len(topic.partitions) != 1:
        return None
    (one,) = topic.partitions
    records = one.records
    if not _is_usual(one) or response.node_endpoints or topic.unknown_tagged_fields or response.unknown_tagged_fields:
        return None
    length = records_length(records)
    counted = varint(length + 1)
    try:
        head = _FETCHED(
            response.throttle_time_ms,
            response.error_code,
            response.session_id,
            2,
            topic.topic_id.bytes,
            2,
            one.partition_index,
            one.error_code,
            one.high_watermark,
            one.last_stable_offset,
            one.log_start_offset,
            0 if one.aborted_transactions is None else 1,
            one.preferred_read_replica,
        )
    except (struct.error, AttributeError):
        return None
    total = len(head) + len(counted) + length + len(_NO_TAGS_THRICE)
    if type(records) is bytes and length <= JOINED_BYTES:
        return [b"".join((head, counted, records, _NO_TAGS_THRICE))], total
    return [head + counted, records, _NO_TAGS_THRICE], total


def decode_heartbeat(frame: memoryview, version: int, offset: int) -> HeartbeatRequest:
    """A heartbeat request. Raises WireError when it is malformed. Fast for dynamic members."""
    data = bytes(frame[offset:])
    try:
        if version >= HEARTBEAT_FLEXIBLE_SINCE:
            start = data[0]
            generation_id, length = _COMPACT_HEARTBEAT(data, start)
            begin = start + 5
            end = begin + length - 1
            usual = 0 < start < 128 and 0 < length < 128 and data[end:] == b"\0\0"
            group_id = data[1:start]
        else:
            (length,) = _INT16(data, 0)
            start = 2 + length
            group_id = data[2:start]
            generation_id, length = _HEARTBEAT(data, start)
            begin = start + 6
            end = begin + length
            rest = b"\xff\xff" if version >= HEARTBEAT_INSTANCE_ID_SINCE else b""
            usual = start > 1 and length >= 0 and end <= len(data) and data[end:] == rest
        if not usual:
            return codec.decode(HeartbeatRequest, data, version)
        request: HeartbeatRequest = _new(HeartbeatRequest)
        request.group_id = group_id.decode()
        request.member_id = data[begin:end].decode()
    except (struct.error, IndexError, UnicodeDecodeError):
        return codec.decode(HeartbeatRequest, data, version)
    request.generation_id = generation_id
    request.group_instance_id = None
    request.unknown_tagged_fields = None
    return request
