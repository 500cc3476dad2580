"""One partition of which this broker holds a replica: its role, its high watermark, and the requests that wait."""

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

#: An unknown leader epoch: the client does not know it, or the replica has had no role yet.
NO_EPOCH = -1


class Partition:
    """A replica of one partition. It is created without a role; `lead`, `follow` and `end_role` change that.

    It alone moves the high watermark, which its log keeps for reads, deletion and checkpoints. Requests that
    wait are bound to the role and leader epoch in which they began (`term` counts these), and end when they change.
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
        #: The log end offset when it was opened: later records were appended since.
        self.loaded_end_offset = log.log_end_offset
        #: The state as leader; None while this replica does not lead.
        self.leader: Leader | None = None
        #: The current leader epoch, of this or another leader. In memory only: unknown after a start.
        self.leader_epoch = NO_EPOCH
        #: Number of changes of role or leader epoch.
        self.term = 0
        #: The end of the replica's own records that count: the log end, or the flushed end while appends wait for it.
        self.own_end = 0
        #: Appends below this offset count only once they are on the disk.
        self.forced_to = 0
        #: `committed` waits for the high watermark, `forced` for this replica's own records to be on the disk.
        self.committed = AwaitedOffsets()
        self.forced = AwaitedOffsets()
        self.waiting: set[DelayedFetch] = set()
        #: When an error of the log was last logged.
        self.reported_ms: int | None = None

    # -- roles

    def lead(self, state: PartitionImage, own_end: int) -> None:
        """Become leader in `state.leader_epoch`, which starts at the log end; no effect if it leads in it already.

        `own_end` is the end of the records that count now.
        """
        log = self.log
        if self.leader is not None and self.leader_epoch == state.leader_epoch:
            return
        log.assign_leader_epoch(state.leader_epoch)
        self._begin_term(state.leader_epoch)
        # No other broker fetches from this one yet, so other replicas are not in sync.
        in_sync = (state.leader,)
        self.leader = Leader(state.leader, state.leader_epoch, state.replicas, in_sync, log.log_end_offset)
        self.own_end = own_end
        self.advance(0)

    def follow(self, state: PartitionImage) -> None:
        """Follow `state.leader` in `state.leader_epoch`; no effect if it follows in it already."""
        if self.leader is None and self.leader_epoch == state.leader_epoch:
            return
        self._begin_term(state.leader_epoch)

    def end_role(self, error: ErrorCode) -> None:
        """Stop leading or following; waiting requests fail with `error`."""
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
        """Check a client's leader epoch (KIP-320); -1 means that the client does not know it."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_leads(self, current_leader_epoch: int) -> ErrorCode:
        """As `check_epoch`, and this replica must be the leader."""
        error = self.check_epoch(current_leader_epoch)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if error is ErrorCode.NONE and self.leader is None else error

    # -- high watermark

    @property
    def knows_its_end(self) -> bool:
        """Whether the high watermark has reached the start of the leader epoch.

        Before that, a client could be given an end offset below records that it has already seen (KIP-207).
        """
        return self.leader is not None and self.log.high_watermark >= self.leader.start_offset

    def visible_end(self, isolation_level: int) -> int:
        """The end offset visible to a consumer: the high watermark, or with `read_committed` the last stable offset."""
        return self.log.last_stable_offset if isolation_level == 1 else self.log.high_watermark

    def advance(self, size: int) -> None:
        """As leader, advance the high watermark as far as possible, which makes `size` more bytes readable."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        before = log.high_watermark
        reached = leader.high_watermark(before, self.own_end, log.config.min_insync_replicas)
        if reached > before and log.update_high_watermark(reached) > before:
            self.committed.reached(log.high_watermark)
            self.wake(size)

    def learn_high_watermark(self, offset: int) -> None:
        """As follower, adopt the leader's high watermark, up to the end of this log."""
        log = self.log
        before = log.high_watermark
        if log.update_high_watermark(offset) > before:
            self.wake(0)

    def wake(self, size: int) -> None:
        """Notify waiting fetches of `size` more readable bytes."""
        for waiting in list(self.waiting):
            waiting.grown(size)

    def when_committed(self, offset: int, done: Committed) -> None:
        """Call `done` once the record at `offset` is committed; at once if it is, or if this replica does not lead."""
        if self.leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.log.high_watermark > offset:
            done(ErrorCode.NONE)
        else:
            self.committed.add(offset, done)
