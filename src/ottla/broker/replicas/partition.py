"""One partition of which this broker holds a replica: its role, its high watermark, and the requests that wait."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.broker.replicas.leader import Leader
from ottla.broker.replicas.traffic import TopicTraffic
from ottla.cluster.isr import UNKNOWN_BROKER_EPOCH
from ottla.config.topic import LONGEST
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.fetch_sessions import SessionPartition
    from ottla.broker.replicas.purgatory import DelayedFetch
    from ottla.cluster.image import PartitionImage
    from ottla.cluster.isr import IsAlive, IsrProposal
    from ottla.storage.log import PartitionLog

#: An unknown leader epoch: the client does not know it, or the replica has had no role yet.
NO_EPOCH = -1
#: More bytes than any fetch waits for.
ENOUGH = 2**62


def _any_is_alive(_broker_id: int) -> bool:
    return True


def _no_epoch_is_known(_broker_id: int) -> int:
    return UNKNOWN_BROKER_EPOCH


def _none_exists(_topic: str, _index: int) -> bool:
    return False


def _keep_proposal(_partition: Partition, _proposal: IsrProposal) -> None:
    """A leader without a controller keeps the proposal."""


class Replication:
    """Shared by the replicas of a broker: the allowed lag, the other brokers, the clock, the way to the controller."""

    __slots__ = (
        "epoch_of",
        "exists",
        "failed_isr_updates",
        "is_alive",
        "isr_expands",
        "isr_shrinks",
        "max_lag_ms",
        "monotonic_ms",
        "propose",
    )

    def __init__(
        self,
        monotonic_ms: Callable[[], float],
        max_lag_ms: float = LONGEST,
        is_alive: IsAlive = _any_is_alive,
        propose: Callable[[Partition, IsrProposal], None] = _keep_proposal,
        epoch_of: Callable[[int], int | None] = _no_epoch_is_known,
        exists: Callable[[str, int], bool] = _none_exists,
    ) -> None:
        self.monotonic_ms = monotonic_ms
        #: `replica.lag.time.max.ms`.
        self.max_lag_ms = max_lag_ms
        #: Whether the image has the broker.
        self.is_alive = is_alive
        #: Called with each proposed ISR; `Partition.isr_accepted` or `isr_refused` takes the outcome.
        self.propose = propose
        #: The epoch of a broker's registration; None if it is not registered, -1 if that is not known.
        self.epoch_of = epoch_of
        #: Whether the image has a partition.
        self.exists = exists
        #: Changes of ISRs that the controller has accepted, and proposals that failed.
        self.isr_expands = 0
        self.isr_shrinks = 0
        self.failed_isr_updates = 0


class Partition:
    """A replica of one partition. It is created without a role; `lead`, `follow` and `end_role` change that.

    It alone moves the high watermark, which its log keeps for reads, deletion and checkpoints. Requests that
    wait are bound to the role and leader epoch in which they began (`term` counts these), and end when they change.
    Only appends and deletions still wait where the same leader enters another epoch: its log is still the same.
    """

    __slots__ = (
        "committed",
        "deleted",
        "forced",
        "forced_to",
        "hidden_bytes",
        "index",
        "is_internal",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "own_end",
        "replication",
        "reported_committed_end",
        "reported_ms",
        "term",
        "topic",
        "topic_id",
        "traffic",
        "waiting",
        "waiting_followers",
        "watched_by",
    )

    def __init__(
        self, topic: str, topic_id: UUID, index: int, log: PartitionLog, is_internal: bool, replication: Replication
    ) -> None:
        self.replication = replication
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.is_internal = is_internal
        #: The counters that all partitions of the topic share.
        self.traffic = TopicTraffic()
        #: The state as leader; None while this replica does not lead.
        self.leader: Leader | None = None
        #: The leader's broker id, -1 for none; None while this replica neither leads nor follows.
        self.leader_id: int | None = None
        #: The current leader epoch, of this or another leader. In memory only: unknown after a start.
        self.leader_epoch = NO_EPOCH
        #: The highest high watermark that a leader has sent to this replica since the start.
        self.reported_committed_end = 0
        #: Number of changes of role or leader epoch.
        self.term = 0
        #: The end of the replica's own records that count: the log end, or the flushed end while appends wait for it.
        self.own_end = 0
        #: Bytes appended in this term beyond the high watermark: no request waits for earlier ones.
        self.hidden_bytes = 0
        #: Appends below this offset count only once they are on the disk.
        self.forced_to = 0
        #: `committed` waits for the high watermark, `forced` for this replica's own records to be on the disk.
        self.committed = AwaitedOffsets()
        self.forced = AwaitedOffsets()
        #: Waits for the low watermark: all live replicas have deleted what is below it.
        self.deleted = AwaitedOffsets()
        #: Fetches that wait: of consumers for visible records, of followers without sessions for any.
        self.waiting: dict[DelayedFetch, None] = {}
        self.waiting_followers: dict[DelayedFetch, None] = {}
        #: By follower: what its session has of this partition; it is notified of changes.
        self.watched_by: dict[int, SessionPartition] = {}
        #: When an error of the log was last logged.
        self.reported_ms: int | None = None

    # -- roles

    def lead(self, state: PartitionImage, own_end: int, partition_epoch: int = 0) -> None:
        """Become leader in `state.leader_epoch`, which starts at the log end; no effect if it leads in it already.

        `own_end` is the end of the records that count now, `partition_epoch` the version of the state.
        """
        log = self.log
        if self.leader is not None and self.leader_epoch == state.leader_epoch:
            return
        former = self.leader
        log.assign_leader_epoch(state.leader_epoch)
        if former is None:
            self._begin_term(state.leader_epoch, state.leader)
        else:
            self._change_term(state.leader_epoch, state.leader)
        now_ms = self.replication.monotonic_ms()
        self.leader = Leader(state, partition_epoch, log.log_end_offset, now_ms, former)
        self.own_end = own_end
        self.advance()

    def follow(self, state: PartitionImage) -> None:
        """Follow `state.leader` in `state.leader_epoch`; no effect if it follows in it already."""
        if self.leader is None and self.leader_id is not None and self.leader_epoch == state.leader_epoch:
            return
        self._begin_term(state.leader_epoch, state.leader)

    def end_role(self, error: ErrorCode) -> None:
        """Stop leading or following; waiting requests fail with `error`."""
        self._begin_term(self.leader_epoch, None, error)

    def _begin_term(
        self, leader_epoch: int, leader_id: int | None, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
    ) -> None:
        self._change_term(leader_epoch, leader_id)
        self.hidden_bytes = 0
        self.committed.fail(error)
        self.forced.fail(error)
        self.deleted.fail(error)

    def _change_term(self, leader_epoch: int, leader_id: int | None) -> None:
        self.leader = None
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.term += 1
        for waiting in (*self.waiting, *self.waiting_followers):
            waiting.complete()
        watched_by, self.watched_by = self.watched_by, {}
        for watching in watched_by.values():
            watching.changed()
            if watching.session is not None:
                for waiting in tuple(watching.session.waiting):
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

    def advance(self) -> None:
        """As leader, advance the high watermark as far as possible."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        before = log.high_watermark
        replication = self.replication
        reached = leader.high_watermark(
            before,
            self.own_end,
            log.log_end_offset,
            log.config.min_insync_replicas,
            replication.monotonic_ms(),
            replication.max_lag_ms,
            self._may_join,
        )
        if reached > before and log.update_high_watermark(reached) > before:
            self.committed.reached(log.high_watermark)
            self._show(before)
            self.changed()
            self._tell_read_replicas(leader)

    def _tell_read_replicas(self, leader: Leader) -> None:
        """Answer the waiting fetches of followers that consumers read from: these wait for the high watermark there.

        Others learn it with the next records, or when their fetch has waited long enough, as in Kafka.
        """
        for replica_id in leader.read_replicas(self.replication.monotonic_ms()) if leader.has_read_replicas else ():
            watching = self.watched_by.get(replica_id)
            if watching is not None and watching.session is not None:
                for waiting in tuple(watching.session.waiting):
                    waiting.grown(ENOUGH)

    def _may_join(self, replica_id: int) -> bool:
        """Whether a follower's broker is alive, and has fetched under its present registration (KIP-903).

        What it had before it was restarted, it may have lost.
        """
        assert self.leader is not None, "a leader asks about its followers"
        replication = self.replication
        if not replication.is_alive(replica_id):
            return False
        fetched_under = self.leader.replicas.followers[replica_id].broker_epoch
        registered = replication.epoch_of(replica_id)
        return UNKNOWN_BROKER_EPOCH in (fetched_under, registered) or fetched_under == registered

    def check_follower(
        self, replica_id: int, current_leader_epoch: int, broker_epoch: int = UNKNOWN_BROKER_EPOCH
    ) -> ErrorCode:
        """Whether a broker may fetch as a follower: this replica leads, and the broker has one, too.

        `broker_epoch` is that of its registration: a fetch that it sent before it was restarted is refused.
        """
        if self.leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if replica_id in self.leader.replicas.followers:
            registered = self.replication.epoch_of(replica_id)
            is_old = broker_epoch != UNKNOWN_BROKER_EPOCH and registered is not None and broker_epoch < registered
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_old else ErrorCode.NONE
        # One of the two has not heard of a reassignment yet.
        is_known = current_leader_epoch != NO_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if is_known else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def fetched(
        self,
        replica_id: int,
        offset: int,
        log_start_offset: int,
        now_ms: float,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """As leader, note that a follower has fetched at `offset`, so that it has everything below.

        Propose to add it to the ISR if it may join, and advance the high watermark. Its id is one of the replicas.
        """
        leader = self.leader
        if leader is None:
            return
        replicas = leader.replicas
        follower = replicas.followers[replica_id]
        before = follower.end_offset
        log = self.log
        follower.fetched(offset, log_start_offset, log.log_end_offset, now_ms, broker_epoch)
        if replica_id not in replicas.committed:
            proposal = replicas.expansion(replica_id, log.high_watermark, self._may_join)
            if proposal is not None:
                self.replication.propose(self, proposal)
        if offset != before:
            self.advance()
        if self.deleted:
            self.deleted.reached(self.low_watermark)

    @property
    def low_watermark(self) -> int:
        """As leader, the least start of the logs of this and all live replicas, -1 if that of one is not known yet."""
        leader = self.leader
        assert leader is not None, "a leader is asked"
        is_alive = self.replication.is_alive
        starts = [each.log_start_offset for id_, each in leader.replicas.followers.items() if is_alive(id_)]
        return min([self.log.log_start_offset, *starts])

    def check_lag(self, now_ms: float) -> None:
        """As leader, propose to remove the followers that lag from the ISR.

        Those that were about to join it may count no more for the high watermark: they lag, or are dead by now.
        """
        leader = self.leader
        if leader is not None and not leader.is_alone:
            self.advance()
            replication = self.replication
            if self.deleted:  # a follower that has died is not waited for
                self.deleted.reached(self.low_watermark)
            proposal = leader.replicas.shrink(self.log.log_end_offset, now_ms, replication.max_lag_ms)
            if proposal is not None:
                replication.propose(self, proposal)

    def isr_accepted(
        self, proposal: IsrProposal, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]
    ) -> bool:
        """Take over the ISR that the controller has answered with; False if the answer is out of date."""
        leader = self.leader
        before = leader.isr if leader is not None else frozenset()
        if leader is None or not leader.replicas.accepted(proposal, leader_epoch, partition_epoch, isr):
            return False
        self.replication.isr_expands += len(leader.isr) > len(before)
        self.replication.isr_shrinks += len(leader.isr) < len(before)
        self.changed()  # a follower that is not in the ISR is looked at in each fetch
        self.advance()
        return True

    def isr_refused(self, proposal: IsrProposal, error: int) -> bool:
        """Handle a proposal that failed; return whether to send it again.

        Once it is dropped, the replica that it would have added no longer holds the high watermark back. Nothing else
        may move it: the other followers may have everything, and producers wait for it before they send more.
        """
        leader = self.leader
        if leader is None:
            return False
        self.replication.failed_isr_updates += 1
        is_repeated = leader.replicas.refused(proposal, error)
        self.advance()
        return is_repeated

    def learn_high_watermark(self, offset: int) -> None:
        """As follower, adopt the leader's high watermark, up to the end of this log."""
        log = self.log
        before = log.high_watermark
        self.reported_committed_end = max(self.reported_committed_end, offset)
        if log.update_high_watermark(offset) > before:
            self._show(before)

    def _show(self, before: int) -> None:
        """Notify waiting fetches of the records from `before` to the high watermark.

        How many bytes these are is reckoned from their share of the records that were not visible.
        """
        log = self.log
        size = self.hidden_bytes * (log.high_watermark - before) // (log.log_end_offset - before)
        self.hidden_bytes -= size
        self.wake(max(size, 1))

    def wake(self, size: int) -> None:
        """Notify waiting fetches of `size` more readable bytes."""
        for waiting in list(self.waiting):
            waiting.grown(size)

    def wake_followers(self, size: int) -> None:
        """Notify the fetches of followers, those that wait and the next ones, of `size` more bytes."""
        for waiting in list(self.waiting_followers):
            waiting.grown(size)
        self.changed()
        for watching in self.watched_by.values():
            if watching.session is not None and not watching.is_held_back:
                for waiting in tuple(watching.session.waiting):
                    waiting.grown(size)

    # -- sessions of followers

    def watch(self, replica_id: int, watching: SessionPartition) -> None:
        """Tell this part of a follower's session of changes from now on, and no other of that follower."""
        former = self.watched_by.get(replica_id)
        if former is watching:
            return
        if former is not None:
            former.changed()
        self.watched_by[replica_id] = watching
        watching.replica = self

    def unwatch(self, watching: SessionPartition) -> None:
        """Tell this part of a session no more."""
        for replica_id, each in self.watched_by.items():
            if each is watching:
                del self.watched_by[replica_id]
                return

    def changed(self) -> None:
        """Have the next fetches of followers look at this partition: its end, high watermark, start or ISR changed.

        What a follower had when it last fetched, which is not noted in each fetch, is noted now.
        """
        leader = self.leader
        for replica_id, watching in self.watched_by.items():
            if watching.changed() and leader is not None and watching.session is not None:
                leader.replicas.followers[replica_id].had_all(watching.session.last_used_ms)

    def is_settled(self, replica_id: int) -> bool:
        """Whether the leader has nothing to do about a follower that has all records, before anything changes."""
        leader = self.leader
        return leader is not None and replica_id in leader.replicas.committed

    def when_committed(self, offset: int, done: Committed) -> None:
        """Call `done` once the record at `offset` is committed; at once if it is, or if this replica does not lead."""
        if self.leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.log.high_watermark > offset:
            done(ErrorCode.NONE)
        else:
            self.committed.add(offset, done)


#: Called once: with NONE when the record is committed, with an error if the wait has failed.
Committed = Callable[[ErrorCode], None]


class AwaitedOffsets:
    """Waiters by offset, those of one offset in order. There are at most as many as requests in work."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._order = 0
        self._heap: list[tuple[int, int, Committed]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, offset: int, done: Committed) -> None:
        """Call `done` once the record at `offset` is reached."""
        self._order += 1
        heappush(self._heap, (offset, self._order, done))

    def reached(self, end: int) -> None:
        """Notify the waiters below `end`."""
        heap = self._heap
        while heap and heap[0][0] < end:
            heappop(heap)[2](ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Fail all waiters."""
        heap, self._heap = self._heap, []
        for _, _, done in heap:
            done(error)


#: The same trouble is logged again after this time.
REPORT_AGAIN_MS: Final = 60_000


def is_report_due(reported_ms: float | None, now_ms: float) -> bool:
    """Whether trouble that was logged at `reported_ms`, or never (None), is logged at `now_ms`, of the same clock."""
    return reported_ms is None or now_ms - reported_ms >= REPORT_AGAIN_MS
