"""The in-sync replicas (ISR) of a partition, as its leader decides on them in one leader epoch.

The rules of Apache Kafka's `kafka.cluster.Partition` and `Replica`: who is caught up, when the leader proposes another
ISR to the controller (AlterPartition, KIP-497), what becomes of a proposal. Times are of the monotonic clock, in ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.wire.errors import ErrorCode

#: The end offset of a replica that has not fetched from this leader yet.
UNKNOWN_END: Final = -1
#: The broker epoch of a follower that has not named one.
UNKNOWN_BROKER_EPOCH: Final = -1
#: Before any time of the clock: when a replica that is not in sync was last caught up.
NEVER_MS: Final = float("-inf")

#: The controller says that the partition epoch was right and nothing was changed: the proposal is dropped.
ABANDONED_ERRORS = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
#: The leader's state is old: it proposes nothing more until it has the controller's new one.
OUT_OF_DATE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)

IsAlive = Callable[[int], bool]
"""Whether a follower's broker is registered, as far as this one knows, and has fetched under that registration."""


class IsrProposal(NamedTuple):
    """An ISR proposed to the controller, and the state that it is based on."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    #: The registrations under which the followers have fetched, by broker id; those not known are left out (KIP-903).
    broker_epochs: Mapping[int, int] = MappingProxyType({})


class Follower:
    """A leader's knowledge of one follower (Kafka's `ReplicaState`)."""

    __slots__ = (
        "broker_epoch",
        "end_offset",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_start_offset",
    )

    def __init__(self, last_caught_up_ms: float) -> None:
        self.end_offset = UNKNOWN_END
        self.log_start_offset = UNKNOWN_END
        #: The leader's end when this follower last fetched, and the time of that fetch.
        self.last_fetch_leader_end = UNKNOWN_END
        self.last_fetch_ms = NEVER_MS
        #: The latest time at which it is known to have had everything that the leader had.
        self.last_caught_up_ms = last_caught_up_ms
        #: The registration under which it fetched last.
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    def fetched(
        self,
        offset: int,
        log_start_offset: int,
        leader_end: int,
        now_ms: float,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """Note a fetch at `offset`.

        A fetch that reaches the leader's end of the fetch before proves that the follower was caught up then. So a
        follower of a leader that is written to all the time stays in sync, though it never reaches the end.
        """
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end = max(leader_end, self.last_fetch_leader_end)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def had_all(self, at_ms: float) -> None:
        """Note that its last fetch was at `at_ms` and found nothing that it lacked."""
        self.last_caught_up_ms = max(self.last_caught_up_ms, at_ms)
        self.last_fetch_ms = max(self.last_fetch_ms, at_ms)

    def elected_again(self, is_in_sync: bool, leader_end: int, now_ms: float) -> None:
        """Begin another epoch of the same leader: what the follower has is still known."""
        self.last_fetch_leader_end = leader_end
        self.last_fetch_ms = self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def is_caught_up(self, leader_end: int, now_ms: float, max_lag_ms: float) -> bool:
        """Whether it lacks nothing, however long it was silent, or was caught up at most `max_lag_ms` ago."""
        return self.end_offset == leader_end or now_ms - self.last_caught_up_ms <= max_lag_ms


class InSyncReplicas:
    """The ISR of a partition in one leader epoch: the committed one, and the proposal under way, at most one.

    `maximal` is the ISR that counts for the high watermark. An expansion counts from the proposal on, since the
    controller may have committed it at any moment since; what a shrink removes counts until the controller has agreed.
    """

    __slots__ = (
        "committed",
        "followers",
        "leader_epoch",
        "leader_id",
        "maximal",
        "ordered",
        "partition_epoch",
        "pending",
        "start_offset",
    )

    def __init__(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = -1
        self.partition_epoch = -1
        #: The log end offset when the leader epoch began.
        self.start_offset = 0
        self.followers: dict[int, Follower] = {}
        self.committed: frozenset[int] = frozenset()
        #: The same in the order of the state znode: who joins stands last, as in Kafka.
        self.ordered: tuple[int, ...] = ()
        self.maximal: frozenset[int] = frozenset()
        self.pending: IsrProposal | None = None

    def elected(
        self,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        leader_end: int,
        now_ms: float,
    ) -> None:
        """Begin a leader epoch with the controller's state. The time since the last catching up restarts."""
        known, self.followers = self.followers, {}
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.start_offset = leader_end
        self._commit(isr)
        for replica in replicas:
            if replica == self.leader_id:
                continue
            is_in_sync = replica in self.committed
            follower = known.get(replica)
            if follower is None:
                follower = Follower(now_ms if is_in_sync else NEVER_MS)
            else:
                follower.elected_again(is_in_sync, leader_end, now_ms)
            self.followers[replica] = follower

    # -- proposals

    def expansion(self, replica_id: int, high_watermark: int, is_alive: IsAlive) -> IsrProposal | None:
        """Propose to add a follower that has just fetched; None if it may not join, or a proposal is under way.

        It must be alive, at or beyond the high watermark, and at or beyond the start of this leader epoch: there may be
        committed records between the two, which it would lack as the next leader.
        """
        if self.pending is not None or replica_id in self.committed:
            return None
        follower = self.followers.get(replica_id)
        if follower is None or follower.end_offset < max(high_watermark, self.start_offset):
            return None
        return self._propose((*self.ordered, replica_id)) if is_alive(replica_id) else None

    def shrink(self, leader_end: int, now_ms: float, max_lag_ms: float) -> IsrProposal | None:
        """Propose to remove the followers that are not caught up; None if all are, or a proposal is under way."""
        if self.pending is not None:
            return None
        behind = self.out_of_sync(leader_end, now_ms, max_lag_ms)
        return self._propose(tuple(each for each in self.ordered if each not in behind)) if behind else None

    def out_of_sync(self, leader_end: int, now_ms: float, max_lag_ms: float) -> frozenset[int]:
        """The members of the ISR that lag: they lack records, and were last caught up more than `max_lag_ms` ago."""
        followers = self.followers
        return frozenset(
            replica
            for replica in self.committed
            if replica != self.leader_id
            and not (replica in followers and followers[replica].is_caught_up(leader_end, now_ms, max_lag_ms))
        )

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        followers = self.followers
        epochs = {
            replica: followers[replica].broker_epoch
            for replica in isr
            if replica in followers and followers[replica].broker_epoch != UNKNOWN_BROKER_EPOCH
        }
        self.pending = IsrProposal(self.leader_epoch, self.partition_epoch, isr, epochs)
        self.maximal = self.committed.union(isr)
        return self.pending

    def _commit(self, isr: Iterable[int]) -> None:
        self.pending = None
        self.ordered = tuple(isr)
        self.committed = self.maximal = frozenset(self.ordered)

    # -- answers of the controller

    def accepted(self, proposal: IsrProposal, leader_epoch: int, partition_epoch: int, isr: Iterable[int]) -> bool:
        """Take over the state that the controller has answered with; return False if the answer is out of date."""
        if proposal is not self.pending or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self._commit(isr)
        return True

    def refused(self, proposal: IsrProposal, error: int) -> bool:
        """Handle a refusal, a timeout or a lost connection; return whether to send the proposal again.

        Where it is not known whether the controller has changed the ISR, the proposal stays under way.
        """
        if proposal is not self.pending:
            return False
        if error in ABANDONED_ERRORS:
            self.pending = None
            self.maximal = self.committed
            return False
        return error not in OUT_OF_DATE

    # -- what counts

    def least_end(self, own_end: int, leader_end: int, now_ms: float, max_lag_ms: float, is_alive: IsAlive) -> int:
        """The end offset up to which all replicas of the maximal ISR, and those about to join it, have the records.

        `own_end` is the end of the leader's own records as far as they count, `leader_end` its log end. A live follower
        that is caught up in time counts, too: otherwise it might never reach a high watermark that moves on without it.
        """
        least = own_end
        maximal = self.maximal
        for replica, follower in self.followers.items():
            end = follower.end_offset
            if end < least and (
                replica in maximal or (follower.is_caught_up(leader_end, now_ms, max_lag_ms) and is_alive(replica))
            ):
                least = end
        return least

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        assert self.committed <= self.maximal, "what is committed counts"
        assert self.leader_id in self.committed, "the leader is in sync"
        assert self.leader_id not in self.followers, "the leader does not follow itself"
        if self.pending is None:
            assert self.maximal == self.committed, "without a proposal the committed ISR counts"
        else:
            assert self.maximal == self.committed | set(self.pending.isr), "what may be committed counts"
