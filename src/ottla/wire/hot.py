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
from ottla.wire.compile import read_uuid, records_length, varint
from ottla.wire.errors import WireError
from ottla.wire.framing import encode_response_frame, read_varint, response_header_size
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
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

# Null transactional id, acks, timeout, one topic, length of its name; then one partition, its index, size of records.
_PRODUCE_HEAD = struct.Struct(">hhiih").unpack_from
_PRODUCE_PARTITION = struct.Struct(">iii").unpack_from
_COMPACT_PRODUCE_HEAD = struct.Struct(">BhiBB").unpack_from
_COMPACT_PRODUCE_PARTITION = struct.Struct(">BiB").unpack_from
_NO_TAGS_THRICE = b"\0\0\0"

# Index, error code, offset, log append time, log start offset; then record errors, message, ..., throttle time.
_PRODUCED = struct.Struct(">iihqqqi").pack
_PRODUCED_NO_ERRORS = struct.Struct(">iihqqqihi").pack
_COMPACT_PRODUCED = struct.Struct(">BihqqqBBxxix").pack
_PRODUCE_RESPONSE_HEAD = struct.Struct(">iiih").pack
_COMPACT_PRODUCE_RESPONSE_HEAD = struct.Struct(">iixBB").pack

# A fetch request for one partition of one topic id has a fixed width; before version 15 the replica id is in front.
_FETCH_ONE = struct.Struct(">iiibiiB16sBiiqiqiBBBBB")
_FETCH_NONE = struct.Struct(">iiibiiBBBB")
_REPLICA_ID = struct.Struct(">i")

# Size, header, throttle time, error, session, one topic id, one partition up to the size of its records.
_FETCHED_LAYOUT = struct.Struct(">iixihiB16sBihqqqBi")
_FETCHED = _FETCHED_LAYOUT.pack
_FETCHED_BYTES = _FETCHED_LAYOUT.size - 4 + len(_NO_TAGS_THRICE)

_CORRELATION_ID_BYTES = 4
_SIZE_AND_ID = struct.Struct(">ii").pack
_INT16 = struct.Struct(">h").unpack_from
_HEARTBEAT = struct.Struct(">ih").unpack_from
_COMPACT_HEARTBEAT = struct.Struct(">iB").unpack_from
_HEARTBEAT_RESPONSE_V0 = struct.Struct(">iih").pack
_HEARTBEAT_RESPONSE = struct.Struct(">iiih").pack
_COMPACT_HEARTBEAT_RESPONSE = struct.Struct(">iixihx").pack

_new: Any = object.__new__


def decode_produce(frame: memoryview, version: int, offset: int) -> ProduceRequest:
    """A produce request. Raises WireError when it is malformed.

    `records` are slices of the frame, writable if it is. Fast for one partition without a transaction.
    """
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
            usual = usual and end + 3 == len(frame) and frame[end:] == _NO_TAGS_THRICE
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
            return codec.decode(ProduceRequest, frame, version, offset)
        name = str(frame[start:stop], "utf-8")
    except (struct.error, WireError, UnicodeDecodeError):
        return codec.decode(ProduceRequest, frame, version, offset)
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


def encode_produce_response(response: ProduceResponse, version: int, correlation_id: int) -> bytes:
    """A produce response as a frame with size and header. Raises WireError as the codec does."""
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
                return encode_produced(
                    version,
                    correlation_id,
                    topic.name,
                    one.index,
                    one.error_code,
                    one.base_offset,
                    one.log_append_time_ms,
                    one.log_start_offset,
                    response.throttle_time_ms,
                )
    body = codec.encode(response, version)
    return encode_response_frame(ApiKey.PRODUCE, version, correlation_id, body)


def encode_produced(
    version: int,
    correlation_id: int,
    topic: str,
    partition: int,
    error_code: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_time_ms: int = 0,
) -> bytes:
    """The frame of a produce response, version 5 or above, that tells of one partition and has no error message."""
    name = topic.encode()
    size = len(name)
    fixed = (partition, error_code, base_offset, log_append_time_ms, log_start_offset)
    if version < PRODUCE_FLEXIBLE_SINCE:
        if version < PRODUCE_RECORD_ERRORS_SINCE:
            rest = _PRODUCED(1, *fixed, throttle_time_ms)
        else:
            rest = _PRODUCED_NO_ERRORS(1, *fixed, 0, -1, throttle_time_ms)
        return _PRODUCE_RESPONSE_HEAD(10 + size + len(rest), correlation_id, 1, size) + name + rest
    rest = _COMPACT_PRODUCED(2, *fixed, 1, 0, throttle_time_ms)
    if size > 126:
        names = (size + 1) & 127 | 128, (size + 1) >> 7
        head = _SIZE_AND_ID(8 + size + len(rest), correlation_id) + bytes((0, 2, *names))
        return head + name + rest
    return _COMPACT_PRODUCE_RESPONSE_HEAD(7 + size + len(rest), correlation_id, 2, size + 1) + name + rest


