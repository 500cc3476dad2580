"""Requests as bytes, made before a measurement begins, and the few calls around it that wait for their answers."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.records.record import Record, encode_batch
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import decode, encode
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import RequestHeader, encode_request_frame, parse_response_header
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

HOST = "127.0.0.1"
CLIENT_ID = "bench"
#: What the Java clients of Apache Kafka 3.9 send.
VERSIONS = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 17,
    ApiKey.LIST_OFFSETS: 8,
    ApiKey.METADATA: 12,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.FIND_COORDINATOR: 6,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
}
CALL_TIMEOUT_S = 60.0
LATEST = -1
#: Record timestamps: any fixed time will do, batches must only be encoded once.
TIMESTAMP_MS = 1_700_000_000_000

_SIZE = struct.Struct(">i")


class CallFailed(Exception):
    """A broker answered with an error; the message shows the answer."""


def request_frame(key: ApiKey, message: Any, correlation_id: int = 1) -> bytes:
    """A whole request, size field included."""
    header = RequestHeader(int(key), VERSIONS[key], correlation_id, CLIENT_ID)
    return encode_request_frame(header, encode(message, VERSIONS[key]))


def record_batch(record_bytes: int, batch_bytes: int) -> tuple[bytes, int]:
    """A batch of at most `batch_bytes` with values of `record_bytes`, at least one; returns it and its record count."""

    def batch(count: int) -> bytes:
        value = b"v" * record_bytes
        return encode_batch([Record(index, TIMESTAMP_MS, None, value, ()) for index in range(count)])

    count = max(1, batch_bytes // (record_bytes + 7))
    encoded = batch(count)
    while len(encoded) > batch_bytes and count > 1:
        count -= max(1, (len(encoded) - batch_bytes) // (record_bytes + 12))
        encoded = batch(count)
    return encoded, count


def produce_frame(topic: str, batches: dict[int, bytes], acks: int = 1) -> bytes:
    """A Produce request with one batch for each of the partitions given; acks -1 waits for all in-sync replicas."""
    data = [PartitionProduceData(index=index, records=memoryview(batch)) for index, batch in batches.items()]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return request_frame(ApiKey.PRODUCE, ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics))


def fetch_frame(topic_id: uuid.UUID, partition: int, offset: int, max_bytes: int) -> bytes:
    """A Fetch request without a session for one partition."""
    fetched = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    message = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id, partitions=[fetched])],
    )
    return request_frame(ApiKey.FETCH, message)


class Caller:
    """One blocking connection for the calls around a measurement."""

    def __init__(self, port: int, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._sock = socket.create_connection((HOST, port), timeout=timeout_s)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def exchange(self, frame: bytes) -> bytearray:
        """Send a request and return the answer, without its size field."""
        self._sock.sendall(frame)
        (size,) = _SIZE.unpack(self._receive(_SIZE.size))
        return self._receive(size)

    def _receive(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            received = self._sock.recv_into(view)
            if received == 0:
                raise CallFailed("the broker closed the connection")
            view = view[received:]
        return data

    def call(self, key: ApiKey, message: Any) -> Any:
        """Send a request and return the decoded answer."""
        return self.decoded(key, self.exchange(request_frame(key, message)))

    def decoded(self, key: ApiKey, answer: bytearray) -> Any:
        """The message in an answer."""
        version = VERSIONS[key]
        _, offset = parse_response_header(memoryview(answer), int(key), version)
        return decode(API[key].response, memoryview(answer), version, offset)

    def create_topic(
        self,
        name: str,
        partitions: int,
        settings: Mapping[str, str],
        replication_factor: int = 1,
        assignments: Sequence[Sequence[int]] = (),
    ) -> uuid.UUID:
        """Create a topic and give its id; `assignments` has the brokers of each partition, instead of their numbers."""
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(assignments)
            ],
            configs=configs,
        )
        answer = self.call(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        if any(created.error_code for created in answer.topics):
            raise CallFailed(f"CreateTopics: {answer}")
        topic_id: uuid.UUID = answer.topics[0].topic_id
        return topic_id

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        answer = self.call(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000))
        if any(deleted.error_code for deleted in answer.responses):
            raise CallFailed(f"DeleteTopics: {answer}")

    def leaders(self, topic: str) -> int:
        """How many partitions of the topic have a leader."""
        return sum(partition.leader_id >= 0 for partition in self.metadata([topic]).topics[0].partitions)

    def metadata(self, topics: Sequence[str]) -> MetadataResponse:
        """What the broker knows of these topics, and of the cluster."""
        wanted = [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer: MetadataResponse = self.call(ApiKey.METADATA, request)
        return answer

    def brokers(self) -> int:
        """How many brokers Metadata names."""
        return len(self.call(ApiKey.METADATA, MetadataRequest(topics=[])).brokers)

    def wait_for_coordinator(self, group_id: str) -> None:
        """Until the coordinator of a group is up and has loaded it; the first to ask for one has the topic made."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        request = HeartbeatRequest(group_id=group_id, generation_id=0, member_id="nobody")
        while True:
            found = self.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]))
            ready = not any(one.error_code for one in found.coordinators)
            if ready and self.call(ApiKey.HEARTBEAT, request).error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                return
            if time.monotonic() > deadline:
                raise CallFailed(f"FindCoordinator: {found}")
            time.sleep(0.05)

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        """The log end offset of each partition."""
        return self.ends(topic, range(partitions))

    def ends(self, topic: str, indexes: Sequence[int]) -> list[int]:
        """The log end offset of each of these partitions."""
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes]
        topics = [ListOffsetsTopic(name=topic, partitions=wanted)]
        answer = self.call(ApiKey.LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=topics))
        found = answer.topics[0].partitions
        if any(partition.error_code for partition in found):
            raise CallFailed(f"ListOffsets: {answer}")
        return [partition.offset for partition in sorted(found, key=lambda partition: partition.partition_index)]

    def probe(self, key: ApiKey, frame: bytes) -> int:
        """Send a Produce or Fetch request, check every error code of its answer, and return the answer's length."""
        answer = self.exchange(frame)
        response = self.decoded(key, answer)
        for topic in response.responses:
            for partition in topic.partition_responses if key is ApiKey.PRODUCE else topic.partitions:
                if partition.error_code:
                    raise CallFailed(f"{key.name}: {partition}")
        return len(answer)
