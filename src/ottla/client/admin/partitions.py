"""Offsets of partitions, and deletion of their oldest records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from ottla.client.admin.model import ActiveProducer
from ottla.client.admin.outcomes import AdminCalls
from ottla.client.model import LATEST, MAX_TIMESTAMP, OffsetAndTimestamp, TopicPartition, by_topic
from ottla.client.offsets import list_offsets_request
from ottla.peer import arguments
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from ottla.wire.messages.list_offsets import ListOffsetsPartitionResponse

HIGH_WATERMARK = LATEST
"""Special offset: delete all records."""
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
WITH_MAX_TIMESTAMP = (7, 9)
"""Versions of ListOffsets that know MAX_TIMESTAMP (KIP-734)."""


ALL_RECORDS = -1
"""In the place of an offset to delete records up to."""


class PartitionAdmin(AdminCalls):
    """Admin calls about partitions."""

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: all); returns each partition's new log start offset.

        Raises BrokerError (OFFSET_OUT_OF_RANGE above the high watermark, POLICY_VIOLATION for a compacted
        topic), UnknownTopicError, PartlyFailedError for several partitions.
        """
        wanted = _named("offset", offsets, ALL_RECORDS)

        async def ask(leader: int, pending: list[TopicPartition]) -> Any:
            each_wanted = {
                each: DeleteRecordsPartition(partition_index=each.partition, offset=wanted[each]) for each in pending
            }
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=each) for name, each in by_topic(each_wanted).items()],
                timeout_ms=self._cluster.settings.request_timeout_ms,
            )
            return await self._cluster.request(leader, request)

        def refusal(partition: TopicPartition) -> str:
            return f"records of {partition} below {wanted[partition]} are not deleted"

        low_watermark = attrgetter("low_watermark")
        return await self._ask_leaders("deleting records", wanted, ask, low_watermark, refusal, timeout_ms)

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: str = "read_uncommitted",
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the offset at EARLIEST, LATEST, MAX_TIMESTAMP, or of the first record at or after a timestamp (ms).

        Offset and timestamp are -1 if there is none. With "read_committed" LATEST is the last stable offset.
        Raises UnknownTopicError, BrokerError, PartlyFailedError for several partitions.
        """
        wanted = _named("timestamp", timestamps, MAX_TIMESTAMP)
        arguments.one_of("isolation_level", isolation_level, ISOLATION_LEVELS)

        async def ask(leader: int, pending: list[TopicPartition]) -> Any:
            request = list_offsets_request({each: wanted[each] for each in pending}, ISOLATION_LEVELS[isolation_level])
            versions = WITH_MAX_TIMESTAMP if any(wanted[each] == MAX_TIMESTAMP for each in pending) else None
            return await self._cluster.request(leader, request, versions=versions)

        def found(result: ListOffsetsPartitionResponse) -> OffsetAndTimestamp:
            return OffsetAndTimestamp(result.offset, result.timestamp, result.leader_epoch)

        return await self._ask_leaders("listing offsets", wanted, ask, found, "no offset of {}".format, timeout_ms)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Return the idempotent and transactional producers that the leaders of these partitions know (KIP-664).

        Raises UnknownTopicError, BrokerError, PartlyFailedError for several partitions.
        """
        wanted = dict.fromkeys(arguments.partitions(partitions))

        async def ask(leader: int, pending: list[TopicPartition]) -> Any:
            by_name = by_topic({each: each.partition for each in pending})
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_name.items()]
            )
            return await self._cluster.request(leader, request)

        def producers(result: PartitionResponse) -> list[ActiveProducer]:
            return [_producer(each) for each in result.active_producers]

        refusal = "the producers of {} are not described".format
        return await self._ask_leaders("describing producers", wanted, ask, producers, refusal, timeout_ms)


def _producer(state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )


def _named(what: str, values: Mapping[TopicPartition, int], least: int) -> dict[TopicPartition, int]:
    """Return the numbers by partition. Raises InvalidArgumentError for non-numbers and numbers below `least`."""
    numbers = arguments.by_partition(f"{what}s", values)
    return {each: arguments.whole_number(f"the {what} of {each}", value, least) for each, value in numbers.items()}