def decode_fetch(frame: memoryview, version: int, offset: int) -> FetchRequest:
    """A fetch request. Raises WireError when it is malformed.

    Fast from version 13 on for one partition (what a session sends when one has moved on) or none (no change).
    """
    if version < FETCH_TOPIC_IDS_SINCE:
        return codec.decode(FetchRequest, frame, version, offset)
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
        return codec.decode(FetchRequest, frame, version, offset)
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


def encode_fetch_response(response: FetchResponse, version: int, correlation_id: int) -> list[Any]:
    """A fetch response as the parts of a frame with size and header, the records being parts of their own.

    Records may be bytes, a memoryview or anything with a `length` in bytes; small bytes are joined with their
    surroundings. Raises WireError as the codec does. Fast from version 13 on for one partition.
    """
    if version >= FETCH_TOPIC_IDS_SINCE and len(response.responses) == 1:
        one = _encode_fetched(response, correlation_id)
        if one is not None:
            return one
    total = response_header_size(ApiKey.FETCH, version)
    tags = b"" if total == _CORRELATION_ID_BYTES else b"\0"
    parts: list[Any] = []
    small: list[bytes] = [tags]
    for part in codec.encode_parts(response, version):
        if type(part) is bytes and len(part) <= JOINED_BYTES:
            small.append(part)
            total += len(part)
        else:
            parts += (b"".join(small), part)
            small = []
            total += len(part) if isinstance(part, (bytes, memoryview, bytearray)) else part.length
    if small:
        parts.append(b"".join(small))
    parts[0] = _SIZE_AND_ID(total, correlation_id) + parts[0]
    return parts


def _encode_fetched(response: FetchResponse, correlation_id: int) -> list[Any] | None:
    """The parts of a response with the usual single partition, None for any other. They are the same in all versions
    from 13 on: what later ones added is tagged and not usual.
    """
    (topic,) = response.responses
    if len(topic.partitions) != 1:
        return None
    (one,) = topic.partitions
    records = one.records
    diverging, leader, snapshot = one.diverging_epoch, one.current_leader, one.snapshot_id
    if (
        records is None
        or one.aborted_transactions
        or not (diverging.epoch == diverging.end_offset == leader.leader_id == leader.leader_epoch == -1)
        or not (snapshot.end_offset == snapshot.epoch == -1)
        or diverging.unknown_tagged_fields
        or leader.unknown_tagged_fields
        or snapshot.unknown_tagged_fields
        or response.node_endpoints
        or one.unknown_tagged_fields
        or topic.unknown_tagged_fields
        or response.unknown_tagged_fields
    ):
        return None
    length = records_length(records)
    counted = varint(length + 1)
    try:
        head = _FETCHED(
            _FETCHED_BYTES + len(counted) + length,
            correlation_id,
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
    if type(records) is bytes and length <= JOINED_BYTES:
        return [b"".join((head, counted, records, _NO_TAGS_THRICE))]
    return [head + counted, records, _NO_TAGS_THRICE]


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


def encode_heartbeat_response(response: HeartbeatResponse, version: int, correlation_id: int) -> bytes:
    """A heartbeat response as a frame with size and header. Raises WireError as the codec does."""
    if response.unknown_tagged_fields:
        body = codec.encode(response, version)
        return encode_response_frame(ApiKey.HEARTBEAT, version, correlation_id, body)
    if version >= HEARTBEAT_FLEXIBLE_SINCE:
        return _COMPACT_HEARTBEAT_RESPONSE(12, correlation_id, response.throttle_time_ms, response.error_code)
    if version:
        return _HEARTBEAT_RESPONSE(10, correlation_id, response.throttle_time_ms, response.error_code)
    return _HEARTBEAT_RESPONSE_V0(6, correlation_id, response.error_code)
