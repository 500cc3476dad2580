"""The simple consumer: no group, no positions, no background work.

    async with SimpleConsumer(bootstrap_servers="broker1:9092,broker2:9092") as consumer:
        offset = await consumer.earliest_or_latest_offset("clicks", 0, EARLIEST)
        while True:
            fetched = await consumer.fetch("clicks", 0, offset)
            for record in fetched.records: ...
            offset = fetched.next_offset

Each call is complete in itself; the caller keeps the offsets, and may read any range repeatedly. The consumer
finds a live broker among the bootstrap servers, asks it for each partition's leader, and finds the new one
after a leader change.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self

from ottla.client.configs import parse_consumer_config
from ottla.client.consumer.completed_fetch import CompletedFetch, Decoding
from ottla.client.consumer.subscription_state import PartitionState
from ottla.client.errors import ClientError
from ottla.client.fetcher import ask_leader, out_of_range
from ottla.client.model import EARLIEST, LATEST, NO_OFFSET, Node
from ottla.client.offsets import find_offsets
from ottla.client.serialization import close_each, make_deserializers
from ottla.env.environment import Environment
from ottla.peer import arguments
from ottla.peer.cluster import Cluster
from ottla.peer.fetch import FetchLimits, aborted_in
from ottla.peer.model import READ_COMMITTED, READ_UNCOMMITTED
from ottla.records.consumed import ConsumerRecord
from ottla.records.type_variables import K, V
from ottla.wire.errors import ErrorCode


@dataclass(slots=True, frozen=True)
class PartitionLeader:
    """The leader of a partition. Replicas and in-sync replicas are brokers, in the order of the metadata."""

    leader: Node
    leader_epoch: int
    replicas: tuple[Node, ...]
    in_sync: tuple[Node, ...]


@dataclass(slots=True, frozen=True)
class FetchedRecords(Generic[K, V]):
    """The result of one fetch. `next_offset` is where to continue: after the last record, or after batches without any.

    `high_watermark` is the offset after the last record that consumers may see, `log_start_offset` the first one that
    is kept; `leader` is the id of the broker that responded.
    """

    records: list[ConsumerRecord[K, V]]
    next_offset: int
    high_watermark: int
    log_start_offset: int
    leader: int


class SimpleConsumer(Generic[K, V]):
    """Reads partitions, one fetch per call. For the tasks of one event loop, concurrently.

    Settings are those of consumers; those of groups, positions and sessions have no effect.
    `environment` is for simulations.
    """

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, *, environment: Environment | None = None, **settings: Any
    ) -> None:
        self.config = parse_consumer_config(config, settings)
        self._cluster = Cluster(self.config.client_settings, environment)
        self._read_committed = self.config.isolation_level == "read_committed"
        self._deserializers = make_deserializers(self.config)
        self._decoding = Decoding.of(self.config, self._deserializers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Closing twice is allowed."""
        await self._cluster.close()
        deserializers, self._deserializers = self._deserializers, []
        close_each(deserializers)

    async def find_leader(self, topic: str, partition: int) -> PartitionLeader:
        """Return the partition's leader and replicas, with fresh metadata from the first broker that responds.

        Raises UnknownTopicError, BrokerError for a partition that does not exist, ClientTimeoutError without a leader
        within `default.api.timeout.ms`, and connection errors if no broker is reachable.
        """
        wanted = arguments.partition((topic, partition))

        async def attempt() -> PartitionLeader:
            self._cluster.metadata.expire([topic])
            leader = await self._cluster.leader(wanted)
            nodes = self._cluster.metadata.nodes
            known = self._cluster.metadata.topics[topic].partitions[partition]
            return PartitionLeader(
                nodes[leader],
                known.leader_epoch,
                tuple(nodes.get(node_id, Node(node_id, "", -1)) for node_id in known.replicas),
                tuple(nodes.get(node_id, Node(node_id, "", -1)) for node_id in known.isr),
            )

        return await self._cluster.retry(f"finding the leader of {wanted}", attempt)

    async def earliest_or_latest_offset(self, topic: str, partition: int, at: int = LATEST) -> int:
        """Return the beginning offset (`EARLIEST`), or the end offset (`LATEST`), as visible to this consumer.

        For a timestamp in milliseconds, the offset of the first record with it or a later one, -1 if there is none.
        Raises the errors of `find_leader`.
        """
        at = arguments.whole_number(f"at: EARLIEST ({EARLIEST}), LATEST ({LATEST}) or a timestamp in ms", at, EARLIEST)
        wanted = arguments.partition((topic, partition))
        isolation_level = READ_COMMITTED if self._read_committed else READ_UNCOMMITTED
        found = (await find_offsets(self._cluster, {wanted: at}, isolation_level))[wanted]
        return NO_OFFSET if found is None else found.offset

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int | None = None,
        *,
        min_bytes: int | None = None,
        max_wait_ms: int | None = None,
    ) -> FetchedRecords[K, V]:
        """Fetch the records from `offset` on, as many as fit into `max_bytes` (one batch at least), from the leader.

        The broker waits up to `max_wait_ms` for `min_bytes`; there may be no records then. The limits default to
        those of the configuration (`max.partition.fetch.bytes`, `fetch.min.bytes`, `fetch.max.wait.ms`).
        Raises OffsetOutOfRange (with the valid offsets) if the offset is not in the log, CorruptBatchError,
        RecordDeserializationError if it concerns the first record, and the errors of `find_leader`.
        """
        wanted = arguments.partition((topic, partition))
        offset = arguments.whole_number(f"the offset of {wanted} (see also earliest_or_latest_offset)", offset)
        config = self.config
        limits = FetchLimits(
            _limit("max_bytes", max_bytes, config.max_partition_fetch_bytes),
            _limit("min_bytes", min_bytes, config.fetch_min_bytes),
            _limit("max_wait_ms", max_wait_ms, config.fetch_max_wait_ms),
            READ_COMMITTED if self._read_committed else READ_UNCOMMITTED,
        )
        data, leader = await self._cluster.retry(
            f"reading {wanted} from offset {offset}", lambda: ask_leader(self._cluster, wanted, offset, limits)
        )
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise await out_of_range(self._cluster, wanted, offset)
        records: list[ConsumerRecord[K, V]] = []
        next_offset = offset
        if data.records:
            fetch = CompletedFetch(
                wanted, PartitionState(), 0, offset, memoryview(data.records), self._decoding, aborted_in(data)
            )
            records, next_offset = _all_of(fetch)
        return FetchedRecords(records, next_offset, data.high_watermark, data.log_start_offset, leader)


def _limit(what: str, value: int | None, default: int) -> int:
    return default if value is None else arguments.whole_number(what, value, 0, arguments.MAX_INT32)


def _all_of(fetch: CompletedFetch) -> tuple[list[ConsumerRecord[Any, Any]], int]:
    """Return the records up to the first unreadable one, and the next offset; raises its error if it is the first."""
    records: list[ConsumerRecord[Any, Any]] = []
    try:
        while not fetch.is_drained:
            if fetch.error is not None:
                raise fetch.error
            records += fetch.take(sys.maxsize)
    except ClientError:
        if not records:
            raise
    return records, fetch.position
