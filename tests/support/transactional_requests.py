"""Requests of a transactional producer and its reader, one by one, to brokers on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ottla.broker.coordinators.group_kind import OFFSETS_TOPIC
from ottla.peer.connection import PeerConnection, open_connection
from ottla.peer.settings import ConnectionSettings
from ottla.records.batch import split_batches
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.schema import Message
from support.virtual_cluster import PORT, START_MS, VirtualCluster

GROUP, TRANSACTION = 0, 1
READ_COMMITTED = 1
LATEST = -1
ONE_EACH = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
}
PASSES = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class Requests:
    """Connections to the brokers of a cluster, one for each."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self._environment = cluster.environment()
        self._connections: dict[int, PeerConnection] = {}

    async def ask(self, broker_id: int, request: Message, versions: tuple[int, int] | None = None) -> Any:
        kept = self._connections.get(broker_id)
        if kept is None or not kept.is_open:
            settings = ConnectionSettings(client_id="c")
            kept = await open_connection(f"broker{broker_id}", PORT, settings, self._environment)
            self._connections[broker_id] = kept
        return await kept.request(request, versions=versions)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    async def make_topic(self, name: str, partitions: int) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        made = await self.ask(self.cluster.controller(), request)
        assert made.topics[0].error_code == ErrorCode.NONE
        await self.cluster.until(
            lambda: all(name in broker.image.topics for broker in self.cluster.brokers.values()), "the topic"
        )

    async def coordinator(self, key: str, key_type: int) -> int:
        """The coordinator's broker id, as soon as there is one."""
        any_broker = min(self.cluster.brokers)
        while True:
            found = await self.ask(any_broker, FindCoordinatorRequest(key=key, key_type=key_type))
            if found.error_code == ErrorCode.NONE:
                return int(found.node_id)
            assert ErrorCode(found.error_code) in PASSES  # type: ignore[call-arg]
            await asyncio.sleep(0.1)  # sleep: virtual

    def leader(self, topic: str, index: int) -> int:
        return next(iter(self.cluster.brokers.values())).image.topics[topic].partitions[index].leader

    async def read(
        self, topic: str, index: int, isolation_level: int = READ_COMMITTED
    ) -> tuple[list[bytes], list[int]]:
        """All values that a fetch returns, those of aborted transactions left out; and the producers that aborted."""
        partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=2**20)
        request = FetchRequest(
            replica_id=-1,
            max_bytes=2**20,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        answer = await self.ask(self.leader(topic, index), request)
        (data,) = answer.responses[0].partitions
        assert data.error_code == ErrorCode.NONE
        aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
        return _visible(bytes(data.records or b""), aborted), [producer for _, producer in aborted]

    async def end_offset(self, topic: str, index: int, isolation_level: int = READ_COMMITTED) -> int:
        partition = ListOffsetsPartition(partition_index=index, timestamp=LATEST)
        wanted = [ListOffsetsTopic(name=topic, partitions=[partition])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=wanted)
        answer = await self.ask(self.leader(topic, index), request)
        return int(answer.topics[0].partitions[0].offset)

    async def committed(self, group: str, topic: str, index: int) -> int | ErrorCode:
        """The stable offset of a group, or the error."""
        request = OffsetFetchRequest(
            group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[index])], require_stable=True
        )
        answer = await self.ask(await self.coordinator(group, GROUP), request, (7, 7))
        (found,) = answer.topics[0].partitions
        return int(found.committed_offset) if not found.error_code else ErrorCode(found.error_code)  # type: ignore[call-arg]

    async def transactions(self, broker_id: int) -> dict[str, str]:
        """State by transactional id, of one coordinator."""
        found = await self.ask(broker_id, ListTransactionsRequest(), (1, 1))
        assert found.error_code == ErrorCode.NONE
        return {each.transactional_id: each.transaction_state for each in found.transaction_states}


