"""A blocking client of one socket, without retries, for tests that kill, disturb and starve brokers."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from ottla.records.batch import split_batches
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.wire.codec import decode, encode
from ottla.wire.framing import RequestHeader, encode_request_frame, parse_response_header
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.schema import Message
from support.framed_socket import TIMEOUT_S, FramedSocket
from support.ports import LOOPBACK

M = TypeVar("M", bound=Message)

LATEST = -1
FETCH_BYTES = 4 * 1024 * 1024

# Versions that are spoken here; each is one that some client in use speaks, too.
CREATE_PARTITIONS_V = 2
CREATE_TOPICS_V = 7
DELETE_TOPICS_V = 5
FETCH_V = 11
FIND_COORDINATOR_V = 2
INIT_PRODUCER_ID_V = 4
LIST_OFFSETS_V = 5
METADATA_V = 12
OFFSET_COMMIT_V = 7
OFFSET_FETCH_V = 7
PRODUCE_V = 9


class RawClient(FramedSocket):
    """One connection, and requests in ottla's own codec."""

    def __init__(self, port: int, *, timeout_s: float = TIMEOUT_S, client_id: str = "raw") -> None:
        super().__init__(LOOPBACK, port, timeout_s)
        self.client_id = client_id
        self.correlation_id = 0

    def frame(self, message: Message, version: int) -> bytes:
        """A whole request, its size first."""
        return request_frame(message, version, self.correlation_id, self.client_id)

    def send(self, message: Message, version: int) -> None:
        self.correlation_id += 1
        self.send_bytes(self.frame(message, version))

    def receive(self, response: type[M], version: int) -> M:
        frame = self.receive_frame()
        key = response.SCHEMA.api_key
        assert key is not None
        correlation_id, start = parse_response_header(frame, key, version)
        assert correlation_id == self.correlation_id, "the answer belongs to another request"
        return decode(response, frame, version, start)

    def ask(self, message: Message, response: type[M], version: int) -> M:
        self.send(message, version)
        return self.receive(response, version)

    # Requests by purpose

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> int:
        """The error code; settings with underscores for dots."""

        named = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=named)
        response = self.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, CREATE_TOPICS_V)
        return response.topics[0].error_code

    def create_partitions(self, name: str, count: int) -> int:
        """The error code of growing a topic to `count` partitions."""
        grown = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=10_000)
        return self.ask(request, CreatePartitionsResponse, CREATE_PARTITIONS_V).results[0].error_code

    def delete_topic(self, name: str) -> int:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        return self.ask(request, DeleteTopicsResponse, DELETE_TOPICS_V).responses[0].error_code

    def metadata(self, *names: str) -> MetadataResponse:
        """Of the topics named, of all where none is."""
        topics = [MetadataRequestTopic(name=name) for name in names] if names else None
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return self.ask(request, MetadataResponse, METADATA_V)

    def topics(self) -> set[str]:
        return {topic.name for topic in self.metadata().topics if topic.name is not None}

    def produce(self, topic: str, partition: int, batch: bytes, acks: int = 1) -> PartitionProduceResponse:
        response = self.ask(produce_request(topic, partition, batch, acks), ProduceResponse, PRODUCE_V)
        return response.responses[0].partition_responses[0]

    def end_offset(self, topic: str, partition: int, timestamp: int = LATEST) -> int:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        found = self.ask(request, ListOffsetsResponse, LIST_OFFSETS_V).topics[0].partitions[0]
        assert found.error_code == 0, found
        return found.offset

    def fetch(self, topic: str, partition: int, offset: int, *, max_wait_ms: int = 500) -> tuple[int, list[Record]]:
        """The error code and the records of one fetch."""
        request = fetch_request(topic, partition, offset, max_wait_ms)
        answer = self.ask(request, FetchResponse, FETCH_V).responses[0].partitions[0]
        return answer.error_code, records_of(answer.records, offset)

    def read_all(self, topic: str, partition: int) -> list[Record]:
        """All records from offset 0 to the present end; fails at any error and where an offset is missing."""
        end = self.end_offset(topic, partition)
        records: list[Record] = []
        while len(records) < end:
            error, more = self.fetch(topic, partition, len(records))
            assert error == 0, f"error {error} in {topic}-{partition} at {len(records)} of {end}"
            assert more, f"nothing in {topic}-{partition} at {len(records)} of {end}"
            records += more
        assert [record.offset for record in records] == list(range(len(records)))
        return records

    def find_coordinator(self, group: str) -> int:
        """The error code; makes the offsets topic where it is missing."""
        request = FindCoordinatorRequest(key=group, key_type=0)
        return self.ask(request, FindCoordinatorResponse, FIND_COORDINATOR_V).error_code

    def commit(self, group: str, topic: str, partition: int, offset: int) -> int:
        """The error code of a commit from outside the group."""

        one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name=topic, partitions=[one])]
        request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        return self.ask(request, OffsetCommitResponse, OFFSET_COMMIT_V).topics[0].partitions[0].error_code

    def committed(self, group: str, topic: str, partition: int) -> tuple[int, int]:
        """The error code and the offset, -1 for none."""

        topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(group_id=group, topics=topics)
        response = self.ask(request, OffsetFetchResponse, OFFSET_FETCH_V)
        if response.error_code:
            return response.error_code, -1
        found = response.topics[0].partitions[0]
        return found.error_code, found.committed_offset

    def producer_id(self) -> tuple[int, int]:
        """The error code and a new producer id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = self.ask(request, InitProducerIdResponse, INIT_PRODUCER_ID_V)
        return response.error_code, response.producer_id


def request_frame(message: Message, version: int, correlation_id: int = 1, client_id: str = "raw") -> bytes:
    """A whole request as it is sent."""

    key = message.SCHEMA.api_key
    assert key is not None
    return encode_request_frame(RequestHeader(key, version, correlation_id, client_id), encode(message, version))


def produce_request(topic: str, partition: int, batch: bytes, acks: int = 1) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=[data])


def fetch_request(topic: str, partition: int, offset: int, max_wait_ms: int, min_bytes: int = 1) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def batch_of(*values: bytes, **producer: Any) -> bytes:
    """One record batch of now; `producer` has the fields of an idempotent one."""
    now_ms = int(time.time() * 1000)
    records = [Record(at, now_ms, None, value, ()) for at, value in enumerate(values)]
    return encode_batch(records, **producer)


def records_of(data: memoryview | bytes | None, from_offset: int) -> list[Record]:
    """The records of the whole batches in a fetch answer, from an offset on."""
    if not data:
        return []
    headers = split_batches(data, partial_tail=True)
    return [record for header in headers for record in decode_batch(data, header) if record.offset >= from_offset]
