"""Transactions that hang in a partition: written past the coordinator, to a broker that does not verify."""

from __future__ import annotations

from typing import Final

from ottla.records.record import Record, encode_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.raw_client import PRODUCE_V, RawClient

UNVERIFIED: Final = {"transaction.partition.verification.enable": "false"}
"""The setting of such a broker (KIP-890)."""


def hang(port: int, topic: str, index: int, producer_id: int, epoch: int = 0, *, timestamp_ms: int) -> None:
    """Write one transactional record of a producer whose coordinator does not know of it."""
    batch = encode_batch(
        [Record(0, timestamp_ms, None, b"hangs")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
    request = ProduceRequest(transactional_id="past", acks=-1, timeout_ms=30_000, topic_data=[data])
    with RawClient(port) as client:
        answer = client.ask(request, ProduceResponse, PRODUCE_V)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