class TransactionalProducer:
    """A producer that does what it is told, and returns error codes."""

    def __init__(self, requests: Requests, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.requests = requests
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def coordinator(self) -> int:
        return await self.requests.coordinator(self.transactional_id, TRANSACTION)

    async def init(self) -> None:
        """InitProducerId, again as long as the error passes."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)
        while True:
            found = await self.requests.ask(await self.coordinator(), request)
            if found.error_code == ErrorCode.NONE:
                break
            assert ErrorCode(found.error_code) in PASSES  # type: ignore[call-arg]
            await asyncio.sleep(0.1)  # sleep: virtual
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch
        self._sequences.clear()

    async def add(self, topic: str, *indexes: int) -> ErrorCode:
        identity = {f"v3_and_below_{name}": value for name, value in self.identity.items()}
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))]
        request = AddPartitionsToTxnRequest(**identity, v3_and_below_topics=topics)
        while True:
            answer = await self.requests.ask(await self.coordinator(), request, (3, 3))
            (result,) = answer.results_by_topic_v3_and_below
            errors = {ErrorCode(each.partition_error_code) for each in result.results_by_partition}  # type: ignore[call-arg]
            error = max(errors)
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return error
            await asyncio.sleep(0.1)  # sleep: virtual

    async def produce(self, topic: str, index: int, *values: bytes, version: int = 11) -> ErrorCode:
        """Produce one batch with acks=all."""
        sequence = self._sequences.get((topic, index), 0)
        batch = encode_batch(
            [Record(number, START_MS, None, value) for number, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data])
        answer = await self.requests.ask(self.requests.leader(topic, index), request, (version, version))
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)  # type: ignore[call-arg]
        if error is ErrorCode.NONE:
            self._sequences[topic, index] = sequence + len(values)
        return error

    async def send_offset(self, group: str, topic: str, index: int, offset: int, *, adds: bool = True) -> ErrorCode:
        """AddOffsetsToTxn, then TxnOffsetCommit."""
        while adds:
            request = AddOffsetsToTxnRequest(**self.identity, group_id=group)
            answer = await self.requests.ask(await self.coordinator(), request)
            if not answer.error_code:
                break
            if ErrorCode(answer.error_code) not in PASSES:  # type: ignore[call-arg]
                return ErrorCode(answer.error_code)  # type: ignore[call-arg]
            await asyncio.sleep(0.1)  # sleep: virtual
        partition = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])]
        commit = TxnOffsetCommitRequest(**self.identity, group_id=group, topics=topics)
        while True:
            answer = await self.requests.ask(await self.requests.coordinator(group, GROUP), commit)
            error = ErrorCode(answer.topics[0].partitions[0].error_code)  # type: ignore[call-arg]
            if error not in PASSES:
                return error
            await asyncio.sleep(0.1)  # sleep: virtual

    async def end(self, *, is_commit: bool) -> ErrorCode:
        answer = await self.requests.ask(await self.coordinator(), EndTxnRequest(**self.identity, committed=is_commit))
        return ErrorCode(answer.error_code)  # type: ignore[call-arg]

    async def state(self) -> str:
        """As DescribeTransactions shows it."""
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        answer = await self.requests.ask(await self.coordinator(), request, (0, 0))
        (found,) = answer.transaction_states
        assert found.error_code == ErrorCode.NONE
        return str(found.transaction_state)

    async def until_complete(self) -> None:
        """Wait for the markers."""
        while True:
            if (await self.state()).startswith("Complete"):
                return
            await asyncio.sleep(0.1)  # sleep: virtual


def offsets_partition(cluster: VirtualCluster, group: str) -> tuple[str, int]:
    """The partition that has the offsets of a group."""
    return OFFSETS_TOPIC, next(iter(cluster.brokers.values())).groups.router.partition_of(group)


def _visible(data: bytes, aborted: Sequence[tuple[int, int]]) -> list[bytes]:
    """The values of data batches, those of aborted transactions left out as clients do it."""
    waiting, hidden, values = list(aborted), set(), []
    for header in split_batches(memoryview(data)):
        while waiting and waiting[0][0] <= header.base_offset:
            hidden.add(waiting.pop(0)[1])
        if header.is_control:
            hidden.discard(header.producer_id)
        elif header.producer_id not in hidden or not header.is_transactional:
            values += [record.value or b"" for record in decode_batch(memoryview(data), header)]
    return values
