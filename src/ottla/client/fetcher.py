"""Reads a range of offsets of one partition, batch by batch, with one fetch ahead."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from itertools import takewhile

from ottla.client.errors import BrokerError, ClientError, ClientTimeoutError, CorruptBatchError, OffsetOutOfRange
from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.client.named_rack import NamedRack
from ottla.client.offsets import offsets_at
from ottla.peer.cluster import FETCH, Cluster
from ottla.peer.fetch import FetchLimits, aborted_in, fetch_without_session, partitions_in
from ottla.peer.fetch_session import NO_LEADER_EPOCH, WantedFetch
from ottla.peer.model import READ_COMMITTED, READ_UNCOMMITTED
from ottla.records.batch import BatchHeader, check_crc, split_batches
from ottla.records.errors import BatchError
from ottla.records.upgrade import upgrade
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchResponse, PartitionData

log = logging.getLogger(__name__)

FETCH_MAX_BYTES = 4 * 1024 * 1024
"""Default limit of bytes per response; a single larger batch is still returned whole (KIP-74)."""


@dataclass(slots=True)
class FetchedBatches:
    """Whole batches with application records: the bytes, and the headers that locate the batches in them.

    `next_offset` is where reading continues; batches without application records may lie before it.
    """

    buffer: memoryview
    headers: list[BatchHeader]
    next_offset: int


class RangeFetcher:
    """Reads offsets `start` to `end` (exclusive): call `next` until it returns None; `close` then, or earlier.

    The first and the last batch may reach beyond the range: the caller has to skip records outside it. With
    READ_COMMITTED the batches of aborted transactions are left out. With a `rack` it reads from the follower there that
    the leader names, if any (KIP-392), and from the leader again for a while when that one fails.
    """

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        fetch_max_bytes: int | None = None,
        isolation_level: int = READ_UNCOMMITTED,
        check_crcs: bool = True,
        rack: str = "",
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._position = start
        self._end = end
        self._limits = FetchLimits(fetch_max_bytes or FETCH_MAX_BYTES, isolation_level=isolation_level)
        self._check_crcs = check_crcs
        self._rack = NamedRack(rack, cluster.settings.metadata_max_age_ms)
        self._follower: int | None = None
        self._follow_until_ms = 0.0
        self._next: asyncio.Task[FetchedBatches | None] | None = None

    async def next(self) -> FetchedBatches | None:
        """Return the next batches, None at the end of the range.

        Raises OffsetOutOfRange if the position is not in the log, CorruptBatchError, ClientTimeoutError if the
        end of the range is not written in time, and errors of `Cluster.retry`.
        """
        patience_ms = self._cluster.settings.default_api_timeout_ms
        deadline = self._cluster.clock.monotonic_ms() + patience_ms
        while self._position < self._end:
            fetched = await self._take()
            if fetched is not None:
                self._position = fetched.next_offset
                if self._position < self._end:
                    self._next = asyncio.create_task(self._fetch(self._position))
                fetched.headers = [each for each in fetched.headers if self._has_records(each)]
                if fetched.headers:
                    return fetched
            elif self._cluster.clock.monotonic_ms() >= deadline:
                raise ClientTimeoutError(
                    f"{self._partition} had no records from offset {self._position} up to {self._end} within "
                    f"{patience_ms} ms"
                )
        return None

    async def close(self) -> None:
        """Cancel the fetch in flight, if any."""
        task, self._next = self._next, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def give_up(self) -> None:
        """Same as `close`, without waiting for its end."""
        task, self._next = self._next, None
        if task is not None:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # or asyncio would log it
            task.cancel()

    async def _take(self) -> FetchedBatches | None:
        task, self._next = self._next, None
        if task is None:
            return await self._fetch(self._position)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _fetch(self, position: int) -> FetchedBatches | None:
        what = f"reading {self._partition} from offset {position}"
        data = await self._cluster.retry(what, lambda: self._ask(position))
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise await out_of_range(self._cluster, self._partition, position)
        if not data.records:
            return None
        try:
            buffer, headers = batches_from(memoryview(data.records), position)
        except BatchError as error:
            raise damaged(what, error) from error
        if self._check_crcs:
            headers, first = list(takewhile(lambda header: check_crc(buffer, header), headers)), headers[0]
            if not headers:
                raise CorruptBatchError(
                    f"{what}: the batch at offset {first.base_offset} has a wrong checksum; read from offset "
                    f"{first.next_offset} on to leave it out"
                )
        if self._limits.isolation_level != READ_COMMITTED:
            return FetchedBatches(buffer, headers, headers[-1].next_offset)
        from ottla.client.consumer.aborted import committed_batches  # the consumer's package, which others do not need

        try:
            committed, looked_at = committed_batches(buffer, headers, aborted_in(data))
        except BatchError as error:
            raise damaged(what, error) from error
        return FetchedBatches(buffer, committed, headers[looked_at - 1].next_offset)

    async def _ask(self, position: int) -> PartitionData:
        cluster = self._cluster
        while True:
            now_ms = cluster.clock.monotonic_ms()
            if self._follower is not None and now_ms < self._follow_until_ms:
                data = await self._ask_follower(self._follower, position)
                if data is not None:
                    return data
            rack = self._rack.at(now_ms)
            data, _ = await ask_leader(cluster, self._partition, position, self._limits, rack=rack)
            if data.preferred_read_replica < 0 or not rack:
                return data
            self._follower = data.preferred_read_replica
            self._follow_until_ms = now_ms + cluster.settings.metadata_max_age_ms

    async def _ask_follower(self, follower: int, position: int) -> PartitionData | None:
        """Its answer; None where it has none or an error: the leader must be asked, which knows better."""
        try:
            data = await _ask(self._cluster, follower, self._partition, position, self._limits)
        except ClientError as error:
            log.debug("%s is read from its leader: %s", self._partition, error)
        else:
            if data.error_code == ErrorCode.NONE:
                self._rack.served()
                return data
        self._follower = None
        self._rack.failed(self._cluster.clock.monotonic_ms())
        return None

    def _has_records(self, header: BatchHeader) -> bool:
        return header.records_count != 0 and not header.is_control and header.base_offset < self._end


def batches_from(data: memoryview, position: int) -> tuple[memoryview, list[BatchHeader]]:
    """Return the bytes of a response in format 2, and the headers of the whole batches in them from `position` on.

    They end before the first malformed one: the next fetch begins with it. Raises BatchError if that is the first one,
    or if no batch is found.
    """
    buffer = upgrade(data, intact_only=True)
    headers: list[BatchHeader] = []
    for header in split_batches(buffer, partial_tail=True, intact_only=True):
        if header.last_offset_delta < 0:
            if not headers:
                raise BatchError(f"the batch at offset {header.base_offset} ends before it begins")
            break
        if header.next_offset > position:
            headers.append(header)
    if not headers:
        raise BatchError(f"the broker sent {len(data)} bytes without a whole batch at that offset")
    return buffer, headers


def damaged(what: str, error: BatchError) -> CorruptBatchError:
    """The error for an answer that begins with bytes from which nothing can be read, so that their end is not known."""
    return CorruptBatchError(
        f"{what}: {error}; continue behind that batch: ottla log verify shows where the next one begins"
    )


async def ask_leader(
    cluster: Cluster, partition: TopicPartition, position: int, limits: FetchLimits, *, rack: str = ""
) -> tuple[PartitionData, int]:
    """Return the leader's response to one fetch without a session, and the leader's id.

    OFFSET_OUT_OF_RANGE is left to the caller; any other error is raised as BrokerError, by which `Cluster.retry` knows
    whether to look for another leader.
    """
    leader = await cluster.leader(partition)
    return await _ask(cluster, leader, partition, position, limits, rack), leader


async def _ask(
    cluster: Cluster, node_id: int, partition: TopicPartition, position: int, limits: FetchLimits, rack: str = ""
) -> PartitionData:
    wanted = {partition: WantedFetch(position, NO_LEADER_EPOCH, limits.max_bytes)}
    answer: FetchResponse = await cluster.request(
        node_id, fetch_without_session(wanted, limits, rack=rack), purpose=FETCH
    )
    context = f"{partition} cannot be read from broker {node_id}"
    if answer.error_code != ErrorCode.NONE:
        raise BrokerError(answer.error_code, context)
    for _, data in partitions_in(answer):
        if data.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise BrokerError(data.error_code, context)
        return data
    raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{context}: its answer leaves the partition out")


async def out_of_range(cluster: Cluster, partition: TopicPartition, position: int) -> OffsetOutOfRange:
    """Return the error for a position that is not in the log, with the log's first and end offset."""
    earliest = await offsets_at(cluster, [partition], EARLIEST)
    latest = await offsets_at(cluster, [partition], LATEST)
    return OffsetOutOfRange(*partition, position, earliest[partition], latest[partition])
