"""One partition that this broker holds a replica of: its log, its leadership, and who waits for its data."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.replicas.purgatory import DelayedFetch
    from ottla.storage.log import PartitionLog

#: The client does not know the leader epoch.
NO_EPOCH = -1
#: Called once: with NONE when a record is committed, with an error when it never will be, as far as is known.
Committed = Callable[[ErrorCode], None]


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
        "loaded_end_offset",
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
        #: The log's end when this broker took the partition up; what it has grown since is for the metrics.
        self.loaded_end_offset = log.log_end_offset
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
