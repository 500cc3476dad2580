"""Fake brokers with a transaction coordinator, as far as a producer can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ottla.assign.assignor import GroupMetadata
from ottla.client import Producer
from ottla.client.model import TopicPartition
from ottla.records.batch import parse_batch_header
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.end_txn import EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from support.fake_cluster import FakeCluster
from support.quick_settings import QUICK_PRODUCER
from support.virtual_fakes import VirtualFakeCluster

T = TypeVar("T")
P = TopicPartition("t", 0)
Q = TopicPartition("t", 1)
GROUP = GroupMetadata("g", 7, "member", "instance")


class TransactionalFakes(FakeCluster):
    """Broker 0 coordinates. A test gives faults by API, as of any fake cluster, and looks at `ended`."""

    def __init__(self, count: int = 1) -> None:
        super().__init__(count)
        self.also_serves = (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
        )
        #: By transactional id: producer id and epoch, and what the open transaction has.
        self.identities: dict[str, tuple[int, int]] = {}
        self.parts: dict[str, set[Any]] = {}
        self.pending: dict[TopicPartition, int] = {}
        #: Ended transactions: "commit" or "abort", and what was in them.
        self.ended: list[tuple[str, set[Any]]] = []
        self._last = ""

    def asked(self, api_key: ApiKey) -> int:
        return len(self.requests_of(api_key))

    def epochs(self, partition: TopicPartition) -> list[tuple[int, int]]:
        """Epoch and first sequence number of each batch in the log, all of them transactional."""
        headers = [parse_batch_header(batch) for batch in self.logs[partition].batches]
        assert all(header.is_transactional for header in headers)
        return [(header.producer_epoch, header.base_sequence) for header in headers]

    def _refused(self, name: str, identity: tuple[int, int], code: ErrorCode | None) -> ErrorCode:
        if code:
            return code
        known = self.identities.get(name)
        if known is None or known[0] != identity[0]:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if known == identity else ErrorCode.PRODUCER_FENCED

    def on_init_producer_id(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        name = request.transactional_id
        if name is None or code:
            return super().on_init_producer_id(node, request, code)
        producer_id, epoch = self.identities.get(name, (self.next_producer_id, -1))
        if request.producer_id >= 0 and (request.producer_id, request.producer_epoch) != (producer_id, epoch):
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if name not in self.identities:
            self.next_producer_id += 1
        if parts := self.parts.pop(name, None):
            self.ended.append(("abort", parts))
        self.identities[name] = producer_id, epoch + 1
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch + 1)

    def on_add_partitions_to_txn(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        name = request.v3_and_below_transactional_id
        identity = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        error = self._refused(name, identity, code)
        topics = request.v3_and_below_topics
        if not error:
            added = {TopicPartition(topic.name, each) for topic in topics for each in topic.partitions}
            self.parts.setdefault(name, set()).update(added)
        told = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=told)

    def on_add_offsets_to_txn(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        error = self._refused(request.transactional_id, (request.producer_id, request.producer_epoch), code)
        if not error:
            self.parts.setdefault(request.transactional_id, set()).add(request.group_id)
        return AddOffsetsToTxnResponse(error_code=error)

    def on_txn_offset_commit(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        topics = []
        for topic in request.topics:
            told = []
            for each in topic.partitions:
                if not code:
                    self.pending[TopicPartition(topic.name, each.partition_index)] = each.committed_offset
                told.append(
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code or 0)
                )
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=told))
        return TxnOffsetCommitResponse(topics=topics)

    def on_end_txn(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        name, verb = request.transactional_id, "commit" if request.committed else "abort"
        error = self._refused(name, (request.producer_id, request.producer_epoch), code)
        parts = None if error else self.parts.pop(name, None)
        if parts is not None:
            self.ended.append((verb, parts))
            self._last = verb
            if request.committed:
                self.committed.update(self.pending)
            self.pending.clear()
        elif not error and verb != self._last:
            error = ErrorCode.INVALID_TXN_STATE
        return EndTxnResponse(error_code=error)


class VirtualTransactionalFakes(TransactionalFakes, VirtualFakeCluster):
    """The same on virtual time."""


def producing(
    fake: VirtualTransactionalFakes, work: Callable[[Any], Awaitable[T]], *, settings: Mapping[str, Any] | None = None
) -> T:
    """The result of `work(producer)`; `producer` is initialized."""

    async def body() -> T:
        made = Producer(
            bootstrap_servers=fake.bootstrap,
            environment=fake.environment,
            **{**QUICK_PRODUCER, "transactional_id": "x", **(settings or {})},
        )
        async with made as producer:
            await producer.init_transactions()
            return await work(producer)

    found: T = fake.run_to_end(body())
    return found


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)  # sleep: virtual


def values(fake: VirtualTransactionalFakes, partition: TopicPartition = P) -> list[bytes | None]:
    return [record.value for record in fake.logs[partition].records()]
