"""The sync client for metadata, offsets and ranges of records, run in a thread.

    with Client("localhost:9092") as client:
        for records in client.read_range(TopicPartition("clicks", 0), 0, 1000):
            ...

A client belongs to the process that made it; forked workers make their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.client.admin.brokers import BrokerAdmin
from ottla.client.admin.model import BROKER_DEFAULT
from ottla.client.admin.topics import TopicAdmin
from ottla.client.errors import (
    ClientClosedError,
    ClientError,
    CorruptBatchError,
    PartlyFailedError,
    RecordTimestampError,
)
from ottla.client.fetcher import FetchedBatches, RangeFetcher
from ottla.client.group_offsets import GroupOffsets
from ottla.client.loop_thread import LoopThread
from ottla.client.model import TopicMetadata, TopicPartition
from ottla.client.offsets import end_of_epoch, offsets_at
from ottla.client.sync.blocking import SyncClient
from ottla.peer.cluster import Cluster
from ottla.peer.model import READ_COMMITTED, READ_UNCOMMITTED
from ottla.peer.settings import ConnectionSettings
from ottla.records.batch import BatchHeader
from ottla.records.errors import BatchError, TimestampRangeError
from ottla.records.extras import require_extra
from ottla.records.record import Record, decode_batch

if TYPE_CHECKING:
    import pyarrow

    from ottla.records.arrow import ArrowRows

__all__ = ["Client", "ClientError", "TopicPartition"]

ROWS_PER_BATCH = 10_000


class Client(SyncClient):
    """Connections to one cluster; every method may be called from any thread.

    `settings` are those of `ConnectionSettings`. All errors are `ClientError`s with cause and cure in their message.
    """

    def __init__(self, bootstrap_servers: str, client_id: str = "ottla", **settings: Any) -> None:
        self._cluster = Cluster(ConnectionSettings(bootstrap_servers, client_id, **settings))
        self._admin = TopicAdmin(self._cluster)
        self._groups: dict[str, GroupOffsets] = {}
        self._thread = LoopThread(f"{client_id}-client", self._cluster.close)

    def topics(self, pattern: str | None = None) -> list[str]:
        """Return the names of all topics except internal ones; with `pattern`, those that it matches in full."""
        return self._run(self._admin.list_topics, pattern)

    def describe_topics(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        """Return partitions, leaders and replicas of these topics. Raises UnknownTopicError if one does not exist."""
        try:
            return self._run(self._admin.describe_topics, names)
        except PartlyFailedError as error:
            raise next(iter(error.errors.values())) from error

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return the partitions of these topics. Raises UnknownTopicError if one does not exist."""
        described = self.describe_topics(topics)
        return {name: [each.partition for each in topic.partitions] for name, topic in described.items()}

    def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and return when it can be used. Raises TopicExistsError if it exists already."""
        self._run(self._admin.create_topic, name, partitions, replication_factor, config)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises UnknownTopicError if it does not exist."""
        self._run(self._admin.delete_topic, name)

    def offsets_at(
        self, partitions: Sequence[TopicPartition], at: int, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return each partition's offset at `model.EARLIEST`, `LATEST`, or a timestamp (ms; -1: no record as late).

        With `read_committed` LATEST is the last stable offset, where the first open transaction begins.
        """
        isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        return self._run(offsets_at, self._cluster, partitions, at, isolation_level)

    def end_of_epoch(self, partition: TopicPartition, epoch: int) -> tuple[int, int]:
        """Return the leader's largest epoch that is at most `epoch`, and the offset where it ends; -1, -1 if none."""
        return self._run(end_of_epoch, self._cluster, partition, epoch)

    def partition_sizes(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the bytes of each partition's largest replica on a broker; 0 if no broker has it."""
        sizes = dict.fromkeys(partitions, 0)
        for log_dirs in self._run(BrokerAdmin(self._cluster).describe_log_dirs).values():
            for log_dir in log_dirs.values():
                for each in sizes.keys() & log_dir.replicas.keys():
                    sizes[each] = max(sizes[each], log_dir.replicas[each].size_bytes)
        return sizes

    def committed(
        self, group: str, partitions: Sequence[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the group's committed offsets, -1 where there is none."""
        return self._run(self._group(group).fetch, partitions, timeout_ms)

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str = "",
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets for a group without members. Raises ClientTimeoutError after `timeout_ms` milliseconds."""
        self._run(self._group(group).commit, offsets, metadata, timeout_ms)

    def _group(self, group: str) -> GroupOffsets:
        return self._groups.setdefault(group, GroupOffsets(self._cluster, group))

    def read_range(
        self, partition: TopicPartition, start: int, end: int, fetch_max_bytes: int | None = None
    ) -> Iterator[list[Record]]:
        """Yield the records from offset `start` to `end` (exclusive), batch by batch, with prefetching.

        Raises OffsetOutOfRange if `start` is not in the log (any more).
        """
        for fetched in self._fetch(partition, start, end, {"fetch_max_bytes": fetch_max_bytes}):
            for header in fetched.headers:
                try:
                    records = decode_batch(fetched.buffer, header)
                except BatchError as error:
                    raise _corrupt(partition, header, error) from error
                if header.base_offset < start or header.next_offset > end:
                    records = [record for record in records if start <= record.offset < end]
                if records:
                    yield records

    def read_range_arrow(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        rows_per_batch: int = ROWS_PER_BATCH,
        fetch_max_bytes: int | None = None,
        include_headers: bool = False,
        *,
        timestamp_unit: str | None = "us",
        bytes_per_batch: int | None = None,
        read_committed: bool = False,
        check_crcs: bool = True,
        rack: str = "",
    ) -> Iterator[pyarrow.RecordBatch]:
        """Same, as Arrow record batches of at most `rows_per_batch` rows (columns: `records.arrow.arrow_schema`).

        A batch has fewer rows once its records have `bytes_per_batch` bytes (by default 64 MiB).
        `read_committed` leaves out the records of aborted transactions, and needs an `end` that is not beyond the last
        stable offset. With a `rack`, records are read from a replica there if the cluster names one (KIP-392). Where
        reading fails (OffsetOutOfRange, CorruptBatchError, …), what came before it is yielded ahead of the error.
        Raises RecordTimestampError at a record whose timestamp microseconds cannot hold; with the `timestamp_unit` "ms"
        there is none such, and None leaves the column out.
        """
        from ottla.records.arrow import MAX_ROWS_BYTES, ArrowRows

        require_extra("reading Arrow", "arrow", "pyarrow")
        rows = ArrowRows(
            *partition,
            start,
            end,
            rows_per_batch=rows_per_batch,
            bytes_per_batch=bytes_per_batch or MAX_ROWS_BYTES,
            include_headers=include_headers,
            timestamp_unit=timestamp_unit,
        )
        isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        settings = {
            "fetch_max_bytes": fetch_max_bytes,
            "isolation_level": isolation_level,
            "check_crcs": check_crcs,
            "rack": rack,
        }
        failed: ClientError | None = None
        try:
            try:
                for fetched in self._fetch(partition, start, end, settings):
                    yield from _rows_of(partition, fetched, rows)
            except ClientError as error:
                failed = error
            yield from rows.take()
        except TimestampRangeError as error:
            cure = f"read it with timestamp_unit='ms' or None, or from offset {error.offset + 1} on"
            raise RecordTimestampError(partition, error.offset, error.timestamp, cure) from error
        if failed is not None:
            raise failed

    def _fetch(
        self, partition: TopicPartition, start: int, end: int, settings: Mapping[str, Any]
    ) -> Iterator[FetchedBatches]:
        fetcher = RangeFetcher(self._cluster, partition, start, end, **settings)
        try:
            while (fetched := self._run(fetcher.next)) is not None:
                yield fetched
        finally:
            # If the generator is dropped, this runs in the thread that collects it, maybe long after `close`.
            with suppress(ClientClosedError):
                self._thread.call(fetcher.give_up)


def _rows_of(partition: TopicPartition, fetched: FetchedBatches, rows: ArrowRows) -> Iterator[pyarrow.RecordBatch]:
    """Add what was fetched to `rows`, and yield them whenever they are full."""
    for header in fetched.headers:
        try:
            rows.add(fetched.buffer, header)
        except BatchError as error:
            raise _corrupt(partition, header, error) from error
        if rows.full:
            yield from rows.take()


def _corrupt(partition: TopicPartition, header: BatchHeader, error: BatchError) -> CorruptBatchError:
    return CorruptBatchError(
        f"the batch at offset {header.base_offset} of {partition} cannot be read ({error}); read from offset "
        f"{header.next_offset} on to leave it out"
    )
