"""Offsets of partitions, and deletion of their oldest records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ottla.client.admin.model import ActiveProducer
from ottla.client.admin.outcomes import Outcomes
from ottla.client.errors import BrokerError
from ottla.client.model import LATEST, MAX_TIMESTAMP, OffsetAndTimestamp, TopicPartition, by_topic
from ottla.client.offsets import list_offsets_request
from ottla.peer import arguments
from ottla.peer.cluster import Cluster
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from ottla.wire.messages.list_offsets import ListOffsetsResponse

HIGH_WATERMARK = LATEST
"""Special offset: delete all records."""
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
WITH_MAX_TIMESTAMP = (7, 9)
"""Versions of ListOffsets that know MAX_TIMESTAMP (KIP-734)."""


ALL_RECORDS = -1
"""In the place of an offset to delete records up to."""


class PartitionAdmin:
    """Admin calls about partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: all); returns each partition's new log start offset.

        Raises BrokerError (OFFSET_OUT_OF_RANGE above the high watermark, POLICY_VIOLATION for a compacted
        topic), UnknownTopicError, PartlyFailedError for several partitions.
        """
        wanted = _named("offset", offsets, ALL_RECORDS)
        outcomes: Outcomes[TopicPartition, int] = Outcomes("deleting records", wanted)

        async def ask(leader: int, pending: list[TopicPartition]) -> None:
            each_wanted = {
                each: DeleteRecordsPartition(partition_index=each.partition, offset=wanted[each]) for each in pending
            }
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=each) for name, each in by_topic(each_wanted).items()],
                timeout_ms=self._cluster.settings.request_timeout_ms,
            )
            answer: DeleteRecordsResponse = await self._cluster.request(leader, request)
            for topic in answer.topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    if result.error_code == ErrorCode.NONE:
                        outcomes.succeed(partition, result.low_watermark)
                    else:
                        what = f"records of {partition} below {wanted[partition]} are not deleted"
                        outcomes.fail(partition, BrokerError(result.error_code, what))
            outcomes.check_answered(pending)

        return await outcomes.work_off(self._cluster, self._asking(outcomes, ask), timeout_ms)

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
        outcomes: Outcomes[TopicPartition, OffsetAndTimestamp] = Outcomes("listing offsets", wanted)

        async def ask(leader: int, pending: list[TopicPartition]) -> None:
            request = list_offsets_request({each: wanted[each] for each in pending}, ISOLATION_LEVELS[isolation_level])
            versions = WITH_MAX_TIMESTAMP if any(wanted[each] == MAX_TIMESTAMP for each in pending) else None
            answer: ListOffsetsResponse = await self._cluster.request(leader, request, versions=versions)
            for topic in answer.topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    if result.error_code == ErrorCode.NONE:
                        found = OffsetAndTimestamp(result.offset, result.timestamp, result.leader_epoch)
                        outcomes.succeed(partition, found)
                    else:
                        outcomes.fail(partition, BrokerError(result.error_code, f"no offset of {partition}"))
            outcomes.check_answered(pending)

        return await outcomes.work_off(self._cluster, self._asking(outcomes, ask), timeout_ms)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Return the idempotent and transactional producers that the leaders of these partitions know (KIP-664).

        Raises UnknownTopicError, BrokerError, PartlyFailedError for several partitions.
        """
        wanted = dict.fromkeys(arguments.partitions(partitions))
        outcomes: Outcomes[TopicPartition, list[ActiveProducer]] = Outcomes("describing producers", wanted)

        async def ask(leader: int, pending: list[TopicPartition]) -> None:
            by_name = by_topic({each: each.partition for each in pending})
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_name.items()]
            )
            answer: DescribeProducersResponse = await self._cluster.request(leader, request)
            for topic in answer.topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    if result.error_code == ErrorCode.NONE:
                        outcomes.succeed(partition, [_producer(each) for each in result.active_producers])
                    else:
                        what = f"the producers of {partition} are not described"
                        outcomes.fail(partition, BrokerError(result.error_code, what, result.error_message))
            outcomes.check_answered(pending)

        return await outcomes.work_off(self._cluster, self._asking(outcomes, ask), timeout_ms)

    def _asking(
        self,
        outcomes: Outcomes[TopicPartition, Any],
        ask: Callable[[int, list[TopicPartition]], Awaitable[None]],
    ) -> Callable[[list[TopicPartition]], Awaitable[None]]:
        """Return an attempt that asks each partition's leader."""

        async def attempt(pending: list[TopicPartition]) -> None:
            by_leader: dict[int, list[TopicPartition]] = {}
            topics = await self._cluster.each_topic(list(dict.fromkeys(each.topic for each in pending)))
            for each in pending:
                topic = topics[each.topic]
                if isinstance(topic, BrokerError):
                    outcomes.fail(each, topic)
                    continue
                try:
                    by_leader.setdefault(await self._cluster.leader(each), []).append(each)
                except BrokerError as error:  # no such partition, or no leader
                    outcomes.fail(each, error)
            await outcomes.ask_each(by_leader, ask)

        return attempt


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
