"""A cluster of tiny fake brokers over the wire codec: real sockets, a log in memory, and faults on demand."""

from __future__ import annotations

import asyncio
import ssl
import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.client.model import TopicPartition, by_topic
from ottla.records.batch import parse_batch_header, patch_batch
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.wire.apis import ApiKey
from ottla.wire.connection import FrameRefusal, Request, ServerProtocol
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from ottla.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.find_coordinator import FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

HOST = "127.0.0.1"
MAX_REQUEST_BYTES = 16 * 1024 * 1024

DROP = "close the connection, the request is not worked on"
DROP_AFTER = "work on the request, then close the connection in place of an answer"
SILENT = "never answer"


@dataclass
class Later:
    """An answer that is given after a while."""

    answer: Any
    seconds: float


Fault = str | ErrorCode | Callable[[Any], Any]


@dataclass
class Log:
    """A partition: whole batches with their base offsets."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    #: By producer id: the offsets of its batches by their first sequence number, and the number that has to follow.
    sequences: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    following: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        header = parse_batch_header(data)
        if header.producer_id >= 0:
            epoch = self.epochs.get(header.producer_id, -1)
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > epoch:
                if epoch >= 0 and header.base_sequence != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                self.epochs[header.producer_id] = header.producer_epoch
                self.sequences[header.producer_id] = {}
            seen = self.sequences[header.producer_id]
            if header.base_sequence in seen:
                return ErrorCode.NONE, seen[header.base_sequence]
            if seen and header.base_sequence != self.following[header.producer_id]:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            seen[header.base_sequence] = self.end
            self.following[header.producer_id] = header.last_sequence + 1
        base, stored = self.end, bytearray(data)
        patch_batch(stored, 0, base, 0)
        self.batches.append(bytes(stored))
        self.end += header.last_offset_delta + 1
        return ErrorCode.NONE, base

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_batch(batch, parse_batch_header(batch))]


class FakeCluster:
    """Brokers 0 to `count - 1`, with listeners for TLS where there is a context.

    Set `leaders`, `logs`, `faults` as the test needs; `requests` is what came.
    """

    def __init__(self, count: int, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.leaders: dict[TopicPartition, int] = {}
        self.logs: dict[TopicPartition, Log] = defaultdict(Log)
        self.leader_epochs: dict[TopicPartition, int] = {}
        #: Ids of brokers, where they are others than 0 alone; and those in sync, where not all are.
        self.replicas: dict[TopicPartition, list[int]] = {}
        self.in_sync: dict[TopicPartition, list[int]] = {}
        #: APIs that a test answers itself (`on_NAME`).
        self.also_serves: tuple[int, ...] = ()
        #: Where the log of a follower ends, by broker and partition.
        self.follower_ends: dict[tuple[int, TopicPartition], int] = {}
        #: The follower that a leader names to who reads a partition from a rack (KIP-392), and up to which offset each
        #: follower, by broker and partition, gives records.
        self.nearest: dict[tuple[TopicPartition, str], int] = {}
        self.visible_ends: dict[tuple[int, TopicPartition], int] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.groups: dict[str, DescribedGroup] = {}
        self.coordinator = 0
        self.controller = 0
        self.next_producer_id = 1000
        self.requests: list[tuple[int, ApiKey, Any]] = []
        self.faults: dict[ApiKey, deque[Fault]] = defaultdict(deque)
        self.auto_create = False
        self.waits_for_records = False
        self.newest_api_versions = 4
        #: The newest version that is served of an API, where it is another than 12.
        self.newest_versions: dict[int, int] = {}
        self.ports: dict[int, int] = {}
        self.advertised: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, set[asyncio.Transport]] = defaultdict(set)
        self._servers: dict[int, asyncio.Server | None] = {}
        self._loop = self._begin()
        for node in range(count):
            self.start(node)

    def _begin(self) -> asyncio.AbstractEventLoop:
        """The brokers' event loop, in a thread of its own."""
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, daemon=True)
        self._thread.start()
        return loop

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _listen(self, node: int) -> None:
        port = self.ports.get(node, 0)
        server = await self._loop.create_server(lambda: FakeConnection(self, node), HOST, port, ssl=self._tls)
        self._servers[node] = server
        self.ports[node] = server.sockets[0].getsockname()[1]
        self.advertised.setdefault(node, (HOST, self.ports[node]))

    async def _stop(self, node: int) -> None:
        server = self._servers.pop(node)
        assert server is not None
        # asyncio makes the transport a turn after it accepts; of a server that is closed by then it would stay open.
        for listening in server.sockets:
            self._loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        server.close()
        for transport in list(self._connections[node]):
            transport.abort()

    async def _end_late_connections(self) -> None:
        """Connections that were being accepted when their server stopped have their transports only now."""
        accepting = asyncio.all_tasks() - {asyncio.current_task()}
        if accepting:
            await asyncio.wait(accepting)
        for transports in self._connections.values():
            for transport in list(transports):
                transport.abort()

    def stop(self, node: int) -> None:
        self.run(self._stop(node))

    def start(self, node: int) -> None:
        self.run(self._listen(node))

    def close(self) -> None:
        for node in list(self._servers):
            self.stop(node)
        self.run(self._end_late_connections())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def topic(self, name: str, *leaders: int) -> list[TopicPartition]:
        for partition, leader in enumerate(leaders):
            self.leaders[TopicPartition(name, partition)] = leader
        return [TopicPartition(name, partition) for partition in range(len(leaders))]

    def fill(self, partition: TopicPartition, count: int, size: int = 10, per_batch: int = 10, **options: Any) -> None:
        for first in range(0, count, per_batch):
            records = [
                Record(0, 1000 + at, b"k%d" % at, b"%d" % at + bytes(size)) for at in range(first, first + per_batch)
            ]
            self.logs[partition].append(encode_batch(records, **options))

    def requests_of(self, api_key: ApiKey) -> list[Any]:
        return [message for _, key, message in self.requests if key == api_key]

    def handle(self, node: int, request: Request) -> Any:
        api_key = ApiKey(request.header.api_key)
        self.requests.append((node, api_key, request.message))
        fault = self.faults[api_key].popleft() if self.faults[api_key] else None
        if fault in (DROP, SILENT):
            return fault
        if callable(fault) and not isinstance(fault, ErrorCode):
            return fault(request.message)
        handler = getattr(self, f"on_{api_key.name.lower()}")
        code = fault if isinstance(fault, ErrorCode) else None
        answer = handler(node, request.message, code)
        return DROP if fault == DROP_AFTER else answer

    def on_api_versions(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        if request is None:
            served = [ApiVersion(api_key=18, min_version=0, max_version=self.newest_api_versions)]
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served)
        keys = (0, 1, 2, 3, 8, 9, 10, 15, 16, 18, 19, 20, 22, 23, 32, 35, 42, *self.also_serves)
        served = [ApiVersion(api_key=key, min_version=0, max_version=self.newest_versions.get(key, 12)) for key in keys]
        return ApiVersionsResponse(error_code=code or 0, api_keys=served)

    def on_metadata(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        names = {each.topic for each in self.leaders} if request.topics is None else {t.name for t in request.topics}
        topics = []
        for name in sorted(names):
            if self.auto_create and request.allow_auto_topic_creation:
                self.leaders.setdefault(TopicPartition(name, 0), node)
            partitions = [
                MetadataResponsePartition(
                    error_code=0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=each.partition,
                    leader_id=leader,
                    leader_epoch=self.leader_epochs.get(each, -1),
                    replica_nodes=self.replicas.get(each, [0]),
                    isr_nodes=self.in_sync.get(each, self.replicas.get(each, [0])),
                )
                for each, leader in self.leaders.items()
                if each.topic == name
            ]
            missing = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            internal = name.startswith("__")
            topics.append(
                MetadataResponseTopic(
                    error_code=code or missing,
                    name=name,
                    is_internal=internal,
                    partitions=partitions,
                    topic_id=self.topic_ids.get(name, uuid.UUID(int=0)),
                )
            )
        brokers = [
            MetadataResponseBroker(node_id=each, host=self.advertised[each][0], port=self.advertised[each][1])
            for each in self._servers
        ]
        return MetadataResponse(brokers=brokers, cluster_id="fake", controller_id=self.controller, topics=topics)

    def on_produce(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        responses = []
        for topic in request.topic_data:
            told = []
            for each in topic.partition_data:
                partition = TopicPartition(topic.name, each.index)
                error, offset = code or None, -1
                if error is None and self.leaders.get(partition) != node:
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                if error is None:
                    error, offset = self.logs[partition].append(bytes(each.records))
                told.append(PartitionProduceResponse(index=each.index, error_code=error, base_offset=offset))
            responses.append(TopicProduceResponse(name=topic.name, partition_responses=told))
        return ProduceResponse(responses=responses) if request.acks else None

    def on_fetch(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        sent_bytes = 0
        topics = []
        for topic in request.topics:
            told = [
                self._read_elsewhere(node, topic.topic, each, request.rack_id)
                or self._fetched(node, topic.topic, each, code, sent_bytes == 0)
                for each in topic.partitions
            ]
            sent_bytes += sum(len(each.records) for each in told)
            topics.append(FetchableTopicResponse(topic=topic.topic, partitions=told))
        answer = FetchResponse(responses=topics)
        empty = (
            self.waits_for_records
            and not sent_bytes
            and not any(
                each.error_code or each.preferred_read_replica >= 0 for topic in topics for each in topic.partitions
            )
        )
        return Later(answer, request.max_wait_ms / 1000) if empty and request.min_bytes else answer

    def _read_elsewhere(self, node: int, topic: str, wanted: Any, rack: str) -> Any:
        """The leader's answer that names the follower in the rack; None if there is none."""
        partition = TopicPartition(topic, wanted.partition)
        follower = self.nearest.get((partition, rack))
        if follower is None or self.leaders.get(partition) != node:
            return None
        end = self.logs[partition].end
        return PartitionData(
            partition_index=wanted.partition, high_watermark=end, preferred_read_replica=follower, records=b""
        )

    def _fetched(self, node: int, topic: str, wanted: Any, code: ErrorCode | None, is_first: bool) -> Any:
        partition = TopicPartition(topic, wanted.partition)
        log = self.logs[partition]
        error = code or ErrorCode.NONE
        visible_end = log.end if self.leaders.get(partition) == node else self.visible_ends.get((node, partition))
        if visible_end is None:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not log.start <= wanted.fetch_offset <= visible_end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        sent = b""
        if error == ErrorCode.NONE:
            for batch in log.batches:
                if wanted.fetch_offset <= parse_batch_header(batch).last_offset < (visible_end or 0):
                    room = wanted.partition_max_bytes - len(sent)
                    sent += batch if not sent and is_first else batch[: max(0, room)]
        return PartitionData(
            partition_index=wanted.partition,
            error_code=error,
            high_watermark=log.end if visible_end is None else visible_end,
            log_start_offset=log.start,
            records=sent,
        )

    def on_list_offsets(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        topics = []
        for topic in request.topics:
            told = []
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                log, error = self.logs[partition], code or ErrorCode.NONE
                end = self.follower_ends.get((node, partition), log.end) if request.replica_id == -2 else log.end
                if self.leaders.get(partition) != node and request.replica_id != -2:
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                later = (record.offset for record in log.records() if record.timestamp >= each.timestamp)
                offset = {-1: end, -2: log.start}.get(each.timestamp, next(later, -1))
                told.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=error, offset=offset if not error else -1
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=told))
        return ListOffsetsResponse(topics=topics)

    def on_find_coordinator(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        host, port = self.advertised[self.coordinator]
        return FindCoordinatorResponse(error_code=code or 0, node_id=self.coordinator, host=host, port=port)

    def on_offset_commit(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        error = code or (ErrorCode.NOT_COORDINATOR if node != self.coordinator else ErrorCode.NONE)
        topics = []
        for topic in request.topics:
            for each in topic.partitions:
                if not error:
                    self.committed[TopicPartition(topic.name, each.partition_index)] = each.committed_offset
            told = [
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                for each in topic.partitions
            ]
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=told))
        return OffsetCommitResponse(topics=topics)

    def on_offset_fetch(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        error = code or (ErrorCode.NOT_COORDINATOR if node != self.coordinator else ErrorCode.NONE)
        wanted = list(self.committed)
        if request.topics is not None:
            wanted = [TopicPartition(topic.name, each) for topic in request.topics for each in topic.partition_indexes]
        told = {
            each: OffsetFetchResponsePartition(
                partition_index=each.partition, committed_offset=self.committed.get(each, -1)
            )
            for each in wanted
        }
        topics = [OffsetFetchResponseTopic(name=name, partitions=each) for name, each in by_topic(told).items()]
        return OffsetFetchResponse(error_code=error, topics=[] if error else topics)

    def on_list_groups(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        mine = self.groups if node == self.coordinator else {}
        listed = [ListedGroup(group_id=name, protocol_type=group.protocol_type) for name, group in mine.items()]
        return ListGroupsResponse(error_code=code or 0, groups=listed)

    def on_describe_groups(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        error = code or (ErrorCode.NOT_COORDINATOR if node != self.coordinator else ErrorCode.NONE)
        dead = {name: DescribedGroup(group_id=name, group_state="Dead") for name in request.groups}
        if error:
            failed = [DescribedGroup(group_id=name, error_code=error) for name in request.groups]
            return DescribeGroupsResponse(groups=failed)
        return DescribeGroupsResponse(groups=[self.groups.get(name, dead[name]) for name in request.groups])

    def on_delete_groups(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        results = []
        for name in request.groups_names:
            error = code or ErrorCode.NONE
            if node != self.coordinator:
                error = ErrorCode.NOT_COORDINATOR
            elif not error and name not in self.groups:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif not error and self.groups[name].members:
                error = ErrorCode.NON_EMPTY_GROUP
            elif not error:
                del self.groups[name]
            results.append(DeletableGroupResult(group_id=name, error_code=error))
        return DeleteGroupsResponse(results=results)

    def on_init_producer_id(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        self.next_producer_id += 1
        return InitProducerIdResponse(error_code=code or 0, producer_id=self.next_producer_id)

    def on_create_topics(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        [topic] = request.topics
        error = code or ErrorCode.NONE
        if node != self.controller:
            error = ErrorCode.NOT_CONTROLLER
        elif TopicPartition(topic.name, 0) in self.leaders:
            error = ErrorCode.TOPIC_ALREADY_EXISTS
        elif not error:
            self.topic(topic.name, *[0] * max(1, topic.num_partitions))
        result = CreatableTopicResult(name=topic.name, error_code=error, error_message=f"told by {node}")
        return CreateTopicsResponse(topics=[result])

    def on_delete_topics(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        [name] = request.topic_names
        gone = [each for each in self.leaders if each.topic == name]
        error = code or (ErrorCode.NONE if gone else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not error:
            for each in gone:
                del self.leaders[each]
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name, error_code=error)])

    def on_describe_configs(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        told = [
            DescribeConfigsResult(
                error_code=code or 0,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                configs=[DescribeConfigsResourceResult(name="told.by", value=str(node))],
            )
            for each in request.resources
        ]
        return DescribeConfigsResponse(results=told)

    def on_describe_log_dirs(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=f"/logs-of-{node}")])


class FakeConnection(asyncio.Protocol):
    """One connection to one of the brokers."""

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self._cluster = cluster
        self._node = node
        self._protocol = ServerProtocol(MAX_REQUEST_BYTES)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._cluster._connections[self._node].add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._cluster._connections[self._node].discard(self._transport)

    def data_received(self, data: bytes) -> None:
        requests = self._protocol.receive(data)
        if isinstance(requests, FrameRefusal):
            self._transport.abort()
            return
        for request in requests:
            newest = self._cluster.newest_api_versions
            if request.header.api_key == ApiKey.API_VERSIONS and request.header.api_version > newest:
                request = Request(request.header, None)
            answer = self._cluster.handle(self._node, request)
            if answer == DROP:
                self._transport.abort()
                return
            if answer is None:
                self._protocol.skip()
            elif isinstance(answer, Later):
                self._cluster._loop.call_later(answer.seconds, self._answer, request, answer.answer)
            elif answer != SILENT:
                self._answer(request, answer)

    def _answer(self, request: Request, answer: Any) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._frame(request, answer))

    def _frame(self, request: Request, answer: Any) -> bytes:
        if request.message is None:  # a version from the future is answered in version 0
            request.header.api_version = 0
        return self._protocol.respond(answer)
