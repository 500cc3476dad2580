"""One partition that this broker holds a replica of: its role, how far it is committed, and who waits for its data."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.replicas.awaited import AwaitedOffsets, Committed
from ottla.broker.replicas.leader import Leader
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.replicas.purgatory import DelayedFetch
    from ottla.cluster.image import PartitionImage
    from ottla.storage.log import PartitionLog

#: The client does not know the leader epoch; a replica that has had no role yet has none.
NO_EPOCH = -1


class Partition:
    """A replica of one partition. It is made without a role; `lead`, `follow` and `end_role` change that.

    It alone moves the high watermark, which its log keeps for whoever reads, deletes and checkpoints. Requests that
    wait are bound to the role and leader epoch they began in (`term` counts these), and end when they change.
    """

    __slots__ = (
        "committed",
        "forced",
        "forced_to",
        "index",
        "is_internal",
        "leader",
        "leader_epoch",
        "loaded_end_offset",
        "log",
        "own_end",
        "reported_ms",
        "term",
        "topic",
        "topic_id",
        "waiting",
    )

    def __init__(self, topic: str, topic_id: UUID, index: int, log: PartitionLog, is_internal: bool) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.is_internal = is_internal
        #: Where the log ended when it was opened: what is behind it was appended since.
        self.loaded_end_offset = log.log_end_offset
        #: What it knows as leader; None while it does not lead.
        self.leader: Leader | None = None
        #: Of the leader, be it this broker or another. In memory only: a start begins without one.
        self.leader_epoch = NO_EPOCH
        #: Counts roles and leader epochs.
        self.term = 0
        #: How far this replica's own records count: the log's end, or what of it is on the disk where appends wait.
        self.own_end = 0
        #: Appends below it count only once they are on the disk, however long that takes.
        self.forced_to = 0
        #: Who waits for records to be committed, and for this replica's own to be on the disk where they must be.
        self.committed = AwaitedOffsets()
        self.forced = AwaitedOffsets()
        self.waiting: set[DelayedFetch] = set()
        #: When trouble with the log was last reported.
        self.reported_ms: int | None = None

    # -- roles

    def lead(self, state: PartitionImage, own_end: int) -> None:
        """Lead in `state.leader_epoch`, which begins at the log's end; of an epoch led already, nothing changes.

        `own_end` is how far the log counts as it is now.
        """
        log = self.log
        if self.leader is not None and self.leader_epoch == state.leader_epoch:
            return
        log.assign_leader_epoch(state.leader_epoch)
        self._begin_term(state.leader_epoch)
        # No other broker fetches from this one: until then the replicas elsewhere are not in sync.
        in_sync = (state.leader,)
        self.leader = Leader(state.leader, state.leader_epoch, state.replicas, in_sync, log.log_end_offset)
        self.own_end = own_end
        self.advance(0)

    def follow(self, state: PartitionImage) -> None:
        """Follow `state.leader` in `state.leader_epoch`; of an epoch followed already, nothing changes."""
        if self.leader is None and self.leader_epoch == state.leader_epoch:
            return
        self._begin_term(state.leader_epoch)

    def end_role(self, error: ErrorCode) -> None:
        """Neither lead nor follow any more: who waits gets `error`."""
        self._begin_term(self.leader_epoch, error)

    def _begin_term(self, leader_epoch: int, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        self.leader = None
        self.leader_epoch = leader_epoch
        self.term += 1
        self.committed.fail(error)
        self.forced.fail(error)
        for waiting in list(self.waiting):
            waiting.complete()

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Fencing by leader epoch (KIP-320); -1 means that the client does not know it."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_leads(self, current_leader_epoch: int) -> ErrorCode:
        """The same, for what the leader alone may do."""
        error = self.check_epoch(current_leader_epoch)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if error is ErrorCode.NONE and self.leader is None else error

    # -- how far it is committed

    @property
    def knows_its_end(self) -> bool:
        """Whether the high watermark has reached the start of the leader epoch: before that a client could be given an
        end that lies before what it has seen (KIP-207).
        """
        return self.leader is not None and self.log.high_watermark >= self.leader.start_offset

    def visible_end(self, isolation_level: int) -> int:
        """The offset that a consumer may read up to: the high watermark, or what is stable when `read_committed`."""
        return self.log.last_stable_offset if isolation_level == 1 else self.log.high_watermark

    def advance(self, size: int) -> None:
        """As leader, move the high watermark as far as it may go; `size` more bytes can be read then."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        before = log.high_watermark
        reached = leader.high_watermark(before, self.own_end, log.config.min_insync_replicas)
        if reached > before and log.update_high_watermark(reached) > before:
            self.committed.reached(log.high_watermark)
            self.wake(size)

    def learn_high_watermark(self, offset: int) -> None:
        """As follower, take over the leader's high watermark, as far as this log reaches."""
        log = self.log
        before = log.high_watermark
        if log.update_high_watermark(offset) > before:
            self.wake(0)

    def wake(self, size: int) -> None:
        """Notify the fetches that wait that there are `size` more bytes to read."""
        for waiting in list(self.waiting):
            waiting.grown(size)

    def when_committed(self, offset: int, done: Committed) -> None:
        """Call `done` once the record at `offset` is committed; at once where it is, or where this is no leader."""
        if self.leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.log.high_watermark > offset:
            done(ErrorCode.NONE)
        else:
            self.committed.add(offset, done)
