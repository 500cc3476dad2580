"""Transactions that are open in partitions, and those of them that no coordinator will end.

Such a transaction hangs: readers of committed records wait behind it, and the log is not compacted beyond it. It is
found as by `kafka-transactions.sh find-hanging` (KIP-664), of any brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.client.admin.model import ActiveProducer, TransactionDescription
from ottla.client.admin.partitions import PartitionAdmin
from ottla.client.admin.transactions import TransactionAdmin
from ottla.client.errors import BrokerError, ClientError, PartlyFailedError
from ottla.client.model import LATEST, TopicPartition
from ottla.peer.cluster import Cluster
from ottla.wire.errors import ErrorCode

AT_ONCE = 1000
"""Partitions whose producers are asked for in one call."""
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States of a transactional id in which its coordinator will end the transaction, or waits for its producer."""


@dataclass(slots=True, frozen=True)
class OpenTransaction:
    """A transaction that is open in a partition, with what its coordinator has, where one knows the producer.

    `age_ms` counts from the producer's last batch. Committed records are read up to the last stable offset.
    """

    partition: TopicPartition
    producer: ActiveProducer
    age_ms: int | None
    coordinated: TransactionDescription | None
    last_stable_offset: int
    high_watermark: int

    @property
    def hangs(self) -> bool:
        """Whether no coordinator has it open."""
        return not _has_open(self.coordinated, self.partition)

    @property
    def transactional_id(self) -> str | None:
        """That of its producer."""
        return None if self.coordinated is None else self.coordinated.transactional_id

    @property
    def state(self) -> str | None:
        """That of its transactional id."""
        return None if self.coordinated is None else self.coordinated.state


@dataclass(slots=True)
class Search:
    """The transactions that were found, and why partitions could not be searched."""

    found: list[OpenTransaction] = field(default_factory=list)
    problems: dict[TopicPartition, ClientError] = field(default_factory=dict)


class OpenTransactions:
    """Searches partitions of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._partitions = PartitionAdmin(cluster)
        self._transactions = TransactionAdmin(cluster)

    async def hanging(self, partitions: Sequence[TopicPartition], older_than_ms: int) -> Search:
        """Find transactions that hang, whose producers' last batches are older than this. Raises ClientError."""
        search = Search()
        candidates: dict[TopicPartition, list[ActiveProducer]] = {}
        for at in range(0, len(partitions), AT_ONCE):
            for partition, producers in (await self._open_in(partitions[at : at + AT_ONCE], search)).items():
                if old := [each for each in producers if self._age_ms(each) > older_than_ms]:
                    candidates[partition] = old
        owners = await self._owners({each.producer_id for producers in candidates.values() for each in producers})
        hanging = {
            partition: [each for each in producers if not _has_open(owners.get(each.producer_id), partition)]
            for partition, producers in candidates.items()
        }
        # One may have ended since; then its coordinator has forgotten the partition for that reason.
        still_open = await self._open_in([each for each, producers in hanging.items() if producers], search)
        left = {
            partition: [each for each in hanging[partition] if _identity(each) in map(_identity, producers)]
            for partition, producers in still_open.items()
        }
        search.found = await self._shown(left, owners)
        return search

    async def find(
        self, partition: TopicPartition, *, start_offset: int | None = None, producer_id: int | None = None
    ) -> OpenTransaction | None:
        """The open transaction of a partition with this start or producer, None if there is none. ClientError."""
        producers = (await self._partitions.describe_producers([partition]))[partition]
        for each in _open(producers):
            if each.transaction_start_offset == start_offset or each.producer_id == producer_id:
                owners = await self._owners({each.producer_id})
                return (await self._shown({partition: [each]}, owners))[0]
        return None

    async def describe(
        self, names: Sequence[str]
    ) -> tuple[Mapping[str, TransactionDescription], Mapping[str, ClientError]]:
        """Return descriptions by transactional id, and the errors of those without. Raises ClientError."""
        try:
            return await self._transactions.describe_transactions(names), {}
        except PartlyFailedError as error:
            return error.values, error.errors
        except BrokerError as error:
            if len(names) > 1:
                raise
            return {}, {names[0]: error}

    async def _open_in(
        self, partitions: Sequence[TopicPartition], search: Search
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        if not partitions:
            return {}
        try:
            described: Mapping[TopicPartition, list[ActiveProducer]]
            described = await self._partitions.describe_producers(partitions)
        except PartlyFailedError as error:
            described = error.values
            search.problems |= error.errors
        except BrokerError as error:
            if len(partitions) > 1:
                raise
            described = {}
            search.problems[partitions[0]] = error
        return {partition: found for partition, producers in described.items() if (found := _open(producers))}

    async def _owners(self, producer_ids: Collection[int]) -> dict[int, TransactionDescription]:
        """Return the descriptions of the producers' transactional ids, by producer id. Raises ClientError."""
        if not producer_ids:
            return {}
        listed = await self._transactions.list_transactions(producer_ids=sorted(producer_ids))
        names = [each.transactional_id for each in listed]
        described, errors = await self.describe(names)
        for error in errors.values():
            if not isinstance(error, BrokerError) or error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise error
            # That id was forgotten since it was listed.
        return {each.producer_id: each for each in described.values()}

    async def _shown(
        self, open_in: Mapping[TopicPartition, Sequence[ActiveProducer]], owners: Mapping[int, TransactionDescription]
    ) -> list[OpenTransaction]:
        latest = dict.fromkeys((partition for partition, producers in open_in.items() if producers), LATEST)
        stable = await self._partitions.list_offsets(latest, isolation_level="read_committed") if latest else {}
        ends = await self._partitions.list_offsets(latest) if latest else {}
        return [
            OpenTransaction(
                partition,
                each,
                self._age_ms(each) if each.last_timestamp >= 0 else None,
                owners.get(each.producer_id),
                stable[partition].offset,
                ends[partition].offset,
            )
            for partition in sorted(latest)
            for each in open_in[partition]
        ]

    def _age_ms(self, producer: ActiveProducer) -> int:
        return max(0, self._cluster.clock.now_ms() - producer.last_timestamp)


def _open(producers: Iterable[ActiveProducer]) -> list[ActiveProducer]:
    return [each for each in producers if each.transaction_start_offset >= 0]


def _has_open(coordinated: TransactionDescription | None, partition: TopicPartition) -> bool:
    return coordinated is not None and coordinated.state in OPEN_STATES and partition in coordinated.partitions


def _identity(producer: ActiveProducer) -> tuple[int, int]:
    return producer.producer_id, producer.transaction_start_offset
