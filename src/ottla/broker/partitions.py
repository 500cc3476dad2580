"""The partitions this broker hosts: their logs, their leadership, and who waits for their data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.flush_timer import FlushTimer
from ottla.config.topic import LONGEST
from ottla.storage.results import AppendRefusal
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.purgatory import DelayedFetch
    from ottla.storage.log import AppendInfo, PartitionLog

log = logging.getLogger("ottla.broker")

#: The client does not know the leader epoch.
NO_EPOCH = -1
#: Called once: with NONE when a record is committed, with an error when it never will be, as far as is known.
Committed = Callable[[ErrorCode], None]
#: The disk's trouble with a partition is told again after this long.
TELL_AGAIN_MS = 60_000


class Partition:
    """One hosted partition: its log, and the fetches that wait for it to grow."""

    __slots__ = (
        "_order",
        "_to_tell",
        "forced_to",
        "index",
        "is_internal",
        "isr_size",
        "leader_epoch",
        "log",
        "told_ms",
        "topic",
        "topic_id",
        "waiting",
    )

    def __init__(
        self, topic: str, topic_id: UUID, index: int, log: PartitionLog, leader_epoch: int, is_internal: bool
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_internal = is_internal
        #: In-sync replicas, this broker's own included.
        self.isr_size = 1
        self.waiting: set[DelayedFetch] = set()
        #: When the log was last told of a write that the disk refused.
        self.told_ms: int | None = None
        #: Appends below it are committed only once they are on the disk, however long that takes.
        self.forced_to = 0
        #: Heap of who waits for records to be committed: (offset, order, whom to tell).
        self._order = 0
        self._to_tell: list[tuple[int, int, Committed]] = []

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Fencing by leader epoch (KIP-320); -1 means that the client does not know it."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def visible_end(self, isolation_level: int) -> int:
        """The offset that a consumer may read up to: the high watermark, or what is stable when `read_committed`."""
        return self.log.last_stable_offset if isolation_level == 1 else self.log.high_watermark

    def wake(self, size: int) -> None:
        """Tell the fetches that wait that there are `size` more bytes to read."""
        for waiting in list(self.waiting):
            waiting.grown(size)

    def when_committed(self, offset: int, done: Committed) -> None:
        """Call `done` once the record at `offset` is committed; at once where it is."""
        if self.log.high_watermark > offset:
            done(ErrorCode.NONE)
            return
        self._order += 1
        heappush(self._to_tell, (offset, self._order, done))

    def tell_committed(self) -> None:
        """The high watermark has moved: tell who waited for it."""
        committed = self.log.high_watermark
        while self._to_tell and self._to_tell[0][0] < committed:
            heappop(self._to_tell)[2](ErrorCode.NONE)

    def tell_failed(self, error: ErrorCode) -> None:
        """What has not been committed will not be, as far as can be told."""
        waiting, self._to_tell = self._to_tell, []
        for _, _, done in waiting:
            done(error)


class PartitionSet:
    """All hosted partitions, by name and by topic id.

    With `flush_on_ack` every append, without it those that `flush.messages` asks for, count as committed only once
    they are on the disk: `flush` is asked to force the log (it may do so whenever it likes, for many appends at once),
    and `flushed` takes in the outcome.
    """

    def __init__(
        self,
        clock_now_ms: Callable[[], int],
        flush: Callable[[PartitionLog], None] = lambda log: None,
        flush_on_ack: bool = False,
        suspect: Callable[[PartitionLog], None] = lambda log: None,
    ) -> None:
        self.flush_timer = FlushTimer(clock_now_ms, flush)
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[UUID, dict[int, Partition]] = {}
        self._now_ms = clock_now_ms
        self._flush = flush
        self._flush_on_ack = flush_on_ack
        self._suspect = suspect
        #: Partitions that are this broker's and whose folder has failed.
        self._offline: dict[str, set[int]] = {}
        #: Partitions with appends that wait for the disk.
        self.held: set[Partition] = set()

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, or None where this broker does not host it."""
        partitions = self._by_name.get(topic)
        return partitions.get(index) if partitions is not None else None

    def get_by_id(self, topic_id: UUID, index: int) -> Partition | None:
        """The same by topic id."""
        partitions = self._by_id.get(topic_id)
        return partitions.get(index) if partitions is not None else None

    def hosts(self, topic: str | UUID, index: int) -> bool:
        """Whether a partition, whose topic is given by name or by id, is in service here."""
        found = self.get(topic, index) if isinstance(topic, str) else self.get_by_id(topic, index)
        return found is not None

    def missing(self, topic: str, index: int) -> ErrorCode:
        """What a client is told of a partition that is not here."""
        if index in self._offline.get(topic, ()):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def topics(self) -> list[str]:
        """The names of the topics that have partitions here, in service or not."""
        return list(dict.fromkeys((*self._by_name, *self._offline)))

    def indexes(self, topic: str) -> list[int]:
        """A topic's partitions here, in service or not."""
        return sorted((*self._by_name.get(topic, ()), *self._offline.get(topic, ())))

    def add(self, partition: Partition) -> None:
        """Host a partition."""
        self._by_name.setdefault(partition.topic, {})[partition.index] = partition
        self._by_id.setdefault(partition.topic_id, self._by_name[partition.topic])

    def remove_from(self, topic: str, first: int) -> list[Partition]:
        """Stop hosting a topic's partitions from `first` on; fetches that wait for them are completed, and will find
        them gone.
        """
        offline = {index for index in self._offline.pop(topic, ()) if index < first}
        if offline:
            self._offline[topic] = offline
        removed = [partition for index, partition in self._by_name.get(topic, {}).items() if index >= first]
        for partition in removed:
            self._remove(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return removed

    def take_offline(self, keys: Iterable[tuple[str, int]]) -> None:
        """The folder of these partitions has failed: whoever waits or asks for them is told so."""
        for topic, index in keys:
            self._offline.setdefault(topic, set()).add(index)
            partition = self.get(topic, index)
            if partition is not None:
                self._remove(partition, ErrorCode.KAFKA_STORAGE_ERROR)

    def _remove(self, partition: Partition, error: ErrorCode) -> None:
        partitions = self._by_name[partition.topic]
        del partitions[partition.index]
        if not partitions:
            del self._by_name[partition.topic]
            self._by_id.pop(partition.topic_id, None)
        self.held.discard(partition)
        partition.tell_failed(error)
        for waiting in list(partition.waiting):
            waiting.complete()

    def append(
        self, partition: Partition, records: memoryview, origin: int, *, records_checked: bool = False
    ) -> AppendInfo | AppendRefusal:
        """Append batches as leader and wake the fetches that wait for them, at once or when they are on the disk."""
        hosted = partition.log
        before = hosted.log_end_offset
        visible = hosted.high_watermark
        now_ms = self._now_ms()
        info = hosted.append(
            records,
            None,
            leader_epoch=partition.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            records_checked=records_checked,
        )
        if hosted.log_end_offset != before:
            if hosted.config.flush_ms != LONGEST:
                self.flush_timer.appended(hosted)
            if self._flush_on_ack or hosted.unflushed_records >= hosted.config.flush_messages:
                partition.forced_to = hosted.log_end_offset
                self.held.add(partition)
                hosted.update_high_watermark(visible)
                self._flush(hosted)
            elif partition in self.held:
                # What follows an append that waits can be committed only after it.
                hosted.update_high_watermark(visible)
            elif partition.waiting:
                partition.wake(len(records))
        if isinstance(info, AppendRefusal) and info.error is ErrorCode.KAFKA_STORAGE_ERROR:
            _tell(partition, info.message, now_ms)
            self._suspect(hosted)
        return info

    def read_failed(self, partition: Partition, message: str) -> None:
        """The disk did not give what was asked of it."""
        _tell(partition, message, self._now_ms())
        self._suspect(partition.log)

    def flushed(self, log: PartitionLog, size: int, error: BaseException | None) -> None:
        """Take in that a log was forced to the disk, `size` bytes of it, or could not be."""
        partition = self.get(log.topic, log.partition)
        if partition is None or partition.log is not log or partition not in self.held:
            return
        if error is not None:
            _tell(partition, str(error), self._now_ms())
            partition.tell_failed(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        reached = log.recovery_point
        if reached >= partition.forced_to:
            self.held.discard(partition)
            reached = log.log_end_offset
        before = log.high_watermark
        if log.update_high_watermark(max(before, reached)) > before:
            partition.tell_committed()
            partition.wake(size)


def _tell(partition: Partition, message: str, now_ms: int) -> None:
    """Tell the operator why a partition takes nothing, now and then and not for every request."""
    if partition.told_ms is None or now_ms - partition.told_ms >= TELL_AGAIN_MS:
        partition.told_ms = now_ms
        log.error("partition %s-%d refuses records: %s", partition.topic, partition.index, message)
