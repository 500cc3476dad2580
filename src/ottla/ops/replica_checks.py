"""Do the replicas of a partition hold the same batches? As `kafka-replica-verification.sh` asks, of any brokers.

Each replica is read with Kafka's replica id of debugging tools (-2), which any replica answers, from the latest start
of all of them to the high watermark at the beginning, or as far as a replica that lags has come. Offsets, leader epochs
and checksums of the batches are compared, a few hundred kilobytes of each replica at a time.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.errors import BrokerError, ClientError
from ottla.client.model import EARLIEST, TopicPartition
from ottla.client.offsets import list_offsets_request, offsets_in
from ottla.ops.cluster_status import ANY_REPLICA, NO_EPOCH, ClusterStatus, PartitionStatus
from ottla.peer.cluster import Cluster
from ottla.peer.errors import KNOWN_CODES
from ottla.peer.fetch import FetchLimits, fetch_without_session, partitions_in
from ottla.peer.fetch_session import WantedFetch
from ottla.records.batch import ATTRIBUTES_AT, LOG_OVERHEAD, MAGIC, SMALLEST_SIZE
from ottla.records.crc import crc32c
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.list_offsets import ListOffsetsResponse

CLEANUP_POLICY = "cleanup.policy"
"""The setting of a topic that says whether it is compacted, and its replicas may differ."""
FETCH_BYTES = 512 * 1024
"""Bytes of each replica in one request."""
AT_ONCE = 4
"""Partitions that are compared at the same time."""
MOST_EMPTY = 5
"""Answers without a batch after which a replica is taken to end there."""
FETCH_VERSIONS = (4, 12)
"""Versions of Fetch with record batches, and with the names of topics."""
_HEAD = struct.Struct(">qiib")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23


class BatchMark(NamedTuple):
    """The compared parts of a batch (of a message, in old formats): its offsets, leader epoch, checksum and size."""

    first_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    size_bytes: int

    def __str__(self) -> str:
        offsets = f"{self.first_offset}–{self.last_offset}"
        return f"{offsets} of epoch {self.leader_epoch}, {self.size_bytes} bytes, {self.crc:08x}"


@dataclass(slots=True)
class ReplicaCheck:
    """The result of one partition. `problems` are by broker: it does not answer, lags, or cannot be read.

    `difference` are the first batches that are not the same, by broker; None for one that has none there.
    """

    partition: TopicPartition
    brokers: tuple[int, ...]
    start_offset: int = 0
    end_offset: int = 0
    compared_bytes: int = 0
    problems: dict[int, str] = field(default_factory=dict)
    difference: dict[int, BatchMark | None] = field(default_factory=dict)
    #: Why batches are not compared: the topic is compacted.
    is_compacted: bool = False

    @property
    def is_same(self) -> bool:
        """Whether all replicas answered and hold the same."""
        return not self.problems and not self.difference


def batch_marks(data: bytes | memoryview) -> Iterator[BatchMark]:
    """The marks of all whole batches in fetched records. Checksums are worked out, not only read."""
    view = memoryview(data)
    position = 0
    while position + LOG_OVERHEAD + SMALLEST_SIZE <= len(view):
        first, length, epoch, magic = _HEAD.unpack_from(view, position)
        end = position + LOG_OVERHEAD + length
        if length < SMALLEST_SIZE or end > len(view):
            return
        if magic == MAGIC:
            (delta,) = _LAST_OFFSET_DELTA.unpack_from(view, position + _LAST_OFFSET_DELTA_AT)
            yield BatchMark(first, first + delta, epoch, crc32c(view[position + ATTRIBUTES_AT : end]), end - position)
        else:
            # A message of an old format has its checksum where a batch has its leader epoch.
            yield BatchMark(first, first, NO_EPOCH, epoch & 0xFFFFFFFF, end - position)
        position = end


class _Replica:
    """One replica being read."""

    def __init__(self, broker: int, offset: int, end: int) -> None:
        self.broker = broker
        self.offset = offset
        #: As far as it had come at the beginning.
        self.end = end
        self.marks: deque[BatchMark] = deque()
        self.empty_answers = 0


class ReplicaChecker:
    """Compares the replicas of partitions. `on_progress` is called with the bytes compared so far."""

    def __init__(
        self, cluster: Cluster, status: ClusterStatus, on_progress: Callable[[int], None] = lambda size: None
    ) -> None:
        self._cluster = cluster
        self._status = status
        self._on_progress = on_progress
        self._compared = 0

    async def check(self, partitions: Sequence[PartitionStatus]) -> list[ReplicaCheck]:
        """Compare these partitions, a few at a time; in their order. Raises ClientError."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(partition: PartitionStatus) -> ReplicaCheck:
            async with turns:
                return await self._check(partition)

        return list(await asyncio.gather(*(one(each) for each in partitions)))

    async def _check(self, status: PartitionStatus) -> ReplicaCheck:
        check = ReplicaCheck(status.partition, tuple(each.broker for each in status.replicas))
        topic = next(each for each in self._status.topics if each.name == status.partition.topic)
        policy = topic.configs.get(CLEANUP_POLICY)
        check.is_compacted = policy is not None and "compact" in (policy.value or "")
        if status.high_watermark is None:
            check.problems[status.leader] = "there is no leader that says how far the partition is committed"
            return check
        replicas = await self._begin(status, check)
        if not replicas:
            return check
        check.start_offset = max(each.offset for each in replicas)
        check.end_offset = min(status.high_watermark, *(each.end for each in replicas))
        for each in replicas:
            each.offset = check.start_offset
            if each.end < status.high_watermark:
                check.problems[each.broker] = (
                    f"it is behind: its log ends at {each.end}, before {status.high_watermark}"
                )
        if len(replicas) > 1 and not check.is_compacted:
            await self._compare(check, replicas)
        return check

    async def _begin(self, status: PartitionStatus, check: ReplicaCheck) -> list[_Replica]:
        """The replicas that answer, each with the start and end of its log."""
        found: list[_Replica] = []
        partition = status.partition
        for each in status.replicas:
            if each.log_end_offset is None or each.is_offline:
                check.problems[each.broker] = "its broker did not answer" if not each.is_offline else "it is offline"
                continue
            try:
                request = list_offsets_request({partition: EARLIEST}, replica_id=ANY_REPLICA)
                answer: ListOffsetsResponse = await self._cluster.request(each.broker, request)
                starts, failed = offsets_in(answer, each.broker, [partition])
                if partition in failed:
                    raise failed[partition]
            except ClientError as error:
                check.problems[each.broker] = str(error)
                continue
            start = starts.get(partition)
            found.append(_Replica(each.broker, start.offset if start is not None else 0, each.log_end_offset))
        return found

    async def _compare(self, check: ReplicaCheck, replicas: list[_Replica]) -> None:
        """Read all replicas side by side; end at the first difference."""
        position = check.start_offset
        while position < check.end_offset and len(replicas) > 1:
            wanting = [each for each in replicas if not each.marks]
            outcomes = await asyncio.gather(*(self._fetch(check, each) for each in wanting), return_exceptions=True)
            for each, outcome in zip(wanting, outcomes, strict=True):
                if isinstance(outcome, ClientError):
                    check.problems[each.broker] = str(outcome)
                    replicas.remove(each)
                elif isinstance(outcome, BaseException):
                    raise outcome
            while replicas and all(each.marks for each in replicas):
                heads = {each.broker: each.marks.popleft() for each in replicas}
                first = next(iter(heads.values()))
                if first.first_offset >= check.end_offset:
                    position = check.end_offset
                    break
                if len(set(heads.values())) > 1:
                    check.difference = dict(heads)
                    return
                position = first.last_offset + 1
                check.compared_bytes += first.size_bytes
                self._compared += first.size_bytes
            self._on_progress(self._compared)
            ended = [each for each in replicas if not each.marks and each.empty_answers >= MOST_EMPTY]
            if ended and len(ended) == len(replicas):
                return
            if ended and position < check.end_offset:
                check.difference = {each.broker: each.marks[0] if each.marks else None for each in replicas}
                return

    async def _fetch(self, check: ReplicaCheck, replica: _Replica) -> None:
        """Read the next batches of a replica. Raises ClientError."""
        wanted = {check.partition: WantedFetch(replica.offset, -1, FETCH_BYTES)}
        request = fetch_without_session(wanted, FetchLimits(FETCH_BYTES, max_wait_ms=100), replica_id=ANY_REPLICA)
        answer: FetchResponse = await self._cluster.request(replica.broker, request, versions=FETCH_VERSIONS)
        for _, data in partitions_in(answer):
            if data.error_code != ErrorCode.NONE:
                known = KNOWN_CODES.get(data.error_code)
                raise BrokerError(known if known is not None else data.error_code, f"offset {replica.offset}")
            # A batch that was read before may hold the offset.
            replica.marks.extend(
                each for each in batch_marks(data.records or b"") if each.last_offset >= replica.offset
            )
        replica.empty_answers = 0 if replica.marks else replica.empty_answers + 1
        if replica.marks:
            replica.offset = replica.marks[-1].last_offset + 1
